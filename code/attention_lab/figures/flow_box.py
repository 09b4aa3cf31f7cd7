"""One box of a shape flow: sheets, cells and edges in the axes' colours."""

import math
from collections.abc import Mapping
from typing import Any

from attention_lab.figures.data import shown_places
from attention_lab.figures.flow_data import Cells
from attention_lab.figures.marks import Box, Label, Mark, Stroke
from attention_lab.figures.palette import (
    AXIS_COLORS,
    CELL_EDGE,
    MUTED,
    token_color,
)
from attention_lab.figures.parts import cell, cell_font, hatch
from attention_lab.figures.picture import MAX_PANEL_WIDTH

MOST_ROWS, MOST_COLUMNS, MOST_SHEETS = 8, 12, 4
WIDTH = MAX_PANEL_WIDTH - 4
_DEPTH = 9.0  # how far each sheet behind sticks out
_EDGE = 4.0
_NAMELESS = CELL_EDGE


def colors_of(letter: str) -> list[str]:
    """Return a colour per factor of an axis.

    Examples
    --------
    >>> colors_of("B·H") == [AXIS_COLORS["B"], AXIS_COLORS["H"]]
    True
    """
    return [AXIS_COLORS.get(part, _NAMELESS) for part in letter.split("·")]


def draw_box(
    cells: Cells, value: Mapping[str, Any], y: float
) -> tuple[list[Mark], float]:
    """Draw the front sheet with its cells, the sheets behind, the edges."""
    letters = ["1", "1", *value["letters"]]
    shape = [1, 1, *value["shape"]]
    rows = shown_places(shape[-2], MOST_ROWS)
    columns = shown_places(shape[-1], MOST_COLUMNS)
    deep = len(value["shape"]) > 2
    behind = min(shape[-3], MOST_SHEETS) - 1 if deep else 0
    room = WIDTH - _EDGE - behind * _DEPTH
    side = min(26.0, math.floor(room / len(columns)))
    height = min(side, 22.0)
    x, y = _EDGE, y + behind * _DEPTH
    right, bottom = x + side * len(columns), y + height * len(rows)
    marks: list[Mark] = []
    for place in range(behind, 0, -1):
        far, near = place * _DEPTH, (place - 1) * _DEPTH
        corner = (
            (x + far, y - near),
            (x + far, y - far),
            (right + far, y - far),
            (right + far, bottom - far),
            (right + near, bottom - far),
        )
        marks.append(Stroke((corner,), color=MUTED, width=0.8))
    texts = [
        str(cells.columns[r, c])
        for r in rows
        for c in columns
        if r is not None and c is not None
    ]
    font = cell_font([*texts, "0"], side, 10)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            left, top = x + j * side, y + i * height
            if row is None or column is None:
                marks += _gap(left + side / 2, top + height / 2, i, j, row)
                continue
            marks += _cell(cells, row, column, left, top, side, height, font)
    if cells.tokens is None:
        marks.append(hatch(x, y, right - x, bottom - y))
    marks += _edge((x, bottom + 2), (right, bottom + 2), letters[-1])
    if len(value["shape"]) > 1:
        marks += _edge((x - 2, y), (x - 2, bottom), letters[-2])
    if behind:
        far = behind * _DEPTH
        marks += _edge(
            (right + 2, bottom), (right + 2 + far, bottom - far), letters[-3]
        )
    return marks, bottom + 6


def _cell(
    cells: Cells,
    row: int,
    column: int,
    x: float,
    y: float,
    width: float,
    height: float,
    font: float,
) -> list[Mark]:
    """Draw one element: shade by token, number by column."""
    if cells.tokens is None or cells.tokens[row, column] < 0:
        return [Box(x, y, width, height, edge=CELL_EDGE, edge_width=0.6)]
    fill = token_color(int(cells.tokens[row, column]), cells.count)
    text = str(cells.columns[row, column]) if font else ""
    return cell(x, y, width, height, fill, text, size=font or 10)


def _gap(x: float, y: float, i: int, j: int, row: int | None) -> list[Mark]:
    """Mark the break in a long axis once."""
    if row is None:
        return [Label(x, y, "⋮", 11, color=MUTED)] if j == 0 else []
    return [Label(x, y, "…", 11, color=MUTED)] if i == 0 else []


def _edge(
    start: tuple[float, float], end: tuple[float, float], letter: str
) -> list[Mark]:
    """Draw an edge in the colours of its axis, one piece per factor."""
    colors = colors_of(letter)
    marks: list[Mark] = []
    for place, color in enumerate(colors):
        a, b = place / len(colors), (place + 1) / len(colors)
        line = tuple(
            (
                start[0] + part * (end[0] - start[0]),
                start[1] + part * (end[1] - start[1]),
            )
            for part in (a, b)
        )
        dash = (3.0, 2.0) if letter == "?" else None
        marks.append(Stroke((line,), color=color, width=_EDGE, dash=dash))
    return marks
