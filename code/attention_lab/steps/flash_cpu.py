"""Can a CPU attend in memory that grows with L, not with L·S?

The tiles are those of `flash_forward`; what a GPU does with threads a CPU does
with vector registers. The queries of a tile lie side by side in memory, so that
one instruction handles eight of them: a score, a maximum or a rescaling of
eight rows at once, and never a sum across a register. A core takes one tile of
queries of one head at a time.

Source: Dao 2023, "FlashAttention-2", section 3.1, with its loops in the same
order; exp: Cody & Waite 1980, "Software Manual for the Elementary Functions",
chapter 6, with the coefficients of Moshier's Cephes, `expf`. Memory: beside
the output one tile of queries, scores and outputs per core, and B·H·L
log-sum-exps. Letters: B batch, H heads, L queries, S keys, D head width.
"""

import math
from typing import Any

import numpy as np
from jaxtyping import Float
from numba import extending, njit, parallel_chunksize, prange, types

from attention_lab.contract import check_attention_call, dtype_name
from attention_lab.steps.flash_launch import FlashResult
from attention_lab.steps.launch import (
    kernel_dtype,
    same_kind,
    to_real,
)

TILE_L = 128  # queries side by side: sixteen registers of eight float32
TILE_S = 32  # keys; at D = 64 all tiles of a core take 80 KiB, less than its L2

# No "nnan" and no "ninf": −∞ hides a key, and NaN must stay NaN. No "reassoc":
# it would cancel the two additions that round to a whole number.
FAST = {"contract", "nsz"}

# -- exp -------------------------------------------------------------------

LOG2_E = np.float32(1 / math.log(2))
LN2_HIGH = np.float32(0.693359375)  # few bits: n·LN2_HIGH is exact
LN2_LOW = np.float32(math.log(2) - 0.693359375)
# Adding 1.5·2²³ leaves no bit for a fraction: it rounds, and the low bits of
# the sum are the whole number.
ROUNDER = np.float32(1.5 * 2**23)
LOWEST = np.float32(-87.0)  # exp of less is below 2⁻¹²⁵; it counts as 0
C6, C5, C4, C3, C2, C1 = (
    np.float32(c)
    for c in (
        1.9875691500e-4,
        1.3981999507e-3,
        8.3334519073e-3,
        4.1665795894e-2,
        1.6666665459e-1,
        5.0000001201e-1,
    )
)


def exp(x):
    """Return exp(x) for x ≤ 0; `choose_exp` says how, by the type of x."""
    raise NotImplementedError("exp is for compiled functions")


@extending.overload(exp, jit_options={"fastmath": FAST})
def choose_exp(x):
    """Take the fast version for float32, the C library's for float64."""
    return exp_float32 if x is types.float32 else exp_float64


def exp_float32(x):
    """Return exp(x) for x ≤ 0, in steps that LLVM can do for eight x at once.

    x = n·ln 2 + r with |r| ≤ ln 2 / 2; then exp(x) = 2ⁿ·exp(r), and 2ⁿ is
    written into the bits of the exponent.
    """
    bounded = LOWEST if x < LOWEST else x
    shifted = bounded * LOG2_E + ROUNDER
    n = shifted - ROUNDER
    r = bounded - n * LN2_HIGH - n * LN2_LOW
    p = ((((C6 * r + C5) * r + C4) * r + C3) * r + C2) * r + C1
    p = p * r * r + r + np.float32(1.0)
    power = (np.float32(shifted).view(np.int32) << 23) + (127 << 23)
    value = p * np.int32(power).view(np.float32)
    return np.float32(0.0) if x < LOWEST else value


def exp_float64(x):
    """Return exp(x); one call of the C library per x."""
    return math.exp(x)


# -- One tile --------------------------------------------------------------
# Rows of a tile are keys or channels; its columns are TILE_L queries, which
# LLVM turns into vector registers. Four rows and two products per loop make
# one load of the tile serve four multiplications. Rows past the end are read
# again with a weight of 0, so that no loop needs a remainder.


@njit(fastmath=FAST, cache=True)
def load_queries(q_tile, q_LD, row0, scale):
    """Turn TILE_L queries, times the scale; what does not exist is 0."""
    L, D = q_LD.shape
    q_tile[:] = 0
    for i in range(min(TILE_L, L - row0)):
        for d in range(D):
            q_tile[d, i] = q_LD[row0 + i, d] * scale


@njit(fastmath=FAST, cache=True)
def score_tile(scores, q_tile, k_SD, s0, keys):
    """Set scores[s, i] to the sum over d of k[s0 + s, d] · q_tile[d, i]."""
    D, last = k_SD.shape[1], s0 + keys - 1
    scores[:] = 0
    for s in range(0, keys, 4):
        s1, s2, s3 = s + 1, s + 2, s + 3
        k0, k1 = s0 + s, min(s0 + s1, last)
        k2, k3 = min(s0 + s2, last), min(s0 + s3, last)
        for d in range(0, D, 2):
            e = min(d + 1, D - 1)
            a0, b0, a1, b1 = k_SD[k0, d], k_SD[k0, e], k_SD[k1, d], k_SD[k1, e]
            a2, b2, a3, b3 = k_SD[k2, d], k_SD[k2, e], k_SD[k3, d], k_SD[k3, e]
            for i in range(TILE_L):
                q, r = q_tile[d, i], q_tile[d + 1, i]
                scores[s, i] += a0 * q + b0 * r
                scores[s1, i] += a1 * q + b1 * r
                scores[s2, i] += a2 * q + b2 * r
                scores[s3, i] += a3 * q + b3 * r


@njit(fastmath=FAST, cache=True)
def mix_tile(acc, weights, v_SD, s0, keys):
    """Add to acc[d, i] the sum over s of v[s0 + s, d] · weights[s, i]."""
    D_v, last = v_SD.shape[1], s0 + keys - 1
    weights[keys:] = 0
    for d in range(0, D_v, 4):
        d1, d2, d3 = d + 1, d + 2, d + 3
        v1, v2, v3 = min(d1, D_v - 1), min(d2, D_v - 1), min(d3, D_v - 1)
        for s in range(0, keys, 2):
            k, n = s0 + s, min(s0 + s + 1, last)
            a0, b0, a1, b1 = v_SD[k, d], v_SD[n, d], v_SD[k, v1], v_SD[n, v1]
            a2, b2, a3, b3 = v_SD[k, v2], v_SD[n, v2], v_SD[k, v3], v_SD[n, v3]
            for i in range(TILE_L):
                w, x = weights[s, i], weights[s + 1, i]
                acc[d, i] += a0 * w + b0 * x
                acc[d1, i] += a1 * w + b1 * x
                acc[d2, i] += a2 * w + b2 * x
                acc[d3, i] += a3 * w + b3 * x


@njit(fastmath=FAST, cache=True)
def hide_keys(scores, is_causal, keep, bias, b, h, row0, L, s0, keys):
    """Set forbidden scores to −∞, and add a floating mask."""
    for s in range(keys):
        for i in range(TILE_L):
            row = min(row0 + i, L - 1)
            if is_causal and s0 + s > row0 + i:
                scores[s, i] = -np.inf
            if keep.size and not at(keep, b, h, row, s0 + s):
                scores[s, i] = -np.inf
            if bias.size:
                scores[s, i] += at(bias, b, h, row, s0 + s)


@njit(fastmath=FAST, cache=True)
def at(mask_BHLS, b, h, row, s):
    """Read a mask whose axes are 1 or full."""
    B, H, L, S = mask_BHLS.shape
    return mask_BHLS[b % B, h % H, row % L, s % S]


@njit(fastmath=FAST, cache=True)
def update(scores, row_max, row_sum, rescale, keys):
    """Take a tile into maximum and sum; leave its weights in scores."""
    for i in range(TILE_L):
        rescale[i] = row_max[i]
    for s in range(keys):
        for i in range(TILE_L):
            score = scores[s, i]
            row_max[i] = score if score > row_max[i] else row_max[i]
    shift = np.empty_like(row_max)
    tile_sum = np.zeros_like(row_max)
    for i in range(TILE_L):
        shift[i] = 0 if row_max[i] == -np.inf else row_max[i]
        rescale[i] = exp(rescale[i] - shift[i])
    for s in range(keys):
        for i in range(TILE_L):
            weight = exp(scores[s, i] - shift[i])
            scores[s, i] = weight
            tile_sum[i] += weight
    for i in range(TILE_L):
        row_sum[i] = row_sum[i] * rescale[i] + tile_sum[i]


@njit(fastmath=FAST, cache=True)
def attend_rows(
    out_LD,
    lse_L,
    q_LD,
    k_SD,
    v_SD,
    row0,
    scale,
    is_causal,
    keep,
    bias,
    b,
    h,
):
    """Walk over the keys for one tile of queries, and store its rows."""
    L, D = q_LD.shape
    S, D_v = v_SD.shape
    q_tile = np.empty((D + 1, TILE_L), q_LD.dtype)
    scores = np.empty((TILE_S, TILE_L), q_LD.dtype)
    acc = np.zeros((D_v + 3, TILE_L), q_LD.dtype)
    row_max = np.full(TILE_L, -np.inf, q_LD.dtype)
    row_sum = np.zeros(TILE_L, q_LD.dtype)
    rescale = np.empty(TILE_L, q_LD.dtype)
    load_queries(q_tile, q_LD, row0, scale)
    visible = min(S, L, row0 + TILE_L) if is_causal else S
    for s0 in range(0, visible, TILE_S):
        keys = min(TILE_S, visible - s0)
        score_tile(scores, q_tile, k_SD, s0, keys)
        if keep.size or bias.size or (is_causal and s0 + keys > row0 + 1):
            hide_keys(scores, is_causal, keep, bias, b, h, row0, L, s0, keys)
        update(scores, row_max, row_sum, rescale, keys)
        for d in range(D_v):
            for i in range(TILE_L):
                acc[d, i] *= rescale[i]
        mix_tile(acc, scores, v_SD, s0, keys)
    for i in range(min(TILE_L, L - row0)):
        divisor = row_sum[i] if row_sum[i] != 0 else row_sum[i] + 1
        for d in range(D_v):
            out_LD[row0 + i, d] = acc[d, i] / divisor
        lse_L[row0 + i] = row_max[i] + np.log(divisor)


@njit(parallel=True, cache=True)
def flash_cpu(
    out_BHLD, lse_BHL, q_BHLD, k_BHSD, v_BHSD, scale, is_causal, keep, bias
):
    """One turn per tile of queries of one head; the cores share them."""
    B, H, L, _ = q_BHLD.shape
    tiles = (L + TILE_L - 1) // TILE_L
    group = H // k_BHSD.shape[1]
    for turn in prange(B * H * tiles):
        b, h = turn // (H * tiles), turn // tiles % H
        attend_rows(
            out_BHLD[b, h], lse_BHL[b, h], q_BHLD[b, h],
            k_BHSD[b, h // group], v_BHSD[b, h // group],
            turn % tiles * TILE_L, scale, is_causal, keep, bias, b, h,
        )  # fmt: skip


# -- Call ------------------------------------------------------------------


def flash_forward_cpu(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> FlashResult:
    """Attend on all cores; return the output and the log-sum-exp.

    NumPy arrays or torch tensors in, the same kind out; gradients are not
    tracked. Half precisions compute in float32. The first call per dtype
    compiles, for some seconds; Numba keeps the result beside this file.

    Arguments and errors: `attention_lab.contract.check_attention_call`.

    Examples
    --------
    >>> q, k = np.ones((1, 1, 1, 2)), np.ones((1, 1, 2, 2))
    >>> v = np.array([[[[0.0], [4.0]]]])
    >>> flash_forward_cpu(q, k, v).out_BHLD.item()
    2.0
    """
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    real = kernel_dtype("query", query)
    out_BHLD = np.zeros((call.B, call.H, call.L, call.D_v), real.name)
    lse_BHL = np.full((call.B, call.H, call.L), -np.inf, real.name)
    if not call.is_empty:
        keep, bias = split_mask(attn_mask, real)
        arrays = (to_real(x, real) for x in (query, key, value))
        # Under a causal mask the tiles differ in work: hand them out singly.
        with parallel_chunksize(int(is_causal)):
            flash_cpu(
                out_BHLD,
                lse_BHL,
                *arrays,
                out_BHLD.dtype.type(call.scale),
                is_causal,
                keep,
                bias,
            )
    return FlashResult(
        same_kind(out_BHLD, query), same_kind(lse_BHL, query, keep_dtype=True)
    )


def attention_cpu(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Any, "B H L D_v"]:
    """Return the output of `flash_forward_cpu` alone."""
    options = (attn_mask, is_causal, scale, enable_gqa)
    return flash_forward_cpu(query, key, value, *options).out_BHLD


def split_mask(attn_mask: Any, real: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return a boolean and a floating mask of four axes; one is empty.

    A boolean mask is not turned into numbers: it would take four times the
    memory.
    """
    keep = np.empty((0, 0, 0, 0), bool)
    bias = np.empty((0, 0, 0, 0), real.name)
    if attn_mask is None:
        return keep, bias
    if dtype_name(attn_mask) != "bool":
        bias = to_real(attn_mask, real)
        return keep, bias.reshape((1,) * (4 - bias.ndim) + bias.shape)
    if hasattr(attn_mask, "detach"):
        attn_mask = attn_mask.detach().cpu().numpy()
    axes = (1,) * (4 - attn_mask.ndim) + attn_mask.shape
    return np.ascontiguousarray(attn_mask).reshape(axes), bias
