"""Exhibits: masks that are read, placed, drawn or filled in wrongly."""

import torch

from attention_lab.verify.museum.parts import (
    causal_keep,
    is_bool,
    masked,
    scaled_scores,
    softmax,
    usual_care,
)


@usual_care
def mask_polarity(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Fill the scores where the mask is True."""
    scores = scaled_scores(q, k, scale)
    if is_bool(attn_mask):
        scores = scores.masked_fill(attn_mask, -torch.inf)
        attn_mask = None
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def mask_ignored(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Take a mask for the sake of the signature."""
    scores = scaled_scores(q, k, scale)
    if is_causal:
        scores = masked(scores, is_causal=True)
    return softmax(scores) @ v


@usual_care
def additive_mask_as_bool(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Turn every mask into a boolean one; a number means: forbidden."""
    if attn_mask is not None and attn_mask.dtype != torch.bool:
        attn_mask = ~attn_mask.bool()
    scores = scaled_scores(q, k, scale)
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def bool_mask_added(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Add the mask to the scores, whatever its dtype."""
    scores = scaled_scores(q, k, scale)
    if attn_mask is not None:
        scores = scores + attn_mask
    return softmax(masked(scores, None, is_causal)) @ v


@usual_care
def mask_after_softmax(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Take the softmax, then remove the weights of forbidden keys."""
    scores = scaled_scores(q, k, scale)
    if not is_bool(attn_mask):
        return softmax(masked(scores, attn_mask, is_causal)) @ v
    weights = softmax(scores)
    return weights.masked_fill(~attn_mask, 0.0) @ v


@usual_care
def mask_multiplies_scores(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Multiply the scores by the mask: 1 keeps, 0 removes."""
    scores = scaled_scores(q, k, scale)
    if is_bool(attn_mask):
        scores = scores * attn_mask
        attn_mask = None
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def weak_sentinel(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Give forbidden keys a score of -10."""
    scores = scaled_scores(q, k, scale)
    if is_bool(attn_mask):
        scores = scores.masked_fill(~attn_mask, -10.0)
        attn_mask = None
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care(float32=False)
def sentinel_in_half(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Write -1e9 into a bias of the query's dtype."""
    keep = None
    if is_bool(attn_mask):
        keep = attn_mask
        bias = torch.zeros(keep.shape, dtype=q.dtype)
        attn_mask = bias.masked_fill(~keep, -1e9)
    if q.dtype in (torch.float16, torch.bfloat16):
        q, k, v = q.float(), k.float(), v.float()
    scores = scaled_scores(q, k, scale)
    weights = softmax(masked(scores, attn_mask, is_causal))
    if keep is not None:
        weights = weights.masked_fill(~keep, 0.0)
    return weights @ v


@usual_care
def fully_masked_row_nan(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Take the library's softmax of the masked scores."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return torch.softmax(scores, dim=-1) @ v


@usual_care
def fully_masked_row_gradient_nan(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Replace the NaN of a fully masked row after the softmax."""
    if is_bool(attn_mask):
        bias = torch.zeros(attn_mask.shape)
        attn_mask = bias.masked_fill(~attn_mask, -torch.inf)
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    weights = torch.softmax(scores, dim=-1)
    weights = weights.masked_fill(weights.isnan(), 0.0)
    return weights @ v


@usual_care
def fully_masked_row_uniform(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Put the lowest finite number in the place of minus infinity."""
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    scores = scores.clamp(min=torch.finfo(scores.dtype).min)
    return softmax(scores) @ v


@usual_care
def mask_transposed(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Read the mask as (keys, queries)."""
    if attn_mask is not None:
        attn_mask = torch.atleast_2d(attn_mask).mT
    scores = scaled_scores(q, k, scale)
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def mask_on_queries(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Lay a padding mask along the rows of the scores."""
    if attn_mask is not None and torch.atleast_2d(attn_mask).shape[-2] == 1:
        attn_mask = torch.atleast_2d(attn_mask)[..., 0, :, None]
    scores = scaled_scores(q, k, scale)
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def mask_rank(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Store a mask that is the same for all heads without its head axis."""
    shape = () if attn_mask is None else attn_mask.shape
    if len(shape) == 4 and shape[1] == 1:
        attn_mask = attn_mask.squeeze(1)
    scores = scaled_scores(q, k, scale)
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def mask_repeat_order(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Fold heads and batch into one axis, and the mask likewise."""
    B, H, L, _ = q.shape
    S = k.shape[2]
    q, k, v = (x.transpose(0, 1).flatten(0, 1) for x in (q, k, v))
    if attn_mask is not None:
        attn_mask = attn_mask.expand(B, H, L, S).flatten(0, 1)
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    out = softmax(scores) @ v
    return out.unflatten(0, (H, B)).transpose(0, 1)


@usual_care
def mask_first_sample_for_all(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Use the mask of the first sample for the whole batch."""
    if attn_mask is not None and attn_mask.dim() == 4:
        attn_mask = attn_mask[:1]
    scores = scaled_scores(q, k, scale)
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def mask_first_head_for_all(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Use the mask of the first head for all heads."""
    if attn_mask is not None and attn_mask.dim() == 4:
        attn_mask = attn_mask[:, :1]
    scores = scaled_scores(q, k, scale)
    return softmax(masked(scores, attn_mask, is_causal)) @ v


@usual_care
def causal_ignored(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Take `is_causal` for the sake of the signature."""
    return softmax(masked(scaled_scores(q, k, scale), attn_mask)) @ v


@usual_care
def causal_transposed(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Keep the upper triangle."""
    scores = masked(scaled_scores(q, k, scale), attn_mask)
    if is_causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool).triu()
        scores = scores.masked_fill(~keep, -torch.inf)
    return softmax(scores) @ v


@usual_care
def causal_lower_right(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Let the last query see every key."""
    scores = masked(scaled_scores(q, k, scale), attn_mask)
    if is_causal:
        L, S = scores.shape[-2:]
        keep = torch.ones(L, S, dtype=torch.bool).tril(diagonal=S - L)
        scores = scores.masked_fill(~keep, -torch.inf)
    return softmax(scores) @ v


@usual_care
def causal_off_by_one_future(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Keep the lower triangle up to the first diagonal."""
    scores = masked(scaled_scores(q, k, scale), attn_mask)
    if is_causal:
        keep = torch.ones(scores.shape[-2:], dtype=torch.bool).tril(1)
        scores = scores.masked_fill(~keep, -torch.inf)
    return softmax(scores) @ v


@usual_care
def causal_off_by_one_self(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Forbid the upper triangle."""
    scores = masked(scaled_scores(q, k, scale), attn_mask)
    if is_causal:
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu()
        scores = scores.masked_fill(future, -torch.inf)
    return softmax(scores) @ v


@usual_care
def causal_needs_square(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Build the triangle from the number of queries."""
    scores = masked(scaled_scores(q, k, scale), attn_mask)
    if is_causal:
        L = q.shape[2]
        keep = torch.ones(L, L, dtype=torch.bool).tril()
        scores = scores.masked_fill(~keep, -torch.inf)
    return softmax(scores) @ v


@usual_care(one_mask=False)
def causal_and_mask_one_ignored(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Use one of two ways to mask."""
    scores = scaled_scores(q, k, scale)
    if is_causal:
        scores = scores.masked_fill(~causal_keep(scores), -torch.inf)
    elif attn_mask is not None:
        scores = masked(scores, attn_mask)
    return softmax(scores) @ v
