"""Kernels that make an order by fences and atomic operations."""

import numpy as np

from attention_lab.gpu import cuda

float32 = np.float32
THREADS = 8


@cuda.jit
def last_block_adds_up(out, partial, count, x):
    """Each block adds its part; the last one to finish adds the parts."""
    s = cuda.shared.array(THREADS, float32)
    is_last = cuda.shared.array(1, np.int32)
    t = cuda.threadIdx.x
    s[t] = x[cuda.grid(1)]
    cuda.syncthreads()
    if t == 0:
        total = float32(0.0)
        for k in range(THREADS):
            total += s[k]
        partial[cuda.blockIdx.x] = total
        cuda.threadfence()
        before = cuda.atomic.add(count, 0, 1)
        is_last[0] = before == cuda.gridDim.x - 1
    cuda.syncthreads()
    if is_last[0] and t < cuda.gridDim.x:
        cuda.atomic.add(out, 0, partial[t])


@cuda.jit
def last_block_without_fence(out, partial, count, x):
    is_last = cuda.shared.array(1, np.int32)
    t = cuda.threadIdx.x
    if t == 0:
        partial[cuda.blockIdx.x] = x[cuda.blockIdx.x]
        is_last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if is_last[0] and t < cuda.gridDim.x:
        cuda.atomic.add(out, 0, partial[t])


@cuda.jit
def last_block_with_a_late_fence(out, partial, count, x):
    is_last = cuda.shared.array(1, np.int32)
    t = cuda.threadIdx.x
    if t == 0:
        partial[cuda.blockIdx.x] = x[cuda.blockIdx.x]
        is_last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
        cuda.threadfence()
    cuda.syncthreads()
    if is_last[0] and t < cuda.gridDim.x:
        cuda.atomic.add(out, 0, partial[t])


@cuda.jit
def last_block_with_a_narrow_fence(out, partial, count, x):
    is_last = cuda.shared.array(1, np.int32)
    t = cuda.threadIdx.x
    if t == 0:
        partial[cuda.blockIdx.x] = x[cuda.blockIdx.x]
        cuda.threadfence_block()
        is_last[0] = cuda.atomic.add(count, 0, 1) == cuda.gridDim.x - 1
    cuda.syncthreads()
    if is_last[0] and t < cuda.gridDim.x:
        cuda.atomic.add(out, 0, partial[t])


@cuda.jit
def reads_the_parts_before_counting(out, partial, count, x):
    t = cuda.threadIdx.x
    if t == 0:
        b = cuda.blockIdx.x
        partial[b] = x[b]
        other = partial[(b + 1) % cuda.gridDim.x]
        cuda.threadfence()
        cuda.atomic.add(count, 0, 1)
        cuda.atomic.add(out, 0, other)


@cuda.jit
def adds_under_a_lock(out, partial, count, x):
    if cuda.threadIdx.x % 4 == 0:
        while cuda.atomic.cas(count, 0, 0, 1) != 0:
            pass
        cuda.threadfence()
        out[0] += x[cuda.grid(1)]
        cuda.threadfence()
        cuda.atomic.exch(count, 0, 0)


@cuda.jit
def adds_under_a_lock_for_all(out, partial, count, x):
    while cuda.atomic.exch(count, 0, 1) != 0:
        pass
    out[0] = out[0] + x[cuda.grid(1)]
    cuda.threadfence_system()
    cuda.atomic.exch(count, 0, 0)


@cuda.jit
def lock_without_fence(out, partial, count, x):
    while cuda.atomic.cas(count, 0, 0, 1) != 0:
        pass
    out[0] += x[cuda.grid(1)]
    cuda.atomic.exch(count, 0, 0)


@cuda.jit
def frees_the_lock_by_a_store(out, partial, count, x):
    while cuda.atomic.cas(count, 0, 0, 1) != 0:
        pass
    out[0] += x[cuda.grid(1)]
    cuda.threadfence()
    count[0] = 0


@cuda.jit
def looks_without_the_lock(out, partial, count, x):
    partial[cuda.blockIdx.x] = out[0]
    while cuda.atomic.cas(count, 0, 0, 1) != 0:
        pass
    out[0] += x[cuda.grid(1)]
    cuda.threadfence()
    cuda.atomic.exch(count, 0, 0)


@cuda.jit
def another_lock_for_some(out, partial, count, x):
    lock = cuda.blockIdx.x % 2
    while cuda.atomic.cas(count, lock, 0, 1) != 0:
        pass
    out[0] += x[cuda.grid(1)]
    cuda.threadfence()
    cuda.atomic.exch(count, lock, 0)


@cuda.jit
def fence_without_an_atomic(out, partial, count, x):
    out[0] += x[cuda.grid(1)]
    cuda.threadfence()


CORRECT = [last_block_adds_up, adds_under_a_lock, adds_under_a_lock_for_all]
RACING = [
    last_block_without_fence,
    last_block_with_a_late_fence,
    last_block_with_a_narrow_fence,
    reads_the_parts_before_counting,
    lock_without_fence,
    frees_the_lock_by_a_store,
    looks_without_the_lock,
    another_lock_for_some,
    fence_without_an_atomic,
]
