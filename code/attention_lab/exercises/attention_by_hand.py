"""The exercises of the chapter on attention by hand."""

from typing import Any

import numpy as np
from einops import rearrange

from attention_lab import examples
from attention_lab.error_bound import rounding
from attention_lab.exercises import answers
from attention_lab.exercises.exercise import Exercise
from attention_lab.verify.report import Check

# -- three keys on paper ----------------------------------------------------

SCORES_S = np.log([1.0, 3.0, 4.0])
#: Two decimals on paper are enough: half of the second one, and what binary
#: numbers add to it (0.13 − 0.125 is a little more than 0.005).
ON_PAPER = 0.005 + 1e-9


def _softmax(scores: np.ndarray) -> np.ndarray:
    raw = np.exp(scores - scores.max(-1, keepdims=True))
    return raw / raw.sum(-1, keepdims=True)


def _examine_weights(answer: Any) -> list[Check]:
    expected = _softmax(SCORES_S)
    found = answers.array("weights", answer, expected, ON_PAPER, "weights_S")
    if found.passed or "but" not in found.what:
        return [found]
    wrong = {
        "These are the exponentials. Weights sum to one.": np.exp(SCORES_S),
        "These are the scores over their sum. Take the exponentials first.": (
            SCORES_S / SCORES_S.sum()
        ),
        "All the weight for the largest score: that is no softmax.": np.array(
            [0.0, 0.0, 1.0]
        ),
        "Equal weights would need equal scores.": np.full(3, 1 / 3),
    }
    for sentence, values in wrong.items():
        if answers.array("", answer, values, ON_PAPER).passed:
            return [Check("weights", False, sentence)]
    return [found]


by_hand = Exercise(
    "attention_by_hand.by_hand",
    _examine_weights,
    hints={
        "weights": (
            "What are the exponentials of these three scores?",
            "Divide each exponential by the sum of all three.",
        )
    },
)

# -- patches: one gap -------------------------------------------------------


def _patches(pattern: str) -> Any:
    def cut(image: np.ndarray, patch: int) -> np.ndarray:
        return rearrange(image, pattern, p=patch, q=patch)

    return cut


def _examine_patches(answer: Any) -> list[Check]:
    sizes = ((4, 6, 2), (6, 3, 3), (9, 6, 3))
    cases = [
        {"image": examples.position_coded(rows, columns), "patch": patch}
        for rows, columns, patch in sizes
    ]
    wrong = {
        "The pixels are taken as they lie in memory: row by row.": (
            lambda image, patch: image.reshape(-1, patch * patch)
        ),
        "Each patch takes every p-th pixel, all over the image.": _patches(
            "(p r) (q c) -> (r c) (p q)"
        ),
        "The patches go top to bottom first, not left to right.": _patches(
            "(r p) (c q) -> (c r) (p q)"
        ),
        "Inside each patch, rows and columns have changed places.": _patches(
            "(r p) (c q) -> (r c) (q p)"
        ),
    }
    return [
        answers.function(
            "pixels",
            answer,
            cases,
            examples.to_patches,
            called="patches_LD",
            wrong=wrong,
        )
    ]


patches = Exercise(
    "attention_by_hand.patches",
    _examine_patches,
    hints={
        "pixels": (
            "Which pixels of the image should the first patch hold?",
            "First name four sizes: rows of patches, rows in a patch, and the "
            "same for columns. Then bring the two that count patches together.",
        )
    },
)

# -- a test of equivariance: blank ------------------------------------------


def _attend(x_LD: np.ndarray) -> np.ndarray:
    return _softmax(x_LD @ x_LD.T) @ x_LD


def _with_positions(x_LD: np.ndarray) -> np.ndarray:
    places = np.arange(len(x_LD))[:, None]
    return _attend(x_LD + 0.1 * places)


def _causal(x_LD: np.ndarray) -> np.ndarray:
    scores = x_LD @ x_LD.T
    scores[np.triu_indices(len(x_LD), 1)] = -np.inf
    return _softmax(scores) @ x_LD


def _mean_of_all(x_LD: np.ndarray) -> np.ndarray:
    return np.repeat(x_LD.mean(0, keepdims=True), len(x_LD), axis=0)


def _last_only(x_LD: np.ndarray) -> np.ndarray:
    """Go wrong in the last row alone: a test of one row misses it."""
    out = _attend(x_LD)
    out[-1] = x_LD[0]
    return out


_CANDIDATES = {
    "attention": (_attend, True),
    "the mean of all patches": (_mean_of_all, True),
    "each patch alone": (np.tanh, True),
    "attention with positions": (_with_positions, False),
    "causal attention": (_causal, False),
    "attention with a wrong last row": (_last_only, False),
}


def _examine_test(answer: Any) -> list[Check]:
    if not callable(answer):
        return [Check("attention", False, "Answer with a function.")]
    x_LD = np.random.default_rng(6).standard_normal((5, 3))
    order = np.array([3, 0, 4, 1, 2])
    checks = []
    for name, (function, is_equivariant) in _CANDIDATES.items():
        try:
            said = answer(function, x_LD.copy(), order)
        except Exception as error:
            checks.append(Check(name, False, answers.said(error)))
            continue
        if not isinstance(said, bool | np.bool_):
            what = f"Return True or False, not {type(said).__name__}."
            checks.append(Check(name, False, what))
            continue
        missing = "is" if is_equivariant else "is not"
        what = f"It {missing} equivariant, and your test says {bool(said)}."
        checks.append(Check(name, bool(said) == is_equivariant, what))
    return checks


_TEST_HINTS = (
    "Two ways must agree: shuffle and then attend, attend and then shuffle.",
    "Compare all numbers, and leave room for rounding.",
)
equivariance = Exercise(
    "attention_by_hand.equivariance",
    _examine_test,
    hints=dict.fromkeys(_CANDIDATES, _TEST_HINTS),
)

# -- two weightings, one output ---------------------------------------------

VALUES_SD = np.array([[0.0, 0.0], [2.0, 0.0], [0.0, 2.0], [2.0, 2.0]])
WEIGHTS_S = np.array([0.25, 0.25, 0.25, 0.25])


def _examine_weighting(answer: Any) -> list[Check]:
    shape = answers.array("four weights", answer, WEIGHTS_S, 1e9, "weights_S")
    if not shape.passed:
        return [shape]
    given_S = np.asarray(answer, dtype=np.float64)
    total = given_S.sum()
    is_weights = bool((given_S >= 0).all()) and abs(total - 1) <= ON_PAPER
    out_D = given_S @ VALUES_SD
    return [
        Check(
            "four weights",
            is_weights,
            f"Weights are not negative and sum to one; yours sum to {total:g}.",
        ),
        answers.array(
            "the same output",
            out_D,
            WEIGHTS_S @ VALUES_SD,
            rounding(VALUES_SD),
            "out_D",
        ),
        Check(
            "other weights",
            bool(np.abs(given_S - WEIGHTS_S).max() > 0.1),
            "These are hardly other weights: change one by more than 0.1.",
        ),
    ]


weighting = Exercise(
    "attention_by_hand.weighting",
    _examine_weighting,
    hints={
        "four weights": (
            "A weight says how much of one value is taken.",
            "What one key gains, others must lose.",
        ),
        "the same output": (
            "Draw the four values as corners of a square. Where is the output?",
            "Which two corners have their middle at the output, too?",
        ),
    },
)
