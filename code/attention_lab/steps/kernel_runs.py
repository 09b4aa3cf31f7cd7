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
from attention_lab.gpu import record
from attention_lab.gpu.traffic import naive_forward_traffic
from attention_lab.steps import scaled_dot_product as step
from attention_lab.steps.launch import cdiv

#: A warp of keys; four rows; a row of 8 float32 fills one sector of 32 bytes.
L, S, D = 4, 32, 8


def record_score_kernels(*, seed: int = 0) -> dict[str, Any]:
    """Record the scores kernel in three launches, and the softmax.

    Parameters
    ----------
    seed : of the normal queries and keys; one head, 4 queries, 32 keys, D = 8.

    Returns
    -------
    {name: recording}, each held against its formula (`Recording.against`).
    """
    q, k, _ = examples.example_qkv(1, 1, L, S, D, seed=seed)
    turned = np.ascontiguousarray(k.swapaxes(2, 3)).swapaxes(2, 3)
    return {
        "8 keys × 4 queries": _scores(q, k, (step.THREADS_X, step.THREADS_L)),
        "32 keys × 1 query": _scores(q, k, (S, 1)),
        "32 keys, k stored D first": _scores(q, turned, (S, 1)),
        "softmax, 1 row per lane": _softmax(seed),
    }


def _scores(q: np.ndarray, k: np.ndarray, threads: tuple[int, int]) -> Any:
    """Record the scores kernel with blocks of so many keys and queries."""
    scores = np.full((1, 1, L, S), np.nan, q.dtype)
    grid = (cdiv(S, threads[0]), cdiv(L, threads[1]), 1)
    recording = record(
        step.make_scores_kernel(float32, False, False), grid, (*threads, 1),
        scores, q, k, np.zeros((1, 1, 1, 1), q.dtype), q.dtype.type(D**-0.5), 1,
        engine="python",
    )  # fmt: skip
    formula = naive_forward_traffic(L, S, D)["scores"]
    names = {"query": "q_BHLD", "key": "k_BHSD", "scores": "scores_BHLS"}
    return recording.against({names[k]: v for k, v in formula.items()})


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
