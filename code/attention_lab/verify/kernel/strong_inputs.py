"""Inputs that take a kernel to the ends of the floating-point range.

The scores of a softmax may be far above 0, far below, or all the same; one
that starts its maximum at 0, or subtracts none, shows it at one of these only.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

FACTOR = 100.0
#: exp underflows to 0 in float32 below −104.
FAR = 200.0


@dataclass(frozen=True)
class Change:
    """A change of the floating inputs of a launch.

    Attributes
    ----------
    words : how a sentence begins that tells of it.
    of : computes the new array from an array and its place among the
        floating inputs.
    """

    words: str
    of: Callable[[np.ndarray, int], np.ndarray]

    def applied(self, args: tuple[Any, ...], first: int) -> tuple[Any, ...]:
        """Change the floating arrays among the arguments from `first` on."""
        made, place = list(args), 0
        for k in range(first, len(args)):
            if is_floating(args[k]):
                made[k] = self.of(args[k], place).astype(args[k].dtype)
                place += 1
        return tuple(made)


def is_floating(argument: Any) -> bool:
    """Whether an argument is an array of floating numbers."""
    return isinstance(argument, np.ndarray) and argument.dtype.kind == "f"


def _times(factor: float, array: np.ndarray, place: int) -> np.ndarray:
    return array * factor


def _far(sign: float, array: np.ndarray, place: int) -> np.ndarray:
    """Make the first input far above or below 0, and the others far above.

    So both the numbers of a single input and the products of two are.
    """
    far = FAR + FACTOR * np.abs(array)
    return sign * far if place == 0 else far


def _with_constant_row(array: np.ndarray, place: int) -> np.ndarray:
    changed = np.array(array)
    if place == 0 and changed.ndim:
        changed[(..., 0, slice(None)) if changed.ndim > 1 else ...] = -FAR
    return changed


FAR_BELOW = Change(
    f"With the first floating input far below 0 (under −{FAR:g}) and the "
    "others far above",
    partial(_far, -1.0),
)
FAR_ABOVE = Change(
    f"With every floating input far above 0 (over {FAR:g})", partial(_far, 1.0)
)
#: What is tested.
CHANGES = (
    Change(f"With every floating input × {FACTOR:g}", partial(_times, FACTOR)),
    Change(
        f"With every floating input × −{FACTOR:g}", partial(_times, -FACTOR)
    ),
    FAR_BELOW,
    Change(
        f"With −{FAR:g} everywhere in one row of the first floating input",
        _with_constant_row,
    ),
)
