"""Checks of the battery that send gradients back, for torch functions."""

from dataclasses import replace

import numpy as np

from attention_lab.error_bound import rounding
from attention_lab.verify.attention.case import Case, right_gradients, sizes
from attention_lab.verify.attention.checks import failed
from attention_lab.verify.attention.comparison import fits, is_near
from attention_lab.verify.attention.diagnosis import (
    name_gradients,
    name_wrong_output,
)
from attention_lab.verify.attention.example import (
    Difference,
    written_apart,
)
from attention_lab.verify.attention.subject import Subject, describe_error
from attention_lab.verify.report import Check


def check_gradients(subject: Subject, name: str) -> Check:
    """Compare the gradients of query, key and value with the reference."""
    cases = [Case(sizes(2, 3, 5, 5, 4))]
    if subject.supports("cross_attention"):
        cases.append(Case(sizes(1, 2, 3, 5, 4)))
    if "is_causal" in subject.names:
        cases.append(Case(sizes(1, 2, 5, 5, 4), is_causal=True))
    if "attn_mask" in subject.names:
        cases.append(Case(sizes(1, 2, 5, 5, 4), mask="(L, S)"))
    if "enable_gqa" in subject.names:
        cases.append(Case(sizes(1, 4, 5, 5, 3, H_kv=2)))
    return _run_gradients(subject, name, cases)


def check_masked_row_gradients(subject: Subject, name: str) -> Check:
    """Send a gradient through a row that may see nothing: 0, never NaN."""
    cases = [Case(sizes(1, 2, 4, 4, 3), mask="last row empty (L, S)")]
    if subject.supports("float_mask"):
        added = replace(cases[0], mask="added, last row empty (L, S)")
        cases.append(added)
    return _run_gradients(subject, name, cases)


def _run_gradients(subject: Subject, name: str, cases: list[Case]) -> Check:
    can_double = subject.supports("double_precision")
    dtype = "float64" if can_double else "float32"
    for plain in cases:
        case = replace(plain, dtype=dtype)
        try:
            found = subject.gradients(case)
        except Exception as error:
            difference = Difference(
                f"sending gradients back, {describe_error(error)}.", {}
            )
            return failed(name, case, difference, None)
        right = dict(zip(found, right_gradients(case), strict=True))
        for part, array in found.items():
            if array is None:
                what = f"no gradient reaches {part}: it stays None."
                keys_only = part == "key" and found["query"] is not None
                mistake = name_wrong_output(subject, case) or (
                    "backward-detached" if keys_only else None
                )
                return failed(name, case, Difference(what, {}), mistake)
        for part, array in found.items():
            bound = rounding(right[part].astype(dtype))
            if not is_near(array, right[part], bound):
                return _wrong_gradient(subject, name, case, part, found, right)
    return Check(name, passed=True)


def _wrong_gradient(
    subject: Subject,
    name: str,
    case: Case,
    part: str,
    found: dict[str, np.ndarray],
    right: dict[str, np.ndarray],
) -> Check:
    with np.errstate(invalid="ignore"):
        difference = np.abs(found[part] - right[part])
    difference = np.where(np.isnan(difference), np.inf, difference)
    at = np.unravel_index(difference.argmax(), difference.shape)
    b, h, token, channel = (int(i) for i in at)
    got, expected = float(found[part][at]), float(right[part][at])
    shown, wanted = written_apart(got, expected)
    what = (
        f"the gradient of {part} at sample {b}, head {h}, token {token}, "
        f"channel {channel} is {shown}; it should be {wanted}."
    )
    # A wrong output has wrong gradients too: its mistake comes first.
    if not fits(subject.run(case), case):
        mistake = name_wrong_output(subject, case)
    elif np.isfinite(difference).all():
        mistake = name_gradients(case, found)
    else:
        is_masked = case.mask is not None
        mistake = "fully-masked-row-gradient-nan" if is_masked else None
    return failed(
        name,
        case,
        Difference(
            what,
            {"sample": b, "head": h, "token": token, "channel": channel},
            got,
            expected,
        ),
        mistake,
    )
