import copy
import gzip
import json
import math

import pytest

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from attention_lab.steps.stage_run import STAGES, stage_run
from figures.scripts import needs_node, passed_tests


@pytest.fixture(scope="module")
def run():
    return stage_run("scaled_dot_product")


@pytest.fixture(scope="module")
def drawn(run):
    return figures.draw_stage_card(run)


@pytest.fixture
def spoilt(run):
    """A copy of the run that a test may spoil."""
    return copy.deepcopy(run)


@pytest.mark.parametrize("stage", STAGES)
def test_every_stage_has_a_card_that_holds_and_is_light(stage, problems, texts):
    drawn = figures.draw_stage_card(stage_run(stage))
    assert drawn.passed, drawn
    assert problems(drawn.picture.panels) == []
    assert len(gzip.compress(json.dumps(drawn.state).encode())) <= 6_000
    words = texts(drawn.picture.panels)
    for kernel in drawn.state["kernels"]:
        recording = kernel["recording"]
        assert recording["kernel"] in words
        for site in recording["sites"]:
            is_local = recording["memory"][site["memory"]]["space"] == "local"
            assert is_local or str(site["line"]) in words


def test_the_four_verdicts(drawn):
    labels = [verdict.label for verdict in drawn.picture.verdicts]
    assert labels == [
        "shape of out_BHLD",
        "values against the reference",
        "races, bounds, barriers",
        "traffic",
    ]
    told = str(drawn)
    assert "1 × 2 × 7 × 3 (must be 1 × 2 × 7 × 3" in told
    # q and k 2·7·10·3 each, 4 · 2·7·10 scores, 2·7·10 weights; the weighted
    # sum reads 2·7·10·3 twice and writes 2·7·3.
    formula = 4 * 420 + 5 * 140 + 42
    assert f"traffic: {formula} reads and writes (formula {formula}," in told


@pytest.mark.parametrize(
    ("spoil", "label"),
    [
        (lambda r: r["result"].update(shape=[1, 7, 2, 3]), "shape"),
        (lambda r: r["result"].update(error=1e-3), "values"),
        (lambda r: r["result"].update(error=None), "values"),
        (lambda r: r["kernels"][1]["hazards"].update(shuffled=1), "races"),
        (
            lambda r: r["kernels"][2]["recording"]["verdict"].update(
                traffic_equals_formula=False
            ),
            "traffic",
        ),
        (
            lambda r: r["kernels"][0]["recording"]["verdict"].update(
                traffic_equals_formula=None
            ),
            "traffic",
        ),
    ],
)
def test_each_verdict_can_fail_alone(spoilt, spoil, label):
    spoil(spoilt)
    drawn = figures.draw_stage_card(spoilt)
    failed = [v.label for v in drawn.picture.verdicts if not v.passed]
    assert len(failed) == 1
    assert failed[0].startswith(label)
    shown = [v for v in drawn.state["verdicts"] if not v["passed"]]
    assert [v["label"] for v in shown] == failed


SPOILT = [
    (lambda r: r.update(schema="stage_card.v2"), ValueError, "'stage_card.v2'"),
    (lambda r: r.update(kernels=[]), ValueError, "kernels is empty"),
    (lambda r: r["result"].pop("bound"), ValueError, "no 'bound'"),
    (lambda r: r["result"].update(error=math.nan), ValueError, "result.error"),
    (
        lambda r: r["kernels"][0]["hazards"].clear(),
        ValueError,
        r"kernels\[0\].hazards names no thread order",
    ),
    (
        lambda r: r["kernels"][1].update(source=[[1, "def f():"]]),
        ValueError,
        r"kernels\[1\].source lacks line \d+, which touches memory",
    ),
    (
        lambda r: r["kernels"][0]["recording"]["events"]["data"][1].pop(),
        ShapeMismatch,
        r"kernels\[0\].recording.events: the column epoch",
    ),
    (
        lambda r: r["kernels"][0]["recording"]["memory"][0].update(
            shape=[1, 2, 70, 10]
        ),
        ValueError,
        "scores_BHLS: axis in squares has size 70; at most 24",
    ),
    (
        lambda r: r["kernels"].extend(r["kernels"]),
        ValueError,
        "kernels has size 6; at most 4",
    ),
]


@pytest.mark.parametrize(("spoil", "error", "says"), SPOILT)
def test_bad_data_get_a_sentence(spoilt, spoil, error, says):
    spoil(spoilt)
    with pytest.raises(error, match=says):
        figures.draw_stage_card(spoilt)


def test_what_is_no_run_is_refused():
    with pytest.raises(ValueError, match="run must be a mapping"):
        figures.draw_stage_card([1])


@needs_node
def test_the_script_passes_its_own_tests(drawn, tmp_path):
    assert passed_tests("card", drawn.state, tmp_path) == 3
