"""Flash frames: one block of queries while it walks over the key tiles."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch, check_tile
from attention_lab.figures.data import (
    as_array,
    as_number,
    as_sequence,
    as_whole,
    check_index,
    check_same_size,
    check_size,
    read_field,
)
from attention_lab.figures.digits import (
    cell_text,
    decimal_text,
    error_text,
    fixed_text,
)
from attention_lab.figures.marks import Box, Label, Mark
from attention_lab.figures.palette import MUTED, STATE_COLORS, value_color
from attention_lab.figures.parts import (
    axis_name,
    axis_name_upright,
    cell,
    hatch,
    heading,
    key_span,
    note,
)
from attention_lab.figures.picture import Panel, Picture, Table, Verdict

MOST_FRAMES, MOST_QUERIES, MOST_KEYS_PER_TILE = 12, 8, 4
MOST_TILES = 17
#: Eight channels fit; of more than that, six and an ellipsis.
MOST_CHANNELS, CUT_CHANNELS = 8, 6
_LEFT, _ROW, _CELL = 58, 20, 28
_STATE = ("row_max", "rescale", "row_sum")
_AXES = {"scores": "BHLS", **dict.fromkeys(_STATE, "BHL"), "acc": "BHLD"}
_STATE_X = (_LEFT + MOST_KEYS_PER_TILE * _CELL + 36, 45, 44)


def draw_flash_frames(
    trace: Sequence[Any],
    *,
    S: int,
    TILE_L: int,
    TILE_S: int,
    tile_row: int = 0,
    batch: int = 0,
    head: int = 0,
    output_error: float,
    lse_error: float,
    tolerance: float,
    provenance: str,
    title: str = "One block of queries walks over the keys",
) -> Picture:
    """Draw what one block of queries holds after each tile of keys.

    Parameters
    ----------
    trace : all visited tiles in order, as `flash_forward` records them: per
        tile a mapping or an object with `tile_row`, `tile_col`, `scores`
        (B, H, rows, keys; −∞ where masked) and the state after the tile:
        `row_max`, `rescale`, `row_sum` (B, H, rows), `acc` (B, H, rows, D).
    S : number of keys.
    TILE_L, TILE_S : queries and keys per tile; at most 8 and 4.
    tile_row, batch, head : the block of queries to draw.
    output_error, lse_error : distance of the final output and of the
        log-sum-exp to the reference; finite and at least 0.
    tolerance : what both errors are held against; finite and at least 0.
    provenance : where the trace was recorded.
    title : heading of the picture.

    Returns
    -------
    One panel per visited tile. Tiles that were not visited stay hatched in
    the strip of keys.

    Raises
    ------
    ShapeMismatch
        If the parts of a step, or two steps, differ in an axis, or a tile has
        not the size that S, TILE_L and TILE_S give it.
    ValueError
        If the trace is no list, has no tile of this block or one twice, is
        too long, incomplete or holds NaN, if a size, an index, an error or
        the tolerance is not such a number, or a text is missing.

    Examples
    --------
    >>> step = {"tile_row": 0, "tile_col": 0, "scores": [[[[0.0, 0.0]]]],
    ...         "row_max": [[[0.0]]], "rescale": [[[0.0]]],
    ...         "row_sum": [[[2.0]]], "acc": [[[[3.0]]]]}
    >>> draw_flash_frames([step], S=2, TILE_L=1, TILE_S=2, output_error=0.0,
    ...                   lse_error=0.0, tolerance=1e-6,
    ...                   provenance="by hand").passed
    True
    """
    for name, size in (("S", S), ("TILE_L", TILE_L), ("TILE_S", TILE_S)):
        check_tile(name, size)
    check_size("draw_flash_frames", "L in a tile", TILE_L, MOST_QUERIES)
    check_size("draw_flash_frames", "S in a tile", TILE_S, MOST_KEYS_PER_TILE)
    tiles = math.ceil(S / TILE_S)
    check_size("draw_flash_frames", "S in tiles", tiles, MOST_TILES)
    tile_row = as_whole("tile_row", tile_row)
    steps = read_steps(trace, S, TILE_L, TILE_S, (tile_row, batch, head))
    tolerance = as_number("tolerance", tolerance, least=0)
    output_error = as_number("output_error", output_error, least=0)
    lse_error = as_number("lse_error", lse_error, least=0)
    first_query = tile_row * TILE_L
    held = f"≤ {error_text(tolerance)}"
    rows, D = steps[0]["acc"].shape
    return Picture(
        [
            layout_flash_frame(steps, number, S, TILE_S, first_query)
            for number in range(len(steps))
        ],
        title,
        f"{len(steps)} frames, one per visited tile of keys, for queries "
        f"{first_query} to {first_query + rows - 1}.",
        f"{len(steps)} of {tiles} key tiles pass by. The block keeps "
        f"{rows}·({D} + 2) = {rows * (D + 2)} numbers however many keys there "
        f"are; its {rows}·{S} scores never exist at the same time.",
        [
            _error_verdict("output", output_error, tolerance, held, provenance),
            _error_verdict(
                "log-sum-exp", lse_error, tolerance, held, provenance
            ),
        ],
        _table(steps, first_query),
    )


def _error_verdict(
    name: str, error: float, tolerance: float, held: str, provenance: str
) -> Verdict:
    return Verdict(
        f"{name} against the reference",
        error <= tolerance,
        f"off by {error_text(error)}",
        held,
        provenance,
    )


def read_steps(
    trace: Sequence[Any],
    S: int,
    TILE_L: int,
    TILE_S: int,
    block: tuple[int, int, int],
) -> list[dict[str, Any]]:
    """Return the steps of one block: (tile row, batch, head).

    Raises
    ------
    ShapeMismatch
        If the parts of a step, or two steps, differ in an axis, or a tile has
        not the size that S, TILE_L and TILE_S give it.
    ValueError
        If the trace is no list, has no tile of this block or one twice, is
        too long, incomplete or holds NaN.
    """
    tile_row, batch, head = block
    steps: dict[int, dict[str, Any]] = {}
    trace = as_sequence("trace", trace, "a list of steps, one per visited tile")
    for number, step in enumerate(trace):
        place = f"trace[{number}]"
        row, column = (
            as_whole(f"{place}.{name}", read_field(step, name, place))
            for name in ("tile_row", "tile_col")
        )
        if row != tile_row:
            continue
        if column in steps:
            raise ValueError(
                f"{place} visits tile_col = {column} a second time; is the "
                "trace that of two runs?"
            )
        first_key = column * TILE_S
        if first_key >= S:
            raise ValueError(
                f"{place}.tile_col starts at key {first_key}, but S = {S}"
            )
        parts = _read_parts(step, place)
        B, H, rows, keys = parts["scores"].shape
        if rows > TILE_L:
            raise ShapeMismatch(
                f"{place}.scores: axis L has size {rows}, but TILE_L = {TILE_L}"
            )
        check_same_size(
            f"{place}.scores", keys, "S",
            f"a tile of TILE_S = {TILE_S} from key {first_key} of {S}",
            min(TILE_S, S - first_key),
        )  # fmt: skip
        check_index("batch", batch, "B", B)
        check_index("head", head, "H", H)
        read = {name: part[batch, head] for name, part in parts.items()}
        first = next(iter(steps.values()), read)["acc"].shape
        for axis, size, known in zip(
            "LD", read["acc"].shape, first, strict=True
        ):
            check_same_size(f"{place}.acc", size, axis, "the first", known)
        steps[column] = {"first_key": first_key, **read}
    if not steps:
        raise ValueError(
            f"trace has {len(trace)} tiles, none of them with tile_row = "
            f"{tile_row}: there is nothing to draw"
        )
    check_size("trace", "tiles", len(steps), MOST_FRAMES)
    return list(steps.values())


def _read_parts(step: Any, place: str) -> dict[str, np.ndarray]:
    """Return the arrays of one step, which agree about B, H and L."""
    parts: dict[str, np.ndarray] = {}
    for name, axes in _AXES.items():
        whole = as_array(
            f"{place}.{name}",
            read_field(step, name, place),
            axes=axes,
            allow_minus_inf=name in ("scores", "row_max"),
        )
        parts[name] = whole
        for axis, size, known in zip(
            "BHL", whole.shape[:3], parts["scores"].shape[:3], strict=True
        ):
            check_same_size(f"{place}.{name}", size, axis, "scores", known)
    return parts


def layout_flash_frame(
    steps: Sequence[dict[str, Any]],
    number: int,
    S: int,
    TILE_S: int,
    first_query: int,
) -> Panel:
    """Return the panel of one visited tile."""
    step = steps[number]
    rows, keys = step["scores"].shape
    first_key = step["first_key"]
    span = key_span(first_key, keys)
    marks: list[Mark] = [
        heading(0, 8, f"{number + 1}. {span}"),
        note(0, 28, "tile of keys:"),
    ]
    visited = [other["first_key"] // TILE_S for other in steps]
    marks += _strip(S, TILE_S, first_key // TILE_S, visited)
    y = 76.0
    marks.append(note(_LEFT, y - 13, "scores"))
    x = 0.0
    for name, step_x in zip(("max", "α", "sum"), _STATE_X, strict=True):
        x += step_x
        marks.append(note(x, y - 13, name, anchor="end"))
    for row in range(rows):
        marks += _query_row(step, row, y + row * _ROW, first_query)
    middle = y + max(rows * _ROW, 54) / 2
    marks += axis_name_upright(18, middle, "L", rows)
    y += max(rows * _ROW, 56) + 18
    marks.append(note(_LEFT, y - 2, "acc"))
    D = step["acc"].shape[1]
    marks += axis_name(_LEFT + 30, y - 2, "D", D)[0]
    y += 10
    for row in range(rows):
        marks += _acc_row(step["acc"], row, y + row * _ROW, first_query)
    return Panel.around(
        marks,
        f"Tile {number + 1}, {span}. "
        + "; ".join(
            f"query {first_query + row}: max "
            f"{decimal_text(step['row_max'][row])}, rescale "
            f"{decimal_text(step['rescale'][row])}, sum "
            f"{decimal_text(step['row_sum'][row])}"
            for row in range(rows)
        )
        + ".",
    )


def _strip(
    S: int, TILE_S: int, current: int, visited: Sequence[int]
) -> list[Mark]:
    """Draw the key tiles: the current one filled, skipped ones hatched."""
    tiles = math.ceil(S / TILE_S)
    width = min(26.0, 176 / tiles)
    marks: list[Mark] = []
    for tile in range(tiles):
        x = 112 + tile * width
        # The last tile is as narrow as the keys it holds.
        part = min(TILE_S, S - tile * TILE_S) / TILE_S * width
        if tile == current:
            text = str(visited.index(tile) + 1) if part >= 12 else ""
            marks += cell(
                x, 20, part, 16, STATE_COLORS["kept"], text, bold=True
            )
        elif tile not in visited:
            marks.append(hatch(x, 20, part, 16))
        marks.append(Box(x, 20, part, 16, edge_width=0.8))
    return marks


def _query_row(
    step: dict[str, Any], row: int, y: float, first_query: int
) -> list[Mark]:
    """Draw the tile's scores of one query and its running state."""
    middle = y + _ROW / 2
    marks: list[Mark] = [_query_number(middle, first_query + row)]
    scores = step["scores"]
    finite = scores[np.isfinite(scores)]
    scale = float(np.max(np.abs(finite), initial=0)) or 1.0
    for column, score in enumerate(scores[row].tolist()):
        x = _LEFT + column * _CELL
        if math.isinf(score):
            marks.append(Box(x, y, _CELL, _ROW, edge_width=0.6))
            marks.append(hatch(x, y, _CELL, _ROW))
        else:
            fill = value_color(score / scale)
            text = cell_text(score)
            marks += cell(x, y, _CELL, _ROW, fill, text, size=10)
    x = 0.0
    for name, step_x in zip(_STATE, _STATE_X, strict=True):
        x += step_x
        text = fixed_text(step[name][row])
        marks.append(Label(x, middle, text, 11, anchor="end", mono=True))
    return marks


def _acc_row(
    acc: np.ndarray, row: int, y: float, first_query: int
) -> list[Mark]:
    """Draw the first channels of one query's unfinished mix."""
    marks: list[Mark] = [_query_number(y + _ROW / 2, first_query + row)]
    scale = float(np.max(np.abs(acc))) or 1.0
    D = acc.shape[1]
    shown = D if D <= MOST_CHANNELS else CUT_CHANNELS
    for column, value in enumerate(acc[row, :shown].tolist()):
        x = _LEFT + column * _CELL
        fill = value_color(value / scale)
        marks += cell(x, y, _CELL, _ROW, fill, cell_text(value), size=10)
    if shown < D:
        x = _LEFT + shown * _CELL + 6
        marks.append(Label(x, y + _ROW / 2, "…", 11, "start", MUTED))
    return marks


def _query_number(y: float, query: int) -> Label:
    return Label(_LEFT - 5, y, str(query), 10, anchor="end", color=MUTED)


def _table(steps: Sequence[dict[str, Any]], first_query: int) -> Table:
    return Table(
        "The trace as numbers",
        ("tile", "query", "scores", "max", "α", "sum", "acc"),
        tuple(
            (
                str(number),
                str(first_query + row),
                "  ".join(decimal_text(s) for s in step["scores"][row]),
                *(decimal_text(step[name][row], 4) for name in _STATE),
                "  ".join(decimal_text(a) for a in step["acc"][row]),
            )
            for number, step in enumerate(steps, start=1)
            for row in range(step["scores"].shape[0])
        ),
    )
