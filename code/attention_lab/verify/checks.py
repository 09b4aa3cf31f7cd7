"""The checks of a page: two for a guess, and a comparison that raises."""

import math
import numbers
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch, axis_letters


class WrongValues(AssertionError):  # noqa: N818 - said to a learner
    """Two arrays that should agree do not; names the largest difference."""


def check_shape(
    array: Any, guess: tuple[int, ...] | None, axes: str | None = None
) -> None:
    """Compare the reader's guess with an array's shape and print the answer.

    Three answers: no guess yet; not yet, with the first axis that differs;
    right. It never raises on a wrong guess, so that *Run all* goes on.

    Parameters
    ----------
    array : the array that the guess is about.
    guess : a tuple of sizes, or None.
    axes : the letters of its axes, such as "BHLS", to name the one that
        differs.

    Raises
    ------
    ShapeMismatch
        If `axes` has not one letter per axis of the array: a mistake of the
        page, not of the reader.

    Examples
    --------
    >>> scores_BHLS = np.zeros((2, 3, 5, 7))
    >>> check_shape(scores_BHLS, (2, 3, 7, 5), "BHLS")
    Not yet: axis L is 7 in your guess and 5 in the array.
    >>> check_shape(scores_BHLS, (2, 3, 5, 7), "BHLS")
    Right: (2, 3, 5, 7).
    """
    shape = tuple(as_numbers("array", array).shape)
    if axes is not None and len(axes) != len(shape):
        raise ShapeMismatch(
            f"axes {axes!r} names {len(axes)} axes, but array has "
            f"{len(shape)}: {shape}"
        )
    if guess is None:
        print(f"No guess yet. The array has {len(shape)} axes: {shape}.")
        return
    if not isinstance(guess, tuple | list) or not all(map(_is_whole, guess)):
        print(
            "Write your guess as a tuple of whole numbers, such as (1, 1), "
            f"not {guess!r}."
        )
        return
    if len(guess) != len(shape):
        print(
            f"Not yet: your guess has {len(guess)} axes, the array has "
            f"{len(shape)}: {shape}."
        )
        return
    for i, (guessed, size) in enumerate(zip(guess, shape, strict=True)):
        if guessed != size:
            axis = f"axis {axes[i]}" if axes else f"axis {i}"
            print(
                f"Not yet: {axis} is {guessed} in your guess and {size} in "
                "the array."
            )
            return
    print(f"Right: {shape}.")


def _is_whole(size: Any) -> bool:
    return isinstance(size, numbers.Integral) and not isinstance(size, bool)


def check_number(
    number: float, guess: float | None, name: str = "The number"
) -> None:
    """Compare the reader's guess with a number and print the answer.

    A count must be met exactly; for other numbers a guess within 1 % is right.
    It never raises on a wrong guess, so that *Run all* goes on.

    Examples
    --------
    >>> check_number(3.0, 4.0, name="The output")
    Not yet: your guess 4 is too large. The output is 3.
    >>> check_number(3.0, 3.01, name="The output")
    Right. The output is 3.
    """
    is_count = _is_whole(number)
    answer = f"{name} is {number if is_count else f'{number:.4g}'}."
    if guess is None:
        print(f"No guess yet. {answer}")
        return
    if isinstance(guess, bool) or not isinstance(guess, numbers.Real):
        print(f"Write your guess as one number, such as 1.5, not {guess!r}.")
        return
    if guess != guess:
        print(f"Not yet: your guess is not a number. {answer}")
        return
    near = math.isclose(guess, number, rel_tol=0.01)
    if guess == number or (near and not is_count):
        print(f"Right. {answer}")
    else:
        size = "large" if guess > number else "small"
        print(f"Not yet: your guess {guess:g} is too {size}. {answer}")


def check_same_as(
    actual: Any, expected: Any, bound: float = 0.0, name: str = "result"
) -> None:
    """Raise unless two arrays agree to within `bound`, everywhere.

    Parameters
    ----------
    actual, expected : NumPy arrays or torch tensors of the same shape.
    bound : largest allowed difference, in the arrays' units; 0 means exactly.
        Take it from `attention_lab.error_bound`, never from a run.
    name : what the printed line calls `actual`; letters at its end, as in
        "out_BHLD", name the axes.

    Raises
    ------
    ShapeMismatch
        If the shapes differ: nothing is broadcast.
    WrongValues
        If a difference exceeds the bound, or one side has NaN. Names the
        element that differs most, by its axes.
    ValueError
        If the bound is negative, infinite or NaN: such a check checks nothing.

    Examples
    --------
    >>> check_same_as(np.ones(3), np.ones(3), name="weights")
    weights ✓ largest difference 0 ≤ 0
    """
    is_number = isinstance(bound, numbers.Real) and not isinstance(bound, bool)
    if not is_number or not 0.0 <= bound < np.inf:
        raise ValueError(
            f"bound must be a finite number of at least 0, not {bound!r}"
        )
    a, b = as_numbers(name, actual), as_numbers("expected", expected)
    if a.shape != b.shape:
        raise ShapeMismatch(
            f"{name} has shape {a.shape}, but {b.shape} is expected"
        )
    # Equality is asked of the numbers as they are, so that large integers are
    # not rounded into each other; equal infinities are equal, NaN never is.
    equal = a == b
    a, b = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        difference = np.abs(a - b)
    difference = np.where(np.isnan(difference), np.inf, difference)
    difference = np.maximum(difference, np.nextafter(0.0, 1.0))
    difference = np.where(equal, 0.0, difference)
    worst = float(difference.max()) if difference.size else 0.0
    if not worst <= bound:
        where = np.unravel_index(difference.argmax(), difference.shape)
        raise WrongValues(
            f"{name} differs at {_place(name, where)}: {a[where]:.6g}, but "
            f"{b[where]:.6g} is expected; allowed is {bound:.3g}, and "
            f"{int((difference > bound).sum())} of {difference.size} elements "
            "differ by more"
        )
    print(f"{name} ✓ largest difference {worst:.2g} ≤ {bound:.2g}")


def as_numbers(name: str, array: Any) -> np.ndarray:
    """Return an array of real numbers as NumPy, or say why it is none.

    Raises
    ------
    ValueError
        If it is no dense array, or its dtype holds no real numbers.
    """
    if hasattr(array, "detach"):
        if str(array.layout) != "torch.strided" or array.is_meta:
            raise ValueError(f"{name} must be a dense tensor with numbers")
        array = array.detach().cpu()
        if str(array.dtype) == "torch.bfloat16":
            array = array.float()
        array = array.numpy()
    if np.ma.isMaskedArray(array) or not isinstance(
        array, np.ndarray | np.generic
    ):
        raise ValueError(
            f"{name} must be a NumPy array or a torch tensor, not "
            f"{type(array).__name__}"
        )
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise ValueError(f"{name} has dtype {array.dtype}; use real numbers")
    return np.asarray(array)


def _place(name: str, where: tuple[int, ...]) -> str:
    letters = axis_letters(name)
    if len(letters) == len(where):
        pairs = zip(letters, where, strict=True)
        return ", ".join(f"{letter} = {i}" for letter, i in pairs) or "()"
    return f"index {tuple(int(i) for i in where)}"
