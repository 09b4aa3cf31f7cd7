"""Whether an output is right."""

import numpy as np

from attention_lab.verify.attention.case import Case, right_answer
from attention_lab.verify.attention.subject import Outcome


def fits(outcome: Outcome, case: Case) -> bool:
    """Whether an output is right: within the error bound, and never NaN."""
    if outcome.out_BHLD is None:
        return False
    right = right_answer(case)
    return is_near(outcome.out_BHLD, right.out_BHLD, right.bound)


def is_near(actual: np.ndarray, expected: np.ndarray, bound: float) -> bool:
    """Whether two arrays of one shape agree; NaN agrees with nothing."""
    if actual.shape != expected.shape:
        return False
    with np.errstate(invalid="ignore"):
        difference = np.abs(actual - expected)
    return bool(np.all(difference <= bound))
