"""Which known mistake a hazard is, told from where and when it happened.

Barriers. Two threads race on a shared tile: one writes, one reads. Between two
barriers, look at a thread that does both. If it writes first, it is loading
what is then read: the barrier *after the load* is missing. If it reads first,
it is done with the tile and goes on to fill it again: the barrier *before the
next load* is missing. Where no thread does both, a tile that was already
filled before the last barrier says "before the next load".

A stuck block. A thread that waits at another barrier walked around this one:
the barrier stands under a condition. Of one that had already finished, the
source tells which kept it away, see `divergence`.

Outside an array. A load beyond the last axis of an input alone read past the
width of a row: the width was rounded up. Otherwise a guard is missing, if all
that should be written is there and right: then only threads without work went
astray. If not, the index itself is wrong, which has no name.

Nothing written yet. A shared array that is read unwritten at every size was
never filled; if other sizes are right and clean, the last load did not cover
the whole tile.
"""

from typing import Any

import numpy as np

from attention_lab.verify.kernel.bench import (
    Bench,
    Prepared,
    Run,
    python_function,
)
from attention_lab.verify.kernel.compare import compare
from attention_lab.verify.kernel.divergence import why_divergent

READ, WRITE = "read", "write"


def name_hazard(
    hazard: Any, bench: Bench, case: Prepared, run: Run, tested: list[dict]
) -> str | None:
    """Return the id of the mistake behind a hazard, or None.

    Parameters
    ----------
    hazard : one of ``run.recording.hazards``.
    case, run : where it was found.
    tested : all sizes that are tested.
    """
    if hazard.kind == "race":
        return _race(hazard, run.recording.to_data("access"))
    if hazard.kind == "divergent-barrier":
        data = run.recording.to_data("access")
        return _divergence(hazard, case.kernel, data)
    if hazard.kind == "out-of-bounds":
        return _outside(case, run)
    if hazard.kind == "uninitialised-read":
        return _unwritten(hazard, bench, run, tested)
    return None


def _rows(data: dict[str, Any], array: str) -> list[dict[str, Any]]:
    """Return the accesses of one array as rows, in the order they happened."""
    columns = data["events"]["columns"]
    rows = []
    for values in zip(*data["events"]["data"], strict=True):
        row = dict(zip(columns, values, strict=True))
        site = data["sites"][row["site"]]
        memory = data["memory"][site["memory"]]
        if array in ("", memory["label"]):
            rows.append({**row, **site, "shape": memory["shape"]})
    return rows


def _race(hazard: Any, data: dict[str, Any]) -> str | None:
    rows = [
        row
        for row in _rows(data, hazard.array)
        if row["line"] in hazard.lines and row["block"] in hazard.blocks
    ]
    element = _row_major(hazard.indices, rows[0]["shape"])
    here = [row for row in rows if row["element"] == element]
    if hazard.lines[0] == hazard.lines[1]:
        readers = {_who(r) for r in here if r["kind"] == READ}
        writers = {_who(r) for r in here if r["kind"] == WRITE}
        if len(readers & writers) > 1:
            return "race-on-a-sum"
    spaces = {m["label"]: m["space"] for m in data["memory"]}
    if spaces[hazard.array] != "shared" or not any(
        row["kind"] == READ for row in here
    ):
        return None
    if hazard.lines[0] == hazard.lines[1]:
        # One line reads a neighbour's value and writes its own: it must wait
        # until the neighbour has written.
        return "missing-barrier-after-load"
    return _which_barrier(rows, here)


def _which_barrier(
    rows: list[dict[str, Any]], here: list[dict[str, Any]]
) -> str:
    """Say which barrier of a load-compute loop is missing."""
    epoch = _first_conflict(here)
    first: dict[int, str] = {}
    kinds: dict[int, set[str]] = {}
    for row in rows:
        if row["epoch"] == epoch:
            first.setdefault(row["thread"], row["kind"])
            kinds.setdefault(row["thread"], set()).add(row["kind"])
    both = [first[t] for t, seen in kinds.items() if seen >= {READ, WRITE}]
    if both:
        is_filled = READ in both
    else:
        is_filled = any(
            row["epoch"] < epoch and row["kind"] == WRITE for row in here
        )
    if is_filled:
        return "missing-barrier-before-next-load"
    return "missing-barrier-after-load"


def _first_conflict(here: list[dict[str, Any]]) -> int:
    """Return the first stretch in which two threads touch the element."""
    for epoch in sorted({row["epoch"] for row in here}):
        rows = [row for row in here if row["epoch"] == epoch]
        writers = {r["thread"] for r in rows if r["kind"] == WRITE}
        if writers and len({r["thread"] for r in rows}) > 1:
            return epoch
    return here[0]["epoch"]


def _divergence(hazard: Any, kernel: Any, data: dict[str, Any]) -> str | None:
    if len(hazard.lines) > 1:
        return "barrier-under-condition"
    touched = [
        row["line"]
        for row in _rows(data, "")
        if row["thread"] == hazard.threads[1]
        and row["block"] == hazard.blocks[0]
    ]
    return why_divergent(python_function(kernel), hazard.lines[0], touched)


def _outside(case: Prepared, run: Run) -> str | None:
    shapes = {
        name: array.shape
        for name, array in zip(case.names, case.launch.args, strict=True)
        if isinstance(array, np.ndarray)
    }
    found = [
        h
        for h in run.recording.hazards
        if h.kind == "out-of-bounds" and h.array in shapes
    ]
    if not found or any(i < 0 for h in found for i in h.indices):
        return None
    if not any(h.array in case.output_names for h in found):
        for hazard in found:
            *leading, width = shapes[hazard.array]
            *places, last = hazard.indices
            inside = all(i < n for i, n in zip(places, leading, strict=True))
            if leading and inside and last >= width:
                return "padding-width-read"
    is_right = compare(case, run) is None
    is_whole = not any(absent.any() for absent in run.missing)
    return "guard-missing" if is_right and is_whole else None


def _unwritten(
    hazard: Any, bench: Bench, run: Run, tested: list[dict]
) -> str | None:
    spaces = {
        m["label"]: m["space"] for m in run.recording.to_data("tile")["memory"]
    }
    if spaces[hazard.array] != "shared":
        return None
    others = [(bench.prepare(sizes), bench.run(sizes)) for sizes in tested]
    for case, other in others:
        if other.recording.is_clean and compare(case, other) is None:
            return "kernel-stale-tile"
    if all(hazard.kind in other.recording.kinds for _, other in others):
        return "uninitialised-shared"
    return None


def _row_major(indices: tuple[int, ...], shape: list[int]) -> int:
    element = 0
    for index, size in zip(indices, shape, strict=True):
        element = element * size + index
    return element


def _who(row: dict[str, Any]) -> tuple[int, int]:
    return row["block"], row["thread"]
