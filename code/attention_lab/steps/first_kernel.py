"""How does a thread know which part of the work is its own?

Three kernels to read first: one whose threads write down who they are, one
with a thread for every score of a head, and one whose blocks turn the rows of
scores into weights. The threads of such a block share a row, and combine what
they found in a tree: half of them take a number from the other half, again and
again, until one number is left.

Source: Harris 2007, "Optimizing Parallel Reduction in CUDA", kernel 3; the
formulas: Vaswani et al. 2017, section 3.2.1. Memory: L·S scores and as many
weights. Letters: L queries, S keys, D head width.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numba import float32
from torch import Tensor

from attention_lab.axes import check_axes, check_size, check_tile, shape_checked
from attention_lab.contract import dtype_name
from attention_lab.gpu import cuda, record, to_device
from attention_lab.steps.launch import (
    MAX_THREADS,
    blank,
    cdiv,
    check_grid,
    kernel_dtype,
    same_kind,
    to_real,
)

THREADS_S, THREADS_L = 8, 4  # a block of the scores: 8 keys × 4 queries
THREADS_ROW = 8  # of the block that shares a row; a power of two


# -- PyTorch ---------------------------------------------------------------


@shape_checked
def scores(
    q_LD: Float[Tensor, "L D"], k_SD: Float[Tensor, "S D"]
) -> Float[Tensor, "L S"]:
    """Return how well each query matches each key, scaled by 1/√D.

    Examples
    --------
    >>> scores(torch.ones(1, 4), torch.ones(2, 4)).tolist()
    [[2.0, 2.0]]
    """
    return q_LD @ k_SD.T * q_LD.shape[1] ** -0.5


def tree_rounds(
    numbers: Tensor, combine: Callable[[Tensor, Tensor], Tensor] = torch.add
) -> list[Tensor]:
    """Combine numbers as the threads of a block do; return every round.

    Parameters
    ----------
    numbers : as many as a power of two.
    combine : of two halves: `torch.add`, `torch.maximum`.

    Raises
    ------
    ValueError
        If their number is no power of two.

    Examples
    --------
    >>> [row.tolist() for row in tree_rounds(torch.tensor([3, 1, 4, 1]))]
    [[3, 1, 4, 1], [7, 2], [9]]
    """
    check_power_of_two("numbers: their number", numbers.shape[0])
    rounds = [numbers]
    while rounds[-1].shape[0] > 1:
        left, right = rounds[-1].chunk(2)
        rounds.append(combine(left, right))
    return rounds


def check_power_of_two(name: str, size: int) -> int:
    """Return a size, or refuse one that cannot be halved down to 1.

    Raises
    ------
    ValueError
        Names what it is the size of.
    """
    if check_tile(name, size) & (size - 1):
        raise ValueError(f"{name} must be a power of two, not {size}")
    return size


# -- CUDA kernels ----------------------------------------------------------


@cuda.jit
def who_kernel(who_L):
    """One thread per number: it writes down its block and its place there."""
    i = cuda.grid(1)
    if i < who_L.shape[0]:
        # 1. Load: nothing. 2. Compute: block 3, thread 2 is 302.
        name = cuda.blockIdx.x * 100 + cuda.threadIdx.x

        # 3. Store
        who_L[i] = name


@functools.cache
def make_scores_kernel(real: Any) -> Any:
    """Build the kernel for one dtype."""

    @cuda.jit
    def scores_kernel(scores_LS, q_LD, k_SD, scale):
        """One thread per score; a block covers a patch of keys × queries."""
        s, row = cuda.grid(2)
        L, S = scores_LS.shape
        if row < L and s < S:
            # 1. Load and 2. Compute: a row of q times a row of k.
            dot = real(0.0)
            for d in range(q_LD.shape[1]):
                dot += q_LD[row, d] * k_SD[s, d]

            # 3. Store
            scores_LS[row, s] = dot * scale

    return scores_kernel


@functools.cache
def make_tree(is_sum: bool, THREADS: int) -> Any:
    """Build the device function that adds, or compares, a block's numbers."""
    ROUNDS = THREADS.bit_length() - 1

    @cuda.jit(device=True)
    def tree(mine, shared):
        """All threads of a block give a number, and get the result of all."""
        t = cuda.threadIdx.x
        shared[t] = mine
        cuda.syncthreads()  # every number is there before anyone reads one
        for r in range(ROUNDS):
            half = THREADS >> (r + 1)
            if t < half:
                one, other = shared[t], shared[t + half]
                shared[t] = one + other if is_sum else max(one, other)
            cuda.syncthreads()  # this round is over before the next one reads
        result = shared[0]
        cuda.syncthreads()  # everyone has the result before it is overwritten
        return result

    return tree


@functools.cache
def make_softmax_kernel(real: Any, THREADS: int) -> Any:
    """Build the kernel for one dtype and one size of block."""
    tree_max = make_tree(False, THREADS)
    tree_sum = make_tree(True, THREADS)

    @cuda.jit
    def softmax_kernel(weights_LS, scores_LS):
        """One block per row of scores; its threads share out the keys."""
        shared = cuda.shared.array(THREADS, real)
        t, row = cuda.threadIdx.x, cuda.blockIdx.x
        S = scores_LS.shape[1]

        # 1. Load: the largest score of the row.
        mine = real(-math.inf)
        for s in range(t, S, THREADS):
            mine = max(mine, scores_LS[row, s])
        row_max = tree_max(mine, shared)
        shift = row_max if row_max != real(-math.inf) else real(0.0)

        # 2. Compute: the sum of the exponentials.
        mine = real(0.0)
        for s in range(t, S, THREADS):
            mine += math.exp(scores_LS[row, s] - shift)
        row_sum = tree_sum(mine, shared)
        divisor = row_sum if row_sum != real(0.0) else real(1.0)

        # 3. Store: a row of −∞ gives weights of 0.
        for s in range(t, S, THREADS):
            weights_LS[row, s] = math.exp(scores_LS[row, s] - shift) / divisor

    return softmax_kernel


# -- Launch ----------------------------------------------------------------


def who_cuda(n: int, threads: int) -> Int[np.ndarray, " L"]:
    """Let n threads and a few more write down who they are.

    Parameters
    ----------
    n : how many numbers there are.
    threads : of a block, at most 100, so that names stay apart.

    Returns
    -------
    100 times the block plus the thread that wrote each number.

    Raises
    ------
    ValueError
        If a size is below 1, or there are more than 100 threads.

    Examples
    --------
    >>> who_cuda(5, threads=3).tolist()
    [0, 1, 2, 100, 101]
    """
    check_tile("n", n)
    if check_tile("threads", threads) > 100:
        raise ValueError(f"threads must be at most 100, not {threads}")
    who_L = to_device(np.full(n, -1))
    who_kernel[cdiv(n, threads), threads](who_L)
    return who_L.copy_to_host()


def scores_cuda(
    q_LD: Float[Any, "L D"], k_SD: Float[Any, "S D"]
) -> Float[Any, "L S"]:
    """Compute all scores of a head, one thread each.

    NumPy arrays or torch tensors in, the same kind out; no gradients.

    Raises
    ------
    ShapeMismatch
        If an array has not two axes, or the two disagree about D.
    ValueError
        If CUDA's grid is too small, the dtypes differ, or kernels cannot
        compute in them.
    """
    check_axes("q_LD", q_LD, "LD")
    check_axes("k_SD", k_SD, "SD")
    check_size("k_SD", "D", k_SD.shape[1], "q_LD", q_LD.shape[1])
    real = kernel_dtype("q_LD", q_LD)
    kernel_dtype("k_SD", k_SD)
    if dtype_name(k_SD) != dtype_name(q_LD):
        raise ValueError(
            f"k_SD has dtype {dtype_name(k_SD)}, but q_LD has "
            f"{dtype_name(q_LD)}"
        )
    (L, D), S = q_LD.shape, k_SD.shape[0]
    if 0 in (L, S, D):
        return same_kind(np.zeros((L, S), real.name), q_LD)
    grid, block = scores_launch(L, S)
    out = to_device(blank((L, S), real))
    arguments = [to_device(to_real(x, real)) for x in (q_LD, k_SD)]
    scale = np.dtype(real.name).type(D**-0.5)
    make_scores_kernel(real)[grid, block](out, *arguments, scale)
    return same_kind(out.copy_to_host(), q_LD)


def scores_launch(L: int, S: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return grid and block: x runs over keys, y over queries.

    Raises
    ------
    ValueError
        If CUDA's grid is too small.

    Examples
    --------
    >>> scores_launch(L=5, S=17)
    ((3, 2), (8, 4))
    """
    check_grid(1, L, THREADS_L)
    return (cdiv(S, THREADS_S), cdiv(L, THREADS_L)), (THREADS_S, THREADS_L)


def softmax_cuda(
    scores_LS: Float[Any, "L S"], threads: int = THREADS_ROW
) -> Float[Any, "L S"]:
    """Turn rows of scores into weights, one block per row.

    Every row sums to 1, or to 0 if all its scores are −∞.

    Parameters
    ----------
    threads : of a block; a power of two, at most 1024.

    Raises
    ------
    ShapeMismatch
        If the scores have not two axes.
    ValueError
        If `threads` is no power of two or above 1024, or kernels cannot
        compute in the dtype.
    """
    check_axes("scores_LS", scores_LS, "LS")
    real = kernel_dtype("scores_LS", scores_LS)
    if check_power_of_two("threads", threads) > MAX_THREADS:
        raise ValueError(
            f"threads = {threads}, but CUDA allows {MAX_THREADS} in a block"
        )
    if 0 in scores_LS.shape:
        return same_kind(blank(scores_LS.shape, real), scores_LS)
    out = to_device(blank(scores_LS.shape, real))
    make_softmax_kernel(real, threads)[scores_LS.shape[0], threads](
        out, to_device(to_real(scores_LS, real))
    )
    return same_kind(out.copy_to_host(), scores_LS)


# -- Recorded --------------------------------------------------------------


def predicted_traffic(
    L: int, S: int, D: int
) -> dict[str, dict[str, tuple[int, int]]]:
    """Count the elements that both kernels move.

    Each of the L·S scores reads D numbers of q and D of k. The softmax passes
    over every row three times: maximum, sum, weights.

    Returns
    -------
    For each kernel, {array: (reads, writes)}.

    Examples
    --------
    >>> predicted_traffic(L=2, S=3, D=4)["scores"]["q_LD"]
    (24, 0)
    """
    square = L * S
    return {
        "scores": {
            "q_LD": (square * D, 0),
            "k_SD": (square * D, 0),
            "scores_LS": (0, square),
        },
        "softmax": {"scores_LS": (3 * square, 0), "weights_LS": (0, square)},
    }


def measure_scores(
    L: int, S: int, D: int, order: str = "ascending", seed: int = 0
) -> Any:
    """Record the scores kernel on normal float32 numbers, with its formula."""
    rng = np.random.default_rng(seed)
    q_LD, k_SD = (rng.standard_normal((n, D)).astype("f4") for n in (L, S))
    return record(
        make_scores_kernel(float32), *scores_launch(L, S),
        blank((L, S), float32), q_LD, k_SD, np.float32(D**-0.5), order=order,
    ).against(predicted_traffic(L, S, D)["scores"])  # fmt: skip


def measure_softmax(
    L: int,
    S: int,
    threads: int = THREADS_ROW,
    order: str = "ascending",
    seed: int = 0,
) -> Any:
    """Record the softmax kernel on normal float32 scores, with its formula."""
    rng = np.random.default_rng(seed)
    scores_LS = rng.standard_normal((L, S)).astype("f4")
    return record(
        make_softmax_kernel(float32, threads), L, threads,
        blank((L, S), float32), scores_LS, order=order,
    ).against(predicted_traffic(L, S, 1)["softmax"])  # fmt: skip


def threads_writing(recording: Any, array: str) -> list[int]:
    """Count the threads of block 0 that write an array between barriers.

    Returns
    -------
    One number per stretch between two barriers, up to the last access.
    """
    data = recording.to_data("access")
    table = dict(
        zip(data["events"]["columns"], data["events"]["data"], strict=True)
    )
    phases: list[set[int]] = [set() for _ in range(1 + max(table["epoch"]))]
    for site, thread, block, epoch in zip(
        *(table[name] for name in ("site", "thread", "block", "epoch")),
        strict=True,
    ):
        place = data["sites"][site]
        label = data["memory"][place["memory"]]["label"]
        if block == 0 and label == array and place["kind"] == "write":
            phases[epoch].add(thread)
    return [len(threads) for threads in phases]
