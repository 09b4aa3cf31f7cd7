"""What the picture of a shape flow reads from the flow's data."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_lab.figures.data import as_sequence

SCHEMA = "shape_flow.v1"
MOST_STEPS = 18
_KEYS = ("title", "inputs", "steps", "roots", "verified", "failures")


@dataclass(frozen=True)
class Cells:
    """The first slice of a tensor: where its elements came from.

    Attributes
    ----------
    tokens, columns : of each element, −1 for none; `tokens` is None where
        nothing is known.
    count : how many tokens there are.
    """

    tokens: np.ndarray | None
    columns: np.ndarray
    count: int


def check_flow(flow: Any) -> Mapping[str, Any]:
    """Return the data, or refuse what is no recorded flow.

    Raises
    ------
    ValueError
        If the schema is another, nothing could be followed, or nothing was
        recorded.
    """
    if not isinstance(flow, Mapping) or flow.get("schema") != SCHEMA:
        found = (
            flow.get("schema")
            if isinstance(flow, Mapping)
            else type(flow).__name__
        )
        raise ValueError(
            f"flow must be data of schema {SCHEMA}, as ShapeFlow.to_dict() "
            f"returns, not {found!r}"
        )
    if flow.get("problem"):
        raise ValueError(f"flow: there is nothing to draw: {flow['problem']}")
    missing = [key for key in _KEYS if key not in flow]
    if missing:
        raise ValueError(f"flow: {missing[0]!r} is missing in the data")
    if not any(step["outputs"] for step in flow["steps"]):
        raise ValueError(
            "flow: no step was recorded, so there is nothing to draw"
        )
    return flow


def choose_steps(
    data: Mapping[str, Any], wanted: Sequence[int] | None
) -> list[Mapping[str, Any]]:
    """Return the steps to draw.

    By default those that change shape, strides or memory order, or contract
    axes: a scale or a mask looks like what it was made from.

    Raises
    ------
    ValueError
        If there is no such step, or it has no result.
    """
    steps = [step for step in data["steps"] if step["outputs"]]
    if wanted is not None:
        by_number = {step["number"]: step for step in steps}
        numbers = as_sequence("steps", wanted, "a list of step numbers")
        for number in numbers:
            if number not in by_number:
                raise ValueError(
                    f"steps: there is no step {number!r}; there are 1 … "
                    f"{len(data['steps'])}"
                )
        return [by_number[number] for number in numbers]
    known = {value["name"]: value for value in all_values(data)}
    told = {fact["step"] for fact in data["failures"]}
    chosen = [
        step
        for step in steps
        if step["number"] in told or _changes(step, known)
    ]
    return (chosen or steps)[:MOST_STEPS]


def _changes(step: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Whether a step's result looks different from what it was made from."""
    result = step["outputs"][0]
    looks = (result["shape"], result["strides"], result["letters"])
    before = [known[name] for name in step["inputs"] if name in known]
    return bool(before) and all(
        (v["shape"], v["strides"], v["letters"]) != looks for v in before[:1]
    )


def all_values(data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Return the inputs and every result, in order."""
    yield from data["inputs"]
    for step in data["steps"]:
        yield from step["outputs"]


def cells_of(data: Mapping[str, Any], value: Mapping[str, Any]) -> Cells:
    """Return token and column of each element of the first slice."""
    shape = tuple(value["shape"])
    last = (1, 1, *shape)[-2:]
    blank = np.full(last, -1)
    if value["line"] is None:
        return Cells(None, blank, 1)
    codes = np.array(value["line"], dtype=np.int64).reshape(shape)
    front = codes[(0,) * max(len(shape) - 2, 0)].reshape(last)
    tokens, columns, count = blank.copy(), blank.copy(), 1
    for root in data["roots"]:
        size = int(np.prod(root["shape"], dtype=np.int64))
        mine = (front >= root["offset"]) & (front < root["offset"] + size)
        if not mine.any():
            continue
        places = np.unravel_index(front[mine] - root["offset"], root["shape"])
        token = token_axis(root["letters"])
        tokens[mine] = places[token] if token is not None else 0
        columns[mine] = places[-1] if places else 0
        if token is not None:
            count = max(count, root["shape"][token])
    return Cells(tokens, columns, count)


def token_axis(letters: Sequence[str]) -> int | None:
    """Return which axis of a root counts its tokens.

    Examples
    --------
    >>> token_axis(["B", "L", "E"]), token_axis(["?", "?", "D"])
    (1, 1)
    """
    for axis, letter in enumerate(letters):
        if letter in ("L", "S"):
            return axis
    return len(letters) - 2 if len(letters) > 1 else None


def check_views(data: Mapping[str, Any]) -> tuple[int, int, int]:
    """Read every view's elements again, by its strides.

    The memory of a view is that of the tensor it looks at: at the place
    offset + Σ index · stride both must hold the same element.

    Returns
    -------
    How many elements agree, of how many, in how many views.
    """
    known: dict[str, Mapping[str, Any]] = {}
    right = total = views = 0
    for value in all_values(data):
        base = known.get(value["of"])
        known[value["name"]] = value
        readable = value["memory"] == "view" and base is not None
        if not readable or value["codes"] is None or base["codes"] is None:
            continue
        memory = dict(zip(_places(base), base["codes"], strict=True))
        read = [memory.get(p) for p in _places(value)]
        agree = [a == b for a, b in zip(read, value["codes"], strict=True)]
        right += sum(agree)
        total += len(agree)
        views += 1
    return right, total, views


def _places(value: Mapping[str, Any]) -> list[int]:
    """Return the place in memory of every element, in order."""
    grids = np.indices(tuple(value["shape"])).reshape(len(value["shape"]), -1)
    strides = np.array(value["strides"], dtype=np.int64)
    return (strides @ grids + value["offset"]).tolist()
