"""Tile board: the score matrix in tiles, in the order a kernel visits them."""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch, check_tile
from attention_lab.figures.data import (
    as_array,
    as_sequence,
    as_whole,
    check_size,
)
from attention_lab.figures.marks import Box, Mark, Stroke, text_width
from attention_lab.figures.palette import (
    CELL_EDGE,
    PAPER,
    PAPER_INK,
    STATE_COLORS,
)
from attention_lab.figures.parts import (
    axis_name,
    axis_name_upright,
    cell,
    hatch,
    heading,
    note,
)
from attention_lab.figures.picture import (
    MAX_PANEL_WIDTH,
    Panel,
    Picture,
    Verdict,
)

MOST_POSITIONS = 64
_LEFT, _TOP = 44, 28


def draw_tiles(
    L: int,
    S: int,
    TILE_L: int,
    TILE_S: int,
    visited: Sequence[tuple[int, int]],
    *,
    kept: Any = None,
    provenance: str = "the tiles this run visited",
    title: str = "The score matrix, tile by tile",
) -> Picture:
    """Draw the L × S scores in tiles, numbered in the order visited.

    Parameters
    ----------
    L, S : queries and keys; they need not fill the last tiles.
    TILE_L, TILE_S : sides of a tile.
    visited : (tile row, tile column) in the order of the run.
    kept : (L, S) mask, True where a query may see a key; None keeps all.
    provenance : where `visited` was recorded.
    title : heading of the picture.

    Returns
    -------
    One panel. Places outside the matrix are hatched; so are masked ones,
    and a tile that was skipped says so, where there is room.

    Raises
    ------
    ShapeMismatch
        If `kept` is not (L, S).
    ValueError
        If a size is not a positive whole number, an axis is too long to draw,
        `visited` is no list of pairs of whole numbers, a visited tile does
        not exist, `kept` holds more than True and False, or a text is missing.

    Examples
    --------
    >>> draw_tiles(5, 5, 4, 4, [(0, 0), (0, 1), (1, 0), (1, 1)]).passed
    True
    """
    for name, size in (
        ("L", L), ("S", S), ("TILE_L", TILE_L), ("TILE_S", TILE_S),
    ):  # fmt: skip
        check_tile(name, size)
        check_size("draw_tiles", name, size, MOST_POSITIONS)
    mask = _check_mask(kept, L, S)
    rows, columns = math.ceil(L / TILE_L), math.ceil(S / TILE_S)
    visited = as_sequence("visited", visited, "a list of visited tiles")
    order = _check_visited(visited, rows, columns)
    needed = needed_tiles(mask, TILE_L, TILE_S)
    missed = int(np.sum(needed & (order < 0)))
    idle = int(np.sum(~needed & (order >= 0)))
    twice = len(visited) - int(np.sum(order >= 0))
    panel = layout_tiles(mask, TILE_L, TILE_S, order)
    seen, total = int(np.sum(order >= 0)), rows * columns
    return Picture(
        [panel],
        title,
        f"A matrix of {L} queries by {S} keys in {rows} by {columns} tiles.",
        f"{seen} of {total} tiles are visited"
        + (f"; {total - seen} are skipped." if seen < total else "."),
        [
            Verdict(
                "every tile with a kept score is visited, once",
                missed == 0 and twice == 0,
                f"{missed} missed, {twice} repeated",
                "exact",
                provenance,
            ),
            Verdict(
                "no tile without a kept score is visited",
                idle == 0,
                f"{idle} visited for nothing",
                "exact",
                provenance,
            ),
        ],
    )


def needed_tiles(kept_LS: np.ndarray, TILE_L: int, TILE_S: int) -> np.ndarray:
    """Return which tiles hold at least one kept score.

    Examples
    --------
    >>> import numpy as np
    >>> needed_tiles(np.tri(5, 5, dtype=bool), 4, 4).tolist()
    [[True, False], [True, True]]
    """
    L, S = kept_LS.shape
    return np.array(
        [
            [
                bool(kept_LS[l0 : l0 + TILE_L, s0 : s0 + TILE_S].any())
                for s0 in range(0, S, TILE_S)
            ]
            for l0 in range(0, L, TILE_L)
        ]
    )


def layout_tiles(
    kept_LS: np.ndarray, TILE_L: int, TILE_S: int, order: np.ndarray
) -> Panel:
    """Return the board.

    Parameters
    ----------
    kept_LS : True where a score is kept.
    TILE_L, TILE_S : sides of a tile.
    order : per tile its number, from 0, or −1 if it was not visited.
    """
    (L, S), (rows, columns) = kept_LS.shape, order.shape
    room = MAX_PANEL_WIDTH - _LEFT - 4
    side = min(18.0, room / (columns * TILE_S))
    marks: list[Mark] = [heading(0, 8, f"tiles of {TILE_L} × {TILE_S}")]
    tags: list[Mark] = []
    for i in range(rows):
        for j in range(columns):
            x = _LEFT + j * TILE_S * side
            y = _TOP + i * TILE_L * side
            part = kept_LS[
                i * TILE_L : (i + 1) * TILE_L, j * TILE_S : (j + 1) * TILE_S
            ]
            size = (TILE_S * side, TILE_L * side)
            marks += _tile(x, y, size, side, part, int(order[i, j]))
            inside = (part.shape[1] * side, part.shape[0] * side)
            tags += _tag(x, y, size, inside, int(order[i, j]))
    right = _LEFT + columns * TILE_S * side
    bottom = _TOP + rows * TILE_L * side
    true_right, true_bottom = _LEFT + S * side, _TOP + L * side
    edge = (
        (_LEFT, _TOP),
        (true_right, _TOP),
        (true_right, true_bottom),
        (_LEFT, true_bottom),
        (_LEFT, _TOP),
    )
    marks += [Stroke((edge,), color=PAPER_INK, width=2.4), *tags]
    middle = max((_TOP + true_bottom) / 2, _TOP + 27)
    marks += axis_name_upright(18, middle, "L", L)
    y = max(bottom, middle + 27) + 16
    marks += axis_name(_LEFT, y, "S", S)[0]
    if (right, bottom) != (true_right, true_bottom):
        marks.append(note(_LEFT, y + 19, "beyond the thick line: no scores"))
    return Panel.around(
        marks,
        f"{rows} by {columns} tiles; {int(np.sum(order >= 0))} visited in "
        f"order, {int(np.sum(order < 0))} skipped; "
        f"{int(np.sum(~kept_LS))} of {L * S} scores masked.",
    )


def _tile(
    x: float,
    y: float,
    size: tuple[float, float],
    side: float,
    part: np.ndarray,
    number: int,
) -> list[Mark]:
    """Draw one tile: its scores, hatched where there are none."""
    width, height = size
    visited = number >= 0
    fill = STATE_COLORS["kept" if visited else "skipped"]
    marks: list[Mark] = [
        Box(x, y, width, height, fill=PAPER, edge=None),
        hatch(x, y, width, height, color=CELL_EDGE),
    ]
    marks += _scores(x, y, side, part | (not visited), fill)
    if not visited:
        rows, columns = part.shape
        marks.append(hatch(x, y, columns * side, rows * side, color=CELL_EDGE))
    marks.append(Box(x, y, width, height, edge=PAPER_INK))
    return marks


def _tag(
    x: float,
    y: float,
    size: tuple[float, float],
    inside: tuple[float, float],
    number: int,
) -> list[Mark]:
    """Write the tile's number, or "skip", where it fits.

    That is the middle of the part inside the matrix; where that part is too
    small, the rest of the tile to its right, else that below it.
    """
    text, bold = (str(number + 1), True) if number >= 0 else ("skip", False)
    (width, height), (in_width, in_height) = size, inside
    rooms = (
        (0.0, 0.0, in_width, in_height),
        (in_width + 1, 0.0, width - in_width - 1, in_height),
        (0.0, in_height + 1, width, height - in_height - 1),
    )
    fonts = ((11, 16, 4), (9, 11, 2))  # size, height and spare width
    for (left, top, room, deep), (font, tall, spare) in itertools.product(
        rooms, fonts
    ):
        wide = text_width(text, font, bold=bold) + spare
        if wide <= room - 1 and tall <= deep - 1:
            left += x + (room - wide) / 2
            top += y + (deep - tall) / 2
            return cell(
                left, top, wide, tall, PAPER, text, size=font, bold=bold
            )
    return []


def _scores(
    x: float, y: float, side: float, shown: np.ndarray, fill: str
) -> list[Mark]:
    """Fill the scores shown, run by run, and rule lines between them."""
    marks: list[Mark] = []
    lines: list[tuple] = []
    for row, line in enumerate(shown.tolist()):
        top, column = y + row * side, 0
        for on, run in itertools.groupby(line):
            start, length = column, len(list(run))
            column += length
            if not on:
                continue
            left, width = x + start * side, length * side
            marks.append(Box(left, top, width, side, fill=fill, edge=None))
            lines.append(((left, top), (left + width, top)))
            lines.append(((left, top + side), (left + width, top + side)))
            for place in range(length + 1):
                at = left + place * side
                lines.append(((at, top), (at, top + side)))
    if lines:
        marks.append(Stroke(tuple(lines), color=CELL_EDGE, width=0.4))
    return marks


def _check_mask(kept: Any, L: int, S: int) -> np.ndarray:
    """Return the mask as (L, S) booleans; None keeps everything."""
    if kept is None:
        return np.ones((L, S), dtype=bool)
    mask = as_array("kept", kept)
    if mask.shape != (L, S):
        raise ShapeMismatch(
            f"kept has shape {mask.shape}, but L = {L} and S = {S}"
        )
    if not np.isin(mask, (0, 1)).all():
        raise ValueError(
            "kept must hold True where a query may see a key, else False, and "
            f"no other numbers; it reaches from {mask.min()} to {mask.max()}"
        )
    return mask.astype(bool)


def _check_visited(
    visited: Sequence[tuple[int, int]], rows: int, columns: int
) -> np.ndarray:
    """Return per tile when it was first visited, −1 for never."""
    order = np.full((rows, columns), -1)
    for number, tile in enumerate(visited):
        name = f"visited[{number}]"
        pair = as_sequence(name, tile, "a pair (tile row, tile column)", 2)
        row, column = (as_whole(name, place) for place in pair)
        if row >= rows or column >= columns:
            raise ValueError(
                f"{name} = ({row}, {column}), but there are {rows} "
                f"tile rows and {columns} tile columns"
            )
        if order[row, column] < 0:
            order[row, column] = number
    return order
