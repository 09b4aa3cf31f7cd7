"""What every figure does first: take the data as NumPy, or refuse it.

A refusal is one sentence with the argument, the axis and the sizes; no figure
ever shows a blank or half-drawn picture instead.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch, axis_letters


def as_array(
    name: str,
    data: Any,
    *,
    ndim: int | None = None,
    allow_minus_inf: bool = False,
) -> np.ndarray:
    """Return `data` as a non-empty NumPy array without NaN.

    Parameters
    ----------
    name : how the error calls it, with the axis letters as its suffix.
    data : an array, a list of numbers, or a tensor on any device. A tensor on
        the CPU keeps its memory and its strides.
    ndim : the number of axes it must have, if that is fixed.
    allow_minus_inf : whether −∞ is a legal value, as in masked scores.

    Raises
    ------
    ShapeMismatch
        If the number of axes differs from `ndim`.
    ValueError
        If the array is empty, not numeric, or holds NaN or ±∞.

    Examples
    --------
    >>> as_array("image_HW", [[0, 1], [2, 3]], ndim=2).shape
    (2, 2)
    """
    array = _to_numpy(data)
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} must hold real numbers, not {array.dtype}")
    if ndim is not None and array.ndim != ndim:
        letters = " ".join(name.rpartition("_")[2])
        raise ShapeMismatch(
            f"{name} has {array.ndim} axes {array.shape}, but {ndim} are "
            f"needed: {letters}"
        )
    if array.size == 0:
        place = array.shape.index(0)
        letters = axis_letters(name)
        axis = letters[place] if place < len(letters) else place
        raise ValueError(
            f"{name} has shape {array.shape}: axis {axis} has size 0, so "
            "there is nothing to draw"
        )
    _check_finite(name, array, allow_minus_inf)
    return array


def _to_numpy(data: Any) -> np.ndarray:
    """Convert a tensor or an array-like, copying only where it must."""
    for step in ("detach", "cpu"):
        if hasattr(data, step):
            data = getattr(data, step)()
    try:
        return np.asarray(data)
    except TypeError:  # bfloat16 has no NumPy counterpart
        return np.asarray(data.float())


def _check_finite(name: str, array: np.ndarray, allow_minus_inf: bool) -> None:
    """Refuse NaN and infinities, naming the first place."""
    if array.dtype.kind != "f":
        return
    bad = ~np.isfinite(array)
    if allow_minus_inf:
        bad &= ~np.isneginf(array)
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"{name} holds {array[place]} at {list(place)}; "
            f"{int(bad.sum())} of its {array.size} numbers cannot be drawn"
        )


def check_size(name: str, axis: str, size: int, largest: int) -> None:
    """Refuse an axis too long to be drawn legibly.

    Raises
    ------
    ValueError
        If `size` exceeds `largest`; names the argument, the axis and both.
    """
    if size > largest:
        raise ValueError(
            f"{name}: axis {axis} has size {size}; at most {largest} can be "
            "drawn legibly"
        )


def check_index(name: str, index: int, axis: str, size: int) -> int:
    """Return `index`, or refuse one outside an axis.

    Raises
    ------
    ValueError
        If `index` is not a whole number in [0, size).
    """
    if isinstance(index, bool) or not isinstance(index, (int, np.integer)):
        raise ValueError(f"{name} must be a whole number, not {index!r}")
    if not 0 <= index < size:
        raise ValueError(
            f"{name} = {index} is outside axis {axis}, which has size {size}"
        )
    return int(index)


def check_same_size(
    name: str, size: int, axis: str, other: str, other_size: int
) -> None:
    """Refuse two arrays that disagree about an axis.

    Raises
    ------
    ShapeMismatch
        If the sizes differ; names both arrays, the axis and both sizes.
    """
    if size != other_size:
        raise ShapeMismatch(
            f"{name}: axis {axis} has size {size}, but {other} has "
            f"{axis} = {other_size}"
        )


def read_field(step: Any, field: str, place: str) -> Any:
    """Return a named part of one step of a trace: a mapping or an object.

    Raises
    ------
    ValueError
        If the step has no such part; names the place and the part.

    Examples
    --------
    >>> read_field({"row_max": 1.5}, "row_max", "trace[0]")
    1.5
    """
    if isinstance(step, Mapping):
        if field in step:
            return step[field]
    elif hasattr(step, field):
        return getattr(step, field)
    raise ValueError(f"{place} has no {field!r}")


def shown_places(size: int, largest: int) -> list[int | None]:
    """Return which of `size` places are drawn; None stands for the gap.

    Examples
    --------
    >>> shown_places(4, 5)
    [0, 1, 2, 3]
    >>> shown_places(40, 5)
    [0, 1, 2, None, 39]
    """
    if size <= largest:
        return list(range(size))
    return [*range(largest - 2), None, size - 1]
