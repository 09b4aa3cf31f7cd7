"""What every attention function of the book accepts, checked in one place.

The meanings are those of `torch.nn.functional.scaled_dot_product_attention`;
where that function broadcasts or guesses, this contract refuses with a reason.

Queries, keys and values must be finite, also at keys that a mask forbids: a
weight of 0 times NaN is NaN, here as in PyTorch.
"""

import math
import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch, check_axes, check_size

QUERY_AXES = ("B", "H", "L", "D")
KEY_AXES = ("B", "H", "S", "D")
DTYPES = ("float16", "bfloat16", "float32", "float64")
FLOAT32_MAX = 2.0**128 - 2.0**104


@dataclass(frozen=True)
class AttentionCall:
    """The sizes and the scale of one checked call.

    `H_kv` counts the key and value heads; `D_v` is the width of a value.
    """

    B: int
    H: int
    H_kv: int
    L: int
    S: int
    D: int
    D_v: int
    scale: float

    @property
    def group(self) -> int:
        """How many query heads read one key head."""
        return self.H // self.H_kv if self.H_kv else 1

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to attend from, or nothing to attend to."""
        return 0 in (self.B, self.H, self.L, self.S, self.D_v)


def dtype_name(array: Any) -> str:
    """Name an array's dtype the same way for NumPy and torch.

    Examples
    --------
    >>> import numpy as np
    >>> dtype_name(np.zeros(2, np.float32))
    'float32'
    """
    return str(array.dtype).removeprefix("torch.")


def check_attention_call(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionCall:
    """Check the arguments of an attention function and return its sizes.

    Parameters
    ----------
    query : array of shape (B, H, L, D), NumPy or torch.
    key, value : arrays of shape (B, H, S, D) and (B, H, S, D_v).
    attn_mask : boolean (True = may attend) or floating (added to the scores),
        broadcast from the right to (B, H, L, S).
    is_causal : query l sees keys 0 … l, aligned at the upper left.
    scale : factor on the scores; None means 1/√D with D the query's width.
    enable_gqa : key and value may have fewer heads, as long as they divide H.

    Returns
    -------
    The sizes by letter, and the scale as a float.

    Raises
    ------
    ShapeMismatch
        If ranks or sizes disagree; names the argument, the axis, both sizes.
    ValueError
        If dtypes, devices, the mask's dtype or the scale cannot be used, or
        `attn_mask` and `is_causal` come together.
    """
    _check_flag("is_causal", is_causal)
    _check_flag("enable_gqa", enable_gqa)
    arrays = {"query": query, "key": key, "value": value}
    for name, array in arrays.items():
        _check_array(name, array, QUERY_AXES if name == "query" else KEY_AXES)
    for name in ("key", "value"):
        _check_alike(name, arrays[name], query)

    B, H, L, D = query.shape
    H_kv, S = key.shape[1], key.shape[2]
    check_size("key", "B", key.shape[0], "query", B)
    check_size("value", "B", value.shape[0], "query", B)
    _check_heads(H, H_kv, enable_gqa)
    check_size("value", "H", value.shape[1], "key", H_kv)
    check_size("value", "S", value.shape[2], "key", S)
    check_size("key", "D", key.shape[3], "query", D)
    if D == 0:
        raise ShapeMismatch(
            "query: axis D has size 0, but a dot product needs D ≥ 1"
        )

    call = AttentionCall(
        B=B,
        H=H,
        H_kv=H_kv,
        L=L,
        S=S,
        D=D,
        D_v=value.shape[3],
        scale=_read_scale(scale, D),
    )
    if attn_mask is not None:
        check_mask(attn_mask, call, like=query)
        if is_causal:
            raise ValueError(
                "pass attn_mask or is_causal, not both: attn_mask has shape "
                f"{tuple(attn_mask.shape)} and is_causal adds an (L, S) = "
                f"({L}, {S}) mask; combine them yourself, for a boolean mask "
                "attn_mask & masks.causal(L, S, like=attn_mask)"
            )
    return call


def check_tensors(**arrays: Any) -> None:
    """Refuse anything but torch tensors; for functions that need torch.

    Raises
    ------
    ValueError
        Names the argument and its library.
    """
    for name, array in arrays.items():
        if _library(array) != "torch":
            raise ValueError(
                f"{name} must be a torch tensor, not "
                f"{type(array).__name__}; `attention_cuda` takes NumPy as well"
            )


def check_mask(attn_mask: Any, call: AttentionCall, like: Any) -> None:
    """Refuse a mask that is not boolean or floating, or could mean two things.

    Raises
    ------
    ShapeMismatch
        If its rank is ambiguous or an axis fits neither 1 nor the full size.
    ValueError
        If its dtype is neither boolean nor floating, it is elsewhere, or it
        holds NaN, +∞ or numbers that the query's dtype cannot.
    """
    _check_library("attn_mask", attn_mask)
    kind = dtype_name(attn_mask)
    if kind not in ("bool", *DTYPES):
        raise ValueError(
            f"attn_mask has dtype {kind}; use bool (True = may attend) or a "
            "floating mask that is added to the scores"
        )
    device = getattr(like, "device", None)
    _check_device("attn_mask", attn_mask, "query", device)
    shape = tuple(attn_mask.shape)
    _check_mask_rank(shape, call)
    full = {"B": call.B, "H": call.H, "L": call.L, "S": call.S}
    aligned = zip(reversed(shape), reversed(full.items()), strict=False)
    for size, (letter, wanted) in aligned:
        if size not in (1, wanted):
            owner = "key" if letter == "S" else "query"
            raise ShapeMismatch(
                f"attn_mask of shape {shape}: axis {letter} has size {size}, "
                f"but {owner} has {letter} = {wanted}{_mask_hint(shape, call)}"
            )
    if kind != "bool" and not getattr(attn_mask, "is_meta", False):
        _check_mask_numbers(attn_mask, dtype_name(like))


def _check_mask_numbers(attn_mask: Any, dtype: str) -> None:
    """Refuse what has no meaning as an addend, or would change in a cast."""
    if bool((attn_mask != attn_mask).any()):
        raise ValueError("attn_mask holds NaN; use −∞ to forbid a key")
    if bool((attn_mask == math.inf).any()):
        raise ValueError("attn_mask holds +∞; use −∞ to forbid a key")
    if dtype_name(attn_mask) == "float64" and dtype != "float64":
        too_low = (attn_mask < -FLOAT32_MAX) & (attn_mask != -math.inf)
        if bool((too_low | (attn_mask > FLOAT32_MAX)).any()):
            raise ValueError(
                "attn_mask has dtype float64 and holds finite numbers that "
                f"{dtype}, the dtype of query, cannot; use −∞ to forbid a key"
            )


def _check_mask_rank(shape: tuple[int, ...], call: AttentionCall) -> None:
    if len(shape) == 3:
        raise ShapeMismatch(
            f"attn_mask has 3 axes {shape}: the first could be B = {call.B} "
            f"or H = {call.H}; write attn_mask[:, None] for (B, 1, L, S) or "
            "attn_mask[None] for (1, H, L, S)"
        )
    if len(shape) not in (1, 2, 4):
        raise ShapeMismatch(
            f"attn_mask has {len(shape)} axes {shape}, but it must broadcast "
            f"to (B, H, L, S) = {(call.B, call.H, call.L, call.S)}"
        )
    reads_both_ways = call.B == call.L and call.B > 1
    if len(shape) == 2 and shape[0] == call.B and reads_both_ways:
        raise ShapeMismatch(
            f"attn_mask has 2 axes {shape}: the first could be L = {call.L} "
            f"or B = {call.B}; write attn_mask[None, None] for (1, 1, L, S) "
            "or attn_mask[:, None, None] for (B, 1, 1, S)"
        )


def _mask_hint(shape: tuple[int, ...], call: AttentionCall) -> str:
    if shape == (call.B, call.S):
        return (
            "; a mask of (B, S) needs attn_mask[:, None, None] to become "
            "(B, 1, 1, S)"
        )
    return ""


def _check_flag(name: str, flag: Any) -> None:
    """Refuse a number where True or False is meant.

    PyTorch's fifth argument is `dropout_p`, ours is `is_causal`: a call by
    position must not turn one into the other.
    """
    if not isinstance(flag, bool | np.bool_):
        raise ValueError(f"{name} must be True or False, not {flag!r}")


def _check_library(name: str, array: Any) -> None:
    """Refuse what is no plain NumPy array or torch tensor."""
    if not _library(array):
        raise ValueError(
            f"{name} must be a NumPy array or a torch tensor, not "
            f"{type(array).__name__}"
        )
    layout = str(getattr(array, "layout", "torch.strided"))
    if layout != "torch.strided":
        raise ValueError(
            f"{name} has layout {layout}; use a dense tensor, such as "
            f"{name}.to_dense()"
        )
    if hasattr(array, "mask") and hasattr(array, "filled"):
        raise ValueError(
            f"{name} is a masked array, whose mask would be lost; pass the "
            "numbers and attn_mask"
        )


def _check_array(name: str, array: Any, axes: tuple[str, ...]) -> None:
    _check_library(name, array)
    check_axes(name, array, axes)
    if dtype_name(array) not in DTYPES:
        raise ValueError(
            f"{name} has dtype {dtype_name(array)}; attention needs one of "
            f"{', '.join(DTYPES)}"
        )


def _check_alike(name: str, array: Any, query: Any) -> None:
    """Refuse an argument of another library, dtype or device than query."""
    if _library(array) != _library(query):
        raise ValueError(
            f"{name} is a {_library(array)} array, but query is a "
            f"{_library(query)} array"
        )
    if dtype_name(array) != dtype_name(query):
        raise ValueError(
            f"{name} has dtype {dtype_name(array)}, but query has "
            f"{dtype_name(query)}"
        )
    _check_device(name, array, "query", getattr(query, "device", None))


def _library(array: Any) -> str:
    """Return "numpy" or "torch", or "" for anything else."""
    for kind in type(array).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("numpy", "torch") and hasattr(array, "shape"):
            return root
    return ""


def _check_device(name: str, array: Any, other: str, device: Any) -> None:
    if _library(array) == "numpy":
        return  # host memory: torch copies it to wherever it is needed
    if str(array.device) != str(device):
        raise ValueError(
            f"{name} is on device {array.device}, but {other} is on device "
            f"{device}"
        )


def _check_heads(H: int, H_kv: int, enable_gqa: bool) -> None:
    if H_kv == H:
        return
    if not enable_gqa:
        raise ShapeMismatch(
            f"key: axis H has size {H_kv}, but query has H = {H}; "
            "enable_gqa=True lets several query heads read one key head"
        )
    if H_kv == 0 or H % H_kv:
        raise ShapeMismatch(
            f"key: axis H has size {H_kv}, which does not divide the query's "
            f"H = {H}"
        )


def _read_scale(scale: float | None, D: int) -> float:
    if scale is None:
        return 1.0 / math.sqrt(D)
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real):
        raise ValueError(
            f"scale must be a number or None, not {type(scale).__name__}"
        )
    if not abs(scale) <= FLOAT32_MAX:
        raise ValueError(f"scale must be finite in float32, not {scale}")
    return float(scale)
