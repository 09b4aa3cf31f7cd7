import copy
import gzip
import json
import math

import pytest

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from attention_lab.figures.axis_plot import Axis, Plot, decades
from figures.scripts import needs_node, passed_tests


@pytest.fixture
def spoilt(ledger):
    """A copy of the ledger that a test may spoil."""
    return copy.deepcopy(ledger)


@pytest.fixture(scope="module")
def drawn(ledger):
    return figures.draw_ledger(ledger)


def test_the_bars_show_every_count_and_how_it_is_known(drawn, ledger, texts):
    words = texts(drawn.picture.panels[:1])
    first = ledger["settings"][0]
    for row in first["entries"]:
        assert f"{sum(row[1]['moved']):,}" in words
    assert words.count("recorded") == 5  # all but the bound
    assert words.count("by formula") == 1


def test_the_crossing_lies_where_the_tile_is_half_the_width(drawn):
    panel = drawn.picture.panels[1]
    assert "stored scores need 5,120" in panel.alt
    assert "8,736 with TILE_L 2" in panel.alt


def test_the_roofline_names_each_ridge_and_decode(drawn):
    alt = drawn.picture.panels[2].alt
    assert "one query, tile 128 0.5" in alt
    assert "T4 25.3, A100 12.5, H100 20.0, H200 14.0" in alt


def test_the_paper_is_shown_beside_its_count(drawn, texts):
    words = texts(drawn.picture.panels[3:])
    assert {"66.6", "824.6", "75.2", "962.1"} <= set(words)


def test_every_verdict_holds_on_the_real_ledger(drawn):
    assert drawn.passed
    told = str(drawn)
    assert "traffic, measured ÷ formula: 1.0000" in told
    assert "printed 66.6 GFLOP (standard) does not reproduce" in told


def entry(ledger, row=0, column=0):
    return ledger["settings"][0]["entries"][row][column]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: entry(x)["counted"][0].update(moved=[8192, 1280, 127]),
        lambda x: entry(x)["counted"][0].update(bytes=1),
        lambda x: entry(x, 2)["counted"][0].update(flops=2),
        lambda x: entry(x, 4, 3).update(moved=[10**9, 0, 0]),
        lambda x: x["torch_flops"].update(torch=1),
        lambda x: x["paper"]["rows"][0].update(counted=66.62),
    ],
    ids=["moved", "bytes", "flops", "crossing", "torch", "paper"],
)
def test_each_verdict_can_fail(spoilt, spoil):
    spoil(spoilt)
    drawn = figures.draw_ledger(spoilt)
    assert sum(not v.passed for v in drawn.picture.verdicts) == 1


def test_a_ledger_without_a_recording_does_not_pass(spoilt):
    for setting in spoilt["settings"]:
        for row in setting["entries"]:
            for cell in row:
                cell["counted"] = [None, None]
    drawn = figures.draw_ledger(spoilt)
    assert not drawn.passed
    assert "nothing recorded" in str(drawn)


def test_the_data_are_small(drawn):
    data = json.dumps(drawn.state, separators=(",", ":"))
    assert len(gzip.compress(data.encode())) <= 20_000


SPOILT = [
    (lambda x: x.update(schema="ledger.v2"), ValueError, "schema"),
    (lambda x: x.update(settings=[]), ValueError, "settings is empty"),
    (lambda x: x.pop("paper"), ValueError, "no 'paper'"),
    (
        lambda x: entry(x).update(flops=math.nan),
        ValueError,
        r"entries\[0\]\[0\]\.flops must be a whole number",
    ),
    (
        lambda x: entry(x).update(intensity=[math.nan, 1.0]),
        ValueError,
        r"entries\[0\]\[0\]\.intensity",
    ),
    (
        lambda x: x["settings"][1]["entries"][2].pop(),
        ShapeMismatch,
        r"settings\[1\]\.entries\[2\] has 3 entries, but needs 4",
    ),
    (
        lambda x: x["settings"][1]["entries"].pop(),
        ShapeMismatch,
        "has 5 entries, but needs 6",
    ),
    (
        lambda x: x["settings"][0].update(S=[1, 2, 3, 4, 5]),
        ValueError,
        r"settings\[0\]: axis S has size 5; at most 4",
    ),
    (
        lambda x: entry(x)["attainable"].pop(),
        ShapeMismatch,
        "attainable has 3 entries, but needs 4",
    ),
    (
        lambda x: x["devices"][0].update(bandwidth=0),
        ValueError,
        "bandwidth is 0",
    ),
]


@pytest.mark.parametrize(("spoil", "error", "says"), SPOILT)
def test_bad_data_get_a_sentence(spoilt, spoil, error, says):
    spoil(spoilt)
    with pytest.raises(error, match=says):
        figures.draw_ledger(spoilt)


def test_what_is_no_ledger_is_refused():
    with pytest.raises(ValueError, match="ledger must be a mapping"):
        figures.draw_ledger([1, 2])


@needs_node
def test_the_script_passes_its_own_tests(drawn, tmp_path):
    assert passed_tests("ledger", drawn.state, tmp_path) == 12


def test_values_beyond_an_axis_lie_on_its_end():
    plot = Plot(10, 20, 100, 50, decades("x", 0, 2), Axis(0, 4, "y", ()))
    assert plot.point(10, 1) == (60, 57.5)
    assert plot.point(1e9, -3) == (110, 70)


@pytest.mark.parametrize(("low", "high", "is_log"), [(2, 2, 0), (0, 1, 1)])
def test_an_axis_without_places_is_refused(low, high, is_log):
    with pytest.raises(ValueError, match="axis 'x' cannot go from"):
        Axis(low, high, "x", (), bool(is_log))
