"""Exhibits: kernels that forget a barrier, a guard, a block or a type.

Each exhibit returns a `KernelCase`. The kernels that compute attention stand
in `attention_kernels`; they belong to this room.
"""

import math

import numpy as np

from attention_lab.gpu import cuda
from attention_lab.verify.kernel.case import KernelCase, Launch
from attention_lab.verify.museum.attention_kernels import (
    kernel_acc_not_rescaled,
    kernel_stale_tile,
    kernel_tail_unmasked,
    padding_width_read,
    post_2_kernel,
    shared_arrays_aliased,
)

__all__ = [
    "barrier_under_condition",
    "early_return_before_barrier",
    "float64_accumulator",
    "grid_too_small",
    "guard_missing",
    "kernel_acc_not_rescaled",
    "kernel_stale_tile",
    "kernel_tail_unmasked",
    "missing_barrier_after_load",
    "missing_barrier_before_next_load",
    "nan_blind_test",
    "padding_width_read",
    "post_2_kernel",
    "race_on_a_sum",
    "shared_arrays_aliased",
    "shared_size_from_argument",
    "too_many_threads",
    "too_much_shared_memory",
    "uninitialised_shared",
]

float32 = np.float32
TILE = 8
WIDE = 128  # a tile of WIDE × WIDE numbers is 64 KiB


def _normal(*shape):
    return np.random.default_rng(5).standard_normal(shape).astype(np.float32)


def _over_rows(L, S):
    """Launch one thread per row of a matrix-vector product."""
    out_L = np.zeros(L, np.float32)
    return Launch(-(-L // TILE), TILE, (out_L, _normal(L, S), _normal(S)))


def _product(a_LS, x_S):
    return a_LS @ x_S


def _over_numbers(L):
    """Launch one thread per number."""
    return Launch(-(-L // TILE), TILE, (np.zeros(L, np.float32), _normal(L)))


# -- barriers -----------------------------------------------------------------


@cuda.jit
def _mirror_kernel(out_L, x_L):
    """One thread per number; each block reverses its own tile."""
    tile = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    first = cuda.blockIdx.x * TILE
    size = min(TILE, x_L.shape[0] - first)
    if t < size:
        tile[t] = x_L[first + t]
    if t < size:
        out_L[first + t] = tile[size - 1 - t]


def missing_barrier_after_load():
    """Read a neighbour's number before the neighbour has loaded it."""

    def mirrored(x_L):
        tiles = [x_L[i : i + TILE][::-1] for i in range(0, len(x_L), TILE)]
        return np.concatenate(tiles)

    return KernelCase(_mirror_kernel, _over_numbers, mirrored, {})


@cuda.jit
def _hasty_product_kernel(out_L, a_LS, x_S):
    """One thread per row; x passes through shared memory tile by tile."""
    x_tile = cuda.shared.array(TILE, float32)
    row = cuda.grid(1)
    t = cuda.threadIdx.x
    L, S = a_LS.shape
    total = float32(0.0)
    for s0 in range(0, S, TILE):
        if s0 + t < S:
            x_tile[t] = x_S[s0 + t]
        cuda.syncthreads()  # the tile is complete before anyone reads it
        if row < L:
            for s in range(min(TILE, S - s0)):
                total += a_LS[row, s0 + s] * x_tile[s]
    if row < L:
        out_L[row] = total


def missing_barrier_before_next_load():
    """Load the next tile while others still read this one."""
    return KernelCase(_hasty_product_kernel, _over_rows, _product, {})


@cuda.jit
def _leaving_product_kernel(out_L, a_LS, x_S):
    """One thread per row; threads without a row leave at once."""
    x_tile = cuda.shared.array(TILE, float32)
    row = cuda.grid(1)
    t = cuda.threadIdx.x
    L, S = a_LS.shape
    if row >= L:
        return
    total = float32(0.0)
    for s0 in range(0, S, TILE):
        if s0 + t < S:
            x_tile[t] = x_S[s0 + t]
        cuda.syncthreads()
        for s in range(min(TILE, S - s0)):
            total += a_LS[row, s0 + s] * x_tile[s]
        cuda.syncthreads()
    out_L[row] = total


def early_return_before_barrier():
    """Return in the threads that have no row, before a barrier."""
    return KernelCase(_leaving_product_kernel, _over_rows, _product, {})


@cuda.jit
def _conditional_product_kernel(out_L, a_LS, x_S):
    """One thread per row; only the threads that load wait for the tile."""
    x_tile = cuda.shared.array(TILE, float32)
    row = cuda.grid(1)
    t = cuda.threadIdx.x
    L, S = a_LS.shape
    total = float32(0.0)
    for s0 in range(0, S, TILE):
        if s0 + t < S:
            x_tile[t] = x_S[s0 + t]
            cuda.syncthreads()
        if row < L:
            for s in range(min(TILE, S - s0)):
                total += a_LS[row, s0 + s] * x_tile[s]
        cuda.syncthreads()
    if row < L:
        out_L[row] = total


def barrier_under_condition():
    """Put the barrier under the guard of the load."""
    return KernelCase(_conditional_product_kernel, _over_rows, _product, {})


# -- grid, guard, launch ------------------------------------------------------


@cuda.jit
def _halve_kernel(out_L, x_L):
    """One thread per number."""
    i = cuda.grid(1)
    if i < out_L.shape[0]:
        out_L[i] = x_L[i] * float32(0.5)


def _halved(x_L):
    return x_L / 2


def grid_too_small():
    """Divide the length by the block and round down."""

    def launch(L):
        return _over_numbers(L)._replace(grid=max(1, L // TILE))

    return KernelCase(_halve_kernel, launch, _halved, {})


@cuda.jit
def _unguarded_kernel(out_L, x_L):
    """One thread per number, and some that have none."""
    i = cuda.grid(1)
    out_L[i] = x_L[i] * float32(0.5)


def guard_missing():
    """Leave out the condition that a thread has a number."""
    return KernelCase(_unguarded_kernel, _over_numbers, _halved, {})


def too_many_threads():
    """Ask for one block of 2048 threads."""

    def launch(L):
        return _over_numbers(L)._replace(grid=-(-L // 2048), block=2048)

    return KernelCase(_halve_kernel, launch, _halved, {})


@cuda.jit
def _wide_transpose_kernel(out_SL, x_LS):
    """One block per WIDE × WIDE patch, which passes through shared memory."""
    tile = cuda.shared.array((WIDE, WIDE), float32)
    s, row = cuda.grid(2)
    if row < x_LS.shape[0] and s < x_LS.shape[1]:
        tile[cuda.threadIdx.y, cuda.threadIdx.x] = x_LS[row, s]
    cuda.syncthreads()  # the tile is complete before anyone reads it
    if row < x_LS.shape[0] and s < x_LS.shape[1]:
        out_SL[s, row] = tile[cuda.threadIdx.y, cuda.threadIdx.x]


def too_much_shared_memory():
    """Ask for a tile of 64 KiB, where a block has 48."""

    def launch(L, S):
        grid = (-(-S // TILE), -(-L // TILE))
        return Launch(
            grid, (TILE, TILE), (np.zeros((S, L), np.float32), _normal(L, S))
        )

    return KernelCase(_wide_transpose_kernel, launch, lambda x_LS: x_LS.T, {})


@cuda.jit
def _sized_mirror_kernel(out_L, x_L, size):
    """One block; the tile is as long as the array."""
    tile = cuda.shared.array(size, float32)
    t = cuda.threadIdx.x
    tile[t] = x_L[t]
    cuda.syncthreads()  # the tile is complete before anyone reads it
    out_L[t] = tile[size - 1 - t]


def shared_size_from_argument():
    """Give a shared array a size that is known at launch only."""

    def launch(L):
        return Launch(1, L, (np.zeros(L, np.float32), _normal(L), L))

    return KernelCase(
        _sized_mirror_kernel, launch, lambda x_L, size: x_L[::-1], {}
    )


# -- memory and numbers -------------------------------------------------------


@cuda.jit
def _plain_sum_kernel(total_1, x_L):
    """One thread per number; all add to one place."""
    i = cuda.grid(1)
    if i < x_L.shape[0]:
        total_1[0] += x_L[i]


def race_on_a_sum():
    """Add to one number from many threads, without an atomic."""

    def launch(L):
        total_1 = np.zeros(1, np.float32)
        return Launch(
            -(-L // TILE), TILE, (total_1, _normal(L)), accumulates=True
        )

    return KernelCase(
        _plain_sum_kernel, launch, lambda start, x_L: start + x_L.sum(), {}
    )


@cuda.jit
def _unzeroed_sum_kernel(total_1, x_L):
    """One block; each thread adds up its share, then thread 0 all shares."""
    partial = cuda.shared.array(TILE, float32)
    t = cuda.threadIdx.x
    for i in range(t, x_L.shape[0], TILE):
        partial[t] += x_L[i]
    cuda.syncthreads()  # all shares are complete before thread 0 reads them
    if t == 0:
        total = float32(0.0)
        for k in range(TILE):
            total += partial[k]
        total_1[0] = total


def uninitialised_shared():
    """Add to shared memory that nobody set to 0."""

    def launch(L):
        return Launch(1, TILE, (np.zeros(1, np.float32), _normal(L)))

    return KernelCase(
        _unzeroed_sum_kernel, launch, lambda x_L: x_L.sum(keepdims=True), {}
    )


@cuda.jit
def _double_product_kernel(out_L, a_LS, x_S):
    """One thread per row."""
    row = cuda.grid(1)
    L, S = a_LS.shape
    if row < L:
        total = 0.0
        for s in range(S):
            total += a_LS[row, s] * x_S[s]
        out_L[row] = total


def float64_accumulator():
    """Start a sum from 0.0, which Numba takes for a float64."""
    return KernelCase(_double_product_kernel, _over_rows, _product, {})


@cuda.jit
def _strictly_causal_mean_kernel(out_L, x_L):
    """One thread per query: the mean of all numbers before its own."""
    row = cuda.grid(1)
    if row < x_L.shape[0]:
        total = float32(0.0)
        count = float32(0.0)
        for s in range(row):
            weight = math.exp(float32(0.0))
            total += weight * x_L[s]
            count += weight
        out_L[row] = total / count


def nan_blind_test():
    """Divide 0 by 0 in the one row that sees nothing."""

    def means(x_L):
        return np.array([x_L[:i].mean() if i else 0.0 for i in range(len(x_L))])

    return KernelCase(_strictly_causal_mean_kernel, _over_numbers, means, {})
