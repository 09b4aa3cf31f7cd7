import math

import numpy as np
import pytest
import torch

from attention_lab.exercises import scaled_dot_product as exercises
from attention_lab.steps.scaled_dot_product import softmax
from marking import assert_fails, assert_passes, each


def masked(scores, keep):
    return scores.masked_fill(~keep, -math.inf)


def softmax_of_visible_rows(scores, keep):
    seen = keep.any(-1, keepdim=True)
    safe = torch.where(seen, masked(scores, keep), torch.zeros_like(scores))
    return torch.where(seen, torch.softmax(safe, -1), 0.0)


def softmax_by_hand(scores, keep):
    scores = masked(scores, keep)
    largest = scores.amax(-1, keepdim=True)
    raw = torch.exp(scores - largest.masked_fill(largest == -math.inf, 0.0))
    total = raw.sum(-1, keepdim=True)
    return raw / total.masked_fill(total == 0, 1.0)


def softmax_of_huge_negatives(scores, keep):
    return torch.softmax(scores.masked_fill(~keep, -1e9), -1)


def softmax_repaired_afterwards(scores, keep):
    # The gradient of masked_fill is 0 where it fills, so no NaN gets through.
    return torch.nan_to_num(torch.softmax(masked(scores, keep), -1))


def softmax_with_a_bias_repaired(scores, keep):
    bias = torch.zeros_like(scores).masked_fill(~keep, -math.inf)
    return torch.nan_to_num(torch.softmax(scores + bias, -1))


def softmax_without_maximum(scores, keep):
    raw = scores.exp() * keep
    total = raw.sum(-1, keepdim=True)
    return raw / torch.where(total == 0, 1, total)


def table(true, false, true_there, false_there):
    return {
        "scaled_dot_product_attention, True": true,
        "scaled_dot_product_attention, False": false,
        "MultiheadAttention, True": true_there,
        "MultiheadAttention, False": false_there,
    }


RIGHT = {
    "scale": [
        lambda q, k: q @ k.mT / math.sqrt(q.shape[-1]),
        lambda q, k: (q * k.shape[-1] ** -0.5) @ k.transpose(-2, -1),
        lambda q, k: torch.einsum("bhld,bhsd->bhls", q, k) / q.size(3) ** 0.5,
    ],
    "causal": [
        lambda L, S: np.tri(L, S, dtype=bool),
        lambda L, S: torch.ones(L, S, dtype=torch.bool).tril(),
        lambda L, S: torch.arange(L)[:, None] >= torch.arange(S),
    ],
    "empty_row": [
        softmax_of_visible_rows,
        softmax_by_hand,
        softmax_repaired_afterwards,
        lambda scores, keep: softmax(masked(scores, keep)),
    ],
    "polarity": [
        table(True, False, False, True),
        dict(reversed(table(True, False, False, True).items())),
        table(*np.array([True, False, False, True])),
    ],
    "additive": [
        lambda L, S, D: L * D * D + S * D * D + L * S * D,
        lambda L, S, D: D * (L * S + D * (L + S)),
        lambda L, S, D: sum([D * D] * (L + S)) + D * S * L,
    ],
}
WRONG = {
    "scale": [
        (lambda q, k: q @ k.mT, "scores", "scale-missing"),
        (lambda q, k: q @ k.mT / q.shape[-1], "scores", "scale-twice"),
        (
            lambda q, k: q @ k.mT / (q.shape[1] * q.shape[3]) ** 0.5,
            "scores",
            "scale-model-width",
        ),
        (
            lambda q, k: q @ k.mT / k.shape[2] ** 0.5,
            "scores",
            "scale-key-length",
        ),
        (
            lambda q, k: k @ q.mT / q.shape[-1] ** 0.5,
            "scores",
            "shape (1, 2, 3, 2)",
        ),
    ],
    "causal": [
        (lambda L, S: ~np.tri(L, S, dtype=bool), "keys seen", "mask-polarity"),
        (
            lambda L, S: np.tri(S, L, dtype=bool).T,
            "keys seen",
            "causal-transposed",
        ),
        (
            lambda L, S: np.tri(L, S, S - L, dtype=bool),
            "keys seen",
            "causal-lower-right",
        ),
        (
            lambda L, S: torch.ones(L, S).tril(),
            "keys seen",
            "has dtype torch.float32",
        ),
        (
            lambda L, S: np.tri(L, S, 1, dtype=bool),
            "keys seen",
            "causal-off-by-one-future",
        ),
    ],
    "empty_row": [
        (
            lambda scores, keep: torch.softmax(masked(scores, keep), -1),
            "weights",
            "fully-masked-row-nan",
        ),
        (softmax_of_huge_negatives, "weights", "fully-masked-row-uniform"),
        (softmax_without_maximum, "weights", "no-max-subtraction"),
        (
            softmax_with_a_bias_repaired,
            "gradient",
            "fully-masked-row-gradient-nan",
        ),
        (
            lambda scores, keep: softmax_by_hand(scores, keep).detach(),
            "gradient",
            "does not require grad",
        ),
    ],
    "polarity": [
        (
            table(True, False, True, False),
            "MultiheadAttention",
            "A run on two keys",
        ),
        (
            table(False, True, False, True),
            "scaled_dot_product_attention",
            "A run on two keys",
        ),
        (table("yes", "no", "no", "yes"), "the table", "Write True or False"),
        ({"sdpa": True}, "the table", "Keep the table's four entries"),
    ],
    "additive": [
        (
            lambda L, S, D: L * S * D * D,
            "multiplications",
            "not once per pair",
        ),
        (
            lambda L, S, D: L * D * D + L * S * D,
            "multiplications",
            "The keys go through a matrix",
        ),
        (lambda L, S, D: 0, "multiplications", "is 0, but 33 is expected"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.parametrize(("name", "number", "wrong"), each(WRONG))
def test_wrong_answer_is_named(name, number, wrong):
    answer, check, words = wrong
    assert_fails(getattr(exercises, name).check(answer), check, words)
