"""A report says what it found: in print, in HTML, in JSON."""

import json
import math

import pytest

from attention_lab.verify.hints import with_growing_hints, with_words
from attention_lab.verify.known_mistakes import known_mistakes
from attention_lab.verify.report import (
    Check,
    Counterexample,
    Report,
    report_from_json,
)

EXAMPLE = Counterexample(
    sizes={"B": 1, "L": 2, "S": 2},
    options={"is_causal": True},
    inputs={"query": [[[[1.0], [2.0]]]]},
    where={"token": 0, "sees": 1},
    got=math.nan,
    expected=0.0,
)
FAILED = Check(
    "causal",
    passed=False,
    what="token 0 sees token 1 although is_causal forbids it.",
    counterexample=EXAMPLE,
    mistake="causal-ignored",
)
PASSED = Check("shape", passed=True)


def report(*checks, **more):
    return Report("my <attention>", "torch", checks, **more)


def test_it_passes_only_if_every_check_passed():
    assert report(PASSED).passed
    assert not report(PASSED, FAILED).passed


def test_a_report_without_checks_has_not_passed():
    assert not report().passed
    assert "nothing could be tested" in str(report())


def test_print_gives_example_mistake_hint_and_link_of_each_failure():
    text = str(report(PASSED, with_words(FAILED)))
    card = known_mistakes()["causal-ignored"]
    assert "1 of 2 checks failed" in text
    assert "✗ causal: token 0 sees token 1" in text
    assert "B = 1, L = 2, S = 2; is_causal=True" in text
    assert card.cause in text
    assert card.hint in text
    assert card.link in text
    assert "✓ shape" in text


def test_the_message_goes_from_the_difference_to_the_hint():
    message = with_words(FAILED).message
    card = known_mistakes()["causal-ignored"]
    order = [message.index(part) for part in (FAILED.what, card.cause)]
    assert order == sorted(order)
    assert message.endswith(card.hint)


def test_what_was_not_tested_is_said_with_the_reason():
    text = str(report(PASSED, not_tested={"scale": "no argument scale"}))
    assert "not tested: scale (no argument scale)" in text


def test_json_round_trip_keeps_everything_but_nan():
    before = report(
        PASSED, with_words(FAILED), not_tested={"scale": "none"}, notes=("a",)
    )
    after = report_from_json(before.to_json())
    assert after.checks[0] == PASSED
    assert after.checks[1].counterexample.got == "nan"
    assert str(after) == str(before)
    assert json.loads(before.to_json())["checks"][1]["message"]


def test_json_of_another_schema_is_refused():
    with pytest.raises(ValueError, match=r"verify\.v1"):
        report_from_json('{"schema": "other"}')


def test_html_escapes_names_and_marks_the_state():
    html = report(FAILED)._repr_html_()
    assert "my &lt;attention&gt;" in html
    assert "verify-failed" in html
    assert "<attention>" not in html


def test_a_check_is_found_by_name():
    assert report(PASSED, FAILED)["causal"] is FAILED
    with pytest.raises(KeyError, match="these did: shape"):
        report(PASSED)["causal"]


def test_the_second_failure_of_a_check_gets_the_bigger_hint():
    card = known_mistakes()["causal-ignored"]
    owner = "test_the_second_failure"
    hints = [
        with_growing_hints(report(FAILED), owner)["causal"].hint
        for _ in range(3)
    ]
    assert hints == [card.hint, card.bigger_hint, card.bigger_hint]


def test_after_a_pass_the_hints_begin_anew():
    card = known_mistakes()["causal-ignored"]
    owner = "test_after_a_pass"
    with_growing_hints(report(FAILED), owner)
    with_growing_hints(report(Check("causal", passed=True)), owner)
    again = with_growing_hints(report(FAILED), owner)
    assert again["causal"].hint == card.hint


def test_a_failure_that_nothing_known_explains_has_no_hint():
    unknown = with_words(Check("causal", passed=False, what="It differs."))
    assert unknown.message == "It differs."


def test_a_mistake_is_explained_once_however_many_checks_it_fails():
    other = Check(
        "causality", False, what="It leaks.", mistake="causal-ignored"
    )
    both = report(with_words(FAILED), with_words(other))
    card = known_mistakes()["causal-ignored"]
    for text in (str(both), both._repr_html_()):
        assert text.count(card.hint) == 1
        assert "The same mistake explains it." in text
