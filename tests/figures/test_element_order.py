import numpy as np
import pytest

from attention_lab.axes import ShapeMismatch
from attention_lab.figures import draw_element_order, draw_memory_strip
from attention_lab.figures.element_order import expected_heads, layout_heads
from attention_lab.figures.marks import Box, Stroke
from attention_lab.figures.memory_strip import head_places
from attention_lab.figures.palette import AXIS_COLORS

B, H, L, D = 2, 3, 5, 11
E = H * D
X = np.arange(B * L * E).reshape(B, L, E)
RIGHT = X.reshape(B, L, H, D).transpose(0, 2, 1, 3)
WRONG = X.reshape(B, H, L, D)


def strikes(panel):
    return [mark for mark in panel.marks if isinstance(mark, Stroke)]


def test_the_right_split_equals_slices_of_columns():
    np.testing.assert_array_equal(expected_heads(X, H), RIGHT)


def test_wrong_cells_are_struck_out_and_counted():
    picture = draw_element_order(X, RIGHT, WRONG)
    # By hand: row r = 5h + l of view alone is token r // 3, columns r % 3;
    # it belongs where l = r // 3 and h = r % 3: (h, l) = (0, 0), (1, 2) and
    # (2, 4), so 3 of 15 rows of 11 numbers, in both batch entries.
    assert "66 of 330 numbers (20.0%)" in picture.finding
    alone, permuted = picture.panels
    assert len(strikes(alone)) == (15 - 3) * D
    assert strikes(permuted) == []
    assert [verdict.passed for verdict in picture.verdicts] == [False, True]


def test_a_wrong_array_in_the_right_place_fails_its_verdict():
    picture = draw_element_order(X, WRONG, WRONG)
    assert [verdict.passed for verdict in picture.verdicts] == [False, False]


def test_a_cell_names_its_token_above_its_channel(texts):
    x = np.arange(12).reshape(1, 2, 6)
    heads = x.reshape(1, 2, 2, 3).transpose(0, 2, 1, 3)
    words = texts([layout_heads("a", heads, heads, 0, 6)])
    # The last cell of head 1 is token 1, channel 5; then the axis names.
    last = words.index("query", words.index("query") + 1) - 1
    assert words[last - 2 : last] == ["1", "5"]


@pytest.mark.parametrize(
    ("L", "H", "D"), [(1, 1, 1), (9, 5, 12), (3, 2, 64), (8, 4, 2)]
)
def test_any_size_is_drawn_soundly(problems, L, H, D):
    x = np.arange(L * H * D).reshape(1, L, H * D)
    heads = x.reshape(1, H, L, D)
    panel = layout_heads("view", heads, expected_heads(x, H), 0, H * D)
    assert problems([panel]) == []


def test_an_input_that_is_not_position_coded_is_refused():
    with pytest.raises(ValueError, match=r"position-coded.*\[0, 0, 0\]"):
        draw_element_order(X + 1, RIGHT, WRONG)


def test_heads_from_elsewhere_are_refused():
    with pytest.raises(ValueError, match="heads_wrong_BHLD does not hold"):
        draw_element_order(X, RIGHT, np.zeros_like(WRONG))


def test_heads_of_another_size_are_refused():
    with pytest.raises(ShapeMismatch, match=r"axis L has size 3, .* L = 5"):
        draw_element_order(X, RIGHT, X.reshape(B, L, H, D))
    with pytest.raises(ShapeMismatch, match=r"H·D = 3·10, .* E = 33"):
        draw_element_order(X, RIGHT, WRONG[..., :10])
    with pytest.raises(ValueError, match="batch = 2 is outside axis B"):
        draw_element_order(X, RIGHT, WRONG, batch=2)


def test_strip_fills_the_places_of_one_head():
    picture = draw_memory_strip(X, RIGHT, head=1, batch=1)
    filled = [
        mark
        for mark in picture.panels[0].marks
        if isinstance(mark, Box)
        and mark.fill == AXIS_COLORS["H"]
        and mark.edge is not None
    ]
    assert len(filled) == L * D
    assert "5 runs of memory; no number was copied" in picture.finding
    assert picture.passed


def test_places_follow_the_strides():
    steps = (165, 11, 33, 1)
    places = head_places((B, H, L, D), steps, 1, 0)
    np.testing.assert_array_equal(X.ravel()[places], RIGHT[0, 1])


def test_a_copy_lies_in_one_run(problems):
    picture = draw_memory_strip(X, RIGHT.copy(), head=2)
    assert "1 run of memory; it is a copy" in picture.finding
    assert picture.passed
    assert problems(picture.panels) == []


def test_strip_of_view_alone_fails():
    picture = draw_memory_strip(X, WRONG, head=1)
    assert [verdict.passed for verdict in picture.verdicts] == [False, True]


def test_strip_refuses_what_it_cannot_draw():
    wide = np.zeros((1, 2, 40))
    with pytest.raises(ValueError, match="axis E has size 40"):
        draw_memory_strip(wide, wide.reshape(1, 2, 2, 20).swapaxes(1, 2))
    with pytest.raises(ValueError, match="head = 3 is outside axis H"):
        draw_memory_strip(X, RIGHT, head=3)
    with pytest.raises(ValueError, match="negative stride"):
        draw_memory_strip(X, RIGHT[..., ::-1])
