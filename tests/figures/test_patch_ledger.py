import copy
import gzip
import json
import math

import pytest
from bs4 import BeautifulSoup

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from attention_lab.figures.interactive import joined
from figures.scripts import needs_node, passed_tests


@pytest.fixture
def spoilt(patch_ledger):
    """A copy of the recording that a test may spoil."""
    return copy.deepcopy(patch_ledger)


@pytest.fixture(scope="module")
def drawn(patch_ledger):
    return figures.draw_patch_ledger(patch_ledger)


@needs_node
def test_the_script_passes_its_own_tests(patch_ledger, tmp_path):
    assert passed_tests("patch_ledger", patch_ledger, tmp_path) >= 19


def weight_text(thousandths):
    return figures.patch_ledger.weight_text(thousandths / 1000)


def test_the_digit_shows_the_weights_of_its_query(drawn, patch_ledger, texts):
    run = patch_ledger["runs"][0]
    words = texts(drawn.picture.panels[1:2])
    assert "weights of patch 6" in words
    row = run["weights"][6 * 16 : 7 * 16]
    assert words[1:] == [weight_text(weight) for weight in row]


def test_the_ledger_lists_them_largest_first(drawn, patch_ledger, texts):
    run = patch_ledger["runs"][0]
    words = texts(drawn.picture.panels[2:3])
    row = run["weights"][6 * 16 : 7 * 16]
    order = [int(w[3:]) for w in words if w.startswith("· v")]
    assert sorted(order) == list(range(16))
    assert [row[p] for p in order] == sorted(row, reverse=True)
    assert "output 6 =" in words
    cells = [f"{x / 100:.1f}".lstrip("0") for x in run["out"][24:28]]
    assert words[-4:] == cells


def test_the_trained_heads_and_the_mistake_stand_beside_it(
    drawn, patch_ledger, texts
):
    panels = drawn.picture.panels
    assert len(panels) == 3 + 4 + 1
    for head, panel in enumerate(panels[3:7]):
        assert texts([panel])[0] == f"trained model, head {head}"
    wrong = next(run for run in patch_ledger["runs"] if run["axis"] == "L")
    total = wrong["sums"][6] / 1000
    assert texts(panels[7:])[0] == f"wrong axis: sum {total:.2f}"
    assert abs(total - 1) > 0.1


def test_another_query_has_other_numbers(patch_ledger, texts):
    other = figures.draw_patch_ledger(patch_ledger, query=9).picture
    row = patch_ledger["runs"][0]["weights"][9 * 16 : 10 * 16]
    assert texts(other.panels[1:2])[1:] == [weight_text(w) for w in row]
    assert "patch 9" in other.finding
    with pytest.raises(ValueError, match="query = 16 is outside axis L"):
        figures.draw_patch_ledger(patch_ledger, query=16)


def test_the_finding_is_computed_from_the_run(drawn, patch_ledger):
    row = patch_ledger["runs"][0]["weights"][6 * 16 : 7 * 16]
    best = max(range(16), key=row.__getitem__)
    assert f"{row[best] / 1000:.2f}·v{best}" in drawn.picture.finding


@pytest.mark.parametrize("check", ["sum", "output", "shuffle"])
def test_a_right_run_that_is_off_fails(spoilt, check):
    spoilt["runs"][2][f"{check}_error"] = (
        2 * spoilt["runs"][2][f"{check}_bound"]
    )
    assert not figures.draw_patch_ledger(spoilt).passed


def test_a_wrong_axis_that_does_not_show_fails(spoilt):
    wrong = [run for run in spoilt["runs"] if run["axis"] == "L"][-1]
    wrong["sum_error"] = wrong["sum_bound"] / 2
    assert not figures.draw_patch_ledger(spoilt).passed


def test_recorded_data_pass_and_are_the_state_of_the_page(drawn, patch_ledger):
    assert drawn.passed
    soup = BeautifulSoup(drawn._repr_html_(), "html.parser")
    (figure,) = soup.find_all("figure")
    state = json.loads(figure.select_one("script.attn-state").string)
    assert state == json.loads(json.dumps(patch_ledger))
    assert len(figure.select(".attn-static svg")) == 8
    assert len(figure.select("figcaption details tbody tr")) == 17


def test_names_from_the_data_are_shown_as_text(spoilt):
    for source in spoilt["sources"]:
        source["name"] = "</script><b>bold"
    figure = figures.draw_patch_ledger(spoilt)
    soup = BeautifulSoup(figure._repr_html_(), "html.parser")
    state = json.loads(soup.select_one("script.attn-state").string)
    assert state["sources"][0]["name"] == "</script><b>bold"
    assert not soup.find_all("b")


def test_the_data_and_the_module_are_light(patch_ledger):
    text = json.dumps(patch_ledger, separators=(",", ":"))
    assert len(gzip.compress(text.encode())) <= 20_000
    module = joined("patch_ledger")
    for forbidden in ("eval(", "fetch(", "XMLHttpRequest", "innerHTML"):
        assert forbidden not in module


SPOILT = [
    (lambda r: r.update(schema="patch_ledger.v2"), ValueError, "schema"),
    (lambda r: r.update(units={"weights": 1}), ValueError, "units must be"),
    (lambda r: r.update(runs=[]), ValueError, "runs is empty"),
    (lambda r: r.update(digits=[]), ValueError, "digits is empty"),
    (
        lambda r: r["runs"][0].update(axis="L"),
        ValueError,
        "must be a right one",
    ),
    (
        lambda r: r["runs"][3].update(axis="D"),
        ValueError,
        "'S' or 'L', not 'D'",
    ),
    (
        lambda r: r["runs"][3].update(source=99),
        ValueError,
        r"runs\[3\]\.source = 99 is outside axis sources, which has size 14",
    ),
    (
        lambda r: r["runs"][1]["weights"].pop(),
        ShapeMismatch,
        r"runs\[1\]\.weights has 255 numbers, but 16 queries and 16 keys have",
    ),
    (
        lambda r: r["runs"][1]["weights"].__setitem__(4, 1001),
        ValueError,
        "thousandths from 0 to 1000",
    ),
    (
        lambda r: r["runs"][2]["out"].__setitem__(5, math.nan),
        ValueError,
        r"runs\[2\]\.out holds nan at \[5\]",
    ),
    (lambda r: r["runs"][2]["sums"].pop(), ShapeMismatch, "sums has 15"),
    (
        lambda r: r["sources"][1].update(D=9),
        ValueError,
        r"sources\[1\]: axis D has size 9; at most 8",
    ),
    (
        lambda r: r["sources"][1]["values"].append(0),
        ShapeMismatch,
        r"sources\[1\]\.values has 129 numbers, but 16 patches of 8 channels",
    ),
    (
        lambda r: r["sources"][0].update(same=[4, 16]),
        ValueError,
        "same = 16 is outside axis S",
    ),
    (
        lambda r: r["digits"][0]["pixels"].__setitem__(0, 17),
        ValueError,
        "whole numbers 0 to 16",
    ),
    (lambda r: r["digits"][0]["pixels"].pop(), ShapeMismatch, "pixels has 63"),
    (lambda r: r["runs"][0].pop("sum_bound"), ValueError, "no 'sum_bound'"),
    (
        lambda r: r["runs"][0].update(output_error=math.nan),
        ValueError,
        "output_error",
    ),
]


@pytest.mark.parametrize(("spoil", "error", "says"), SPOILT)
def test_bad_data_get_a_sentence(spoilt, spoil, error, says):
    spoil(spoilt)
    with pytest.raises(error, match=says):
        figures.draw_patch_ledger(spoilt)


def test_what_is_no_recording_is_refused():
    with pytest.raises(ValueError, match="recording must be a mapping"):
        figures.draw_patch_ledger([1, 2])
