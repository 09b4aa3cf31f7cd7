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
from attention_lab.steps import flash_backward_kernels as backward
from attention_lab.steps import flash_forward as flash
from attention_lab.steps import online_softmax as online
from attention_lab.steps import scaled_dot_product as naive
from attention_lab.steps.launch import cdiv
from attention_lab.steps.plain_backward import make_softmax_backward_kernel

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


def record_flash_backward(
    out_grad: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    out: np.ndarray,
    lse: np.ndarray,
    is_causal: bool,
    TILE_L: int,
    TILE_S: int,
) -> tuple[list[Any], list[np.ndarray]]:
    """Record row dots, dQ, and dK with dV; return also the three gradients.

    Parameters
    ----------
    out_grad : the gradient of the output `out`, of its shape.
    lse : log-sum-exp of the forward pass (B, H, L); other arguments as above.
    """
    B, H, L, D = q.shape
    real, heads = _real(q), B * H
    row_dot = np.full(lse.shape, np.nan, q.dtype)
    dq, dk, dv = (np.full_like(x, np.nan) for x in (q, k, v))
    inputs = (q, k, v, out_grad, lse, row_dot, _no_bias(q), _scale(q), 1)
    kind = (D, v.shape[3], TILE_L, TILE_S, 1, real, False, is_causal)
    by_query, by_key = cdiv(L, TILE_L), cdiv(k.shape[2], TILE_S)
    recordings = [
        record(kernel, (blocks, heads), threads, *arguments, engine="python")
        for kernel, blocks, threads, arguments in (
            (
                backward.make_row_dot_kernel(TILE_L, 1, real),
                by_query,
                TILE_L,
                (row_dot, out_grad, out),
            ),
            (
                backward.make_dq_kernel(*kind),
                by_query,
                TILE_L,
                (dq, *inputs),
            ),
            (
                backward.make_dkv_kernel(*kind),
                by_key,
                TILE_S,
                (dk, dv, *inputs),
            ),
        )
    ]
    return recordings, [dq, dk, dv]


def record_plain_backward(
    out_grad: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    weights: np.ndarray,
) -> tuple[list[Any], list[np.ndarray]]:
    """Record five kernels that read stored weights; return the gradients too.

    dP and the products are made by the kernels of the plain forward pass: dP =
    dO Vᵀ as the scores are, dQ = dS K, dK = dSᵀ Q and dV = Pᵀ dO as the output
    is, the last two from transposed views. The names in a recording are those
    kernels' own.

    Parameters
    ----------
    out_grad : the gradient of the output (B, H, L, D).
    weights : what the forward pass stored (B, H, L, S); other arguments as
        above.
    """
    B, H, L, S = weights.shape
    real, heads = _real(q), B * H
    d_weights, d_scores = (np.full_like(weights, np.nan) for _ in "ws")
    dq, dk, dv = (np.full_like(x, np.nan) for x in (q, k, v))
    one = q.dtype.type(1)
    block = (naive.THREADS_X, naive.THREADS_L, 1)
    scores_grid = (cdiv(S, naive.THREADS_X), cdiv(L, naive.THREADS_L), heads)
    recordings = [
        record(
            naive.make_scores_kernel(real, False, False), scores_grid, block,
            d_weights, out_grad, v, _no_bias(q), one, 1, engine="python",
        ),
        record(
            make_softmax_backward_kernel(real),
            (cdiv(L, naive.THREADS_ROW), heads), (naive.THREADS_ROW, 1),
            d_scores, weights, d_weights, _scale(q), engine="python",
        ),
    ]  # fmt: skip
    kernel = naive.make_weighted_sum_kernel(real)
    for result, factors, rows in (
        (dq, d_scores, k),
        (dk, d_scores.swapaxes(2, 3), q),
        (dv, weights.swapaxes(2, 3), out_grad),
    ):
        grid = (
            cdiv(result.shape[3], naive.THREADS_X),
            cdiv(result.shape[2], naive.THREADS_L),
            heads,
        )
        recordings.append(
            record(
                kernel, grid, block, result, factors, rows, 1, engine="python"
            )
        )
    return recordings, [dq, dk, dv]


def numbers_moved_so_far(events: Any) -> tuple[list[int], int]:
    """Return the numbers moved after each visited tile, and in all.

    For a kernel whose blocks pass two barriers per tile: a block loads tile j
    after 2·j of them. It stores its rows after the last one, which counts for
    the next block's first tile, or only for the total.
    """
    where = [
        np.stack([part.block, part.epoch])
        for name, part in events.parts.items()
        if events.memory[name].space == "global"
    ]
    (block, epoch), count = np.unique(
        np.concatenate(where, axis=1), axis=1, return_counts=True
    )
    so_far, total = [], 0
    for b, e, moved in zip(block, epoch, count, strict=True):
        total += int(moved)
        if e < epoch[block == b].max():  # the last one only stores
            so_far.append(total)
    return so_far, total


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
