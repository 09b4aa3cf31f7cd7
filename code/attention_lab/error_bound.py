"""How far a correct implementation may be from the float64 reference.

The rule is stated once, here: twice the error of plain attention in the same
precision, plus two units in the last place of the largest output. "Plain" is
the worst of five formulations that are equal on paper, each adding the products
over D in 16 orders. One formulation alone can be lucky when scores are large:
with scores × 100, PyTorch's own attention misses the bound taken from a single
one by a factor of 2, and exp(scores − log-sum-exp), which is as right, by 2.6.
Measured against the first four, over 240 inputs with scores × 1, × 100 and
× 10⁴: PyTorch and this book stayed within 0.55 of the bound, with one exception
at 1.02 (scores × 100, a near tie). For gradients, over 40 inputs with scores
× 1 and × 100: this book within 0.55 of the bound, PyTorch within 0.49.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from attention_lab.contract import check_attention_call, dtype_name
from attention_lab.reference import (
    ReferenceGradients,
    attention_gradients_reference,
    attention_reference,
    to_float64,
)

#: In how many random orders, besides the natural one, products are added.
ORDERS = 15

# Bits of the significand after the leading one.
_FRACTION_BITS = {"float16": 10, "bfloat16": 7, "float32": 23, "float64": 52}
_LOWEST_EXPONENT = {
    "float16": -14,
    "bfloat16": -126,
    "float32": -126,
    "float64": -1022,
}


def ulp(magnitude: float, dtype: str) -> float:
    """Return the spacing of the floating numbers of `dtype` at a magnitude.

    Examples
    --------
    >>> ulp(1.0, "float16") == 2.0**-10
    True
    """
    lowest = _LOWEST_EXPONENT[dtype]  # below it the numbers are evenly spaced
    exponent = np.floor(np.log2(magnitude)) if magnitude > 0 else lowest
    return float(2.0 ** (max(exponent, lowest) - _FRACTION_BITS[dtype]))


def rounding(expected: Any) -> float:
    """Return 64 ulp of the largest number of an array, in its own dtype.

    Room for adding some sixty numbers in another order: each addition rounds
    by half a unit at most. For comparing two computations of the same precision
    that are equal on paper; `error_bound` is for a comparison with float64.

    Examples
    --------
    >>> rounding(np.ones(3)) == 64 * 2.0**-52
    True
    """
    largest = np.abs(to_float64(expected)).max(initial=0.0)
    return 64 * ulp(largest, dtype_name(expected))


def error_bound(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> float:
    """Return the largest error that a correct output may show on this input.

    2 × the worst error of plain attention in the input's precision (half
    precisions compute in float32 and round once) + 2 ulp of the largest output.
    One bound for all outputs: where heads differ in size by many orders of
    magnitude, it says little about the small ones.

    Arguments and errors: `attention_lab.contract.check_attention_call`; inputs
    that are not finite are a ValueError.

    Examples
    --------
    >>> q = np.ones((1, 1, 1, 2), np.float32)
    >>> 0 < error_bound(q, q, q) < 1e-6
    True
    """
    options = (attn_mask, is_causal, scale, enable_gqa)
    exact = attention_reference(query, key, value, *options).out_BHLD
    outs = [out for out, _ in _plain(query, key, value, *options)]
    return _bound(outs, exact, dtype_name(query))


def lse_error_bound(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> float:
    """Return the largest error that a correct log-sum-exp may show.

    The rule of `error_bound`; a log-sum-exp of half-precision input is float32.

    Examples
    --------
    >>> q = np.ones((1, 1, 1, 2), np.float32)
    >>> 0 < lse_error_bound(q, q, q) < 1e-6
    True
    """
    options = (attn_mask, is_causal, scale, enable_gqa)
    exact = attention_reference(query, key, value, *options).lse_BHL
    seen = exact > -np.inf
    lses = [lse[seen] for _, lse in _plain(query, key, value, *options)]
    is_double = dtype_name(query) == "float64"
    return _bound(lses, exact[seen], "float64" if is_double else "float32")


class GradientBounds(NamedTuple):
    """The largest errors of the gradients of query, key and value."""

    query: float
    key: float
    value: float


def gradient_error_bound(
    out_grad: Float[Any, "B H L D_v"],
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> GradientBounds:
    """Return the largest errors that correct gradients may show.

    The rule of `error_bound`, one number for each gradient. Plain are the
    gradients of four ways to compute the scores, each with the weights of the
    softmax and with those that a backward pass recomputes from the log-sum-exp
    and the stored output.

    Examples
    --------
    >>> q = np.ones((1, 1, 1, 2), np.float32)
    >>> bounds = gradient_error_bound(q, q, q, q)
    >>> all(0 < bound < 1e-6 for bound in bounds)
    True
    """
    options = (attn_mask, is_causal, scale, enable_gqa)
    exact = attention_gradients_reference(out_grad, query, key, value, *options)
    plain = _plain_gradients(out_grad, query, key, value, *options)
    each = zip(*plain, strict=True)
    pairs = zip(each, exact, strict=True)
    return GradientBounds(*(_bound(*pair, dtype_name(query)) for pair in pairs))


def _bound(plain: Sequence[np.ndarray], exact: np.ndarray, dtype: str) -> float:
    """Apply the rule to the plain results and the exact one."""
    if exact.size == 0:
        return 0.0
    unit = ulp(np.abs(exact).max(), dtype)
    with np.errstate(invalid="ignore"):
        errors = [np.abs(result - exact).max() for result in plain]
    # A formulation that multiplies before it scales may overflow on its own.
    finite = [error for error in errors if np.isfinite(error)]
    if not finite:
        raise ValueError(
            "the inputs are not finite, or their products overflow: there is "
            "no plain result to compare with"
        )
    worst = max(finite)
    # A half-precision result is rounded once more when it is stored.
    rounding = unit / 2 if dtype in ("float16", "bfloat16") else 0.0
    return float(2 * (worst + rounding) + 2 * unit)


def _plain(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the output and log-sum-exp of every plain formulation and order."""
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    work = np.float64 if dtype_name(query) == "float64" else np.float32
    q, k, v = (to_float64(x).astype(work) for x in (query, key, value))
    k, v = (np.repeat(x, call.group, axis=1) for x in (k, v))
    bias = _bias(attn_mask, is_causal, call, work)
    with np.errstate(over="ignore", invalid="ignore"):
        for order in _orders(call.D):
            for score, mix in _FORMULATIONS:
                scores = score(q[..., order], k[..., order], work(call.scale))
                yield mix(scores + bias, v)


def _plain_gradients(
    out_grad: Any,
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Iterator[ReferenceGradients]:
    """Yield the gradients of every plain formulation and order."""
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    dtype = dtype_name(query)
    work = np.float64 if dtype == "float64" else np.float32
    q, k, v, d_out = (
        to_float64(x).astype(work) for x in (query, key, value, out_grad)
    )
    k, v = (np.repeat(x, call.group, axis=1) for x in (k, v))
    bias = _bias(attn_mask, is_causal, call, work)
    scale = work(call.scale)
    with np.errstate(over="ignore", invalid="ignore"):
        d_weights = d_out @ v.swapaxes(-1, -2)
        scores = [
            score(q[..., order], k[..., order], scale) + bias
            for order in _orders(call.D)
            for score in _SCORES
        ]
        orders = itertools.cycle(_orders(call.D_v))
        before = scores[-1]
        for now, order in zip(scores, orders, strict=False):
            ways = _ways_back(now, before, v, d_out, order, dtype)
            before = now
            for weights, row_dot in ways:
                d_scores = weights * (d_weights - row_dot)
                yield ReferenceGradients(
                    d_scores @ k * scale,
                    _per_key_head(d_scores, q, call.group) * scale,
                    _per_key_head(weights, d_out, call.group),
                )


def _ways_back(
    scores: np.ndarray,
    forward_scores: np.ndarray,
    v: np.ndarray,
    d_out: np.ndarray,
    order: np.ndarray,
    dtype: str,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield weights, and the row sums of weights times their gradients."""
    weights, divisor, _ = _softmax_parts(scores)
    weights = weights / divisor
    d_weights = d_out @ v.swapaxes(-1, -2)
    yield weights, (weights * d_weights).sum(-1, keepdims=True)
    out, lse = _softmax_mix(forward_scores, v, divide_last=False)
    if dtype in ("float16", "bfloat16"):  # the forward pass stored it so
        out = _round_to_half(out, dtype)
    weights = np.exp(scores - _shift(lse, scores.dtype))
    products = (d_out * out)[..., order]
    yield weights, products.cumsum(-1)[..., -1:]


def _round_to_half(x: np.ndarray, dtype: str) -> np.ndarray:
    """Round float32 numbers to the fraction bits of a half precision."""
    if dtype == "float16":
        return x.astype(np.float16).astype(x.dtype)
    step = np.float32(2 ** (_FRACTION_BITS["float32"] - _FRACTION_BITS[dtype]))
    shifted = x * (step + 1)  # Dekker 1971: keeps the leading bits of x
    return shifted - (shifted - x)


def _per_key_head(weights: np.ndarray, x: np.ndarray, group: int) -> np.ndarray:
    """Send x back through the weights; add up the heads of each group."""
    back = weights.swapaxes(-1, -2) @ x
    B, H, S, D = back.shape
    return back.reshape(B, H // group, group, S, D).sum(2)


def _orders(D: int) -> list[np.ndarray]:
    """Return some orders in which the products over D may be added."""
    rng = np.random.default_rng(0)
    return [np.arange(D), *(rng.permutation(D) for _ in range(ORDERS))]


def _bias(attn_mask: Any, is_causal: bool, call: Any, work: type) -> np.ndarray:
    bias = np.zeros((call.L, call.S), work)
    if is_causal:
        seen = np.tri(call.L, call.S, dtype=bool)
        return np.where(seen, bias, work(-np.inf))
    if attn_mask is None:
        return bias
    if dtype_name(attn_mask) == "bool":
        keep = to_float64(attn_mask) > 0
        return np.where(keep, work(0), work(-np.inf))
    return to_float64(attn_mask).astype(work)


def _softmax_parts(
    scores: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return weights before the division, the divisor and the lse, per row."""
    largest = scores.max(-1, keepdims=True, initial=-np.inf)
    largest = np.where(np.isinf(largest), 0, largest).astype(scores.dtype)
    weights = np.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    divisor = np.where(total == 0, 1, total).astype(scores.dtype)
    lse = np.where(total == 0, -np.inf, largest + np.log(divisor))
    return weights, divisor, lse[..., 0]


def _softmax_mix(
    scores: np.ndarray, v: np.ndarray, divide_last: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return the mixed values and the log-sum-exp of given scores."""
    weights, divisor, lse = _softmax_parts(scores)
    mixed = (weights @ v) / divisor if divide_last else (weights / divisor) @ v
    return mixed, lse


def _shift(lse: np.ndarray, dtype: Any) -> np.ndarray:
    """Return what to subtract from the scores: +∞ where there is no key."""
    return np.where(np.isinf(lse), np.inf, lse).astype(dtype)[..., None]


def _one_by_one(q: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Add the products over D in order, as one thread of a kernel does."""
    scores = np.zeros((*q.shape[:-1], k.shape[-2]), q.dtype)
    for d in range(q.shape[-1]):
        scores += q[..., :, None, d] * k[..., None, :, d]
    return scores


def _scores_scaled(q, k, scale):
    return q @ k.swapaxes(-1, -2) * scale


def _scores_of_scaled_queries(q, k, scale):
    return _one_by_one(q * scale, k)


def _scores_scaled_by_halves(q, k, scale):
    """Give q and k a root of the scale each, as PyTorch's math path does."""
    root = np.sqrt(np.abs(scale))
    return (q * root * np.sign(scale)) @ (k * root).swapaxes(-1, -2)


def _scores_in_reverse(q, k, scale):
    return _one_by_one(q[..., ::-1], k[..., ::-1]) * scale


_SCORES = (
    _scores_scaled,
    _scores_of_scaled_queries,
    _scores_scaled_by_halves,
    _scores_in_reverse,
)


def _divide_first(scores, v):
    return _softmax_mix(scores, v, divide_last=False)


def _divide_last(scores, v):
    """Sum everything in reverse and divide at the end, as flash does."""
    return _softmax_mix(scores[..., ::-1], v[..., ::-1, :], divide_last=True)


def _from_lse(scores, v):
    """Take exp(scores − log-sum-exp), as a backward pass does."""
    _, _, lse = _softmax_parts(scores)
    return np.exp(scores - _shift(lse, scores.dtype)) @ v, lse


_FORMULATIONS = (
    (_scores_scaled, _divide_first),
    (_scores_of_scaled_queries, _divide_first),
    (_scores_scaled_by_halves, _divide_first),
    (_scores_in_reverse, _divide_last),
    (_scores_scaled, _from_lse),
)
