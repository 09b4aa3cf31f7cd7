import numpy as np
import pytest
import torch

from attention_lab.axes import ShapeMismatch
from attention_lab.verify import check_number, check_same_as, check_shape
from attention_lab.verify.checks import WrongValues

SCORES = np.zeros((2, 3, 5, 7))


@pytest.mark.parametrize(
    ("guess", "answer"),
    [
        (None, "No guess yet. The array has 4 axes: (2, 3, 5, 7)."),
        (
            (2, 3, 7, 5),
            "Not yet: axis L is 7 in your guess and 5 in the array.",
        ),
        ((2, 3, 5), "Not yet: your guess has 3 axes, the array has 4"),
        ((2, 3, 5, 7), "Right: (2, 3, 5, 7)."),
        ([2, 3, 5, 7], "Right: (2, 3, 5, 7)."),
        (7, "Write your guess as a tuple of whole numbers, such as (1, 1)"),
        (("2", 3, 5, 7), "Write your guess as a tuple of whole numbers"),
        ((True, 3, 5, 7), "Write your guess as a tuple of whole numbers"),
    ],
)
def test_a_guess_gets_one_of_three_answers(capsys, guess, answer):
    check_shape(SCORES, guess, "BHLS")
    assert answer in capsys.readouterr().out


def test_without_letters_the_axis_is_counted(capsys):
    check_shape(torch.zeros(2, 5), (2, 4))
    assert "axis 1 is 4 in your guess" in capsys.readouterr().out


def test_a_page_that_names_too_few_axes_is_told():
    with pytest.raises(ShapeMismatch, match="names 3 axes, but array has 4"):
        check_shape(SCORES, None, "BHL")


@pytest.mark.parametrize(
    ("guess", "answer"),
    [
        (None, "No guess yet. The sum is 36."),
        (36, "Right. The sum is 36."),
        (36.3, "Right. The sum is 36."),
        (40, "Not yet: your guess 40 is too large. The sum is 36."),
        (-1, "Not yet: your guess -1 is too small. The sum is 36."),
        ("36", "Write your guess as one number, such as 1.5, not '36'."),
        (float("nan"), "Not yet: your guess is not a number. The sum is 36."),
    ],
)
def test_a_guessed_number_gets_an_answer(capsys, guess, answer):
    check_number(np.float32(36), guess, name="The sum")
    assert answer in capsys.readouterr().out


def test_equal_arrays_pass_and_say_how_equal(capsys):
    check_same_as(torch.ones(3), np.ones(3), 1e-6, name="weights_S")
    assert capsys.readouterr().out.startswith(
        "weights_S ✓ largest difference 0"
    )


def test_the_worst_element_is_named_by_its_axes():
    wrong = SCORES.copy()
    wrong[1, 2, 4, 6] = 3.5
    message = (
        "scores_BHLS differs at B = 1, H = 2, L = 4, S = 6: 3.5, but 0 .* "
        "1 of 210 elements"
    )
    with pytest.raises(WrongValues, match=message):
        check_same_as(wrong, SCORES, 1e-6, name="scores_BHLS")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_nan_and_infinity_never_pass(bad):
    for pair in (([1.0, bad], [1.0, 2.0]), ([1.0, 2.0], [1.0, bad])):
        with pytest.raises(WrongValues):
            check_same_as(*map(np.array, pair), bound=1e30)


def test_nan_is_not_even_equal_to_itself():
    with pytest.raises(WrongValues):
        check_same_as(np.array([np.nan]), np.array([np.nan]), bound=1e30)


def test_equal_infinities_are_equal():
    check_same_as(np.array([-np.inf]), np.array([-np.inf]))
    with pytest.raises(WrongValues):
        check_same_as(np.array([-np.inf]), np.array([np.inf]), bound=1e30)


def test_nothing_is_broadcast():
    with pytest.raises(
        ShapeMismatch, match=r"\(1, 3\), but \(3,\) is expected"
    ):
        check_same_as(np.ones((1, 3)), np.ones(3))


def test_empty_arrays_agree():
    check_same_as(np.ones((0, 3)), np.ones((0, 3)))


@pytest.mark.parametrize("bound", [np.inf, np.nan, -1.0, "x", None, True])
def test_a_bound_that_checks_nothing_is_refused(bound):
    with pytest.raises(ValueError, match="bound must be a finite number"):
        check_same_as(np.ones(3), np.zeros(3), bound)


@pytest.mark.parametrize(
    ("number", "guess", "answer"),
    [
        (105, 104, "Not yet: your guess 104 is too small. It is 105."),
        (123456, 123457, "too large. It is 123456."),
        (np.int64(3), 3.0, "Right. It is 3."),
        (1e-15, 5e-13, "too large"),
        (0.2, 0.201, "Right. It is 0.2."),
    ],
)
def test_counts_are_met_exactly_and_other_numbers_nearly(
    capsys, number, guess, answer
):
    check_number(number, guess, name="It")
    assert answer in capsys.readouterr().out


def test_large_integers_are_not_rounded_into_each_other():
    with pytest.raises(WrongValues):
        check_same_as(np.array([2**53]), np.array([2**53 + 1]))


@pytest.mark.parametrize(
    ("actual", "message"),
    [
        (np.array([1 + 1j]), "result has dtype complex128; use real numbers"),
        (np.ma.masked_less(np.ones(1), 2), "result must be a NumPy array"),
        ([1.0], "result must be a NumPy array or a torch tensor, not list"),
        (None, "not NoneType"),
        ((np.ones(1), np.ones(1)), "not tuple"),
        (np.array(["1"]), "use real numbers"),
        (torch.ones(1).to_sparse(), "result must be a dense tensor"),
        (torch.ones(1, device="meta"), "result must be a dense tensor"),
    ],
)
def test_what_holds_no_real_numbers_is_refused(actual, message):
    with pytest.raises(ValueError, match=message):
        check_same_as(actual, np.ones(1))
