"""The data of "follow the element", checked before anything is drawn.

The script in `interactive/follow_element.js` checks the same again, because a
live kernel may hand it other data.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_array,
    as_sequence,
    as_text,
    as_whole,
    check_index,
    check_schema,
    check_size,
    read_field,
)

SCHEMA = "follow_element.v1"
#: What a screen of 320 px shows legibly.
MOST_ELEMENTS, MOST_COLUMNS, MOST_STEPS = 96, 6, 9


def read_follow(recording: Any) -> dict[str, Any]:
    """Return what `steps.follow_element` recorded, or refuse it.

    Raises
    ------
    ShapeMismatch
        If a tensor has not as many elements as its shape, or an axis no
        stride or letter.
    ValueError
        If the schema is another one, a part is missing or empty, an element
        has no name, or a tensor is too large to draw.

    Examples
    --------
    >>> read_follow({"schema": "follow_element.v0"})
    Traceback (most recent call last):
    ValueError: recording has schema 'follow_element.v0'; this figure draws \
'follow_element.v1'
    """
    check_schema(recording, SCHEMA)
    as_text("recording.dtype", read_field(recording, "dtype", "recording"))
    inputs = read_field(recording, "inputs", "recording")
    chains = as_sequence(
        "recording.chains",
        read_field(recording, "chains", "recording"),
        "a list of chains",
    )
    if not chains:
        raise ValueError("recording.chains is empty: there is nothing to draw")
    for n, chain in enumerate(chains):
        _check_chain(chain, inputs, f"recording.chains[{n}]", n)
    return dict(recording)


def _check_chain(chain: Any, inputs: Any, place: str, n: int) -> None:
    as_text(f"{place}.name", read_field(chain, "name", place))
    source = read_field(
        inputs, read_field(chain, "input", place), "recording.inputs"
    )
    names = as_sequence(
        f"{place}.input.names", read_field(source, "names", place), "a list"
    )
    check_size(place, "of elements", len(names), MOST_ELEMENTS)
    tokens = read_field(source, "tokens", place)
    if len(tokens) != len(names):
        raise ShapeMismatch(
            f"{place}.input has {len(names)} names, but {len(tokens)} tokens"
        )
    start = read_field(source, "start", place)
    check_index(f"{place}.input.start", start, "of elements", len(names))
    instead = read_field(chain, "instead", place)
    if instead is not None:
        check_index(f"{place}.instead", instead, "of chains before it", n)
    steps = as_sequence(
        f"{place}.steps", read_field(chain, "steps", place), "a list of steps"
    )
    check_size(place, "of steps", len(steps), MOST_STEPS)
    if len(steps) < 2:
        raise ValueError(
            f"{place}.steps has {len(steps)} of at least 2 steps: there is "
            "nothing to follow"
        )
    for m, step in enumerate(steps):
        _check_step(step, len(names), f"{place}.steps[{m}]")
    if steps[-1]["wanted"] is None:
        raise ValueError(
            f"{place}: its result is not held against the reference"
        )
    run = read_field(chain, "run", place)
    as_whole(f"{place}.run.misplaced", read_field(run, "misplaced", place))
    for word in ("is_view", "agrees"):
        if not isinstance(read_field(run, word, place), bool):
            raise ValueError(f"{place}.run.{word} must be True or False")
    for larger in read_field(chain, "larger", place):
        for word in ("misplaced", "total"):
            number = read_field(larger, word, f"{place}.larger")
            as_whole(f"{place}.larger.{word}", number)


def _check_step(step: Any, elements: int, place: str) -> None:
    as_text(f"{place}.call", read_field(step, "call", place))
    shape = as_array(f"{place}.shape", read_field(step, "shape", place))
    size = math.prod(shape.tolist())
    for part in ("strides", "letters"):
        given = len(read_field(step, part, place))
        if given != len(shape):
            raise ShapeMismatch(
                f"{place}.{part} has {given} entries, but its shape has "
                f"{len(shape)} axes"
            )
    as_array(f"{place}.strides", step["strides"])
    last, width = str(step["letters"][-1]), int(shape[-1])
    if all(width % n for n in range(2, MOST_COLUMNS + 1)):  # cannot be folded
        check_size(place, last, width, MOST_COLUMNS)
    for part in ("offset", "memory"):
        as_whole(f"{place}.{part}", read_field(step, part, place))
    for part in ("codes", "wanted"):
        codes = read_field(step, part, place)
        if codes is None and part == "wanted":
            continue
        array = as_array(f"{place}.{part}", codes)
        if array.size != size:
            raise ShapeMismatch(
                f"{place}.{part} has {array.size} elements, but its shape "
                f"{tuple(shape.tolist())} has {size}"
            )
        for code in array.ravel().tolist():
            check_index(f"{place}.{part}", code, "of elements", elements)


def places_of(step: Mapping[str, Any]) -> Iterator[tuple[list[int], int]]:
    """Yield index and place in memory of every element, in order.

    Examples
    --------
    >>> step = {"shape": [2, 2], "strides": [1, 2], "offset": 0}
    >>> [place for _, place in places_of(step)]
    [0, 2, 1, 3]
    """
    for n in range(math.prod(step["shape"])):
        index = []
        for size in reversed(step["shape"]):
            index.insert(0, n % size)
            n //= size
        strides = zip(index, step["strides"], strict=True)
        yield index, step["offset"] + sum(i * s for i, s in strides)


def memories(chain: Mapping[str, Any]) -> dict[int, dict[int, int]]:
    """Return each memory as place → element, as its first tensor has it."""
    found: dict[int, dict[int, int]] = {}
    for step in chain["steps"]:
        if step["memory"] not in found:
            places = (place for _, place in places_of(step))
            found[step["memory"]] = dict(
                zip(places, step["codes"], strict=True)
            )
    return found


def strides_right(chain: Mapping[str, Any]) -> tuple[int, int]:
    """Count elements that every tensor's strides find in its memory.

    Returns
    -------
    How many are there, of how many.
    """
    known = memories(chain)
    found = [
        known[step["memory"]].get(place) == code
        for step in chain["steps"]
        for (_, place), code in zip(places_of(step), step["codes"], strict=True)
    ]
    return sum(found), len(found)


def misplaced(step: Mapping[str, Any]) -> int:
    """Count elements that the reference has elsewhere; 0 if not judged."""
    if step["wanted"] is None:
        return 0
    pairs = zip(step["codes"], step["wanted"], strict=True)
    return sum(code != right for code, right in pairs)
