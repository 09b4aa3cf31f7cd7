"""The data of a flash theatre, checked before anything is drawn from it.

The script in `interactive/theatre_data.js` checks the same again, because a
live kernel may hand it other data.
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
    check_size,
    read_field,
    read_runs,
)

SCHEMA = "flash_theatre.v1"
#: What a screen of 320 px shows legibly.
MOST_IN_TILE, MOST_CHANNELS, MOST_TILES = 8, 8, 6
PARTS = ("scores", "row_max", "rescale", "row_sum", "acc")


def read_theatre(recording: Any) -> dict[str, Any]:
    """Return a recording of `steps.flash_theatre`, or refuse it.

    Raises
    ------
    ShapeMismatch
        If a list has not as many numbers as its tile has rows and columns.
    ValueError
        If the schema is another one, there is no right run or a slip without
        one, a number is missing or NaN, or an axis is too long to draw.

    Examples
    --------
    >>> read_theatre({"schema": "flash_theatre.v0"})
    Traceback (most recent call last):
    ValueError: recording has schema 'flash_theatre.v0'; this figure draws \
'flash_theatre.v1'
    """
    runs = read_runs(recording, SCHEMA)
    D = as_whole(
        "recording.D", read_field(recording, "D", "recording"), least=1
    )
    check_size("recording", "D", D, MOST_CHANNELS)
    slips = read_field(recording, "slips", "recording")
    right: set[str] = set()
    for number, run in enumerate(runs):
        place = f"recording.runs[{number}]"
        _check_run(run, D, place)
        if run["slip"] is None:
            right.add(run["name"])
        elif run["name"] not in right:
            raise ValueError(
                f"{place} has a slip, but no right run of {run['name']!r} "
                "comes before it"
            )
        else:
            slip = read_field(slips, run["slip"], "recording.slips")
            for word in ("name", "says"):
                as_text(f"{place}.slip", read_field(slip, word, place))
    return dict(recording)


def _check_run(run: Any, D: int, place: str) -> None:
    """Refuse a run in which a number is missing, or one too many."""
    as_text(f"{place}.name", read_field(run, "name", place))
    read_field(run, "slip", place)
    sizes = {
        axis: as_whole(f"{place}.{axis}", read_field(run, axis, place), least=1)
        for axis in ("L", "S", "TILE_L", "TILE_S")
    }
    for axis in "LS":
        tile = sizes[f"TILE_{axis}"]
        check_size(place, f"{axis} in a tile", tile, MOST_IN_TILE)
        tiles = math.ceil(sizes[axis] / tile)
        check_size(place, f"{axis} in tiles", tiles, MOST_TILES)
    tiles = as_sequence(
        f"{place}.tiles", read_field(run, "tiles", place), "a list"
    )
    if not tiles:
        raise ValueError(f"{place}.tiles is empty: there is nothing to draw")
    for part in PARTS:
        lists = read_field(run, part, place)
        if len(lists) != len(tiles):
            raise ShapeMismatch(
                f"{place}.{part} has {len(lists)} steps, but tiles has "
                f"{len(tiles)}"
            )
    for number, (row, column) in enumerate(tiles):
        rows = min(sizes["TILE_L"], sizes["L"] - row * sizes["TILE_L"])
        keys = min(sizes["TILE_S"], sizes["S"] - column * sizes["TILE_S"])
        wanted = {"scores": (rows * keys,), "acc": (rows * D,)}
        if run["slip"] is not None:  # it may read behind the last key
            wanted["scores"] += (rows * sizes["TILE_S"],)
        for part in PARTS:
            name = f"{place}.{part}[{number}]"
            _check_numbers(name, run[part][number], wanted.get(part, (rows,)))
    _check_numbers(
        f"{place}.out", read_field(run, "out", place), (sizes["L"] * D,)
    )
    _check_numbers(f"{place}.lse", read_field(run, "lse", place), (sizes["L"],))
    for result in ("output", "lse"):
        bound = f"{result}_bound"
        as_number(f"{place}.{bound}", read_field(run, bound, place), least=0)
        error = read_field(run, f"{result}_error", place)
        if error is not None:
            as_number(f"{place}.{result}_error", error, least=0)
    traffic = read_field(run, "traffic", place)
    if traffic is not None:
        for count in ("total", "formula", "naive", "naive_formula", "square"):
            as_whole(f"{place}.traffic", read_field(traffic, count, place))
        if len(read_field(traffic, "so_far", place)) != len(tiles):
            raise ShapeMismatch(
                f"{place}.traffic.so_far has {len(traffic['so_far'])} steps, "
                f"but tiles has {len(tiles)}"
            )


def _check_numbers(name: str, numbers: Any, sizes: tuple[int, ...]) -> None:
    """Refuse a list of another length, or one with NaN or an infinity."""
    listed = as_sequence(name, numbers, "a list of numbers")
    if len(listed) not in sizes:
        raise ShapeMismatch(
            f"{name} has {len(listed)} numbers, but its tile has {sizes[0]}"
        )
    as_array(name, [0.0 if x is None else x for x in listed], axes="N")
