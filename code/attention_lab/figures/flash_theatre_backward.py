"""Flash theatre, backward: recorded ways back, tile by tile, right and wrong.

The static layer is a comic of the first column of tiles: before, one frame per
tile of queries, after. The interactive layer walks through every recorded run.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from attention_lab.figures.data import shown_places
from attention_lab.figures.digits import cell_text, decimal_text, fixed_text
from attention_lab.figures.live import LiveFigure
from attention_lab.figures.marks import Box, Label, Mark, text_width
from attention_lab.figures.palette import (
    AXIS_COLORS,
    MUTED,
    STATE_COLORS,
    value_color,
    weight_color,
)
from attention_lab.figures.parts import (
    CHIP,
    cell,
    chip,
    hatch,
    heading,
    key_span,
    note,
)
from attention_lab.figures.picture import (
    MAX_PANEL_WIDTH,
    Panel,
    Picture,
    Table,
)
from attention_lab.figures.theatre_data import (
    BACKWARD,
    read_theatre,
    verdicts_of,
)

_LEFT, _ROW, _CELL, _GAP = 26, 20, 28, 12
#: Side of a tile in the map, and how many queries "before" lists.
_TILE, _MOST_QUERIES = 15, 14

#: What each part is called, and how it is made.
_WORDS = {
    "scores": ("scores", "scale · q · k"),
    "weights": ("P", "exp(score − lse)"),
    "d_weights": ("dP", "dO · v"),
    "d_scores": ("dS", "P ∘ (dP − D)"),
    "dv": ("dV", "+ Pᵀ dO"),
    "dk": ("dK", "+ dSᵀ q · scale"),
    "dq_sum": ("dQ ÷ scale", "+ dS k"),
}


class _Block(NamedTuple):
    """A small table of coloured numbers, and what stands above it.

    axes : letters of its rows and its columns.
    first : what its first row and its first column are called.
    scale : the size that gets the strongest colour.
    """

    name: str
    formula: str
    axes: str
    first: tuple[int, int]
    values: np.ndarray
    scale: float
    color: Callable[[float], str] = value_color


def draw_flash_theatre_backward(
    recording: Any, *, title: str = "One way back, tile by tile"
) -> LiveFigure:
    """Draw recorded backward passes: a comic, and a stage to walk through.

    Parameters
    ----------
    recording : what `attention_lab.steps.flash_theatre_backward` records
        (schema "flash_theatre_backward.v1"). The first run is the comic's.
    title : heading of the figure.

    Returns
    -------
    A `LiveFigure`: the three gradients are held against the reference, the
    measured traffic against the formula, and every wrong loop must be farther
    off in a gradient than a right one may be.

    Raises
    ------
    ShapeMismatch
        If a list has not as many numbers as its tile.
    ValueError
        If the recording has another schema, is empty, holds NaN, or is too
        large to draw; names the place and the sizes.
    """
    data = read_theatre(recording, BACKWARD)
    run, D = data["runs"][0], data["D"]
    column = run["tiles"][0][1]
    steps = [n for n, (_, j) in enumerate(run["tiles"]) if j == column]
    panels = [
        _before(run),
        *(_frame(run, D, step, n + 1) for n, step in enumerate(steps)),
        _after(run, D, steps[-1]),
    ]
    widest = max(panel.width for panel in panels)
    moved = run["traffic"]
    saved = ""
    if moved is not None:
        saved = (
            f" The kernels of the run {run['name']} move {moved['total']} "
            "numbers to and from memory; five kernels that read stored "
            f"weights move {moved['naive']}."
        )
    picture = Picture(
        [replace(panel, width=widest) for panel in panels],
        title,
        f"{len(panels)} frames: before, {len(steps)} tiles of queries for "
        f"{key_span(*_extents(run, D, steps[0])['S'])}, after.",
        "Every tile computes its weights again from one number per query, so "
        f"no weight is stored.{saved}",
        verdicts_of(data, BACKWARD),
        _table(run, D),
    )
    return LiveFigure(picture, dict(recording), "flash_theatre_backward")


def _extents(
    run: dict[str, Any], D: int, step: int
) -> dict[str, tuple[int, int]]:
    """Return where each axis of a tile begins, and how long it is."""
    found = {"D": (0, D)}
    for axis, tile in zip("LS", run["tiles"][step], strict=True):
        first = tile * run[f"TILE_{axis}"]
        found[axis] = (first, min(run[f"TILE_{axis}"], run[axis] - first))
    return found


def _part(run: dict[str, Any], D: int, step: int, part: str) -> _Block:
    """Return the block of a part after a step."""
    axes = BACKWARD.parts[part]
    (row, rows), (column, columns) = (
        _extents(run, D, step)[axis] for axis in axes
    )
    values = _array(run[part][step]).reshape(rows, columns)
    everything = np.concatenate([_array(x) for x in run[part]])
    seen = everything[np.isfinite(everything)]
    scale = float(np.abs(seen).max(initial=0)) or 1.0
    return _Block(
        *_WORDS[part], axes, (row, column), values,
        scale, weight_color if part == "weights" else value_color,
    )  # fmt: skip


def _array(numbers: Sequence[float | None]) -> np.ndarray:
    """Return recorded numbers as an array; None is −∞."""
    return np.array([-math.inf if x is None else x for x in numbers], float)


def _before(run: dict[str, Any]) -> Panel:
    """Return the frame of what is known before the first tile."""
    places = shown_places(run["L"], _MOST_QUERIES)
    marks: list[Mark] = [
        heading(0, 8, "Before: two numbers per query"),
        note(0, 30, "lse: kept by the forward pass"),
        note(0, 48, "D: row sum of dO ∘ O, computed first"),
        note(0, 66, "dQ, dK and dV start at 0"),
        *_kept(run, 0, 92, places),
    ]
    return Panel.around(
        marks,
        "Before the first tile every query has a log-sum-exp and D: "
        + "; ".join(
            _kept_words(run, query) for query in places if query is not None
        )
        + ".",
    )


def _frame(run: dict[str, Any], D: int, step: int, number: int) -> Panel:
    """Return the frame of one tile."""
    here = _extents(run, D, step)
    rows, keys = _query_span(*here["L"]), key_span(*here["S"])
    marks: list[Mark] = [heading(0, 8, f"{number}. {rows} × {keys}")]
    y, map_marks = _map(run, step)
    marks += map_marks
    marks += [
        note(_map_end(run), 32, f"{keys} stay: dK, dV"),
        note(_map_end(run), 50, f"{rows} pass by"),
    ]
    blocks = [_part(run, D, step, part) for part in _WORDS]
    placed, free = _flow(blocks, _width(run, D), y)
    marks += placed
    marks += _kept(run, *free, list(range(here["L"][0], sum(here["L"]))))
    weights = np.array(run["weights"][step])
    row, column = divmod(int(weights.argmax()), here["S"][1])
    return Panel.around(
        marks,
        f"Tile {number}, {rows} and {keys}. Largest weight "
        f"{decimal_text(weights.max())}, of query "
        f"{here['L'][0] + row} on key {here['S'][0] + column}: there dP is "
        f"{fixed_text(run['d_weights'][step][weights.argmax()])} and dS is "
        f"{fixed_text(run['d_scores'][step][weights.argmax()])}.",
    )


def _after(run: dict[str, Any], D: int, step: int) -> Panel:
    """Return the frame of what the first column of tiles leaves."""
    here = _extents(run, D, step)
    first, many = 0, min(run["TILE_L"], run["L"])
    dq = _array(run["dq"]).reshape(run["L"], D)
    queries = _query_span(first, many)
    blocks = [
        _part(run, D, step, "dv")._replace(formula="stored"),
        _part(run, D, step, "dk")._replace(formula="stored"),
        _Block(
            "dQ", "scale · sum", "LD", (first, 0), dq[first : first + many],
            float(np.abs(dq).max()) or 1.0,
        ),
    ]  # fmt: skip
    marks: list[Mark] = [
        heading(0, 8, f"After: store {here['S'][1]}·({D} + {D})"),
        note(0, 30, f"dK, dV of {key_span(*here['S'])} are complete"),
        note(0, 48, f"dQ of {queries}: when their row"),
        note(0, 64, "of tiles ends"),
    ]
    placed, _ = _flow(blocks, _width(run, D), 84)
    return Panel.around(
        marks + placed,
        f"After the column, dK and dV of {key_span(*here['S'])} are stored; "
        f"dQ of {queries} when their row of tiles ends.",
    )


def _width(run: dict[str, Any], D: int) -> float:
    """Return how wide a column of blocks is in every frame."""
    return max(run["TILE_S"], D) * _CELL + _LEFT


def _flow(
    blocks: Sequence[_Block], width: float, y: float
) -> tuple[list[Mark], tuple[float, float]]:
    """Place blocks in at most two columns; return where the next may stand."""
    columns = 2 if 2 * width + _GAP < MAX_PANEL_WIDTH else 1
    marks: list[Mark] = []
    for start in range(0, len(blocks), columns):
        line = blocks[start : start + columns]
        for place, block in enumerate(line):
            marks += _block(place * (width + _GAP), y, block)
        height = 34 + max(len(block.values) for block in line) * _ROW + 12
        free = (len(line) * (width + _GAP), y)
        y += height
    if free[0] >= columns * (width + _GAP):
        free = (0, y)
    return marks, free


def _block(x: float, y: float, block: _Block) -> list[Mark]:
    """Draw one block: its name with its axes, its formula, its numbers."""
    x += _LEFT
    marks: list[Mark] = [
        Label(x, y + 8, block.name, 12, anchor="start", bold=True)
    ]
    start = x + text_width(block.name, 12, bold=True) + 6
    for place, letter in enumerate(block.axes):
        at = start + place * (CHIP + 3)
        marks += chip(at, y + 8, letter, AXIS_COLORS[letter])
    marks.append(Label(x, y + 25, block.formula, 10, "start", MUTED))
    y += 34
    for row, values in enumerate(block.values.tolist()):
        middle = y + row * _ROW + _ROW / 2
        name = str(block.first[0] + row)
        marks.append(Label(x - 5, middle, name, 10, "end", MUTED))
        for column, value in enumerate(values):
            at = x + column * _CELL
            if math.isinf(value):
                marks.append(
                    Box(at, y + row * _ROW, _CELL, _ROW, edge_width=0.6)
                )
                marks.append(hatch(at, y + row * _ROW, _CELL, _ROW))
                continue
            fill = block.color(value / block.scale)
            text = _cell_text(value)
            marks += cell(at, y + row * _ROW, _CELL, _ROW, fill, text, size=10)
    return marks


def _cell_text(value: float) -> str:
    """Return a number in at most four characters, small ones more exactly."""
    if 0 < abs(value) < 0.995:
        return decimal_text(value).replace("0.", ".", 1)
    return cell_text(value)


def _kept(
    run: dict[str, Any], x: float, y: float, queries: Sequence[int | None]
) -> list[Mark]:
    """Draw the log-sum-exp and D of some queries; None is a gap."""
    x += _LEFT
    marks: list[Mark] = [
        Label(x, y + 8, "kept", 12, anchor="start", bold=True),
        *chip(x + 42, y + 8, "L", AXIS_COLORS["L"]),
        Label(x + 36, y + 25, "lse", 10, "end", MUTED),
        Label(x + 84, y + 25, "D", 10, "end", MUTED),
    ]
    for place, query in enumerate(queries):
        middle = y + 34 + place * _ROW + _ROW / 2
        if query is None:
            marks.append(Label(x + 36, middle, "…", 11, "end", MUTED))
            continue
        marks.append(Label(x - 5, middle, str(query), 10, "end", MUTED))
        for right, part in ((36, "lse"), (84, "row_dot")):
            text = fixed_text(_array(run[part])[query])
            marks.append(Label(x + right, middle, text, 11, "end", mono=True))
    return marks


def _kept_words(run: dict[str, Any], query: int) -> str:
    lse, row_dot = (_array(run[part])[query] for part in ("lse", "row_dot"))
    return f"query {query} has {fixed_text(lse)} and {fixed_text(row_dot)}"


def _map(run: dict[str, Any], step: int) -> tuple[float, list[Mark]]:
    """Draw all tiles, small: this one and those done filled, skipped hatched.

    Returns where the next thing may begin, and the marks.
    """
    visits = {tuple(tile): n for n, tile in enumerate(run["tiles"])}
    rows, columns = (math.ceil(run[a] / run[f"TILE_{a}"]) for a in "LS")
    marks: list[Mark] = []
    for i in range(rows):
        for j in range(columns):
            x, y = 2 + j * _TILE, 24 + i * _TILE
            visit = visits.get((i, j))
            if visit is None:
                marks.append(hatch(x, y, _TILE, _TILE))
            elif visit <= step:
                text = str(visit + 1) if visit == step else ""
                fill = STATE_COLORS["kept" if visit == step else "skipped"]
                marks += cell(
                    x, y, _TILE, _TILE, fill, text, size=10, bold=True
                )
            marks.append(Box(x, y, _TILE, _TILE, edge_width=0.8))
    return 24 + max(rows * _TILE, 36) + 14, marks


def _map_end(run: dict[str, Any]) -> float:
    """Return where the words beside the map begin."""
    return 2 + math.ceil(run["S"] / run["TILE_S"]) * _TILE + 12


def _query_span(first: int, many: int) -> str:
    """Name a run of queries: "queries 4–7", "query 16"."""
    if many == 1:
        return f"query {first}"
    return f"queries {first}–{first + many - 1}"


def _table(run: dict[str, Any], D: int) -> Table:
    """Return every number of the comic's run, one line per tile and row."""
    rows = []
    for step, tile in enumerate(run["tiles"]):
        here = _extents(run, D, step)
        for row in range(max(here["L"][1], here["S"][1])):
            line = ["({}, {})".format(*tile)]
            for axis, parts in (
                ("L", ("scores", "weights", "d_weights", "d_scores", "dq_sum")),
                ("S", ("dk", "dv")),
            ):
                first, many = here[axis]
                line.append(str(first + row) if row < many else "")
                for part in parts:
                    numbers = run[part][step]
                    width = len(numbers) // many
                    shown = numbers[row * width : (row + 1) * width]
                    line.append("  ".join(map(_text, shown)))
            rows.append(tuple(line))
    return Table(
        f"All numbers of the run {run['name']}",
        ("tile", "query", "scores", "P", "dP", "dS", "dQ ÷ scale", "key",
         "dK", "dV"),
        tuple(rows),
    )  # fmt: skip


def _text(number: float | None) -> str:
    return "−∞" if number is None else f"{number:.4f}".replace("-", "−")
