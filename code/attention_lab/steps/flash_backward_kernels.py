"""The kernels of `flash_backward`: row dots, dQ, and dK with dV.

Each gradient has the blocks that own its rows, so no two blocks add to the
same number and no atomic operation is needed. The price is that the weights
are computed twice, once for dQ and once for dK and dV.

SPLIT neighbouring threads share one row: part p of it holds the channels
p, p + SPLIT, …, and `sum_parts` adds up what the parts have of a dot product.
With SPLIT = 1 a thread keeps whole rows; at D = 64 they exceed its registers
and spill to memory.

The scale is multiplied into the queries everywhere, as in the forward pass:
where scores are large, rounding them differently from the log-sum-exp would
change the weights.

Source: Dao 2023, "FlashAttention-2", section 3.1.2, algorithm 2.
"""

import functools
import math
from typing import Any, NamedTuple

from attention_lab.gpu import cuda
from attention_lab.steps.launch import cdiv
from attention_lab.steps.scaled_dot_product import make_add_bias

#: How many channels of a row one thread holds, before the row is split.
CHANNELS = 16
WARP = 32
FULL_WARP = 0xFFFFFFFF


def choose_split(D: int, D_v: int) -> int:
    """Return how many threads share a row: a power of two, at most a warp.

    Examples
    --------
    >>> [choose_split(D, D) for D in (3, 16, 17, 64, 128, 1000)]
    [1, 1, 2, 4, 8, 32]
    """
    parts = cdiv(max(D, D_v), CHANNELS)
    return min(WARP, 1 << (parts - 1).bit_length())


def part_width(D: int, SPLIT: int) -> int:
    """Return how many channels of a row each of its threads holds.

    Examples
    --------
    >>> part_width(64, 4), part_width(59, 4), part_width(59, 1)
    (16, 15, 59)
    """
    return cdiv(D, SPLIT)


class PartFunctions(NamedTuple):
    """Device functions on one thread's part of a row of a given width."""

    load: Any
    clear: Any
    dot: Any
    add: Any
    store: Any


# -- Device functions ------------------------------------------------------


@functools.cache
def make_sum_parts(SPLIT: int) -> Any:
    """Build the device function that adds up a number over a row's threads."""
    STEPS = SPLIT.bit_length() - 1

    @cuda.jit(device=True)
    def sum_parts(part_of_sum):
        """SPLIT neighbours exchange and add; all get the same bits."""
        for i in range(STEPS):
            other = cuda.shfl_xor_sync(FULL_WARP, part_of_sum, 1 << i)
            part_of_sum += other
        return part_of_sum

    return sum_parts


@functools.cache
def make_part_functions(D: int, SPLIT: int, real: Any) -> PartFunctions:
    """Build what a thread does with its part of a row of D channels.

    Channels past D count as 0, in registers and in shared memory, so that
    every part has as many.
    """
    WIDTH = part_width(D, SPLIT)
    sum_parts = make_sum_parts(SPLIT)

    @cuda.jit(device=True)
    def load(own, x_BHLD, b, h, row, part, factor):
        """One thread takes its channels of a row, times a factor."""
        for i in range(WIDTH):
            d = part + SPLIT * i
            exists = row < x_BHLD.shape[2] and d < D
            own[i] = x_BHLD[b, h, row, d] * factor if exists else real(0.0)

    @cuda.jit(device=True)
    def clear(acc):
        """One thread starts its sums at 0."""
        for i in range(WIDTH):
            acc[i] = real(0.0)

    @cuda.jit(device=True)
    def dot(own, tile, row, part):
        """All threads of a row multiply it with a row of a tile."""
        total = real(0.0)
        for i in range(WIDTH):
            total += own[i] * tile[row, part + SPLIT * i]
        return sum_parts(total)

    @cuda.jit(device=True)
    def add(acc, weight, tile, row, part):
        """One thread adds its channels of a tile's row, times a weight."""
        for i in range(WIDTH):
            acc[i] += weight * tile[row, part + SPLIT * i]

    @cuda.jit(device=True)
    def store(x_BHLD, b, h, row, acc, part, factor):
        """One thread writes its channels of a row, times a factor."""
        for i in range(WIDTH):
            d = part + SPLIT * i
            if row < x_BHLD.shape[2] and d < D:
                x_BHLD[b, h, row, d] = acc[i] * factor

    return PartFunctions(load, clear, dot, add, store)


@functools.cache
def make_load_rows(real: Any) -> Any:
    """Build the device function that fills a tile, for one dtype."""

    @cuda.jit(device=True)
    def load_rows(tile, x_BHLD, b, h, first, factor):
        """All threads of a block copy the rows from `first` on, times a factor.

        Rows past the end are not touched, and no one reads them; channels
        past the end become 0.
        """
        rows, width = tile.shape
        for i in range(cuda.threadIdx.x, rows * width, cuda.blockDim.x):
            row, d = i // width, i % width
            if first + row < x_BHLD.shape[2]:
                x = real(0.0)
                if d < x_BHLD.shape[3]:
                    x = x_BHLD[b, h, first + row, d] * factor
                tile[row, d] = x

    return load_rows


@functools.cache
def make_read_row(real: Any) -> Any:
    """Build the device function that reads what the forward pass left."""

    @cuda.jit(device=True)
    def read_row(lse_BHL, row_dot_BHL, b, h, row):
        """One thread reads a row's log-sum-exp and row dot.

        +∞ stands for the log-sum-exp of a row that sees no key, or that does
        not exist: its weights, exp(score − ∞), are 0.
        """
        lse, row_dot = real(math.inf), real(0.0)
        if row < lse_BHL.shape[2]:
            lse, row_dot = lse_BHL[b, h, row], row_dot_BHL[b, h, row]
            if lse == real(-math.inf):
                lse = real(math.inf)
        return lse, row_dot

    return read_row


@functools.cache
def make_read_rows(real: Any) -> Any:
    """Build the device function that reads them for a tile of rows."""
    read_row = make_read_row(real)

    @cuda.jit(device=True)
    def read_rows(lse_tile, row_dot_tile, lse_BHL, row_dot_BHL, b, h, first):
        """All threads of a block read the two numbers of their rows."""
        for i in range(cuda.threadIdx.x, lse_tile.shape[0], cuda.blockDim.x):
            lse, row_dot = read_row(lse_BHL, row_dot_BHL, b, h, first + i)
            lse_tile[i], row_dot_tile[i] = lse, row_dot

    return read_rows


@functools.cache
def make_weigh(real: Any, has_bias: bool, is_causal: bool) -> Any:
    """Build the device function that recomputes one weight of the softmax."""
    add_bias = make_add_bias(has_bias)

    @cuda.jit(device=True)
    def weigh(score, bias_BHLS, lse, b, h, row, s):
        """exp(score − log-sum-exp), and 0 where the row does not see s."""
        if is_causal and s > row:
            score = real(-math.inf)
        else:
            score = add_bias(score, bias_BHLS, b, h, row, s)
        return math.exp(score - lse)

    return weigh


# -- Kernels ---------------------------------------------------------------


@functools.cache
def make_row_dot_kernel(TILE_L: int, SPLIT: int, real: Any) -> Any:
    """Build the kernel for D = rowsum(dO ∘ O), here `row_dot`."""
    sum_parts = make_sum_parts(SPLIT)

    @cuda.jit
    def row_dot_kernel(row_dot_BHL, out_grad_BHLD, out_BHLD):
        """SPLIT threads per query; one block per TILE_L queries of a head."""
        part = cuda.threadIdx.x % SPLIT
        row = cuda.blockIdx.x * TILE_L + cuda.threadIdx.x // SPLIT
        _, H, L, D_v = out_BHLD.shape
        b, h = cuda.blockIdx.y // H, cuda.blockIdx.y % H

        # 1. Load and 2. Compute: neighbours read neighbouring channels.
        total = real(0.0)
        if row < L:
            for d in range(part, D_v, SPLIT):
                total += out_grad_BHLD[b, h, row, d] * out_BHLD[b, h, row, d]
        total = sum_parts(total)

        # 3. Store
        if row < L and part == 0:
            row_dot_BHL[b, h, row] = total

    return row_dot_kernel


@functools.cache
def make_dq_kernel(
    D: int,
    D_v: int,
    TILE_L: int,
    TILE_S: int,
    SPLIT: int,
    real: Any,
    has_bias: bool,
    is_causal: bool,
) -> Any:
    """Build the kernel for dQ = scale · dS K, for one kind of mask."""
    WIDTH, WIDTH_V = part_width(D, SPLIT), part_width(D_v, SPLIT)
    PADDED, PADDED_V = WIDTH * SPLIT, WIDTH_V * SPLIT
    load, clear, dot, add, store = make_part_functions(D, SPLIT, real)
    load_v, _, dot_v, _, _ = make_part_functions(D_v, SPLIT, real)
    load_rows, read_row = make_load_rows(real), make_read_row(real)
    weigh = make_weigh(real, has_bias, is_causal)

    @cuda.jit
    def dq_kernel(
        dq_BHLD, q_BHLD, k_BHSD, v_BHSD, out_grad_BHLD,
        lse_BHL, row_dot_BHL, bias_BHLS, scale, group,
    ):  # fmt: skip
        """SPLIT threads per query; one block per TILE_L queries of a head."""
        k_tile = cuda.shared.array((TILE_S, PADDED), real)
        v_tile = cuda.shared.array((TILE_S, PADDED_V), real)
        q = cuda.local.array(WIDTH, real)
        out_grad = cuda.local.array(WIDTH_V, real)
        dq = cuda.local.array(WIDTH, real)
        part = cuda.threadIdx.x % SPLIT
        row = cuda.blockIdx.x * TILE_L + cuda.threadIdx.x // SPLIT
        _, H, L = lse_BHL.shape
        b, h = cuda.blockIdx.y // H, cuda.blockIdx.y % H
        load(q, q_BHLD, b, h, row, part, scale)
        load_v(out_grad, out_grad_BHLD, b, h, row, part, real(1.0))
        lse, row_dot = read_row(lse_BHL, row_dot_BHL, b, h, row)
        clear(dq)
        visible = k_BHSD.shape[2]
        if is_causal:  # no row of this block sees a later key
            visible = min(visible, L, (cuda.blockIdx.x + 1) * TILE_L)

        for s0 in range(0, visible, TILE_S):
            # 1. Load: every thread brings its share of both tiles.
            load_rows(k_tile, k_BHSD, b, h // group, s0, real(1.0))
            load_rows(v_tile, v_BHSD, b, h // group, s0, real(1.0))
            cuda.syncthreads()  # both tiles are complete before anyone reads

            # 2. Compute: all rows take the same keys, so no part is missing.
            for s in range(min(TILE_S, visible - s0)):
                score = dot(q, k_tile, s, part)
                weight = weigh(score, bias_BHLS, lse, b, h, row, s0 + s)
                d_weight = dot_v(out_grad, v_tile, s, part)
                add(dq, weight * (d_weight - row_dot), k_tile, s, part)
            cuda.syncthreads()  # nobody overwrites a tile still being read

        # 3. Store
        store(dq_BHLD, b, h, row, dq, part, scale)

    return dq_kernel


@functools.cache
def make_take_tile(
    D: int, D_v: int, SPLIT: int, real: Any, has_bias: bool, is_causal: bool
) -> Any:
    """Build the device function that takes a tile of queries into dK and dV."""
    _, _, dot, add, _ = make_part_functions(D, SPLIT, real)
    _, _, dot_v, add_v, _ = make_part_functions(D_v, SPLIT, real)
    weigh = make_weigh(real, has_bias, is_causal)

    @cuda.jit(device=True)
    def take_tile(
        dk, dv, k, v, q_tile, out_grad_tile, lse_tile, row_dot_tile,
        bias_BHLS, b, h, first, L, s, part,
    ):  # fmt: skip
        """SPLIT threads add what the tile's queries send back to their key."""
        for i in range(min(q_tile.shape[0], L - first)):
            score = dot(k, q_tile, i, part)
            weight = weigh(score, bias_BHLS, lse_tile[i], b, h, first + i, s)
            d_weight = dot_v(v, out_grad_tile, i, part)
            add(dk, weight * (d_weight - row_dot_tile[i]), q_tile, i, part)
            add_v(dv, weight, out_grad_tile, i, part)

    return take_tile


@functools.cache
def make_dkv_kernel(
    D: int,
    D_v: int,
    TILE_L: int,
    TILE_S: int,
    SPLIT: int,
    real: Any,
    has_bias: bool,
    is_causal: bool,
) -> Any:
    """Build the kernel for dK = scale · dSᵀ Q and dV = Pᵀ dO."""
    WIDTH, WIDTH_V = part_width(D, SPLIT), part_width(D_v, SPLIT)
    PADDED, PADDED_V = WIDTH * SPLIT, WIDTH_V * SPLIT
    load, clear, _, _, store = make_part_functions(D, SPLIT, real)
    load_v, clear_v, _, _, store_v = make_part_functions(D_v, SPLIT, real)
    load_rows, read_rows = make_load_rows(real), make_read_rows(real)
    take_tile = make_take_tile(D, D_v, SPLIT, real, has_bias, is_causal)

    @cuda.jit
    def dkv_kernel(
        dk_BHSD, dv_BHSD, q_BHLD, k_BHSD, v_BHSD, out_grad_BHLD,
        lse_BHL, row_dot_BHL, bias_BHLS, scale, group,
    ):  # fmt: skip
        """SPLIT threads per key; one block per TILE_S keys of a key head."""
        q_tile = cuda.shared.array((TILE_L, PADDED), real)
        out_grad_tile = cuda.shared.array((TILE_L, PADDED_V), real)
        lse_tile = cuda.shared.array(TILE_L, real)
        row_dot_tile = cuda.shared.array(TILE_L, real)
        k, v = cuda.local.array(WIDTH, real), cuda.local.array(WIDTH_V, real)
        dk, dv = cuda.local.array(WIDTH, real), cuda.local.array(WIDTH_V, real)
        part = cuda.threadIdx.x % SPLIT
        s = cuda.blockIdx.x * TILE_S + cuda.threadIdx.x // SPLIT
        L, H_kv = q_BHLD.shape[2], k_BHSD.shape[1]
        b, h_kv = cuda.blockIdx.y // H_kv, cuda.blockIdx.y % H_kv
        load(k, k_BHSD, b, h_kv, s, part, real(1.0))
        load_v(v, v_BHSD, b, h_kv, s, part, real(1.0))
        clear(dk)
        clear_v(dv)
        # With a causal mask no earlier tile has a query that sees these keys.
        start = cuda.blockIdx.x * TILE_S // TILE_L * TILE_L if is_causal else 0

        for h in range(h_kv * group, (h_kv + 1) * group):
            for first in range(start, L, TILE_L):
                # 1. Load: every thread brings its share of the queries.
                load_rows(q_tile, q_BHLD, b, h, first, scale)
                load_rows(out_grad_tile, out_grad_BHLD, b, h, first, real(1.0))
                read_rows(
                    lse_tile, row_dot_tile, lse_BHL, row_dot_BHL, b, h, first
                )
                cuda.syncthreads()  # all of it is there before anyone reads

                # 2. Compute: the gradients of a key add up over its group.
                take_tile(
                    dk, dv, k, v, q_tile, out_grad_tile, lse_tile,
                    row_dot_tile, bias_BHLS, b, h, first, L, s, part,
                )  # fmt: skip
                cuda.syncthreads()  # nobody overwrites a tile still being read

        # 3. Store
        store(dk_BHSD, b, h_kv, s, dk, part, real(1.0))
        store_v(dv_BHSD, b, h_kv, s, dv, part, real(1.0))

    return dkv_kernel
