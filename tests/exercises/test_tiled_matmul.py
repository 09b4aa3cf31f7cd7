import math
from collections import Counter

import numpy as np
import pytest
from numba import float32

from attention_lab.exercises import tiled_matmul as exercises
from attention_lab.exercises.lines import lines_of
from attention_lab.gpu import cuda
from marking import assert_fails, assert_passes, each, in_order

OWN = [line.code for line in lines_of(exercises.product_kernel)[5:]]
BARRIER = "cuda.syncthreads()"


def order(*lines):
    return in_order(exercises.barriers, *lines)


def without(position):
    return order(*[line for k, line in enumerate(OWN) if k != position])


FIRST = OWN.index(BARRIER)
LAST = len(OWN) - 1 - OWN[::-1].index(BARRIER)


def make_kernel(is_a, is_b):
    """Return the page's kernel with these two device functions for guards."""

    @cuda.jit
    def ragged_kernel(out_LS, a_LD, b_DS):
        a_tile = cuda.shared.array((4, 4), float32)
        b_tile = cuda.shared.array((4, 4), float32)
        s, row = cuda.grid(2)
        ts, tl = cuda.threadIdx.x, cuda.threadIdx.y
        L, D = a_LD.shape
        S = b_DS.shape[1]
        total = float32(0.0)
        for d0 in range(0, D, 4):
            has_a = is_a(row, d0 + ts, s, L, S, D)
            has_b = is_b(d0 + tl, s, row, L, S, D)
            a_tile[tl, ts] = a_LD[row, d0 + ts] if has_a else float32(0.0)
            b_tile[tl, ts] = b_DS[d0 + tl, s] if has_b else float32(0.0)
            cuda.syncthreads()
            for i in range(4):
                total += a_tile[tl, i] * b_tile[i, ts]
            cuda.syncthreads()
        if row < L and s < S:
            out_LS[row, s] = total

    return ragged_kernel


@cuda.jit(device=True)
def a_exists(row, d, s, L, S, D):
    return row < L and d < D


@cuda.jit(device=True)
def b_exists(d, s, row, L, S, D):
    return d < D and s < S


@cuda.jit(device=True)
def only_the_row(row, d, s, L, S, D):
    return row < L


@cuda.jit(device=True)
def own_output_exists(row, d, s, L, S, D):
    return row < L and d < D and s < S


@cuda.jit
def naive_kernel(out_LS, a_LD, b_DS):
    s, row = cuda.grid(2)
    if row < out_LS.shape[0] and s < out_LS.shape[1]:
        total = float32(0.0)
        for d in range(a_LD.shape[1]):
            total += a_LD[row, d] * b_DS[d, s]
        out_LS[row, s] = total


def most_in_a_bank(lanes, stride):
    banks = Counter(i * stride % 32 for i in range(lanes))
    return max(banks.values())


def most_by_numpy(lanes, stride):
    return np.bincount(np.arange(lanes) * stride % 32).max()


def most_by_formula(lanes, stride):
    return math.ceil(lanes / (32 // math.gcd(stride, 32)))


RIGHT = {
    "barriers": [
        order(*OWN),
        order(OWN[0], OWN[2], OWN[1], *OWN[3:]),
        # The loop may also begin with the barrier that it ends with.
        order(OWN[0], BARRIER, *OWN[1:LAST], *OWN[LAST + 1 :]),
    ],
    "ragged": [
        make_kernel(a_exists, b_exists),
        exercises.product_kernel,
        naive_kernel,
    ],
    "reads": [
        lambda L, S, D, n: L * D * math.ceil(S / n) + D * S * math.ceil(L / n),
        lambda L, S, D, n: D * (L * -(-S // n) + S * -(-L // n)),
        lambda L, S, D, n: sum(L * D for _ in range(0, S, n))
        + sum(D * S for _ in range(0, L, n)),
    ],
    "passes": [most_in_a_bank, most_by_numpy, most_by_formula],
}
WRONG = {
    "barriers": [
        (without(FIRST), "no hazard", "missing-barrier-after-load"),
        (without(LAST), "no hazard", "missing-barrier-before-next-load"),
        (
            order("if row >= out_LS.shape[0]:", "return", *OWN),
            "no hazard",
            "early-return-before-barrier",
        ),
    ],
    "ragged": [
        (make_kernel(only_the_row, b_exists), "no hazard", "out-of-bounds"),
        (make_kernel(own_output_exists, b_exists), "values", "is expected"),
    ],
    "reads": [
        (
            lambda L, S, D, n: 2 * L * S * D,
            "recorded reads ÷ formula",
            "the kernel without tiles",
        ),
        (
            lambda L, S, D, n: 2 * L * S * D / n,
            "recorded reads ÷ formula",
            "only where the tiles fit",
        ),
        (
            lambda L, S, D, n: L * D * (S // n) + D * S * (L // n),
            "recorded reads ÷ formula",
            "The last tile is ragged",
        ),
    ],
    "passes": [
        (
            lambda lanes, stride: lanes if stride % 32 == 0 else 1,
            "passes",
            "others share banks as well",
        ),
        (
            lambda lanes, stride: math.gcd(stride, 32),
            "passes",
            "right for 32 lanes",
        ),
        (lambda lanes, stride: 1, "passes", "is 1, but 8 is expected"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.parametrize(("name", "number", "wrong"), each(WRONG))
def test_wrong_answer_is_named(name, number, wrong):
    answer, check, words = wrong
    assert_fails(getattr(exercises, name).check(answer), check, words)
