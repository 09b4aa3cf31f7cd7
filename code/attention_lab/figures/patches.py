"""Patches: an image cut into squares, and each square as one row."""

import math
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.attention_map import patches_per_side
from attention_lab.figures.data import as_array, check_size
from attention_lab.figures.digits import cell_text
from attention_lab.figures.marks import Box, Label, Mark
from attention_lab.figures.palette import CELL_EDGE, pixel_color
from attention_lab.figures.parts import (
    axis_name,
    axis_name_upright,
    cell,
    cell_font,
    heading,
)
from attention_lab.figures.picture import (
    MAX_PANEL_WIDTH,
    Panel,
    Picture,
    Verdict,
)

MOST_PIXELS = 12  # along one side of the image, or in one patch
_ROW, _GAP, _TAG, _LEFT = 18, 8, 15, 58


def draw_patches(
    image_HW: Any, patches_LD: Any, *, title: str = "An image as a sequence"
) -> Picture:
    """Draw an image in patches next to the rows they became.

    Parameters
    ----------
    image_HW : square grey image.
    patches_LD : one row per patch, patches and their pixels row by row.
    title : heading of the picture.

    Returns
    -------
    The image pulled apart into numbered patches, and the rows.

    Raises
    ------
    ShapeMismatch
        If the image does not divide into L square patches of D pixels.
    ValueError
        If the image is too large to draw, empty, or holds NaN.

    Examples
    --------
    >>> import numpy as np
    >>> image = np.arange(16).reshape(4, 4)
    >>> rows = image.reshape(2, 2, 2, 2).swapaxes(1, 2).reshape(4, 4)
    >>> draw_patches(image, rows).passed, draw_patches(image, image).passed
    (True, False)
    """
    image = as_array("image_HW", image_HW, axes="HW")
    rows = as_array("patches_LD", patches_LD, axes="LD")
    count = patches_per_side(image, rows.shape[0])
    size = image.shape[0] // count
    if rows.shape[1] != size * size:
        raise ShapeMismatch(
            f"patches_LD: axis D has size {rows.shape[1]}, but a patch of "
            f"image_HW has {size} × {size} = {size * size} pixels"
        )
    check_size("image_HW", "H", image.shape[0], MOST_PIXELS)
    check_size("patches_LD", "D", rows.shape[1], MOST_PIXELS)
    again = reassemble(rows, count)
    wrong = int(np.sum(again != image))
    L, D = rows.shape
    return Picture(
        [layout_image(image, count), layout_rows(rows)],
        title,
        f"An image of {image.shape[0]} × {image.shape[1]} pixels in {L} "
        f"patches, and {L} rows of {D} pixels.",
        f"{image.shape[0]} × {image.shape[1]} pixels become {L} tokens of "
        f"{D} numbers.",
        [
            Verdict(
                "the rows put back together are the image",
                wrong == 0,
                f"{wrong} of {image.size} pixels differ",
                "exact",
                "reassembled from patches_LD",
            )
        ],
    )


def reassemble(patches_LD: np.ndarray, count: int) -> np.ndarray:
    """Return the image made of `count` × `count` patches.

    Examples
    --------
    >>> import numpy as np
    >>> reassemble(np.array([[1], [2], [3], [4]]), 2).tolist()
    [[1, 2], [3, 4]]
    """
    size = math.isqrt(patches_LD.shape[1])
    squares = patches_LD.reshape(-1, size, size)
    return np.block(
        [[squares[r * count + c] for c in range(count)] for r in range(count)]
    )


def layout_image(image: np.ndarray, count: int) -> Panel:
    """Return the image pulled apart, a number above every patch."""
    size = image.shape[0] // count
    room = MAX_PANEL_WIDTH - 4 - (count - 1) * _GAP
    side = min(29, math.floor(room / image.shape[0]))
    marks: list[Mark] = [heading(0, 8, "image_HW")]
    low, span = _range(image)
    font = _font(image, side)
    for patch in range(count * count):
        row, column = divmod(patch, count)
        x = 1 + column * (size * side + _GAP)
        y = 25 + row * (size * side + _TAG + _GAP)
        marks.append(Label(x, y + 7, str(patch), 11, "start", bold=True))
        y += _TAG
        for i, j in np.ndindex(size, size):
            value = float(image[row * size + i, column * size + j])
            marks += cell(
                x + j * side,
                y + i * side,
                side,
                side,
                pixel_color((value - low) / span),
                cell_text(value) if font else "",
                size=font,
            )
        marks.append(Box(x, y, size * side, size * side, edge=CELL_EDGE))
    return Panel.around(
        marks, f"{count * count} numbered patches of {size} × {size} pixels."
    )


def layout_rows(patches_LD: np.ndarray) -> Panel:
    """Return one row of pixels per patch."""
    L, D = patches_LD.shape
    side = min(29, math.floor((MAX_PANEL_WIDTH - 4 - _LEFT) / D))
    marks: list[Mark] = [heading(0, 8, "patches_LD")]
    low, span = _range(patches_LD)
    font = _font(patches_LD, side)
    top = 24.0
    for row in range(L):
        y = top + row * _ROW
        marks.append(
            Label(_LEFT - 5, y + _ROW / 2, str(row), 11, "end", bold=True)
        )
        for d in range(D):
            value = float(patches_LD[row, d])
            marks += cell(
                _LEFT + d * side,
                y,
                side,
                _ROW,
                pixel_color((value - low) / span),
                cell_text(value) if font else "",
                size=font,
            )
    middle = top + max(L * _ROW / 2, 28)
    marks += axis_name_upright(18, middle, "L", L, noun="patch")
    bottom = top + max(L * _ROW, 56)
    marks += axis_name(_LEFT, bottom + 16, "D", D, noun="pixel")[0]
    return Panel.around(marks, f"{L} rows, one per patch, of {D} pixels.")


def _range(array: np.ndarray) -> tuple[float, float]:
    """Return the smallest value and the span, 1 if all are equal."""
    return float(array.min()), float(np.ptp(array)) or 1.0


def _font(array: np.ndarray, side: float) -> float:
    """Return the font size at which every value fits its cell, 0 for none."""
    return cell_font([cell_text(value) for value in array.flat], side)
