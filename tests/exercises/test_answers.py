import math

import numpy as np
import pytest
import torch

from attention_lab.exercises import answers

CASES = [{"x_L": np.arange(1.0, 4.0)}, {"x_L": np.arange(5.0)}]


def softmax(x_L):
    weights = np.exp(x_L - x_L.max())
    return weights / weights.sum()


def not_divided(x_L):
    return np.exp(x_L - x_L.max())


def in_place(x_L):
    x_L -= x_L.max()
    return softmax(x_L)


def check(answer, **options):
    return answers.function(
        "values", answer, CASES, softmax, bound=1e-12, called="w_L", **options
    )


@pytest.mark.parametrize("answer", [12, 12.0, np.int64(12), np.array([12])])
def test_right_count_passes(answer):
    assert answers.number("count", answer, 12).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (11.99, "11.99 is too small."),
        (13, "13 is too large."),
        (24, "That is both."),
        (math.nan, "nan is not a number."),
        (math.inf, "inf is too large."),
        (True, "Answer with one number, such as 1.5, not True."),
        ("12", "Answer with one number, such as 1.5, not '12'."),
        ((12,), "Answer with one number, such as 1.5, not (12,)."),
        (np.zeros(2), "Answer with one number"),
        (1j, "Answer with one number"),
    ],
)
def test_wrong_count_says_what_is_wrong(answer, said):
    check = answers.number("count", answer, 12, {24: "That is both."})
    assert not check.passed
    assert check.what.startswith(said)


@pytest.mark.parametrize(
    ("answer", "passes"), [(2.0, True), (2.019, True), (2.03, False)]
)
def test_number_is_right_within_a_hundredth(answer, passes):
    assert answers.number("ratio", answer, 2.0).passed is passes


def test_choice_is_read_without_case_and_spaces():
    wrong = {"no": "It does.", "at  times": "Always."}
    assert answers.choice("copies", " YES ", "yes", wrong).passed
    assert answers.choice("copies", "No", "yes", wrong).what == "It does."
    for other in ("maybe", 3, ["yes"]):
        check = answers.choice("copies", other, "yes", wrong)
        assert not check.passed
        assert "Answer with one of 'at  times', 'no', 'yes'" in check.what


@pytest.mark.parametrize(
    "answer", [(4, 1), [4, 1], np.array([4, 1]), torch.tensor([4, 1])], ids=str
)
def test_array_may_be_any_kind_of_sequence(answer):
    assert answers.array("strides", answer, (4, 1)).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((4, 2), "differs at index (1,): 2, but 1 is expected"),
        ((4, 1, 1), "has shape (3,), but (2,) is expected"),
        ((4, math.nan), "nan"),
        ("41", "must be a NumPy array or a torch tensor, not str"),
        ((4, "1"), "use real numbers"),
        (None, "not NoneType"),
    ],
)
def test_wrong_array_says_what_is_wrong(answer, said, capsys):
    check = answers.array("strides", answer, (4, 1))
    assert not check.passed
    assert said in check.what
    assert capsys.readouterr().out == ""


def test_right_function_passes():
    assert check(softmax).passed
    assert check(lambda x_L: torch.softmax(torch.tensor(x_L), -1)).passed


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (not_divided, "w_L differs at L = 2: 1, but 0.665"),
        (lambda x_L: softmax(x_L)[None], "shape (1, 3), but (3,)"),
        (lambda x_L: None, "must be a NumPy array"),
        (lambda x_L: x_L / 0, "nan"),
        (lambda x_L: [][0], "It raised IndexError: list index out of range (l"),
        (lambda: 0, "It raised TypeError: "),
        (in_place, "It changed its argument `x_L`."),
        (3, "Answer with a function, not 3."),
    ],
)
@pytest.mark.filterwarnings("ignore:divide by zero")
def test_wrong_function_says_what_is_wrong(answer, said):
    failed = check(answer)
    assert not failed.passed
    if "nan" not in said:
        assert said in failed.what


def test_place_of_an_error_is_the_readers():
    failed = check(lambda: 0)
    assert "answers.py" not in failed.what


def test_mistake_is_named_if_it_explains_every_case():
    named = check(not_divided, wrong={"weights-not-normalised": not_divided})
    assert named.mistake == "weights-not-normalised"
    own = check(not_divided, wrong={"Nobody divided.": not_divided})
    assert (own.mistake, own.likely) == (None, "Nobody divided.")
    other = check(np.exp, wrong={"Nobody divided.": not_divided})
    assert (other.passed, other.likely) == (False, "")
    half = check(
        lambda x_L: not_divided(x_L) if len(x_L) == 3 else softmax(x_L),
        wrong={"Nobody divided.": not_divided},
    )
    assert (half.passed, half.likely) == (False, "")


def test_mistake_that_is_not_in_the_museum_is_refused():
    with pytest.raises(ValueError, match="'weights-not-normalized'"):
        check(softmax, wrong={"weights-not-normalized": not_divided})


def test_counterexample_is_the_smallest_case():
    example = check(not_divided).counterexample
    assert example.sizes == {"L": 3}
    assert example.inputs == {"x_L": [1.0, 2.0, 3.0]}


def test_counterexample_names_sizes_that_are_arguments():
    cases = [{"x_L": np.arange(2.0), "L": 7, "causal": True, "a": (1.0, 2.0)}]
    failed = answers.function("v", lambda *_: 1, cases, lambda *_: 2)
    assert str(failed.counterexample) == "L = 7; causal=True; a=(1.0, 2.0)"


def test_bound_may_depend_on_the_case():
    seen = []

    def bound(x_L):
        seen.append(len(x_L))
        return 2.0

    failed = answers.function("v", not_divided, CASES, softmax, bound=bound)
    assert failed.passed
    assert seen == [3, 5]
