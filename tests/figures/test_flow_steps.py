import copy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.figures import draw_shape_flow
from attention_lab.figures.flow_data import cells_of, check_views
from attention_lab.figures.marks import Box, Label, Stroke
from attention_lab.figures.palette import AXIS_COLORS, token_color
from attention_lab.shape_flow import WrongElements, trace_shapes

SPLIT = "b l (h d) -> b h l d"


def flow_of(function, shape=(2, 5, 12), **letters):
    x = torch.arange(float(np.prod(shape))).reshape(shape)
    return trace_shapes(function, x, letters={"x": "BLE", "H": 4, **letters})


def right(x):
    return x.view(2, 5, 4, 3).permute(0, 2, 1, 3)


def wrong(x):
    return x.view(2, 4, 5, 3)


def test_one_panel_per_input_and_step(texts):
    picture = flow_of(right).draw()
    words = texts(picture.panels)
    assert len(picture.panels) == 3
    assert "1  view(2, 5, 4, 3)" in words
    assert "2  permute(0, 2, 1, 3)" in words
    assert picture.passed


def test_letters_and_strides_are_those_of_the_tensor(texts):
    panel = flow_of(right).draw().panels[2]
    words = texts([panel])
    for word in ("batch 2", "head 4", "query 5", "channel 3"):
        assert word in words
    strides = [w for w in words if w.startswith("stride")]
    assert strides == ["stride 60", "stride 3", "stride 12", "stride 1"]


def test_edges_have_the_colours_of_their_axes():
    panel = flow_of(right).draw().panels[2]
    edges = [
        m.color for m in panel.marks if isinstance(m, Stroke) and m.width == 4
    ]
    assert edges == [AXIS_COLORS[a] for a in "DLH"]


def test_shade_and_number_are_the_token_and_the_column():
    panel = flow_of(wrong).draw().panels[1]
    cells = [
        m.fill
        for m in panel.marks
        if isinstance(m, Box) and m.width == 26 and m.fill
    ]
    numbers = [
        int(m.text)
        for m in panel.marks
        if isinstance(m, Label) and m.on in cells
    ][: len(cells)]
    head = np.arange(120).reshape(2, 4, 5, 3)[0, 0].ravel()
    assert cells == [token_color(int(n) // 12, 5) for n in head]
    assert numbers == [int(n) % 12 for n in head]


def test_the_step_that_goes_wrong_is_marked(texts):
    flow = flow_of(wrong)
    with pytest.raises(WrongElements):
        flow.verify(split=SPLIT)
    picture = flow.draw()
    assert not picture.passed
    share = flow.failures[0].share
    assert f"✗ goes wrong here: {share:.1%} misplaced" in texts(picture.panels)
    assert "Step 1 is the first that goes wrong" in picture.finding


def test_what_was_verified_is_a_verdict():
    flow = flow_of(right)
    flow.verify(split=SPLIT)
    assert "0 of 120 misplaced" in repr(flow.draw())


@pytest.mark.parametrize("what", ["strides", "codes", "offset"])
def test_the_verdict_on_strides_can_fail(what):
    data = flow_of(right).to_dict()
    assert check_views(data) == (240, 240, 2)
    planted = copy.deepcopy(data)
    value = planted["steps"][1]["outputs"][0]
    value[what] = {
        "strides": [60, 12, 3, 1],
        "codes": value["codes"][::-1],
        "offset": 1,
    }[what]
    assert not draw_shape_flow(planted).passed


def test_what_is_not_followed_is_hatched_not_made_up():
    flow = flow_of(lambda x: torch.view_as_complex(x.view(2, 5, 6, 2)))
    data = flow.to_dict()
    assert cells_of(data, data["steps"][1]["outputs"][0]).tokens is None
    assert flow.draw().panels


def test_steps_can_be_chosen_and_many_are_cut(texts):
    flow = flow_of(right)
    assert len(flow.draw([2]).panels) == 2
    with pytest.raises(ValueError, match="no step 3; there are 1 … 2"):
        flow.draw([3])

    def long(x):
        for _ in range(20):
            x = x.mT
        return x

    picture = flow_of(long).draw()
    assert len(picture.panels) == 19
    assert "2 steps are not drawn" in picture.alt


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (3, "not 'int'"),
        ({"schema": "shape_flow.v2"}, "shape_flow.v1.*not 'shape_flow.v2'"),
        ({"schema": "shape_flow.v1"}, "'title' is missing"),
        ({"schema": "shape_flow.v1", "problem": "compiled"}, "compiled"),
    ],
)
def test_other_data_are_refused(data, words):
    with pytest.raises(ValueError, match=words):
        draw_shape_flow(data)


def test_an_empty_flow_is_refused():
    with pytest.raises(ValueError, match="no step was recorded"):
        flow_of(lambda x: x).draw()


@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_any_shape_is_drawn_soundly(problems, data):
    sizes = st.sampled_from([1, 2, 3, 8, 17, 40])
    shape = tuple(data.draw(st.lists(sizes, min_size=1, max_size=5)))

    def turn(x):
        return x.permute(*range(x.ndim)[::-1]).reshape(-1).flip(0)

    x = torch.zeros(shape)
    flow = trace_shapes(turn, x, letters={"x": "BSPLD"[-len(shape) :]})
    assert problems(flow.draw().panels) == []
