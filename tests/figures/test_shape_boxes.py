import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.axes import AXES, ShapeMismatch
from attention_lab.figures import draw_shapes
from attention_lab.figures.marks import Box
from attention_lab.figures.palette import AXIS_COLORS
from attention_lab.figures.shape_boxes import layout_shapes, letter_sizes


def cells(panel):
    chips = set(AXIS_COLORS.values())
    return [
        mark
        for mark in panel.marks
        if isinstance(mark, Box) and mark.fill and mark.fill not in chips
    ]


def test_the_last_two_axes_are_real_cells():
    (panel,) = layout_shapes({"scores_BHLS": np.ones((2, 3, 5, 7))})
    assert len(cells(panel)) == 5 * 7
    columns = sorted({box.x for box in cells(panel)})
    assert len(columns) == 7
    np.testing.assert_allclose(np.diff(columns), columns[1] - columns[0])


def test_every_axis_is_named_with_its_size(texts):
    words = texts(layout_shapes({"scores_BHLS": np.ones((2, 3, 5, 7))}))
    for word in ("batch 2", "head 3", "query", "5", "key 7"):
        assert word in words
    for letter in "BHLS":
        assert letter in words


def test_long_axes_have_a_gap_and_their_true_size(texts):
    (panel,) = layout_shapes({"x_LE": np.ones((40, 33))})
    words = texts([panel])
    assert "width 33" in words
    assert "40" in words
    assert {"…", "⋮"} <= set(words)
    assert len(cells(panel)) == 15 * 15


def test_strides_and_contiguity_are_those_of_the_array(texts):
    x = np.ones((2, 5, 3, 11))
    words = texts(layout_shapes({"heads_BHLD": x.transpose(0, 2, 1, 3)}))
    assert "strides (165, 11, 33, 1)" in words
    assert "not contiguous" in words
    assert "contiguous" in texts(layout_shapes({"x_BLHD": x}))


def test_steps_name_what_made_the_last_arrays(texts):
    arrays = {"q_LD": np.ones((5, 3)), "out_LD": np.ones((5, 3))}
    words = texts(layout_shapes(arrays, ["mix"]))
    assert words.index("given") < words.index("q_LD")
    assert words.index("→ mix") < words.index("out_LD")


def test_masked_scores_are_hatched_not_refused():
    picture = draw_shapes(scores_LS=[[0.0, -np.inf], [1.0, 2.0]])
    assert len(cells(picture.panels[0])) == 3


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_any_shape_is_drawn_soundly(problems, data):
    letters = data.draw(
        st.permutations(list(AXES)).map(lambda order: "".join(order))
    )[: data.draw(st.integers(1, 5))]
    shape = data.draw(
        st.tuples(*(st.sampled_from([1, 2, 3, 7, 16, 17, 64]) for _ in letters))
    )
    array = np.broadcast_to(np.float32(-1.25), shape)
    panels = layout_shapes({f"x_{letters}": array}, ["a step"])
    assert problems(panels) == []


def test_one_letter_with_two_sizes_is_refused():
    with pytest.raises(
        ShapeMismatch, match="k_SD: axis D has size 4, but q_LD has D = 3"
    ):
        draw_shapes(q_LD=np.ones((5, 3)), k_SD=np.ones((7, 4)))


def test_a_suffix_that_does_not_fit_is_refused():
    with pytest.raises(ShapeMismatch, match=r"q_LD names 2 axes .* has 3"):
        draw_shapes(q_LD=np.ones((2, 5, 3)))


@pytest.mark.parametrize("name", ["image", "x_LL", "x_Q", "L", "x_"])
def test_a_name_without_axes_is_refused(name):
    with pytest.raises(ValueError, match="axis letters"):
        letter_sizes({name: np.ones((2, 2))})


@pytest.mark.parametrize("bad", [np.array([np.nan]), np.array([])])
def test_arrays_that_cannot_be_drawn_are_refused(bad):
    with pytest.raises(ValueError, match="b_E"):
        draw_shapes(b_E=bad)


def test_nothing_to_draw_is_refused():
    with pytest.raises(ValueError, match="arrays"):
        draw_shapes()
    with pytest.raises(ValueError, match="2 lines for 1 arrays"):
        draw_shapes(x_L=np.ones(3), steps=["a", "b"])
