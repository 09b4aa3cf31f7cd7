"""What every figure does first: take the data as NumPy, or refuse it.

A refusal is one sentence with the argument, the axis and the sizes; no figure
ever shows a blank or half-drawn picture instead.
"""

import math
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch, axis_letters


def as_array(
    name: str,
    data: Any,
    *,
    axes: Sequence[str] | None = None,
    allow_minus_inf: bool = False,
) -> np.ndarray:
    """Return `data` as a non-empty NumPy array without NaN.

    Parameters
    ----------
    name : how the error calls it, with the axis letters as its suffix.
    data : an array, a list of numbers, or a tensor on any device. A tensor on
        the CPU keeps its memory and its strides.
    axes : the letters of the axes it must have, if they are fixed.
    allow_minus_inf : whether −∞ is a legal value, as in masked scores.

    Raises
    ------
    ShapeMismatch
        If the number of axes is not that of `axes`, or the data are ragged.
    ValueError
        If the array is empty, not real numbers, or holds NaN or ±∞, or if a
        tensor is sparse, on the meta device, or not readable by NumPy.

    Examples
    --------
    >>> as_array("image_HW", [[0, 1], [2, 3]], axes="HW").shape
    (2, 2)
    """
    letters = axis_letters(name) if axes is None else axes
    array = _to_numpy(name, data, letters)
    if array.dtype.kind not in "biuf":
        alone = array.dtype.kind == "O" and array.ndim == 0
        kind = type(data).__name__ if alone else array.dtype
        raise ValueError(f"{name} must hold real numbers, not {kind}")
    if axes is not None and array.ndim != len(axes):
        raise ShapeMismatch(
            f"{name} has {array.ndim} axes {array.shape}, but {len(axes)} are "
            f"needed: {' '.join(axes)}"
        )
    if array.size == 0:
        axis = _axis(letters, array.shape.index(0))
        raise ValueError(
            f"{name} has shape {array.shape}: axis {axis} has size 0, so "
            "there is nothing to draw"
        )
    _check_finite(name, array, allow_minus_inf)
    return array


def as_number(
    name: str,
    value: Any,
    *,
    least: float = -math.inf,
    allow_minus_inf: bool = False,
) -> float:
    """Return one finite real number, from a scalar or an array of size 1.

    Raises
    ------
    ValueError
        If `value` is anything else, NaN, infinite (but for a −∞ that is
        allowed) or below `least`; names the argument and the value.

    Examples
    --------
    >>> as_number("tolerance", 1e-6, least=0)
    1e-06
    """
    what = "one finite number"
    what += "" if least == -math.inf else f" of at least {least:g}"
    what += " or −∞" if allow_minus_inf else ""
    try:
        array = as_array(name, value, allow_minus_inf=allow_minus_inf)
    except ValueError as error:
        raise _not(name, what, value) from error
    if array.size != 1 or array.dtype.kind == "b" or array.item() < least:
        raise _not(name, what, value)
    return float(array.item())


def as_whole(name: str, value: Any, *, least: float = 0) -> int:
    """Return a whole number; a bool or 1.0 is none.

    Raises
    ------
    ValueError
        If `value` is anything else or below `least`; names the argument and
        the value.

    Examples
    --------
    >>> as_whole("tile_row", 2)
    2
    """
    what = "a whole number"
    what += "" if least == -math.inf else f" of at least {least}"
    try:
        array = as_array(name, value, axes="")
    except ValueError as error:
        raise _not(name, what, value) from error
    if array.dtype.kind not in "iu" or array.item() < least:
        raise _not(name, what, value)
    return int(array.item())


def as_text(name: str, value: Any) -> str:
    """Return a line of text that is not empty.

    Raises
    ------
    ValueError
        If `value` is no string, or blank; names the argument and the value.

    Examples
    --------
    >>> as_text("title", "Who looks at whom")
    'Who looks at whom'
    """
    if not isinstance(value, str) or not value.strip():
        raise _not(name, "text that is not empty", value)
    return value


def as_sequence(
    name: str, value: Any, what: str, size: int | None = None
) -> list[Any]:
    """Return the parts of a list, a tuple or an array, in their order.

    Parameters
    ----------
    name : how the error calls it.
    value : the list; text, a set, a mapping and an iterator are refused.
    what : what it must be, as in "a list of heads".
    size : how many parts it must have, if that is fixed.

    Raises
    ------
    ValueError
        If `value` is no such list; names the argument and the value.

    Examples
    --------
    >>> as_sequence("visited[0]", (2, 1), "a pair (tile row, tile column)", 2)
    [2, 1]
    """
    if isinstance(value, (str, bytes, Mapping, Set, Iterator)):
        raise _not(name, what, value)
    try:
        parts = list(value)
    except TypeError as error:  # not iterable, or an array without axes
        raise _not(name, what, value) from error
    if size is not None and len(parts) != size:
        raise _not(name, what, value)
    return parts


def _not(name: str, what: str, value: Any) -> ValueError:
    """Return the error that `value` is not what it must be."""
    shown = repr(value)
    if len(shown) > 40 or "\n" in shown:
        shown = f"an object of type {type(value).__name__}"
    return ValueError(f"{name} must be {what}, not {shown}")


def _axis(letters: Sequence[str], place: int) -> str:
    """Return an axis by its letter, or by its number where it has none."""
    return letters[place] if place < len(letters) else str(place)


def _to_numpy(name: str, data: Any, letters: Sequence[str]) -> np.ndarray:
    """Convert a tensor or an array-like, copying only where it must."""
    sparse = "sparse" in str(getattr(data, "layout", ""))
    if sparse or getattr(data, "is_meta", False) is True:
        raise ValueError(
            f"{name} is a {'sparse' if sparse else 'meta'} tensor of shape "
            f"{tuple(data.shape)}; a figure needs a dense one with its "
            "numbers in memory"
        )
    try:
        for step in ("detach", "cpu"):
            if hasattr(data, step):
                data = getattr(data, step)()
        try:
            return np.asarray(data)
        except TypeError:  # bfloat16 has no NumPy counterpart
            if not hasattr(data, "float"):
                raise
            return np.asarray(data.float())
    except (TypeError, ValueError, RuntimeError) as error:
        _check_ragged(name, data, letters)
        raise ValueError(
            f"{name} cannot be read as an array of real numbers: {error}"
        ) from error


def _check_ragged(name: str, data: Any, letters: Sequence[str]) -> None:
    """Refuse nested lists of different length, naming the axis and sizes."""
    level = [data]
    for place in range(6):  # no figure has more axes
        lists = [
            part
            for part in level
            if isinstance(part, (list, tuple)) or getattr(part, "ndim", 0)
        ]
        sizes = {len(part) for part in lists}
        if len(sizes) > 1:
            raise ShapeMismatch(
                f"{name} is ragged: axis {_axis(letters, place)} has size "
                f"{min(sizes)} in one place and {max(sizes)} in another"
            )
        level = [item for part in lists for item in part]


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
    index = as_whole(name, index, least=-math.inf)
    if not 0 <= index < size:
        raise ValueError(
            f"{name} = {index} is outside axis {axis}, which has size {size}"
        )
    return index


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


def check_schema(data: Any, schema: str, name: str = "recording") -> None:
    """Refuse data that are no mapping of this schema.

    Raises
    ------
    ValueError
        If they are none, or of another schema; names both.

    Examples
    --------
    >>> check_schema({"schema": "head_board.v0"}, "head_board.v1")
    Traceback (most recent call last):
    ValueError: recording has schema 'head_board.v0'; this figure draws \
'head_board.v1'
    """
    if not isinstance(data, Mapping):
        raise ValueError(
            f"{name} must be a mapping, as the function that records it "
            f"returns it, not {type(data).__name__}"
        )
    found = read_field(data, "schema", name)
    if found != schema:
        raise ValueError(
            f"{name} has schema {found!r}; this figure draws {schema!r}"
        )


def read_runs(recording: Any, schema: str) -> list[Any]:
    """Return the runs of a recording that a figure can draw.

    Raises
    ------
    ValueError
        If `check_schema` refuses it, or it has no seed, no dtype or no run.
    """
    check_schema(recording, schema)
    as_whole("recording.seed", read_field(recording, "seed", "recording"))
    as_text("recording.dtype", read_field(recording, "dtype", "recording"))
    runs = as_sequence(
        "recording.runs", read_field(recording, "runs", "recording"), "a list"
    )
    if not runs:
        raise ValueError("recording.runs is empty: there is nothing to draw")
    return runs


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
