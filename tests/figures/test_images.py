import numpy as np
import pytest

from attention_lab.axes import ShapeMismatch
from attention_lab.figures import (
    draw_attention_map,
    draw_heatmap,
    draw_patches,
)
from attention_lab.figures.heatmap import layout_heatmap
from attention_lab.figures.patches import layout_image, layout_rows
from attention_lab.figures.weights import rows_sum_to_one

IMAGE = np.arange(64).reshape(8, 8)
PATCHES = IMAGE.reshape(4, 2, 4, 2).transpose(0, 2, 1, 3).reshape(16, 4)
WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(16), size=(3, 16))


def test_the_finding_names_the_largest_weight():
    weights = np.full((16, 16), 0.04)
    weights[6, 11] = 0.4
    picture = draw_attention_map(IMAGE, weights, query=6)
    assert picture.finding == "Patch 6 looks most at patch 11 (.40)."


def test_one_panel_per_chosen_head(texts):
    picture = draw_attention_map(IMAGE, WEIGHTS, query=6, heads=[2, 0])
    words = texts(picture.panels)
    assert len(picture.panels) == 3
    assert words.index("head 2") < words.index("head 0")
    assert "head 1" not in words


def test_softmax_over_the_wrong_axis_fails():
    wrong = WEIGHTS.swapaxes(1, 2)
    assert not draw_attention_map(IMAGE, wrong, query=6).passed
    assert not draw_heatmap(wrong[0]).passed
    assert draw_heatmap(WEIGHTS[0]).passed


def test_row_sums_are_held_to_the_rounding_of_their_type():
    row = np.full((1, 16), 1 / 16, dtype=np.float32)
    assert rows_sum_to_one(row).passed
    assert rows_sum_to_one(row).tolerance == "≤ S·eps = 1.9e-06"
    assert not rows_sum_to_one(row * np.float32(1 + 4e-6)).passed


@pytest.mark.parametrize("draw", [draw_heatmap, lambda w: draw_attention_map(
    IMAGE, w, query=0)])  # fmt: skip
@pytest.mark.parametrize("bad", [-0.1, 1.1])
def test_scores_in_place_of_weights_are_refused(draw, bad):
    weights = WEIGHTS[0].copy()
    weights[3, 4] = bad
    with pytest.raises(ValueError, match="before the softmax"):
        draw(weights)


def test_maps_that_do_not_fit_are_refused():
    with pytest.raises(ShapeMismatch, match="15 square patches"):
        draw_attention_map(IMAGE, np.full((15, 15), 1 / 15), query=0)
    with pytest.raises(ShapeMismatch, match="axis L has size 4, but S = 16"):
        draw_attention_map(IMAGE, WEIGHTS[0][:4], query=0)
    with pytest.raises(ShapeMismatch, match="needed: L S or H L S"):
        draw_attention_map(IMAGE, WEIGHTS[None], query=0)
    with pytest.raises(ValueError, match="query = 16 is outside axis L"):
        draw_attention_map(IMAGE, WEIGHTS, query=16)
    with pytest.raises(ValueError, match="heads = 3 is outside axis H"):
        draw_attention_map(IMAGE, WEIGHTS, query=0, heads=[3])
    with pytest.raises(ValueError, match="heads is empty"):
        draw_attention_map(IMAGE, WEIGHTS, query=0, heads=[])


@pytest.mark.parametrize("L", [1, 2, 11, 12, 32])
@pytest.mark.parametrize("S", [1, 7, 11, 17, 32])
def test_any_heatmap_is_drawn_soundly(problems, L, S):
    panel = layout_heatmap(np.full((L, S), 1 / S), "a long row name", "key")
    assert problems([panel]) == []


def test_cells_carry_numbers_up_to_eleven(texts):
    assert texts([layout_heatmap(np.full((11, 11), 0.25))]).count(".25") == 121
    assert ".25" not in texts([layout_heatmap(np.full((12, 11), 0.25))])


def test_heatmaps_that_cannot_be_drawn_are_refused():
    with pytest.raises(ValueError, match="axis S has size 33; at most 32"):
        draw_heatmap(np.full((2, 33), 1 / 33))
    with pytest.raises(ShapeMismatch, match="L S"):
        draw_heatmap(WEIGHTS)


def test_patches_put_back_together_are_the_image():
    picture = draw_patches(IMAGE, PATCHES)
    assert picture.passed
    assert picture.finding == "8 × 8 pixels become 16 tokens of 4 numbers."


def test_a_reshape_without_a_permute_is_not_the_image():
    picture = draw_patches(IMAGE, IMAGE.reshape(16, 4))
    assert not picture.passed
    # A row of four pixels is half a row of the image: of each patch row's
    # 16 pixels, those of the first two columns' top rows stay in place.
    assert "of 64 pixels differ" in picture.verdicts[0].value


@pytest.mark.parametrize(("side", "count"), [(2, 1), (8, 4), (12, 4), (9, 3)])
def test_any_patches_are_drawn_soundly(problems, side, count):
    image = -100.0 * np.random.default_rng(1).normal(size=(side, side))
    rows = np.ones((count * count, min((side // count) ** 2, 12))) * 1234.5
    assert problems([layout_image(image, count), layout_rows(rows)]) == []


def test_patches_that_do_not_fit_are_refused():
    with pytest.raises(
        ShapeMismatch, match=r"axis D has size 3, .* = 4 pixels"
    ):
        draw_patches(IMAGE, PATCHES[:, :3])
    with pytest.raises(ShapeMismatch, match="10 square patches"):
        draw_patches(IMAGE, PATCHES[:10])
    with pytest.raises(ValueError, match="axis H has size 16"):
        draw_patches(np.zeros((16, 16)), np.zeros((16, 16)))
