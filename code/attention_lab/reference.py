"""Attention in float64 NumPy: slow, obvious, trusted.

Every other implementation is compared with this one, so it shares no
arithmetic with them. It never stores a masked score: each query picks the keys
that it may see and averages their values, so there is no infinity to go wrong.

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1.
Letters: B batch, H heads, L queries, S keys, D head width. What may be passed:
`attention_lab.contract`.
"""

from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from attention_lab.contract import check_attention_call, dtype_name


class ReferenceResult(NamedTuple):
    """Output (B, H, L, D_v) and log-sum-exp (B, H, L), both float64."""

    out_BHLD: Float[np.ndarray, "B H L D_v"]
    lse_BHL: Float[np.ndarray, "B H L"]


def to_float64(array: Any) -> Float[np.ndarray, "..."]:
    """Copy a NumPy array or torch tensor to float64; loses nothing."""
    if hasattr(array, "detach"):
        array = array.detach().cpu().double().numpy()
    return np.array(array, dtype=np.float64)


def _mask_BHLS(attn_mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Turn any mask of the contract into numbers to add: 0 or −∞ if boolean."""
    if attn_mask is None:
        return np.broadcast_to(0.0, shape)
    if dtype_name(attn_mask) == "bool":
        keep = to_float64(attn_mask) == 1
        return np.broadcast_to(np.where(keep, 0.0, -np.inf), shape)
    return np.broadcast_to(to_float64(attn_mask), shape)


def attention_reference(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> ReferenceResult:
    """Average the values a query may see, weighted by exp(scale · q·k).

    Arguments and errors: `attention_lab.contract.check_attention_call`.

    Returns
    -------
    Output and log-sum-exp in float64. A query that sees no key gets an output
    of 0 and a log-sum-exp of −∞.

    References
    ----------
    Vaswani et al. 2017, section 3.2.1, equation 1.

    Examples
    --------
    One query and two equal keys share the weight, so the values are averaged.

    >>> q, k = np.ones((1, 1, 1, 2)), np.ones((1, 1, 2, 2))
    >>> v = np.array([[[[0.0], [4.0]]]])
    >>> attention_reference(q, k, v).out_BHLD.item()
    2.0
    """
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    q, k, v = (to_float64(x) for x in (query, key, value))
    mask = _mask_BHLS(attn_mask, (call.B, call.H, call.L, call.S))
    out = np.zeros((call.B, call.H, call.L, call.D_v))
    lse = np.full((call.B, call.H, call.L), -np.inf)

    for b, h, row in np.ndindex(call.B, call.H, call.L):
        h_kv = h // call.group
        visible = mask[b, h, row] > -np.inf
        if is_causal:
            visible = visible & (np.arange(call.S) <= row)
        if not visible.any():
            continue
        scores = k[b, h_kv, visible] @ q[b, h, row] * call.scale
        scores = scores + mask[b, h, row, visible]
        largest = scores.max()
        weights = np.exp(scores - largest)
        out[b, h, row] = weights @ v[b, h_kv, visible] / weights.sum()
        lse[b, h, row] = largest + np.log(weights.sum())
    return ReferenceResult(out, lse)
