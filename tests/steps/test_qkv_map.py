"""The packing map, held against the chapter's module and PyTorch."""

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from attention_lab.axes import ShapeMismatch
from attention_lab.error_bound import rounding
from attention_lab.steps import qkv_map as step
from attention_lab.steps.fused_qkv import LAYOUTS, FusedQKVAttention
from attention_lab.steps.multi_head import merge_heads, split_heads


@pytest.fixture(scope="module")
def packing_map():
    return step.record_packing_map()


def close(one, other):
    one, other = one.detach(), other.detach()
    np.testing.assert_allclose(one, other, rtol=0, atol=rounding(other))


@pytest.mark.parametrize("heads", [1, 2, 4, 8])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_plain_layouts_are_those_of_the_chapters_module(heads, layout):
    weight, bias, x_BLE = step.map_inputs(heads, heads)
    module = FusedQKVAttention(step.E, heads, layout).double()
    module.qkv.weight.data, module.qkv.bias.data = weight, bias
    ours = step.attend_packed(weight, bias, x_BLE, heads, heads, layout)
    close(module.out(ours), module(x_BLE))


@pytest.mark.parametrize(("heads", "key_heads"), [(4, 2), (4, 1), (8, 2)])
def test_grouped_layouts_are_those_of_pytorch(heads, key_heads):
    weight, bias, x_BLE = step.map_inputs(heads, key_heads)
    shared = key_heads * step.E // heads
    q, k, v = torch.nn.functional.linear(x_BLE, weight, bias).split(
        [step.E, shared, shared], dim=-1
    )
    q, k, v = (
        split_heads(x, n)
        for x, n in zip((q, k, v), (heads, key_heads, key_heads), strict=True)
    )
    expected = merge_heads(
        scaled_dot_product_attention(q, k, v, enable_gqa=True)
    )
    sizes = (heads, key_heads)
    close(step.attend_packed(weight, bias, x_BLE, *sizes, "p h d"), expected)
    moved = [step.convert(w, *sizes, "p h d", "g p d") for w in (weight, bias)]
    close(step.attend_packed(*moved, x_BLE, *sizes, "g p d"), expected)


def test_a_group_is_its_queries_then_its_key_then_its_value():
    rows = step.packed_rows("g p d", 4, 2).tolist()
    q, k, v = range(8), range(8, 12), range(12, 16)
    assert rows == [*q[:4], *k[:2], *v[:2], *q[4:], *k[2:], *v[2:]]


def test_recorded_rows_are_in_the_order_of_their_layout(packing_map):
    for run in packing_map["runs"]:
        for layout, rows in run["layouts"].items():
            tags = [tuple(run["tags"][row]) for row in rows]
            if layout == "g p d":
                group = run["H"] // run["G"]
                keys = [
                    (h // group if p == 0 else h, p, h, d) for p, h, d in tags
                ]
            else:
                places = ["phd".index(letter) for letter in layout.split()]
                keys = [tuple(tag[i] for i in places) for tag in tags]
            assert keys == sorted(keys)
            assert len(set(tags)) == (run["H"] + 2 * run["G"]) * run["D"]


def test_a_conversion_changes_nothing_and_a_misreading_does(packing_map):
    for run in packing_map["runs"]:
        for pair in run["pairs"]:
            assert pair["round_trip"] == 0
            assert pair["error"] <= pair["bound"]
            one, other = (
                run["layouts"][pair[key]] for key in ("source", "target")
            )
            assert (pair["wrong_error"] > pair["bound"]) == (one != other)
            assert (pair["change"] > 0.1) == (one != other)


def test_a_layout_is_no_other_but_where_there_is_one_key_head(packing_map):
    alike = {
        run["name"]
        for run in packing_map["runs"]
        for pair in run["pairs"]
        if run["layouts"][pair["source"]] == run["layouts"][pair["target"]]
    }
    assert alike == {"1 head", "4 heads, 1 key head"}


def test_a_converter_that_swaps_two_rows_would_be_seen(monkeypatch):
    right = step.convert

    def swapped(weight, *args):
        moved = right(weight, *args)
        moved[[0, -1]] = moved[[-1, 0]]
        return moved

    monkeypatch.setattr(step, "convert", swapped)
    pair = step.record_packing_map(((4, 4),))["runs"][0]["pairs"][0]
    assert pair["error"] > pair["bound"]


def test_a_converter_that_loses_the_way_back_would_be_seen(monkeypatch):
    right = step.convert

    def one_way(weight, *args):
        return right(weight, *args) + (args[-1] == "p h d")

    monkeypatch.setattr(step, "convert", one_way)
    pair = step.record_packing_map(((2, 2),))["runs"][0]["pairs"][0]
    assert pair["round_trip"] > 0


def test_traffic_is_that_of_the_formula(packing_map):
    for run in packing_map["runs"]:
        traffic = run["traffic"]
        if run["G"] < run["H"]:
            assert traffic is None
            continue
        # Each of 3·L·E float32 numbers is read once and written once.
        assert traffic["bytes"] == [traffic["formula"]] * 2 == [960, 960]
        assert traffic["launches"] == [3, 1]
        assert traffic["hazards"] == 0
        sectors = traffic["sectors"]
        assert sectors["p h d"] == sectors["h p d"] < sectors["h d p"]


def test_one_head_reads_whole_sectors_in_the_first_layout(packing_map):
    # E = 8 numbers of 4 bytes are one sector: 3 per position.
    run = next(run for run in packing_map["runs"] if run["H"] == 1)
    assert run["traffic"]["sectors"]["p h d"] == 3 * step.L


@pytest.mark.parametrize(("heads", "key_heads"), [(3, 3), (3, 1), (6, 2)])
def test_another_width_is_converted_as_well(heads, key_heads):
    weight, bias, x_BLE = step.map_inputs(heads, key_heads, E=6)
    layouts = step.layouts_of(heads, key_heads)
    sizes = (heads, key_heads)
    expected = step.attend_packed(weight, bias, x_BLE, *sizes, "p h d")
    for layout in layouts:
        moved = [
            step.convert(part, *sizes, "p h d", layout)
            for part in (weight, bias)
        ]
        close(step.attend_packed(*moved, x_BLE, *sizes, layout), expected)
    data = step.record_packing_map((sizes,), E=6)
    (run,) = data["runs"]
    assert (data["E"], run["D"]) == (6, 6 // heads)
    assert tuple(run["layouts"]) == layouts
    for pair in run["pairs"]:
        assert pair["error"] <= pair["bound"]
    if heads == key_heads:  # 3·L·E float32 numbers, read once, written once
        assert run["traffic"]["bytes"] == [2 * 3 * 5 * 6 * 4] * 2


def test_settings_that_do_not_fit_are_refused():
    with pytest.raises(ValueError, match="settings is empty"):
        step.record_packing_map(())
    with pytest.raises(ShapeMismatch, match="size 8, which"):
        step.record_packing_map(((3, 3),))
    with pytest.raises(ShapeMismatch, match=r"key_heads.* 3 does not divide"):
        step.record_packing_map(((4, 3),))
    with pytest.raises(ShapeMismatch, match="size 6, which num_heads H = 4"):
        step.record_packing_map(((4, 4),), E=6)
