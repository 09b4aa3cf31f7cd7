"""Name a mistake from the numbers: which model gives these very outputs?"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import combinations

import numpy as np

from attention_lab.verify.attention.case import (
    Case,
    right_answer,
    sees_nothing,
)
from attention_lab.verify.attention.comparison import fits, is_near
from attention_lab.verify.attention.subject import Subject
from attention_lab.verify.attention.wrong_attention import (
    MODELS,
    Model,
    wrong_output,
)
from attention_lab.verify.attention.wrong_tiles import TILED
from attention_lab.verify.known_mistakes import known_mistakes

Predict = Callable[[Case], np.ndarray | None]
Seen = tuple[Case, np.ndarray]
Names = tuple[str | None, str | None]

#: How often a search for a pair of mistakes may be made for one function.
PAIR_SEARCHES = 2
#: Seconds of computing after which a report goes on without more names.
NAMING_S = 3.0
#: Larger cases are left out where candidates are compared.
LARGEST = 6_000


def name_by_values(
    subject: Subject, failing: Sequence[Case], pairs: bool = False
) -> Names:
    """Return the mistake that explains wrong outputs, or a pair of them.

    A candidate must give the numbers of every failing case. It must give right
    ones wherever the function does, and the function's own on every plain input
    (no mask, no shared heads), where few mistakes act: a name that is half
    true helps nobody.
    """
    seen = [
        (case, subject.log[case].out_BHLD)
        for case in failing
        if subject.log[case].out_BHLD is not None
        and is_comparable(case)
        and not fits(subject.log[case], case)
    ][:6]
    if not seen or subject.naming_s > NAMING_S:
        return None, None
    others = [
        (case, outcome.out_BHLD)
        for case, outcome in subject.log.items()
        if outcome.out_BHLD is not None and is_comparable(case)
    ]
    if not any(np.any(out) for _, out in others):
        return None, None  # zeros alone say nothing: a stub returns them too
    start = time.process_time()
    single = _best(_singles(), seen, others)
    pair = None
    if single is None and pairs and subject.pair_searches < PAIR_SEARCHES:
        subject.pair_searches += 1
        # On the largest: one of two mistakes may not act on a tiny input.
        largest = max(seen, key=lambda one: one[1].size)
        pair = _best(_pairs(largest), seen, others)
    subject.naming_s += time.process_time() - start
    if single:
        return single[0], None
    return (pair[0], pair[1]) if pair else (None, None)


def cannot_run(name: str, case: Case) -> bool:
    """Whether a mistake's model cannot run on a case either."""
    return any(
        model.mistake == name and wrong_output(case, model) is None
        for model in MODELS
    )


def is_comparable(case: Case) -> bool:
    """Whether a case is small, and has a right answer in the contract."""
    n = case.sizes
    has_both = case.mask is not None and case.is_causal
    return n.B * n.H * n.L * n.S <= LARGEST and not has_both


def _is_plain(case: Case) -> bool:
    n = case.sizes
    return (
        case.mask is None
        and not case.is_causal
        and case.dtype == "float32"
        and n.H_kv == n.H
        and min(n) > 0
    )


def _best(
    candidates: Iterable[tuple[tuple[str, ...], Predict]],
    seen: list[Seen],
    others: list[Seen],
) -> tuple[str, ...] | None:
    """Return the names of the candidate that is wrong least often."""
    best, fewest = None, len(others) + 1
    for names, predict in candidates:
        if not all(_explains(predict, *one) for one in seen):
            continue
        wrong = [one for one in others if not _agrees(predict, *one)]
        if len(wrong) < fewest and not any(
            _is_plain(case) or _is_right(case, actual) for case, actual in wrong
        ):
            best, fewest = names, len(wrong)
            if fewest == 0:
                break
    return best


def _is_right(case: Case, actual: np.ndarray) -> bool:
    right = right_answer(case)
    return is_near(actual, right.out_BHLD, right.bound)


def _singles() -> Iterator[tuple[tuple[str, ...], Predict]]:
    known = known_mistakes()
    for index, model in enumerate(MODELS):
        if model.mistake in known:
            yield (model.mistake,), partial(_predict_one, index=index)
    for name, predict in TILED:
        if name in known:
            yield (name,), predict


def _pairs(one_case: Seen) -> Iterator[tuple[tuple[str, ...], Predict]]:
    """Yield pairs of mistakes that act on different stages of a case."""
    known = known_mistakes()
    acting = [
        model
        for index, model in enumerate(MODELS)
        if model.mistake in known
        and _acts(_predict_one(one_case[0], index), one_case[0])
    ]
    for one, two in combinations(acting, 2):
        if not one.choices.keys() & two.choices.keys():
            predict = partial(_predict, models=(one, two))
            if _explains(predict, *one_case):
                yield (one.mistake, two.mistake), predict


def _acts(predicted: np.ndarray | None, case: Case) -> bool:
    return predicted is not None and not _is_right(case, predicted)


@lru_cache(maxsize=8192)
def _predict_one(case: Case, index: int) -> np.ndarray | None:
    return wrong_output(case, MODELS[index])


def _predict(case: Case, models: tuple[Model, ...]) -> np.ndarray | None:
    return wrong_output(case, *models)


def _explains(predict: Predict, case: Case, actual: np.ndarray) -> bool:
    """Whether a model gives these numbers, and they are wrong."""
    predicted = predict(case)
    return (
        predicted is not None
        and not _is_right(case, predicted)
        and _agrees(predict, case, actual)
    )


def _agrees(predict: Predict, case: Case, actual: np.ndarray) -> bool:
    """Whether a model gives these numbers.

    Rows that may see no key are left out where they are right: functions often
    treat them apart, whatever else goes wrong.
    """
    predicted = predict(case)
    if predicted is None or predicted.shape != actual.shape:
        return False
    apart = sees_nothing(case) & (actual == 0).all(-1)
    actual, predicted = actual[~apart], predicted[~apart]
    gone = ~np.isfinite(actual)
    if (gone != ~np.isfinite(predicted)).any():
        return False
    right = right_answer(case)
    largest = np.abs(right.out_BHLD).max(initial=0.0)
    # Wide enough for another order of adding, far below any mistake's effect.
    room = max(10 * right.bound, 1e-4 * largest)
    return is_near(actual[~gone], predicted[~gone], room)
