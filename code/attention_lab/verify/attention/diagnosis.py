"""Name a mistake from what a function computed, or how it failed."""

from collections.abc import Sequence

import numpy as np

from attention_lab.verify.attention.case import (
    Case,
    arguments,
    right_gradients,
    sizes,
)
from attention_lab.verify.attention.comparison import fits, is_near
from attention_lab.verify.attention.failure_names import (
    name_failure,
    name_half,
    only_in_half,
)
from attention_lab.verify.attention.subject import Subject
from attention_lab.verify.attention.value_names import (
    Names,
    cannot_run,
    is_comparable,
    name_by_values,
)
from attention_lab.verify.attention.wrong_gradients import WAYS, wrong_gradients
from attention_lab.verify.known_mistakes import known_mistakes


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


def name_mistake(subject: Subject, failing: Sequence[Case]) -> Names:
    """Return the mistake that explains the failing cases, or a pair of them.

    `failing` begins with the smallest case. Only mistakes with a card are
    named.
    """
    if not subject.explain:
        return None, None
    for case, needs in CONTEXT:
        if all(map(subject.supports, needs)):
            subject.run(case)
    if only_in_half(subject, failing):
        return _with_card(name_half(subject, failing)), None
    if subject.run(failing[0]).out_BHLD is None:
        names = name_by_values(subject, _wrong(subject))
        if names[0] and cannot_run(names[0], failing[0]):
            return names
        return _with_card(name_failure(subject, failing[0])), None
    return name_by_values(subject, failing, pairs=True)


def name_wrong_output(subject: Subject, case: Case) -> str | None:
    """Return the mistake that explains the output of a case, if it is wrong."""
    if not subject.explain or fits(subject.run(case), case):
        return None
    return name_by_values(subject, [case])[0]


def _with_card(name: str | None) -> str | None:
    return name if name in known_mistakes() else None


def _wrong(subject: Subject) -> list[Case]:
    return [
        case
        for case, outcome in subject.log.items()
        if outcome.out_BHLD is not None
        and case.dtype == "float32"
        and is_comparable(case)
        and not fits(outcome, case)
    ]


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
