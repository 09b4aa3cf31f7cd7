"""Every figure answers bad input with a sentence that names the argument."""

import numpy as np
import pytest
import torch

from attention_lab import figures
from attention_lab.axes import ShapeMismatch

TRIP = figures.Verdict("round trip", True, "0 moved", "exact", "a test")
WEIGHTS = np.full((4, 4), 0.25)
X = np.arange(24).reshape(1, 4, 6)
IMAGE, ROWS = np.eye(2), np.eye(2).reshape(4, 1)
HEADS = X.reshape(1, 4, 2, 3).transpose(0, 2, 1, 3)


def heatmap(weights=WEIGHTS, **options):
    return figures.draw_heatmap(weights, **options)


def shapes(**options):
    return figures.draw_shapes(**{"x_LS": WEIGHTS, **options})


def attention_map(image=WEIGHTS, weights=WEIGHTS, **options):
    return figures.draw_attention_map(image, weights, **{"query": 0, **options})


def tiles(visited=((0, 0),), **options):
    return figures.draw_tiles(2, 2, 2, 2, visited, **options)


def patches(image=IMAGE, rows=ROWS, **options):
    return figures.draw_patches(image, rows, **options)


def element_order(x=X, right=HEADS, wrong=HEADS, **options):
    return figures.draw_element_order(x, right, wrong, **options)


def memory_strip(x=X, heads=HEADS, **options):
    return figures.draw_memory_strip(x, heads, **options)


def packing(rows=None, **options):
    triples = [(p, h, 0) for p in range(3) for h in range(2)]
    rows = {"p h d": triples} if rows is None else rows
    return figures.draw_packing(rows, **{"verdicts": [TRIP], **options})


RUNNING = {
    "scores": [0.0, 0.0], "row_max": 0.0, "row_sum": 2.0, "rescale": 0.0,
    "acc": [3.0],
}  # fmt: skip


def running(trace=(RUNNING,), **options):
    given = {
        "output": [1.5], "reference": [1.5], "tolerance": 1e-6,
        "provenance": "by hand",
    }  # fmt: skip
    return figures.draw_running_softmax(trace, **{**given, **options})


FLASH = {
    "tile_row": 0, "tile_col": 0, "scores": [[[[0.0, 0.0]]]],
    "row_max": [[[0.0]]], "rescale": [[[0.0]]], "row_sum": [[[2.0]]],
    "acc": [[[[3.0]]]],
}  # fmt: skip


def flash(trace=(FLASH,), **options):
    given = {
        "S": 2, "TILE_L": 1, "TILE_S": 2, "output_error": 0.0,
        "lse_error": 0.0, "tolerance": 1e-6, "provenance": "by hand",
    }  # fmt: skip
    return figures.draw_flash_frames(trace, **{**given, **options})


def row_trace(states, **options):
    return figures.trace_of_row([[1.0, 1.0]], states, 2, **options)


ALL = [
    heatmap, shapes, attention_map, tiles, patches, packing, running, flash,
    element_order, memory_strip,
]  # fmt: skip
TITLED = [heatmap, shapes, attention_map, tiles, patches, running, flash]


@pytest.mark.parametrize("draw", ALL)
def test_the_good_input_that_the_bad_one_differs_from_is_drawn(draw):
    assert isinstance(draw(), figures.Picture)


@pytest.mark.parametrize("draw", TITLED)
@pytest.mark.parametrize("title", [3, "", " ", b"title"])
def test_a_title_that_is_no_text_is_refused(draw, title):
    with pytest.raises(ValueError, match="title must be text"):
        draw(title=title)


@pytest.mark.parametrize(
    "draw", [d for d in TITLED if d not in (shapes, attention_map)]
)
def test_a_title_is_not_none_where_there_is_no_other(draw):
    with pytest.raises(ValueError, match=r"title must be text .* not None"):
        draw(title=None)


@pytest.mark.parametrize("draw", [tiles, running, flash])
@pytest.mark.parametrize("provenance", ["", " ", None, 3])
def test_a_missing_provenance_is_refused(draw, provenance):
    with pytest.raises(ValueError, match="provenance must be text"):
        draw(provenance=provenance)


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (running, "tolerance"),
        (flash, "tolerance"),
        (flash, "output_error"),
        (flash, "lse_error"),
    ],
)
@pytest.mark.parametrize(
    "value", [None, "a", -1e-9, np.nan, np.inf, [0.0, 0.0]]
)
def test_errors_and_tolerances_are_finite_and_not_negative(draw, name, value):
    wanted = f"{name} must be one finite number of at least 0, not"
    with pytest.raises(ValueError, match=wanted):
        draw(**{name: value})


@pytest.mark.parametrize(
    ("draw", "place", "name"),
    [
        (heatmap, 0, "weights_LS"),
        (attention_map, 0, "image_HW"),
        (attention_map, 1, "weights"),
        (patches, 0, "image_HW"),
        (patches, 1, "patches_LD"),
        (element_order, 0, "x_BLE"),
        (element_order, 1, "heads_right_BHLD"),
        (element_order, 2, "heads_wrong_BHLD"),
        (memory_strip, 0, "x_BLE"),
        (memory_strip, 1, "heads_BHLD"),
    ],
)
def test_every_array_is_dense_and_real(draw, place, name):
    good = {
        heatmap: (WEIGHTS,),
        attention_map: (WEIGHTS, WEIGHTS),
        patches: (IMAGE, ROWS),
        element_order: (X, HEADS, HEADS),
        memory_strip: (X, HEADS),
    }[draw]
    for bad, problem in (
        ([[0.5, 0.5], [1.0]], f"{name} is ragged: axis . has size 1 .* and 2"),
        (torch.eye(2).to_sparse(), f"{name} is a sparse tensor"),
        (torch.eye(2, device="meta"), f"{name} is a meta tensor"),
        (None, f"{name} must hold real numbers, not NoneType"),
        (np.eye(2) * 1j, f"{name} must hold real numbers, not complex128"),
        ([["a"]], f"{name} must hold real numbers, not <U1"),
    ):
        with pytest.raises(ValueError, match=problem):
            draw(*good[:place], bad, *good[place + 1 :])


@pytest.mark.parametrize("name", ["row_label", "col_label"])
def test_a_label_of_a_heatmap_is_text(name):
    with pytest.raises(ValueError, match=f"{name} must be text .* not 3"):
        heatmap(**{name: 3})


@pytest.mark.parametrize("steps", [None, 3, "ab", iter(["mix"])])
def test_steps_that_are_no_list_are_refused(steps):
    with pytest.raises(ValueError, match="steps must be a list of texts, not"):
        shapes(steps=steps)


def test_a_step_that_is_no_text_is_refused():
    with pytest.raises(ValueError, match=r"steps\[0\] must be text .* not 3"):
        shapes(steps=[3])


@pytest.mark.parametrize("heads", [1, "01", {0}])
def test_heads_that_are_no_list_are_refused(heads):
    with pytest.raises(ValueError, match="heads must be a list of heads, not"):
        attention_map(heads=heads)


@pytest.mark.parametrize("index", [None, 0.0, "0", [0]])
def test_an_index_that_is_no_whole_number_is_refused(index):
    for draw, name in (
        (attention_map, "query"),
        (element_order, "batch"),
        (memory_strip, "head"),
        (memory_strip, "batch"),
        (flash, "tile_row"),
        (flash, "head"),
        (flash, "batch"),
    ):
        with pytest.raises(ValueError, match=f"{name} must be a whole number"):
            draw(**{name: index})
    with pytest.raises(ValueError, match="heads must be a whole number"):
        attention_map(heads=[index])


@pytest.mark.parametrize(
    "visited", [None, 3, "ab", iter([(0, 0)]), {(0, 0)}, {0: 0}]
)
def test_visited_tiles_that_are_no_list_are_refused(visited):
    with pytest.raises(ValueError, match="visited must be a list of visited"):
        tiles(visited)


@pytest.mark.parametrize("tile", [(0,), (0, 0, 0), 0, "ab", None])
def test_a_visited_tile_that_is_no_pair_is_refused(tile):
    wanted = r"visited\[1\] must be a pair \(tile row, tile column\), not"
    with pytest.raises(ValueError, match=wanted):
        tiles([(0, 0), tile])


@pytest.mark.parametrize("place", [0.5, 0.0, "a", None, True, -1])
def test_a_visited_tile_is_never_cut_to_a_whole_number(place):
    with pytest.raises(
        ValueError, match=r"visited\[0\] must be a whole number"
    ):
        tiles([(place, 0)])


def test_a_mask_of_other_numbers_is_refused():
    with pytest.raises(ValueError, match=r"kept must hold True .* to 0\.5"):
        tiles(kept=[[0.5, 0.0], [0.5, 0.5]])


@pytest.mark.parametrize("draw", [running, flash])
@pytest.mark.parametrize("trace", [None, 3, "ab", RUNNING, iter([RUNNING])])
def test_a_trace_that_is_no_list_is_refused(draw, trace):
    with pytest.raises(ValueError, match="trace must be a list of steps"):
        draw(trace)


@pytest.mark.parametrize("draw", [running, flash])
@pytest.mark.parametrize("step", [None, 3, "ab"])
def test_a_step_of_a_trace_that_has_no_parts_is_refused(draw, step):
    with pytest.raises(ValueError, match=r"trace\[0\] has no '"):
        draw([step])


@pytest.mark.parametrize("name", ["tile_row", "tile_col"])
@pytest.mark.parametrize("value", [None, "a", 0.0, -1])
def test_a_step_of_a_flash_trace_names_its_tile(name, value):
    wanted = rf"trace\[0\]\.{name} must be a whole number of at least 0"
    with pytest.raises(ValueError, match=wanted):
        flash([{**FLASH, name: value}])


@pytest.mark.parametrize("states", [None, 3, "ab", {"row_max": [1.0]}])
def test_states_that_are_no_list_are_refused(states):
    with pytest.raises(ValueError, match="states must be a list of states"):
        row_trace(states)


def test_a_state_without_its_parts_is_refused():
    with pytest.raises(ValueError, match=r"states\[0\] has no 'row_max'"):
        row_trace([None])
    state = {"row_max": [1.0], "row_sum": [2.0], "acc": [[3.0]]}
    with pytest.raises(ValueError, match="row must be a whole number, not No"):
        row_trace([state], row=None)


@pytest.mark.parametrize("rows", [[(0, 0, 0)], 3, "p h d"])
def test_layouts_that_are_no_mapping_are_refused(rows):
    with pytest.raises(ValueError, match="rows_by_layout must be a mapping"):
        packing(rows)


@pytest.mark.parametrize("name", [3, None, ("p", "h", "d"), "p h"])
def test_a_layout_that_is_no_order_is_refused(name):
    with pytest.raises(ValueError, match=r"rows_by_layout: layout .* an order"):
        packing({name: [(0, 0, 0)]})


def test_rows_that_are_no_whole_numbers_are_refused():
    half = [(0, 0, 0), (1, 0, 0), (2.5, 0, 0)]
    with pytest.raises(ValueError, match=r"\['p h d'\] must hold whole numb"):
        packing({"p h d": half})
    with pytest.raises(ShapeMismatch, match=r"\['p h d'\] is ragged"):
        packing({"p h d": [(0, 0, 0), (1, 0)]})
    floats = [(0.0, 0.0, 0.0), (1.0, 0.0, 0.0), (2.0, 0.0, 0.0)]
    assert packing({"p h d": floats}).passed


@pytest.mark.parametrize("follow", [None, 3, "100", (1, 0), (1, 0, 0, 0)])
def test_a_row_to_follow_that_is_no_triple_is_refused(follow):
    with pytest.raises(
        ValueError, match=r"follow must be a triple \(p, h, d\)"
    ):
        packing(follow=follow)


def test_a_row_to_follow_is_never_cut_to_whole_numbers():
    with pytest.raises(ValueError, match="follow must be a whole number"):
        packing(follow=(1, 0.5, 0))


@pytest.mark.parametrize(
    "verdicts", [None, 3, "ok", ["ok"], [TRIP, None], TRIP]
)
def test_verdicts_of_another_kind_are_refused(verdicts):
    with pytest.raises(ValueError, match="verdicts must be a list of verdicts"):
        packing(verdicts=verdicts)
