"""Attention in PyTorch, written rightly from the formula in many ways."""

import functools
import math

import torch
from einops import einsum, reduce, repeat
from torch.nn import functional

NEGATIVE = -math.inf


def in_float32(function):
    """Compute half precisions in float32, and round the result once."""

    @functools.wraps(function)
    def call(query, key, value, *args, **kwargs):
        dtype = query.dtype
        if dtype in (torch.float16, torch.bfloat16):
            query, key, value = query.float(), key.float(), value.float()
        out = function(query, key, value, *args, **kwargs)
        if isinstance(out, tuple):
            return out[0].to(dtype), *out[1:]
        return out.to(dtype)

    return call


def bias_of(mask, causal, q, S):
    """Turn any mask into numbers (…, L, S) to add."""
    if mask is not None and causal:
        raise ValueError("one mask only")
    bias = torch.zeros(q.shape[-2], S, dtype=q.dtype)
    if causal:
        return bias.masked_fill(torch.ones_like(bias).triu(1) > 0, NEGATIVE)
    if mask is None:
        return bias
    if mask.dtype == torch.bool:
        return torch.zeros_like(mask, dtype=q.dtype).masked_fill(
            ~mask, NEGATIVE
        )
    return mask.to(q.dtype)


@in_float32
def written_out(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    if enable_gqa:
        group = query.size(1) // key.size(1)
        key = key.repeat_interleave(group, 1)
        value = value.repeat_interleave(group, 1)
    scale = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * scale
    scores = scores + bias_of(attn_mask, is_causal, query, key.size(-2))
    if key.size(-2) == 0:
        return scores @ value
    top = scores.amax(-1, keepdim=True).clamp(min=-3e38).detach()
    weights = (scores - top).exp()
    return weights @ value / weights.sum(-1, keepdim=True).clamp(min=1e-30)


@in_float32
def by_einsum(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """Give the queries an axis for their group; repeat no key."""
    B, H, L, D = query.shape
    H_kv, S = key.shape[1:3]
    q = query.reshape(B, H_kv, H // H_kv, L, D)
    scores = torch.einsum("bhgld,bhsd->bhgls", q, key)
    scores = scores.reshape(B, H, L, S) * (D**-0.5 if scale is None else scale)
    scores = scores + bias_of(attn_mask, is_causal, query, S)
    sees = (scores > NEGATIVE).any(-1, keepdim=True)
    weights = scores.masked_fill(~sees, 0.0).softmax(-1) * sees
    weights = weights.reshape(B, H_kv, H // H_kv, L, S)
    out = torch.einsum("bhgls,bhsd->bhgld", weights, value)
    return out.reshape(B, H, L, value.shape[-1])


@in_float32
def by_einops(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    group = query.shape[1] // key.shape[1]
    key, value = (repeat(x, "b h s d -> b (h g) s d", g=group)
                  for x in (key, value))  # fmt: skip
    scores = einsum(query, key, "b h l d, b h s d -> b h l s")
    scores = scores * (query.shape[3] ** -0.5 if scale is None else scale)
    scores = scores + bias_of(attn_mask, is_causal, query, key.shape[2])
    if not key.shape[2]:
        return einsum(scores, value, "b h l s, b h s d -> b h l d")
    top = reduce(scores.detach(), "b h l s -> b h l 1", "max")
    weights = torch.exp(scores - torch.nan_to_num(top, neginf=0.0))
    total = reduce(weights, "b h l s -> b h l 1", "sum")
    weights = weights / torch.where(total > 0, total, 1.0)
    return einsum(weights, value, "b h l s, b h s d -> b h l d")


def one_head(q, k, v, bias, scale):
    """Attend in one head: q (L, D), k and v (S, D), bias (L, S)."""
    scores = q @ k.T * scale + bias
    sees_none = bias.isneginf().all(-1, keepdim=True)
    scores = torch.where(sees_none, 0.0, scores)
    return torch.where(sees_none, 0.0, functional.softmax(scores, -1) @ v)


@in_float32
def loop_over_heads(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    B, H, L, D = query.shape
    S = key.shape[2]
    bias = bias_of(attn_mask, is_causal, query, S).expand(B, H, L, S)
    scale = D**-0.5 if scale is None else scale
    outs = []
    for h in range(H):
        h_kv = h * key.shape[1] // H
        rows = [
            one_head(query[b, h], key[b, h_kv], value[b, h_kv], bias[b, h],
                     scale)
            for b in range(B)
        ]  # fmt: skip
        outs.append(torch.stack(rows))
    return torch.stack(outs, 1)


@in_float32
def loop_over_everything(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """Let each query pick the keys it may see, by index."""
    B, H, L, D = query.shape
    S, group = key.shape[2], H // key.shape[1]
    bias = bias_of(attn_mask, is_causal, query, S).expand(B, H, L, S)
    scale = D**-0.5 if scale is None else scale
    out = []
    for b in range(B):
        for h in range(H):
            for row in range(L):
                seen = torch.nonzero(bias[b, h, row] > NEGATIVE).flatten()
                k, v = key[b, h // group, seen], value[b, h // group, seen]
                scores = k @ query[b, h, row] * scale + bias[b, h, row, seen]
                out.append(torch.softmax(scores, 0) @ v)
    if not out:
        return query.new_zeros(B, H, L, value.shape[-1])
    return torch.stack(out).reshape(B, H, L, value.shape[-1])


@in_float32
def folded_bmm(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    B, H, L, D = query.shape
    S = key.shape[2]
    if enable_gqa:
        key = key.repeat_interleave(H // key.shape[1], dim=1)
        value = value.repeat_interleave(H // value.shape[1], dim=1)
    q, k, v = (x.reshape(B * H, x.shape[2], x.shape[3])
               for x in (query, key, value))  # fmt: skip
    bias = bias_of(attn_mask, is_causal, q, S)
    bias = bias.expand(B, H, L, S).reshape(B * H, L, S)
    scale = 1 / math.sqrt(D) if scale is None else scale
    scores = torch.baddbmm(bias, q, k.transpose(1, 2), alpha=scale)
    dead = bias.isneginf().all(-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(dead, 0.0), -1)
    out = torch.bmm(weights.masked_fill(dead, 0.0), v)
    return out.reshape(B, H, L, v.shape[-1])


@in_float32
def chunked_over_queries(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    bias = bias_of(attn_mask, is_causal, query, key.shape[2])
    bias = bias.expand(*query.shape[:3], key.shape[2])
    outs = [
        written_out(query[:, :, rows], key, value, bias[:, :, rows],
                    False, scale, enable_gqa)
        for rows in torch.arange(query.shape[2]).split(3)
    ]  # fmt: skip
    return torch.cat(outs, 2)


@in_float32
def chunked_over_keys(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """Attend to parts of the keys; weight the outputs by log-sum-exp."""
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    S = key.shape[2]
    bias = bias_of(attn_mask, is_causal, query, S)
    bias = bias.expand(*query.shape[:3], S)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    outs, lses = [], []
    for part in torch.arange(S).split(5):
        scores = query @ key[:, :, part].mT * scale + bias[..., part]
        dead = scores.isneginf().all(-1, keepdim=True)
        lse = scores.masked_fill(dead, 0.0).logsumexp(-1, keepdim=True)
        lse = lse.masked_fill(dead, NEGATIVE)
        weights = scores.masked_fill(dead, 0.0).softmax(-1)
        outs.append(weights @ value[:, :, part])
        lses.append(lse)
    outs, lses = torch.stack(outs), torch.stack(lses)
    dead = lses.isneginf().all(0)
    shares = lses.masked_fill(dead, 0.0).softmax(0).masked_fill(dead, 0.0)
    return (outs * shares).sum(0)


@in_float32
def by_log_sum_exp(query, key, value, attn_mask=None, is_causal=False):
    """exp(scores - lse), and the log-sum-exp beside the output."""
    scores = query @ key.mT / math.sqrt(query.shape[-1])
    scores = scores + bias_of(attn_mask, is_causal, query, key.shape[2])
    if not key.shape[2]:
        return scores @ value, scores.sum(-1) - math.inf
    dead = scores.isneginf().all(-1, keepdim=True)
    shift = scores.detach().amax(-1, keepdim=True).masked_fill(dead, 0.0)
    lse = (scores - shift).masked_fill(dead, 0.0).logsumexp(-1, keepdim=True)
    weights = torch.exp(scores - shift - lse)
    return weights @ value, (shift + lse).masked_fill(dead, NEGATIVE)[..., 0]


@in_float32
def by_log_softmax(query, key, value, mask=None, causal=False, scale=None):
    """Other names for the arguments, and the weights beside the output."""
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    bias = bias_of(mask, causal, query, key.shape[2])
    dead = bias.isneginf().all(-1, keepdim=True)
    scores = (query * scale) @ key.mT + bias.masked_fill(dead, 0.0)
    weights = scores.log_softmax(-1).exp() * ~dead
    return weights @ value, weights


@in_float32
def keyword_only(query, key, value, *, is_causal=False, softmax_scale=None):
    """Without a mask of its own, and its options by keyword only."""
    scale = query.shape[-1] ** -0.25 if softmax_scale is None else None
    if scale is not None:
        scores = (query * scale) @ (key * scale).mT
    else:
        scores = query @ (key * softmax_scale).mT
    return (scores + bias_of(None, is_causal, query, key.shape[2])).softmax(
        -1
    ) @ value


@in_float32
def nothing_but_inputs(q, k, v):
    """The formula."""
    return torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) @ v


@in_float32
def sorted_keys(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """Put the keys in another order first."""
    S = key.shape[2]
    order = torch.arange(S).flip(0).roll(S // 3)
    bias = bias_of(attn_mask, is_causal, query, S)
    bias = bias.expand(*bias.shape[:-1], S)[..., order]
    return by_einsum(query, key[:, :, order], value[:, :, order], bias,
                     False, scale, enable_gqa)  # fmt: skip


@in_float32
def base_two(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """exp2 of scores times log2(e), as GPU kernels do."""
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    bias = bias_of(attn_mask, is_causal, query, key.shape[2])
    scores = query @ key.mT * (scale * math.log2(math.e))
    scores = scores + bias * math.log2(math.e)
    if not key.shape[2]:
        return scores @ value
    top = scores.detach().max(-1, keepdim=True).values
    weights = torch.exp2(scores - top.masked_fill(top.isneginf(), 0.0))
    total = weights.sum(-1, keepdim=True)
    return weights @ value / total.masked_fill(total == 0, 1.0)


@in_float32
def key_by_key(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """Move the output towards each value by a sigmoid of its score."""
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    bias = bias_of(attn_mask, is_causal, query, key.shape[2])
    scores = query @ key.mT * scale + bias
    lse = torch.full((*query.shape[:3], 1), NEGATIVE, dtype=query.dtype)
    out = query.new_zeros(*query.shape[:3], value.shape[-1])
    for s in range(key.shape[2]):
        score = scores[..., s : s + 1]
        hidden, first = score.isneginf(), lse.isneginf()
        ready = score.masked_fill(hidden, 0.0) - lse.masked_fill(first, 0.0)
        share = torch.where(first, 1.0, torch.sigmoid(ready))
        share = share.masked_fill(hidden, 0.0)
        out = out + share * (value[:, :, s : s + 1] - out)
        both = lse.masked_fill(first, 0.0) + functional.softplus(
            ready, threshold=50
        )
        lse = torch.where(hidden, lse, torch.where(first, score, both))
    return out
