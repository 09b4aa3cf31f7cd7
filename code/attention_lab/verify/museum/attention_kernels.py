"""Exhibits of the kernels' room: attention and log-sum-exp, one head.

The right loop: one thread per query, the keys and values pass through shared
memory in tiles of TILE_S; see `attention_lab.steps.flash_forward`.
"""

import math

import numpy as np

from attention_lab.gpu import cuda
from attention_lab.verify.kernel.case import KernelCase, Launch
from attention_lab.verify.kernel.wrong_answers import (
    attention_wrong_answers,
    log_sum_exp_wrong_answers,
)

float32 = np.float32
MINUS_INFINITY = np.float32(-np.inf)
TILE_L = 4
TILE_S = 4
D = 3
PADDED = 4  # widths are rounded up to a multiple of this
SHARED_NUMBERS = 2 * TILE_S * D


def _scores(q_LD, k_SD):
    return q_LD @ k_SD.T / math.sqrt(q_LD.shape[1])


def _attention(q_LD, k_SD, v_SD):
    scores = _scores(q_LD, k_SD)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v_SD


def _log_sum_exp(q_LD, k_SD):
    scores = _scores(q_LD, k_SD)
    top = scores.max(-1)
    return top + np.log(np.exp(scores - top[:, None]).sum(-1))


def _launch(L, S, shared_bytes=0):
    rng = np.random.default_rng(5)
    q_LD, k_SD, v_SD = (
        rng.standard_normal((n, D)).astype(np.float32) for n in (L, S, S)
    )
    args = (np.zeros((L, D), np.float32), q_LD, k_SD, v_SD)
    return Launch(-(-L // TILE_L), TILE_L, args, shared_bytes)


def _case(kernel, launch=_launch):
    wrong = attention_wrong_answers(TILE_S)
    return KernelCase(kernel, launch, _attention, {"wrong_answers": wrong})


@cuda.jit
def _steady_acc_kernel(out_LD, q_LD, k_SD, v_SD):
    """One thread per query; the accumulator keeps its old weights."""
    k_tile = cuda.shared.array((TILE_S, D), float32)
    v_tile = cuda.shared.array((TILE_S, D), float32)
    acc = cuda.local.array(D, float32)
    row = cuda.grid(1)
    t = cuda.threadIdx.x
    L, S = q_LD.shape[0], k_SD.shape[0]
    row_max = MINUS_INFINITY
    row_sum = float32(0.0)
    for d in range(D):
        acc[d] = float32(0.0)
    for s0 in range(0, S, TILE_S):
        if s0 + t < S:
            for d in range(D):
                k_tile[t, d] = k_SD[s0 + t, d]
                v_tile[t, d] = v_SD[s0 + t, d]
        cuda.syncthreads()  # the tiles are complete before anyone reads them
        if row < L:
            for s in range(min(TILE_S, S - s0)):
                score = float32(0.0)
                for d in range(D):
                    score += q_LD[row, d] * k_tile[s, d]
                score /= math.sqrt(float32(D))
                new_max = max(row_max, score)
                weight = math.exp(score - new_max)
                row_sum = row_sum * math.exp(row_max - new_max) + weight
                row_max = new_max
                for d in range(D):
                    acc[d] += weight * v_tile[s, d]
        cuda.syncthreads()  # nobody overwrites a tile still being read
    if row < L:
        for d in range(D):
            out_LD[row, d] = acc[d] / row_sum


def kernel_acc_not_rescaled():
    """Rescale the running sum, but not the weighted values."""
    return _case(_steady_acc_kernel)


@cuda.jit
def _whole_tiles_kernel(out_LD, q_LD, k_SD, v_SD):
    """One thread per query; rows beyond the end are loaded as zeros."""
    k_tile = cuda.shared.array((TILE_S, D), float32)
    v_tile = cuda.shared.array((TILE_S, D), float32)
    acc = cuda.local.array(D, float32)
    row = cuda.grid(1)
    t = cuda.threadIdx.x
    L, S = q_LD.shape[0], k_SD.shape[0]
    row_max = MINUS_INFINITY
    row_sum = float32(0.0)
    for d in range(D):
        acc[d] = float32(0.0)
    for s0 in range(0, S, TILE_S):
        for d in range(D):
            inside = s0 + t < S
            k_tile[t, d] = k_SD[s0 + t, d] if inside else float32(0.0)
            v_tile[t, d] = v_SD[s0 + t, d] if inside else float32(0.0)
        cuda.syncthreads()  # the tiles are complete before anyone reads them
        if row < L:
            for s in range(TILE_S):
                score = float32(0.0)
                for d in range(D):
                    score += q_LD[row, d] * k_tile[s, d]
                score /= math.sqrt(float32(D))
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


def kernel_tail_unmasked():
    """Give the padding of the last tile a score of 0 instead of −∞."""
    return _case(_whole_tiles_kernel)


@cuda.jit
def _leftover_rows_kernel(out_LD, q_LD, k_SD, v_SD):
    """One thread per query; rows beyond the end are not loaded."""
    k_tile = cuda.shared.array((TILE_S, D), float32)
    v_tile = cuda.shared.array((TILE_S, D), float32)
    acc = cuda.local.array(D, float32)
    row = cuda.grid(1)
    t = cuda.threadIdx.x
    L, S = q_LD.shape[0], k_SD.shape[0]
    row_max = MINUS_INFINITY
    row_sum = float32(0.0)
    for d in range(D):
        acc[d] = float32(0.0)
    for s0 in range(0, S, TILE_S):
        if s0 + t < S:
            for d in range(D):
                k_tile[t, d] = k_SD[s0 + t, d]
                v_tile[t, d] = v_SD[s0 + t, d]
        cuda.syncthreads()  # the tiles are complete before anyone reads them
        if row < L:
            for s in range(TILE_S):
                score = float32(0.0)
                for d in range(D):
                    score += q_LD[row, d] * k_tile[s, d]
                score /= math.sqrt(float32(D))
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


def kernel_stale_tile():
    """Attend to the rows that the tile before left in the last one."""
    return _case(_leftover_rows_kernel)


@cuda.jit
def _one_buffer_kernel(out_LD, q_LD, k_SD, v_SD):
    """One thread per query; both tiles are cut from dynamic shared memory."""
    buffer = cuda.shared.array(0, float32)
    k_tile = buffer[: TILE_S * D]
    v_tile = buffer[: TILE_S * D]
    acc = cuda.local.array(D, float32)
    row = cuda.grid(1)
    t = cuda.threadIdx.x
    L, S = q_LD.shape[0], k_SD.shape[0]
    row_max = MINUS_INFINITY
    row_sum = float32(0.0)
    for d in range(D):
        acc[d] = float32(0.0)
    for s0 in range(0, S, TILE_S):
        if s0 + t < S:
            for d in range(D):
                k_tile[t * D + d] = k_SD[s0 + t, d]
                v_tile[t * D + d] = v_SD[s0 + t, d]
        cuda.syncthreads()  # the tiles are complete before anyone reads them
        if row < L:
            for s in range(min(TILE_S, S - s0)):
                score = float32(0.0)
                for d in range(D):
                    score += q_LD[row, d] * k_tile[s * D + d]
                score /= math.sqrt(float32(D))
                new_max = max(row_max, score)
                rescale = math.exp(row_max - new_max)
                weight = math.exp(score - new_max)
                row_sum = row_sum * rescale + weight
                row_max = new_max
                for d in range(D):
                    acc[d] = acc[d] * rescale + weight * v_tile[s * D + d]
        cuda.syncthreads()  # nobody overwrites a tile still being read
    if row < L:
        for d in range(D):
            out_LD[row, d] = acc[d] / row_sum


def shared_arrays_aliased():
    """Let two tiles begin at the same place of shared memory."""

    def launch(L, S):
        return _launch(L, S, shared_bytes=SHARED_NUMBERS * 4)

    return _case(_one_buffer_kernel, launch)


@cuda.jit
def _rounded_width_kernel(scores_LS, q_LD, k_SD, scale):
    """One thread per score; the width is rounded up for a loop of fours."""
    s, row = cuda.grid(2)
    L, S = scores_LS.shape
    width = (q_LD.shape[1] + PADDED - 1) // PADDED * PADDED
    if row < L and s < S:
        score = float32(0.0)
        for d in range(width):
            score += q_LD[row, d] * k_SD[s, d]
        scores_LS[row, s] = score * scale


def padding_width_read():
    """Read rows as wide as their padding, though nothing was padded."""

    def launch(L, S, D):
        given = _launch(L, S)
        rng = np.random.default_rng(5)
        q_LD = rng.standard_normal((L, D)).astype(np.float32)
        k_SD = rng.standard_normal((S, D)).astype(np.float32)
        args = (np.zeros((L, S), np.float32), q_LD, k_SD, float32(D**-0.5))
        grid = (-(-S // TILE_S), -(-L // TILE_L))
        return given._replace(grid=grid, block=(TILE_S, TILE_L), args=args)

    def scores(q_LD, k_SD, scale):
        return q_LD @ k_SD.T * scale

    return KernelCase(_rounded_width_kernel, launch, scores, {})


@cuda.jit
def _post_2_kernel(log_sum_exp_L, q_LD, k_SD):
    """One thread per query, as in the second source post, put into Numba.

    The post's lines are the loop over the keys: the score divided by the root
    of the width, the running maximum, the running sum that is never rescaled.
    Ours are the thread's row, its guard, and the store of maximum and sum as
    one number; the post leaves them out, like the loading of tiles and V.
    """
    row = cuda.grid(1)
    d_model = q_LD.shape[1]
    if row < q_LD.shape[0]:
        max_val = MINUS_INFINITY
        sum_exp = float32(0.0)
        for i in range(k_SD.shape[0]):
            score = float32(0.0)
            for j in range(d_model):
                score += q_LD[row, j] * k_SD[i, j]
            score /= math.sqrt(float32(d_model))
            max_val = max(max_val, score)
            sum_exp += math.exp(score - max_val)
        log_sum_exp_L[row] = max_val + math.log(sum_exp)


def post_2_kernel():
    """Keep a running maximum, but never rescale the running sum."""

    def launch(L, S):
        given = _launch(L, S)
        _, q_LD, k_SD, _ = given.args
        return given._replace(args=(np.zeros(L, np.float32), q_LD, k_SD))

    wrong = log_sum_exp_wrong_answers()
    return KernelCase(
        _post_2_kernel, launch, _log_sum_exp, {"wrong_answers": wrong}
    )
