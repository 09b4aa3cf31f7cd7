import json
import sys
import time

import pytest

from attention_lab.exercises.exercise import Exercise
from attention_lab.verify.report import Check, Report, report_from_json

WORDS = {"the double": ("Add it to itself.", "What is 1 plus 1?")}


def examine(answer):
    if not callable(answer):
        return [Check("the double", answer == 6, f"{answer} is not it.")]
    return [
        Check("is called", True),
        Check("the double", answer(3) == 6, "It is not twice as much."),
    ]


@pytest.fixture
def double(request):
    # Failures are counted by id: every test has its own.
    return Exercise(request.node.name, examine, hints=WORDS, seconds=5.0)


def endless(x):
    while True:
        x += 1


def deep(x):
    return deep(x + 1)


def leave(x):
    sys.exit(3)


def divide(x):
    return x / 0


class Unkind:
    def __getattr__(self, name):
        raise RuntimeError(name)

    def __eq__(self, other):
        raise RuntimeError("not comparable")

    __hash__ = None


def test_right_answer_passes(double):
    feedback = double.check(lambda x: 2 * x)
    assert feedback.passed
    assert not feedback.blank
    assert feedback.headline() == f"{double.id}: all 2 checks passed"


def test_wrong_answer_fails_and_says_what(double):
    feedback = double.check(lambda x: x)
    assert not feedback.passed
    assert not feedback.blank
    assert [check.name for check in feedback.failures] == ["the double"]
    assert "It is not twice as much." in str(feedback)


def blank(x):
    return ...


@pytest.mark.parametrize(
    "answer",
    [None, ..., "", blank],
    ids=["None", "...", "empty", "function"],
)
def test_blank_answer_is_neither_right_nor_wrong(double, answer):
    feedback = double.check(answer)
    assert feedback.blank
    assert not feedback.passed
    assert str(feedback) == repr(feedback) == f"{double.id}: not answered yet"
    shown = feedback._repr_html_()
    assert "not answered yet" in shown
    assert "✗" not in shown
    assert "failed" not in shown


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (deep, "RecursionError"),
        (leave, "sys.exit(3)"),
        (divide, "ZeroDivisionError: division by zero (line"),
        (lambda: 6, "TypeError"),
        (Unkind(), "RuntimeError"),
        ("six", "six is not it."),
        ([6], "is not it."),
    ],
    ids=[
        "recursion",
        "exit",
        "division",
        "arguments",
        "unkind",
        "text",
        "list",
    ],
)
def test_check_never_raises(double, answer, said):
    feedback = double.check(answer)
    assert not feedback.passed
    assert not feedback.blank
    assert said in str(feedback)


def test_answer_that_hangs_is_stopped():
    start = time.perf_counter()
    feedback = Exercise("test.slow", examine, seconds=0.5).check(endless)
    assert time.perf_counter() - start < 5.0
    assert not feedback.passed
    assert "still running at the time limit of 0.5 s" in str(feedback)
    assert "in endless" in str(feedback)


def test_list_that_contains_itself_is_no_trouble(double):
    answer = []
    answer.append(answer)
    assert not double.check(answer).passed


def test_second_failure_of_the_same_check_gets_the_bigger_hint(double):
    small, bigger = WORDS["the double"]
    assert double.check(5)["the double"].hint == small
    assert double.check(7)["the double"].hint == bigger
    assert double.check(8)["the double"].hint == bigger
    assert double.check(6).passed
    assert double.check(5)["the double"].hint == small


def test_blank_answer_does_not_reset_the_hints(double):
    double.check(6)
    double.check(5)
    double.check(None)
    assert double.check(5)["the double"].hint == WORDS["the double"][1]


def test_known_mistake_has_the_words_of_the_museum():
    exercise = Exercise(
        "test.scale",
        lambda _: [Check("values", False, "Off.", mistake="scale-missing")],
        hints={"values": ("mine", "mine, bigger")},
    )
    check = exercise.check(1)["values"]
    assert check.likely == "The scores are not scaled by the width of a head."
    assert check.hint.startswith("How does the spread")
    assert check.link == "museum.html#scale-missing"


def test_feedback_goes_through_json(double):
    feedback = double.check(lambda x: x)
    again = report_from_json(feedback.to_json())
    assert again.checks == feedback.checks
    data = json.loads(double.check(None).to_json())
    assert (data["passed"], data["checks"]) == (False, [])


def test_report_of_the_verifier_can_be_the_answer():
    report = Report("attend", "numpy", (Check("values", True),), notes=("x",))
    feedback = Exercise("test.report", lambda _: report).check(1)
    assert feedback.passed
    assert (feedback.subject, feedback.kind) == ("test.report", "exercise")
    assert feedback.notes == ("x",)


def test_exercise_that_checks_nothing_does_not_pass():
    feedback = Exercise("test.nothing", lambda _: []).check(1)
    assert not feedback.passed
    assert not feedback.blank
    assert "no check looked at the answer" in str(feedback)


@pytest.mark.parametrize("answer", [6, lambda x: 2 * x], ids=["data", "code"])
def test_where_it_ran_is_not_said_for_each_answer(double, answer, monkeypatch):
    from attention_lab.verify.isolation import isolated

    monkeypatch.setattr(isolated, "why_not_copied", lambda: "because of this")
    assert double.check(answer).passed
    assert double.check(answer).notes == ()
