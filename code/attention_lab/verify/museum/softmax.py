"""Exhibits: the scale, the softmax and the mixing of the values."""

import math

import torch
from torch.nn import functional

from attention_lab.verify.museum.parts import (
    finite,
    masked,
    safe_sum,
    scale_of,
    scaled_scores,
    softmax,
    usual_care,
)


@usual_care
def scale_missing(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Scale only where a scale is given."""
    scores = scaled_scores(q, k, 1.0 if scale is None else scale)
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def scale_twice(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Scale the queries, and then the scores."""
    scale = scale_of(q, scale)
    q = q * scale
    scores = (q @ k.mT) * scale
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def scale_model_width(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Divide by the root of the model's width."""
    if scale is None:
        embed_dim = q.shape[1] * q.shape[-1]
        scale = 1.0 / math.sqrt(embed_dim)
    scores = scaled_scores(q, k, scale)
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def scale_num_heads(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Divide by the root of q.shape[1]."""
    if scale is None:
        scale = 1.0 / math.sqrt(q.shape[1])
    scores = scaled_scores(q, k, scale)
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def scale_key_length(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Divide by the root of k.shape[-2]."""
    if scale is None:
        scores = q @ k.mT / math.sqrt(k.shape[-2])
    else:
        scores = q @ k.mT * scale
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def scale_multiplied(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Divide by a scale that is a reciprocal already."""
    if scale is None:
        scores = q @ k.mT / q.shape[-1] ** -0.5
    else:
        scores = q @ k.mT * scale
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def scale_argument_ignored(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Take a scale for the sake of the signature."""
    scores = scaled_scores(q, k)
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def scale_after_softmax(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Scale what the softmax returns."""
    scores = masked(q @ k.mT, attn_mask, is_causal)
    return (softmax(scores) * scale_of(q, scale)) @ v


@usual_care
def scale_in_place(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Save memory: scale the queries where they are."""
    q *= scale_of(q, scale)
    return softmax(masked(q @ k.mT, attn_mask, is_causal)) @ v


@usual_care
def softmax_over_queries(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Take the softmax over the second-last axis."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores, dim=-2) @ v


@usual_care
def softmax_over_heads(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Take the softmax over axis 1."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores, dim=1) @ v


@usual_care
def no_max_subtraction(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Write the softmax as its formula reads."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    weights = torch.exp(scores)
    return weights / safe_sum(weights.sum(-1, keepdim=True)) @ v


@usual_care
def constant_subtracted(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Subtract 10 from every score, to keep exp small."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    weights = torch.exp(scores - 10.0)
    return weights / safe_sum(weights.sum(-1, keepdim=True)) @ v


@usual_care
def global_max_subtracted(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Subtract the largest score of the whole array."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    if scores.numel():
        scores = scores - finite(scores.detach().max())
    weights = torch.exp(scores)
    return weights / safe_sum(weights.sum(-1, keepdim=True)) @ v


@usual_care(float32=False)
def float16_overflow(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Multiply in the input's precision; scale and go on in float32."""
    scores = q @ k.mT
    if q.dtype in (torch.float16, torch.bfloat16):
        scores, v = scores.float(), v.float()
    scores = scores * scale_of(q, scale)
    out = softmax(masked(scores, attn_mask, is_causal)) @ v
    return out.to(q.dtype)


@usual_care(float32=False)
def softmax_in_half(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Compute everything in the input's precision."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores) @ v


@usual_care
def base_two(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Use exp2, which GPUs compute faster than exp."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    if scores.numel():
        scores = scores - finite(scores.detach().amax(-1, keepdim=True))
    weights = torch.exp2(scores)
    return weights / safe_sum(weights.sum(-1, keepdim=True)) @ v


@usual_care
def weights_not_normalised(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Subtract the maximum, take exp, mix the values."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    if scores.numel():
        scores = scores - finite(scores.detach().amax(-1, keepdim=True))
    return torch.exp(scores) @ v


@usual_care
def dropout_always_on(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Drop a tenth of the weights, to train well."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    weights = functional.dropout(softmax(scores), p=0.1)
    return weights @ v


@usual_care
def keys_used_as_values(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Mix with the weights, one letter off."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores) @ k


@usual_care
def value_width_assumed(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Give the output the shape of the queries."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    out = softmax(scores) @ v
    return out.reshape(q.shape)
