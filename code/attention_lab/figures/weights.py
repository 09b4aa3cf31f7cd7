"""Checks on attention weights that several figures share."""

import numpy as np

from attention_lab.figures.digits import error_text
from attention_lab.figures.picture import Verdict


def sum_tolerance(weights: np.ndarray) -> float:
    """Return how far a row may sum from 1: S roundings of the data's type.

    Examples
    --------
    >>> sum_tolerance(np.zeros((3, 4), dtype=np.float32)) == 4 * 2.0**-23
    True
    """
    kind = weights.dtype if weights.dtype.kind == "f" else np.dtype("f8")
    return weights.shape[-1] * float(np.finfo(kind).eps)


def check_weights(name: str, weights: np.ndarray) -> np.ndarray:
    """Return the weights, or refuse those outside [0, 1].

    Raises
    ------
    ValueError
        If a weight is below 0, or above 1 by more than rounding.
    """
    low, high = float(weights.min()), float(weights.max())
    if low < 0 or high > 1 + sum_tolerance(weights):
        raise ValueError(
            f"{name} must lie in [0, 1], but reaches from {low:.3g} to "
            f"{high:.3g}; are these scores from before the softmax?"
        )
    return weights


def rows_sum_to_one(weights: np.ndarray) -> Verdict:
    """Return the verdict that every row of weights sums to 1.

    Examples
    --------
    >>> rows_sum_to_one(np.full((2, 4), 0.25)).passed
    True
    """
    sums = weights.astype(float).sum(axis=-1)
    error, held = float(np.max(np.abs(sums - 1))), sum_tolerance(weights)
    return Verdict(
        "every row of weights sums to 1",
        error <= held,
        f"off by {error_text(error)}",
        f"≤ S·eps = {error_text(held)}",
        f"summed over {sums.size} rows of {weights.dtype}",
    )
