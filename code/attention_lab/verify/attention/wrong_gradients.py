"""What the backward pass gives when one of its lines is wrong.

Right is, for one head: P the weights, dP = dO Vᵀ, D the row sums of dP ∘ P,
dS = P ∘ (dP − D), dQ = scale · dS K, dK = scale · dSᵀ Q, dV = Pᵀ dO.
Source: Dao et al. 2022, "FlashAttention", appendix B.2.
"""

from dataclasses import dataclass

import numpy as np

from attention_lab.verify.attention.case import Case, out_gradient
from attention_lab.verify.attention.parts import Parts, parts_of
from attention_lab.verify.attention.wrong_attention import (
    interleaved,
    right_scale,
    upper_left,
)
from attention_lab.verify.attention.wrong_masks import right_mask

Gradients = dict[str, np.ndarray]


@dataclass(frozen=True)
class Backward:
    """How one backward pass goes; the defaults are right."""

    subtract_d: bool = True
    scale_kept: bool = True
    transpose_ds: bool = True
    causal_kept: bool = True
    mask_kept: bool = True
    sum_over_group: bool = True
    d_over: int = -1
    normalised: bool = True
    dv_from: str = "weights"


def wrong_gradients(case: Case, way: Backward) -> Gradients | None:
    """Compute the gradients in one way; None where it cannot even run."""
    p = parts_of(case)
    try:
        with np.errstate(all="ignore"):
            return _backward(p, way)
    except ValueError:  # sizes that do not fit each other
        return None


def _backward(p: Parts, way: Backward) -> Gradients:
    n = p.sizes
    key, value = interleaved(p.key, n), interleaved(p.value, n)
    scale = right_scale(p)
    scores = p.query @ key.swapaxes(-1, -2) * scale
    bias, _ = right_mask(p, scores)
    masked = scores if bias is None else scores + bias
    if p.case.is_causal:
        masked = np.where(upper_left(n.L, n.S), -np.inf, masked)
    largest = masked.max(-1, keepdims=True)
    largest = np.where(np.isinf(largest), 0.0, largest)
    total = np.exp(masked - largest).sum(-1, keepdims=True)
    lse = np.where(total == 0, np.inf, largest + np.log(total))
    seen = masked
    if not way.causal_kept and p.case.is_causal:
        seen = scores if bias is None else scores + bias
    if not way.mask_kept and bias is not None:
        seen = scores
    weights = np.exp(seen - (lse if way.normalised else largest))

    d_out = out_gradient(p.case)
    d_weights = d_out @ value.swapaxes(-1, -2)
    row_dot = (d_weights * weights).sum(way.d_over, keepdims=True)
    d_scores = weights * (d_weights - (row_dot if way.subtract_d else 0))
    kept = scale if way.scale_kept else 1.0
    back = d_scores.swapaxes(-1, -2) if way.transpose_ds else d_scores
    raw = np.where(masked == -np.inf, 0.0, masked)
    mixing = weights if way.dv_from == "weights" else raw
    return {
        "query": kept * (d_scores @ key),
        "key": _per_key_head(kept * (back @ p.query), p, way),
        "value": _per_key_head(mixing.swapaxes(-1, -2) @ d_out, p, way),
    }


def _per_key_head(gradient: np.ndarray, p: Parts, way: Backward) -> np.ndarray:
    n = p.sizes
    group = n.H // n.H_kv
    grouped = gradient.reshape(n.B, n.H_kv, group, *gradient.shape[2:])
    return grouped.sum(2) if way.sum_over_group else grouped[:, :, 0]


#: (mistake, how its backward pass goes)
WAYS: tuple[tuple[str, Backward], ...] = (
    ("backward-ds-without-d", Backward(subtract_d=False)),
    ("backward-d-over-queries", Backward(d_over=-2)),
    ("backward-recompute-with-wrong-lse", Backward(normalised=False)),
    ("backward-scale-lost", Backward(scale_kept=False)),
    ("backward-dk-transposed", Backward(transpose_ds=False)),
    ("backward-causal-ignored", Backward(causal_kept=False)),
    ("backward-mask-ignored", Backward(mask_kept=False)),
    ("backward-gqa-not-summed", Backward(sum_over_group=False)),
    ("backward-dv-uses-scores", Backward(dv_from="scores")),
)
