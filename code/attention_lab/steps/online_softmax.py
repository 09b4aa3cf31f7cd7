"""Can a softmax be computed from a stream of keys that is read only once?

Keep three things per query: the largest score so far, the sum of the
exponentials, and the weighted sum of the values. When a larger score arrives,
shrink both sums by exp(old maximum − new maximum) and go on.

Source: Milakov & Gimelshein 2018, "Online normalizer calculation for softmax",
section 3; with values: Rabe & Staats 2021, section 2. Memory: D + 2 numbers
per query; no score is stored. Letters: B batch, H heads, L queries, S keys,
D head width.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attention_lab.axes import check_tile, shape_checked
from attention_lab.contract import (
    AttentionCall,
    check_attention_call,
    check_tensors,
)
from attention_lab.gpu import cuda
from attention_lab.steps import scaled_dot_product
from attention_lab.steps.launch import cdiv, check_grid, read_operands
from attention_lab.steps.scaled_dot_product import (
    HALF_PRECISIONS,
    as_mask,
    make_add_bias,
    masked,
    share_heads,
)

THREADS_ROW = 32  # queries per block: one warp


# -- PyTorch ---------------------------------------------------------------


class RunningSoftmax(NamedTuple):
    """What is known of a row after some of its keys (the paper's m, l, O).

    row_max : largest score so far; −∞ before the first key.
    row_sum : sum of exp(score − row_max).
    acc : sum of exp(score − row_max) · value; not divided yet.
    """

    row_max: Float[Tensor, "... L"]
    row_sum: Float[Tensor, "... L"]
    acc: Float[Tensor, "... L D"]


def start(like: Float[Tensor, "... L S"], D_v: int) -> RunningSoftmax:
    """Return the state before any key: nothing seen, nothing summed."""
    rows = like.shape[:-1]
    return RunningSoftmax(
        row_max=like.new_full(rows, -math.inf),
        row_sum=like.new_zeros(rows),
        acc=like.new_zeros(*rows, D_v),
    )


def finite(row_max: Float[Tensor, "... L"]) -> Float[Tensor, "... L"]:
    """Replace −∞ by 0, so that −∞ − row_max is −∞ and never NaN."""
    return row_max.masked_fill(row_max == -math.inf, 0.0)


def update(
    state: RunningSoftmax,
    scores: Float[Tensor, "... L S"],
    value: Float[Tensor, "... S D"],
) -> RunningSoftmax:
    """Take in some more keys: their scores and their values.

    Examples
    --------
    >>> scores, value = torch.tensor([[0.0, 0.0]]), torch.tensor([[1.0], [3.0]])
    >>> state = update(start(scores, 1), scores, value)
    >>> (state.acc / state.row_sum[:, None]).item()
    2.0
    """
    if scores.shape[-1] == 0:
        return state
    row_max = torch.maximum(state.row_max, scores.detach().amax(-1))
    rescale = torch.exp(state.row_max - finite(row_max))
    weights = torch.exp(scores - finite(row_max)[..., None])
    return RunningSoftmax(
        row_max=row_max,
        row_sum=state.row_sum * rescale + weights.sum(-1),
        acc=state.acc * rescale[..., None] + weights @ value,
    )


def merge(a: RunningSoftmax, b: RunningSoftmax) -> RunningSoftmax:
    """Join the states of two disjoint sets of keys, in either order."""
    row_max = torch.maximum(a.row_max, b.row_max)
    from_a = torch.exp(a.row_max - finite(row_max))
    from_b = torch.exp(b.row_max - finite(row_max))
    return RunningSoftmax(
        row_max=row_max,
        row_sum=a.row_sum * from_a + b.row_sum * from_b,
        acc=a.acc * from_a[..., None] + b.acc * from_b[..., None],
    )


def finish(state: RunningSoftmax) -> tuple[Tensor, Tensor]:
    """Return the output and the log-sum-exp: divide once, at the end.

    A row that saw no key gives 0 and −∞.
    """
    is_empty = state.row_sum == 0.0
    divisor = state.row_sum.masked_fill(is_empty, 1.0)
    lse = finite(state.row_max) + torch.log(divisor)
    return (
        state.acc / divisor[..., None],
        lse.masked_fill(is_empty, -math.inf),
    )


@shape_checked
def stream(
    scores_LS: Float[Tensor, "L S"],
    value_SD: Float[Tensor, "S D"],
    TILE_S: int = 1,
) -> list[RunningSoftmax]:
    """Read the keys once, TILE_S at a time; return the state after each tile.

    Raises
    ------
    ShapeMismatch
        If scores and values disagree about S.
    ValueError
        If TILE_S is below 1.

    Examples
    --------
    >>> scores = torch.tensor([[0.5, -1.0, 2.0]])
    >>> [s.row_max.item() for s in stream(scores, torch.ones(3, 1))]
    [0.5, 0.5, 2.0]
    """
    check_tile("TILE_S", TILE_S)
    state = start(scores_LS, value_SD.shape[-1])
    states = []
    for s in range(0, scores_LS.shape[-1], TILE_S):
        tile = slice(s, s + TILE_S)
        state = update(state, scores_LS[:, tile], value_SD[tile])
        states.append(state)
    return states


def attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H_kv S D"],
    value: Float[Tensor, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    TILE_S: int = 1,
) -> Float[Tensor, "B H L D_v"]:
    """Attend with one pass over the keys, TILE_S of them at a time.

    Arguments and errors: `attention_lab.contract.check_attention_call`; a
    TILE_S below 1 is a ValueError.

    Examples
    --------
    >>> q, k = torch.ones(1, 1, 1, 2), torch.ones(1, 1, 2, 2)
    >>> attention(q, k, torch.tensor([[[[0.0], [4.0]]]])).item()
    2.0
    """
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    check_tile("TILE_S", TILE_S)
    check_tensors(query=query, key=key, value=value)
    if call.is_empty:  # nothing to stream; the gradients are zeros
        return scaled_dot_product.attention(
            query, key, value, attn_mask, is_causal, scale, enable_gqa
        )
    dtype = query.dtype
    if dtype in HALF_PRECISIONS:
        query, key, value = query.float(), key.float(), value.float()
    key = share_heads(key, call.group)
    value = share_heads(value, call.group)
    mask = expand_mask(attn_mask, call, query)
    query = query * call.scale
    state = start(query, call.D_v)
    for s in range(0, call.S, TILE_S):
        keys = slice(s, s + TILE_S)
        scores = query @ key[:, :, keys].mT
        mask_tile = None if mask is None else mask[..., keys]
        scores = masked(scores, mask_tile, is_causal, first_key=s)
        state = update(state, scores, value[:, :, keys])
    return finish(state)[0].to(dtype)


def expand_mask(attn_mask: Any, call: AttentionCall, like: Tensor) -> Any:
    """View a mask as (B, H, L, S), so that a tile can be cut from it."""
    if attn_mask is None:
        return None
    mask = as_mask(attn_mask, like)
    return mask.expand(call.B, call.H, call.L, call.S)


# -- CUDA kernel -----------------------------------------------------------


@functools.cache
def make_store_row(real: Any) -> Any:
    """Build the device function that ends a row, for one dtype."""

    @cuda.jit(device=True)
    def store_row(out_BHLD, lse_BHL, acc, row_max, row_sum, b, h, row):
        """One thread writes its query's results; without keys 0 and −∞."""
        seen = row_sum != real(0.0)
        for d in range(out_BHLD.shape[3]):
            out_BHLD[b, h, row, d] = acc[d] / row_sum if seen else acc[d]
        lse_BHL[b, h, row] = row_max + math.log(row_sum) if seen else row_max

    return store_row


@functools.cache
def make_online_softmax_kernel(
    D: int, D_v: int, real: Any, has_bias: bool, is_causal: bool
) -> Any:
    """Build the kernel for one pair of widths, one dtype, one kind of mask."""
    add_bias = make_add_bias(has_bias)
    store_row = make_store_row(real)

    @cuda.jit
    def online_softmax_kernel(
        out_BHLD, lse_BHL, q_BHLD, k_BHSD, v_BHSD, bias_BHLS, scale, group
    ):
        """One thread per query; it reads every key and value once."""
        q = cuda.local.array(D, real)
        acc = cuda.local.array(D_v, real)
        row, bh = cuda.grid(2)
        B, H, L = lse_BHL.shape
        if row < L and bh < B * H:
            # 1. Load: this thread's query; nothing is seen (m, l, O) yet.
            b, h = bh // H, bh % H
            h_kv = h // group
            visible = k_BHSD.shape[2]
            if is_causal:
                visible = min(visible, row + 1)
            row_max, row_sum = real(-math.inf), real(0.0)
            for d in range(D):
                q[d] = q_BHLD[b, h, row, d] * scale
            for d in range(D_v):
                acc[d] = real(0.0)

            # 2. Compute: one key after the other.
            for s in range(visible):
                dot = real(0.0)
                for d in range(D):
                    dot += q[d] * k_BHSD[b, h_kv, s, d]
                score = add_bias(dot, bias_BHLS, b, h, row, s)
                if score != real(-math.inf):
                    new_max = max(row_max, score)
                    rescale = math.exp(row_max - new_max)
                    weight = math.exp(score - new_max)
                    row_max, row_sum = new_max, row_sum * rescale + weight
                    for d in range(D_v):
                        mixed = weight * v_BHSD[b, h_kv, s, d]
                        acc[d] = acc[d] * rescale + mixed

            # 3. Store: divide once, at the end.
            store_row(out_BHLD, lse_BHL, acc, row_max, row_sum, b, h, row)

    return online_softmax_kernel


# -- Launch ----------------------------------------------------------------


def attention_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Any, "B H L D_v"]:
    """Attend in one kernel that reads every key once and stores no score.

    NumPy arrays or torch tensors in, the same kind out. Arguments, errors and
    result as `attention`; gradients are not tracked.
    """
    ops = read_operands(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    call = ops.call
    if call.is_empty:
        return ops.zeros(call.B, call.H, call.L, call.D_v)
    out_BHLD = ops.empty(call.B, call.H, call.L, call.D_v)
    lse_BHL = ops.empty(call.B, call.H, call.L)
    kernel = make_online_softmax_kernel(
        call.D, call.D_v, ops.real, ops.has_bias, ops.is_causal
    )
    grid = (cdiv(call.L, THREADS_ROW), check_grid(call.B * call.H))
    kernel[grid, (THREADS_ROW, 1)](
        out_BHLD,
        lse_BHL,
        ops.q,
        ops.k,
        ops.v,
        ops.bias,
        ops.dtype.type(call.scale),
        call.group,
    )
    return ops.result(out_BHLD)
