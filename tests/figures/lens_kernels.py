"""Small kernels for the figures that show recordings, recorded."""

import numpy as np
from numba import float32

from attention_lab.gpu import cuda, record


@cuda.jit
def reverse(out, x):
    """One block turns its 64 numbers round."""
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    cuda.syncthreads()  # the tile is complete before a neighbour reads it
    out[t] = tile[63 - t]


@cuda.jit
def reverse_without_barrier(out, x):
    """The same, with a race."""
    tile = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    out[t] = tile[63 - t]


@cuda.jit
def add_rows(out, x):
    """One thread per row of x."""
    t = cuda.threadIdx.x
    total = float32(0.0)
    for column in range(x.shape[1]):
        total += x[t, column]
    out[t] = total


@cuda.jit
def transpose(out, x):
    """One thread per column, through a tile of 32 rows."""
    tile = cuda.shared.array((32, 32), float32)
    t = cuda.threadIdx.x
    for row in range(x.shape[0]):
        tile[row, t] = x[row, t]
    cuda.syncthreads()  # the tile is complete before it is read
    for row in range(x.shape[0]):
        out[row, t] = tile[t, row]


@cuda.jit
def triangle(out, x):
    """Thread (s, row) adds up row + 1 numbers: lanes part in the loop."""
    s, row = cuda.grid(2)
    total = float32(0.0)
    if row < x.shape[0] and s < x.shape[1]:
        for k in range(row + 1):
            total += x[k, s]
        out[row, s] = total


def numbers(*shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def nothing(*shape):
    return np.full(shape, np.nan, np.float32)


def record_lens_kernels():
    """Right, with a race, strided, and with bank conflicts."""
    return {
        "with a barrier": record(reverse, 1, 64, nothing(64), numbers(64)),
        "without": record(
            reverse_without_barrier, 1, 64, nothing(64), numbers(64)
        ),
        "add rows": record(
            add_rows, 1, 32, nothing(32), numbers(32, 8)
        ).against({"x": (256, 0), "out": (0, 32)}),
        "transpose": record(transpose, 1, 32, nothing(32, 32), numbers(32, 32)),
    }


def record_triangle():
    """Blocks of 4 × 3 threads over 5 rows of 7 numbers: ragged both ways."""
    return record(triangle, (2, 2), (4, 3), nothing(5, 7), numbers(5, 7))
