"""Flash theatre: recorded flash runs, tile by tile, right and wrong.

The static layer is a comic of the first block of queries: before, one frame per
tile of keys, after. The interactive layer walks through every recorded run.
"""

import math
from dataclasses import replace
from typing import Any

import numpy as np

from attention_lab.figures.digits import cell_text, fixed_text
from attention_lab.figures.flash_frames import layout_flash_frame
from attention_lab.figures.live import LiveFigure
from attention_lab.figures.marks import Label, Mark
from attention_lab.figures.palette import MUTED, value_color
from attention_lab.figures.parts import axis_name, cell, heading, note
from attention_lab.figures.picture import Panel, Picture, Table
from attention_lab.figures.theatre_data import (
    FORWARD,
    read_theatre,
    verdicts_of,
)

_LEFT, _ROW, _CELL = 58, 20, 28


def draw_flash_theatre(
    recording: Any, *, title: str = "One flash run, tile by tile"
) -> LiveFigure:
    """Draw recorded flash runs: a comic, and a stage to walk through them.

    Parameters
    ----------
    recording : what `attention_lab.steps.flash_theatre.record_theatre` returns
        (schema "flash_theatre.v1"). The first run is the comic's.
    title : heading of the figure.

    Returns
    -------
    A `LiveFigure`: its output and log-sum-exp are held against the reference,
    the measured traffic against the formula, and every wrong loop must be
    farther off than a right one may be.

    Raises
    ------
    ShapeMismatch
        If a list has not as many numbers as its tile.
    ValueError
        If the recording has another schema, is empty, holds NaN, or is too
        large to draw; names the place and the sizes.
    """
    data = read_theatre(recording)
    run = data["runs"][0]
    steps = _first_block(run, data["D"])
    panels = [
        _plain_frame(
            "Before: nothing is kept", "",
            np.zeros((len(steps[0]["row_max"]), data["D"])),
            ("max −∞,  sum 0,  acc 0", "for every query of the block"),
        ),
        *(
            layout_flash_frame(steps, number, run["S"], run["TILE_S"], 0)
            for number in range(len(steps))
        ),
        _last_frame(run, steps, data["D"]),
    ]  # fmt: skip
    widest = max(panel.width for panel in panels)
    panels = [replace(panel, width=widest) for panel in panels]
    moved = run["traffic"]
    saved = ""
    if moved is not None:
        saved = (
            f" The kernel of the run {run['name']} moves {moved['total']} "
            "numbers to and from memory; three kernels that store the scores "
            f"move {moved['naive']}."
        )
    picture = Picture(
        panels,
        title,
        f"{len(panels)} frames: before, {len(steps)} tiles of keys for queries "
        f"0 to {len(steps[0]['row_max']) - 1}, after.",
        "When a larger score arrives, the factor α shrinks what was kept; "
        f"after the last tile one division gives the output.{saved}",
        verdicts_of(data, FORWARD),
        _table(run),
    )
    return LiveFigure(picture, dict(recording), "flash_theatre")


def _first_block(run: dict[str, Any], D: int) -> list[dict[str, Any]]:
    """Return the steps of the first row of tiles as arrays."""
    rows = min(run["TILE_L"], run["L"])
    steps = []
    for number, (row, column) in enumerate(run["tiles"]):
        if row != 0:
            continue
        parts = {
            part: np.array(
                [-math.inf if x is None else x for x in run[part][number]]
            )
            for part in FORWARD.parts
        }
        parts["scores"] = parts["scores"].reshape(rows, -1)
        parts["acc"] = parts["acc"].reshape(rows, D)
        steps.append({"first_key": column * run["TILE_S"], **parts})
    return steps


def _plain_frame(
    name: str,
    unit: str,
    values_LD: np.ndarray,
    notes: tuple[str, ...],
    last: tuple[str, list[float]] | None = None,
) -> Panel:
    """Return a frame with one row of channels per query."""
    marks: list[Mark] = [heading(0, 8, name)]
    for line, text in enumerate(notes):
        marks.append(note(0, 32 + 18 * line, text))
    y = 32 + 18 * len(notes) + 20
    marks.append(note(_LEFT, y - 13, unit or "acc"))
    start = _LEFT + (30 if not unit else 40)
    rows, D = values_LD.shape
    marks += axis_name(start, y - 13, "D", D)[0]
    scale = float(np.abs(values_LD).max()) or 1.0
    for row in range(rows):
        middle = y + row * _ROW + _ROW / 2
        marks.append(
            Label(_LEFT - 5, middle, str(row), 10, anchor="end", color=MUTED)
        )
        for column, value in enumerate(values_LD[row].tolist()):
            fill = value_color(value / scale)
            marks += cell(
                _LEFT + column * _CELL, y + row * _ROW, _CELL, _ROW, fill,
                cell_text(value), size=10,
            )  # fmt: skip
    if last is not None:
        y += rows * _ROW + 18
        marks.append(note(_LEFT, y, last[0]))
        for row, value in enumerate(last[1]):
            middle = y + 18 + row * 16
            marks += [
                Label(_LEFT - 5, middle, str(row), 10, "end", MUTED),
                Label(
                    _LEFT + 36, middle, fixed_text(value), 11, "end", mono=True
                ),
            ]
    return Panel.around(marks, f"{name}: {' '.join(notes)}.")


def _last_frame(
    run: dict[str, Any], steps: list[dict[str, Any]], D: int
) -> Panel:
    rows = len(steps[0]["row_max"])
    out = np.array(run["out"][: rows * D], float).reshape(rows, D)
    lse = [-math.inf if x is None else x for x in run["lse"][:rows]]
    return _plain_frame(
        f"After: divide once, store {rows}·({D} + 1)",
        "output",
        out,
        ("output = acc ÷ sum", "log-sum-exp = max + ln sum"),
        ("log-sum-exp", lse),
    )


def _table(run: dict[str, Any]) -> Table:
    """Return every number of the comic's run, one line per tile and query."""
    rows = []
    for number, (i, j) in enumerate(run["tiles"]):
        size = len(run["row_max"][number])
        for row in range(size):
            cells = [
                "  ".join(
                    _text(x) for x in _slice(run, part, number, row, size)
                )
                for part in FORWARD.parts
            ]
            query = i * run["TILE_L"] + row
            rows.append((f"({i}, {j})", str(query), *cells))
    return Table(
        f"All numbers of the run {run['name']}",
        ("tile", "query", "scores", "max", "α", "sum", "acc"),
        tuple(rows),
    )


def _slice(
    run: dict[str, Any], part: str, number: int, row: int, rows: int
) -> list[float | None]:
    numbers = run[part][number]
    width = len(numbers) // rows
    return numbers[row * width : (row + 1) * width]


def _text(number: float | None) -> str:
    return "−∞" if number is None else f"{number:.4f}".replace("-", "−")
