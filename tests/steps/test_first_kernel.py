import math

import numpy as np
import pytest
import torch
from numba import float32

from attention_lab.axes import ShapeMismatch
from attention_lab.error_bound import ulp
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.recorder import record
from attention_lab.steps import first_kernel as step
from test_mistakes_are_caught import edited

recorder_only = pytest.mark.skipif(
    runs_on_gpu(), reason="records the launches that the recorder makes"
)
ORDERS = ["ascending", "descending", "shuffled"]


def normal(*shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


def exact_softmax(scores):
    """Return the weights of every row in float64, row by row."""
    weights = np.zeros(scores.shape)
    for row, line in enumerate(scores.astype(np.float64)):
        seen = line > -np.inf
        if seen.any():
            shifted = np.exp(line[seen] - line.max())
            weights[row, seen] = shifted / shifted.sum()
    return weights


def plain_bound(plain, exact):
    """Twice the error of plain float32, plus 2 ulp of the largest number."""
    largest = np.abs(exact).max()
    return 2 * np.abs(plain - exact).max() + 2 * ulp(largest, "float32")


def test_threads_know_their_block_and_their_place():
    assert step.who_cuda(7, threads=3).tolist() == [0, 1, 2, 100, 101, 102, 200]
    assert step.who_cuda(1, threads=1).tolist() == [0]


@pytest.mark.parametrize("L", [1, 3, 4, 5])
@pytest.mark.parametrize("S", [1, 7, 8, 9])
@pytest.mark.parametrize("D", [1, 3])
def test_scores_are_right_around_the_block(L, S, D):
    q, k = normal(L, D) * np.float32(100), normal(S, D)
    exact = q.astype(np.float64) @ k.T / math.sqrt(D)
    scale = np.float32(D**-0.5)
    one_by_one = sum(q[:, d, None] * k[:, d] for d in range(D)) * scale
    bound = plain_bound(one_by_one, exact)
    np.testing.assert_allclose(
        step.scores_cuda(q, k), exact, atol=bound, rtol=0
    )
    readable = step.scores(torch.tensor(q), torch.tensor(k))
    bound = max(bound, plain_bound(q @ k.T * scale, exact))
    np.testing.assert_allclose(readable, exact, atol=bound, rtol=0)


@pytest.mark.parametrize("threads", [1, 2, 8, 32])
@pytest.mark.parametrize("S", [1, 7, 8, 9, 37])
def test_weights_are_right_for_any_block(S, threads):
    scores = normal(3, S) * np.float32(100)
    scores[1] = -np.inf
    scores[2, 0] = -np.inf
    exact = exact_softmax(scores)
    with np.errstate(invalid="ignore"):
        plain = np.exp(scores - scores.max(1, keepdims=True))
        plain = np.nan_to_num(plain / plain.sum(1, keepdims=True))
    weights = step.softmax_cuda(scores, threads)
    bound = plain_bound(plain, exact)
    np.testing.assert_allclose(weights, exact, atol=bound, rtol=0)
    assert (weights[1] == 0).all()


def test_nan_stays_in_its_row():
    scores = normal(2, 5)
    scores[1, 3] = np.nan
    weights = step.softmax_cuda(scores)
    assert np.isfinite(weights[0]).all()
    assert np.isnan(weights[1]).all()


def test_kinds_and_empty_axes_come_back():
    q, k = (torch.tensor(normal(n, 3)).double() for n in (5, 7))
    assert step.scores_cuda(q, k).dtype == torch.float64
    assert step.scores_cuda(q[:0], k).shape == (0, 7)
    assert (step.scores_cuda(q[:, :0], k[:, :0]) == 0).all()
    assert step.softmax_cuda(q[:, :0]).shape == (5, 0)
    weights = step.softmax_cuda(q.half())
    assert weights.dtype == torch.float16


@pytest.mark.parametrize("count", [1, 2, 8, 1024])
def test_the_tree_halves_until_one_is_left(count):
    numbers = torch.arange(float(count))
    rounds = step.tree_rounds(numbers)
    assert [len(row) for row in rounds] == [
        count >> r for r in range(count.bit_length())
    ]
    assert rounds[-1].item() == count * (count - 1) / 2
    assert step.tree_rounds(numbers, torch.maximum)[-1].item() == count - 1


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: step.scores_cuda(normal(2, 3), normal(2, 4)),
            ShapeMismatch,
            "k_SD: axis D has size 4, but q_LD has D = 3",
        ),
        (
            lambda: step.scores(torch.ones(2, 3), torch.ones(2, 4)),
            ShapeMismatch,
            "k_SD: axis D has size 4, but q_LD has D = 3",
        ),
        (
            lambda: step.scores_cuda(normal(2), normal(2, 4)),
            ShapeMismatch,
            "q_LD has 1 axes",
        ),
        (
            lambda: step.scores_cuda(normal(2, 3), np.ones((2, 3), int)),
            ValueError,
            "k_SD has dtype int64",
        ),
        (
            lambda: step.scores_cuda(normal(2, 3), np.ones((2, 3))),
            ValueError,
            "k_SD has dtype float64, but q_LD has float32",
        ),
        (
            lambda: step.scores_launch(L=300_000, S=1),
            ValueError,
            "axis L needs 75000 blocks",
        ),
        (
            lambda: step.softmax_cuda(normal(2, 3, 4)),
            ShapeMismatch,
            "scores_LS has 3 axes",
        ),
        (
            lambda: step.softmax_cuda(normal(2, 3), threads=6),
            ValueError,
            "threads must be a power of two, not 6",
        ),
        (
            lambda: step.softmax_cuda(normal(2, 3), threads=2048),
            ValueError,
            "threads = 2048, but CUDA allows 1024",
        ),
        (
            lambda: step.tree_rounds(torch.ones(6)),
            ValueError,
            "numbers: their number must be a power of two, not 6",
        ),
        (lambda: step.who_cuda(0, 3), ValueError, "n must be a whole number"),
        (
            lambda: step.who_cuda(3, 101),
            ValueError,
            "threads must be at most 100, not 101",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -- recorded --------------------------------------------------------------


@recorder_only
@pytest.mark.parametrize("order", ORDERS)
def test_kernels_are_clean_and_move_what_the_formula_says(order):
    for L, S, D in ((1, 1, 1), (5, 7, 3), (4, 8, 2), (3, 9, 1)):
        for recording in (
            step.measure_scores(L, S, D, order),
            step.measure_softmax(L, S, order=order),
        ):
            assert recording.is_clean, str(recording)
            assert recording.matches_formula, str(recording)
            kinds = {note.kind for note in recording.notes}
            assert not {kind for kind in kinds if "float64" in kind}
    who = np.full(7, -1)
    assert record(step.who_kernel, 3, 3, who, order=order).is_clean


@recorder_only
def test_half_of_the_threads_work_in_each_round():
    recording = step.measure_softmax(2, 19, threads=8)
    tree = [8, 4, 2, 1, 0]
    assert step.threads_writing(recording, "shared") == 2 * tree + [0]
    one = step.measure_softmax(1, 3, threads=1)
    assert step.threads_writing(one, "shared") == [1, 0, 1, 0, 0]


# -- planted mistakes ------------------------------------------------------


def broken_softmax(old, new, folder, monkeypatch):
    """Build the softmax kernel with its tree edited."""
    make = step.make_tree
    monkeypatch.setattr(
        step, "make_tree", lambda *args: edited(make(*args), old, new, folder)
    )
    return step.make_softmax_kernel.__wrapped__(float32, 8)


@recorder_only
@pytest.mark.parametrize(
    "comment",
    [
        "every number is there before anyone reads one",
        "this round is over before the next one reads",
        "everyone has the result before it is overwritten",
    ],
)
def test_a_forgotten_barrier_is_a_race(comment, tmp_path, monkeypatch):
    old = f"cuda.syncthreads()  # {comment}"
    kernel = broken_softmax(old, "pass", tmp_path, monkeypatch)
    scores = normal(2, 19)
    recording = record(kernel, 2, 8, np.full_like(scores, np.nan), scores)
    assert "race" in recording.kinds, str(recording)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("range(ROUNDS)", "range(ROUNDS - 1)"),
        ("shared[t + half]", "shared[t + half - 1]"),
        ("one + other if is_sum", "one if is_sum"),
    ],
)
def test_a_lost_number_fails_the_comparison(old, new, tmp_path, monkeypatch):
    kernel = broken_softmax(old, new, tmp_path, monkeypatch)
    scores = normal(3, 19) * np.float32(9)
    weights = np.full_like(scores, np.nan)
    kernel[3, 8](weights, scores)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        np.testing.assert_allclose(weights, exact_softmax(scores), atol=1e-6)


@recorder_only
def test_a_guard_on_one_axis_only_is_out_of_bounds(tmp_path):
    kernel = step.make_scores_kernel(float32)
    broken = edited(kernel, "row < L and s < S", "s < S", tmp_path)
    out = np.full((5, 7), np.nan, np.float32)
    launch = step.scores_launch(5, 7)
    recording = record(
        broken, *launch, out, normal(5, 3), normal(7, 3), np.float32(1)
    )
    assert "out-of-bounds" in recording.kinds, str(recording)
