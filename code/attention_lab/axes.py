"""The alphabet of the book, and the errors that speak it.

One letter names one axis everywhere: in an array's name (`scores_BHLS`), in a
signature (`"B H L S"`), in an einops pattern (`b h l s`) and in a figure.
"""

import functools
import inspect
import numbers
from collections.abc import Callable, Sequence
from typing import Any

import beartype
import jaxtyping

#: What each letter means. A test holds the page `axis_key` to this table.
AXES = {
    "B": "batch",
    "L": "query positions",
    "S": "key and value positions",
    "H": "heads",
    "D": "width of one head",
    "E": "model width, E = H·D",
    "P": "query, key and value: P = 3",
}


class ShapeMismatch(ValueError):  # noqa: N818 - the book's word for it
    """Two arrays disagree about an axis, or an array has the wrong axes.

    The message names the argument, the axis and both sizes.
    """


def axis_letters(name: str) -> str:
    """Return the axis letters that end an array's name.

    Examples
    --------
    >>> axis_letters("scores_BHLS")
    'BHLS'
    >>> axis_letters("image")
    ''
    """
    suffix = name.rpartition("_")[2]
    return suffix if suffix and set(suffix) <= set(AXES) else ""


def check_axes(name: str, array: Any, letters: Sequence[str]) -> None:
    """Refuse an array that has not one axis per letter.

    Raises
    ------
    ShapeMismatch
        Names the argument, its axes and those that are needed.
    """
    shape = getattr(array, "shape", None)
    if shape is None:
        raise ShapeMismatch(
            f"{name} must be an array with axes {' '.join(letters)}, not "
            f"{type(array).__name__}"
        )
    if len(shape) != len(letters):
        raise ShapeMismatch(
            f"{name} has {len(shape)} axes {tuple(shape)}, but {len(letters)} "
            f"are needed: {' '.join(letters)}"
        )


def check_size(
    name: str, letter: str, size: int, other: str, wanted: int
) -> None:
    """Refuse an axis whose size differs from that of another array.

    Raises
    ------
    ShapeMismatch
        Names both arrays, the axis and both sizes.
    """
    if size != wanted:
        raise ShapeMismatch(
            f"{name}: axis {letter} has size {size}, but {other} has "
            f"{letter} = {wanted}"
        )


def check_divisible(E: int, H: int, embed_name: str, heads_name: str) -> int:
    """Return D = E / H, or refuse a width that the heads cannot share.

    Raises
    ------
    ShapeMismatch
        If either size is below 1, or H does not divide E.

    Examples
    --------
    >>> check_divisible(12, 3, "embed_dim", "num_heads")
    4
    """
    E = _whole(f"{embed_name}: axis E", E, ShapeMismatch)
    H = _whole(f"{heads_name}: axis H", H, ShapeMismatch)
    if E % H:
        raise ShapeMismatch(
            f"{embed_name}: axis E has size {E}, which {heads_name} H = {H} "
            f"does not divide; the remainder is {E % H}"
        )
    return E // H


def check_tile(name: str, size: int) -> int:
    """Return the tile size, or refuse one that is not a positive integer.

    Raises
    ------
    ValueError
        If `size` is not a whole number of at least 1.
    """
    return _whole(name, size, ValueError)


def _whole(name: str, size: Any, error: type[ValueError]) -> int:
    """Return a size as an int; NumPy's integers are welcome, bools are not."""
    is_whole = isinstance(size, numbers.Integral) and not isinstance(size, bool)
    if not is_whole or size < 1:
        raise error(
            f"{name} must be a whole number of at least 1, not {size!r}"
        )
    return int(size)


def shape_checked(function: Callable) -> Callable:
    """Check the jaxtyping shapes of a function's arguments at every call.

    A wrong call raises `ShapeMismatch` with one sentence for a learner instead
    of the type checker's report, which stays attached as its cause.
    """
    checked = jaxtyping.jaxtyped(function, typechecker=beartype.beartype)
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return checked(*args, **kwargs)
        except jaxtyping.TypeCheckError as error:
            bound = signature.bind(*args, **kwargs).arguments
            sentence = _first_mismatch(function.__name__, signature, bound)
            if sentence is None:
                raise
            raise ShapeMismatch(sentence) from error

    return call


def _first_mismatch(
    function_name: str, signature: inspect.Signature, bound: dict[str, Any]
) -> str | None:
    """Say what is wrong with the first argument that breaks its annotation."""
    seen: dict[str, tuple[str, int]] = {}
    for name, array in bound.items():
        annotation = signature.parameters[name].annotation
        if not hasattr(annotation, "dim_str"):
            if isinstance(annotation, type) and not isinstance(
                array, annotation
            ):
                return (
                    f"{function_name}: {name} must be of type "
                    f"{annotation.__name__}, not {type(array).__name__}"
                )
            continue
        sentence = _array_mismatch(name, array, annotation, seen)
        if sentence is not None:
            return f"{function_name}: {sentence}"
    return None


def _array_mismatch(
    name: str, array: Any, annotation: Any, seen: dict[str, tuple[str, int]]
) -> str | None:
    """Compare one array with its annotation and the sizes seen before it."""
    if not isinstance(array, annotation.array_type):
        wanted = getattr(annotation.array_type, "__name__", "an array")
        return f"{name} must be a {wanted}, not {type(array).__name__}"
    letters = annotation.dim_str.split()
    try:
        check_axes(name, array, letters)
    except ShapeMismatch as error:
        return str(error)
    for letter, size in zip(letters, array.shape, strict=True):
        if letter not in seen:
            seen[letter] = (name, size)
            continue
        other, other_size = seen[letter]
        if size != other_size:
            return (
                f"{name}: axis {letter} has size {size}, but {other} has "
                f"{letter} = {other_size}"
            )
    dtype = str(array.dtype).removeprefix("torch.")
    if annotation.dtypes and dtype not in annotation.dtypes:
        return f"{name} has dtype {dtype}; needed: {annotation.__name__}"
    return None
