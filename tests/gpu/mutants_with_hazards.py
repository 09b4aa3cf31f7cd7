"""Wrong kernels that must be named as hazards; `mutants` launches them."""

import numpy as np

from attention_lab.gpu import cuda

float32 = np.float32
FULL = 0xFFFFFFFF
N = 8
TILE = 8
BIG = 128


# -- race ---------------------------------------------------------------


@cuda.jit
def reversed_without_barrier(out, x):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    out[t] = s[N - 1 - t]


@cuda.jit
def tiles_without_second_barrier(out, q, k):
    q_tile = cuda.shared.array((TILE, TILE), float32)
    k_tile = cuda.shared.array((TILE, TILE), float32)
    tx = cuda.threadIdx.x
    ty = cuda.threadIdx.y
    dot = float32(0.0)
    for d0 in range(0, q.shape[1], TILE):
        q_tile[ty, tx] = q[ty, d0 + tx]
        k_tile[ty, tx] = k[ty, d0 + tx]
        cuda.syncthreads()
        for d in range(TILE):
            dot += q_tile[ty, d] * k_tile[tx, d]
    out[ty, tx] = dot


@cuda.jit
def reduction_without_barrier(out, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    step = 32
    while step > 0:
        if t < step:
            s[t] += s[t + step]
        step //= 2
    if t == 0:
        out[0] = s[0]


@cuda.jit
def everybody_writes_one(out, x):
    s = cuda.shared.array(1, float32)
    s[0] = x[0]
    cuda.syncthreads()
    out[cuda.threadIdx.x] = s[0]


@cuda.jit
def lost_update(out, x):
    i = cuda.grid(1)
    out[0] += x[i]


@cuda.jit
def blocks_overlap(out, x):
    i = cuda.blockIdx.x * (cuda.blockDim.x - 1) + cuda.threadIdx.x
    out[i] = x[i]


@cuda.jit
def barrier_for_the_grid(out, x):
    i = cuda.grid(1)
    x[i] = x[i] * float32(2.0)
    cuda.syncthreads()
    out[i] = x[x.shape[0] - 1 - i]


@cuda.jit
def warp_barrier_between_warps(out, x):
    s = cuda.shared.array(64, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncwarp()
    out[t] = s[63 - t]


@cuda.jit
def half_a_warp_waits(out, x):
    s = cuda.shared.array(32, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    if t < 16:
        cuda.syncwarp(0x0000FFFF)
    out[t] = s[31 - t]


@cuda.jit
def atomic_and_plain_read(out, x):
    i = cuda.threadIdx.x
    cuda.atomic.add(x, 0, float32(1.0))
    out[i] = x[0]


# -- divergent barrier --------------------------------------------------


@cuda.jit
def barrier_under_condition(out, x):
    t = cuda.threadIdx.x
    if t < 4:
        out[t] = x[t]
        cuda.syncthreads()
    else:
        out[t] = x[t]


@cuda.jit
def two_barriers_for_one(out, x):
    t = cuda.threadIdx.x
    out[t] = x[t]
    if t % 2 == 0:
        cuda.syncthreads()
    else:
        cuda.syncthreads()


@cuda.jit
def return_before_barrier(out, x):
    t = cuda.threadIdx.x
    if t >= 5:
        return
    out[t] = x[t]
    cuda.syncthreads()


@cuda.jit
def unequal_trips(out, x):
    t = cuda.threadIdx.x
    for _ in range(t + 1):
        cuda.syncthreads()
    out[t] = x[t]


@cuda.jit(device=True)
def waits(value):
    cuda.syncthreads()
    return value


@cuda.jit
def barrier_in_a_helper_under_condition(out, x):
    t = cuda.threadIdx.x
    value = x[t]
    if value > 0:
        value = waits(value)
    out[t] = value


@cuda.jit
def break_before_barrier(out, x):
    t = cuda.threadIdx.x
    for k in range(4):
        if k > t:
            break
        cuda.syncthreads()
    out[t] = x[t]


# -- out of bounds ------------------------------------------------------


@cuda.jit
def no_guard(out, x):
    i = cuda.grid(1)
    out[i] = x[i]


@cuda.jit
def one_too_far(out, x):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = x[i + 1]


@cuda.jit
def left_neighbour(out, x):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = x[i - 1]


SHORT = N - 1


@cuda.jit
def tile_one_short(out, x):
    s = cuda.shared.array(SHORT, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[t]


@cuda.jit
def column_for_row(out, x):
    c, r = cuda.grid(2)
    out[r, c] = x[c, r]


# -- uninitialised read -------------------------------------------------


@cuda.jit
def reads_shared_nobody_filled(out, x):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    if t < 4:
        s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[t]


@cuda.jit
def accumulates_into_nothing(out, x):
    acc = cuda.local.array(2, float32)
    t = cuda.threadIdx.x
    for k in range(2):
        acc[k] += x[t]
    out[t] = acc[0] + acc[1]


@cuda.jit
def atomics_into_nothing(out, x):
    s = cuda.shared.array(1, float32)
    t = cuda.threadIdx.x
    cuda.atomic.add(s, 0, x[t])
    cuda.syncthreads()
    if t < out.shape[0]:
        out[t] = s[0]


@cuda.jit
def reads_before_its_own_write(out, x):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    old = s[t]
    s[t] = x[t]
    out[t] = old


# -- unwritten output ---------------------------------------------------


@cuda.jit
def copies(out, x):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = x[i]


@cuda.jit
def forgets_the_zeros(out, x):
    i = cuda.grid(1)
    if i < out.shape[0] and x[i] > 0:
        out[i] = x[i]


@cuda.jit
def forgets_the_last_column(out, x):
    r = cuda.grid(1)
    if r < out.shape[0]:
        for c in range(out.shape[1] - 1):
            out[r, c] = x[r, c]


# -- launches that no GPU accepts ---------------------------------------


@cuda.jit
def big_tiles(out, x):
    k_tile = cuda.shared.array((64, BIG), float32)
    v_tile = cuda.shared.array((64, BIG), float32)
    t = cuda.threadIdx.x
    k_tile[0, t] = x[t]
    v_tile[0, t] = x[t]
    out[t] = k_tile[0, t] + v_tile[0, t]


@cuda.jit
def dynamic_tile(out, x):
    s = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    out[t] = s[t]


# -- warp-divergent shuffle ---------------------------------------------


@cuda.jit
def shuffle_under_condition(out, x):
    t = cuda.threadIdx.x
    value = x[t]
    if t < 16:
        value += cuda.shfl_down_sync(FULL, value, 8)
    cuda.syncwarp()
    out[t] = value


@cuda.jit
def shuffle_after_return(out, x):
    t = cuda.threadIdx.x
    if t >= 20:
        return
    out[t] = cuda.shfl_xor_sync(FULL, x[t], 16)


@cuda.jit
def mask_without_me(out, x):
    t = cuda.threadIdx.x
    out[t] = cuda.shfl_sync(0x0000FFFF, x[t], 0)


@cuda.jit
def shuffle_from_outside_the_mask(out, x):
    t = cuda.threadIdx.x
    value = x[t]
    if t < 16:
        value = cuda.shfl_sync(0x0000FFFF, value, 20)
    out[t] = value


@cuda.jit
def shuffle_wider_than_the_block(out, x):
    t = cuda.threadIdx.x
    value = x[t]
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(FULL, value, offset)
    out[t] = value
