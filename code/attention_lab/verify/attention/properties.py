"""Checks of the battery that need two calls, or two arguments together."""

from dataclasses import replace
from typing import Any

import numpy as np

from attention_lab.verify.attention.case import (
    Case,
    arguments,
    right_answer,
    sizes,
)
from attention_lab.verify.attention.checks import failed
from attention_lab.verify.attention.comparison import is_near
from attention_lab.verify.attention.diagnosis import name_mistake
from attention_lab.verify.attention.example import Difference
from attention_lab.verify.attention.failure_names import is_dropout
from attention_lab.verify.attention.subject import Subject, describe_error
from attention_lab.verify.report import Check


def check_permutation(subject: Subject, name: str) -> Check:
    """Reorder the keys and values together: no output may change."""
    case = Case(
        sizes(1, 2, 5, 7, 4)
        if subject.supports("cross_attention")
        else sizes(1, 2, 5, 5, 4)
    )
    order = np.random.default_rng(3).permutation(case.sizes.S)
    arrays = subject.arrays(case)
    arrays["key"] = arrays["key"][:, :, order]
    arrays["value"] = arrays["value"][:, :, order]
    return _compare_calls(
        subject, name, case, arrays, slice(None), "reordering the keys changes"
    )


def check_apart(subject: Subject, name: str) -> Check:
    """Change the last sample, then the last head: the first may not move."""
    case = Case(sizes(2, 3, 5, 5, 4))
    for axis, word in ((0, "sample"), (1, "head")):
        arrays = subject.arrays(case)
        for part in arrays.values():
            part[(slice(None),) * axis + (-1,)] *= -3
        rest = (slice(None),) * axis + (slice(None, -1),)
        check = _compare_calls(
            subject,
            name,
            case,
            arrays,
            rest,
            f"changing {word} {case.sizes[axis] - 1} changes",
        )
        if not check.passed:
            return check
    return Check(name, passed=True)


def _compare_calls(
    subject: Subject,
    name: str,
    case: Case,
    arrays: dict[str, Any],
    rest: Any,
    cause: str,
) -> Check:
    """Compare the output on changed arrays with the output on a case."""
    before = subject.run(case)
    try:
        after = subject.read(subject.call(arrays, {}), case)
    except Exception as error:
        difference = Difference(f"{describe_error(error)}.", {})
        return failed(name, case, difference, None)
    if before.out_BHLD is None or after.out_BHLD is None:
        problem = after.problem or before.problem
        mistake, _ = name_mistake(subject, [case])
        return failed(name, case, Difference(f"{problem}.", {}), mistake)
    one, two = before.out_BHLD[rest], after.out_BHLD[rest]
    bound = 2 * right_answer(case).bound
    if is_near(one, two, bound):
        return Check(name, passed=True)
    with np.errstate(invalid="ignore"):
        moved = ~(np.abs(one - two) <= bound)
    b, h, row, channel = (int(i) for i in np.argwhere(moved)[0])
    mistake, _ = name_mistake(subject, [case])
    return failed(
        name,
        case,
        Difference(
            f"{cause} the output of sample {b}, head {h}, token {row}.",
            {"sample": b, "head": h, "token": row, "channel": channel},
            float(two[b, h, row, channel]),
            float(one[b, h, row, channel]),
        ),
        mistake,
    )


def check_mask_and_causal(subject: Subject, name: str) -> Check:
    """Give both: they must act together, or be refused."""
    masks = ["padding (B, 1, 1, S)"]
    if subject.supports("float_mask"):
        masks.append("added (L, S)")
    for mask in masks:
        case = Case(sizes(1, 2, 5, 5, 4), mask=mask, is_causal=True)
        outcome = subject.run(case)
        if outcome.kind == "raised":
            continue
        if outcome.out_BHLD is None:
            difference = Difference(f"{outcome.problem}.", {})
            return failed(name, case, difference, None)
        # The contract has no such call; one mask can say the same.
        both = replace(case, mask=f"{mask} and causal", is_causal=False)
        right, bound = right_answer(both)
        if not is_near(outcome.out_BHLD, right, bound):
            return _not_both(subject, name, case)
    return Check(name, passed=True)


def _not_both(subject: Subject, name: str, case: Case) -> Check:
    """Find out whether one of the two was ignored."""
    out = subject.run(case).out_BHLD
    for lost, alone in (
        ("is_causal", replace(case, is_causal=False)),
        ("attn_mask", replace(case, mask=None)),
    ):
        right, bound = right_answer(alone)
        if is_near(out, right, bound):
            difference = Difference(
                f"with attn_mask and is_causal together, {lost} is ignored "
                "without a word.",
                {},
            )
            mistake = "causal-and-mask-one-ignored"
            return failed(name, case, difference, mistake)
    difference = Difference(
        "with attn_mask and is_causal together, the output is neither what "
        "both give nor an error.",
        {},
    )
    return failed(name, case, difference, None)


def check_repeatable(subject: Subject, name: str) -> Check:
    """Call it twice on the same input: the same bits must come back."""
    case = Case(sizes(2, 3, 17, 17, 8))
    one, two = subject.run(case), subject.run_again(case)
    if one.out_BHLD is None or two.out_BHLD is None:
        return failed(name, case, Difference(f"{one.problem}.", {}), None)
    both_nan = np.isnan(one.out_BHLD) & np.isnan(two.out_BHLD)
    count = int(((one.out_BHLD != two.out_BHLD) & ~both_nan).sum())
    if count == 0:
        return Check(name, passed=True)
    what = (
        f"two calls on the same input differ in {count} of "
        f"{one.out_BHLD.size} numbers."
    )
    mistake = "dropout-always-on" if is_dropout(subject) else None
    return failed(name, case, Difference(what, {}), mistake)


def check_unchanged(subject: Subject, name: str) -> Check:
    """Compare query, key, value and the mask before and after a call."""
    masked = "attn_mask" in subject.names
    case = Case(sizes(2, 3, 5, 5, 4), mask="(B, 1, L, S)" if masked else None)
    arrays = subject.arrays(case)
    if masked:
        arrays["attn_mask"] = subject.mask(case)
    try:
        subject.call(arrays, {})
    except Exception as error:
        difference = Difference(f"{describe_error(error)}.", {})
        return failed(name, case, difference, None)
    for part, array in arrays.items():
        found = np.array(array.tolist())
        if (found != arguments(case)[part]).any():
            what = f"{part} has other numbers after the call than before."
            with np.errstate(divide="ignore", invalid="ignore"):
                factor = found / arguments(case)[part]
            scaled = part == "query" and np.ptp(factor) < 1e-5
            mistake = "scale-in-place" if scaled else None
            return failed(name, case, Difference(what, {}), mistake)
    return Check(name, passed=True)
