"""Recordings of kernels, checked before anything is drawn from them.

The script in `interactive/recorded.js` checks the same again, because a live
kernel may hand it other data.
"""

import math
from collections.abc import Mapping
from typing import Any

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_sequence,
    as_text,
    as_whole,
    check_index,
    check_size,
    read_field,
)

SCHEMA = "recording.v1"
SECTOR_BYTES, WORD_BYTES, BANKS = 32, 4, 32
_LANE_COLUMNS = ("threads", "elements", "addresses")
_COLUMNS = {
    "request": ("block", "epoch", "site", *_LANE_COLUMNS),
    "line": ("block", "epoch", "threads", "sites", "elements"),
}


def read_recording(place: str, recording: Any, granularity: str) -> dict:
    """Return a recording as data of one granularity, or refuse it.

    Parameters
    ----------
    place : how an error calls it.
    recording : what `attention_lab.gpu.record` returns, or its `to_data`.
    granularity : "request" or "line".

    Raises
    ------
    ShapeMismatch
        If a column has not as many rows as the first.
    ValueError
        If it is no recording, has another schema or granularity, holds no
        access, or a number that is not whole or lies outside its table.

    Examples
    --------
    >>> read_recording("recording", {"schema": "recording.v0"}, "line")
    Traceback (most recent call last):
    ValueError: recording has schema 'recording.v0'; this figure draws \
'recording.v1'
    """
    if hasattr(recording, "to_data"):
        recording = recording.to_data(granularity)
    if not isinstance(recording, Mapping):
        raise ValueError(
            f"{place} must be a recording, as record returns it, not "
            f"{type(recording).__name__}"
        )
    schema = read_field(recording, "schema", place)
    if schema != SCHEMA:
        raise ValueError(
            f"{place} has schema {schema!r}; this figure draws {SCHEMA!r}"
        )
    if "events" not in recording:
        raise ValueError(
            f"{place} holds no access: no GPU would start this launch. "
            f"{_first_sentence(recording)}"
        )
    found = recording["events"]
    if read_field(found, "granularity", place) != granularity:
        raise ValueError(
            f"{place} keeps its accesses by {found['granularity']}; this "
            f"figure needs to_data({granularity!r})"
        )
    columns = read_field(found, "columns", f"{place}.events")
    if sorted(columns) != sorted(_COLUMNS[granularity]):
        raise ValueError(
            f"{place}.events has the columns {', '.join(map(str, columns))}; "
            f"by {granularity} they are {', '.join(_COLUMNS[granularity])}"
        )
    for name in ("formula", "grid", "block", "sites", "memory"):
        read_field(recording, name, place)
    data = dict(recording)
    data["formula"] = {k: list(v) for k, v in (data["formula"] or {}).items()}
    for name in ("grid", "block"):
        as_sequence(f"{place}.{name}", data[name], "three sizes", 3)
    _check_events(place, data)
    return data


def _first_sentence(recording: Mapping) -> str:
    return " ".join(h["sentence"] for h in recording.get("hazards", ())[:1])


def _check_events(place: str, data: dict) -> None:
    """Refuse columns of different length, and numbers outside their table."""
    columns, rows = data["events"]["columns"], data["events"]["data"]
    if not rows or not rows[0]:
        raise ValueError(f"{place} holds no access: there is nothing to draw")
    for name, column in zip(columns, rows, strict=True):
        if len(column) != len(rows[0]):
            raise ShapeMismatch(
                f"{place}.events: the column {name} has {len(column)} rows, "
                f"but {columns[0]} has {len(rows[0])}"
            )
    threads, blocks = math.prod(data["block"]), math.prod(data["grid"])
    sites, memory = data["sites"], data["memory"]
    for number, step in enumerate(steps_of(data)):
        here = f"{place}.events[{number}]"
        check_index(f"{here}.block", step["block"], "grid", blocks)
        as_whole(f"{here}.epoch", step["epoch"])
        of_site = [step["site"]] if "site" in step else step["sites"]
        touched = [step["elements"]] if "site" in step else step["elements"]
        for site, elements in zip(of_site, touched, strict=True):
            check_index(f"{here}.site", site, "sites", len(sites))
            whole = math.prod(memory[sites[site]["memory"]]["shape"])
            _check_runs(f"{here}.elements", elements, whole)
        _check_runs(f"{here}.threads", step["threads"], threads)
        if "addresses" in step:
            _check_runs(f"{here}.addresses", step["addresses"], math.inf)
            sizes = {len(unrolled(step[name])) for name in _LANE_COLUMNS}
            if len(sizes) > 1:
                raise ShapeMismatch(
                    f"{here} has {min(sizes)} numbers for {max(sizes)} lanes"
                )
    for number, site in enumerate(sites):
        as_text(f"{place}.sites[{number}].text", site["text"])


def _check_runs(name: str, runs: Any, size: float) -> None:
    """Refuse runs that are no triples of whole numbers, or end outside."""
    if not len(runs) or len(runs) % 3:
        raise ShapeMismatch(
            f"{name} has {len(runs)} numbers; runs are threes of start, step "
            "and count"
        )
    for start, step, count in zip(*(runs[k::3] for k in range(3)), strict=True):
        as_whole(name, start)
        as_whole(name, step, least=-math.inf)
        last = start + step * (as_whole(name, count, least=1) - 1)
        if not 0 <= last < size or start >= size:
            raise ValueError(
                f"{name} go to {max(start, last)}, but there are {size}"
            )


def check_threads(place: str, data: dict, most: int) -> None:
    """Refuse a block that has more threads than can be drawn."""
    check_size(place, "threads of a block", math.prod(data["block"]), most)


def steps_of(data: dict) -> list[dict[str, Any]]:
    """Return the rows of the events as dictionaries."""
    columns = data["events"]["columns"]
    rows = zip(*data["events"]["data"], strict=True)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def unrolled(runs: list[int]) -> list[int]:
    """Return the numbers of runs [start, step, count, …].

    Examples
    --------
    >>> unrolled([4, 1, 3, 20, 0, 1])
    [4, 5, 6, 20]
    """
    return [
        runs[n] + k * runs[n + 1]
        for n in range(0, len(runs), 3)
        for k in range(runs[n + 2])
    ]


def index_text(memory: dict, element: int) -> str:
    """Name the place of an element, given its row-major number.

    Examples
    --------
    >>> index_text({"shape": [4, 8]}, 11)
    '[1, 3]'
    """
    index = []
    for size in reversed(memory["shape"]):
        index.insert(0, element % size)
        element //= size
    return f"[{', '.join(map(str, index))}]"


def who(number: int, sizes: list[int]) -> str:
    """Name a thread or a block as a kernel counts it.

    Examples
    --------
    >>> who(5, [4, 2, 1]), who(5, [8, 1, 1])
    ('(1, 1)', '5')
    """
    x, y, z = sizes
    index = [number % x, number // x % y, number // (x * y)]
    axes = 3 if z > 1 else 2 if y > 1 else 1
    if axes == 1:
        return str(number)
    return f"({', '.join(map(str, index[:axes]))})"


def cost_of(memory: dict, step: dict) -> int:
    """Return the sectors of a request, or its passes over the banks.

    Examples
    --------
    >>> step = {"addresses": [0, 4, 2, 128, 0, 1]}
    >>> cost_of({"space": "global"}, step), cost_of({"space": "shared"}, step)
    (2, 2)
    """
    addresses = unrolled(step["addresses"])
    if memory["space"] == "global":
        return len({address // SECTOR_BYTES for address in addresses})
    banks = [w % BANKS for w in {a // WORD_BYTES for a in addresses}]
    return max(banks.count(bank) for bank in set(banks))
