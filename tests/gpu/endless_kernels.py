"""Kernels with loops that never end here, and long ones that do."""

import numpy as np

from attention_lab.gpu import cuda

float32 = np.float32

# -- waiting for memory that nobody changes in the meantime ---------------


@cuda.jit
def waits_for_a_flag(flag, out):
    if cuda.threadIdx.x == 0:
        while flag[0] == 0:
            pass
    out[cuda.grid(1)] = 1


@cuda.jit
def waits_and_counts(flag, out):
    trips = 0
    while flag[0] == 0:
        trips += 1
    out[cuda.grid(1)] = trips


@cuda.jit
def breaks_when_the_flag_is_set(flag, out):
    while True:
        value = flag[0]
        if value > 0:
            break
    out[cuda.grid(1)] = value


@cuda.jit
def waits_for_the_grid(flag, out):
    t = cuda.threadIdx.x
    cuda.syncthreads()
    if t == 0:
        cuda.atomic.add(flag, 0, 1)
        while cuda.atomic.add(flag, 0, 0) < cuda.gridDim.x:
            pass
    cuda.syncthreads()
    out[cuda.grid(1)] = t


@cuda.jit
def waits_for_the_grid_by_max(flag, out):
    cuda.atomic.add(flag, 0, 1)
    while cuda.atomic.max(flag, 0, 0) < cuda.gridDim.x * cuda.blockDim.x:
        pass
    out[cuda.grid(1)] = 1


@cuda.jit
def takes_a_lock_twice(flag, out):
    while cuda.atomic.cas(flag, 0, 0, 1) != 0:
        pass
    out[cuda.grid(1)] = 1


@cuda.jit
def takes_a_lock_by_exchange(flag, out):
    while cuda.atomic.exch(flag, 0, 1) != 0:
        pass
    out[cuda.grid(1)] = 1


@cuda.jit(device=True)
def is_open(flag):
    if flag[0] < 0:
        return False
    return flag[0] > 0


@cuda.jit
def waits_in_a_helper(flag, out):
    while not is_open(flag):
        pass
    out[cuda.grid(1)] = 1


@cuda.jit
def waits_for_all_flags(flag, out):
    while True:
        ready = 0
        for k in range(flag.shape[0]):
            ready += flag[k]
        if ready == flag.shape[0]:
            break
    out[cuda.grid(1)] = 1


@cuda.jit
def waits_in_shared_memory(flag, out):
    s = cuda.shared.array(1, np.int32)
    t = cuda.threadIdx.x
    if t == 0:
        s[0] = 0
    cuda.syncthreads()
    if t == 1:
        while s[0] == 0:
            out[cuda.grid(1)] = 2  # not what the loop waits for
    cuda.syncthreads()
    if t == 0:
        s[0] = 1


@cuda.jit
def all_wait_together(flag, out):
    while flag[0] == 0:
        cuda.syncthreads()
    out[cuda.grid(1)] = 1


@cuda.jit
def a_warp_waits_together(flag, out):
    while flag[0] == 0:
        cuda.syncwarp(0xFF)
    out[cuda.grid(1)] = 1


SPINS = [
    waits_for_a_flag,
    waits_and_counts,
    breaks_when_the_flag_is_set,
    waits_for_the_grid,
    waits_for_the_grid_by_max,
    takes_a_lock_twice,
    takes_a_lock_by_exchange,
    waits_in_a_helper,
    waits_for_all_flags,
    waits_in_shared_memory,
    all_wait_together,
    a_warp_waits_together,
]

# -- loops in which nothing brings the end nearer -------------------------


@cuda.jit
def for_ever(flag, out):
    while True:
        out[cuda.grid(1)] += 1


@cuda.jit
def forgets_to_count(flag, out):
    i = cuda.grid(1)
    k = 0
    while k < i + 1:
        out[i] = k


@cuda.jit
def counts_something_else(flag, out):
    i = cuda.grid(1)
    k, m = 0, 0
    while k < 10:
        m = k
        if m > 3:
            continue
        out[i] = m


ENDLESS = [for_ever, forgets_to_count, counts_something_else]

# -- loops that may take long, and end ------------------------------------


@cuda.jit
def counts_to(flag, out):
    k = 0
    while k < flag[1]:
        k += 1
    out[cuda.grid(1)] = k


@cuda.jit
def counts_in_memory(flag, out):
    i = cuda.grid(1)
    out[i] = 0
    while out[i] < flag[1]:
        out[i] += 1


@cuda.jit
def counts_by_atomics(flag, out):
    i = cuda.grid(1)
    out[i] = 0
    while cuda.atomic.add(out, i, 1) < flag[1] - 1:
        pass


@cuda.jit
def swaps_until_it_is_first(flag, out):
    i = cuda.grid(1)
    out[i] = 0
    while cuda.atomic.cas(out, i, out[i], out[i] + 1) < flag[1] - 1:
        pass


@cuda.jit
def searches(flag, out):
    k = 0
    while True:
        if k >= flag[1]:
            break
        k = k + 1
    out[cuda.grid(1)] = k


@cuda.jit
def counts_two_steps_back(flag, out):
    a, b, c = 0, 0, 0
    while a < flag[1]:
        a = b
        b = c
        c = a + 1
    out[cuda.grid(1)] = a


@cuda.jit
def counts_with_barriers(flag, out):
    s = cuda.shared.array(1, np.int64)
    t = cuda.threadIdx.x
    if t == 0:
        s[0] = 0
    cuda.syncthreads()
    while s[0] < flag[1]:
        cuda.syncthreads()
        if t == 0:
            s[0] += 1
        cuda.syncthreads()
    out[cuda.grid(1)] = s[0]


LONG = [
    counts_to,
    counts_in_memory,
    counts_by_atomics,
    swaps_until_it_is_first,
    searches,
    counts_two_steps_back,
    counts_with_barriers,
]


@cuda.jit
def oscillates(flag, out):
    k = 1
    while k != 0:
        k = -k
    out[cuda.grid(1)] = k


@cuda.jit
def walks_a_square(flag, out):
    n = flag[1]
    total = 0
    r = 0
    while r < n:
        c = 0
        while c < n:
            total += (r ^ c) & 1
            c += 1
        r += 1
    out[cuda.grid(1)] = total


@cuda.jit
def stops_in_a_loop(flag, out):
    k = 0
    while True:
        k += 1
        if k == flag[1]:
            raise ValueError("too many trips")


@cuda.jit
def has_a_dead_branch(flag, out):
    scale = None
    k = 0
    while k < flag[1]:
        if scale is None:
            k += 1
        else:
            cuda.syncthreads()
            k = scale[0] if scale is not None else k
    out[cuda.grid(1)] = k
