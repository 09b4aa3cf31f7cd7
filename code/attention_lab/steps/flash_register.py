"""What does a thread gain from keeping a small tile in its registers?

`flash_forward` gives a thread one query. For every number of the query it
reads one number of the key from shared memory, and multiplies once. Here 16
threads share 4 queries, and each keeps a tile of 4 queries and up to 4 keys:
it reads 4 + 4 numbers and multiplies 16 times. The threads that share a row
agree on its maximum through shuffles, which need no shared memory and no
barrier, and hand each other their weights in the same way.

A hidden key has the weight 0, and 0 times a value that is not finite is NaN:
such a value spoils every row of the blocks that load it.

Source: Dao 2023, "FlashAttention-2", section 3.1 (queries outside, the keys
inside; one division at the end); Volkov & Demmel 2008, "Benchmarking GPUs to
tune dense linear algebra", section 4 (tiles in registers).
"""

import functools
import math
from typing import Any

from jaxtyping import Float

from attention_lab.gpu import cuda
from attention_lab.steps.flash_launch import (
    EVERY_LANE,
    LOG2E,
    FlashResult,
    TileRules,
    empty_result,
    padded,
    run_flash,
)
from attention_lab.steps.launch import cdiv, read_operands

#: Queries of one thread, and threads that share them: one half of a warp.
ROWS = 4
LANES = 16
LANE_BITS = 4
UNROLLED = 4
#: Numba lets a negative index count from the end. These masks change nothing
#: but tell the compiler that there is none, and which are multiples of 4: it
#: tests nothing then, and joins four loads into one. They bound D by 1023.
LANE_MASK, GROUP_MASK, STEP_MASK = LANES - 1, 63, 1020


# -- CUDA kernel -----------------------------------------------------------


@functools.cache
def make_load_rows(columns: int, real: Any) -> Any:
    """Build the device function that fills `columns` columns of a tile."""

    @cuda.jit(device=True)
    def load_rows(tile, x_SD, first, factor):
        """All threads of a block copy rows of x, times a factor.

        Rows and columns that x does not have become 0: no score of theirs
        counts, but 0 times the number that lay there might be NaN.
        """
        for s in range(
            cuda.threadIdx.y & GROUP_MASK, tile.shape[0], cuda.blockDim.y
        ):
            for d in range(cuda.threadIdx.x & LANE_MASK, columns, LANES):
                number = real(0.0)
                if first + s < x_SD.shape[0] and d < x_SD.shape[1]:
                    number = x_SD[first + s, d] * factor
                tile[s, d] = number

    return load_rows


@functools.cache
def make_score_keys(D: int, COLS: int, real: Any) -> Any:
    """Build the device function that multiplies queries with keys."""

    @cuda.jit(device=True)
    def score_keys(scores, q_tile, k_tile):
        """One thread: ROWS queries times every 16th key, COLS of them."""
        k = cuda.local.array(COLS, real)
        lane = cuda.threadIdx.x & LANE_MASK
        row = (cuda.threadIdx.y & GROUP_MASK) * ROWS
        for i in range(ROWS):
            for j in range(COLS):
                scores[i, j] = real(0.0)
        for d0 in range(0, D, UNROLLED):
            d = d0 & STEP_MASK
            for e in range(UNROLLED):
                for j in range(COLS):
                    k[j] = k_tile[lane + j * LANES, d + e]
                for i in range(ROWS):
                    q = q_tile[row + i, d + e]
                    for j in range(COLS):
                        scores[i, j] += q * k[j]

    return score_keys


@functools.cache
def make_mask_scores(
    COLS: int, real: Any, has_bias: bool, is_causal: bool
) -> Any:
    """Build the device function that applies one kind of mask."""

    @cuda.jit(device=True)
    def mask_scores(scores, bias_BHLS, b, h, first_row, s0, L, S):
        """One thread: −∞ where there is no query, no key, or no sight."""
        B, H, _, _ = bias_BHLS.shape
        bias_LS = bias_BHLS[min(b, B - 1), min(h, H - 1)]
        for i in range(ROWS):
            row = first_row + i
            for j in range(COLS):
                s = s0 + (cuda.threadIdx.x & LANE_MASK) + j * LANES
                seen = row < L and s < S
                if is_causal:
                    seen = seen and s <= row
                if not seen:
                    scores[i, j] = real(-math.inf)
                elif has_bias:  # an axis of size 1 is read at 0
                    l_mask = min(row, bias_LS.shape[0] - 1)
                    s_mask = min(s, bias_LS.shape[1] - 1)
                    scores[i, j] += bias_LS[l_mask, s_mask]

    return mask_scores


@functools.cache
def make_weigh_keys(COLS: int, WIDTH: int, real: Any) -> Any:
    """Build the device function that turns scores into weights."""

    @cuda.jit(device=True)
    def weigh_keys(scores, acc, row_max, row_sum):
        """16 threads agree on the new maxima; each weighs its own keys.

        The difference to the maximum is taken before log2 e is multiplied:
        a score near the largest float32 would overflow the other way round.
        """
        for i in range(ROWS):
            new_max = row_max[i]
            for j in range(COLS):
                new_max = max(new_max, scores[i, j])
            for bit in range(LANE_BITS):
                other = cuda.shfl_xor_sync(EVERY_LANE, new_max, 1 << bit)
                new_max = max(new_max, other)
            # A row that has seen no key keeps its zeros: 2^(−∞ − 0) is 0.
            shift = new_max if new_max != real(-math.inf) else real(0.0)
            rescale = math.exp2((row_max[i] - shift) * real(LOG2E))
            row_max[i] = new_max
            row_sum[i] *= rescale
            for c in range(WIDTH):
                acc[i, c] *= rescale
            for j in range(COLS):
                weight = math.exp2((scores[i, j] - shift) * real(LOG2E))
                scores[i, j] = weight
                row_sum[i] += weight  # of this thread's keys

    return weigh_keys


@functools.cache
def make_mix_values(COLS: int, WIDTH: int, real: Any) -> Any:
    """Build the device function that adds up the weighted values."""

    @cuda.jit(device=True)
    def mix_values(acc, weights, v_tile):
        """One thread: ROWS queries, every 16th column of the values.

        The weight of a key comes from the thread that holds it: from its
        register to all 16, without shared memory.
        """
        v = cuda.local.array(WIDTH, real)
        lane = cuda.threadIdx.x & LANE_MASK
        first_lane = cuda.laneid - lane
        for owner in range(LANES):
            row = owner & LANE_MASK
            for j in range(COLS):
                for c in range(WIDTH):
                    v[c] = v_tile[row + j * LANES, lane + c * LANES]
                for i in range(ROWS):
                    weight = cuda.shfl_sync(
                        EVERY_LANE, weights[i, j], first_lane + owner
                    )
                    for c in range(WIDTH):
                        acc[i, c] += weight * v[c]

    return mix_values


@functools.cache
def make_store_rows(WIDTH: int, real: Any) -> Any:
    """Build the device function that ends ROWS rows."""

    @cuda.jit(device=True)
    def store_rows(out_BHLD, lse_BHL, acc, row_max, row_sum, b, h, first_row):
        """16 threads add their sums and write; without keys 0 and −∞."""
        _, _, L, D_v = out_BHLD.shape
        lane = cuda.threadIdx.x & LANE_MASK
        for i in range(ROWS):
            row, total = first_row + i, row_sum[i]
            for bit in range(LANE_BITS):
                total += cuda.shfl_xor_sync(EVERY_LANE, total, 1 << bit)
            seen = total != real(0.0)
            for c in range(WIDTH):
                d = lane + c * LANES
                if row < L and d < D_v:
                    mixed = acc[i, c] / total if seen else real(0.0)
                    out_BHLD[b, h, row, d] = mixed
            if row < L and lane == 0:
                lse = row_max[i] + math.log(total) if seen else row_max[i]
                lse_BHL[b, h, row] = lse

    return store_rows


@functools.cache
def make_flash_register_kernel(
    D: int,
    D_v: int,
    TILE_L: int,
    TILE_S: int,
    real: Any,
    has_bias: bool,
    is_causal: bool,
) -> Any:
    """Build the kernel for two widths, two tile sizes and one kind of mask."""
    COLS, WIDTH = TILE_S // LANES, cdiv(D_v, LANES)
    Q_WIDTH = padded(D, UNROLLED) + 4  # rows of one warp lie in different banks
    KV_WIDTH = (
        max(padded(D, UNROLLED), WIDTH * LANES) | 1
    )  # odd: 16 rows lie in 16 banks
    load_queries = load_keys = make_load_rows(padded(D, UNROLLED), real)
    load_values = make_load_rows(WIDTH * LANES, real)
    score_keys = make_score_keys(D, COLS, real)
    mask_scores = make_mask_scores(COLS, real, has_bias, is_causal)
    weigh_keys = make_weigh_keys(COLS, WIDTH, real)
    mix_values = make_mix_values(COLS, WIDTH, real)
    store_rows = make_store_rows(WIDTH, real)

    @cuda.jit
    def flash_register_kernel(
        out_BHLD, lse_BHL, q_BHLD, k_BHSD, v_BHSD, bias_BHLS, scale, group
    ):
        """16 threads per 4 queries; one block per TILE_L queries of a head."""
        q_tile = cuda.shared.array((TILE_L, Q_WIDTH), real)
        kv_tile = cuda.shared.array((TILE_S, KV_WIDTH), real)
        scores = cuda.local.array((ROWS, COLS), real)
        acc = cuda.local.array((ROWS, WIDTH), real)
        row_max = cuda.local.array(ROWS, real)
        row_sum = cuda.local.array(ROWS, real)
        _, H, L = lse_BHL.shape
        b, h = cuda.blockIdx.y // H, cuda.blockIdx.y % H
        h_kv, row0 = h // group, cuda.blockIdx.x * TILE_L
        row = row0 + cuda.threadIdx.y * ROWS
        load_queries(q_tile, q_BHLD[b, h], row0, scale)
        for i in range(ROWS):
            row_max[i], row_sum[i] = real(-math.inf), real(0.0)
            for c in range(WIDTH):
                acc[i, c] = real(0.0)
        S = k_BHSD.shape[2]
        visible = min(S, L, row0 + TILE_L) if is_causal else S

        for s0 in range(0, visible, TILE_S):
            # 1. Load: all threads bring the keys.
            load_keys(kv_tile, k_BHSD[b, h_kv], s0, real(1.0))
            cuda.syncthreads()  # queries and keys are there before a product

            # 2. Compute: the values take the place of the keys.
            score_keys(scores, q_tile, kv_tile)
            cuda.syncthreads()  # no key is overwritten that is still read
            load_values(kv_tile, v_BHSD[b, h_kv], s0, real(1.0))
            mask_scores(scores, bias_BHLS, b, h, row, s0, L, S)
            weigh_keys(scores, acc, row_max, row_sum)
            cuda.syncthreads()  # all values are there before they are mixed
            mix_values(acc, scores, kv_tile)
            cuda.syncthreads()  # no value is overwritten that is still read

        # 3. Store
        store_rows(out_BHLD, lse_BHL, acc, row_max, row_sum, b, h, row)

    return flash_register_kernel


# -- Launch ----------------------------------------------------------------


def tile_rules(D: int, D_v: int, itemsize: int) -> TileRules:
    """Return which tiles fit these widths.

    Shared memory holds TILE_L queries and TILE_S keys or values, each a few
    numbers longer than it has to be.

    Examples
    --------
    >>> tile_rules(64, 64, 4).choose(L=1024, S=1024)
    (64, 64)
    >>> tile_rules(128, 128, 4).choose(L=1024, S=1024)
    (32, 32)
    >>> tile_rules(3, 3, 4).choose(L=5, S=7)
    (8, 16)
    """
    kv_width = max(padded(D, UNROLLED), padded(D_v, LANES)) | 1

    def shared_bytes(TILE_L: int, TILE_S: int) -> int:
        queries = TILE_L * (padded(D, UNROLLED) + 4)
        return (queries + TILE_S * kv_width) * itemsize

    return TileRules(ROWS, LANES, 2 * ROWS, LANES, shared_bytes)


def flash_register_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    TILE_L: int | None = None,
    TILE_S: int | None = None,
) -> FlashResult:
    """Run `flash_forward` as one kernel whose threads hold register tiles.

    NumPy arrays or torch tensors in, the same kind out; gradients are not
    tracked.

    Parameters
    ----------
    TILE_L : queries per block, a multiple of 4; TILE_S : keys per tile, a
        multiple of 16. None takes 64, or fewer if 64 do not fit or the input
        has fewer.

    Raises
    ------
    ValueError
        If a tile is no such multiple, or does not fit; names the sizes.
    """
    ops = read_operands(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    call = ops.call
    rules = tile_rules(call.D, call.D_v, ops.dtype.itemsize)
    TILE_L, TILE_S = rules.settle(call.L, call.S, TILE_L, TILE_S)
    if call.is_empty:
        return empty_result(ops)
    kernel = make_flash_register_kernel(
        call.D,
        call.D_v,
        TILE_L,
        TILE_S,
        ops.real,
        ops.has_bias,
        ops.is_causal,
    )
    return run_flash(ops, kernel, TILE_L, (LANES, TILE_L // ROWS))


def attention_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    TILE_L: int | None = None,
    TILE_S: int | None = None,
) -> Float[Any, "B H L D_v"]:
    """Return the output of `flash_register_cuda` alone."""
    options = (attn_mask, is_causal, scale, enable_gqa)
    tiles = {"TILE_L": TILE_L, "TILE_S": TILE_S}
    return flash_register_cuda(query, key, value, *options, **tiles).out_BHLD
