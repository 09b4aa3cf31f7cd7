import copy
import gzip
import json
import math
import re

import pytest

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from attention_lab.figures.theatre_data import (
    BACKWARD,
    read_theatre,
    verdicts_of,
)


@pytest.fixture
def spoilt(theatre_backward):
    """A copy of the recording that a test may spoil."""
    return copy.deepcopy(theatre_backward)


def all_hold(recording):
    """Whether every verdict holds, without drawing anything."""
    data = read_theatre(recording, BACKWARD)
    return all(verdict.passed for verdict in verdicts_of(data, BACKWARD))


@pytest.fixture(scope="module")
def drawn(theatre_backward):
    return figures.draw_flash_theatre_backward(theatre_backward)


def test_five_frames_before_three_tiles_after(drawn, texts):
    panels = drawn.picture.panels
    assert len(panels) == 5
    assert "Before: two numbers per query" in texts(panels[:1])
    assert "2. queries 4–7 × keys 0–3" in texts(panels[2:3])
    assert "After: store 4·(3 + 3)" in texts(panels[-1:])


def test_the_frames_show_the_recorded_numbers(drawn, theatre_backward, texts):
    run = theatre_backward["runs"][0]
    parts = ("scores", "weights", "d_weights", "d_scores", "dv", "dk", "dq_sum")
    for frame in range(3):
        words = texts(drawn.picture.panels[frame + 1 : frame + 2])
        numbers = [x for part in parts for x in run[part][frame]]
        shown = [short(x) for x in numbers]
        begin = words.index("scores")
        squares = [
            w for w in words[begin:] if re.fullmatch(r"−?(\.\d\d|\d\.\d)", w)
        ]
        assert squares == shown
        for query in range(4 * frame, 4 * frame + 4):
            assert f"{run['lse'][query]:.2f}".replace("-", "−") in words
            assert f"{run['row_dot'][query]:.2f}".replace("-", "−") in words


def short(x):
    """Write a number as a square of the comic does."""
    text = f"{x:.2f}" if abs(x) < 0.995 else f"{x:.1f}"
    text = "0.00" if text == "-0.00" else text
    return re.sub(r"^(-?)0\.", r"\1.", text).replace("-", "−")


def test_a_causal_column_starts_at_its_diagonal(spoilt, texts):
    spoilt["runs"] = [run for run in spoilt["runs"] if "causal" in run["name"]]
    drawn = figures.draw_flash_theatre_backward(spoilt)
    assert len(drawn.picture.panels) == 6
    words = texts(drawn.picture.panels[1:2])
    assert "1. queries 0–3 × keys 0–3" in words
    assert drawn.passed


def test_verdicts_name_every_wrong_loop(drawn, theatre_backward):
    assert drawn.passed
    assert all_hold(theatre_backward)
    told = str(drawn)
    shown_in = {
        "row_dot_lost": "dQ dK",
        "scale_lost": "dQ dK",
        "dk_transposed": "dK",
        "causal_ignored": "dQ dK dV",
        "scores_for_weights": "dV",
        "max_for_lse": "dQ dK dV",
    }
    assert set(shown_in) == set(theatre_backward["slips"])
    for slip, gradients in shown_in.items():
        name = theatre_backward["slips"][slip]["name"]
        line = next(x for x in told.splitlines() if f"“{name}”" in x)
        assert line.startswith("✓")
        assert line.split("shows in ")[1][:2] in gradients.split()
    assert "measured ÷ formula: 1.0000" in told
    assert "races, bounds, barriers: 0 hazards found" in told


@pytest.mark.parametrize("field", ["dq_error", "dk_error", "dv_error"])
@pytest.mark.parametrize("value", [1e-3, None])
def test_a_right_run_that_is_off_fails(spoilt, field, value):
    run = next(run for run in spoilt["runs"][::-1] if run["slip"] is None)
    run[field] = value
    assert not all_hold(spoilt)


def test_a_wrong_loop_that_is_not_off_fails(spoilt):
    wrong = next(run for run in spoilt["runs"] if run["slip"])
    for field in ("dq", "dk"):
        wrong[f"{field}_error"] = spoilt["runs"][0][f"{field}_bound"] / 2
    assert not all_hold(spoilt)


@pytest.mark.parametrize("count", ["total", "naive", "hazards"])
def test_one_too_many_in_the_recorded_kernels_fails(spoilt, count):
    spoilt["runs"][0]["traffic"][count] += 1
    assert not all_hold(spoilt)


def test_the_state_is_the_recording(drawn, theatre_backward):
    assert drawn.state == theatre_backward
    assert drawn.name == "flash_theatre_backward"
    data = gzip.compress(json.dumps(theatre_backward).encode())
    assert len(data) <= 20_000


SPOILT = [
    (lambda r: r.update(schema="flash_theatre.v1"), ValueError, "schema"),
    (lambda r: r.update(runs=[]), ValueError, "runs is empty"),
    (lambda r: r["runs"].pop(0), ValueError, "no right run"),
    (lambda r: r["runs"][0].update(tiles=[]), ValueError, "tiles is empty"),
    (lambda r: r.update(D=9), ValueError, "axis D has size 9; at most 8"),
    (
        lambda r: r["runs"][0].update(TILE_L=9),
        ValueError,
        r"runs\[0\]: axis L in a tile has size 9; at most 8",
    ),
    (
        lambda r: r["runs"][0]["dk"][2].__setitem__(5, math.nan),
        ValueError,
        r"runs\[0\]\.dk\[2\] holds nan at \[5\]",
    ),
    (
        lambda r: r["runs"][1]["d_scores"][0].__setitem__(0, math.inf),
        ValueError,
        r"runs\[1\]\.d_scores\[0\] holds inf at \[0\]",
    ),
    (
        lambda r: r["runs"][0]["dv"][3].pop(),
        ShapeMismatch,
        r"dv\[3\] has 11 numbers, but its tile has 12",
    ),
    (
        lambda r: r["runs"][0]["weights"].pop(),
        ShapeMismatch,
        "weights has 8 steps, but tiles has 9",
    ),
    (lambda r: r["runs"][0].pop("row_dot"), ValueError, "no 'row_dot'"),
    (
        lambda r: r["runs"][0]["dq"].pop(),
        ShapeMismatch,
        r"dq has 35 numbers, but L · D is 36",
    ),
    (
        lambda r: r["runs"][0].update(dk_bound=math.nan),
        ValueError,
        "dk_bound",
    ),
    (lambda r: r["slips"].clear(), ValueError, "row_dot_lost"),
]


@pytest.mark.parametrize(("spoil", "error", "says"), SPOILT)
def test_bad_data_get_a_sentence(spoilt, spoil, error, says):
    spoil(spoilt)
    with pytest.raises(error, match=says):
        figures.draw_flash_theatre_backward(spoilt)
