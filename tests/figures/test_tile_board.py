import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.axes import ShapeMismatch
from attention_lab.figures import draw_flash_frames, draw_tiles
from attention_lab.figures.marks import Box
from attention_lab.figures.palette import PAPER
from attention_lab.figures.tile_board import layout_tiles, needed_tiles

CAUSAL = np.tri(13, 17, dtype=bool)
LOWER = [(i, j) for i in range(4) for j in range(i + 1)]


def tag_bounds(panel):
    """Return the edges of the small papers with a number or "skip"."""
    return [
        mark.bounds
        for mark in panel.marks
        if isinstance(mark, Box)
        and (mark.fill, mark.edge_width) == (PAPER, 0.6)
    ]


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


@pytest.mark.parametrize("tile", [1, 2, 3, 4, 5, 16])
@pytest.mark.parametrize(("L", "S"), [(5, 7), (13, 17), (15, 15), (64, 63)])
def test_no_number_lies_across_the_edge_of_the_matrix(L, S, tile):
    rows, columns = -(-L // tile), -(-S // tile)
    for first in (0, -1):  # all are numbered, or all say "skip"
        order = np.full((rows, columns), -1)
        if first == 0:
            order = np.arange(rows * columns).reshape(rows, columns)
        panel = layout_tiles(np.ones((L, S), dtype=bool), tile, tile, order)
        outline = next(m for m in panel.marks if getattr(m, "width", 0) == 2.4)
        _, _, right, bottom = outline.bounds
        for left, top, end, low in tag_bounds(panel):
            inside = end <= right and low <= bottom
            assert inside or left >= right or top >= bottom


def test_the_number_of_a_ragged_tile_is_in_the_part_that_exists():
    # Two tiles of 4 × 4 cells of 18 px; of the second, one column exists.
    board = np.ones((4, 5), dtype=bool)
    (_, second) = tag_bounds(layout_tiles(board, 4, 4, np.array([[0, 1]])))
    np.testing.assert_allclose((second[0] + second[2]) / 2, 44 + 4.5 * 18)
    np.testing.assert_allclose((second[1] + second[3]) / 2, 28 + 2 * 18)


def test_a_word_too_wide_for_a_ragged_tile_stands_beside_it():
    board = np.ones((4, 5), dtype=bool)
    (_, skip) = tag_bounds(layout_tiles(board, 4, 4, np.array([[0, -1]])))
    assert 44 + 5 * 18 <= skip[0] <= skip[2] <= 44 + 8 * 18


def test_a_number_too_wide_and_too_deep_stands_below():
    low = np.ones((1, 64), dtype=bool)
    tags = tag_bounds(layout_tiles(low, 16, 16, np.arange(4)[None]))
    assert len(tags) == 4
    assert min(tag[1] for tag in tags) >= 28 + 252 / 64


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
    with pytest.raises(ValueError, match=f"{name} must be one finite number"):
        frames(flash, **{name: float("nan")})


def test_large_numbers_stay_inside_their_columns(flash, problems):
    for step in flash:
        step["row_max"] = step["row_max"] * 12345.0
        step["acc"] = step["acc"] * -1e7
        step["row_sum"] = step["row_sum"] * 1e4
    assert problems(frames(flash).panels) == []


def test_nothing_says_where_a_tile_of_the_loop_was_kept(flash):
    assert "shared memory" not in frames(flash)._repr_html_()


def test_only_the_chosen_block_is_drawn(flash, texts):
    others = [{**step, "tile_row": 1} for step in flash]
    words = texts(frames([*others, *flash]).panels)
    assert len([word for word in words if word == "tile of keys:"]) == 3
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
    with pytest.raises(ValueError, match="axis S has size 5, but a tile"):
        frames([{**first, "scores": np.zeros((1, 1, 4, 5))}])


def test_frames_that_contradict_their_tile_sizes_are_refused(flash):
    tile = "a tile of TILE_S"
    with pytest.raises(ShapeMismatch, match=f"size 4, but {tile} = 4 .* S = 1"):
        frames(flash[:1], S=1)
    with pytest.raises(ShapeMismatch, match=f"size 4, but {tile} = 1 .* S = 1"):
        frames(flash[:1], TILE_S=1)
    with pytest.raises(ShapeMismatch, match=f"size 4, but {tile} = 4 .* S = 3"):
        frames(flash, S=7)
    with pytest.raises(ShapeMismatch, match="L has size 4, but TILE_L = 3"):
        frames(flash, TILE_L=3)
    with pytest.raises(ValueError, match="L in a tile has size 9; at most 8"):
        frames(flash, TILE_L=9)
    with pytest.raises(ValueError, match="S in a tile has size 5; at most 4"):
        frames(flash, TILE_S=5)


def test_frames_that_contradict_each_other_are_refused(flash):
    other = {**flash[1], "acc": flash[1]["acc"][..., :7]}
    with pytest.raises(ShapeMismatch, match=r"\[1\].acc: axis D has size 7"):
        frames([flash[0], other])
    with pytest.raises(ShapeMismatch, match="row_max: axis H has size 2"):
        frames([{**flash[0], "row_max": np.zeros((1, 2, 4))}])
    with pytest.raises(
        ValueError, match=r"trace\[3\] visits tile_col = 0 a se"
    ):
        frames(flash * 2)
