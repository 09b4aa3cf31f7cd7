"""Wrong kernels whose threads do not all meet the operation they wait in."""

import numpy as np

from attention_lab.gpu import cuda

float32 = np.float32
FULL = 0xFFFFFFFF


# -- warp-divergent shuffle: the others run past the call ----------------


@cuda.jit
def shuffle_for_half_a_warp(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t < 16:
        out[t] = cuda.shfl_sync(FULL, x[t], 0)


@cuda.jit
def vote_for_half_a_warp(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t < 16:
        out[t] = float32(cuda.ballot_sync(FULL, x[t] > 0))


@cuda.jit
def any_for_half_a_warp(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t % 2 == 0 and cuda.any_sync(FULL, x[t] > 0):
        out[t] = float32(1.0)


@cuda.jit
def all_for_half_a_warp(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t % 2 == 0 and cuda.all_sync(FULL, x[t] > 0):
        out[t] = float32(1.0)


@cuda.jit
def syncwarp_for_half_a_warp(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t < 16:
        cuda.syncwarp()


@cuda.jit
def shuffle_in_unequal_trips(out, x):
    t = cuda.threadIdx.x
    value = x[t]
    for _ in range(t % 3):
        value = cuda.shfl_xor_sync(FULL, value, 1)
    out[t] = value


@cuda.jit
def shuffle_in_a_while_left_early(out, x):
    t = cuda.threadIdx.x
    value = x[t]
    k = 0
    while k < 4:
        if k == t:
            break
        value = cuda.shfl_xor_sync(FULL, value, 1)
        k += 1
    out[t] = value


@cuda.jit
def others_return_after_the_shuffle(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t < 16:
        out[t] = cuda.shfl_sync(FULL, x[t], 0)
    else:
        return


@cuda.jit
def others_wait_for_themselves(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t < 16:
        out[t] = cuda.shfl_sync(FULL, x[t], 0)
    else:
        cuda.syncwarp(0xFFFF0000)


@cuda.jit(device=True)
def broadcast(value):
    return cuda.shfl_sync(FULL, value, 0)


@cuda.jit
def shuffle_in_a_helper_for_some(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t != 5:
        out[t] = broadcast(x[t])


# -- divergent barrier: one statement, another trip ----------------------


@cuda.jit
def barrier_on_another_trip(out, x):
    t = cuda.threadIdx.x
    for k in range(2):
        if t // 4 == k:
            cuda.syncthreads()
    out[t] = x[t]


@cuda.jit
def continue_before_the_barrier(out, x):
    t = cuda.threadIdx.x
    for k in range(3):
        if k == t % 3:
            continue
        cuda.syncthreads()
    out[t] = x[t]


@cuda.jit
def while_with_other_trips(out, x):
    t = cuda.threadIdx.x
    k = 0
    while k < 2:
        if k == t // 4:
            cuda.syncthreads()
        k += 1
    out[t] = x[t]


@cuda.jit
def other_trip_of_the_outer_loop(out, x):
    t = cuda.threadIdx.x
    for r in range(2):
        for _ in range(2):
            if r == t % 2:
                cuda.syncthreads()
    out[t] = x[t]


@cuda.jit
def other_trip_of_the_inner_loop(out, x):
    t = cuda.threadIdx.x
    for _ in range(2):
        for c in range(2):
            if c == t % 2:
                cuda.syncthreads()
    out[t] = x[t]


@cuda.jit(device=True)
def meets(value):
    cuda.syncthreads()
    return value


@cuda.jit
def barrier_of_a_helper_on_another_trip(out, x):
    t = cuda.threadIdx.x
    value = x[t]
    for k in range(2):
        if t % 2 == k:
            value = meets(value)
    out[t] = value


@cuda.jit
def barrier_of_a_helper_in_two_calls(out, x):
    t = cuda.threadIdx.x
    value = meets(x[t]) if t % 2 == 0 else meets(float32(2.0) * x[t])
    out[t] = value


@cuda.jit
def vote_on_another_trip(out, x):
    t = cuda.threadIdx.x
    count = 0
    for k in range(2):
        if t // 4 == k:
            count = cuda.syncthreads_count(x[t] > 0)
    out[t] = float32(count)


@cuda.jit
def barrier_in_a_loop_over_a_tuple(out, x):
    t = cuda.threadIdx.x
    for k in (0, 1):
        if t // 4 == k:
            cuda.syncthreads()
    out[t] = x[t]


WARP_MUTANTS = [
    shuffle_for_half_a_warp,
    vote_for_half_a_warp,
    any_for_half_a_warp,
    all_for_half_a_warp,
    syncwarp_for_half_a_warp,
    shuffle_in_unequal_trips,
    shuffle_in_a_while_left_early,
    others_return_after_the_shuffle,
    others_wait_for_themselves,
    shuffle_in_a_helper_for_some,
]
BARRIER_MUTANTS = [
    barrier_on_another_trip,
    continue_before_the_barrier,
    while_with_other_trips,
    other_trip_of_the_outer_loop,
    other_trip_of_the_inner_loop,
    barrier_of_a_helper_on_another_trip,
    barrier_of_a_helper_in_two_calls,
    vote_on_another_trip,
    barrier_in_a_loop_over_a_tuple,
]
