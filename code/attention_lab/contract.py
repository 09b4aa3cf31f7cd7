"""What every attention function of the book accepts, checked in one place.

The meanings are those of `torch.nn.functional.scaled_dot_product_attention`;
where that function broadcasts or guesses, this contract refuses with a reason.
"""

import math
import numbers
from dataclasses import dataclass
from typing import Any

from attention_lab.axes import ShapeMismatch

QUERY_AXES = ("B", "H", "L", "D")
KEY_AXES = ("B", "H", "S", "D")


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
    arrays = {"query": query, "key": key, "value": value}
    for name, array in arrays.items():
        _check_array(name, array, QUERY_AXES if name == "query" else KEY_AXES)
    for name in ("key", "value"):
        _check_alike(name, arrays[name], query)

    B, H, L, D = query.shape
    H_kv, S = key.shape[1], key.shape[2]
    _check_size("key", "B", key.shape[0], "query", B)
    _check_size("value", "B", value.shape[0], "query", B)
    _check_heads(H, H_kv, enable_gqa)
    _check_size("value", "H", value.shape[1], "key", H_kv)
    _check_size("value", "S", value.shape[2], "key", S)
    _check_size("key", "D", key.shape[3], "query", D)
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
        if is_causal:
            raise ValueError(
                "pass attn_mask or is_causal, not both: attn_mask has shape "
                f"{tuple(attn_mask.shape)} and is_causal adds an (L, S) = "
                f"({L}, {S}) mask; combine them yourself, for example "
                "attn_mask & masks.causal(L, S)"
            )
        check_mask(attn_mask, call, like=query)
    return call


def check_mask(attn_mask: Any, call: AttentionCall, like: Any) -> None:
    """Refuse a mask that is not boolean or floating, or could mean two things.

    Raises
    ------
    ShapeMismatch
        If its rank is ambiguous or an axis fits neither 1 nor the full size.
    ValueError
        If its dtype is neither boolean nor floating, or it is elsewhere.
    """
    if not hasattr(attn_mask, "dtype") or not hasattr(attn_mask, "shape"):
        raise ValueError(
            f"attn_mask must be an array, not {type(attn_mask).__name__}"
        )
    kind = dtype_name(attn_mask)
    if kind != "bool" and "float" not in kind:
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


def _check_array(name: str, array: Any, axes: tuple[str, ...]) -> None:
    if not hasattr(array, "dtype") or not hasattr(array, "shape"):
        raise ValueError(
            f"{name} must be a NumPy array or a torch tensor with axes "
            f"{' '.join(axes)}, not {type(array).__name__}"
        )
    if len(array.shape) != len(axes):
        raise ShapeMismatch(
            f"{name} has {len(array.shape)} axes {tuple(array.shape)}, but 4 "
            f"are needed: {' '.join(axes)}"
        )
    if "float" not in dtype_name(array):
        raise ValueError(
            f"{name} has dtype {dtype_name(array)}; attention needs floating "
            "numbers"
        )


def _check_alike(name: str, array: Any, query: Any) -> None:
    """Refuse an argument of another library, dtype or device than query."""
    if isinstance(array, type(query)) or isinstance(query, type(array)):
        if dtype_name(array) != dtype_name(query):
            raise ValueError(
                f"{name} has dtype {dtype_name(array)}, but query has "
                f"{dtype_name(query)}"
            )
        _check_device(name, array, "query", getattr(query, "device", None))
        return
    raise ValueError(
        f"{name} is a {_library(array)} array, but query is a "
        f"{_library(query)} array"
    )


def _library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]


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


def _check_size(
    name: str, letter: str, size: int, other: str, wanted: int
) -> None:
    if size != wanted:
        raise ShapeMismatch(
            f"{name}: axis {letter} has size {size}, but {other} has "
            f"{letter} = {wanted}"
        )


def _read_scale(scale: float | None, D: int) -> float:
    if scale is None:
        return 1.0 / math.sqrt(D)
    if isinstance(scale, bool) or not isinstance(scale, numbers.Real):
        raise ValueError(
            f"scale must be a number or None, not {type(scale).__name__}"
        )
    if not math.isfinite(scale):
        raise ValueError(f"scale must be finite, not {scale}")
    return float(scale)
