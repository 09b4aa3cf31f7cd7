"""Three correct kernels with all that `verify_kernel` needs to break them."""

import math

import numpy as np

from attention_lab.gpu import cuda
from attention_lab.verify.kernel.case import KernelCase, Launch

float32 = np.float32
MINUS_INFINITY = np.float32(-np.inf)
TILE = 4
D = 3
THREADS = 8
SIZES = [{"L": n, "S": m} for n, m in ((1, 1), (4, 4), (3, 5), (9, 13))]


def normal(*shape):
    return np.random.default_rng(3).standard_normal(shape).astype(np.float32)


def cdiv(a, b):
    return -(-a // b)


@cuda.jit
def tiled_product_kernel(out_L, a_LS, x_S):
    """One thread per row; x passes through shared memory tile by tile."""
    x_tile = cuda.shared.array(TILE, float32)
    row = cuda.blockIdx.x * TILE + cuda.threadIdx.x
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
        cuda.syncthreads()  # nobody overwrites a tile still being read
    if row < L:
        out_L[row] = total


def tiled_product():
    def launch(L, S):
        args = (np.zeros(L, np.float32), normal(L, S), normal(S))
        return Launch(cdiv(L, TILE), TILE, args)

    def traffic(L, S):
        return {
            "a_LS": (L * S, 0),
            "x_S": (cdiv(L, TILE) * S, 0),
            "out_L": (0, L),
        }

    return KernelCase(
        tiled_product_kernel,
        launch,
        np.matmul,
        {"sizes": SIZES, "traffic": traffic},
    )


@cuda.jit
def flash_kernel(out_LD, q_LD, k_SD, v_SD, scale):
    """One thread per query; keys and values pass through shared memory."""
    k_tile = cuda.shared.array((TILE, D), float32)
    v_tile = cuda.shared.array((TILE, D), float32)
    acc = cuda.local.array(D, float32)
    row = cuda.blockIdx.x * TILE + cuda.threadIdx.x
    t = cuda.threadIdx.x
    L, S = q_LD.shape[0], k_SD.shape[0]
    row_max = MINUS_INFINITY
    row_sum = float32(0.0)
    for d in range(D):
        acc[d] = float32(0.0)
    for s0 in range(0, S, TILE):
        if s0 + t < S:
            for d in range(D):
                k_tile[t, d] = k_SD[s0 + t, d]
                v_tile[t, d] = v_SD[s0 + t, d]
        cuda.syncthreads()  # the tiles are complete before anyone reads them
        if row < L:
            for s in range(min(TILE, S - s0)):
                score = float32(0.0)
                for d in range(D):
                    score += q_LD[row, d] * k_tile[s, d]
                score *= scale
                new_max = max(row_max, score)
                rescale = math.exp(row_max - new_max)
                weight = math.exp(score - new_max)
                row_sum = row_sum * rescale + weight
                row_max = new_max
                for d in range(D):
                    acc[d] = acc[d] * rescale + weight * v_tile[s, d]
        cuda.syncthreads()  # nobody overwrites a tile still being read
    if row < L:
        for d in range(D):
            out_LD[row, d] = acc[d] / row_sum


def flash():
    def launch(L, S):
        args = (
            np.zeros((L, D), np.float32),
            normal(L, D),
            normal(S, D) * 2,
            normal(S, D) + 1,
            np.float32(D**-0.5),
        )
        return Launch(cdiv(L, TILE), TILE, args)

    def reference(q, k, v, scale):
        scores = q @ k.T * scale
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v

    def traffic(L, S):
        loaded = cdiv(L, TILE) * S * D
        return {
            "q_LD": (L * S * D, 0),
            "k_SD": (loaded, 0),
            "v_SD": (loaded, 0),
            "out_LD": (0, L * D),
        }

    return KernelCase(
        flash_kernel,
        launch,
        reference,
        {"sizes": SIZES, "traffic": traffic},
    )


@cuda.jit
def row_sums_kernel(out_L, x_LS):
    """One block per row: strided shares, then a tree in shared memory."""
    partial = cuda.shared.array(THREADS, float32)
    row = cuda.blockIdx.x
    t = cuda.threadIdx.x
    share = float32(0.0)
    for s in range(t, x_LS.shape[1], THREADS):
        share += x_LS[row, s]
    partial[t] = share
    cuda.syncthreads()  # all shares are there before any is added
    step = THREADS // 2
    while step > 0:
        if t < step:
            partial[t] += partial[t + step]
        cuda.syncthreads()  # this level is complete before the next
        step = step // 2
    if t == 0:
        out_L[row] = partial[0]


def row_sums():
    def launch(L, S):
        args = (np.zeros(L, np.float32), normal(L, S))
        return Launch(L, THREADS, args)

    return KernelCase(
        row_sums_kernel,
        launch,
        lambda x_LS: x_LS.sum(1),
        {
            "sizes": SIZES,
            "traffic": lambda L, S: {"x_LS": (L * S, 0), "out_L": (0, L)},
        },
    )


TO_MUTATE = (tiled_product(), flash(), row_sums())
