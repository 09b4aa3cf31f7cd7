"""Correct kernels in which threads part around what they wait in."""

import numpy as np

from attention_lab.gpu import cuda

float32 = np.float32
FULL = 0xFFFFFFFF


@cuda.jit
def mask_of_those_who_call(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t < 16:
        out[t] = cuda.shfl_sync(0x0000FFFF, x[t], 0)


@cuda.jit
def mask_from_a_ballot(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    mask = cuda.ballot_sync(FULL, t >= 8)
    if t >= 8:
        out[t] = cuda.shfl_sync(mask, x[t], 8)


@cuda.jit
def two_halves(out, x):
    t = cuda.threadIdx.x
    if t < 16:
        out[t] = cuda.shfl_xor_sync(0x0000FFFF, x[t], 1)
    else:
        out[t] = cuda.shfl_xor_sync(0xFFFF0000, x[t], 1)


@cuda.jit
def returned_before_the_shuffle(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t >= 20:
        return
    out[t] = cuda.shfl_sync(FULL, x[t], 0)


@cuda.jit
def returned_before_the_vote(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t >= 20:
        return
    cuda.syncwarp()
    if cuda.any_sync(FULL, x[t] > 0):
        out[t] = float32(0.0)


@cuda.jit
def a_whole_warp_reduces(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t < 32:
        value = x[t]
        for step in (16, 8, 4, 2, 1):
            value += cuda.shfl_down_sync(FULL, value, step)
        if t == 0:
            out[0] = value


@cuda.jit
def lanes_meet_on_different_trips(out, x):
    t = cuda.threadIdx.x
    value = x[t]
    for k in range(2):
        if k == t % 2:
            value = cuda.shfl_xor_sync(FULL, value, 1)
    out[t] = value


@cuda.jit
def equal_trips_of_unequal_counters(out, x):
    t = cuda.threadIdx.x
    total = float32(0.0)
    for k in range(t, t + 3):
        total += x[k % x.shape[0]]
        cuda.syncthreads()
    out[t] = total


@cuda.jit
def strided_rows(out, x):
    t = cuda.threadIdx.x
    for k in range(t, x.shape[0], cuda.blockDim.x):
        cuda.syncthreads()
        out[k] = x[k]


@cuda.jit
def unequal_trips_of_a_loop_before(out, x):
    t = cuda.threadIdx.x
    total = float32(0.0)
    for k in range(t % 3 + 2):
        if k < 2:
            cuda.syncthreads()
        total += x[k]
    for _ in range(2):
        cuda.syncthreads()
    out[t] = total


@cuda.jit
def barriers_in_nested_loops(out, x):
    t = cuda.threadIdx.x
    total = float32(0.0)
    for r in range(3):
        for c in range(r):
            for _ in range(t % 4):
                total += x[c]
            cuda.syncthreads()
        if r == 1:
            continue
        cuda.syncthreads()
    out[t] = total


@cuda.jit(device=True)
def meets(value):
    cuda.syncthreads()
    return value


@cuda.jit
def helper_called_twice(out, x):
    t = cuda.threadIdx.x
    value = x[t]
    for k in range(3):
        value = meets(value)
        if k == 1:
            value = meets(value)
    out[t] = value


@cuda.jit
def halving(out, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    step = 32
    while step > 0:
        cuda.syncthreads()
        if t < step:
            s[t] += s[t + step]
        step //= 2
    out[t] = x[t]
    if t == 0:
        out[0] = s[0]


CORRECT = [
    (mask_of_those_who_call, 32),
    (mask_of_those_who_call, 24),  # lanes that do not exist
    (mask_from_a_ballot, 32),
    (two_halves, 32),
    (returned_before_the_shuffle, 32),
    (returned_before_the_vote, 32),
    (a_whole_warp_reduces, 64),
    (lanes_meet_on_different_trips, 32),
    (equal_trips_of_unequal_counters, 8),
    (strided_rows, 8),
    (unequal_trips_of_a_loop_before, 8),
    (barriers_in_nested_loops, 8),
    (helper_called_twice, 8),
    (halving, 64),
]
