"""Element order: where each number of x lands when heads are split.

`view` alone gives the right shape with the wrong numbers in it; only their
origin shows the difference.
"""

import math
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_array,
    check_index,
    check_same_size,
    shown_places,
)
from attention_lab.figures.marks import Label, Mark, Stroke
from attention_lab.figures.palette import MUTED, ink_on, token_color
from attention_lab.figures.parts import (
    axis_name,
    axis_name_upright,
    cell,
    heading,
    note,
)
from attention_lab.figures.picture import Panel, Picture, Table, Verdict

MOST_CHANNELS, MOST_TOKENS, MOST_HEADS = 11, 8, 4
_LEFT, _CELL_HEIGHT = 54, 30


def draw_element_order(
    x_BLE: Any, heads_right_BHLD: Any, heads_wrong_BHLD: Any, *, batch: int = 0
) -> Picture:
    """Show which token and channel every cell of every head came from.

    Parameters
    ----------
    x_BLE : position-coded input, `x[b, l, e] = (b·L + l)·E + e`.
    heads_right_BHLD : x after `view(B, L, H, D)` and `permute(0, 2, 1, 3)`.
    heads_wrong_BHLD : x after `view(B, H, L, D)` alone.
    batch : which batch entry is drawn; the verdicts are about all of them.

    Returns
    -------
    Two panels of L × D grids, one per head. A cell holds its token above its
    channel; cells in the wrong place are struck out.

    Raises
    ------
    ShapeMismatch
        If the shapes do not fit, or E is not H·D.
    ValueError
        If x is not position-coded, or a head holds a number that x does not.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(2 * 3 * 4).reshape(2, 3, 4)
    >>> right = x.reshape(2, 3, 2, 2).transpose(0, 2, 1, 3)
    >>> draw_element_order(x, right, x.reshape(2, 2, 3, 2)).passed
    False
    """
    x = check_position_coded("x_BLE", x_BLE)
    right = _check_heads("heads_right_BHLD", heads_right_BHLD, x)
    wrong = _check_heads("heads_wrong_BHLD", heads_wrong_BHLD, x)
    batch = check_index("batch", batch, "B", x.shape[0])
    (_, L, E), (_, H, _, D) = x.shape, right.shape
    expected = expected_heads(x, H)
    in_place = int(np.sum(wrong == expected))
    panels = [
        layout_heads("view alone", wrong, expected, batch, E),
        layout_heads("view, then permute", right, expected, batch, E),
    ]
    return Picture(
        panels,
        "Where each number lands when the heads are split",
        f"Two columns of {H} grids, {L} tokens by {D} channels: first view "
        "alone, then view and permute. Each cell names its token and channel.",
        f"With view alone, {in_place} of {x.size} numbers "
        f"({in_place / x.size:.1%}) are where they belong; the shape is the "
        "same.",
        [
            _verdict("view alone", wrong, expected),
            _verdict("view, then permute", right, expected),
        ],
        _table(wrong, right, batch, x.shape),
    )


def check_position_coded(name: str, data: Any) -> np.ndarray:
    """Return x_BLE, or refuse numbers that are not their own position.

    Raises
    ------
    ValueError
        If `x[b, l, e]` is not `(b·L + l)·E + e`; names the first place.
    """
    x = as_array(name, data, axes="BLE")
    wanted = np.arange(x.size).reshape(x.shape)
    if (x != wanted).any():
        place = tuple(int(i) for i in np.argwhere(x != wanted)[0])
        raise ValueError(
            f"{name} must be position-coded, x[b, l, e] = (b·L + l)·E + e: at "
            f"{list(place)} it holds {x[place]}, not {wanted[place]}"
        )
    return x


def expected_heads(x_BLE: np.ndarray, H: int) -> np.ndarray:
    """Return the right split: head h of token l is columns h·D … h·D + D − 1.

    Built by slicing columns, not by reshaping.

    Examples
    --------
    >>> import numpy as np
    >>> expected_heads(np.arange(8).reshape(1, 2, 4), 2)[0, 1].tolist()
    [[2, 3], [6, 7]]
    """
    D = x_BLE.shape[2] // H
    return np.stack(
        [x_BLE[:, :, h * D : (h + 1) * D] for h in range(H)], axis=1
    )


def layout_heads(
    name: str,
    heads_BHLD: np.ndarray,
    expected_BHLD: np.ndarray,
    batch: int,
    E: int,
) -> Panel:
    """Return one panel: a grid per head, its cells named by their origin."""
    _, H, L, D = heads_BHLD.shape
    columns = shown_places(D, MOST_CHANNELS)
    width = min(34, math.floor((298 - _LEFT) / len(columns)))
    marks: list[Mark] = [
        heading(0, 8, name),
        note(0, 27, "in a cell: its token, below it its channel of x"),
        note(0, 43, "struck out: belongs elsewhere"),
    ]
    y = 68.0
    for h in shown_places(H, MOST_HEADS):
        if h is None:
            marks.append(note(0, y, f"⋮ {H - MOST_HEADS + 1} heads not drawn"))
            y += 26
            continue
        marks += axis_name(0, y, "H", h)[0]
        y += 18
        for j, d in enumerate(columns):
            text = "…" if d is None else str(d)
            x = _LEFT + (j + 0.5) * width
            marks.append(Label(x, y + 2, text, 10, color=MUTED))
        y += 12
        top = y
        for token in shown_places(L, MOST_TOKENS):
            if token is None:
                marks.append(Label(46, y + 8, "⋮", 11, color=MUTED))
                y += 16
                continue
            middle = y + _CELL_HEIGHT / 2
            marks.append(Label(46, middle, str(token), 10, color=MUTED))
            for j, d in enumerate(columns):
                if d is not None:
                    place = (batch, h, token, d)
                    marks += _origin(
                        _LEFT + j * width,
                        y,
                        width,
                        int(heads_BHLD[place]),
                        heads_BHLD[place] == expected_BHLD[place],
                        L,
                        E,
                    )
            y += _CELL_HEIGHT
        marks += axis_name_upright(18, (top + y) / 2, "L", L)
        y += 22
    marks += axis_name(_LEFT, y - 8, "D", D)[0]
    return Panel.around(
        marks,
        f"{name}: " + _describe(heads_BHLD[batch], expected_BHLD[batch]),
    )


def _origin(
    x: float, y: float, width: float, number: int, fits: bool, L: int, E: int
) -> list[Mark]:
    """Draw a cell's token and channel, struck out if it does not belong."""
    token, channel = number // E % L, number % E
    fill = token_color(token, L)
    ink = ink_on(fill)
    marks = cell(x, y, width, _CELL_HEIGHT, fill)
    if not fits:
        strike = ((x + 2, y + _CELL_HEIGHT - 3), (x + width - 2, y + 3))
        marks.append(Stroke((strike,), color=ink, width=0.8))
    middle = x + width / 2
    marks.append(
        Label(middle, y + 9, str(token), 12, bold=True, color=ink, on=fill)
    )
    marks.append(Label(middle, y + 22, str(channel), 10, color=ink, on=fill))
    return marks


def _describe(heads_HLD: np.ndarray, expected_HLD: np.ndarray) -> str:
    fits = int(np.sum(heads_HLD == expected_HLD))
    return f"{fits} of {heads_HLD.size} cells hold the number that belongs."


def check_heads_shape(
    name: str, heads_BHLD: np.ndarray, x_BLE: np.ndarray
) -> None:
    """Refuse heads whose sizes do not come from splitting x_BLE.

    Raises
    ------
    ShapeMismatch
        If B or L differ, or H·D is not E; names the axis and both sizes.
    """
    B, L, E = x_BLE.shape
    sizes = heads_BHLD.shape
    check_same_size(name, sizes[0], "B", "x_BLE", B)
    check_same_size(name, sizes[2], "L", "x_BLE", L)
    if sizes[1] * sizes[3] != E:
        raise ShapeMismatch(
            f"{name}: H·D = {sizes[1]}·{sizes[3]}, but x_BLE has E = {E}"
        )


def _check_heads(name: str, data: Any, x: np.ndarray) -> np.ndarray:
    """Return the heads, or refuse those that do not come from x."""
    heads = as_array(name, data, axes="BHLD")
    check_heads_shape(name, heads, x)
    if sorted(heads.ravel().tolist()) != list(range(x.size)):
        raise ValueError(
            f"{name} does not hold each of the {x.size} numbers of x_BLE once"
        )
    return heads


def _verdict(name: str, heads: np.ndarray, expected: np.ndarray) -> Verdict:
    misplaced = int(np.sum(heads != expected))
    return Verdict(
        f"{name}: head h of token l holds its columns h·D … h·D + D − 1",
        misplaced == 0,
        f"{misplaced} of {heads.size} misplaced ({misplaced / heads.size:.1%})",
        "exact",
        "position-coded input",
    )


def _table(
    wrong: np.ndarray, right: np.ndarray, batch: int, shape: tuple
) -> Table:
    """Return token·channel of every cell, head by head."""
    _, L, E = shape

    def origins(row: np.ndarray) -> str:
        return "  ".join(f"{int(n) // E % L}·{int(n) % E}" for n in row)

    rows = [
        (
            str(h),
            str(token),
            origins(wrong[batch, h, token]),
            origins(right[batch, h, token]),
        )
        for h in range(min(wrong.shape[1], MOST_HEADS))
        for token in range(min(L, MOST_TOKENS))
    ]
    return Table(
        "Every cell as token·channel",
        ("head", "row", "view alone", "view, then permute"),
        tuple(rows),
    )
