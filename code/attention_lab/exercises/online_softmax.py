"""The exercises of the chapter on the online softmax."""

import math
from typing import Any

import numpy as np
import torch
from numba import float32
from torch import Tensor

from attention_lab.error_bound import rounding
from attention_lab.exercises import answers
from attention_lab.exercises.exercise import Exercise
from attention_lab.exercises.parsons import Parsons
from attention_lab.gpu import cuda
from attention_lab.verify.kernel.case import Launch
from attention_lab.verify.report import Check

# -- on paper ---------------------------------------------------------------

ON_PAPER = ([0.0, math.log(2), math.log(4)], [1.0, 2.0, 4.0])


def _attend(scores_S: Tensor, value_SD: Tensor) -> Tensor:
    return torch.softmax(scores_S, 0) @ value_SD


def _examine_paper(answer: Any) -> list[Check]:
    scores, values = map(torch.tensor, ON_PAPER)
    mean = values.mean().item()
    mix = (scores.exp() @ values).item()
    wrong = {
        mean: "This is the mean of the values, as if all scores were equal. "
        "That is also what comes out if nothing is rescaled.",
        mix: "This is the mix; it has still to be divided.",
    }
    expected = _attend(scores, values).item()
    return [answers.number("the output", answer, expected, wrong)]


paper = Exercise(
    "online_softmax.paper",
    _examine_paper,
    hints={
        "the output": (
            "Each score is a new maximum. By which factor do the sums shrink?",
            "The sums are 1, then ½ + 1. Go on, and do the same with the mix.",
        )
    },
)

# -- rescale: one gap -------------------------------------------------------


def _stream(
    scores_S: Tensor,
    value_SD: Tensor,
    sum_factor: str = "right",
    mix_factor: str = "right",
    start: float = -math.inf,
) -> Tensor:
    """Stream over the scores; the factors and the start may be wrong."""
    row_max, row_sum = torch.tensor(start).double(), 0.0
    acc_D = torch.zeros(value_SD.shape[1], dtype=torch.float64)
    for score, value_D in zip(scores_S, value_SD, strict=True):
        new_max = torch.maximum(row_max, score)
        factors = {
            "right": torch.exp(row_max - new_max),
            "inverse": torch.exp(new_max - row_max),
            "none": 1.0,
            "score": torch.exp(score - new_max),
        }
        weight = torch.exp(score - new_max)
        row_sum = row_sum * factors[sum_factor] + weight
        acc_D = acc_D * factors[mix_factor] + weight * value_D
        row_max = new_max
    return acc_D / row_sum


def _wrong_stream(*mistake: Any) -> Any:
    return lambda scores_S, value_SD: _stream(scores_S, value_SD, *mistake)


_STREAMS = {
    "online-neither-rescaled": _wrong_stream("none", "none"),
    "online-sum-not-rescaled": _wrong_stream("none", "right"),
    "online-acc-not-rescaled": _wrong_stream("right", "none"),
    "online-inverse-rescale": _wrong_stream("inverse", "inverse"),
    "online-initial-max-zero": _wrong_stream("right", "right", 0.0),
    "This is the weight of the new score, not the factor for the old sums.": (
        _wrong_stream("score", "score")
    ),
}


def _stream_cases() -> list[dict[str, Tensor]]:
    rows = (
        [2.0, 1.0],
        [0.5, -1.0, 2.0, 1.0, 3.0],
        [-800.0, -801.0, -799.5],
        [300.0, 700.0, 699.0, 701.0],
    )
    cases = []
    for row in rows:
        scores_S = torch.tensor(row, dtype=torch.float64)
        value_SD = torch.cos(torch.arange(2.0 * len(row))).double()
        cases.append(
            {"scores_S": scores_S, "value_SD": value_SD.reshape(-1, 2)}
        )
    return cases


def _examine_rescale(answer: Any) -> list[Check]:
    return [
        answers.function(
            "output",
            answer,
            _stream_cases(),
            _attend,
            bound=lambda s, v: rounding(v),
            called="out_D",
            wrong=_STREAMS,
        )
    ]


rescale = Exercise(
    "online_softmax.rescale",
    _examine_rescale,
    hints={
        "output": (
            "The sums hold exp(score − old maximum). What should they hold?",
            "exp(a − b) · exp(b − c) = exp(a − c). Which b and c are meant?",
        )
    },
)

# -- Parsons: one pass over a row -------------------------------------------

THREADS = 4


@cuda.jit
def lse_kernel(lse_L, scores_LS):
    """One thread per row: the log-sum-exp in one pass."""
    row = cuda.grid(1)
    L, S = scores_LS.shape
    if row < L:
        row_max, row_sum = float32(-math.inf), float32(0.0)
        for s in range(S):
            # 1. Load
            score = scores_LS[row, s]

            # 2. Compute
            new_max = max(row_max, score)
            row_sum = row_sum * math.exp(row_max - new_max)
            row_sum = row_sum + math.exp(score - new_max)
            row_max = new_max

        # 3. Store
        lse_L[row] = row_max + math.log(row_sum)


def _launch(L: int, S: int) -> Launch:
    rng = np.random.default_rng(5)
    scores_LS = (3 * rng.standard_normal((L, S))).astype(np.float32)
    args = (np.empty(L, np.float32), scores_LS)
    return Launch(-(-L // THREADS), THREADS, args)


def _lse(scores_LS: np.ndarray) -> np.ndarray:
    largest = scores_LS.max(-1)
    return largest + np.log(np.exp(scores_LS - largest[:, None]).sum(-1))


one_pass = Parsons(
    "online_softmax.one_pass",
    lse_kernel,
    _launch,
    _lse,
    given=2,
    distractors=["        row_sum = row_sum * math.exp(new_max - row_max)"],
    hints={
        "values": (
            "Which line needs the old maximum, and which one the new?",
            "The old maximum is gone as soon as the new one has its name.",
        )
    },
    sizes=[{"L": 1, "S": 1}, {"L": 3, "S": 2}, {"L": 5, "S": 7}],
)

# -- merge: blank -----------------------------------------------------------

State = tuple[float, float, float]
NOTHING = (-math.inf, 0.0, 0.0)


def _state(scores: list[float], values: list[float]) -> State:
    """Return maximum, sum and mix of a part of a row, all at once."""
    if not scores:
        return NOTHING
    largest = max(scores)
    weights = [math.exp(score - largest) for score in scores]
    pairs = zip(weights, values, strict=True)
    return largest, math.fsum(weights), math.fsum(w * v for w, v in pairs)


def _merged(a: State, b: State) -> State:
    largest = max(a[0], b[0])
    if largest == -math.inf:
        return NOTHING
    one, other = (math.exp(state[0] - largest) for state in (a, b))
    return (
        largest,
        one * a[1] + other * b[1],
        one * a[2] + other * b[2],
    )


def _added(a: State, b: State) -> State:
    return max(a[0], b[0]), a[1] + b[1], a[2] + b[2]


def _only_sums(a: State, b: State) -> State:
    largest, total, _ = _merged(a, b)
    return largest, total, a[2] + b[2]


def _nan_of_nothing(a: State, b: State) -> State:
    if a[0] == b[0] == -math.inf:
        return -math.inf, math.nan, math.nan
    return _merged(a, b)


_MERGES = {
    "The sums are added as they are, though each belongs to its own maximum.": (
        _added
    ),
    "online-acc-not-rescaled": _only_sums,
    "−∞ − (−∞) is NaN: two empty parts make an empty part.": _nan_of_nothing,
}


def _examine_merge(answer: Any) -> list[Check]:
    scores, values = [0.5, -1.0, 2.0, 1.0, 800.0], [1.0, -2.0, 3.0, 5.0, 7.0]
    first, second, third = (
        _state(scores[cut], values[cut])
        for cut in (slice(2), slice(2, 4), slice(4, 5))
    )
    pairs = [
        (first, second),
        (second, first),
        (first, third),
        (NOTHING, first),
        (second, NOTHING),
        (NOTHING, NOTHING),
    ]
    found = answers.function(
        "the merged state",
        answer,
        [{"a": a, "b": b} for a, b in pairs],
        _merged,
        bound=lambda a, b: rounding(np.array([8.0, *map(abs, a[1:] + b[1:])])),
        called="the state",
        wrong=_MERGES,
    )
    if not found.passed:
        return [found]
    left = answer(answer(first, second), third)
    right = answer(first, answer(second, third))
    bound = rounding(np.array(_state(scores, values)))
    return [
        found,
        answers.array("the order of merging", left, right, bound, "the state"),
        answers.array(
            "the whole row", left, _state(scores, values), bound, "the state"
        ),
    ]


merge = Exercise(
    "online_softmax.merge",
    _examine_merge,
    hints={
        "the merged state": (
            "Bring both parts to the same maximum before you add.",
            "Each part gets a factor of its own: exp(its maximum − the larger "
            "one). What is it for an empty part, and for two?",
        )
    },
)
