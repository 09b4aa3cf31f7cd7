"""Attention on NumPy arrays, written rightly in several ways."""

import math
from itertools import product

import numpy as np

#: What a function on NumPy arrays can be asked; it has no gradients.
ALL = (
    "attn_mask",
    "is_causal",
    "scale",
    "enable_gqa",
    "cross_attention",
    "value_width",
    "float_mask",
    "half_precision",
    "double_precision",
)


def plain_numpy(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """In float32 or better, as one would write it first."""
    dtype = query.dtype
    work = np.promote_types(dtype, np.float32)
    q, k, v = (x.astype(work) for x in (query, key, value))
    if enable_gqa:
        k, v = (np.repeat(x, q.shape[1] // x.shape[1], axis=1) for x in (k, v))
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q * work.type(scale)) @ k.swapaxes(-1, -2)
    if is_causal:
        past = np.tri(*scores.shape[-2:], dtype=bool)
        scores = np.where(past, scores, work.type(-np.inf))
    if attn_mask is not None and attn_mask.dtype == bool:
        scores = np.where(attn_mask, scores, work.type(-np.inf))
    elif attn_mask is not None:
        scores = scores + attn_mask.astype(work)
    top = scores.max(-1, keepdims=True, initial=-np.inf)
    weights = np.exp(scores - np.where(np.isfinite(top), top, 0))
    total = weights.sum(-1, keepdims=True)
    return (weights @ v / np.where(total == 0, 1, total)).astype(dtype)


def float64_numpy(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """In float64, with einsum and a log-sum-exp."""
    H, L, D = query.shape[1:]
    S = key.shape[2]
    q, k, v = (x.astype(np.float64) for x in (query, key, value))
    h_kv = np.arange(H) * key.shape[1] // H
    scores = np.einsum("bhld,bhsd->bhls", q, k[:, h_kv])
    scores *= D**-0.5 if scale is None else scale
    if is_causal:
        scores[..., np.arange(S) > np.arange(L)[:, None]] = -np.inf
    if attn_mask is not None:
        if attn_mask.dtype == bool:
            attn_mask = np.where(attn_mask, 0.0, -np.inf)
        scores = scores + attn_mask
    lse = np.logaddexp.reduce(scores, axis=-1, initial=-np.inf)[..., None]
    weights = np.exp(scores - np.where(np.isneginf(lse), 0.0, lse))
    out = np.einsum("bhls,bhsd->bhld", weights, v[:, h_kv])
    return out.astype(query.dtype)


def row_by_row_numpy(query, key, value, mask=None, causal=False):
    """Row by row, dividing at the end; the arguments have other names."""
    B, H, L, D = query.shape
    S = key.shape[2]
    out = np.zeros((B, H, L, value.shape[-1]), query.dtype)
    full = None if mask is None else np.broadcast_to(mask, (B, H, L, S))
    for b, h, row in product(range(B), range(H), range(L)):
        scores = key[b, h].astype(float) @ query[b, h, row].astype(float)
        scores /= math.sqrt(D)
        if full is not None and full.dtype == bool:
            scores[~full[b, h, row]] = -np.inf
        elif full is not None:
            scores += full[b, h, row]
        if causal:
            scores[row + 1 :] = -np.inf
        if not np.isfinite(scores).any():
            continue
        weights = np.exp(scores - scores.max())
        out[b, h, row] = weights @ value[b, h] / weights.sum()
    return out


def array_api(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """Only what the Python array API has, from the arrays' own namespace."""
    xp = query.__array_namespace__()
    dtype = query.dtype
    work = xp.float64 if dtype == xp.float64 else xp.float32
    q, k, v = (xp.astype(x, work) for x in (query, key, value))
    if enable_gqa:
        group = q.shape[1] // k.shape[1]
        k, v = (xp.repeat(x, group, axis=1) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else float(scale)
    scores = xp.matmul(q, xp.matrix_transpose(k)) * scale
    L, S = scores.shape[-2:]
    never = xp.asarray(-xp.inf, dtype=work)
    if is_causal and attn_mask is not None:
        raise ValueError("one mask only")
    if is_causal:
        attn_mask = xp.tril(xp.ones((L, S), dtype=xp.int8)) == 1
    if attn_mask is not None and attn_mask.dtype == xp.bool:
        scores = xp.where(attn_mask, scores, never)
    elif attn_mask is not None:
        scores = scores + xp.astype(attn_mask, work)
    if S == 0:
        return xp.astype(xp.matmul(scores, v), dtype)
    top = xp.max(scores, axis=-1, keepdims=True)
    top = xp.where(xp.isinf(top), xp.zeros_like(top), top)
    weights = xp.exp(scores - top)
    total = xp.sum(weights, axis=-1, keepdims=True)
    weights = weights / xp.where(total == 0, xp.ones_like(total), total)
    return xp.astype(xp.matmul(weights, v), dtype)


def tiled_numpy(query, key, value, attn_mask=None, scale=None):
    """Tile by tile, in place, and returning the log-sum-exp as well."""
    work = np.promote_types(query.dtype, np.float32)
    q, k, v = (x.astype(work) for x in (query, key, value))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    rows = (*q.shape[:3], 1)
    top, total = np.full(rows, -np.inf, work), np.zeros(rows, work)
    out = np.zeros((*q.shape[:3], v.shape[-1]), work)
    shape = (*q.shape[:3], k.shape[2])
    full = None if attn_mask is None else np.broadcast_to(attn_mask, shape)
    for s in range(0, k.shape[2], 4):
        tile = slice(s, s + 4)
        scores = q @ k[:, :, tile].swapaxes(2, 3) * work.type(scale)
        if full is not None and full.dtype == bool:
            scores[~full[..., tile]] = -np.inf
        elif full is not None:
            scores += full[..., tile].astype(work)
        new = np.maximum(top, scores.max(-1, keepdims=True))
        finite = np.where(np.isneginf(new), 0, new)
        weights = np.exp(scores - finite)
        shrink = np.exp(top - finite)
        total *= shrink
        total += weights.sum(-1, keepdims=True)
        out *= shrink
        out += weights @ v[:, :, tile]
        top = new
    out /= np.where(total == 0, 1, total)
    with np.errstate(divide="ignore"):
        lse = top + np.log(total)
    return out.astype(query.dtype), lse[..., 0]


#: Name -> function, and what it supports.
CORRECT_NUMPY = {
    "NumPy": (plain_numpy, ALL),
    "NumPy, float64": (float64_numpy, ALL),
    "NumPy, row by row": (
        row_by_row_numpy,
        [x for x in ALL if x not in ("scale", "enable_gqa")],
    ),
    "array API": (array_api, ALL),
    "NumPy, tiled": (
        tiled_numpy,
        [x for x in ALL if x not in ("is_causal", "enable_gqa")],
    ),
}
