"""The two kernels of `split_keys`: attend within shares of keys, then merge.

A warp takes one query and one share of the keys. Eight lanes score a key
together, because eight float32 numbers are one sector of 32 bytes: so four
keys are read at once in four sectors. Each group of eight lanes keeps a state
(maximum, sum, accumulator) of its own; at the end the groups merge theirs.

Source: Dao et al. 2023, "Flash-Decoding for long-context inference".
"""

import functools
import math
from typing import Any

from attention_lab.gpu import cuda
from attention_lab.steps.launch import cdiv
from attention_lab.steps.scaled_dot_product import make_add_bias

WARP = 32
ALL_LANES = 0xFFFFFFFF
LANE_BITS = 3
LANES = 1 << LANE_BITS  # per key


@functools.cache
def make_score(D: int, real: Any) -> Any:
    """Build the device function that scores one key per group of lanes."""
    WIDE = cdiv(D, LANES)

    @cuda.jit(device=True)
    def score_key(q, k_BHSD, b, h_kv, s, is_key):
        """Add up q·k over the lanes of a group; all of the warp take part."""
        dot = real(0.0)
        for i in range(WIDE):
            d = i * LANES + cuda.laneid % LANES
            if is_key and d < D:
                dot += q[i] * k_BHSD[b, h_kv, s, d]
        for step in range(LANE_BITS):
            dot += cuda.shfl_xor_sync(ALL_LANES, dot, 1 << step)
        return dot

    return score_key


@functools.cache
def make_take_key(D_v: int, real: Any) -> Any:
    """Build the device function that takes a key into a running softmax."""
    WIDE_V = cdiv(D_v, LANES)

    @cuda.jit(device=True)
    def take_key(acc, row_max, row_sum, score, v_BHSD, b, h_kv, s):
        """Each lane mixes its channels; returns maximum and sum."""
        new_max = max(row_max, score)
        rescale = math.exp(row_max - new_max)
        weight = math.exp(score - new_max)
        for i in range(WIDE_V):
            d = i * LANES + cuda.laneid % LANES
            if d < D_v:
                acc[i] = acc[i] * rescale + weight * v_BHSD[b, h_kv, s, d]
        return new_max, row_sum * rescale + weight

    return take_key


@functools.cache
def make_merge_groups(WIDE_V: int, real: Any) -> Any:
    """Build the device function that merges the states of a warp's groups."""

    @cuda.jit(device=True)
    def merge_groups(acc, row_max, row_sum):
        """Each lane joins its state with that of lane XOR 8, then XOR 16."""
        for step in range(LANE_BITS, 5):
            reach = 1 << step
            other_max = cuda.shfl_xor_sync(ALL_LANES, row_max, reach)
            other_sum = cuda.shfl_xor_sync(ALL_LANES, row_sum, reach)
            new_max = max(row_max, other_max)
            shift = new_max if new_max != real(-math.inf) else real(0.0)
            mine = math.exp(row_max - shift)
            theirs = math.exp(other_max - shift)
            row_max, row_sum = new_max, row_sum * mine + other_sum * theirs
            for i in range(WIDE_V):
                other = cuda.shfl_xor_sync(ALL_LANES, acc[i], reach)
                acc[i] = acc[i] * mine + other * theirs
        return row_max, row_sum

    return merge_groups


@functools.cache
def make_store_state(D_v: int) -> Any:
    """Build the device function that stores the state of one share."""
    WIDE_V = cdiv(D_v, LANES)

    @cuda.jit(device=True)
    def store_state(
        maxima, sums, accs, acc, row_max, row_sum, share, b, h, row
    ):
        """One group of the warp writes: its lanes know the same."""
        for i in range(WIDE_V):
            d = i * LANES + cuda.laneid
            if cuda.laneid < LANES and d < D_v:
                accs[share, b, h, row, d] = acc[i]
        if cuda.laneid == 0:
            maxima[share, b, h, row] = row_max
            sums[share, b, h, row] = row_sum

    return store_state


@functools.cache
def make_split_kernel(
    D: int, D_v: int, real: Any, has_bias: bool, is_causal: bool
) -> Any:
    """Build the kernel that attends within one share of the keys."""
    add_bias = make_add_bias(has_bias)
    score_key, take_key = make_score(D, real), make_take_key(D_v, real)
    WIDE, WIDE_V = cdiv(D, LANES), cdiv(D_v, LANES)
    merge_groups = make_merge_groups(WIDE_V, real)
    store_state = make_store_state(D_v)

    @cuda.jit
    def split_kernel(
        maxima, sums, accs, q_BHLD, k_BHSD, v_BHSD, bias_BHLS, scale, group
    ):
        """One warp per query and share of keys; 8 of its lanes per key."""
        q = cuda.local.array(WIDE, real)
        acc = cuda.local.array(WIDE_V, real)
        row, share = cuda.blockIdx.x, cuda.blockIdx.y
        shares, _, H, _ = maxima.shape
        b, h = cuda.blockIdx.z // H, cuda.blockIdx.z % H

        # 1. Load: this lane's channels of the query; nothing is seen yet.
        lane = cuda.laneid % LANES
        for i in range(WIDE):
            d = i * LANES + lane
            q[i] = q_BHLD[b, h, row, d] * scale if d < D else real(0.0)
        for i in range(WIDE_V):
            acc[i] = real(0.0)
        row_max, row_sum = real(-math.inf), real(0.0)
        size = (k_BHSD.shape[2] + shares - 1) // shares
        end = min((share + 1) * size, k_BHSD.shape[2])
        if is_causal:
            end = min(end, row + 1)

        # 2. Compute: each group of lanes takes every fourth key of the share.
        for s0 in range(share * size, end, WARP // LANES):
            s = s0 + cuda.laneid // LANES
            dot = score_key(q, k_BHSD, b, h // group, s, s < end)
            if s < end:
                score = add_bias(dot, bias_BHLS, b, h, row, s)
                if score != real(-math.inf):
                    row_max, row_sum = take_key(
                        acc, row_max, row_sum, score, v_BHSD, b, h // group, s
                    )
        row_max, row_sum = merge_groups(acc, row_max, row_sum)

        # 3. Store: the state of the share, not divided.
        store_state(maxima, sums, accs, acc, row_max, row_sum, share, b, h, row)

    return split_kernel


@functools.cache
def make_merge_kernel(real: Any) -> Any:
    """Build the kernel that merges the states of all shares."""

    @cuda.jit
    def merge_kernel(out_BHLD, lse_BHL, maxima, sums, accs):
        """One warp per query; its lanes share out the channels."""
        lane, row, bh = cuda.threadIdx.x, cuda.blockIdx.x, cuda.blockIdx.y
        shares, _, H, _ = maxima.shape
        b, h = bh // H, bh % H

        # 1. Load: the largest maximum; −∞ if no share saw a key.
        row_max = real(-math.inf)
        for p in range(shares):
            row_max = max(row_max, maxima[p, b, h, row])
        shift = row_max if row_max != real(-math.inf) else real(0.0)

        # 2. Compute: the sum of all shares, each shrunk to the maximum.
        row_sum = real(0.0)
        for p in range(shares):
            rescale = math.exp(maxima[p, b, h, row] - shift)
            row_sum += sums[p, b, h, row] * rescale
        divisor = row_sum if row_sum != real(0.0) else real(1.0)

        # 3. Store: merge a channel, divide once.
        for d in range(lane, out_BHLD.shape[3], WARP):
            acc = real(0.0)
            for p in range(shares):
                rescale = math.exp(maxima[p, b, h, row] - shift)
                acc += accs[p, b, h, row, d] * rescale
            out_BHLD[b, h, row, d] = acc / divisor
        if lane == 0:
            lse_BHL[b, h, row] = row_max + math.log(divisor)

    return merge_kernel
