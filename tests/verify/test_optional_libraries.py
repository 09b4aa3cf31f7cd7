"""Attention of other libraries passes, where they are installed."""

import numpy as np
import pytest

from attention_lab.verify import verify_attention

WITHOUT_FLOAT64 = (
    "attn_mask",
    "is_causal",
    "scale",
    "enable_gqa",
    "cross_attention",
    "float_mask",
    "half_precision",
)


def test_jax_dot_product_attention_passes():
    jax = pytest.importorskip("jax", reason="JAX is not installed")

    def attention(query, key, value, attn_mask=None, is_causal=False,
                  scale=None, enable_gqa=False):  # fmt: skip
        """Its axes are (B, L, H, D), and masks have four.

        A row that may see nothing gets the mean of the values there, and 0 in
        the contract here.
        """
        q, k, v = (x.swapaxes(1, 2) for x in (query, key, value))
        is_bool = attn_mask is not None and attn_mask.dtype == bool
        if is_bool:
            B, H, L, S = *query.shape[:3], key.shape[2]
            attn_mask = np.broadcast_to(attn_mask, (B, H, L, S))
        elif attn_mask is not None:
            attn_mask = attn_mask[(None,) * (4 - attn_mask.ndim)]
        out = jax.nn.dot_product_attention(
            q, k, v,
            mask=attn_mask if is_bool else None,
            bias=None if is_bool else attn_mask,
            is_causal=is_causal,
            scale=scale,
        )  # fmt: skip
        out = np.array(out.swapaxes(1, 2))
        if attn_mask is not None:
            seen = attn_mask if is_bool else attn_mask > -np.inf
            out = np.where(seen.any(-1, keepdims=True), out, out.dtype.type(0))
        return out

    # It compiles for every size.
    report = verify_attention(
        attention, supports=WITHOUT_FLOAT64, seconds=300.0
    )
    assert report.passed, str(report)


def test_strict_array_api_passes():
    xp = pytest.importorskip(
        "array_api_strict", reason="array_api_strict is not installed"
    )

    def attention(query, key, value, is_causal=False):
        q, k, v = map(xp.asarray, (query, key, value))
        scores = xp.matmul(q, xp.matrix_transpose(k)) / q.shape[-1] ** 0.5
        if is_causal:
            seen = xp.tril(xp.ones(scores.shape[-2:], dtype=xp.bool))
            scores = xp.where(seen, scores, -xp.inf)
        weights = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
        total = xp.sum(weights, axis=-1, keepdims=True)
        return np.asarray(xp.matmul(weights, v) / total)

    report = verify_attention(
        attention, supports=("is_causal", "double_precision")
    )
    assert report.passed, str(report)
