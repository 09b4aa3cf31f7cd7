"""Heat map: a matrix of attention weights with its numbers."""

import math
from typing import Any

import numpy as np

from attention_lab.figures.data import as_array, as_text, check_size
from attention_lab.figures.digits import weight_text
from attention_lab.figures.marks import Box, Label, Mark
from attention_lab.figures.palette import MUTED, weight_color
from attention_lab.figures.parts import axis_name, axis_name_upright, cell
from attention_lab.figures.picture import (
    MAX_PANEL_WIDTH,
    Panel,
    Picture,
    Table,
)
from attention_lab.figures.weights import check_weights, rows_sum_to_one

MOST_NUMBERED, MOST_CELLS = 11, 32
_LEFT = 54


def draw_heatmap(
    weights_LS: Any,
    *,
    row_label: str = "query",
    col_label: str = "key",
    title: str = "Who looks at whom",
) -> Picture:
    """Draw weights as a matrix, with numbers where they fit.

    Parameters
    ----------
    weights_LS : one row per query, one column per key, each row sums to 1.
    row_label, col_label : what a row and a column are.
    title : heading of the picture.

    Returns
    -------
    One panel; cells carry their number if there are at most 11 × 11.

    Raises
    ------
    ShapeMismatch
        If there are not two axes, or the rows differ in length.
    ValueError
        If a weight is outside [0, 1], an axis is too long to draw, or a text
        is missing.

    Examples
    --------
    >>> draw_heatmap([[0.5, 0.5], [0.9, 0.2]]).passed
    False
    """
    weights = as_array("weights_LS", weights_LS, axes="LS")
    for axis, size in zip("LS", weights.shape, strict=True):
        check_size("weights_LS", axis, size, MOST_CELLS)
    check_weights("weights_LS", weights)
    as_text("row_label", row_label)
    as_text("col_label", col_label)
    row, column = np.unravel_index(np.argmax(weights), weights.shape)
    rows = tuple(
        (str(number), "  ".join(f"{weight:.3f}" for weight in line))
        for number, line in enumerate(weights.tolist())
    )
    return Picture(
        [layout_heatmap(weights, row_label, col_label)],
        title,
        f"A matrix of {weights.shape[0]} rows ({row_label}) by "
        f"{weights.shape[1]} columns ({col_label}).",
        f"The largest weight is {weight_text(float(weights[row, column]))}: "
        f"{row_label} {row} looks at {col_label} {column}.",
        [rows_sum_to_one(weights)],
        Table("The weights as numbers", (row_label, "weights"), rows),
    )


def layout_heatmap(
    weights_LS: np.ndarray, row_label: str = "query", col_label: str = "key"
) -> Panel:
    """Return the matrix with its row and column numbers."""
    L, S = weights_LS.shape
    side = min(26, math.floor((MAX_PANEL_WIDTH - 4 - _LEFT) / S * 2) / 2)
    numbered = max(L, S) <= MOST_NUMBERED
    top = 18.0 + max(0, 28 - side * L / 2)
    every = 1 if side >= 18 else 2 if side >= 12 else 4
    largest = float(weights_LS.max()) or 1.0
    marks: list[Mark] = []
    for s in range(0, S, every):
        x = _LEFT + (s + 0.5) * side
        marks.append(Label(x, top - 9, str(s), 10, color=MUTED))
    for row in range(L):
        y = top + row * side
        if row % every == 0:
            marks.append(
                Label(_LEFT - 5, y + side / 2, str(row), 10, "end", MUTED)
            )
        for s in range(S):
            weight = float(weights_LS[row, s])
            text = weight_text(weight) if numbered else ""
            marks += cell(
                _LEFT + s * side,
                y,
                side,
                side,
                weight_color(weight / largest),
                text,
                size=10 if side < 25 else 11,
            )
    marks.append(Box(_LEFT, top, S * side, L * side, edge_width=1.4))
    marks += axis_name_upright(18, top + L * side / 2, "L", L, noun=row_label)
    y = top + L * side + max(16, 36 - L * side / 2)
    marks += axis_name(_LEFT, y, "S", S, noun=col_label)[0]
    darkest = f"darkest: {weight_text(largest)}"
    marks.append(Label(_LEFT, y + 17, darkest, 10, "start", MUTED))
    return Panel.around(
        marks,
        f"Weights of {L} × {S}; rows are {row_label}, columns {col_label}.",
    )
