"""Which threads read neighbours? Recorded runs for the figure "kernel lens".

The scores kernel of `scaled_dot_product`, launched in three ways, and the
softmax kernel. The work is the same in all three launches; what differs is
which elements the 32 lanes of a warp ask for at the same moment.

Source: NVIDIA, CUDA C++ Best Practices Guide, "Coalesced Access to Global
Memory". Letters: B batch, H heads, L queries, S keys, D head width.
"""

from typing import Any

import numpy as np
from numba import float32

from attention_lab import examples
from attention_lab.axes import check_tile
from attention_lab.gpu import record
from attention_lab.gpu.traffic import naive_forward_traffic
from attention_lab.steps import scaled_dot_product as step
from attention_lab.steps.launch import cdiv

#: A warp of keys; four rows; a row of 8 float32 fills one sector of 32 bytes.
L, S, D = 4, 32, 8


def record_scores(
    keys: int,
    queries: int,
    *,
    is_turned: bool = False,
    D: int = D,
    seed: int = 0,
) -> Any:
    """Record the scores kernel for 4 queries and 32 keys, in blocks of a size.

    Parameters
    ----------
    keys, queries : of a block, which has a thread for each pair.
    is_turned : whether k is stored D first, so that neighbouring keys are
        neighbours in memory.
    D : head width.
    seed : of the normal queries and keys; one head.

    Returns
    -------
    The recording, held against its formula (`Recording.against`).

    Raises
    ------
    ValueError
        If a size is not a whole number of at least 1.
    """
    for name, size in (("keys", keys), ("queries", queries), ("D", D)):
        check_tile(name, size)
    q, k, _ = examples.example_qkv(1, 1, L, S, D, seed=seed)
    if is_turned:
        k = np.ascontiguousarray(k.swapaxes(2, 3)).swapaxes(2, 3)
    scores = np.full((1, 1, L, S), np.nan, q.dtype)
    grid = (cdiv(S, keys), cdiv(L, queries), 1)
    recording = record(
        step.make_scores_kernel(float32, False, False), grid,
        (keys, queries, 1), scores, q, k, np.zeros((1, 1, 1, 1), q.dtype),
        q.dtype.type(D**-0.5), 1, engine="python",
    )  # fmt: skip
    formula = naive_forward_traffic(L, S, D)["scores"]
    names = {"query": "q_BHLD", "key": "k_BHSD", "scores": "scores_BHLS"}
    return recording.against({names[k]: v for k, v in formula.items()})


def record_score_kernels(*, seed: int = 0) -> dict[str, Any]:
    """Record the scores kernel in three launches, and the softmax.

    Parameters
    ----------
    seed : of the normal queries and keys; one head, 4 queries, 32 keys, D = 8.

    Returns
    -------
    {name: recording}, each held against its formula (`Recording.against`).
    """
    usual = (step.THREADS_X, step.THREADS_L)
    return {
        "8 keys × 4 queries": record_scores(*usual, seed=seed),
        "32 keys × 1 query": record_scores(S, 1, seed=seed),
        "32 keys, k stored D first": record_scores(
            S, 1, is_turned=True, seed=seed
        ),
        "softmax, 1 row per lane": _softmax(seed),
    }


def _softmax(seed: int) -> Any:
    """Record the softmax of 32 rows of 8 scores."""
    scores = examples.example_qkv(1, 1, S, S, D, seed=seed)[0]
    weights = np.full_like(scores, np.nan)
    recording = record(
        step.make_softmax_kernel(float32), 1, (step.THREADS_ROW, 1),
        weights, scores, engine="python",
    )  # fmt: skip
    formula = naive_forward_traffic(S, D, 1)["softmax"]
    names = {"scores": "scores_BHLS", "weights": "weights_BHLS"}
    return recording.against({names[k]: v for k, v in formula.items()})
