import math

import numpy as np
import pytest
import torch

from attention_lab.axes import ShapeMismatch
from attention_lab.figures import draw_running_softmax, trace_of_row
from attention_lab.figures.marks import Box, Stroke
from attention_lab.figures.running_softmax import layout_running_softmax
from attention_lab.figures.running_trace import read_frames

SCORES = np.array([0.4, -1.1, 0.9, 2.1, 0.3, -0.6, 2.8])
VALUES = np.linspace(-1, 1, 28).reshape(7, 4)


def draw(trace, output, reference, **options):
    return draw_running_softmax(
        trace, output=output, reference=reference, tolerance=1e-12,
        provenance="a test", **options,
    )  # fmt: skip


def test_the_right_softmax_passes(build):
    trace, output = build["softmax_trace"](SCORES, VALUES, 3)
    picture = draw(trace, output, build["softmax_row"](SCORES, VALUES))
    assert picture.passed
    assert "grew twice after the first tile" in picture.finding
    assert len(picture.panels) == 3


def test_a_softmax_that_never_rescales_fails(build):
    trace, output = build["softmax_trace"](SCORES, VALUES, 3, rescales=False)
    picture = draw(trace, output, build["softmax_row"](SCORES, VALUES))
    assert [verdict.passed for verdict in picture.verdicts] == [False, False]
    # By hand: α should be e^(0.9 − 2.1) = 0.30 in tile 2 and 0.50 in tile 3.
    assert picture.verdicts[1].value == "off by 0.7 (α, tile 2)"


def test_a_sum_that_forgets_its_past_fails(build):
    trace, output = build["softmax_trace"](SCORES, VALUES, 3)
    trace[1]["row_sum"] -= 0.25
    picture = draw(trace, output, output)
    assert not picture.verdicts[1].passed
    assert "(sum, tile 2)" in picture.verdicts[1].value


def test_a_maximum_that_misses_a_score_fails(build):
    trace, output = build["softmax_trace"](SCORES, VALUES, 3)
    trace[0]["row_max"] -= 0.25
    verdict = draw(trace, output, output).verdicts[1]
    assert not verdict.passed
    assert "tile 1" in verdict.value


def test_all_frames_share_one_scale(build):
    trace, _ = build["softmax_trace"](SCORES, VALUES, 3)
    panels = layout_running_softmax(read_frames(trace))
    bars = [
        [m for m in p.marks if isinstance(m, Box) and m.edge is None]
        for p in panels
    ]
    heights = [bar.height for frame in bars for bar in frame]
    ratio = np.abs(SCORES) / np.array(heights)
    np.testing.assert_allclose(ratio, ratio[0])


def test_the_old_maximum_is_dashed_only_where_it_grew(build):
    trace, _ = build["softmax_trace"](SCORES[::-1].copy(), VALUES, 3)
    panels = layout_running_softmax(read_frames(trace))
    dashed = [
        any(isinstance(m, Stroke) and m.dash for m in panel.marks)
        for panel in panels
    ]
    assert dashed == [False, False, False]


def test_the_ledger_shows_the_arithmetic(build, texts):
    trace, _ = build["softmax_trace"](SCORES, VALUES, 3)
    words = texts(layout_running_softmax(read_frames(trace)))
    assert "0.90 → 2.10" in words
    assert "e^(0.90 − 2.10) = 0.30" in words


@pytest.mark.parametrize("size", [1, 3, 4, 5, 17])
@pytest.mark.parametrize("scale", [1, 100, 1e6])
def test_any_trace_is_drawn_soundly(build, problems, size, scale):
    rng = np.random.default_rng(size)
    scores = scale * rng.normal(size=size)
    if size > 4:
        scores[4] = -math.inf
    trace, _ = build["softmax_trace"](scores, rng.normal(size=(size, 11)), 4)
    assert problems(layout_running_softmax(read_frames(trace))) == []


def test_wrong_traces_are_refused(build):
    trace, output = build["softmax_trace"](SCORES, VALUES, 3)
    with pytest.raises(ValueError, match="trace is empty"):
        draw([], output, output)
    with pytest.raises(ValueError, match=r"trace\[0\] has no 'acc'"):
        draw([{"scores": [1.0]}], output, output)
    with pytest.raises(ValueError, match=r"\[0\].row_sum must be .*, not nan"):
        draw([{**trace[0], "row_sum": math.nan}], output, output)
    with pytest.raises(ValueError, match="row_max must be one finite number"):
        draw([{**trace[0], "row_max": [1.0, 2.0]}], output, output)
    with pytest.raises(ValueError, match="axis S has size 9"):
        draw([{**trace[0], "scores": np.zeros(9)}], output, output)


@pytest.mark.parametrize(
    ("change", "quantity"),
    [
        ({"row_max": -math.inf}, "max"),
        ({"row_max": -1e4}, "sum"),
        ({"row_sum": 1e308, "rescale": -1e308}, "sum"),
    ],
)
def test_a_state_infinitely_far_from_its_scores_is_refused(
    build, change, quantity
):
    trace, output = build["softmax_trace"](SCORES, VALUES, 3)
    trace[0] = {**trace[0], "row_sum": 1e308}
    trace[1] = {**trace[1], **change}
    with pytest.raises(ValueError, match=rf"trace\[1\].* {quantity} to .* inf"):
        draw(trace, output, output)


def test_an_output_infinitely_far_from_the_reference_is_refused(build):
    trace, _ = build["softmax_trace"](SCORES, VALUES, 3)
    far = np.full(4, 1.7e308)
    with pytest.raises(ValueError, match=r"distance of output .* not .*inf"):
        draw(trace, far, -far)


def test_sizes_that_disagree_are_refused(build):
    trace, output = build["softmax_trace"](SCORES, VALUES, 3)
    with pytest.raises(ShapeMismatch, match="output: axis D has size 4"):
        draw(trace, output, output[:3])
    with pytest.raises(ShapeMismatch, match="size 3, but trace has D = 4"):
        draw(trace, output[:3], output[:3])
    trace[1]["acc"] = np.zeros(3)
    with pytest.raises(ShapeMismatch, match=r"trace\[1\].acc: axis D"):
        draw(trace, output, output)


def test_a_reference_with_nan_never_passes(build):
    trace, output = build["softmax_trace"](SCORES, VALUES, 3)
    with pytest.raises(ValueError, match="reference holds nan"):
        draw(trace, output, np.full(4, np.nan))


def test_a_trace_is_made_from_the_states_of_the_real_step(build):
    from attention_lab.steps.online_softmax import finish, stream

    scores = torch.tensor(np.stack([SCORES, SCORES[::-1]]))
    states = stream(scores, torch.tensor(VALUES), TILE_S=3)
    trace = trace_of_row(scores, states, 3, row=1)
    output, _ = finish(states[-1])
    wanted = build["softmax_row"](SCORES[::-1], VALUES)
    assert draw(trace, output[1], wanted).passed
    states[1] = states[1]._replace(row_sum=states[1].row_sum * 1.5)
    broken = trace_of_row(scores, states, 3, row=1)
    assert "(sum, tile 2)" in draw(broken, output[1], wanted).verdicts[1].value


def test_a_trace_with_too_few_states_is_refused():
    state = {"row_max": [0.0], "row_sum": [1.0], "acc": [[1.0]]}
    with pytest.raises(ShapeMismatch, match=r"tiles has size 1, .* tiles = 3"):
        trace_of_row(SCORES[None], [state], 3)
    with pytest.raises(ValueError, match="row = 1 is outside axis L"):
        trace_of_row(SCORES[None], [state] * 3, 3, row=1)


def test_states_that_contradict_the_scores_are_refused():
    state = {"row_max": [5.0], "row_sum": [1.0], "acc": [[1.0]]}
    with pytest.raises(
        ShapeMismatch, match=r"\[0\].row_max: axis L has size 1"
    ):
        trace_of_row(np.stack([SCORES] * 2), [state] * 3, 3)
    shrunk = {**state, "row_max": [-1e4]}
    with pytest.raises(ValueError, match=r"states\[1\]: α .* not inf"):
        trace_of_row(SCORES[None], [state, shrunk, shrunk], 3)
