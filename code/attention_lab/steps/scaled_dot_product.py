"""How does a query mix the values of the keys that it matches?

    scores = q kᵀ / √D        weights = softmax over S        out = weights v

Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, eq. 1.
Memory: stores all B·H·L·S scores, 4 bytes each in float32.
Letters: B batch, H heads, L queries, S keys, D head width. A value may have
another width than a key; `H_kv` counts the key heads, which `enable_gqa` lets
be fewer than the query heads.
"""

import functools
import math
from typing import Any

import torch
from einops import einsum, repeat
from jaxtyping import Float
from torch import Tensor

from attention_lab.contract import check_attention_call, check_tensors
from attention_lab.gpu import cuda
from attention_lab.steps.launch import (
    cdiv,
    check_grid,
    read_operands,
)

HALF_PRECISIONS = (torch.float16, torch.bfloat16)
THREADS_X, THREADS_L = 8, 4  # 8 keys or channels × 4 rows: 32 threads, one warp
THREADS_ROW = 32  # rows per block of the softmax: one warp


# -- PyTorch ---------------------------------------------------------------


def attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H_kv S D"],
    value: Float[Tensor, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "B H L D_v"]:
    """Mix the values, weighted by how well each query matches each key.

    Arguments and errors: `attention_lab.contract.check_attention_call`.

    Returns
    -------
    One mixed value per query, in the dtype of the query; half precisions
    compute in float32. A query that sees no key gets 0, and gradients of 0.

    Examples
    --------
    >>> q, k = torch.ones(1, 1, 1, 2), torch.ones(1, 1, 2, 2)
    >>> v = torch.tensor([[[[0.0], [4.0]]]])
    >>> attention(q, k, v).item()
    2.0
    """
    weights_BHLS = attention_weights(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    return mix_values(weights_BHLS, value).to(query.dtype)


def attention_weights(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H_kv S D"],
    value: Float[Tensor, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "B H L S"]:
    """Return the softmax weights that `attention` mixes the values with.

    Every row sums to 1, or to 0 if its query sees no key. Half precisions
    give float32 weights. Arguments and errors as `attention`.
    """
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    check_tensors(query=query, key=key, value=value)
    if query.dtype in HALF_PRECISIONS:
        query, key = query.float(), key.float()
    key = share_heads(key, call.group)
    # Scaling q, not the product, keeps a large product from overflowing.
    q = query * call.scale
    scores_BHLS = einsum(q, key, "b h l d, b h s d -> b h l s")
    return softmax(masked(scores_BHLS, attn_mask, is_causal))


def share_heads(x: Float[Tensor, "B H_kv S D"], group: int) -> Tensor:
    """Let `group` neighbouring query heads read one key head.

    Query head h reads key head h // group, as `repeat_interleave` does.

    References
    ----------
    Ainslie et al. 2023, "GQA", section 2.2.
    """
    return repeat(x, "b h s d -> b (h g) s d", g=group)


def masked(
    scores_BHLS: Float[Tensor, "B H L S"],
    attn_mask: Any,
    is_causal: bool,
    first_row: int = 0,
    first_key: int = 0,
) -> Float[Tensor, "B H L S"]:
    """Set the scores of forbidden keys to −∞; add a floating mask.

    `first_row` and `first_key` say where a tile of scores begins, so that the
    causal diagonal lies right in it.
    """
    if is_causal:
        L, S = scores_BHLS.shape[-2:]
        device = scores_BHLS.device
        rows_L1 = torch.arange(first_row, first_row + L, device=device)[:, None]
        keys_S = torch.arange(first_key, first_key + S, device=device)
        return scores_BHLS.masked_fill(keys_S > rows_L1, -math.inf)
    if attn_mask is None:
        return scores_BHLS
    mask = as_mask(attn_mask, scores_BHLS)
    if mask.dtype == torch.bool:
        return scores_BHLS.masked_fill(~mask, -math.inf)
    return scores_BHLS + mask.to(scores_BHLS.dtype)


def as_mask(attn_mask: Any, like: Tensor) -> Tensor:
    """Return a mask as a tensor beside `like`; a NumPy mask is copied."""
    if isinstance(attn_mask, Tensor):
        return attn_mask
    return torch.tensor(attn_mask.copy(), device=like.device)


def softmax(scores: Float[Tensor, "... S"]) -> Float[Tensor, "... S"]:
    """Turn scores into weights that sum to 1 over S.

    The row's maximum is subtracted first, so exp never overflows. A row of −∞
    has no maximum to subtract and gives weights of 0, not NaN.

    Examples
    --------
    >>> softmax(torch.tensor([1e4, 1e4, -math.inf])).tolist()
    [0.5, 0.5, 0.0]
    """
    if scores.shape[-1] == 0:
        return scores
    row_max = scores.detach().amax(-1, keepdim=True)
    row_max = row_max.masked_fill(row_max == -math.inf, 0.0)
    weights = torch.exp(scores - row_max)
    row_sum = weights.sum(-1, keepdim=True)
    return weights / row_sum.masked_fill(row_sum == 0.0, 1.0)


def mix_values(
    weights_BHLS: Float[Tensor, "B H L S"],
    value: Float[Tensor, "B H_kv S D_v"],
) -> Float[Tensor, "B H L D_v"]:
    """Add up the values, each times its weight."""
    value = value.to(weights_BHLS.dtype)
    group = weights_BHLS.shape[1] // value.shape[1] if value.shape[1] else 1
    value = share_heads(value, group)
    return einsum(weights_BHLS, value, "b h l s, b h s d -> b h l d")


# -- CUDA kernels ----------------------------------------------------------


@functools.cache
def make_add_bias(has_bias: bool) -> Any:
    """Build the device function that adds a broadcast mask to one score."""

    @cuda.jit(device=True)
    def add_bias(score, bias_BHLS, b, h, row, s):
        """One thread adds its mask; an axis of size 1 is read at 0."""
        if has_bias:
            B, H, L, S = bias_BHLS.shape
            score += bias_BHLS[b % B, h % H, row % L, s % S]
        return score

    return add_bias


@functools.cache
def make_scores_kernel(real: Any, has_bias: bool, is_causal: bool) -> Any:
    """Build the kernel for one dtype and one kind of mask."""
    add_bias = make_add_bias(has_bias)

    @cuda.jit
    def scores_kernel(scores_BHLS, q_BHLD, k_BHSD, bias_BHLS, scale, group):
        """One thread per score; a block covers a patch of one head's scores."""
        s, row, bh = cuda.grid(3)
        B, H, L, S = scores_BHLS.shape
        D = q_BHLD.shape[3]
        if s < S and row < L and bh < B * H:
            # 1. Load: which batch entry, which head, which key head.
            b, h = bh // H, bh % H
            h_kv = h // group

            # 2. Compute: a key in the future is not even read.
            score = real(-math.inf)
            if not is_causal or s <= row:
                dot = real(0.0)
                for d in range(D):
                    q = q_BHLD[b, h, row, d] * scale
                    dot += q * k_BHSD[b, h_kv, s, d]
                score = add_bias(dot, bias_BHLS, b, h, row, s)

            # 3. Store
            scores_BHLS[b, h, row, s] = score

    return scores_kernel


@functools.cache
def make_softmax_kernel(real: Any) -> Any:
    """Build the kernel for one dtype."""

    @cuda.jit
    def softmax_kernel(weights_BHLS, scores_BHLS):
        """One thread per row of scores: maximum, sum, then the weights."""
        row, bh = cuda.grid(2)
        B, H, L, S = scores_BHLS.shape
        if row < L and bh < B * H:
            # 1. Load: the largest score of the row.
            b, h = bh // H, bh % H
            row_max = real(-math.inf)
            for s in range(S):
                row_max = max(row_max, scores_BHLS[b, h, row, s])
            if row_max == real(-math.inf):  # no key: every weight is 0
                row_max = real(0.0)

            # 2. Compute
            row_sum = real(0.0)
            for s in range(S):
                row_sum += math.exp(scores_BHLS[b, h, row, s] - row_max)
            if row_sum == real(0.0):
                row_sum = real(1.0)

            # 3. Store
            for s in range(S):
                weight = math.exp(scores_BHLS[b, h, row, s] - row_max)
                weights_BHLS[b, h, row, s] = weight / row_sum

    return softmax_kernel


@functools.cache
def make_weighted_sum_kernel(real: Any) -> Any:
    """Build the kernel for one dtype."""

    @cuda.jit
    def weighted_sum_kernel(out_BHLD, weights_BHLS, v_BHSD, group):
        """One thread per output number: weights times a column of v."""
        d, row, bh = cuda.grid(3)
        B, H, L, D = out_BHLD.shape
        S = weights_BHLS.shape[3]
        if d < D and row < L and bh < B * H:
            # 1. Load: which batch entry, which head, which value head.
            b, h = bh // H, bh % H
            h_kv = h // group

            # 2. Compute
            total = real(0.0)
            for s in range(S):
                total += weights_BHLS[b, h, row, s] * v_BHSD[b, h_kv, s, d]

            # 3. Store
            out_BHLD[b, h, row, d] = total

    return weighted_sum_kernel


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
    """Run attention as three kernels: scores, softmax, weighted sum.

    NumPy arrays or torch tensors in, the same kind out. Arguments, errors and
    result as `attention`; gradients are not tracked.
    """
    ops = read_operands(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    call = ops.call
    if call.is_empty:
        return ops.zeros(call.B, call.H, call.L, call.D_v)
    heads = check_grid(call.B * call.H, call.L, THREADS_L)
    scores_BHLS = ops.empty(call.B, call.H, call.L, call.S)
    weights_BHLS = ops.empty(call.B, call.H, call.L, call.S)
    out_BHLD = ops.empty(call.B, call.H, call.L, call.D_v)

    block = (THREADS_X, THREADS_L, 1)
    rows = cdiv(call.L, THREADS_L)
    make_scores_kernel(ops.real, ops.has_bias, ops.is_causal)[
        (cdiv(call.S, THREADS_X), rows, heads), block
    ](
        scores_BHLS,
        ops.q,
        ops.k,
        ops.bias,
        ops.dtype.type(call.scale),
        call.group,
    )
    make_softmax_kernel(ops.real)[
        (cdiv(call.L, THREADS_ROW), heads), (THREADS_ROW, 1)
    ](weights_BHLS, scores_BHLS)
    make_weighted_sum_kernel(ops.real)[
        (cdiv(call.D_v, THREADS_X), rows, heads), block
    ](out_BHLD, weights_BHLS, ops.v, call.group)
    return ops.result(out_BHLD)
