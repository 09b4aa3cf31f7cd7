"""Who may attend to whom: boolean masks in which True means "may attend".

The same polarity as `torch.nn.functional.scaled_dot_product_attention`. Beware:
`torch.nn.MultiheadAttention` uses the opposite one.
"""

from typing import Any, Literal

import numpy as np
from jaxtyping import Bool

Align = Literal["upper_left", "lower_right"]


def _check_length(name: str, size: int) -> None:
    if isinstance(size, bool) or not isinstance(size, int | np.integer):
        raise ValueError(f"{name} must be a whole number, not {size!r}")
    if size < 0:
        raise ValueError(f"{name} must be at least 0, not {size}")


def _last_visible(L: int, S: int, align: Align) -> np.ndarray:
    """Return, for each query, the last key that it may see; shape (L, 1)."""
    _check_length("L", L)
    _check_length("S", S)
    if align not in ("upper_left", "lower_right"):
        raise ValueError(
            f"align must be 'upper_left' or 'lower_right', not {align!r}"
        )
    offset = S - L if align == "lower_right" else 0
    return np.arange(L)[:, None] + offset


def causal(
    L: int, S: int, align: Align = "upper_left", like: Any = None
) -> Bool[Any, "L S"]:
    """Let each query see the keys up to its own position.

    Parameters
    ----------
    L, S : numbers of queries and keys.
    align : where the diagonal starts when L and S differ. "upper_left": query
        0 sees key 0 only, as PyTorch's `is_causal`. "lower_right": the last
        query sees every key, as when decoding with a cache.
    like : a torch tensor, to get a tensor on its device; None gives NumPy.

    Returns
    -------
    True where a query may attend. With "lower_right" and L > S the first
    L − S rows see nothing.

    Raises
    ------
    ValueError
        If a length is negative or not whole, or `align` is another word.

    Examples
    --------
    >>> causal(2, 3).astype(int)
    array([[1, 0, 0],
           [1, 1, 0]])
    >>> causal(2, 3, align="lower_right").astype(int)
    array([[1, 1, 0],
           [1, 1, 1]])
    """
    keep_LS = np.arange(S)[None, :] <= _last_visible(L, S, align)
    return _as_kind(keep_LS, like)


def window(
    L: int,
    S: int,
    width: int,
    align: Align = "upper_left",
    like: Any = None,
) -> Bool[Any, "L S"]:
    """Let each query see only the last `width` keys up to its own position.

    Raises
    ------
    ValueError
        If `width` is below 1, a length is negative, or `align` is unknown.

    References
    ----------
    Beltagy et al. 2020, "Longformer", section 3.1: sliding-window attention.

    Examples
    --------
    >>> window(3, 3, width=2).astype(int)
    array([[1, 0, 0],
           [1, 1, 0],
           [0, 1, 1]])
    """
    _check_length("width", width)
    if width < 1:
        raise ValueError(
            f"width must be at least 1, not {width}: a query sees its own key"
        )
    width = min(width, L + S)  # no difference, and no overflow below
    last_L1 = _last_visible(L, S, align)
    keys_1S = np.arange(S)[None, :]
    keep_LS = (keys_1S <= last_L1) & (keys_1S > last_L1 - width)
    return _as_kind(keep_LS, like)


def padding(lengths_B: Any, S: int, like: Any = None) -> Bool[Any, "B 1 1 S"]:
    """Let every query of a sequence see its first `lengths_B[b]` keys.

    The result has four axes, so that no axis can be taken for another.

    Raises
    ------
    ValueError
        If a length is negative, larger than S, or not a whole number.

    Examples
    --------
    >>> padding([1, 3], S=3).astype(int).tolist()
    [[[[1, 0, 0]]], [[[1, 1, 1]]]]
    """
    _check_length("S", S)
    if not hasattr(lengths_B, "dtype") and not len(lengths_B):
        lengths_B = np.zeros(0, int)  # an empty batch
    lengths_B = np.asarray(lengths_B)
    if lengths_B.ndim != 1 or lengths_B.dtype.kind not in "iu":
        raise ValueError(
            "lengths_B must be whole numbers along axis B, not "
            f"{lengths_B.dtype} of shape {lengths_B.shape}"
        )
    if lengths_B.size and not 0 <= lengths_B.min() <= lengths_B.max() <= S:
        raise ValueError(
            f"lengths_B must lie in 0 … S = {S}, not {lengths_B.tolist()}"
        )
    keep_BS = np.arange(S)[None, :] < lengths_B[:, None]
    return _as_kind(keep_BS[:, None, None, :], like)


def _as_kind(keep: np.ndarray, like: Any) -> Any:
    """Hand the mask out as NumPy, or as a torch tensor beside `like`."""
    if like is None or isinstance(like, np.ndarray):
        return keep
    if not hasattr(like, "device"):
        raise ValueError(
            f"like must be a torch tensor or None, not {type(like).__name__}"
        )
    import torch  # only a caller with a tensor gets here

    return torch.from_numpy(keep).to(like.device)
