"""How far a correct kernel may be from its float64 reference.

A kernel adds and multiplies in float32, in an order of its own. Each output
passes through n roundings, and the result is what exact arithmetic gives for
inputs that are each off by a relative error of at most

    γ_n = n·u / (1 − n·u),    u = 2⁻²⁴ in float32,

as for a sum of n products in any order (Higham 2002, "Accuracy and Stability
of Numerical Algorithms", section 3.1, lemma 3.1 and equation 3.4). So the bound
is found by asking the reference itself: its inputs are moved by ±γ_n, at
random, and twice the largest change of the output is allowed, plus γ_n of the
largest output. n is the sum of the longest axes of the inputs, plus 8 for the
functions (exp, log, √, a division) on the way.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

#: How many roundings the functions on the way may add.
FUNCTIONS = 8
TRIALS = 8


def rounding_bounds(
    reference: Callable[..., Any],
    given: tuple[Any, ...],
    expected: tuple[np.ndarray, ...],
    dtypes: Sequence[np.dtype],
) -> tuple[float, ...]:
    """Return the largest allowed error of each output; 0 for integers.

    Parameters
    ----------
    reference : computes the outputs from inputs in float64.
    given : the inputs.
    expected : what the reference gives for them.
    dtypes : of the kernel's outputs.
    """
    gamma = _gamma(given, expected, dtypes)
    changes = np.zeros(len(expected))
    rng = np.random.default_rng(0)
    for _ in range(TRIALS):
        with np.errstate(all="ignore"):
            moved = reference(*(_move(arg, gamma, rng) for arg in given))
        many = moved if isinstance(moved, tuple | list) else (moved,)
        for k, (one, exact) in enumerate(zip(many, expected, strict=False)):
            changes[k] = max(changes[k], _largest_change(one, exact))
    bounds = []
    for change, exact, dtype in zip(changes, expected, dtypes, strict=True):
        if np.dtype(dtype).kind != "f":
            bounds.append(0.0)
            continue
        finite = np.abs(exact[np.isfinite(exact)])
        largest = float(finite.max(initial=0.0))
        stored = float(np.finfo(dtype).eps) * largest
        bounds.append(float(2 * change + gamma * largest + stored))
    return tuple(bounds)


def _gamma(
    given: tuple[Any, ...],
    expected: tuple[np.ndarray, ...],
    dtypes: Sequence[np.dtype],
) -> float:
    arrays = [a for a in given if isinstance(a, np.ndarray) and a.ndim]
    n = sum(max(a.shape) for a in arrays) + FUNCTIONS
    # Half precisions are added up in float32, and rounded once when stored.
    is_double = all(np.dtype(d) == np.float64 for d in dtypes)
    unit = 2.0**-53 if is_double else 2.0**-24
    return n * unit / (1 - n * unit)


def _move(argument: Any, gamma: float, rng: np.random.Generator) -> Any:
    """Change every floating number by a relative γ, up or down."""
    if isinstance(argument, np.ndarray):
        if argument.dtype.kind != "f":
            return np.array(argument)
        signs = rng.choice([-1.0, 1.0], argument.shape)
        return argument * (1 + gamma * signs)
    if isinstance(argument, float):
        return argument * (1 + gamma * rng.choice([-1.0, 1.0]))
    return argument


def _largest_change(one: Any, exact: np.ndarray) -> float:
    with np.errstate(invalid="ignore"):
        change = np.abs(np.asarray(one, float) - exact.astype(float))
    return float(change[np.isfinite(change)].max(initial=0.0))
