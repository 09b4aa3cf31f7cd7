"""How do the threads of a block share one row of a softmax?

Each thread takes every THREADS-th key, so that neighbours read neighbours.
Then the threads combine what they found: inside a warp they hand numbers from
register to register (a shuffle), across warps through shared memory. Either
in three passes over the row (maximum, sum, weights), or in two: a pair
(maximum, sum) can be kept in one pass, and two pairs can be merged.

Source: Harris 2007, "Optimizing Parallel Reduction in CUDA"; shuffles: CUDA
C++ Programming Guide, section "Warp Shuffle Functions"; merging pairs:
Milakov & Gimelshein 2018, "Online normalizer calculation for softmax",
section 3.1. Memory: as `scaled_dot_product`, all B·H·L·S scores and weights.
Letters: B batch, H heads, L queries, S keys, D head width.
"""

import functools
import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attention_lab.axes import check_tile
from attention_lab.gpu import cuda
from attention_lab.gpu.traffic import naive_forward_traffic, visible_keys
from attention_lab.steps.flash_launch import FlashResult, empty_result
from attention_lab.steps.launch import cdiv, check_grid, read_operands
from attention_lab.steps.online_softmax import (
    RunningSoftmax,
    finish,
    finite,
    merge,
    start,
    update,
)
from attention_lab.steps.scaled_dot_product import (
    THREADS_L,
    THREADS_X,
    make_scores_kernel,
    make_weighted_sum_kernel,
)

WARP = 32
ALL_LANES = 0xFFFFFFFF
MOST_WARPS = 4  # per row


# -- PyTorch ---------------------------------------------------------------


def softmax(
    scores: Float[Tensor, "... S"], lanes: int = WARP
) -> tuple[Float[Tensor, "... S"], Float[Tensor, "..."]]:
    """Return weights and log-sum-exp, combined as the lanes of a warp do.

    Lane i keeps maximum and sum of the scores i, i + lanes, …. Then each lane
    merges its pair with that of lane i XOR 1, i XOR 2, i XOR 4, …, after
    which all lanes have the row's. A row of −∞ gives 0 and −∞.

    Parameters
    ----------
    lanes : a power of two.

    Raises
    ------
    ValueError
        If `lanes` is not a power of two.

    Examples
    --------
    >>> weights, lse = softmax(torch.tensor([0.0, math.log(3)]), lanes=2)
    >>> [round(w, 6) for w in weights.tolist()], round(lse.exp().item(), 5)
    ([0.25, 0.75], 4.0)
    """
    if check_tile("lanes", lanes) & (lanes - 1):
        raise ValueError(f"lanes must be a power of two, not {lanes}")
    missing = -scores.shape[-1] % lanes
    padded = torch.nn.functional.pad(scores, (0, missing), value=-math.inf)
    each = padded.unflatten(-1, (padded.shape[-1] // lanes, lanes)).mT
    state = update(start(each, 0), each, each.new_zeros(each.shape[-1], 0))
    lane = torch.arange(lanes, device=scores.device)
    reach = 1
    while reach < lanes:
        partner = lane ^ reach
        maximum, total, acc = state
        theirs = maximum[..., partner], total[..., partner], acc
        state = merge(state, RunningSoftmax(*theirs))
        reach *= 2
    lse = finish(state)[1][..., 0]
    return torch.exp(scores - finite(lse)[..., None]), lse


# -- CUDA kernels ----------------------------------------------------------


@functools.cache
def make_block_reduce(is_sum: bool, WARPS: int) -> Any:
    """Build the device function that adds, or compares, a block's values."""

    @cuda.jit(device=True)
    def block_reduce(value, per_warp):
        """All threads of a block give a value, and get the same result."""
        for step in range(5):
            other = cuda.shfl_xor_sync(ALL_LANES, value, 16 >> step)
            value = value + other if is_sum else max(value, other)
        if cuda.laneid == 0:
            per_warp[cuda.threadIdx.x // WARP] = value
        cuda.syncthreads()  # every warp's value is there before anyone reads
        value = per_warp[0]
        for warp in range(1, WARPS):
            other = per_warp[warp]
            value = value + other if is_sum else max(value, other)
        cuda.syncthreads()  # nobody overwrites a value still being read
        return value

    return block_reduce


@functools.cache
def make_row_softmax_kernel(real: Any, is_causal: bool, WARPS: int) -> Any:
    """Build the kernel that passes over each row three times."""
    THREADS = WARPS * WARP
    block_max = make_block_reduce(False, WARPS)
    block_sum = make_block_reduce(True, WARPS)

    @cuda.jit
    def row_softmax_kernel(weights_BHLS, lse_BHL, scores_BHLS):
        """One block per row of scores; its threads share out the keys."""
        per_warp = cuda.shared.array(WARPS, real)
        t, row, bh = cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockIdx.y
        _, H, _, S = scores_BHLS.shape
        b, h = bh // H, bh % H

        # 1. Load: the largest score that the row may see.
        visible = min(S, row + 1) if is_causal else S
        row_max = real(-math.inf)
        for s in range(t, visible, THREADS):
            row_max = max(row_max, scores_BHLS[b, h, row, s])
        row_max = block_max(row_max, per_warp)
        shift = row_max if row_max != real(-math.inf) else real(0.0)

        # 2. Compute
        row_sum = real(0.0)
        for s in range(t, visible, THREADS):
            row_sum += math.exp(scores_BHLS[b, h, row, s] - shift)
        row_sum = block_sum(row_sum, per_warp)
        divisor = row_sum if row_sum != real(0.0) else real(1.0)

        # 3. Store: no key seen gives weights of 0 and a log-sum-exp of −∞.
        for s in range(t, S, THREADS):
            weight = real(0.0)
            if s < visible:
                weight = math.exp(scores_BHLS[b, h, row, s] - shift) / divisor
            weights_BHLS[b, h, row, s] = weight
        if t == 0:
            lse_BHL[b, h, row] = row_max + math.log(divisor)

    return row_softmax_kernel


@functools.cache
def make_merge_pairs(real: Any) -> Any:
    """Build the device function that joins two pairs (maximum, sum)."""

    @cuda.jit(device=True)
    def merge_pairs(row_max, row_sum, other_max, other_sum):
        """One thread joins what two threads know; returns maximum and sum."""
        new_max = max(row_max, other_max)
        shift = new_max if new_max != real(-math.inf) else real(0.0)
        mine = row_sum * math.exp(row_max - shift)
        return new_max, mine + other_sum * math.exp(other_max - shift)

    return merge_pairs


@functools.cache
def make_block_merge(real: Any, WARPS: int) -> Any:
    """Build the device function that joins the pairs of a whole block."""
    merge_pairs = make_merge_pairs(real)

    @cuda.jit(device=True)
    def block_merge(row_max, row_sum, max_of_warp, sum_of_warp):
        """All threads of a block give a pair, and get the row's."""
        for step in range(5):
            other_max = cuda.shfl_xor_sync(ALL_LANES, row_max, 16 >> step)
            other_sum = cuda.shfl_xor_sync(ALL_LANES, row_sum, 16 >> step)
            row_max, row_sum = merge_pairs(
                row_max, row_sum, other_max, other_sum
            )
        if cuda.laneid == 0:
            max_of_warp[cuda.threadIdx.x // WARP] = row_max
            sum_of_warp[cuda.threadIdx.x // WARP] = row_sum
        cuda.syncthreads()  # every warp's pair is there before anyone reads
        row_max, row_sum = max_of_warp[0], sum_of_warp[0]
        for warp in range(1, WARPS):
            row_max, row_sum = merge_pairs(
                row_max, row_sum, max_of_warp[warp], sum_of_warp[warp]
            )
        return row_max, row_sum

    return block_merge


@functools.cache
def make_one_pass_softmax_kernel(real: Any, is_causal: bool, WARPS: int) -> Any:
    """Build the kernel that finds maximum and sum in one pass."""
    THREADS = WARPS * WARP
    merge_pairs = make_merge_pairs(real)
    block_merge = make_block_merge(real, WARPS)

    @cuda.jit
    def one_pass_softmax_kernel(weights_BHLS, lse_BHL, scores_BHLS):
        """One block per row; each thread keeps a pair (maximum, sum)."""
        max_of_warp = cuda.shared.array(WARPS, real)
        sum_of_warp = cuda.shared.array(WARPS, real)
        t, row, bh = cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockIdx.y
        _, H, _, S = scores_BHLS.shape
        b, h = bh // H, bh % H

        # 1. Load: maximum and sum of the keys that this thread reads.
        visible = min(S, row + 1) if is_causal else S
        row_max, row_sum = real(-math.inf), real(0.0)
        for s in range(t, visible, THREADS):
            score = scores_BHLS[b, h, row, s]
            if score != real(-math.inf):
                row_max, row_sum = merge_pairs(
                    row_max, row_sum, score, real(1.0)
                )

        # 2. Compute: all threads get the row's pair.
        row_max, row_sum = block_merge(
            row_max, row_sum, max_of_warp, sum_of_warp
        )
        shift = row_max if row_max != real(-math.inf) else real(0.0)
        divisor = row_sum if row_sum != real(0.0) else real(1.0)

        # 3. Store: no key seen gives weights of 0 and a log-sum-exp of −∞.
        for s in range(t, S, THREADS):
            weight = real(0.0)
            if s < visible:
                weight = math.exp(scores_BHLS[b, h, row, s] - shift) / divisor
            weights_BHLS[b, h, row, s] = weight
        if t == 0:
            lse_BHL[b, h, row] = row_max + math.log(divisor)

    return one_pass_softmax_kernel


# -- Launch ----------------------------------------------------------------


def unfused_forward_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    is_one_pass: bool = False,
) -> FlashResult:
    """Attend in three kernels: scores, softmax by rows, weighted sum.

    NumPy arrays or torch tensors in, the same kind out; gradients are not
    tracked.

    Parameters
    ----------
    is_one_pass : find maximum and sum of a row in one pass instead of two.

    Other arguments and errors: `attention_lab.contract.check_attention_call`.
    """
    ops = read_operands(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    call = ops.call
    if call.is_empty:
        return empty_result(ops)
    heads = check_grid(call.B * call.H, call.L, THREADS_L)
    scores_BHLS = ops.empty(call.B, call.H, call.L, call.S)
    weights_BHLS = ops.empty(call.B, call.H, call.L, call.S)
    lse_BHL = ops.empty(call.B, call.H, call.L)
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
    make_softmax = (
        make_one_pass_softmax_kernel if is_one_pass else make_row_softmax_kernel
    )
    warps = min(MOST_WARPS, cdiv(call.S, WARP))
    make_softmax(ops.real, ops.is_causal, warps)[
        (call.L, heads), (warps * WARP, 1)
    ](weights_BHLS, lse_BHL, scores_BHLS)
    make_weighted_sum_kernel(ops.real)[
        (cdiv(call.D_v, THREADS_X), rows, heads), block
    ](out_BHLD, weights_BHLS, ops.v, call.group)
    return FlashResult(ops.result(out_BHLD), ops.log_result(lse_BHL))


def attention_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    is_one_pass: bool = False,
) -> Float[Any, "B H L D_v"]:
    """Return the output of `unfused_forward_cuda` alone."""
    options = (attn_mask, is_causal, scale, enable_gqa)
    return unfused_forward_cuda(
        query, key, value, *options, is_one_pass=is_one_pass
    ).out_BHLD


def unfused_forward_traffic(
    L: int,
    S: int,
    D: int,
    B: int = 1,
    H: int = 1,
    causal: bool = False,
    is_one_pass: bool = False,
) -> dict[str, dict[str, tuple[int, int]]]:
    """Count the elements that the three kernels move.

    Scores and weighted sum as `naive_forward_traffic`. The softmax reads the
    scores that the mask shows, P = visible_keys(L, S) per head, three times,
    or twice if it finds maximum and sum in one pass; it writes L·S weights
    and L log-sum-exps.

    Returns
    -------
    For each kernel, {array: (reads, writes)}.

    Examples
    --------
    >>> unfused_forward_traffic(L=2, S=3, D=4)["softmax"]["scores"]
    (18, 0)
    >>> unfused_forward_traffic(2, 3, 4, is_one_pass=True)["softmax"]["scores"]
    (12, 0)
    """
    passes = 2 if is_one_pass else 3
    softmax_traffic = {
        "scores": (B * H * passes * visible_keys(L, S, causal), 0),
        "weights": (0, B * H * L * S),
        "log_sum_exp": (0, B * H * L),
    }
    naive = naive_forward_traffic(L, S, D, B, H, causal)
    return {**naive, "softmax": softmax_traffic}
