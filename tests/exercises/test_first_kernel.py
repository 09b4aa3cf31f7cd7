"""Right and wrong answers to the exercises of "Your first kernel"."""

from statistics import median

import pytest
from numba import float32

from attention_lab.exercises import first_kernel as exercises
from attention_lab.gpu import cuda
from attention_lab.steps.first_kernel import predicted_traffic
from marking import assert_fails, assert_passes, each, in_order

# -- the guard -------------------------------------------------------------


@cuda.jit
def guard_by_input(out_L, x_L):
    i = cuda.grid(1)
    if i < x_L.shape[0]:
        out_L[i] = x_L[i] * float32(0.5)


@cuda.jit
def guard_by_size(out_L, x_L):
    i = cuda.grid(1)
    if out_L.size > i:
        out_L[i] = x_L[i] * float32(0.5)


@cuda.jit
def guard_by_last(out_L, x_L):
    i = cuda.grid(1)
    if not i > len(out_L) - 1:
        out_L[i] = x_L[i] * float32(0.5)


@cuda.jit
def guard_one_late(out_L, x_L):
    i = cuda.grid(1)
    if i <= x_L.shape[0]:
        out_L[i] = x_L[i] * float32(0.5)


@cuda.jit
def guard_one_early(out_L, x_L):
    i = cuda.grid(1)
    if i < x_L.shape[0] - 1:
        out_L[i] = x_L[i] * float32(0.5)


@cuda.jit
def guard_by_block(out_L, x_L):
    i = cuda.grid(1)
    if i < cuda.blockDim.x:
        out_L[i] = x_L[i] * float32(0.5)


@cuda.jit
def guard_always(out_L, x_L):
    i = cuda.grid(1)
    if True:
        out_L[i] = x_L[i] * float32(0.5)


# -- the softmax -----------------------------------------------------------

FIND = [
    "mine = real(-math.inf)",
    "for s in range(t, S, THREADS):",
    "mine = max(mine, scores_LS[row, s])",
]
TOP = "row_max = tree_max(mine, shared)"
SHIFT = "shift = row_max if row_max != real(-math.inf) else real(0.0)"
ADD = [
    "mine = real(0.0)",
    "for s in range(t, S, THREADS):",
    "mine += math.exp(scores_LS[row, s] - shift)",
]
SUM = "row_sum = tree_sum(mine, shared)"
DIVISOR = "divisor = row_sum if row_sum != real(0.0) else real(1.0)"
WRITE = [
    "for s in range(t, S, THREADS):",
    "weights_LS[row, s] = math.exp(scores_LS[row, s] - shift) / divisor",
]


def order(*lines):
    return in_order(exercises.softmax, *lines)


# -- the reads -------------------------------------------------------------


def reads_by_hand(L, S, D):
    return 2 * L * S * D + 3 * L * S


def reads_by_row(L, S, D):
    return sum(2 * D * S + 3 * S for _ in range(L))


def reads_by_formula(L, S, D):
    kernels = predicted_traffic(L, S, D).values()
    return sum(reads for kernel in kernels for reads, _ in kernel.values())


# -- no float64 ------------------------------------------------------------


@cuda.jit
def mean_by_float32(out_L, x_LS):
    row = cuda.grid(1)
    L, S = x_LS.shape
    if row < L:
        total = float32(0.0)
        for s in range(S):
            total += x_LS[row, s]
        out_L[row] = total / float32(S)


@cuda.jit
def mean_from_an_integer(out_L, x_LS):
    row = cuda.grid(1)
    L, S = x_LS.shape
    if row < L:
        total = float32(0)
        for s in range(S):
            total += x_LS[row, s]
        out_L[row] = total / cuda.float32(S)


@cuda.jit
def mean_of_shares(out_L, x_LS):
    row = cuda.grid(1)
    L, S = x_LS.shape
    if row < L:
        total = x_LS[row, 0]
        for s in range(1, S):
            total += x_LS[row, s]
        share = float32(1) / float32(S)
        out_L[row] = total * share


@cuda.jit
def mean_from_a_literal(out_L, x_LS):
    row = cuda.grid(1)
    L, S = x_LS.shape
    if row < L:
        total = 0.0
        for s in range(S):
            total += x_LS[row, s]
        out_L[row] = total / float32(S)


@cuda.jit
def mean_by_a_length(out_L, x_LS):
    row = cuda.grid(1)
    L, S = x_LS.shape
    if row < L:
        total = float32(0.0)
        for s in range(S):
            total += x_LS[row, s]
        out_L[row] = total / S


@cuda.jit
def mean_over_queries(out_L, x_LS):
    row = cuda.grid(1)
    L, S = x_LS.shape
    if row < L:
        total = float32(0.0)
        for s in range(S):
            total += x_LS[row, s]
        out_L[row] = total / float32(L)


# -- the stopwatch ---------------------------------------------------------


def watch_ten(launch, synchronize, clock):
    launch()
    synchronize()
    start = clock()
    for _ in range(10):
        launch()
    synchronize()
    return (clock() - start) / 10


def watch_one(launch, synchronize, clock):
    launch()
    synchronize()
    start = clock()
    launch()
    synchronize()
    return clock() - start


def watch_the_median(launch, synchronize, clock):
    times = []
    for _ in range(5):
        synchronize()
        start = clock()
        launch()
        synchronize()
        times.append(clock() - start)
    return median(times)


def watch_without_waiting(launch, synchronize, clock):
    launch()
    synchronize()
    start = clock()
    launch()
    return clock() - start


def watch_the_first(launch, synchronize, clock):
    start = clock()
    launch()
    synchronize()
    return clock() - start


def watch_the_warm_up(launch, synchronize, clock):
    launch()
    start = clock()
    launch()
    synchronize()
    return clock() - start


def watch_all_ten(launch, synchronize, clock):
    launch()
    synchronize()
    start = clock()
    for _ in range(10):
        launch()
    synchronize()
    return clock() - start


def watch_nothing(launch, synchronize, clock):
    launch()
    synchronize()
    return clock()


def watch_idle(launch, synchronize, clock):
    launch()
    start = clock()
    synchronize()
    return clock() - start + 1_000_000


def watch_in_words(launch, synchronize, clock):
    return "fast"


RIGHT = {
    "guard": [guard_by_input, guard_by_size, guard_by_last],
    "softmax": [
        order(),
        order(*FIND, TOP, ADD[0], SHIFT, *ADD[1:], SUM, DIVISOR, *WRITE),
        order(*FIND, TOP, SHIFT, *ADD, SUM, DIVISOR, *WRITE).lower(),
        list(order(*FIND, TOP, SHIFT, *ADD, SUM, DIVISOR, *WRITE).split()),
    ],
    "reads": [reads_by_hand, reads_by_row, reads_by_formula],
    "narrow": [mean_by_float32, mean_from_an_integer, mean_of_shares],
    "stopwatch": [watch_ten, watch_one, watch_the_median],
}
WRONG = {
    "guard": [
        (guard_one_late, "no hazard", "guard-missing"),
        (guard_always, "no hazard", "guard-missing"),
        (guard_one_early, "output written", "out_L"),
        (guard_by_block, "no hazard", "out_L"),
        (3, "runs", "kernel"),
    ],
    "softmax": [
        (
            order(*FIND, TOP, SHIFT, *ADD[1:], SUM, DIVISOR, *WRITE),
            "values",
            "weights_LS",
        ),
        (
            order(*FIND, TOP, SHIFT, ADD[0], SUM, *ADD[1:], DIVISOR, *WRITE),
            "values",
            "weights_LS",
        ),
        (
            order(*FIND, *ADD, SUM, TOP, SHIFT, DIVISOR, *WRITE),
            "runs",
            "shift",
        ),
        (order(FIND[0], FIND[2], FIND[1], TOP), "is Python", "Python says"),
    ],
    "reads": [
        (
            lambda L, S, D: L * D + S * D + 3 * L * S,
            "reads",
            "Each input is counted once",
        ),
        (
            lambda L, S, D: 2 * L * S * D + L * S,
            "reads",
            "more often than once",
        ),
        (lambda L, S, D: L * S * (D + 3), "reads", "Only q, or only k"),
        (lambda L, S, D: 2 * L * S * D, "reads", "softmax is missing"),
        (lambda L, S, D: L * S * (2 * D + 5), "reads", "Writes are counted"),
        (lambda L, S: L * S, "reads", "argument"),
    ],
    "narrow": [
        (mean_from_a_literal, "stays in float32", "float64-accumulator"),
        (mean_by_a_length, "stays in float32", "float64-accumulator"),
        (mean_over_queries, "values", "out_L"),
    ],
    "stopwatch": [
        (watch_without_waiting, "the time of one run", "still at work"),
        (watch_the_first, "the time of one run", "compiles the kernel"),
        (watch_the_warm_up, "the time of one run", "warm up was not over"),
        (watch_all_ten, "the time of one run", "not that of one"),
        (watch_nothing, "the time of one run", "difference of two readings"),
        (watch_idle, "the time of one run", "Nothing was launched"),
        (watch_in_words, "the time of one run", "returned 'fast', not a"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.parametrize(("name", "number", "wrong"), each(WRONG))
def test_wrong_answer_is_named(name, number, wrong):
    answer, check, words = wrong
    assert_fails(getattr(exercises, name).check(answer), check, words)


@pytest.mark.parametrize("name", RIGHT)
def test_blank_answer_is_neither_right_nor_wrong(name):
    feedback = getattr(exercises, name).check(None)
    assert feedback.blank
    assert not feedback.passed
