"""Memory strip: where one head's numbers lie in memory, by its strides."""

import math
from typing import Any

import numpy as np

from attention_lab.figures.data import as_array, check_index, check_size
from attention_lab.figures.digits import cell_text
from attention_lab.figures.element_order import check_heads_shape
from attention_lab.figures.marks import Label, Mark
from attention_lab.figures.palette import AXIS_COLORS, MUTED, STATE_COLORS
from attention_lab.figures.parts import axis_text, cell, heading, note
from attention_lab.figures.picture import (
    MAX_PANEL_WIDTH,
    Panel,
    Picture,
    Verdict,
)

MOST_COLUMNS, MOST_ROWS = 36, 24
_LEFT = 34


def draw_memory_strip(
    x_BLE: Any, heads_BHLD: Any, *, head: int = 0, batch: int = 0
) -> Picture:
    """Show which places in memory belong to one head.

    Parameters
    ----------
    x_BLE : the array the heads were split from.
    heads_BHLD : the heads, as a view of x or as a copy.
    head, batch : whose places are filled.

    Returns
    -------
    The memory behind `heads_BHLD`, E places per line, and the strides: how
    many places one step along each axis is.

    Raises
    ------
    ShapeMismatch
        If the shapes do not fit, or E is not H·D.
    ValueError
        If an index is outside its axis, a stride is negative, or the memory
        is too long to draw.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(24).reshape(1, 4, 6)
    >>> heads = x.reshape(1, 4, 2, 3).transpose(0, 2, 1, 3)
    >>> draw_memory_strip(x, heads, head=1).finding
    'Head 1 lies in 4 runs of memory; no number was copied.'
    """
    x = as_array("x_BLE", x_BLE, axes="BLE")
    heads = as_array("heads_BHLD", heads_BHLD, axes="BHLD")
    check_heads_shape("heads_BHLD", heads, x)
    batch = check_index("batch", batch, "B", heads.shape[0])
    head = check_index("head", head, "H", heads.shape[1])
    steps = strides_in_numbers(heads)
    if min(steps) < 0:
        raise ValueError(f"heads_BHLD has a negative stride: {steps}")
    E = x.shape[2]
    check_size("x_BLE", "E", E, MOST_COLUMNS)
    places = head_places(heads.shape, steps, head, batch)
    first = batch * steps[0] // E * E
    lines = math.ceil((places.max() + 1 - first) / E)
    check_size("heads_BHLD", "L", lines, MOST_ROWS)
    memory = _memory(heads)
    found = memory[places]
    D = heads.shape[3]
    columns = x[batch, :, head * D : (head + 1) * D]
    misplaced = int(np.sum(heads[batch, head] != columns))
    gaps = int(np.sum(found != heads[batch, head]))
    shared = np.shares_memory(x, heads)
    moved = "no number was copied" if shared else "it is a copy"
    sorted_places = np.sort(places.ravel())
    runs = 1 + int(np.sum(np.diff(sorted_places) != 1))
    panel = layout_strip(memory, places, steps, E, first, head, heads.shape)
    return Picture(
        [panel],
        f"Where head {head} lies in memory",
        f"{panel.height:.0f} lines of memory; the places of head {head} are "
        "filled.",
        f"Head {head} lies in {runs} "
        + ("run" if runs == 1 else "runs")
        + f" of memory; {moved}.",
        [
            Verdict(
                f"head {head} holds columns {head * D} to {head * D + D - 1} "
                "of every token",
                misplaced == 0,
                f"{misplaced} of {places.size} misplaced",
                "exact",
                "compared with x_BLE",
            ),
            Verdict(
                "the strides lead to every number of the head",
                gaps == 0,
                f"{gaps} of {places.size} miss",
                "exact",
                "read at Σ index · stride",
            ),
        ],
    )


def strides_in_numbers(array: np.ndarray) -> tuple[int, ...]:
    """Return the strides counted in numbers instead of bytes.

    Examples
    --------
    >>> import numpy as np
    >>> strides_in_numbers(np.zeros((5, 7)))
    (7, 1)
    """
    return tuple(stride // array.itemsize for stride in array.strides)


def head_places(
    shape: tuple[int, ...], steps: tuple[int, ...], head: int, batch: int
) -> np.ndarray:
    """Return where each (l, d) of one head lies, counted from the first.

    Examples
    --------
    >>> head_places((1, 2, 2, 3), (12, 3, 6, 1), 1, 0).tolist()
    [[3, 4, 5], [9, 10, 11]]
    """
    _, _, L, D = shape
    rows = np.arange(L)[:, None] * steps[2]
    columns = np.arange(D)[None, :] * steps[3]
    return batch * steps[0] + head * steps[1] + rows + columns


def layout_strip(
    memory: np.ndarray,
    places: np.ndarray,
    steps: tuple[int, ...],
    E: int,
    first: int,
    head: int,
    shape: tuple[int, ...],
) -> Panel:
    """Return the memory in lines of E places, the head's ones filled."""
    side = min(26.0, math.floor((MAX_PANEL_WIDTH - 4 - _LEFT) / E * 10) / 10)
    height = max(side, 16.0)
    taken = set(places.ravel().tolist())
    last = min(int(places.max()) + 1, memory.size)
    marks: list[Mark] = [
        heading(0, 8, f"memory, {E} places per line"),
        note(0, 27, "left: the place where the line starts"),
    ]
    y = 44.0
    fill, empty = AXIS_COLORS["H"], STATE_COLORS["skipped"]
    for start in range(first, last, E):
        middle = y + height / 2
        marks.append(
            Label(_LEFT - 6, middle, str(start), 10, anchor="end", color=MUTED)
        )
        for place in range(start, min(start + E, memory.size)):
            text = cell_text(memory[place]) if side >= 24 else ""
            marks += cell(
                _LEFT + (place - start) * side,
                y,
                side,
                height,
                fill if place in taken else empty,
                text,
                size=10,
            )
        y += height + 3
    y += 14
    marks += axis_text(0, y, "H", f"filled: head {head}")[0]
    for letter, step, what in zip(
        "DLHB", (steps[3], steps[2], steps[1], steps[0]),
        ("channel", "token", "head", "batch"), strict=True,
    ):  # fmt: skip
        y += 22
        marks += axis_text(0, y, letter, f"next {what}: +{step}")[0]
    return Panel.around(
        marks,
        f"Memory of heads_BHLD {shape}, strides {steps}; head {head} fills "
        f"{places.size} places from {places.min()} to {places.max()}.",
    )


def _memory(array: np.ndarray) -> np.ndarray:
    """Return the numbers from the array's first to its last, in memory order.

    Strides are not negative, so the span stays inside the array's memory.
    """
    reach = sum(
        (size - 1) * stride
        for size, stride in zip(
            array.shape, strides_in_numbers(array), strict=True
        )
    )
    return np.lib.stride_tricks.as_strided(
        array, (reach + 1,), (array.itemsize,), writeable=False
    )
