"""The verifier's comparison rejects every wrong value that was reported."""

import numpy as np
import pytest

from attention_lab.verify import check_same_as
from attention_lab.verify.attention.diagnosis import is_near
from attention_lab.verify.checks import WrongValues
from cases import load_cases

CASES = load_cases()


def pairs(case):
    """Return (wrong, right) arrays of a case; one case may have several."""
    wrong, right = case.wrong, case.expected
    if not isinstance(wrong, dict):
        return [(wrong, right)]
    return [
        (array, right[name.partition("_")[0]] if name not in right else
         right[name])
        for name, array in wrong.items()
    ]  # fmt: skip


WRONG = [
    pytest.param(wrong, right, case.atol, id=f"{case.id}-{number}")
    for case in CASES.values()
    if case.wrong is not None and not isinstance(case.expected, str)
    for number, (wrong, right) in enumerate(pairs(case))
]


def test_there_are_more_than_twenty_wrong_values():
    assert len(WRONG) > 20


@pytest.mark.parametrize(("wrong", "right", "atol"), WRONG)
def test_a_reported_wrong_value_is_rejected(wrong, right, atol):
    wrong, right = np.asarray(wrong, float), np.asarray(right, float)
    assert is_near(right, right, atol)
    assert not is_near(wrong, right, atol)


@pytest.mark.parametrize(("wrong", "right", "atol"), WRONG)
def test_the_check_of_a_page_raises_on_it(wrong, right, atol):
    wrong, right = np.asarray(wrong, float), np.asarray(right, float)
    check_same_as(right, right, bound=atol)
    with pytest.raises(WrongValues):
        check_same_as(wrong, right, bound=atol)
