import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.axes import ShapeMismatch
from attention_lab.figures import draw_flash_frames, draw_tiles
from attention_lab.figures.tile_board import layout_tiles, needed_tiles

CAUSAL = np.tri(13, 17, dtype=bool)
LOWER = [(i, j) for i in range(4) for j in range(i + 1)]


def test_tiles_are_numbered_in_the_order_visited(texts):
    panel = draw_tiles(5, 5, 4, 4, [(1, 0), (0, 1), (0, 0), (1, 1)]).panels[0]
    # Drawn row by row; the order visited is 3, 2, then 1, 4.
    assert [w for w in texts([panel]) if w in "1234"] == ["3", "2", "1", "4"]


def test_causal_tiles_are_skipped_and_say_so(texts):
    picture = draw_tiles(13, 17, 4, 4, LOWER, kept=CAUSAL)
    assert picture.passed
    assert picture.finding == "10 of 20 tiles are visited; 10 are skipped."
    assert texts(picture.panels).count("skip") == 10


@pytest.mark.parametrize(
    ("visited", "passed"),
    [
        (LOWER[:-1], [False, True]),
        ([*LOWER, (3, 3)], [False, True]),
        ([*LOWER, (0, 4)], [True, False]),
    ],
)
def test_a_missed_a_repeated_and_an_idle_tile_fail(visited, passed):
    picture = draw_tiles(13, 17, 4, 4, visited, kept=CAUSAL)
    assert [verdict.passed for verdict in picture.verdicts] == passed


def test_needed_tiles_hold_a_kept_score():
    needed = needed_tiles(CAUSAL, 4, 4)
    assert needed.shape == (4, 5)
    assert int(needed.sum()) == 10


@settings(deadline=None, max_examples=25)
@given(
    L=st.integers(1, 64),
    S=st.integers(1, 64),
    TILE_L=st.sampled_from([1, 4, 5, 16]),
    TILE_S=st.sampled_from([1, 4, 5, 16]),
)
def test_any_board_is_drawn_soundly(problems, L, S, TILE_L, TILE_S):
    kept = np.tri(L, S, dtype=bool)
    needed = needed_tiles(kept, TILE_L, TILE_S)
    order = np.where(needed, np.cumsum(needed).reshape(needed.shape) - 1, -1)
    assert problems([layout_tiles(kept, TILE_L, TILE_S, order)]) == []


def test_wrong_boards_are_refused():
    with pytest.raises(ShapeMismatch, match=r"kept has shape \(5, 4\), but L"):
        draw_tiles(4, 5, 2, 2, [], kept=np.ones((5, 4)))
    with pytest.raises(ValueError, match=r"visited\[0\] = \(2, 0\)"):
        draw_tiles(4, 4, 2, 2, [(2, 0)])
    with pytest.raises(ValueError, match="TILE_S must be a whole number"):
        draw_tiles(4, 4, 2, 0, [])
    with pytest.raises(ValueError, match="axis L has size 65"):
        draw_tiles(65, 4, 2, 2, [])


@pytest.fixture
def flash(build):
    rng = np.random.default_rng(3)
    query, key, value = (rng.normal(size=(n, 11)) for n in (4, 17, 17))
    return build["flash_trace"](query, key, value, 4, CAUSAL[8:12])


def frames(trace, **changes):
    options = {
        "S": 17, "TILE_L": 4, "TILE_S": 4, "tile_row": 2, "output_error": 1e-16,
        "lse_error": 0.0, "tolerance": 1e-12, "provenance": "a test",
    }  # fmt: skip
    return draw_flash_frames(trace, **{**options, **changes})


def test_one_frame_per_visited_tile(flash, texts):
    picture = frames(flash)
    assert picture.passed
    assert len(picture.panels) == 3
    assert picture.finding.startswith("3 of 5 key tiles pass by.")
    assert "3. keys 8–11" in texts(picture.panels)


@pytest.mark.parametrize("name", ["output_error", "lse_error"])
def test_an_error_above_the_tolerance_fails(flash, name):
    assert not frames(flash, **{name: 1e-3}).passed
    with pytest.raises(ValueError, match="NaN"):
        frames(flash, **{name: float("nan")})


def test_large_numbers_stay_inside_their_columns(flash, problems):
    for step in flash:
        step["row_max"] = step["row_max"] * 12345.0
        step["acc"] = step["acc"] * -1e7
        step["row_sum"] = step["row_sum"] * 1e4
    assert problems(frames(flash).panels) == []


def test_only_the_chosen_block_is_drawn(flash, texts):
    others = [{**step, "tile_row": 1} for step in flash]
    words = texts(frames([*others, *flash]).panels)
    assert len([word for word in words if word.startswith("in shared")]) == 3
    assert words.count("11") == 2 * 3  # the last query, twice in each frame
    with pytest.raises(ValueError, match="none of them with tile_row = 3"):
        frames(flash, tile_row=3)
    with pytest.raises(ValueError, match="head = 1 is outside axis H"):
        frames(flash, head=1)


def test_a_trace_of_the_real_loop_is_drawn(problems):
    from attention_lab.steps.flash_forward import flash_forward

    torch.manual_seed(0)
    q, k, v = (torch.randn(1, 2, n, 11) for n in (13, 17, 17))
    trace = []
    flash_forward(q, k, v, is_causal=True, TILE_L=4, TILE_S=4, trace=trace)
    visited = [(step.tile_row, step.tile_col) for step in trace]
    assert draw_tiles(13, 17, 4, 4, visited, kept=CAUSAL).passed
    picture = frames(trace, tile_row=3, head=1)
    assert len(picture.panels) == 4
    assert problems(picture.panels) == []


def test_wrong_frames_are_refused(flash):
    first = flash[0]
    with pytest.raises(ValueError, match="trace has 0 tiles"):
        frames([])
    with pytest.raises(ValueError, match="starts at key 20, but S = 17"):
        frames([{**first, "tile_col": 5}])
    with pytest.raises(ShapeMismatch, match="acc: axis L has size 3"):
        frames([{**first, "acc": first["acc"][:, :, :3]}])
    with pytest.raises(ShapeMismatch, match="acc has 2 axes"):
        frames([{**first, "acc": first["acc"][0, 0]}])
    with pytest.raises(ValueError, match=r"trace\[0\].acc holds nan"):
        frames([{**first, "acc": np.full((1, 1, 4, 11), np.nan)}])
    with pytest.raises(ValueError, match="axis S has size 5; at most 4"):
        frames([{**first, "scores": np.zeros((1, 1, 4, 5))}])
