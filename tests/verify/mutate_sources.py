"""Six right attention functions whose text `mutate.py` damages.

They are plain on purpose: every line matters, so that few mutants do nothing.
"""

import math

import numpy as np
import torch


def whole(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    dtype = query.dtype
    q, k, v = query, key, value
    if dtype in (torch.float16, torch.bfloat16):
        q, k, v = q.float(), k.float(), v.float()
    if enable_gqa:
        k = k.repeat_interleave(q.shape[1] // k.shape[1], dim=1)
        v = v.repeat_interleave(q.shape[1] // v.shape[1], dim=1)
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[3])
    scores = (q * scale) @ k.transpose(2, 3)
    if is_causal:
        L, S = scores.shape[2:]
        keep = torch.ones(L, S, dtype=torch.bool).tril()
        scores = scores.masked_fill(~keep, -math.inf)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -math.inf)
        else:
            scores = scores + attn_mask
    sees_none = (scores == -math.inf).all(dim=3, keepdim=True)
    weights = torch.softmax(scores.masked_fill(sees_none, 0.0), dim=3)
    weights = weights.masked_fill(sees_none, 0.0)
    return (weights @ v).to(dtype)


def grouped_einsum(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    B, H, L, D = query.shape
    H_kv, S, D_v = value.shape[1:]
    scale = scale if scale is not None else D**-0.5
    work = torch.promote_types(query.dtype, torch.float32)
    q = query.to(work).reshape(B, H_kv, H // H_kv, L, D)
    scores = torch.einsum("bhgld,bhsd->bhgls", q * scale, key.to(work))
    scores = scores.reshape(B, H, L, S)
    if is_causal:
        future = torch.arange(S) > torch.arange(L)[:, None]
        scores = torch.where(future, -math.inf, scores)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            scores = torch.where(attn_mask, scores, -math.inf)
        else:
            scores = scores + attn_mask.to(work)
    visible = scores > -math.inf
    visible = visible.any(dim=3, keepdim=True)
    scores = torch.where(visible, scores, 0.0)
    weights = torch.softmax(scores, dim=3) * visible
    weights = weights.reshape(B, H_kv, H // H_kv, L, S)
    out = torch.einsum("bhgls,bhsd->bhgld", weights, value.to(work))
    return out.reshape(B, H, L, D_v).to(query.dtype)


def online(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    B, H, L, D = query.shape
    S, D_v, tile = key.shape[2], value.shape[3], 16
    group = H // key.shape[1]
    work = torch.promote_types(query.dtype, torch.float32)
    q = query.to(work) * (D**-0.5 if scale is None else scale)
    k = key.to(work).repeat_interleave(group, dim=1)
    v = value.to(work).repeat_interleave(group, dim=1)
    row_max = torch.full((B, H, L, 1), -math.inf, dtype=work)
    row_sum = torch.zeros(B, H, L, 1, dtype=work)
    acc = torch.zeros(B, H, L, D_v, dtype=work)
    if attn_mask is not None:
        attn_mask = attn_mask.expand(B, H, L, S)
    for s in range(0, S, tile):
        scores = q @ k[:, :, s : s + tile].transpose(2, 3)
        if is_causal:
            keys = torch.arange(s, s + scores.shape[3])
            future = keys > torch.arange(L)[:, None]
            scores = scores.masked_fill(future, -math.inf)
        if attn_mask is not None:
            mask = attn_mask[..., s : s + tile]
            if mask.dtype == torch.bool:
                scores = scores.masked_fill(~mask, -math.inf)
            else:
                scores = scores + mask
        new_max = torch.maximum(row_max, scores.amax(dim=3, keepdim=True))
        shift = new_max.masked_fill(new_max == -math.inf, 0.0)
        rescale = torch.exp(row_max - shift)
        weights = torch.exp(scores - shift)
        row_sum = row_sum * rescale + weights.sum(dim=3, keepdim=True)
        acc = acc * rescale + weights @ v[:, :, s : s + tile]
        row_max = new_max
    out = acc / row_sum.masked_fill(row_sum == 0.0, 1.0)
    return out.to(query.dtype)


def in_numpy(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
    if enable_gqa:
        group = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    if scale is None:
        scale = 1 / np.sqrt(q.shape[3])
    scores = scale * np.matmul(q, np.swapaxes(k, 2, 3))
    L, S = scores.shape[2], scores.shape[3]
    if is_causal:
        scores = np.where(np.tri(L, S) == 1, scores, -np.inf)
    if attn_mask is not None and attn_mask.dtype == bool:
        scores = np.where(attn_mask, scores, -np.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    row_max = np.max(scores, axis=3, keepdims=True, initial=-np.inf)
    row_max = np.where(row_max == -np.inf, 0.0, row_max)
    weights = np.exp(scores - row_max)
    row_sum = np.sum(weights, axis=3, keepdims=True)
    weights = weights / np.where(row_sum == 0.0, 1.0, row_sum)
    return np.matmul(weights, v).astype(query.dtype)


def folded(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    B, H, L, D = query.shape
    S, D_v = key.shape[2], value.shape[3]
    work = torch.promote_types(query.dtype, torch.float32)
    h_kv = torch.arange(H) // (H // key.shape[1])
    q = query.to(work).reshape(B * H, L, D)
    k = key.to(work)[:, h_kv].reshape(B * H, S, D)
    v = value.to(work)[:, h_kv].reshape(B * H, S, D_v)
    bias = torch.zeros(B, H, L, S, dtype=work)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        bias = bias.masked_fill(~attn_mask, -math.inf)
    elif attn_mask is not None:
        bias = bias + attn_mask.to(work)
    if is_causal:
        bias = bias + torch.full((L, S), -math.inf, dtype=work).triu(1)
    bias = bias.reshape(B * H, L, S)
    factor = 1 / math.sqrt(D) if scale is None else scale
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=factor)
    dead = (bias == -math.inf).all(dim=2, keepdim=True)
    scores = scores.masked_fill(dead, 0.0)
    weights = torch.softmax(scores, dim=2).masked_fill(dead, 0.0)
    return torch.bmm(weights, v).reshape(B, H, L, D_v).to(query.dtype)


def own_backward(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    class Attend(torch.autograd.Function):
        @staticmethod
        def forward(ctx, q, k, v, bias, scale):
            scores = q @ k.transpose(2, 3) * scale + bias
            dead = (scores == -math.inf).all(dim=3, keepdim=True)
            weights = torch.softmax(scores.masked_fill(dead, 0.0), dim=3)
            weights = weights.masked_fill(dead, 0.0)
            ctx.save_for_backward(q, k, v, weights)
            ctx.scale = scale
            return weights @ v

        @staticmethod
        def backward(ctx, dout):
            q, k, v, weights = ctx.saved_tensors
            dv = weights.transpose(2, 3) @ dout
            dweights = dout @ v.transpose(2, 3)
            mean = (weights * dweights).sum(dim=3, keepdim=True)
            dscores = weights * (dweights - mean) * ctx.scale
            dk = dscores.transpose(2, 3) @ q
            return dscores @ k, dk, dv, None, None

    L, S = query.shape[2], key.shape[2]
    group = query.shape[1] // key.shape[1]
    work = torch.promote_types(query.dtype, torch.float32)
    bias = torch.zeros(L, S, dtype=work)
    if is_causal:
        bias = torch.full((L, S), -math.inf, dtype=work).triu(1)
    if attn_mask is not None:
        if attn_mask.dtype == torch.bool:
            bias = torch.where(attn_mask, bias, -math.inf)
        else:
            bias = bias + attn_mask.to(work)
    out = Attend.apply(
        query.to(work),
        key.to(work).repeat_interleave(group, dim=1),
        value.to(work).repeat_interleave(group, dim=1),
        bias,
        1 / math.sqrt(query.shape[3]) if scale is None else scale,
    )
    return out.to(query.dtype)


SOURCES = (whole, grouped_einsum, online, in_numpy, folded, own_backward)
