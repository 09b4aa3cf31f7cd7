"""The data of a flash theatre, forward or backward, checked and judged.

The script in `interactive/theatre_data.js` checks the same again, because a
live kernel may hand it other data.
"""

import math
from typing import Any, NamedTuple

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
from attention_lab.figures.digits import error_text
from attention_lab.figures.picture import Verdict

#: What a screen of 320 px shows legibly.
MOST_IN_TILE, MOST_CHANNELS, MOST_TILES = 8, 8, 6
COUNTS = ("total", "formula", "naive", "naive_formula", "square", "hazards")


class Play(NamedTuple):
    """What one kind of theatre shows.

    schema : of its data.
    parts : what is recorded after each tile, and its axes within the tile.
    results : what is recorded once, and its axes.
    errors : what is held against the reference: {name of the fields: label}.
    telling : which of these must show a mistake.
    """

    schema: str
    parts: dict[str, str]
    results: dict[str, str]
    errors: dict[str, str]
    telling: tuple[str, ...]


FORWARD = Play(
    "flash_theatre.v1",
    {
        "scores": "LS",
        "row_max": "L",
        "rescale": "L",
        "row_sum": "L",
        "acc": "LD",
    },
    {"out": "LD", "lse": "L"},
    {"output": "output", "lse": "log-sum-exp"},
    ("output",),
)
BACKWARD = Play(
    "flash_theatre_backward.v1",
    {
        "scores": "LS",
        "weights": "LS",
        "d_weights": "LS",
        "d_scores": "LS",
        "dq_sum": "LD",
        "dk": "SD",
        "dv": "SD",
    },
    {"lse": "L", "row_dot": "L", "dq": "LD"},
    {"dq": "dQ", "dk": "dK", "dv": "dV"},
    ("dq", "dk", "dv"),
)


def read_theatre(recording: Any, play: Play = FORWARD) -> dict[str, Any]:
    """Return the recording of a theatre, or refuse it.

    A run with a slip may leave out what it has in common with the right run
    of its name; what comes back is complete.

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
    runs = read_runs(recording, play.schema)
    D = as_whole(
        "recording.D", read_field(recording, "D", "recording"), least=1
    )
    check_size("recording", "D", D, MOST_CHANNELS)
    slips = read_field(recording, "slips", "recording")
    right: dict[str, Any] = {}
    whole = []
    for number, run in enumerate(runs):
        place = f"recording.runs[{number}]"
        name = as_text(f"{place}.name", read_field(run, "name", place))
        slip = read_field(run, "slip", place)
        if slip is not None:
            if name not in right:
                raise ValueError(
                    f"{place} has a slip, but no right run of {name!r} comes "
                    "before it"
                )
            run = {**right[name], **run}
            told = read_field(slips, slip, "recording.slips")
            for word in ("name", "says"):
                as_text(f"{place}.slip", read_field(told, word, place))
        _check_run(run, D, place, play)
        if slip is None:
            right[name] = run
        whole.append(run)
    return {**recording, "runs": whole}


def verdicts_of(data: dict[str, Any], play: Play) -> list[Verdict]:
    """Return what was checked on all runs of a theatre, right and wrong."""
    rights = [run for run in data["runs"] if run["slip"] is None]
    wrongs = [run for run in data["runs"] if run["slip"] is not None]
    source = f"{data['dtype']} loop, seed {data['seed']}"
    verdicts = [
        _against_reference(label, field, rights, source)
        for field, label in play.errors.items()
    ]
    counted = [run["traffic"] for run in rights if run["traffic"]]
    if counted:
        equal = [
            t["total"] == t["formula"] and t["naive"] == t["naive_formula"]
            for t in counted
        ]
        first = counted[0]
        verdicts.append(
            Verdict(
                "traffic, measured ÷ formula",
                all(equal),
                f"{first['total'] / first['formula']:.4f}",
                f"exact; {sum(equal)} of {len(counted)} runs",
                "recorded kernels",
            )
        )
        hazards = sum(t["hazards"] for t in counted)
        verdicts.append(
            Verdict(
                "races, bounds, barriers",
                hazards == 0,
                f"{hazards} hazards found",
                f"none; {len(counted)} runs",
                "recorded kernels",
            )
        )
    for run in wrongs:
        field = max(play.telling, key=lambda field: _used(run, field))
        where = f" in {play.errors[field]}" if len(play.telling) > 1 else ""
        verdicts.append(
            Verdict(
                f"mistake “{data['slips'][run['slip']]['name']}” shows{where}",
                _used(run, field) > 1,
                f"off by {error_text(_off(run, field))}",
                f"> {error_text(run[f'{field}_bound'])}",
                f"{run['name']}; {source}",
            )
        )
    return verdicts


def _against_reference(
    label: str, field: str, rights: list[dict[str, Any]], source: str
) -> Verdict:
    """Return the verdict of the right run that uses most of its bound."""
    worst = max(rights, key=lambda run: _used(run, field))
    return Verdict(
        f"{label} against the reference, {len(rights)} runs",
        all(_used(run, field) <= 1 for run in rights),
        f"at worst off by {error_text(_off(worst, field))}",
        f"≤ {error_text(worst[f'{field}_bound'])}",
        source,
    )


def _off(run: dict[str, Any], field: str) -> float:
    """Return how far a result is off; a null error is infinite."""
    error = run[f"{field}_error"]
    return math.inf if error is None else error


def _used(run: dict[str, Any], field: str) -> float:
    """Return which part of its bound an error uses; 1 is all of it."""
    off, bound = _off(run, field), run[f"{field}_bound"]
    if bound == 0:
        return math.inf if off else 0.0
    return off / bound


def _check_run(run: Any, D: int, place: str, play: Play) -> None:
    """Refuse a run in which a number is missing, or one too many."""
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
    for part in play.parts:
        lists = read_field(run, part, place)
        if len(lists) != len(tiles):
            raise ShapeMismatch(
                f"{place}.{part} has {len(lists)} steps, but tiles has "
                f"{len(tiles)}"
            )
    for number, (row, column) in enumerate(tiles):
        here = {
            "L": min(sizes["TILE_L"], sizes["L"] - row * sizes["TILE_L"]),
            "S": min(sizes["TILE_S"], sizes["S"] - column * sizes["TILE_S"]),
            "D": D,
        }
        for part, axes in play.parts.items():
            wanted = [math.prod(here[axis] for axis in axes)]
            if part == "scores" and run["slip"] is not None:
                # It may read behind the last key.
                wanted.append(here["L"] * sizes["TILE_S"])
            _check_numbers(
                f"{place}.{part}[{number}]",
                run[part][number],
                wanted,
                "its tile has",
            )
    everywhere = {**sizes, "D": D}
    for part, axes in play.results.items():
        wanted = [math.prod(everywhere[axis] for axis in axes)]
        numbers = read_field(run, part, place)
        owner = f"{' · '.join(axes)} is"
        _check_numbers(f"{place}.{part}", numbers, wanted, owner)
    for field in play.errors:
        bound = f"{field}_bound"
        as_number(f"{place}.{bound}", read_field(run, bound, place), least=0)
        error = read_field(run, f"{field}_error", place)
        if error is not None:
            as_number(f"{place}.{field}_error", error, least=0)
    traffic = read_field(run, "traffic", place)
    if traffic is not None:
        for count in COUNTS:
            as_whole(f"{place}.traffic", read_field(traffic, count, place))
        if len(read_field(traffic, "so_far", place)) != len(tiles):
            raise ShapeMismatch(
                f"{place}.traffic.so_far has {len(traffic['so_far'])} steps, "
                f"but tiles has {len(tiles)}"
            )


def _check_numbers(
    name: str, numbers: Any, sizes: list[int], owner: str
) -> None:
    """Refuse a list of another length, or one with NaN or an infinity."""
    listed = as_sequence(name, numbers, "a list of numbers")
    if len(listed) not in sizes:
        raise ShapeMismatch(
            f"{name} has {len(listed)} numbers, but {owner} {sizes[0]}"
        )
    as_array(name, [0.0 if x is None else x for x in listed], axes="N")
