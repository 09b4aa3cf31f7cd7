"""Kernels that compute the right thing in a way that deserves a note."""

import math

import numpy as np

from attention_lab.gpu import cuda

float32 = np.float32
N = 8


# -- notes --------------------------------------------------------------


@cuda.jit
def barrier_under_condition_that_holds(out, x):
    t = cuda.threadIdx.x
    if t < N:
        cuda.syncthreads()
    out[t] = x[t]


@cuda.jit
def barrier_after_return_not_taken(out, x):
    t = cuda.threadIdx.x
    if t >= N:
        return
    cuda.syncthreads()
    out[t] = x[t]


@cuda.jit
def two_on_a_line(out, x):
    a, b = cuda.shared.array(N, float32), cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    a[t] = x[t]
    b[t] = float32(5.0)
    cuda.syncthreads()
    out[t] = a[t]


# fmt: off
@cuda.jit
def two_statements_on_a_line(out, x):
    a = cuda.shared.array(N, float32); b = cuda.shared.array(N, float32)  # noqa: E702
    t = cuda.threadIdx.x
    a[t] = x[t]
    b[t] = float32(5.0)
    cuda.syncthreads()
    out[t] = a[t]
# fmt: on


@cuda.jit
def bare_accumulator(out, x):
    t = cuda.threadIdx.x
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k]
    out[t] = total


@cuda.jit
def bare_literals(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t] * 0.5 + 1.0


@cuda.jit
def bare_infinity(out, x):
    t = cuda.threadIdx.x
    largest = -math.inf
    for k in range(x.shape[0]):
        if x[k] > largest:
            largest = x[k]
    out[t] = largest


@cuda.jit
def divides_by_a_count(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t] / x.shape[0]


@cuda.jit
def scale_is_a_python_float(out, x, scale):
    t = cuda.threadIdx.x
    out[t] = x[t] * scale


@cuda.jit
def rows_across_lanes(out, x):
    t = cuda.threadIdx.x
    total = float32(0.0)
    for c in range(x.shape[1]):
        total += x[t, c]
    out[t] = total


@cuda.jit
def transposed_store(out, x):
    c, r = cuda.grid(2)
    out[c, r] = x[r, c]


@cuda.jit
def column_of_a_tile(out, x):
    s = cuda.shared.array((32, 32), float32)
    t = cuda.threadIdx.x
    for r in range(32):
        s[r, t] = x[r, t]
    cuda.syncthreads()
    for r in range(32):
        out[r, t] = s[t, r]


@cuda.jit
def every_second_word(out, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[2 * t] = x[t]
    out[t] = s[2 * t]
