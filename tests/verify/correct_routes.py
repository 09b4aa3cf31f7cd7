"""Attention in PyTorch by way of the library, rightly used."""

import functools
import logging
import math
import warnings

import torch
from correct_formulas import (
    bias_of,
    by_einsum,
    in_float32,
    one_head,
    written_out,
)
from einops import rearrange
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention import flex_attention as flex
from torch.utils.checkpoint import checkpoint

NEGATIVE = -math.inf


def sdpa_math(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    with sdpa_kernel(SDPBackend.MATH):
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale,
            enable_gqa=enable_gqa,
        )  # fmt: skip


def sdpa_flash(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """PyTorch's flash attention for CPUs, which wants D_v = D."""
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, is_causal=is_causal, scale=scale,
            enable_gqa=enable_gqa,
        )  # fmt: skip


@in_float32
def by_vmap(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """One head's function, mapped over heads and batch."""
    B, H, L, D = query.shape
    group, S = H // key.shape[1], key.shape[2]
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    bias = bias_of(attn_mask, is_causal, query, S).expand(B, H, L, S)
    scale = D**-0.5 if scale is None else scale
    per_head = functools.partial(one_head, scale=scale)
    return torch.vmap(torch.vmap(per_head))(query, key, value, bias)


def sequence_first(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """Hold everything as (B, L, H, D), as flash-attention does."""
    q, k, v = (rearrange(x, "b h l d -> b l h d").contiguous()
               for x in (query, key, value))  # fmt: skip
    out = written_out(
        *(rearrange(x, "b l h d -> b h l d") for x in (q, k, v)),
        attn_mask, is_causal, scale, enable_gqa,
    )  # fmt: skip
    return out.transpose(1, 2).contiguous().transpose(1, 2)


def float64_inside(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    out = by_einsum(query.double(), key.double(), value.double(), attn_mask,
                    is_causal, scale, enable_gqa)  # fmt: skip
    return out.to(query.dtype)


def checkpointed(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    options = (attn_mask, is_causal, scale, enable_gqa)
    return checkpoint(
        written_out, query, key, value, *options, use_reentrant=False
    )


class OwnBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, bias, scale):
        scores = q @ k.mT * scale + bias
        lse = scores.logsumexp(-1, keepdim=True)
        lse = lse.masked_fill(lse.isneginf(), 0.0)
        out = scores.softmax(-1).nan_to_num() @ v
        ctx.save_for_backward(q, k, v, bias, lse, out)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx, dout):
        q, k, v, bias, lse, out = ctx.saved_tensors
        weights = torch.exp(q @ k.mT * ctx.scale + bias - lse)
        D = (dout * out).sum(-1, keepdim=True)
        dscores = weights * (dout @ v.mT - D) * ctx.scale
        return dscores @ k, dscores.mT @ q, weights.mT @ dout, None, None


@in_float32
def own_backward(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """The backward pass written by hand, with weights computed again."""
    group = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    bias = bias_of(attn_mask, is_causal, query, key.shape[2])
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    return OwnBackward.apply(query, key, value, bias, scale)


# What PyTorch advises for code that is not compiled: else every call is traced.
flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True


@in_float32
def by_flex_attention(query, key, value, is_causal=False, scale=None):
    """PyTorch's FlexAttention, not compiled; it wants a score function."""

    def look_back(score, b, h, row, s):
        return torch.where(s <= row, score, NEGATIVE)

    if not key.shape[2]:  # it takes the maximum of every row
        return query @ key.mT @ value
    score_mod = look_back if is_causal else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it advises to compile
        return flex.flex_attention(query, key, value, score_mod, scale=scale)


def by_multi_head_forward(query, key, value, attn_mask=None, is_causal=False):
    """PyTorch's multi-head function, its projections set to the identity."""
    B, H, L, D = query.shape
    S, E = key.shape[2], H * D
    if not S:  # it cannot fold an empty array
        return query @ key.mT @ value
    bias = bias_of(attn_mask, is_causal, query, S)
    bias = bias.expand(B, H, L, S).reshape(B * H, L, S)
    q, k, v = (x.permute(2, 0, 1, 3).reshape(x.shape[2], B, E)
               for x in (query, key, value))  # fmt: skip
    eye = torch.eye(E, dtype=query.dtype)
    out, _ = functional.multi_head_attention_forward(
        q, k, v, E, H, None, None, None, None, False, 0.0, eye, None,
        attn_mask=bias, need_weights=False, use_separate_proj_weight=True,
        q_proj_weight=eye, k_proj_weight=eye, v_proj_weight=eye,
    )  # fmt: skip
    return out.reshape(L, B, H, D).permute(1, 2, 0, 3)


def core(q, k, v, bias, scale):
    scores = q @ k.mT * scale + bias
    dead = scores.isneginf().all(-1, keepdim=True)
    weights = scores.masked_fill(dead, 0.0).softmax(-1).masked_fill(dead, 0.0)
    return weights @ v


# Each shape is compiled apart; after eight it says so and runs uncompiled.
torch._logging.set_logs(dynamo=logging.ERROR)
compiled = torch.compile(core, backend="eager", dynamic=False)


@in_float32
def by_torch_compile(
    query, key, value, attn_mask=None, is_causal=False, scale=None,
    enable_gqa=False,
):  # fmt: skip
    """Traced by torch.compile and run by its "eager" backend."""
    B, H, L, D = query.shape
    group, S = H // key.shape[1], key.shape[2]
    key, value = (x.repeat_interleave(group, 1) for x in (key, value))
    bias = bias_of(attn_mask, is_causal, query, S).expand(B, H, L, S)
    scale = D**-0.5 if scale is None else scale
    scale = torch.tensor(scale, dtype=query.dtype)
    return compiled(query, key, value, bias.contiguous(), scale)
