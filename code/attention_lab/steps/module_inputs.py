"""What the attention modules check before they compute."""

from typing import Any

from torch import Tensor

from attention_lab.axes import ShapeMismatch, axis_letters, check_axes
from attention_lab.contract import check_attention_call, check_tensors


def check_tokens(name: str, x: Tensor, weight: Tensor) -> None:
    """Refuse anything but tokens that a projection's weight can multiply.

    Raises
    ------
    ShapeMismatch
        Names the argument, the axis and both sizes.
    ValueError
        If x is no tensor, or its dtype or device is not that of the weight.
    """
    check_tensors(**{name: x})
    check_axes(name, x, axis_letters(name))
    E = weight.shape[1]
    if x.shape[-1] != E:
        raise ShapeMismatch(
            f"{name}: axis E has size {x.shape[-1]}, but the module has "
            f"embed_dim E = {E}"
        )
    for what in ("dtype", "device"):
        theirs, ours = getattr(x, what), getattr(weight, what)
        if theirs != ours:
            raise ValueError(
                f"{name} has {what} {theirs}, but the module has {ours}"
            )


def check_dropout(dropout: float) -> float:
    """Return the probability, or refuse one outside 0 … 1.

    Raises
    ------
    ValueError
        If it is no number from 0 to 1.
    """
    is_number = isinstance(dropout, float | int)
    if not is_number or isinstance(dropout, bool) or not 0 <= dropout <= 1:
        raise ValueError(
            f"dropout must be a probability from 0 to 1, not {dropout!r}"
        )
    return float(dropout)


def mask_of_head(attn_mask: Any, h: int) -> Any:
    """Return the part of a broadcast mask that head h sees."""
    has_heads = attn_mask is not None and attn_mask.ndim == 4
    if has_heads and attn_mask.shape[1] > 1:
        return attn_mask[:, h : h + 1]
    return attn_mask


def check_mask_of_heads(
    query_BLE: Tensor,
    key_BSE: Tensor,
    attn_mask: Any,
    is_causal: bool,
    num_heads: int,
) -> None:
    """Check a mask against all heads at once, before any head is cut from it.

    Errors: `attention_lab.contract.check_attention_call`.
    """
    D = query_BLE.shape[-1] // num_heads
    q, k = (
        x[:, None, :, :D].expand(-1, num_heads, -1, -1)
        for x in (query_BLE, key_BSE)
    )
    check_attention_call(q, k, k, attn_mask, is_causal)
