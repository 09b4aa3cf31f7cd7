"""The ready sets of wrong answers name what a kernel's values show."""

import math

import numpy as np
import pytest

from attention_lab.gpu import cuda
from attention_lab.verify.kernel.battery import verify_kernel
from attention_lab.verify.kernel.case import Launch
from attention_lab.verify.kernel.wrong_answers import (
    attention_wrong_answers,
    log_sum_exp_wrong_answers,
    softmax_wrong_answers,
)

float32 = np.float32
# -- wrong answers --------------------------------------------------------

LENGTHS = [{"L": 1, "S": 1}, {"L": 5, "S": 4}, {"L": 4, "S": 6}]


def attention_as_kernel(wrong, is_causal):
    """Copy a wrong answer, computed in NumPy, out of a kernel."""

    @cuda.jit
    def copy_kernel(out_LD, q_LD, k_SD, v_SD, answer_LD):
        row, d = cuda.threadIdx.x, cuda.threadIdx.y
        out_LD[row, d] = answer_LD[row, d]

    def inputs(L, S):
        rng = np.random.default_rng(9)
        return [rng.standard_normal((n, 3)) for n in (L, S, S)]

    def launch(L, S):
        given = inputs(L, S)
        with np.errstate(all="ignore"):
            answer = wrong(*given)[0].astype(float32)
        arrays = [x.astype(float32) for x in (*given, answer)]
        return Launch(1, (L, 3), (np.zeros((L, 3), float32), *arrays))

    def reference(q, k, v, answer):
        scores = q @ k.T / 3**0.5
        if is_causal:
            scores = np.where(np.tri(*scores.shape), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True) @ v

    return copy_kernel, launch, reference


@pytest.mark.parametrize("is_causal", [False, True])
def test_wrong_answers_are_told_apart(is_causal):
    answers = attention_wrong_answers(4, is_causal=is_causal)
    # Only large scores show the first two; one head has no model width.
    elsewhere = {
        "online-initial-max-zero",
        "no-max-subtraction",
        "scale-model-width",
    }
    for name in sorted(set(answers) - elsewhere):
        function = answers[name][0]
        needs_a_tile_before = name == "kernel-stale-tile"
        report = verify_kernel(
            *attention_as_kernel(function, is_causal),
            sizes=LENGTHS[1:] if needs_a_tile_before else LENGTHS,
            wrong_answers=answers,
            isolate=False,
        )
        check = report["values"]
        assert not check.passed, name
        assert check.mistake == name


@cuda.jit
def log_sum_exp_kernel(lse_L, scores_LS, start, subtracts):
    row = cuda.grid(1)
    if row < lse_L.shape[0]:
        row_max = start
        total = float32(0.0)
        for s in range(scores_LS.shape[1]):
            new_max = max(row_max, scores_LS[row, s]) if subtracts else start
            total *= math.exp(row_max - new_max)
            total += math.exp(scores_LS[row, s] - new_max)
            row_max = new_max
        lse_L[row] = row_max + math.log(total)


@pytest.mark.parametrize(
    ("subtracts", "name"),
    [(True, "online-initial-max-zero"), (False, "no-max-subtraction")],
)
def test_large_scores_name_what_only_they_show(subtracts, name):
    def launch(L, S):
        scores_LS = np.random.default_rng(1).normal(-3, 3, (L, S))
        args = (np.zeros(L, float32), scores_LS.astype(float32))
        return Launch(-(-L // 4), 4, (*args, float32(0.0), subtracts))

    def reference(scores, start, subtracts):
        top = scores.max(-1)
        return top + np.log(np.exp(scores - top[:, None]).sum(-1))

    report = verify_kernel(
        log_sum_exp_kernel,
        launch,
        reference,
        wrong_answers=log_sum_exp_wrong_answers(
            unpack=lambda scores, *rest: scores
        ),
    )
    assert [check.name for check in report.failures] == ["large scores"]
    assert report["large scores"].mistake == name


@cuda.jit
def softmax_kernel(out_LS, scores_LS, start, subtracts):
    row = cuda.grid(1)
    if row < out_LS.shape[0]:
        row_max = start
        if subtracts:
            for s in range(scores_LS.shape[1]):
                row_max = max(row_max, scores_LS[row, s])
        total = float32(0.0)
        for s in range(scores_LS.shape[1]):
            total += math.exp(scores_LS[row, s] - row_max)
        for s in range(scores_LS.shape[1]):
            out_LS[row, s] = math.exp(scores_LS[row, s] - row_max) / total


def softmax(scores, start, subtracts):
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.mark.parametrize("centre", [-5.0, -2.0, 0.0, 5.0])
@pytest.mark.parametrize(
    ("start", "subtracts", "name"),
    [
        (-np.inf, True, None),
        (0.0, True, "online-initial-max-zero"),
        (0.0, False, "no-max-subtraction"),
    ],
)
def test_wherever_the_scores_lie_a_wrong_maximum_shows(
    centre, start, subtracts, name
):
    def launch(L, S):
        rng = np.random.default_rng(0)
        scores_LS = rng.normal(centre, 1.0, (L, S)).astype(float32)
        args = (np.zeros((L, S), float32), scores_LS)
        return Launch(-(-L // 4), 4, (*args, float32(start), subtracts))

    report = verify_kernel(
        softmax_kernel,
        launch,
        softmax,
        wrong_answers=softmax_wrong_answers(
            unpack=lambda scores, *rest: scores
        ),
    )
    if name is None:
        assert report.passed, str(report)
        return
    assert [check.name for check in report.failures] == ["large scores"]
    assert report.mistakes == (name,)


@cuda.jit
def attention_kernel(out_LD, q_LD, k_SD, v_SD, start):
    row = cuda.grid(1)
    acc = cuda.local.array(3, float32)
    if row < q_LD.shape[0]:
        for d in range(3):
            acc[d] = float32(0.0)
        row_max = start
        row_sum = float32(0.0)
        for s in range(k_SD.shape[0]):
            score = float32(0.0)
            for d in range(3):
                score += q_LD[row, d] * k_SD[s, d]
            score /= math.sqrt(float32(3.0))
            new_max = max(row_max, score)
            weight = math.exp(score - new_max)
            rescale = math.exp(row_max - new_max)
            row_sum = row_sum * rescale + weight
            for d in range(3):
                acc[d] = acc[d] * rescale + weight * v_SD[s, d]
            row_max = new_max
        for d in range(3):
            out_LD[row, d] = acc[d] / row_sum


@pytest.mark.parametrize("start", [-np.inf, 0.0])
def test_attention_with_products_far_below_0_needs_its_maximum(start):
    def launch(L, S):
        rng = np.random.default_rng(2)
        # Products of positive numbers: plain and × 100, all lie above 0.
        given = [rng.uniform(0.1, 1, (n, 3)).astype(float32) for n in (L, S, S)]
        args = (np.zeros((L, 3), float32), *given, float32(start))
        return Launch(-(-L // 4), 4, args)

    def reference(q, k, v, start):
        return softmax(q @ k.T / 3**0.5, None, None) @ v

    report = verify_kernel(
        attention_kernel,
        launch,
        reference,
        wrong_answers=attention_wrong_answers(
            unpack=lambda q, k, v, start: (q, k, v, 3**-0.5)
        ),
    )
    if start == 0:
        assert report.mistakes == ("online-initial-max-zero",)
        assert "far below 0" in report["large scores"].what
    else:
        assert report.passed, str(report)


def test_model_width_counts_the_heads():
    rng = np.random.default_rng(1)
    q, k, v = (rng.standard_normal((1, 2, n, 3)) for n in (4, 5, 5))
    wrong, _ = attention_wrong_answers()["scale-model-width"][0](q, k, v)
    powers = np.exp(q @ k.swapaxes(-1, -2) / 6**0.5)
    expected = powers @ v / powers.sum(-1, keepdims=True)
    np.testing.assert_allclose(wrong, expected, rtol=1e-12)
