"""Naive and flash attention as the recorder's tests need them.

Axes: query (B, H, L, D), key and value (B, H_kv, S, D). Causal masks are
aligned upper-left, as in PyTorch's ``is_causal``.
"""

import math

import numpy as np

from attention_lab.gpu import cuda

float32 = np.float32
MINUS_INFINITY = np.float32(-np.inf)


def make_flash(D, TILE_L, TILE_S, causal):
    """Return the flash forward kernel: one thread per query row."""

    @cuda.jit
    def flash_kernel(
        output_BHLD, log_sum_exp_BHL, query_BHLD, key_BHSD, value_BHSD, scale
    ):
        """One block per TILE_L queries of one head, one thread per query."""
        key_tile = cuda.shared.array((TILE_S, D), float32)
        value_tile = cuda.shared.array((TILE_S, D), float32)
        query_row = cuda.local.array(D, float32)
        acc = cuda.local.array(D, float32)
        t = cuda.threadIdx.x
        row = cuda.blockIdx.x * TILE_L + t
        H = query_BHLD.shape[1]
        L = query_BHLD.shape[2]
        S = key_BHSD.shape[2]
        b = cuda.blockIdx.y // H
        h = cuda.blockIdx.y % H
        h_kv = h // (H // key_BHSD.shape[1])
        for d in range(D):
            acc[d] = float32(0.0)
            query_row[d] = float32(0.0)
            if row < L:
                query_row[d] = query_BHLD[b, h, row, d] * scale
        row_max = MINUS_INFINITY
        row_sum = float32(0.0)
        end = S
        if causal:  # the last key that any row of this block may see
            end = min(S, min(L, (cuda.blockIdx.x + 1) * TILE_L))
        for s0 in range(0, end, TILE_S):
            # 1. Load: the block brings one tile of keys and values.
            for e in range(t, TILE_S * D, TILE_L):
                r = e // D
                c = e % D
                if s0 + r < S:
                    key_tile[r, c] = key_BHSD[b, h_kv, s0 + r, c]
                    value_tile[r, c] = value_BHSD[b, h_kv, s0 + r, c]
            cuda.syncthreads()  # the tiles are complete before use
            # 2. Compute: rescale when the maximum grows.
            seen = min(TILE_S, end - s0)
            if causal:
                seen = min(seen, row + 1 - s0)
            for s in range(seen):
                score = float32(0.0)
                for d in range(D):
                    score += query_row[d] * key_tile[s, d]
                new_max = max(row_max, score)
                old_weight = math.exp(row_max - new_max)
                weight = math.exp(score - new_max)
                row_sum = row_sum * old_weight + weight
                for d in range(D):
                    acc[d] = acc[d] * old_weight + weight * value_tile[s, d]
                row_max = new_max
            cuda.syncthreads()  # nobody overwrites a tile still being read
        # 3. Store.
        if row < L:
            for d in range(D):
                output_BHLD[b, h, row, d] = acc[d] / row_sum
            log_sum_exp_BHL[b, h, row] = row_max + math.log(row_sum)

    return flash_kernel


def make_tiled_scores(TILE):
    """Return the kernel that computes TILE x TILE scores per block."""
    PADDED = TILE + 1

    @cuda.jit
    def tiled_scores_kernel(scores_LS, query_LD, key_SD, scale):
        """One thread per score, one block per TILE x TILE patch."""
        query_tile = cuda.shared.array((TILE, TILE), float32)
        key_tile = cuda.shared.array((TILE, PADDED), float32)
        s, row = cuda.grid(2)
        ts = cuda.threadIdx.x
        tl = cuda.threadIdx.y
        L, S = scores_LS.shape
        D = query_LD.shape[1]
        key_row = cuda.blockIdx.x * TILE + tl
        dot = float32(0.0)
        for d0 in range(0, D, TILE):
            if row < L and d0 + ts < D:
                query_tile[tl, ts] = query_LD[row, d0 + ts]
            else:
                query_tile[tl, ts] = float32(0.0)
            if key_row < S and d0 + ts < D:
                key_tile[tl, ts] = key_SD[key_row, d0 + ts]
            else:
                key_tile[tl, ts] = float32(0.0)
            cuda.syncthreads()  # the tiles are complete before use
            for d in range(TILE):
                dot += query_tile[tl, d] * key_tile[ts, d]
            cuda.syncthreads()  # nobody overwrites a tile still being read
        if row < L and s < S:
            scores_LS[row, s] = dot * scale

    return tiled_scores_kernel


def attention_float64(query, key, value, causal):
    """Return attention and its log-sum-exp in float64."""
    group = query.shape[1] // key.shape[1]
    key, value = (np.repeat(x.astype(float), group, 1) for x in (key, value))
    scores = query.astype(float) @ key.swapaxes(-1, -2)
    scores /= math.sqrt(query.shape[-1])
    if causal:
        L, S = scores.shape[-2:]
        scores = np.where(np.tril(np.ones((L, S), bool)), scores, -np.inf)
    top = scores.max(-1, keepdims=True)
    weights = np.exp(scores - top)
    total = weights.sum(-1, keepdims=True)
    return weights / total @ value, (top + np.log(total))[..., 0]
