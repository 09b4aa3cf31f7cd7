"""Attention map: whom one patch of an image looks at, head by head."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_array,
    as_sequence,
    check_index,
    check_size,
)
from attention_lab.figures.digits import weight_text
from attention_lab.figures.marks import Box, Mark
from attention_lab.figures.palette import (
    AXIS_COLORS,
    CELL_EDGE,
    PAPER,
    pixel_color,
    weight_color,
)
from attention_lab.figures.parts import axis_name, cell, heading
from attention_lab.figures.picture import Panel, Picture, Table
from attention_lab.figures.weights import check_weights, rows_sum_to_one

MOST_HEADS, MOST_PATCHES_PER_SIDE = 8, 6
_SIDE, _TOP = 200, 22


def draw_attention_map(
    image_HW: Any,
    weights: Any,
    *,
    query: int,
    heads: Sequence[int] | None = None,
    title: str | None = None,
) -> Picture:
    """Draw the weights of one query patch on top of the image.

    Parameters
    ----------
    image_HW : square grey image; dark means large.
    weights : (L, S) or (H, L, S), one row and one column per patch, patches
        counted row by row. L = S = the number of patches.
    query : the patch whose weights are drawn.
    heads : which heads to draw; all of them by default.
    title : heading of the picture.

    Returns
    -------
    The image with its query patch marked, and one panel per head.

    Raises
    ------
    ShapeMismatch
        If the image does not divide into as many square patches as there
        are keys, or the weights have the wrong axes.
    ValueError
        If an index is outside its axis, `heads` is no list, or weights are
        outside [0, 1].

    Examples
    --------
    >>> import numpy as np
    >>> flat = np.full((4, 4), 0.25)
    >>> draw_attention_map(np.eye(4), flat, query=2).passed
    True
    """
    image = as_array("image_HW", image_HW, axes="HW").astype(float)
    array = as_array("weights", weights)
    if array.ndim not in (2, 3):
        raise ShapeMismatch(
            f"weights has {array.ndim} axes {array.shape}; needed: L S or H L S"
        )
    many = array.ndim == 3
    stack = check_weights("weights", array if many else array[None])
    count = patches_per_side(image, stack.shape[2])
    if stack.shape[1] != stack.shape[2]:
        raise ShapeMismatch(
            f"weights: axis L has size {stack.shape[1]}, but S = "
            f"{stack.shape[2]}; each patch is a query and a key"
        )
    query = check_index("query", query, "L", stack.shape[1])
    if heads is None:
        heads = range(stack.shape[0])
    chosen = [
        check_index("heads", head, "H", stack.shape[0])
        for head in as_sequence("heads", heads, "a list of heads")
    ]
    check_size("heads", "H", len(chosen), MOST_HEADS)
    if not chosen:
        raise ValueError("heads is empty: there is no head to draw")
    panels = [layout_query(image, count, query)]
    panels += [
        layout_attention(
            image, stack[head, query], query, head if many else None
        )
        for head in chosen
    ]
    best = [int(np.argmax(stack[head, query])) for head in chosen]
    parts = [
        (f"in head {head} " if many else "")
        + f"at patch {key} ({weight_text(stack[head, query, key])})"
        for head, key in zip(chosen, best, strict=True)
    ]
    return Picture(
        panels,
        f"Whom patch {query} looks at" if title is None else title,
        f"The image in {count * count} patches, then the weights of patch "
        f"{query} for each of them.",
        f"Patch {query} looks most " + ", ".join(parts) + ".",
        [rows_sum_to_one(stack)],
        _table(stack[chosen, query], chosen),
    )


def patches_per_side(image: np.ndarray, patches: int) -> int:
    """Return how many patches fit along one side of the image.

    Raises
    ------
    ShapeMismatch
        If the image is not square, or does not divide into that many.

    Examples
    --------
    >>> import numpy as np
    >>> patches_per_side(np.zeros((8, 8)), 16)
    4
    """
    height, width = image.shape
    count = math.isqrt(patches)
    if height != width or count * count != patches or height % count:
        raise ShapeMismatch(
            f"image_HW has size {height} × {width}, which does not divide "
            f"into {patches} square patches"
        )
    check_size("image_HW", "patches per side", count, MOST_PATCHES_PER_SIDE)
    return count


def layout_attention(
    image: np.ndarray,
    weights_S: np.ndarray,
    query: int,
    head: int | None,
    name: str | None = None,
) -> Panel:
    """Return the image with a weight on every patch.

    `name` is the panel's own; without it the head or the query names it.
    """
    count = math.isqrt(weights_S.size)
    size = _SIDE / count
    if head is None or name is not None:
        text = name or f"weights of patch {query}"
        marks: list[Mark] = [heading(0, 8, text)]
    else:
        marks = axis_name(0, 8, "H", head)[0]
    marks += _pixels(image)
    largest = float(weights_S.max()) or 1.0
    for key, weight in enumerate(weights_S.tolist()):
        x, y = key % count * size, key // count * size + _TOP
        marks.append(Box(x, y, size, size, edge=CELL_EDGE))
        tag = min(34.0, size - 2)
        marks += cell(
            x + (size - tag) / 2,
            y + (size - 20) / 2,
            tag,
            20,
            weight_color(weight / largest),
            weight_text(weight),
            size=12,
            bold=True,
        )
    marks += _query_frame(query, count)
    listed = ", ".join(
        f"{key}: {weight_text(w)}" for key, w in enumerate(weights_S.tolist())
    )
    where = "" if head is None else f"Head {head}. "
    return Panel(
        _SIDE + 6, _SIDE + _TOP + 6, _shift(marks),
        f"{where}Weights of patch {query} per patch: {listed}.",
    )  # fmt: skip


def layout_query(image: np.ndarray, count: int, query: int) -> Panel:
    """Return the image alone, its patches numbered, the query marked."""
    size = _SIDE / count
    marks: list[Mark] = axis_name(0, 8, "L", query, noun="query patch")[0]
    marks += _pixels(image)
    for patch in range(count * count):
        x, y = patch % count * size, patch // count * size + _TOP
        marks.append(Box(x, y, size, size, edge=CELL_EDGE))
        fill = AXIS_COLORS["L"] if patch == query else PAPER
        marks += cell(x + 3, y + 3, 19, 14, fill, str(patch), size=10)
    marks += _query_frame(query, count)
    return Panel(
        _SIDE + 6, _SIDE + _TOP + 6, _shift(marks),
        f"The image in {count} by {count} numbered patches; patch {query} is "
        "framed.",
    )  # fmt: skip


def _pixels(image: np.ndarray) -> list[Mark]:
    """Draw the pixels, the smallest as paper and the largest as ink."""
    low, span = float(image.min()), float(np.ptp(image)) or 1.0
    side = _SIDE / image.shape[0]
    paper = pixel_color(0)
    marks: list[Mark] = [Box(0, _TOP, _SIDE, _SIDE, fill=paper, edge=paper)]
    for row, column in np.argwhere(image > low).tolist():
        fill = pixel_color((float(image[row, column]) - low) / span)
        x, y = column * side, row * side + _TOP
        # Its own colour as the edge closes the hairline between pixels.
        marks.append(
            Box(x, y, side, side, fill=fill, edge=fill, edge_width=0.5)
        )
    return marks


def _query_frame(query: int, count: int) -> list[Mark]:
    """Frame the query patch, with a white line that shows on dark pixels."""
    size = _SIDE / count
    x, y = query % count * size, query // count * size + _TOP
    color = AXIS_COLORS["L"]
    return [
        Box(x, y, size, size, edge=color, edge_width=4),
        Box(x + 2.5, y + 2.5, size - 5, size - 5, edge=PAPER),
    ]


def _shift(marks: Sequence[Mark]) -> tuple[Mark, ...]:
    """Move the marks right, so that a frame at the edge is not cut."""
    return tuple(replace(mark, x=mark.x + 3) for mark in marks)


def _table(weights: np.ndarray, heads: Sequence[int]) -> Table:
    return Table(
        "The weights as numbers",
        ("head", "weights of patch 0, 1, 2, …"),
        tuple(
            (str(head), "  ".join(f"{weight:.3f}" for weight in row))
            for head, row in zip(heads, weights.tolist(), strict=True)
        ),
    )
