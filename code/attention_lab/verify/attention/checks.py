"""The checks of the battery for attention functions, in their order.

Most compare outputs with the float64 reference on a few cases; the others are
properties that need two calls, or gradients.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attention_lab.verify.attention.case import (
    Case,
    right_answer,
    sizes,
)
from attention_lab.verify.attention.comparison import fits, is_near
from attention_lab.verify.attention.diagnosis import name_mistake
from attention_lab.verify.attention.example import (
    Difference,
    counterexample,
    describe,
    shrink,
)
from attention_lab.verify.attention.subject import (
    Subject,
)
from attention_lab.verify.known_mistakes import known_mistakes
from attention_lab.verify.report import Check

PLAIN = Case(sizes(1, 2, 3, 3, 4))


def run_cases(subject: Subject, name: str, cases: Sequence[Case]) -> Check:
    """Compare outputs with the reference on every case.

    The dtype of float32 output is left to the check of that name.
    """
    failing = [case for case in cases if _fails(subject, case)]
    if not failing:
        return Check(name, passed=True)
    if not subject.explain:
        return Check(
            name, passed=False, what=describe(subject, failing[0]).what
        )
    # What is not finite shows the mistake best, where anything is.
    failing.sort(key=lambda case: _is_finite(subject, case))
    smallest = shrink(subject, failing[0])
    difference = describe(subject, smallest)
    mistake, also = name_mistake(subject, [smallest, *failing])
    return Check(
        name,
        passed=False,
        what=difference.what,
        counterexample=counterexample(smallest, difference),
        mistake=mistake,
        also=also,
    )


def _is_finite(subject: Subject, case: Case) -> bool:
    out = subject.run(case).out_BHLD
    return out is None or bool(np.isfinite(out).all())


def _fails(subject: Subject, case: Case) -> bool:
    outcome = subject.run(case)
    wrong_dtype = outcome.kind == "dtype" and case.dtype != "float32"
    return wrong_dtype or not fits(outcome, case)


def failed(
    name: str, case: Case, difference: Difference, mistake: str | None
) -> Check:
    """Return the failed check; a mistake without a card is not named."""
    return Check(
        name,
        passed=False,
        what=difference.what,
        counterexample=counterexample(case, difference),
        mistake=mistake if mistake in known_mistakes() else None,
    )


def check_runs(subject: Subject, name: str) -> Check:
    """Call it once on the plainest input."""
    outcome = subject.run(PLAIN)
    if outcome.kind in ("raised", "nothing", "type"):
        return failed(name, PLAIN, Difference(f"{outcome.problem}.", {}), None)
    return Check(name, passed=True)


def check_shape(subject: Subject, name: str) -> Check:
    """Compare the output's shape on the plainest input."""
    outcome = subject.run(PLAIN)
    if outcome.kind == "shape":
        return failed(name, PLAIN, Difference(f"{outcome.problem}.", {}), None)
    return Check(name, passed=True)


def check_dtype(subject: Subject, name: str) -> Check:
    """Ask for the query's dtype, and for float64's precision in float64."""
    outcome = subject.run(PLAIN)
    if outcome.kind == "dtype":
        return failed(name, PLAIN, Difference(f"{outcome.problem}.", {}), None)
    if not subject.supports("double_precision"):
        return Check(name, passed=True)
    case = replace(PLAIN, dtype="float64")
    outcome = subject.run(case)
    if outcome.kind:
        what = f"with float64 input, {outcome.problem}."
        return failed(name, case, Difference(what, {}), None)
    right = right_answer(case)
    single = replace(PLAIN, dtype="float32")
    lost = not fits(outcome, case)
    if lost and is_near(
        outcome.out_BHLD, right.out_BHLD, right_answer(single).bound
    ):
        what = (
            "float64 input comes back as float64, but computed in a lower "
            "precision."
        )
        return failed(name, case, Difference(what, {}), None)
    return Check(name, passed=True)


def check_half(subject: Subject, name: str) -> Check:
    """Ask for the accuracy of float32 sums in float16 and bfloat16."""
    kinds = ["float16"]
    if subject.library == "torch":
        kinds.append("bfloat16")
    cases = [replace(case, dtype=kind) for kind in kinds for case in HALF]
    if "attn_mask" in subject.names:
        masked = Case(sizes(1, 2, 5, 5, 4), mask="(L, S)", dtype="float16")
        cases.append(masked)
    return run_cases(subject, name, cases)


HALF = (
    Case(sizes(2, 3, 5, 5, 8)),
    Case(sizes(1, 1, 9, 33, 64)),
    Case(sizes(1, 2, 9, 9, 16), gain=30.0),
    Case(sizes(1, 2, 3, 5, 64), gain=1e4),
)
