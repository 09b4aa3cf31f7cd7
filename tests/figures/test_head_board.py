import copy
import gzip
import json
import math

import pytest

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from attention_lab.figures.head_board_checks import (
    board_verdicts,
    with_questions,
)


@pytest.fixture
def spoilt(head_board):
    """A copy of the recording that a test may spoil."""
    return copy.deepcopy(head_board)


@pytest.fixture(scope="module")
def drawn(head_board):
    return figures.draw_head_board(head_board)


def test_the_panels_follow_head_1(drawn, texts):
    rows, right, wrong, shared, costs = drawn.picture.panels
    assert texts([rows]).count("head 1") == 3
    assert "Merged: head 1 is columns 2–3" in texts([right])
    assert "in columns 0–7 of tokens 1, 2." in texts([wrong])
    assert texts([shared]).count("heads 0–1") == 2
    for number in ("288", "3360", "25", "200"):
        assert number in texts([costs])


def test_each_number_of_the_output_names_its_head_and_token(
    drawn, head_board, texts
):
    run = head_board["runs"][0]
    for panel, prefix in zip(
        drawn.picture.panels[1:3], ("", "wrong_"), strict=True
    ):
        shown = [text for text in texts([panel]) if text[1:2] == "·"][:-1]
        pairs = zip(run[f"{prefix}heads"], run[f"{prefix}tokens"], strict=True)
        assert shown == [f"{head}·{token}" for head, token in pairs]


def test_the_finding_is_that_of_the_runs(drawn, spoilt):
    assert "25 → 200 scores" in drawn.picture.finding
    spoilt["runs"][3]["scores"] = 201
    other = figures.draw_head_board(spoilt)
    assert "25 → 201 scores" in other.picture.finding


def test_all_verdicts_hold(drawn):
    assert drawn.passed
    assert len(drawn.picture.verdicts) == 7


SPOILT_RUNS = [
    ("error", 1e-3, "against the reference"),
    ("loop_error", 1e-3, "loop − all at once"),
    ("whole_error", 1.0, "whole numbers"),
    ("loop_flops", 3361, "FLOPs"),
    ("parameters", 289, "do not depend on the number of heads"),
]


@pytest.mark.parametrize(("field", "value", "label"), SPOILT_RUNS)
def test_a_run_that_is_off_fails_its_verdict(spoilt, field, value, label):
    spoilt["runs"][2][field] = value
    failed = [v for v in board_verdicts(spoilt) if not v.passed]
    assert len(failed) == 1
    assert label in failed[0].label


@pytest.mark.parametrize(
    ("field", "value"), [("outside", 1e-16), ("inside", 0)]
)
def test_a_head_that_leaks_or_does_nothing_fails(spoilt, field, value):
    spoilt["runs"][1]["off"][0][field] = value
    assert not all(verdict.passed for verdict in board_verdicts(spoilt))


def test_a_wrong_merge_that_is_not_off_fails(spoilt):
    spoilt["runs"][4]["wrong_error"] = spoilt["runs"][4]["bound"] / 2
    assert not all(verdict.passed for verdict in board_verdicts(spoilt))


def test_each_run_carries_its_own_verdicts(drawn):
    for run in drawn.state["runs"]:
        assert all(check["passed"] for check in run["checks"])
        right = [check["passed"] for check in run["wrong_checks"]]
        assert right == [run["H"] == 1, True, True, True, True]


def test_answers_are_what_the_runs_recorded(drawn):
    cost = drawn.state["cost"]
    assert cost["options"][cost["answer"]] == "neither"
    assert [drawn.state["runs"][n]["H"] for n in cost["runs"]] == [1, 8]
    for run in drawn.state["runs"]:
        for head, off in enumerate(run["off"]):
            asked = off["question"]
            assert asked["options"][asked["answer"]] == str(5 * run["D"])
            assert ("wrong_question" in off) == (run["H"] > 1)
            if run["H"] > 1:
                first, last = (5 * run["D"] * h for h in (head, head + 1))
                tokens = {place // 8 for place in range(first, last)}
                asked = off["wrong_question"]
                answer = asked["options"][asked["answer"]]
                assert answer == str(len(tokens))


def test_costs_that_grow_are_the_answer(spoilt):
    spoilt["runs"][3].update(flops=4000, loop_flops=4000, parameters=300)
    cost = with_questions(spoilt)["cost"]
    assert cost["options"][cost["answer"]] == "both"


def test_one_run_alone_can_be_drawn(spoilt):
    for run in spoilt["runs"][1], spoilt["runs"][5]:
        alone = figures.draw_head_board({**spoilt, "runs": [run]})
        assert alone.passed


def test_sizes_stay_within_the_budget(drawn):
    assert len(gzip.compress(json.dumps(drawn.state).encode())) <= 20_000


SPOILT = [
    (lambda r: r.update(schema="head_board.v2"), ValueError, "schema"),
    (lambda r: r.update(runs=[]), ValueError, "runs is empty"),
    (lambda r: r.pop("E"), ValueError, "no 'E'"),
    (lambda r: r.update(E=16), ValueError, "axis E has size 16; at most 8"),
    (lambda r: r.update(L=9), ValueError, "axis L has size 9; at most 8"),
    (
        lambda r: r["runs"][1].update(H=3),
        ShapeMismatch,
        r"runs\[1\]: H = 3 heads of D = 8, .* axis E, which has size 8",
    ),
    (
        lambda r: r["runs"][0]["out"].pop(),
        ShapeMismatch,
        r"runs\[0\]\.out has 39 numbers, but its array has L·E = 40",
    ),
    (
        lambda r: r["runs"][0]["off"][2]["wrong_out"].pop(),
        ShapeMismatch,
        r"runs\[0\]\.off\[2\]\.wrong_out has 39 numbers",
    ),
    (
        lambda r: r["runs"][0]["off"].pop(),
        ShapeMismatch,
        r"runs\[0\]\.off: axis H has size 3, but .* H = 4",
    ),
    (
        lambda r: r["runs"][0]["out"].__setitem__(7, math.nan),
        ValueError,
        r"runs\[0\]\.out holds nan at \[7\]",
    ),
    (
        lambda r: r["runs"][0]["heads"].__setitem__(0, 4),
        ValueError,
        r"runs\[0\]\.heads must name every place from 0 to 3",
    ),
    (
        lambda r: r["runs"][0].update(error=math.nan),
        ValueError,
        r"runs\[0\]\.error must be one finite number",
    ),
    (
        lambda r: r["runs"][0].update(bound=0.0),
        ValueError,
        r"runs\[0\]\.bound must be one finite number",
    ),
    (
        lambda r: r["runs"][0].update(flops=0),
        ValueError,
        r"runs\[0\]\.flops must be a whole number of at least 1",
    ),
    (lambda r: r["runs"][0].pop("scores"), ValueError, "no 'scores'"),
]


@pytest.mark.parametrize(("spoil", "error", "says"), SPOILT)
def test_bad_data_get_a_sentence(spoilt, spoil, error, says):
    spoil(spoilt)
    with pytest.raises(error, match=says):
        figures.draw_head_board(spoilt)


def test_what_is_no_recording_is_refused():
    with pytest.raises(ValueError, match="recording must be a mapping"):
        figures.draw_head_board([1, 2])
