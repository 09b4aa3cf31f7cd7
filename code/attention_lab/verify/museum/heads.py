"""Exhibits: heads and samples that are folded, shared or mixed wrongly."""

import torch

from attention_lab.verify.museum.parts import (
    masked,
    scaled_scores,
    softmax,
    usual_care,
)


@usual_care
def heads_unfolded_in_wrong_order(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Fold heads and batch into one axis, and unfold them at the end."""
    B, H, L, _ = q.shape
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    weights, v = (x.transpose(0, 1).flatten(0, 1) for x in (softmax(scores), v))
    out = torch.bmm(weights, v)
    return out.reshape(B, H, L, v.shape[-1])


@usual_care
def heads_viewed_not_transposed(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Compute as (B, L, H, D), and give the result the shape (B, H, L, D)."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    out = torch.einsum("bhls,bhsd->blhd", softmax(scores), v)
    return out.reshape(*q.shape[:-1], v.shape[-1])


@usual_care
def attention_across_heads(q, k, v, scale=None):
    """Attend over axis 2 of (B, L, H, D), without moving the heads first."""
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    out = softmax(scaled_scores(q, k, scale)) @ v
    return out.transpose(1, 2)


@usual_care
def attention_across_batch(q, k, v, scale=None):
    """Attend over axis 0, as a module does that wants (L, B, E)."""
    q, k, v = (x.transpose(0, 2) for x in (q, k, v))
    out = softmax(scaled_scores(q, k, scale)) @ v
    return out.transpose(0, 2)


@usual_care
def weights_averaged_over_heads(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Mix with the weights that a module returns for a picture."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    weights = softmax(scores).mean(dim=1, keepdim=True)
    return weights @ v


@usual_care(heads=False)
def gqa_tiled(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Repeat the key heads until there are enough."""
    if enable_gqa:
        group = q.shape[1] // k.shape[1]
        k, v = k.repeat(1, group, 1, 1), v.repeat(1, group, 1, 1)
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores) @ v


@usual_care(heads=False)
def gqa_wrong_axis(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Repeat along axis 2, then view as enough heads."""
    if enable_gqa:
        B, H, _, D = q.shape
        S, group = k.shape[2], H // k.shape[1]
        k = k.repeat_interleave(group, dim=2).view(B, H, S, D)
        v = v.repeat_interleave(group, dim=2).view(B, H, S, v.shape[-1])
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores) @ v


@usual_care(heads=False)
def gqa_first_head_only(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Let all query heads read one key head, as in multi-query attention."""
    if enable_gqa:
        k, v = k[:, :1], v[:, :1]
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores) @ v


@usual_care(heads=False)
def gqa_mean_of_heads(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Average the key heads where there are fewer than query heads."""
    if enable_gqa and k.shape[1] < q.shape[1]:
        k, v = k.mean(1, keepdim=True), v.mean(1, keepdim=True)
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores) @ v


@usual_care(heads=False)
def gqa_group_size_swapped(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Look up each query head's key head: h // number of key heads."""
    if enable_gqa and k.shape[1] < q.shape[1]:
        H, H_kv = q.shape[1], k.shape[1]
        h_kv = torch.arange(H) // H_kv
        k, v = k[:, h_kv], v[:, h_kv]
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores) @ v


@usual_care(heads=False)
def gqa_not_supported(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Leave it to broadcasting to match the heads."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores) @ v


@usual_care
def query_length_for_keys(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Fold batch and heads of all three inputs with one length."""
    B, H, L, D = q.shape
    q, k = (x.reshape(B * H, L, D) for x in (q, k))
    scores = scaled_scores(q, k, scale).unflatten(0, (B, H))
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def noncontiguous_view(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Fold batch and heads by a view."""
    B, H, L, D = q.shape
    S, D_v = v.shape[2:]
    q, k = q.view(B * H, L, D), k.view(B * H, S, D)
    v = v.view(B * H, S, D_v)
    scores = scaled_scores(q, k, scale).view(B, H, L, S)
    weights = softmax(masked(scores, attn_mask, is_causal)).flatten(0, 1)
    return torch.bmm(weights, v).view(B, H, L, D_v)
