"""Shape boxes: every array as a stack of sheets with its axes by letter."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from attention_lab.axes import AXES, ShapeMismatch
from attention_lab.figures.data import (
    as_array,
    as_sequence,
    as_text,
    shown_places,
)
from attention_lab.figures.digits import cell_text
from attention_lab.figures.marks import Box, Label, Mark, Stroke, shorten
from attention_lab.figures.palette import MUTED, value_color
from attention_lab.figures.parts import (
    axis_name,
    axis_name_upright,
    cell,
    cell_font,
    hatch,
    note,
)
from attention_lab.figures.picture import (
    MAX_PANEL_WIDTH,
    Panel,
    Picture,
    Table,
    Verdict,
)

MOST_CELLS = 16  # along one axis; longer ones get a gap
_LEFT = 44  # room for the upright axis name
_DEEPEST = 44  # how far the sheets behind may stick out
_SHEETS_PER_AXIS = 4


def draw_shapes(
    *, title: str | None = None, steps: Sequence[str] = (), **arrays: Any
) -> Picture:
    """Draw arrays as boxes whose edges carry the letters of their names.

    The cells are those of the first slice, filled by its values; the axes
    before the last two are sheets behind it.

    Parameters
    ----------
    title : heading of the picture.
    steps : what made the last `len(steps)` arrays, one line each.
    **arrays : one to five axes each; the keyword ends in the axis letters,
        as in `scores_BHLS`.

    Returns
    -------
    One panel per array, in the order given.

    Raises
    ------
    ShapeMismatch
        If a suffix does not fit its array, or one letter has two sizes.
    ValueError
        If an array is empty or holds NaN, a name has no axis letters, a
        title or step is no text, or there are more steps than arrays.

    Examples
    --------
    >>> import numpy as np
    >>> print(draw_shapes(q_LD=np.ones((5, 3)), k_SD=np.ones((7, 3))))
    The shapes of q_LD, k_SD
    The largest array is k_SD: S·D = 7·3 = 21 numbers.
    ✓ every letter has one size: L = 5, D = 3, S = 7 (exact; read from the \
arrays)
    """
    if not arrays:
        raise ValueError("arrays: pass at least one, such as q_BHLD=q")
    steps = as_sequence("steps", steps, "a list of texts")
    for place, step in enumerate(steps):
        as_text(f"steps[{place}]", step)
    if len(steps) > len(arrays):
        raise ValueError(
            f"steps has {len(steps)} lines for {len(arrays)} arrays; each "
            "line says what made one of the last arrays"
        )
    data = {
        name: as_array(name, array, allow_minus_inf=True)
        for name, array in arrays.items()
    }
    sizes = letter_sizes(data)
    panels = layout_shapes(data, steps)
    largest = max(data, key=lambda name: data[name].size)
    letters, shape = _letters(largest), data[largest].shape
    plain = (
        f"{'·'.join(letters)} = {'·'.join(map(str, shape))} = "
        if len(shape) > 1
        else f"{letters} = "
    )
    return Picture(
        panels,
        f"The shapes of {', '.join(data)}" if title is None else title,
        "One stack of sheets per array, in order: " + ", ".join(data) + ".",
        f"The largest array is {largest}: {plain}{data[largest].size} numbers.",
        [
            Verdict(
                "every letter has one size",
                True,
                ", ".join(f"{a} = {n}" for a, n in sizes.items()),
                "exact",
                "read from the arrays",
            )
        ],
        _table(data),
    )


def letter_sizes(arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return the size of every axis letter, or refuse a contradiction.

    Raises
    ------
    ShapeMismatch
        If a suffix does not fit its array, or one letter has two sizes;
        names the arrays, the axis and both sizes.

    Examples
    --------
    >>> import numpy as np
    >>> letter_sizes({"q_LD": np.ones((5, 3))})
    {'L': 5, 'D': 3}
    """
    seen: dict[str, tuple[str, int]] = {}
    for name, array in arrays.items():
        letters = _letters(name)
        if len(letters) != array.ndim:
            raise ShapeMismatch(
                f"{name} names {len(letters)} axes ({' '.join(letters)}), but "
                f"the array has {array.ndim}: {array.shape}"
            )
        for letter, size in zip(letters, array.shape, strict=True):
            other, known = seen.setdefault(letter, (name, size))
            if size != known:
                raise ShapeMismatch(
                    f"{name}: axis {letter} has size {size}, but {other} has "
                    f"{letter} = {known}"
                )
    return {letter: size for letter, (_, size) in seen.items()}


def layout_shapes(
    arrays: Mapping[str, np.ndarray], steps: Sequence[str] = ()
) -> list[Panel]:
    """Return one panel per array, in the order given."""
    given = ["given"] * (len(arrays) - len(steps))
    lines = [*given, *(f"→ {step}" for step in steps)]
    return [
        _panel(name, array, line if steps else None)
        for (name, array), line in zip(arrays.items(), lines, strict=True)
    ]


def _panel(name: str, array: np.ndarray, line: str | None) -> Panel:
    """Lay out one array."""
    letters, marks, y = _letters(name), [], 8.0
    if line is not None:
        text = shorten(line, 12, MAX_PANEL_WIDTH - 4)
        marks.append(Label(0, y, text, 12, anchor="start", color=MUTED))
        y += 20
    short = shorten(name, 14, MAX_PANEL_WIDTH - 4, mono=True)
    marks.append(Label(0, y, short, 14, anchor="start", mono=True, bold=True))
    y += 22
    x = 0.0
    for letter, size in zip(letters[:-2], array.shape[:-2], strict=True):
        named, end = axis_name(x, y, letter, size)
        marks += named
        x = end + 12
    y += 16 + _offsets(array.shape[:-2])[-1] if array.ndim > 2 else -4
    x = _LEFT if array.ndim > 1 else 0
    if array.ndim > 1:  # the upright name must fit beside a low grid
        y += max(0, 30 - _side(array, x) * array.shape[-2] / 2)
    grid, bottom = _sheets(array, x, y)
    marks += grid
    if array.ndim > 1:
        middle = (y + bottom) / 2
        marks += axis_name_upright(18, middle, letters[-2], array.shape[-2])
    marks += axis_name(x, bottom + 16, letters[-1], array.shape[-1])[0]
    strides = tuple(s // array.itemsize for s in array.strides)
    text = f"strides {strides}".replace(",)", ")")
    text = shorten(text, 11, MAX_PANEL_WIDTH - 4, mono=True)
    y = bottom + 40
    marks.append(Label(0, y, text, 11, anchor="start", mono=True))
    whole = "contiguous" if array.flags.c_contiguous else "not contiguous"
    marks.append(note(0, y + 16, whole))
    shape = ", ".join(
        f"{letter} {size}"
        for letter, size in zip(letters, array.shape, strict=True)
    )
    return Panel.around(marks, f"{name}: {shape}; strides {strides}, {whole}.")


def _sheets(array: np.ndarray, x: float, y: float) -> tuple[list[Mark], float]:
    """Draw the first slice at (x, y) and the outlines of those behind it."""
    front = np.atleast_2d(array[(0,) * max(array.ndim - 2, 0)])
    rows = shown_places(front.shape[0], MOST_CELLS)
    columns = shown_places(front.shape[1], MOST_CELLS)
    offsets = _offsets(array.shape[:-2])
    side = _side(array, x)
    right, bottom = x + side * len(columns), y + side * len(rows)
    marks: list[Mark] = []
    for near, far in reversed(list(itertools.pairwise(offsets))):
        corner = (
            (x + far, y - near),
            (x + far, y - far),
            (right + far, y - far),
            (right + far, bottom - far),
            (right + near, bottom - far),
        )
        marks.append(Stroke((corner,), color=MUTED, width=0.8))
    scale = np.max(np.abs(front[np.isfinite(front)]), initial=0) or 1.0
    values = [
        cell_text(front[row, column])
        for row, column in itertools.product(rows, columns)
        if row is not None and column is not None
    ]
    # In wide arrays the digits would be too many to read and too coarse.
    font = cell_font(values, side, 10) if len(columns) <= 12 else None
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            left, top = x + j * side, y + i * side
            if row is None or column is None:
                marks += _gap(left, top, side, i, j, row, column)
                continue
            value = float(front[row, column])
            if math.isinf(value):
                marks.append(Box(left, top, side, side, edge_width=0.6))
                marks.append(hatch(left, top, side, side))
                continue
            text = cell_text(value) if font else ""
            fill = value_color(value / scale)
            marks += cell(left, top, side, side, fill, text, size=font)
    marks.append(Box(x, y, right - x, bottom - y, edge_width=1.4))
    return marks, bottom


def _side(array: np.ndarray, x: float) -> int:
    """Return the side of a cell such that the stack fits a phone."""
    columns = shown_places(array.shape[-1], MOST_CELLS)
    room = MAX_PANEL_WIDTH - 4 - x - _offsets(array.shape[:-2])[-1]
    return min(26, math.floor(room / len(columns)))


def _gap(x, y, side, i, j, row, column) -> list[Mark]:
    """Mark one cell of the break in a long axis, in its first row or column."""
    if column is None and i == 0:
        return [Label(x + side / 2, y + side / 2, "…", 11, color=MUTED)]
    if row is None and j == 0:
        return [Label(x + side / 2, y + side / 2, "⋮", 11, color=MUTED)]
    return []


def _offsets(leading: tuple[int, ...]) -> list[float]:
    """Return how far each sheet sticks out, the front one first at 0.

    Sheets of the innermost axis are close together; a wider step starts the
    next group. More than four along an axis look like four.
    """
    place, offsets = 0.0, [0.0]
    counts = [min(size, _SHEETS_PER_AXIS) for size in leading]
    for number in range(1, math.prod(counts)):
        step, inside = 5.0, 1
        for count in reversed(counts[1:]):
            inside *= count
            step += 5.0 if number % inside == 0 else 0.0
        place += step
        offsets.append(place)
    shrink = min(1.0, _DEEPEST / place) if place else 1.0
    return [offset * shrink for offset in offsets]


def _letters(name: str) -> str:
    """Return the axis letters that end a keyword, or refuse the keyword."""
    letters = name.rpartition("_")[2]
    known = letters and "_" in name and set(letters) <= set(AXES)
    if not known or len(set(letters)) != len(letters) or len(letters) > 5:
        raise ValueError(
            f"{name}: a name ends in _ and one to five different axis letters "
            f"out of {' '.join(AXES)}, such as q_BHLD"
        )
    return letters


def _table(arrays: Mapping[str, np.ndarray]) -> Table:
    """Return the first slice of every array, row by row."""
    rows = []
    for name, array in arrays.items():
        front = np.atleast_2d(array[(0,) * max(array.ndim - 2, 0)])
        for place in shown_places(front.shape[0], MOST_CELLS):
            if place is None:
                rows.append((name, "…", "…"))
                continue
            values = [
                "…" if column is None else cell_text(front[place, column])
                for column in shown_places(front.shape[1], MOST_CELLS)
            ]
            rows.append((name, str(place), "  ".join(values)))
    return Table(
        "The values drawn (first slice)",
        ("array", "row", "values"),
        tuple(rows),
    )
