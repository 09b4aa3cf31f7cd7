"""Name a mistake from what a function computed.

First by value: which model of a known mistake gives these very numbers, and
right ones where the function is right? Then, where there are no numbers, by the
kind of failure.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from itertools import combinations

import numpy as np

from attention_lab.verify.attention.case import (
    Case,
    arguments,
    right_answer,
    right_gradients,
    sees_nothing,
    sizes,
)
from attention_lab.verify.attention.subject import Outcome, Subject
from attention_lab.verify.attention.wrong_attention import (
    MODELS,
    Model,
    wrong_output,
)
from attention_lab.verify.attention.wrong_gradients import WAYS, wrong_gradients
from attention_lab.verify.attention.wrong_tiles import TILED
from attention_lab.verify.known_mistakes import known_mistakes

Predict = Callable[[Case], np.ndarray | None]
Seen = tuple[Case, np.ndarray]
Names = tuple[str | None, str | None]

#: How often a search for a pair of mistakes may be made for one function.
PAIR_SEARCHES = 2
#: Larger cases are left out where candidates are compared.
LARGEST = 40_000


def _one_key(score: float) -> Case:
    """Return a case of one query and one key with a given score."""
    n = sizes(1, 1, 1, 1, 1)
    plain = arguments(Case(n))
    return Case(n, gain=score / (plain["query"] * plain["key"]).item())


#: What is known of a function before its mistake is named, whatever it failed.
CONTEXT: tuple[tuple[Case, tuple[str, ...]], ...] = (
    (Case(sizes(2, 3, 5, 5, 4)), ()),
    (Case(sizes(2, 3, 5, 7, 4)), ("cross_attention",)),
    (Case(sizes(1, 2, 33, 33, 4), gain=3.0), ()),
    (_one_key(93.0), ()),  # exp overflows, unless 5 or more are subtracted
    (_one_key(97.0), ()),  # the same for 9 or more
    (Case(sizes(2, 3, 5, 5, 4), scale=0.3), ("scale",)),
    (Case(sizes(1, 2, 3, 0, 4)), ("cross_attention",)),
    (Case(sizes(2, 3, 5, 5, 4), mask="(L, S)"), ("attn_mask",)),
    (Case(sizes(2, 3, 5, 5, 4), mask="(B, 1, L, S)"), ("attn_mask",)),
    (Case(sizes(3, 3, 5, 5, 4), mask="(B, 1, L, S)"), ("attn_mask",)),
    (
        Case(sizes(2, 3, 5, 5, 4), mask="added (L, S)"),
        ("attn_mask", "float_mask"),
    ),
    (
        Case(sizes(2, 3, 5, 5, 4), mask="last row empty (L, S)"),
        ("attn_mask",),
    ),
    (Case(sizes(2, 3, 5, 5, 4), is_causal=True), ("is_causal",)),
)


def fits(outcome: Outcome, case: Case) -> bool:
    """Whether an output is right: within the error bound, and never NaN."""
    if outcome.out_BHLD is None:
        return False
    right = right_answer(case)
    return is_near(outcome.out_BHLD, right.out_BHLD, right.bound)


def is_near(actual: np.ndarray, expected: np.ndarray, bound: float) -> bool:
    """Whether two arrays agree everywhere; NaN agrees with nothing."""
    with np.errstate(invalid="ignore"):
        difference = np.abs(actual - expected)
    return bool(np.all(difference <= bound))


def name_mistake(
    subject: Subject, check: str, failing: Sequence[Case]
) -> Names:
    """Return the mistake that explains the failing cases, or a pair of them.

    `failing` begins with the smallest case; `check` is the check's name. Only
    mistakes with a card are named.
    """
    if not subject.explain:
        return None, None
    for case, needs in CONTEXT:
        if all(map(subject.supports, needs)):
            subject.run(case)
    outcome = subject.run(failing[0])
    if outcome.out_BHLD is None or _only_in_half(subject, check, failing):
        names = _name_by_values(subject, _wrong(subject), pairs=False)
        if names[0] and _cannot_run(names[0], failing[0]):
            return names
        name = _name_by_failure(subject, check, failing)
        return (name, None) if name in known_mistakes() else (None, None)
    return _name_by_values(subject, failing, pairs=True)


def name_wrong_outputs(subject: Subject) -> str | None:
    """Return the mistake that explains the wrong outputs seen so far."""
    if not subject.explain:
        return None
    return _name_by_values(subject, _wrong(subject), pairs=False)[0]


def _wrong(subject: Subject) -> list[Case]:
    return [
        case
        for case, outcome in subject.log.items()
        if outcome.out_BHLD is not None
        and case.dtype == "float32"
        and _is_comparable(case)
        and not fits(outcome, case)
    ]


def _name_by_values(
    subject: Subject, failing: Sequence[Case], pairs: bool
) -> Names:
    """Hold candidates against wrong outputs, and against right ones."""
    seen = [
        (case, subject.log[case].out_BHLD)
        for case in failing
        if subject.log[case].out_BHLD is not None
        and _is_comparable(case)
        and not fits(subject.log[case], case)
    ][:6]
    if not seen:
        return None, None
    others = [
        (case, outcome.out_BHLD)
        for case, outcome in subject.log.items()
        if outcome.out_BHLD is not None and _is_comparable(case)
    ]
    single = _best(_singles(), seen, others)
    if single:
        return single[0], None
    if pairs and subject.pair_searches < PAIR_SEARCHES:
        subject.pair_searches += 1
        # On the largest: one of two mistakes may not act on a tiny input.
        largest = max(seen, key=lambda one: one[1].size)
        pair = _best(_pairs(largest), seen, others)
        if pair:
            return pair[0], pair[1]
    return None, None


def _is_comparable(case: Case) -> bool:
    """Whether a case is small, and has a right answer in the contract."""
    n = case.sizes
    has_both = case.mask is not None and case.is_causal
    return n.B * n.H * n.L * n.S <= LARGEST and not has_both


def _best(
    candidates: Iterable[tuple[tuple[str, ...], Predict]],
    seen: list[Seen],
    others: list[Seen],
) -> tuple[str, ...] | None:
    """Return the names of the candidate that is wrong about the fewest cases.

    It must give the numbers of every case in `seen`, and right ones wherever
    the function gives right ones.
    """
    best, fewest = None, len(others) + 1
    for names, predict in candidates:
        if not all(_explains(predict, *one) for one in seen):
            continue
        wrong = [one for one in others if not _agrees(predict, *one)]
        if len(wrong) < fewest and not any(_is_right(*one) for one in wrong):
            best, fewest = names, len(wrong)
            if fewest == 0:
                break
    return best


def _is_right(case: Case, actual: np.ndarray) -> bool:
    right = right_answer(case)
    return is_near(actual, right.out_BHLD, right.bound)


def _singles() -> Iterable[tuple[tuple[str, ...], Predict]]:
    known = known_mistakes()
    for index, model in enumerate(MODELS):
        if model.mistake in known:
            yield (model.mistake,), partial(_predict_one, index=index)
    for name, predict in TILED:
        if name in known:
            yield (name,), predict


def _pairs(one_case: Seen) -> Iterable[tuple[tuple[str, ...], Predict]]:
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


def _cannot_run(name: str, case: Case) -> bool:
    """Whether a mistake's model cannot run on a case either."""
    return any(
        model.mistake == name and wrong_output(case, model) is None
        for model in MODELS
    )


def _only_in_half(
    subject: Subject, check: str, failing: Sequence[Case]
) -> bool:
    """Whether the same inputs give right outputs in float32."""
    if check != "half precision":
        return False
    single = [replace(case, dtype="float32") for case in failing]
    return all(fits(subject.run(case), case) for case in single)


def _name_by_failure(
    subject: Subject, check: str, failing: Sequence[Case]
) -> str | None:
    """Return the mistake that fits how a call failed, if values do not."""
    case = failing[0]
    outcome, n = subject.run(case), case.sizes
    if check == "half precision":
        if all(case.mask is not None for case in failing):
            return "sentinel-in-half"
        outs = [subject.run(case).out_BHLD for case in failing]
        finite = all(out is None or np.isfinite(out).all() for out in outs)
        return "softmax-in-half" if finite else "float16-overflow"
    if outcome.kind not in ("raised", "shape"):
        return None
    if case.strided:
        return "noncontiguous-view"
    if n.H_kv != n.H:
        # Here the number of groups and their size are the same.
        square = Case(sizes(1, 4, 5, 5, 4, H_kv=2))
        swapped = fits(subject.run(square), square)
        return "gqa-group-size-swapped" if swapped else "gqa-not-supported"
    if n.D_v != n.D:
        return "value-width-assumed"
    if n.L != n.S and n.S > 0 and case.mask is None:
        plain = subject.run(Case(n))
        return (
            "query-length-for-keys"
            if plain.out_BHLD is None
            else "causal-needs-square"
        )
    return None


def name_gradients(case: Case, gradients: dict[str, np.ndarray]) -> str | None:
    """Return the mistake of a backward pass that gives these gradients."""
    known = known_mistakes()
    right = dict(zip(gradients, right_gradients(case), strict=True))
    room = 1e-6 * max(
        np.abs(array).max(initial=0.0) for array in right.values()
    )
    for name, way in WAYS:
        predicted = wrong_gradients(case, way)
        if name not in known or predicted is None:
            continue
        if _all_near(gradients, predicted, room) and not _all_near(
            right, predicted, room
        ):
            return name
    return None


def _all_near(
    some: dict[str, np.ndarray], others: dict[str, np.ndarray], room: float
) -> bool:
    return all(
        some[part].shape == others[part].shape
        and is_near(some[part], others[part], room)
        for part in some
    )
