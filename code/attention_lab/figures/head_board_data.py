"""The data of a head board, checked before anything is drawn from it.

The script in `interactive/head_board.js` checks the same again, because a live
kernel may hand it other data.
"""

import math
from typing import Any

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_array,
    as_number,
    as_sequence,
    as_text,
    as_whole,
    check_same_size,
    check_size,
    read_field,
    read_runs,
)

SCHEMA = "head_board.v1"
#: What a screen of 320 px shows legibly.
MOST_CHANNELS, MOST_TOKENS = 8, 8
COUNTS = ("parameters", "flops", "loop_flops", "scores")
ERRORS = ("loop_error", "whole_error", "error", "wrong_error")
BOUNDS = ("loop_bound", "bound")


def read_head_board(recording: Any) -> dict[str, Any]:
    """Return a recording of `steps.head_board`, or refuse it.

    Raises
    ------
    ShapeMismatch
        If H·D is not E, or a list has not as many numbers as its array.
    ValueError
        If the schema is another one, there is no run, a number is missing or
        NaN, a place of the output holds no number of a head, or an axis is
        too long to draw.
    """
    runs = read_runs(recording, SCHEMA)
    for axis, most in (("L", MOST_TOKENS), ("E", MOST_CHANNELS)):
        size = read_field(recording, axis, "recording")
        as_whole(f"recording.{axis}", size, least=1)
        check_size("recording", axis, size, most)
    for number, run in enumerate(runs):
        _check_run(
            run, recording["L"], recording["E"], f"recording.runs[{number}]"
        )
    return dict(recording)


def _check_run(run: Any, L: int, E: int, place: str) -> None:
    """Refuse a run in which a number is missing, or one too many."""
    as_text(f"{place}.name", read_field(run, "name", place))
    H, G, D = (
        as_whole(f"{place}.{axis}", read_field(run, axis, place), least=1)
        for axis in "HGD"
    )
    if H * D != E or H % G:
        raise ShapeMismatch(
            f"{place}: H = {H} heads of D = {D}, with G = {G} key heads, do "
            f"not fill axis E, which has size {E}"
        )
    for name, many in (("rows_q", H), ("rows_kv", G)):
        rows = as_array(
            f"{place}.{name}", read_field(run, name, place), axes="HD"
        )
        for axis, size, known in zip("HD", rows.shape, (H, D), strict=True):
            check_same_size(f"{place}.{name}", size, axis, place, known)
        _check_places(f"{place}.{name}", rows.ravel(), many * D)
    for name, most in (("heads", H), ("tokens", L)):
        for way in (name, f"wrong_{name}"):
            _check_numbers(run, way, place, L * E)
            _check_places(f"{place}.{way}", run[way], most)
    off = as_sequence(f"{place}.off", read_field(run, "off", place), "a list")
    check_same_size(f"{place}.off", len(off), "H", place, H)
    for where, part in [
        (place, run),
        *((f"{place}.off[{head}]", part) for head, part in enumerate(off)),
    ]:
        for name in ("out", "wrong_out"):
            _check_numbers(part, name, where, L * E)
    for head, part in enumerate(off):
        for name in ("inside", "outside"):
            where = f"{place}.off[{head}]"
            as_number(f"{where}.{name}", read_field(part, name, where), least=0)
    for name in COUNTS:
        as_whole(f"{place}.{name}", read_field(run, name, place), least=1)
    for name in ERRORS:
        as_number(f"{place}.{name}", read_field(run, name, place), least=0)
    for name in BOUNDS:
        bound = read_field(run, name, place)
        as_number(f"{place}.{name}", bound, least=math.ulp(0.0))


def _check_numbers(part: Any, name: str, place: str, size: int) -> None:
    """Refuse a list of another length, or one with NaN or an infinity."""
    listed = as_array(
        f"{place}.{name}", read_field(part, name, place), axes="N"
    )
    if len(listed) != size:
        raise ShapeMismatch(
            f"{place}.{name} has {len(listed)} numbers, but its array has "
            f"L·E = {size}"
        )


def _check_places(name: str, places: Any, size: int) -> None:
    """Refuse what does not name every one of `size` places."""
    if set(places) != set(range(size)):
        raise ValueError(
            f"{name} must name every place from 0 to {size - 1}, but it has "
            f"{len(set(places))} of them, up to {max(places)}"
        )
