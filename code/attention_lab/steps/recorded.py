"""What does each kernel of this book really move? Record it, and count.

One function per way of computing attention. Each launches the book's own
kernels on the recorder and returns the recordings, so that what a figure shows
was counted and not computed.

Letters: B batch, H heads, L queries, S keys, D head width.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numba import float32, float64

from attention_lab.gpu import record
from attention_lab.steps import flash_forward as flash
from attention_lab.steps import online_softmax as online
from attention_lab.steps import scaled_dot_product as naive
from attention_lab.steps.launch import cdiv

#: Arrays of the kernels by what is in them.
INPUTS = ("q_BHLD", "k_BHSD", "v_BHSD")
SQUARE = ("scores_BHLS", "weights_BHLS")
RESULTS = ("out_BHLD", "lse_BHL")


def record_three_kernels(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, is_causal: bool
) -> list[Any]:
    """Record scores, softmax and weighted sum; one recording each.

    Parameters
    ----------
    q, k, v : arrays (B, H, L, D) and (B, H, S, D), float32 or float64.
    """
    B, H, L, _ = q.shape
    S, heads = k.shape[2], B * H
    real = _real(q)
    scores, weights = (np.full((B, H, L, S), np.nan, q.dtype) for _ in "sw")
    rows = cdiv(L, naive.THREADS_L)
    block = (naive.THREADS_X, naive.THREADS_L, 1)
    return [
        record(kernel, grid, threads, *arguments, engine="python")
        for kernel, grid, threads, arguments in (
            (
                naive.make_scores_kernel(real, False, is_causal),
                (cdiv(S, naive.THREADS_X), rows, heads),
                block,
                (scores, q, k, _no_bias(q), _scale(q), 1),
            ),
            (
                naive.make_softmax_kernel(real),
                (cdiv(L, naive.THREADS_ROW), heads),
                (naive.THREADS_ROW, 1),
                (weights, scores),
            ),
            (
                naive.make_weighted_sum_kernel(real),
                (cdiv(q.shape[3], naive.THREADS_X), rows, heads),
                block,
                (np.full_like(q, np.nan), weights, v, 1),
            ),
        )
    ]


def record_one_thread(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, is_causal: bool
) -> list[Any]:
    """Record the online softmax, one thread per query; arguments as above."""
    B, H, L, D = q.shape
    kernel = online.make_online_softmax_kernel(D, D, _real(q), False, is_causal)
    grid, block = (cdiv(L, naive.THREADS_ROW), B * H), (naive.THREADS_ROW, 1)
    return [_fused(kernel, grid, block, q, k, v)]


def record_flash(
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    is_causal: bool,
    TILE_L: int,
    TILE_S: int,
) -> list[Any]:
    """Record the flash kernel with these tiles; arguments as above."""
    B, H, L, D = q.shape
    kernel = flash.make_flash_kernel(
        D, D, TILE_L, TILE_S, _real(q), False, is_causal
    )
    return [_fused(kernel, (cdiv(L, TILE_L), B * H), TILE_L, q, k, v)]


def numbers_moved(recordings: Sequence[Any]) -> dict[str, int]:
    """Return the reads and writes of each array in global memory, added up."""
    moved: dict[str, int] = {}
    for recording in recordings:
        for array, (reads, writes) in recording.traffic.counts().items():
            moved[array] = moved.get(array, 0) + reads + writes
    return moved


def bytes_moved(recordings: Sequence[Any]) -> int:
    """Return the bytes read from and written to global memory."""
    return sum(
        recording.traffic.total(field)
        for recording in recordings
        for field in ("bytes_read", "bytes_written")
    )


def product_flops(recordings: Sequence[Any]) -> int:
    """Return the floating-point operations of the two products.

    Every multiply-add of q·k and of weights·v reads one number of k or of v
    where it computes: from the tiles in shared memory if there are tiles, else
    from the arrays. The recording counts these reads; each stands for two
    operations. The softmax's exponentials and divisions are not counted, as
    is the custom.
    """
    reads = 0
    for recording in recordings:
        tiles = recording.traffic.counts("shared")
        arrays = recording.traffic.counts()
        for tile, array in (("k_tile", "k_BHSD"), ("v_tile", "v_BHSD")):
            reads += tiles.get(tile, arrays.get(array, (0, 0)))[0]
    return 2 * reads


def _fused(
    kernel: Any,
    grid: Any,
    block: Any,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
) -> Any:
    """Record a kernel that writes output and log-sum-exp."""
    results = [np.full(s, np.nan, q.dtype) for s in (q.shape, q.shape[:3])]
    return record(
        kernel, grid, block, *results, q, k, v, _no_bias(q), _scale(q), 1,
        engine="python",
    )  # fmt: skip


def _real(q: np.ndarray) -> Any:
    return float64 if q.dtype == np.float64 else float32


def _no_bias(q: np.ndarray) -> np.ndarray:
    return np.zeros((1, 1, 1, 1), q.dtype)


def _scale(q: np.ndarray) -> Any:
    return q.dtype.type(q.shape[3] ** -0.5)
