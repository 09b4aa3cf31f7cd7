import copy
import gzip
import json
import math
import re

import pytest
from bs4 import BeautifulSoup

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from attention_lab.figures.interactive import joined, module_hash
from attention_lab.figures.live import LiveFigure, live


@pytest.fixture
def spoilt(theatre):
    """A copy of the recording that a test may spoil."""
    return copy.deepcopy(theatre)


@pytest.fixture(scope="module")
def drawn(theatre):
    return figures.draw_flash_theatre(theatre)


def test_six_frames_before_four_tiles_after(drawn, texts):
    panels = drawn.picture.panels
    assert len(panels) == 6
    words = texts(panels[:1]) + texts(panels[-1:])
    assert "Before: nothing is kept" in words
    assert "output = acc ÷ sum" in words


def test_the_frames_show_the_recorded_numbers(drawn, theatre, texts):
    run = theatre["runs"][0]
    for frame in range(4):
        words = texts(drawn.picture.panels[frame + 1 : frame + 2])
        for row in range(4):
            for part in ("row_max", "rescale", "row_sum"):
                number = f"{run[part][frame][row]:.2f}".replace("-", "−")
                assert number in words
    words = texts(drawn.picture.panels[-1:])
    for number in run["lse"][:4]:
        assert f"{number:.2f}" in words


def test_verdicts_name_every_wrong_loop(drawn, theatre):
    assert drawn.passed
    told = str(drawn)
    for run in theatre["runs"]:
        if run["slip"]:
            assert theatre["slips"][run["slip"]]["name"] in told
            assert f"off by {run['output_error']:.2g}" in told
    assert "measured ÷ formula: 1.0000" in told


@pytest.mark.parametrize(
    ("field", "value"),
    [("output_error", 1e-3), ("lse_error", 1e-3), ("output_error", None)],
)
def test_a_right_run_that_is_off_fails(spoilt, field, value):
    spoilt["runs"][3][field] = value
    assert not figures.draw_flash_theatre(spoilt).passed


def test_a_wrong_loop_that_is_not_off_fails(spoilt):
    wrong = next(run for run in spoilt["runs"] if run["slip"])
    wrong["output_error"] = wrong["output_bound"] / 2
    assert not figures.draw_flash_theatre(spoilt).passed


@pytest.mark.parametrize("count", ["total", "naive"])
def test_one_number_too_many_in_the_traffic_fails(spoilt, count):
    spoilt["runs"][0]["traffic"][count] += 1
    assert not figures.draw_flash_theatre(spoilt).passed


def test_html_is_one_self_contained_figure(drawn, theatre):
    page = drawn._repr_html_()
    soup = BeautifulSoup(page, "html.parser")
    (figure,) = soup.find_all("figure")
    state = json.loads(figure.select_one("script.attn-state").string)
    assert state == theatre
    script = soup.select_one("script[data-attn-module]")
    assert script["type"] == "module"
    assert script["data-attn-module"] == figure["data-attn"]
    assert not re.search(r"\s(id|src|href)=", re.sub(r"<script.*", "", page))
    assert not re.search(r"https?:", page.replace("http://www.w3.org", ""))
    assert len(figure.select(".attn-static svg")) == 6
    assert figure.select_one("figcaption details table")
    assert figure.select_one(".attn-stage").get_text() == ""


def test_a_name_cannot_end_the_script(spoilt):
    for run in spoilt["runs"]:
        run["name"] = run["name"].replace("tiles", "</script><b>tiles")
    soup = BeautifulSoup(
        figures.draw_flash_theatre(spoilt)._repr_html_(), "html.parser"
    )
    state = json.loads(soup.select_one("script.attn-state").string)
    assert "</script>" in state["runs"][0]["name"]
    assert not soup.find_all("b")


def test_sizes_stay_within_the_budget(theatre):
    data = gzip.compress(json.dumps(theatre).encode())
    assert len(data) <= 60_000


def test_the_module_is_what_anywidget_needs():
    module = joined("flash_theatre")
    assert not re.search(r"(?:^|[\n;}])import\b", module)
    assert re.findall(r"(?:^|[\n;}])export ([^;]*;)", module) == [
        "default theatre(PLAY);"
    ]
    for forbidden in ("eval(", "fetch(", "XMLHttpRequest", "innerHTML"):
        assert forbidden not in module


def test_modules_of_other_text_have_other_names():
    assert module_hash("a") != module_hash("b")
    with pytest.raises(ValueError, match=r"no typo\.js; there are base"):
        joined("typo")


def test_a_live_figure_needs_anywidget_and_says_so(drawn):
    anywidget = pytest.importorskip(
        "anywidget", reason="anywidget is optional and not installed"
    )
    widget = live(drawn)
    assert isinstance(widget, anywidget.AnyWidget)
    assert widget.state == drawn.state


def test_without_anywidget_live_says_what_to_install(drawn, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "anywidget", None)
    with pytest.raises(ImportError, match="pip install anywidget"):
        live(drawn)


@pytest.mark.parametrize("bad", [math.nan, math.inf, object()])
def test_a_state_that_is_no_json_is_refused(drawn, bad):
    with pytest.raises(ValueError, match="state cannot be written as JSON"):
        LiveFigure(drawn.picture, {"x": bad}, "flash_theatre")


def put(run, part, step, place, value):
    run[part][step][place] = value


SPOILT = [
    (lambda r: r.update(schema="flash_theatre.v2"), ValueError, "schema"),
    (lambda r: r.pop("schema"), ValueError, "'schema'"),
    (lambda r: r.update(runs=[]), ValueError, "runs is empty"),
    (lambda r: r["runs"].pop(0), ValueError, "no right run"),
    (lambda r: r["runs"][0].update(tiles=[]), ValueError, "tiles is empty"),
    (lambda r: r.update(D=9), ValueError, "axis D has size 9; at most 8"),
    (
        lambda r: r["runs"][0].update(TILE_S=9),
        ValueError,
        r"runs\[0\]: axis S in a tile has size 9; at most 8",
    ),
    (
        lambda r: r["runs"][0].update(L=64),
        ValueError,
        r"runs\[0\]: axis L in tiles has size 16; at most 6",
    ),
    (
        lambda r: put(r["runs"][0], "acc", 2, 5, math.nan),
        ValueError,
        r"runs\[0\]\.acc\[2\] holds nan at \[5\]",
    ),
    (
        lambda r: put(r["runs"][1], "scores", 0, 0, math.inf),
        ValueError,
        r"runs\[1\]\.scores\[0\] holds inf at \[0\]",
    ),
    (
        lambda r: r["runs"][0]["row_max"][3].pop(),
        ShapeMismatch,
        r"row_max\[3\] has 3 numbers, but its tile has 4",
    ),
    (
        lambda r: r["runs"][0]["rescale"].pop(),
        ShapeMismatch,
        "rescale has 15 steps, but tiles has 16",
    ),
    (
        lambda r: r["runs"][0]["traffic"]["so_far"].pop(),
        ShapeMismatch,
        "so_far has 15 steps",
    ),
    (lambda r: r["runs"][0].pop("lse"), ValueError, "no 'lse'"),
    (
        lambda r: r["runs"][0].update(output_error=math.nan),
        ValueError,
        "output_error",
    ),
    (lambda r: r["slips"].clear(), ValueError, "acc_not_rescaled"),
]


@pytest.mark.parametrize(("spoil", "error", "says"), SPOILT)
def test_bad_data_get_a_sentence(spoilt, spoil, error, says):
    spoil(spoilt)
    with pytest.raises(error, match=says):
        figures.draw_flash_theatre(spoilt)


def test_what_is_no_recording_is_refused():
    with pytest.raises(ValueError, match="recording must be a mapping"):
        figures.draw_flash_theatre([1, 2])
