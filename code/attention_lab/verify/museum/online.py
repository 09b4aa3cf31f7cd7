"""Exhibits: softmax tile by tile, with one slip in the loop over the keys."""

import itertools

import torch
from torch.nn import functional

from attention_lab.verify.museum.parts import (
    TILE,
    Row,
    columns,
    finish,
    finite,
    masked,
    safe_sum,
    scaled_scores,
    start,
    take_in,
    tiles,
    usual_care,
)


@usual_care
def online_sum_not_rescaled(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Rescale the accumulator when the maximum grows."""
    row_max, row_sum, acc = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale):
        new_max = torch.maximum(row_max, scores.amax(-1, keepdim=True))
        weights = torch.exp(scores - finite(new_max))
        rescale = torch.exp(row_max - finite(new_max))
        row_sum = row_sum + weights.sum(-1, keepdim=True)
        acc = acc * rescale + weights @ v_tile
        row_max = new_max
    return acc / safe_sum(row_sum)


@usual_care
def online_acc_not_rescaled(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Rescale the sum when the maximum grows."""
    row_max, row_sum, acc = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale):
        new_max = torch.maximum(row_max, scores.amax(-1, keepdim=True))
        weights = torch.exp(scores - finite(new_max))
        rescale = torch.exp(row_max - finite(new_max))
        row_sum = row_sum * rescale + weights.sum(-1, keepdim=True)
        acc = acc + weights @ v_tile
        row_max = new_max
    return acc / safe_sum(row_sum)


@usual_care
def online_neither_rescaled(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Keep a running maximum and two running sums."""
    row_max, row_sum, acc = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale):
        row_max = torch.maximum(row_max, scores.amax(-1, keepdim=True))
        weights = torch.exp(scores - finite(row_max))
        row_sum = row_sum + weights.sum(-1, keepdim=True)
        acc = acc + weights @ v_tile
    return acc / safe_sum(row_sum)


@usual_care
def online_inverse_rescale(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Rescale the accumulator by the inverse of what rescales the sum."""
    row_max, row_sum, acc = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale):
        new_max = torch.maximum(row_max, scores.amax(-1, keepdim=True))
        weights = torch.exp(scores - finite(new_max))
        rescale = torch.exp(row_max - finite(new_max))
        row_sum = row_sum * rescale + weights.sum(-1, keepdim=True)
        acc = acc / safe_sum(rescale) + weights @ v_tile
        row_max = new_max
    return acc / safe_sum(row_sum)


@usual_care
def online_initial_max_zero(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Start with a maximum of 0, as with a sum of 0."""
    state = start(q, v)
    state = state._replace(row_max=torch.zeros_like(state.row_max))
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale):
        state = take_in(state, scores, v_tile)
    return finish(state)


@usual_care
def online_first_tile_masked_nan(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Subtract the running maximum, whatever it is."""
    row_max, row_sum, acc = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale):
        new_max = torch.maximum(row_max, scores.amax(-1, keepdim=True))
        weights = torch.exp(scores - new_max)
        rescale = torch.exp(row_max - new_max)
        row_sum = row_sum * rescale + weights.sum(-1, keepdim=True)
        acc = acc * rescale + weights @ v_tile
        row_max = new_max
    sees_nothing = row_max == -torch.inf
    return (acc / safe_sum(row_sum)).masked_fill(sees_nothing, 0.0)


@usual_care
def online_every_tile_masked(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Divide by the sum at the end."""
    state = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale):
        state = take_in(state, scores, v_tile)
    return state.acc / state.row_sum


@usual_care
def online_tail_dropped(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Visit S // TILE tiles, and at least one."""
    state = start(q, v)
    visited = max(1, k.shape[2] // TILE)
    every_tile = tiles(q, k, v, attn_mask, is_causal, scale)
    for scores, v_tile in itertools.islice(every_tile, visited):
        state = take_in(state, scores, v_tile)
    return finish(state)


@usual_care
def online_tail_unmasked(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Fill the last tile up with keys and values of 0."""
    S = k.shape[2]
    missing = -S % TILE
    k, v = (functional.pad(x, (0, 0, 0, missing)) for x in (k, v))
    if attn_mask is not None:
        attn_mask = attn_mask.expand(*attn_mask.shape[:-1], S)
        allowed = 1.0 if attn_mask.dtype == torch.bool else 0.0
        attn_mask = functional.pad(attn_mask, (0, missing), value=allowed)
    state = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale):
        state = take_in(state, scores, v_tile)
    return finish(state)


@usual_care
def online_padding_width(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Widen queries and keys to a power of two, as a tensor core wants them."""
    D = q.shape[-1]
    missing = 2 ** (D - 1).bit_length() - D
    q, k = (functional.pad(x, (0, missing)) for x in (q, k))
    state = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale):
        state = take_in(state, scores, v_tile)
    return finish(state)


@usual_care
def online_last_tile_max_only(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Subtract each tile's own maximum."""
    row_max, row_sum, acc = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale, tile=32):
        tile_max = scores.amax(-1, keepdim=True)
        new_max = torch.maximum(row_max, tile_max)
        weights = torch.exp(scores - finite(tile_max))
        rescale = torch.exp(row_max - finite(new_max))
        row_sum = row_sum * rescale + weights.sum(-1, keepdim=True)
        acc = acc * rescale + weights @ v_tile
        row_max = new_max
    return acc / safe_sum(row_sum)


@usual_care
def split_merge_averaged(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Attend to 64 keys at a time, and average the outputs."""
    outs = [finish(start(q, v))]
    if k.shape[2]:
        every_split = tiles(q, k, v, attn_mask, is_causal, scale, tile=64)
        outs = [finish(take_in(start(q, v), *split)) for split in every_split]
    return torch.stack(outs).mean(0)


@usual_care
def online_causal_tile_skipped_wrongly(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Skip the tiles of keys that lie in the future of a tile of queries."""
    outs = []
    for row in range(0, q.shape[2], TILE):
        q_tile = q[:, :, row : row + TILE]
        last = row + q_tile.shape[2]
        visible = max(1, last // TILE) * TILE if is_causal else k.shape[2]
        state = start(q_tile, v)
        for s in range(0, min(visible, k.shape[2]), TILE):
            keys = slice(s, s + TILE)
            mask = columns(attn_mask, keys)
            if mask is not None and mask.dim() > 1 and mask.shape[-2] > 1:
                mask = mask[..., row : row + TILE, :]
            scores = scaled_scores(q_tile, k[:, :, keys], scale)
            scores = masked(scores, mask, is_causal, row, s)
            state = take_in(state, scores, v[:, :, keys])
        outs.append(finish(state))
    return torch.cat(outs, dim=2) if outs else finish(start(q, v))


@usual_care
def online_causal_not_offset(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Draw the diagonal in every tile of keys."""
    state = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, scale=scale):
        scores = masked(scores, is_causal=is_causal)
        state = take_in(state, scores, v_tile)
    return finish(state)


@usual_care
def online_mask_not_offset(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Read a tile of the mask beside every tile of keys."""
    state = start(q, v)
    for scores, v_tile in tiles(q, k, v, None, is_causal, scale):
        mask = columns(attn_mask, slice(0, scores.shape[-1]))
        state = take_in(state, masked(scores, mask), v_tile)
    return finish(state)


@usual_care
def online_divided_every_tile(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Divide after every tile, and go on from there."""
    row_max, row_sum, acc = start(q, v)
    for scores, v_tile in tiles(q, k, v, attn_mask, is_causal, scale):
        new = take_in(Row(row_max, row_sum, acc), scores, v_tile)
        row_max, row_sum = new.row_max, new.row_sum
        acc = finish(new)
    return acc
