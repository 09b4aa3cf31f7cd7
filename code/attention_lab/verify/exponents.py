"""How does a count grow with the sizes? Fit the exponents of a power law."""

from collections.abc import Mapping

import numpy as np


def integer_exponents(
    counts: Mapping[tuple[int, ...], int], axes: str
) -> dict[str, int]:
    """Fit count = c · Π size^exponent by least squares on the logarithms.

    Parameters
    ----------
    counts : sizes -> count, one size per letter of `axes`.
    axes : the letters of the sizes, such as "LD".

    Raises
    ------
    ValueError
        If a count or size is not positive, the sizes do not determine the
        exponents, or a power of the sizes does not explain the counts exactly:
        a sum of two different powers is refused, not rounded.

    Examples
    --------
    >>> counts = {(n, d): 4 * n * n * d for n in (2, 3) for d in (5, 7)}
    >>> integer_exponents(counts, "LD")
    {'L': 2, 'D': 1}
    """
    sizes = np.array(list(counts), dtype=float)
    found = np.array(list(counts.values()), dtype=float)
    if sizes.ndim != 2 or sizes.shape[1] != len(axes):
        raise ValueError(f"counts must have one size for each of {axes!r}")
    if not (np.all(sizes > 0) and np.all(found > 0)):
        raise ValueError("counts and sizes must be positive")
    logs = np.hstack([np.log(sizes), np.ones((len(sizes), 1))])
    solution, _, rank, _ = np.linalg.lstsq(logs, np.log(found), rcond=None)
    if rank < logs.shape[1]:
        raise ValueError(f"the sizes do not determine exponents of {axes!r}")
    # A few dozen logarithms are added; 1e-9 is far above their rounding, and
    # far below what a second term of another order would leave.
    misfit = np.abs(logs @ solution - np.log(found)).max()
    if misfit > 1e-9:
        raise ValueError(f"no power of {axes!r} gives the counts: {misfit:.2g}")
    exponents = {}
    for axis, fitted in zip(axes, solution, strict=False):
        if abs(fitted - round(fitted)) > 1e-9:
            raise ValueError(f"the exponent of {axis} is {fitted:.4f}")
        exponents[axis] = round(fitted)
    return exponents
