import copy
import gzip
import json
import math

import pytest

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from figures.scripts import needs_node, passed_tests


@pytest.fixture
def spoilt(saturation):
    """A copy of the recording that a test may spoil."""
    return copy.deepcopy(saturation)


@pytest.fixture(scope="module")
def drawn(saturation):
    return figures.draw_saturation(saturation)


def test_four_widths_with_their_entropy(drawn, saturation, texts):
    words = texts(drawn.picture.panels[:1])
    for column in (0, 2, 3, 5):
        assert str(saturation["widths"][column]) in words
        entropy = saturation["runs"][1][column]["entropy"]
        assert f"entropy {entropy:.2f}" in words


def test_the_empty_row_shows_nan_beside_numbers(drawn, texts):
    words = texts(drawn.picture.panels[3:])
    assert words.count("NaN") == 7
    assert "plain softmax 7 of 7" in drawn.picture.panels[3].alt
    assert "with ours 0" in drawn.picture.panels[3].alt


def test_every_verdict_holds_and_is_told_per_state(drawn):
    assert drawn.passed
    for run in drawn.state["runs"][0]:
        assert [c["passed"] for c in run["checked"]] == [True]
    for mask in drawn.state["masks"]:
        assert [c["passed"] for c in mask["checked"]] == [True] * 4


def first(recording):
    return recording["masks"][0]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: x["runs"][1][4].update(ratio=1.1),
        lambda x: first(x).update(output_error=1e-3),
        lambda x: first(x).update(sdpa_error=1e-3),
        lambda x: first(x).update(grad_error=1e-3),
        lambda x: first(x)["ours"]["grads"].__setitem__(0, None),
        lambda x: first(x)["plain"]["grads"].__setitem__(0, None),
    ],
    ids=["spread", "output", "pytorch", "gradient", "nan", "poison"],
)
def test_each_verdict_can_fail(spoilt, spoil):
    spoil(spoilt)
    drawn = figures.draw_saturation(spoilt)
    assert sum(not v.passed for v in drawn.picture.verdicts) == 1


def test_the_verdict_of_one_state_can_fail(spoilt):
    spoilt["runs"][1][4]["ratio"] = 1.1
    spoilt["masks"][0]["ours"]["grads"][0] = None
    state = figures.draw_saturation(spoilt).state
    assert not state["runs"][1][4]["checked"][0]["passed"]
    assert not state["masks"][0]["checked"][3]["passed"]


def test_the_data_are_small(drawn):
    data = json.dumps(drawn.state, separators=(",", ":"))
    assert len(gzip.compress(data.encode())) <= 20_000


SPOILT = [
    (lambda x: x.update(schema="saturation.v2"), ValueError, "schema"),
    (lambda x: x.update(runs=[]), ValueError, "runs is empty"),
    (lambda x: x.update(masks=[]), ValueError, "masks is empty"),
    (lambda x: x["runs"].pop(), ShapeMismatch, "1 entries, but needs 2"),
    (lambda x: x["runs"][1].pop(), ShapeMismatch, r"runs\[1\] has 5 entries"),
    (
        lambda x: x["runs"][0][1].update(std=math.nan),
        ValueError,
        r"runs\[0\]\[1\]\.std",
    ),
    (
        lambda x: x["runs"][0][1]["counts"].__setitem__(0, 1),
        ShapeMismatch,
        r"counts has 4097 scores, but L·S is 4096",
    ),
    (
        lambda x: first(x)["keep"].pop(),
        ShapeMismatch,
        r"masks\[0\]\.keep has 34 entries, but needs 35",
    ),
    (
        lambda x: first(x)["plain"]["grads"].pop(),
        ShapeMismatch,
        r"plain\.grads has 6 entries, but needs 7",
    ),
    (
        lambda x: x["mask_sizes"].__setitem__(1, 8),
        ValueError,
        "axis S has size 8; at most 7",
    ),
    (
        lambda x: x.update(widths=list(range(1, 8))),
        ValueError,
        "axis D has size 7; at most 6",
    ),
]


@pytest.mark.parametrize(("spoil", "error", "says"), SPOILT)
def test_bad_data_get_a_sentence(spoilt, spoil, error, says):
    spoil(spoilt)
    with pytest.raises(error, match=says):
        figures.draw_saturation(spoilt)


def test_what_is_no_recording_is_refused():
    with pytest.raises(ValueError, match="recording must be a mapping"):
        figures.draw_saturation([1, 2])


@needs_node
def test_the_script_passes_its_own_tests(drawn, tmp_path):
    assert passed_tests("saturation", drawn.state, tmp_path) == 11
