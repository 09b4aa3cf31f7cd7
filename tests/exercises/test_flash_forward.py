import math

import numpy as np
import pytest
from numba import float32

from attention_lab.exercises import flash_forward as exercises
from attention_lab.exercises.flash_forward import TILE, D
from attention_lab.exercises.lines import lines_of
from attention_lab.gpu import cuda
from marking import assert_fails, assert_passes, each, in_order

OWN = [line.code for line in lines_of(exercises.walk_kernel)[8:]]
UPSIDE_DOWN = "rescale = math.exp(new_max - row_max)"


def order(change):
    """Return letters after a change to the list of the kernel's own lines."""
    lines = list(OWN)
    change(lines)
    return in_order(exercises.walk, *lines)


def swap(first, second):
    def change(lines):
        i, j = lines.index(first), lines.index(second)
        lines[i], lines[j] = lines[j], lines[i]

    return order(change)


def replaced(line, other):
    return order(lambda lines: lines.__setitem__(lines.index(line), other))


def last_barrier_first(lines):
    """Move the barrier at the end of the loop to its start."""
    position = len(lines) - 1 - lines[::-1].index("cuda.syncthreads()")
    lines.insert(1, lines.pop(position))


def without_last_barrier(lines):
    del lines[len(lines) - 1 - lines[::-1].index("cuda.syncthreads()")]


def tiles_in_a_loop(S, TILE_S):
    found, s = [], 0
    while s < S:
        found.append((s, min(S, s + TILE_S)))
        s += TILE_S
    return found


def tiles_of_numpy(S, TILE_S):
    parts = np.split(np.arange(S), range(TILE_S, S, TILE_S))
    return np.array([(part[0], part[-1] + 1) for part in parts])


def visited_by_looking(L, S, TILE_L, TILE_S):
    seen = np.tri(L, S, dtype=bool)
    return sum(
        seen[i : i + TILE_L, j : j + TILE_S].any()
        for i in range(0, L, TILE_L)
        for j in range(0, S, TILE_S)
    )


def visited_by_formula(L, S, TILE_L, TILE_S):
    total = 0
    for i in range(0, L, TILE_L):
        last = min(i + TILE_L, L, S)
        total += math.ceil(last / TILE_S)
    return total


@cuda.jit
def online_kernel(out_LD, q_LD, k_SD, v_SD, scale):
    acc = cuda.local.array(D, float32)
    row = cuda.grid(1)
    row_max, row_sum = float32(-math.inf), float32(0.0)
    if row < out_LD.shape[0]:
        for d in range(D):
            acc[d] = float32(0.0)
        for s in range(k_SD.shape[0]):
            score = float32(0.0)
            for d in range(D):
                score += q_LD[row, d] * k_SD[s, d]
            score *= scale
            new_max = max(row_max, score)
            rescale = math.exp(row_max - new_max)
            weight = math.exp(score - new_max)
            row_max, row_sum = new_max, row_sum * rescale + weight
            for d in range(D):
                acc[d] = acc[d] * rescale + weight * v_SD[s, d]
        for d in range(D):
            out_LD[row, d] = acc[d] / row_sum


@cuda.jit
def branching_kernel(out_LD, q_LD, k_SD, v_SD, scale):
    row = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    if row >= out_LD.shape[0]:
        return
    acc = cuda.local.array(D, float32)
    acc[0] = acc[1] = acc[2] = float32(0.0)
    row_max, row_sum = float32(-1e30), float32(0.0)
    for s in range(k_SD.shape[0]):
        score = float32(0.0)
        for d in range(D):
            score += q_LD[row, d] * scale * k_SD[s, d]
        if score > row_max:
            shrink = math.exp(row_max - score)
            row_sum *= shrink
            for d in range(D):
                acc[d] *= shrink
            row_max = score
        weight = math.exp(score - row_max)
        row_sum += weight
        for d in range(D):
            acc[d] += weight * v_SD[s, d]
    for d in range(D):
        out_LD[row, d] = acc[d] / row_sum


@cuda.jit
def mix_not_rescaled_kernel(out_LD, q_LD, k_SD, v_SD, scale):
    acc = cuda.local.array(D, float32)
    row = cuda.grid(1)
    row_max, row_sum = float32(-math.inf), float32(0.0)
    if row < out_LD.shape[0]:
        for d in range(D):
            acc[d] = float32(0.0)
        for s in range(k_SD.shape[0]):
            score = float32(0.0)
            for d in range(D):
                score += q_LD[row, d] * k_SD[s, d]
            score *= scale
            new_max = max(row_max, score)
            row_sum = row_sum * math.exp(row_max - new_max)
            row_max = new_max
            weight = math.exp(score - row_max)
            row_sum += weight
            for d in range(D):
                acc[d] += weight * v_SD[s, d]
        for d in range(D):
            out_LD[row, d] = acc[d] / row_sum


@cuda.jit
def twice_read_kernel(out_LD, q_LD, k_SD, v_SD, scale):
    row = cuda.grid(1)
    if row < out_LD.shape[0]:
        for d in range(D):
            out_LD[row, d] = float32(0.0)
        row_max, row_sum = float32(-math.inf), float32(0.0)
        for pass_ in range(2):
            for s in range(k_SD.shape[0]):
                score = float32(0.0)
                for d in range(D):
                    score += q_LD[row, d] * k_SD[s, d] * scale
                if pass_ == 0:
                    row_max = max(row_max, score)
                else:
                    weight = math.exp(score - row_max)
                    row_sum += weight
                    for d in range(D):
                        out_LD[row, d] += weight * v_SD[s, d]
        for d in range(D):
            out_LD[row, d] /= row_sum


@cuda.jit
def unguarded_kernel(out_LD, q_LD, k_SD, v_SD, scale):
    row = cuda.grid(1)
    for d in range(D):
        out_LD[row, d] = v_SD[0, d]


RIGHT = {
    "walk": [
        in_order(exercises.walk),
        swap("load_tile(k_tile, k_SD, s0)", "load_tile(v_tile, v_SD, s0)"),
        swap(
            "rescale = math.exp(row_max - new_max)",
            "weight = math.exp(score - new_max)",
        ),
        swap(
            "row_sum = row_sum * rescale + weight",
            "mix(acc, rescale, weight, v_tile, s)",
        ),
        order(last_barrier_first),
    ],
    "ragged": [
        lambda S, T: [(s, min(S, s + T)) for s in range(0, S, T)],
        tiles_in_a_loop,
        tiles_of_numpy,
    ],
    "causal_tiles": [
        visited_by_looking,
        visited_by_formula,
        lambda L, S, a, b: sum(
            -(-min(S, L, i + a) // b) for i in range(0, L, a)
        ),
    ],
    "key_reads": [
        lambda L, S, T: math.ceil(L / T) * S * D,
        lambda L, S, T: (L + T - 1) // T * D * S,
        lambda L, S, T: sum(S * D for _ in range(0, L, T)),
    ],
    "kernel": [online_kernel, branching_kernel, exercises.walk_kernel],
}
WRONG = {
    "walk": [
        (
            replaced("rescale = math.exp(row_max - new_max)", UPSIDE_DOWN),
            "values",
            "is nan",
        ),
        (
            swap("load_tile(v_tile, v_SD, s0)", "cuda.syncthreads()"),
            "no hazard",
            "race",
        ),
        (order(without_last_barrier), "no hazard", "race"),
        (
            swap("new_max = max(row_max, score)", "row_max = new_max"),
            "runs",
            "new_max",
        ),
    ],
    "ragged": [
        (
            lambda S, T: [(s, s + T) for s in range(0, S, T)],
            "keys of every tile",
            "online-tail-unmasked",
        ),
        (
            lambda S, T: [(i * T, i * T + T) for i in range(S // T)],
            "keys of every tile",
            "online-tail-dropped",
        ),
        (
            lambda S, T: [(s, min(S, s + T) - 1) for s in range(0, S, T)],
            "keys of every tile",
            "The last key of every tile",
        ),
    ],
    "causal_tiles": [
        (
            lambda L, S, a, b: math.ceil(L / a) * math.ceil(S / b),
            "visited tiles",
            "These are all tiles",
        ),
        (
            lambda L, S, a, b: -(-L // a) * (-(-L // a) + 1) // 2,
            "visited tiles",
            "square tiles",
        ),
        (
            lambda L, S, a, b: sum(
                -(-min(S, i + 1) // b) for i in range(0, L, a)
            ),
            "visited tiles",
            "asks its first query",
        ),
    ],
    "key_reads": [
        (
            lambda L, S, T: L * S * D,
            "recorded reads ÷ formula",
            "the queries of a block share",
        ),
        (
            lambda L, S, T: L // T * S * D,
            "recorded reads ÷ formula",
            "The last block is ragged",
        ),
    ],
    "kernel": [
        (mix_not_rescaled_kernel, "values", "acc-not-rescaled"),
        (twice_read_kernel, "traffic", "2 times as many"),
        (unguarded_kernel, "no hazard", "out-of-bounds"),
        (TILE, "runs", "is not a kernel"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.parametrize(("name", "number", "wrong"), each(WRONG))
def test_wrong_answer_is_named(name, number, wrong):
    answer, check, words = wrong
    assert_fails(getattr(exercises, name).check(answer), check, words)
