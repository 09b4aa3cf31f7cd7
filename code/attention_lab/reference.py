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

from attention_lab.axes import ShapeMismatch
from attention_lab.contract import check_attention_call, dtype_name


class ReferenceResult(NamedTuple):
    """Output (B, H, L, D_v) and log-sum-exp (B, H, L), both float64."""

    out_BHLD: Float[np.ndarray, "B H L D_v"]
    lse_BHL: Float[np.ndarray, "B H L"]


class ReferenceGradients(NamedTuple):
    """Gradients of query, key and value, each of its argument's shape."""

    query_BHLD: Float[np.ndarray, "B H L D"]
    key_BHSD: Float[np.ndarray, "B H_kv S D"]
    value_BHSD: Float[np.ndarray, "B H_kv S D_v"]


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
        visible = _visible(mask[b, h, row], row, is_causal)
        if not visible.any():
            continue
        scores = k[b, h_kv, visible] @ q[b, h, row] * call.scale
        scores = scores + mask[b, h, row, visible]
        largest = scores.max()
        weights = np.exp(scores - largest)
        out[b, h, row] = weights @ v[b, h_kv, visible] / weights.sum()
        lse[b, h, row] = largest + np.log(weights.sum())
    return ReferenceResult(out, lse)


def attention_gradients_reference(
    out_grad: Float[Any, "B H L D_v"],
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> ReferenceGradients:
    """Send the gradient of the output back to query, key and value.

    `out_grad` is the gradient of a number with respect to the output. A query
    that sees no key gets a gradient of 0 and gives none. Several query heads
    that read one key head add their gradients there.

    Other arguments and errors:
    `attention_lab.contract.check_attention_call`.

    References
    ----------
    Dao et al. 2022, "FlashAttention", appendix B.2: dS = P ∘ (dP − D) with
    D the row sums of dO ∘ O.

    Examples
    --------
    One query, one key: its weight is 1 whatever the query is.

    >>> q = np.ones((1, 1, 1, 2))
    >>> gradients = attention_gradients_reference(q, q, q, q)
    >>> gradients.query_BHLD.tolist(), gradients.value_BHSD.tolist()
    ([[[[0.0, 0.0]]]], [[[[1.0, 1.0]]]])
    """
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    q, k, v, d_out = (to_float64(x) for x in (query, key, value, out_grad))
    if d_out.shape != (call.B, call.H, call.L, call.D_v):
        raise ShapeMismatch(
            f"out_grad has shape {d_out.shape}, but the output has "
            f"(B, H, L, D_v) = {(call.B, call.H, call.L, call.D_v)}"
        )
    mask = _mask_BHLS(attn_mask, (call.B, call.H, call.L, call.S))
    dq, dk, dv = np.zeros_like(q), np.zeros_like(k), np.zeros_like(v)

    for b, h, row in np.ndindex(call.B, call.H, call.L):
        h_kv = h // call.group
        visible = _visible(mask[b, h, row], row, is_causal)
        if not visible.any():
            continue
        keys, values = k[b, h_kv, visible], v[b, h_kv, visible]
        scores = keys @ q[b, h, row] * call.scale + mask[b, h, row, visible]
        weights = np.exp(scores - scores.max())
        weights = weights / weights.sum()
        d_weights = values @ d_out[b, h, row]
        d_scores = weights * (d_weights - weights @ d_weights)
        dq[b, h, row] = call.scale * (d_scores @ keys)
        dk[b, h_kv, visible] += call.scale * np.outer(d_scores, q[b, h, row])
        dv[b, h_kv, visible] += np.outer(weights, d_out[b, h, row])
    return ReferenceGradients(dq, dk, dv)


def _visible(mask_S: np.ndarray, row: int, is_causal: bool) -> np.ndarray:
    """Return which keys a query may see."""
    visible = mask_S > -np.inf
    return visible & (np.arange(mask_S.size) <= row) if is_causal else visible
