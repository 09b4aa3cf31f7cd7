"""What changes when a tensor core multiplies, and not the threads?

A warp hands 16 queries and 8 keys to its tensor core and gets 16 × 8 scores
back, in float32. The numbers are float16, and they must lie in the lanes'
registers in an order that the hardware prescribes (`gpu.tensor_core`). That
order has a gift: the scores of 16 keys already lie as the next product wants
its weights, so no weight moves between lanes.

The weights are rounded to float16 before they multiply the values: an error of
up to 2⁻¹¹ of Σ weight · |value|. Input of any other type is refused.

Source: Dao 2023, "FlashAttention-2", sections 3.1 and 3.3 (every warp has its
own queries and shares the keys); PTX ISA, mma.sync.m16n8k16.
"""

import functools
import math
from typing import Any

from jaxtyping import Float
from numba import float32
from numba.types import float16

from attention_lab.contract import dtype_name
from attention_lab.gpu import cuda
from attention_lab.gpu.tensor_core import choose_mma
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

#: The matrices of one product: 16 queries, 8 keys or columns, 16 summands.
ROWS, COLS, DEPTH = 16, 8, 16
#: Up to this D and D_v the fragments stay in registers. At 256 the compiler
#: puts them into local memory: right, but slow.
WIDEST = 128
#: Halves between two rows, so that the lanes of a warp read different banks.
GAP = 8
#: As in `flash_register`: they tell the compiler that no index is negative.
LANE_MASK, WARP_MASK = 31, 31


# -- CUDA kernel -----------------------------------------------------------


@cuda.jit(device=True)
def load_queries(q, q_LD, row):
    """One warp brings its 16 queries into its registers, as matrices A."""
    column = (cuda.threadIdx.x & 3) * 2
    for step in range(q.shape[0]):
        for i in range(8):
            query = row + i // 2 % 2 * 8
            d = step * DEPTH + column + i % 2 + i // 4 * 8
            number = float16(float32(0.0))
            if query < q_LD.shape[0] and d < q_LD.shape[1]:
                number = q_LD[query, d]
            q[step, i] = number


@functools.cache
def make_load_keys(columns: int) -> Any:
    """Build the device function that fills the tile of keys."""

    @cuda.jit(device=True)
    def load_keys(k_tile, k_SD, s0):
        """All warps copy keys; what k does not have becomes 0."""
        first = cuda.threadIdx.y & WARP_MASK
        for s in range(first, k_tile.shape[0], cuda.blockDim.y):
            for d in range(cuda.threadIdx.x & LANE_MASK, columns, 32):
                number = float16(float32(0.0))
                if s0 + s < k_SD.shape[0] and d < k_SD.shape[1]:
                    number = k_SD[s0 + s, d]
                k_tile[s, d] = number

    return load_keys


@functools.cache
def make_load_values(TILE_S: int, columns: int) -> Any:
    """Build the device function that fills the tile of values."""

    @cuda.jit(device=True)
    def load_values(v_tile, v_SD, s0):
        """All warps copy values, turned: the sum runs over the keys."""
        first = cuda.threadIdx.y & WARP_MASK
        for s in range(first, TILE_S, cuda.blockDim.y):
            for d in range(cuda.threadIdx.x & LANE_MASK, columns, 32):
                number = float16(float32(0.0))
                if s0 + s < v_SD.shape[0] and d < v_SD.shape[1]:
                    number = v_SD[s0 + s, d]
                v_tile[d, s] = number

    return load_values


@cuda.jit(device=True)
def load_b(b, tile, row, step):
    """One warp takes 8 rows and 16 columns of a tile, as a matrix B."""
    lane = cuda.threadIdx.x & LANE_MASK
    column = (lane & 3) * 2
    for i in range(4):
        b[i] = tile[row + lane // 4, step * DEPTH + column + i % 2 + i // 2 * 8]


@functools.cache
def make_score_keys(KEY_TILES: int, STEPS: int, mma: Any) -> Any:
    """Build the device function that multiplies queries with keys."""

    @cuda.jit(device=True)
    def score_keys(scores, q, k_tile):
        """One warp: 16 queries times all keys of the tile."""
        b = cuda.local.array(4, float16)
        for j in range(KEY_TILES):
            for i in range(4):
                scores[j, i] = float32(0.0)
            for step in range(STEPS):
                load_b(b, k_tile, j * COLS, step)
                mma(scores[j], q[step], b)

    return score_keys


@functools.cache
def make_mask_scores(KEY_TILES: int, has_bias: bool, is_causal: bool) -> Any:
    """Build the device function that scales scores and applies a mask."""

    @cuda.jit(device=True)
    def mask_scores(scores, scale, bias_BHLS, b, h, first_row, s0, L, S):
        """One thread: −∞ where there is no query, no key, or no sight."""
        B, H, _, _ = bias_BHLS.shape
        bias_LS = bias_BHLS[min(b, B - 1), min(h, H - 1)]
        column = (cuda.threadIdx.x & 3) * 2
        for j in range(KEY_TILES):
            for i in range(4):
                row = first_row + i // 2 * 8
                s = s0 + j * COLS + column + i % 2
                seen = row < L and s < S
                if is_causal:
                    seen = seen and s <= row
                score = scores[j, i] * scale
                if not seen:
                    score = float32(-math.inf)
                elif has_bias:  # an axis of size 1 is read at 0
                    l_mask = min(row, bias_LS.shape[0] - 1)
                    s_mask = min(s, bias_LS.shape[1] - 1)
                    score += bias_LS[l_mask, s_mask]
                scores[j, i] = score

    return mask_scores


@functools.cache
def make_weigh_keys(KEY_TILES: int, VALUE_TILES: int) -> Any:
    """Build the device function that turns scores into weights."""

    @cuda.jit(device=True)
    def weigh_keys(scores, acc, row_max, row_sum):
        """Four lanes share a row; each has two rows, r = 0 and 1."""
        for r in range(2):
            new_max = row_max[r]
            for j in range(KEY_TILES):
                new_max = max(new_max, scores[j, 2 * r])
                new_max = max(new_max, scores[j, 2 * r + 1])
            for bit in range(2):
                other = cuda.shfl_xor_sync(EVERY_LANE, new_max, 1 << bit)
                new_max = max(new_max, other)
            # A row that has seen no key keeps its zeros: 2^(−∞ − 0) is 0.
            shift = new_max if new_max != float32(-math.inf) else float32(0.0)
            rescale = math.exp2((row_max[r] - shift) * float32(LOG2E))
            row_max[r] = new_max
            row_sum[r] *= rescale
            for n in range(VALUE_TILES):
                for i in range(2):
                    acc[n, 2 * r + i] *= rescale
            for j in range(KEY_TILES):
                for i in range(2):
                    distance = scores[j, 2 * r + i] - shift
                    weight = math.exp2(distance * float32(LOG2E))
                    scores[j, 2 * r + i] = weight
                    row_sum[r] += weight  # of this lane's keys

    return weigh_keys


@functools.cache
def make_mix_values(KEY_TILES: int, VALUE_TILES: int, mma: Any) -> Any:
    """Build the device function that adds up the weighted values."""

    @cuda.jit(device=True)
    def mix_values(acc, weights, v_tile):
        """One warp: the scores' two C fragments are one A fragment."""
        a = cuda.local.array(8, float16)
        b = cuda.local.array(4, float16)
        for step in range(KEY_TILES // 2):
            for i in range(4):
                a[i] = float16(weights[2 * step, i])
                a[i + 4] = float16(weights[2 * step + 1, i])
            for n in range(VALUE_TILES):
                load_b(b, v_tile, n * COLS, step)
                mma(acc[n], a, b)

    return mix_values


@functools.cache
def make_store_rows(VALUE_TILES: int) -> Any:
    """Build the device function that ends the rows of a warp."""

    @cuda.jit(device=True)
    def store_rows(out_BHLD, lse_BHL, acc, row_max, row_sum, b, h, first_row):
        """Four lanes add their sums and write; without keys 0 and −∞."""
        _, _, L, D_v = out_BHLD.shape
        quarter = cuda.threadIdx.x & 3
        for r in range(2):
            row, total = first_row + 8 * r, row_sum[r]
            for bit in range(2):
                total += cuda.shfl_xor_sync(EVERY_LANE, total, 1 << bit)
            seen = total != float32(0.0)
            for n in range(VALUE_TILES):
                for i in range(2):
                    d = n * COLS + quarter * 2 + i
                    if row < L and d < D_v:
                        mixed = acc[n, 2 * r + i]
                        mixed = mixed / total if seen else float32(0.0)
                        out_BHLD[b, h, row, d] = float16(mixed)
            if row < L and quarter == 0:
                lse = row_max[r] + math.log(total) if seen else row_max[r]
                lse_BHL[b, h, row] = lse

    return store_rows


@functools.cache
def make_flash_tensor_core_kernel(
    D: int,
    D_v: int,
    TILE_L: int,
    TILE_S: int,
    has_bias: bool,
    is_causal: bool,
) -> Any:
    """Build the kernel for two widths, two tile sizes and one kind of mask."""
    STEPS, KEY_TILES = cdiv(D, DEPTH), TILE_S // COLS
    VALUE_TILES = cdiv(D_v, COLS)
    K_WIDTH, V_WIDTH = STEPS * DEPTH + GAP, TILE_S + GAP
    V_ROWS = VALUE_TILES * COLS
    mma = choose_mma().mma
    load_keys = make_load_keys(STEPS * DEPTH)
    load_values = make_load_values(TILE_S, V_ROWS)
    score_keys = make_score_keys(KEY_TILES, STEPS, mma)
    mask_scores = make_mask_scores(KEY_TILES, has_bias, is_causal)
    weigh_keys = make_weigh_keys(KEY_TILES, VALUE_TILES)
    mix_values = make_mix_values(KEY_TILES, VALUE_TILES, mma)
    store_rows = make_store_rows(VALUE_TILES)

    @cuda.jit
    def flash_tensor_core_kernel(
        out_BHLD, lse_BHL, q_BHLD, k_BHSD, v_BHSD, bias_BHLS, scale, group
    ):
        """One warp per 16 queries; one block per TILE_L queries of a head."""
        k_tile = cuda.shared.array((TILE_S, K_WIDTH), float16)
        v_tile = cuda.shared.array((V_ROWS, V_WIDTH), float16)
        q = cuda.local.array((STEPS, 8), float16)
        scores = cuda.local.array((KEY_TILES, 4), float32)
        acc = cuda.local.array((VALUE_TILES, 4), float32)
        row_max = cuda.local.array(2, float32)
        row_sum = cuda.local.array(2, float32)
        _, H, L = lse_BHL.shape
        b, h = cuda.blockIdx.y // H, cuda.blockIdx.y % H
        h_kv, row0 = h // group, cuda.blockIdx.x * TILE_L
        row = row0 + cuda.threadIdx.y * ROWS + cuda.threadIdx.x // 4
        load_queries(q, q_BHLD[b, h], row)
        for r in range(2):
            row_max[r], row_sum[r] = float32(-math.inf), float32(0.0)
            for n in range(VALUE_TILES):
                for i in range(2):
                    acc[n, 2 * r + i] = float32(0.0)
        S = k_BHSD.shape[2]
        visible = min(S, L, row0 + TILE_L) if is_causal else S

        for s0 in range(0, visible, TILE_S):
            # 1. Load: all warps bring both tiles.
            load_keys(k_tile, k_BHSD[b, h_kv], s0)
            load_values(v_tile, v_BHSD[b, h_kv], s0)
            cuda.syncthreads()  # both tiles are complete before a product

            # 2. Compute
            score_keys(scores, q, k_tile)
            mask_scores(scores, scale, bias_BHLS, b, h, row, s0, L, S)
            weigh_keys(scores, acc, row_max, row_sum)
            mix_values(acc, scores, v_tile)
            cuda.syncthreads()  # nobody overwrites a tile still being read

        # 3. Store
        store_rows(out_BHLD, lse_BHL, acc, row_max, row_sum, b, h, row)

    return flash_tensor_core_kernel


# -- Launch ----------------------------------------------------------------


def tile_rules(D: int, D_v: int) -> TileRules:
    """Return which tiles fit these widths.

    Examples
    --------
    >>> tile_rules(64, 64).choose(L=1024, S=1024)
    (64, 64)
    >>> tile_rules(256, 256).choose(L=17, S=50)
    (32, 32)
    """

    def shared_bytes(TILE_L: int, TILE_S: int) -> int:
        keys = TILE_S * (padded(D, DEPTH) + GAP)
        values = padded(D_v, COLS) * (TILE_S + GAP)
        return 2 * (keys + values)

    return TileRules(ROWS, 2 * COLS, ROWS, 32, shared_bytes)


def flash_tensor_core_cuda(
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
    """Run `flash_forward` on tensor cores, for float16 input.

    NumPy arrays or torch tensors in, the same kind out; gradients are not
    tracked. `gpu.tensor_core.choose_mma().sentence` says what multiplies.

    Parameters
    ----------
    TILE_L, TILE_S : queries per block and keys per tile, multiples of 16.
        None takes 64, or fewer if 64 do not fit or the input has fewer.

    Raises
    ------
    ValueError
        If the input is not float16, or a tile does not fit; names the sizes.
    """
    ops = read_operands(
        query,
        key,
        value,
        attn_mask,
        is_causal,
        scale,
        enable_gqa,
        keep_half=True,
    )
    if dtype_name(query) != "float16":
        raise ValueError(
            f"query has dtype {dtype_name(query)}; tensor cores multiply "
            "float16 here (numba has no bfloat16): convert query, key and "
            "value to float16, or call flash_register_cuda"
        )
    call = ops.call
    rules = tile_rules(call.D, call.D_v)
    TILE_L, TILE_S = rules.settle(call.L, call.S, TILE_L, TILE_S)
    if call.is_empty:
        return empty_result(ops)
    kernel = make_flash_tensor_core_kernel(
        call.D, call.D_v, TILE_L, TILE_S, ops.has_bias, ops.is_causal
    )
    return run_flash(ops, kernel, TILE_L, (32, TILE_L // ROWS))


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
    """Return the output of `flash_tensor_core_cuda` alone."""
    options = (attn_mask, is_causal, scale, enable_gqa)
    tiles = {"TILE_L": TILE_L, "TILE_S": TILE_S}
    return flash_tensor_core_cuda(query, key, value, *options, **tiles).out_BHLD
