"""Mistakes that people reported in public, with the right values.

`data/public_cases.json` names each report. Every case that concerns a module
of the package is a test here; the last test lists those that do not yet.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn

from attention_lab import masks
from attention_lab.axes import ShapeMismatch
from attention_lab.gpu import to_device
from attention_lab.reference import attention_reference
from attention_lab.steps import (
    flash_forward,
    fused_qkv,
    multi_head,
    online_softmax,
    scaled_dot_product,
)
from cases import IMPLEMENTATIONS, as_input, load_cases

CASES = load_cases()
EVERYONE = IMPLEMENTATIONS | {
    "reference_cuda": lambda *args, **options: (
        attention_reference(*args, **options).out_BHLD
    )
}

# id -> the mask or the options that the case's words mean in our contract.
PLAIN = {
    "N01": lambda i: {"attn_mask": i["mask"]},
    "N03": lambda i: {"attn_mask": i["key_mask"][:, None, None]},
    "N04": lambda i: {"attn_mask": i["mask"]},
    "N10": lambda i: {"is_causal": True},
    "N11": lambda i: {"attn_mask": i["mask"][:, None]},
    "N13": lambda i: {"attn_mask": i["key_mask"][:, None, None]},
    "N14": lambda i: {"attn_mask": i["key_mask"]},
    "N16": lambda i: {"attn_mask": i["key_mask"] & masks.causal(4, 4)},
    "N30": lambda i: {"enable_gqa": True},
    "N38": lambda i: {},
    "N47": lambda i: {},
    "N49": lambda i: {},
}


def four_axes(array):
    return array.reshape((1,) * (4 - array.ndim) + array.shape)


def qkv(case):
    return [four_axes(case.inputs[name]) for name in "qkv"]


@pytest.mark.parametrize("name", EVERYONE)
@pytest.mark.parametrize("case", PLAIN)
def test_attention_gives_the_right_values(name, case):
    case = CASES[case]
    options = {
        key: as_input(name, x)[0]
        for key, x in PLAIN[case.id](case.inputs).items()
    }
    out = EVERYONE[name](*as_input(name, *qkv(case)), **options)
    out = np.asarray(out).reshape(case.expected.shape)
    np.testing.assert_allclose(out, case.expected, atol=case.atol)
    if case.wrong is not None:
        with pytest.raises(AssertionError):
            np.testing.assert_allclose(out, case.wrong, atol=case.atol)


@pytest.mark.parametrize("name", EVERYONE)
@pytest.mark.parametrize("case", ["N07", "N09"])
def test_both_causal_alignments_are_right(name, case):
    case = CASES[case]
    q, k, v = as_input(name, *qkv(case))
    L, S = q.shape[2], k.shape[2]
    for words, align in (
        ("top_left", "upper_left"),
        ("bottom_right", "lower_right"),
    ):
        keep = as_input(name, masks.causal(L, S, align=align))[0]
        out = EVERYONE[name](q, k, v, keep)
        np.testing.assert_allclose(out, case.expected[words], atol=case.atol)
    out = EVERYONE[name](q, k, v, is_causal=True)
    np.testing.assert_allclose(out, case.expected["top_left"], atol=case.atol)


@pytest.mark.parametrize("name", EVERYONE)
class TestOneRuleEach:
    def test_n06_a_finite_sentinel_on_every_key_averages_the_values(self, name):
        case = CASES["N06"]
        q, k, v = (x.astype(np.float32) for x in qkv(case))
        lowest = np.full((3, 3), np.finfo(np.float32).min, np.float32)
        out = EVERYONE[name](*as_input(name, q, k, v, lowest))
        np.testing.assert_allclose(out, case.expected, atol=case.atol)

    def test_n11_a_mask_per_batch_of_rank_three_is_refused(self, name):
        case = CASES["N11"]
        arrays = as_input(name, *qkv(case), case.inputs["mask"])
        with pytest.raises(ShapeMismatch, match="could be B = 2 or H = 2"):
            EVERYONE[name](*arrays)

    def test_n16_a_mask_and_is_causal_together_are_refused(self, name):
        case = CASES["N16"]
        arrays = as_input(name, *qkv(case), case.inputs["key_mask"])
        with pytest.raises(ValueError, match="attn_mask or is_causal"):
            EVERYONE[name](*arrays, is_causal=True)

    def test_n39_scores_of_ten_thousand_do_not_overflow(self, name):
        case = CASES["N39"]
        logits = case.inputs["logits"]
        q, k = np.ones((1, 1, 1, 1)), logits.reshape(1, 1, 3, 1)
        out = EVERYONE[name](*as_input(name, q, k, np.eye(3)[None, None]))
        np.testing.assert_allclose(out.squeeze(), case.expected, atol=1e-9)

    def test_n40_half_precision_scores_do_not_overflow(self, name):
        case = CASES["N40"]
        arrays = [x.astype(np.float16) for x in qkv(case)]
        out = EVERYONE[name](*as_input(name, *arrays))
        np.testing.assert_allclose(
            np.asarray(out)[0, 0], case.expected, atol=case.atol
        )

    def test_n42_a_mask_of_minus_infinity_leaks_nothing(self, name):
        case = CASES["N42"]
        logits = case.inputs["logits"]
        keep = np.arange(3) != case.inputs["masked_index"]
        q, k = np.ones((1, 1, 1, 1)), logits.reshape(1, 1, 3, 1)
        arrays = as_input(name, q, k, np.eye(3)[None, None], keep)
        out = EVERYONE[name](*arrays).squeeze()
        np.testing.assert_allclose(out, case.expected, atol=1e-9)
        assert out[2] == 0.0

    def test_n53_empty_sequences_give_zeros_or_nothing(self, name):
        shapes = [CASES["N53"].inputs[f"{x}_shape"] for x in "qkv"]
        q, k, v = (np.zeros([int(n) for n in shape]) for shape in shapes)
        out = EVERYONE[name](*as_input(name, q, k, v))
        np.testing.assert_array_equal(out, np.zeros((1, 1, 3, 2)))
        out = EVERYONE[name](*as_input(name, q[:, :, :0], k, v))
        assert tuple(out.shape) == (1, 1, 0, 2)

    def test_n58_permuting_keys_and_values_together_changes_nothing(self, name):
        case = CASES["N58"]
        order = case.inputs["perm"]
        q, k, v = qkv(case)
        for arrays, expected in (
            ((q, k, v), case.expected),
            ((q, k[:, :, order], v[:, :, order]), case.expected),
            ((q[:, :, order], k, v), case.expected[:, :, order]),
        ):
            out = EVERYONE[name](*as_input(name, *arrays))
            np.testing.assert_allclose(out, expected, atol=case.atol)


@pytest.mark.parametrize("case", ["N18", "N20", "N21"])
def test_self_attention_in_heads_is_scaled_by_the_heads_width(case):
    case = CASES[case]
    x = multi_head.split_heads(
        torch.tensor(case.inputs["x"]), case.inputs["heads"]
    )
    out = multi_head.merge_heads(scaled_dot_product.attention(x, x, x))
    np.testing.assert_allclose(out, case.expected, atol=case.atol)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(out, case.wrong, atol=case.atol)


def test_n22_n36_heads_are_split_channel_by_channel():
    for case in (CASES["N22"], CASES["N36"]):
        x, heads = torch.tensor(case.inputs["x"]), case.inputs["heads"]
        for split in (multi_head.split_heads, multi_head.split_heads_cuda):
            out = split(x, heads)
            np.testing.assert_allclose(out, case.expected, atol=case.atol)
            with pytest.raises(AssertionError):
                np.testing.assert_allclose(out, case.wrong, atol=case.atol)


def test_n23_n25_merging_copies_where_view_would_refuse():
    for case in (CASES["N23"], CASES["N25"]):
        y = torch.tensor(case.inputs["y"])
        for merge in (multi_head.merge_heads, multi_head.merge_heads_cuda):
            np.testing.assert_allclose(merge(y), case.expected, atol=case.atol)
        with pytest.raises(RuntimeError, match="view size is not compatible"):
            y.permute(0, 2, 1, 3).view(1, 4, 6)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(
            multi_head.merge_heads(torch.tensor(CASES["N23"].inputs["y"])),
            CASES["N23"].wrong,
        )


def mha_of(case):
    """Build the case's torch module and ours with the same weights."""
    theirs = nn.MultiheadAttention(4, 2, bias=True).double()
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.tensor(case.inputs["in_proj_weight"]))
        theirs.in_proj_bias.zero_()
        if "out_proj_weight" in case.inputs:
            weight = torch.tensor(case.inputs["out_proj_weight"])
            theirs.out_proj.weight.copy_(weight)
        theirs.out_proj.bias.zero_()
    ours = multi_head.MultiHeadAttention(4, 2).double()
    ours.load_torch(theirs)
    return ours


def test_n27_the_batch_comes_first():
    case = CASES["N27"]
    ours, x = mha_of(case), torch.tensor(case.inputs["x"])
    with torch.no_grad():
        for module in (ours, ours.to_torch()):
            out = module(x, x, x)
            out = out[0] if isinstance(out, tuple) else out
            np.testing.assert_allclose(out, case.expected, atol=case.atol)
            with pytest.raises(AssertionError):
                np.testing.assert_allclose(out, case.wrong, atol=case.atol)
            turned = module(*(x.flip(0),) * 3)
            turned = turned[0] if isinstance(turned, tuple) else turned
            np.testing.assert_allclose(turned.flip(0), out, atol=1e-15)


def test_n28_weights_are_per_head_not_their_average():
    case = CASES["N28"]
    ours, x = mha_of(case), torch.tensor(case.inputs["x"])
    q, k, v = ours.project(x, x, x)
    weights = scaled_dot_product.attention_weights(q, k, v)[0].detach()
    np.testing.assert_allclose(
        weights, case.expected["per_head_H_L_S"], atol=case.atol
    )
    np.testing.assert_allclose(
        weights.mean(0), case.expected["averaged_L_S"], atol=case.atol
    )


LAYOUT_OF = {"three h d": "p h d", "h three d": "h p d", "h d three": "h d p"}


def test_n32_the_three_fused_layouts():
    case = CASES["N32"]
    x, weight = (torch.tensor(case.inputs[name]) for name in ("x", "w_qkv"))
    for words, layout in LAYOUT_OF.items():
        for split in (fused_qkv.split_qkv, fused_qkv.split_qkv_cuda):
            q, k, v = split(x @ weight.T, case.inputs["heads"], layout)
            out = scaled_dot_product.attention(q, k, v)
            np.testing.assert_allclose(
                multi_head.merge_heads(out),
                case.expected[words],
                atol=case.atol,
            )


def test_n33_rows_are_reordered_between_layouts():
    case = CASES["N33"]
    H, D = case.inputs["heads"], case.inputs["head_dim"]
    rows = torch.arange(3 * H * D)
    for words, expected in case.expected.items():
        order = fused_qkv.convert_layout(rows, H, LAYOUT_OF[words], "p h d")
        np.testing.assert_array_equal(order, expected)


def test_n38_evaluation_drops_nothing():
    torch.manual_seed(0)
    module = multi_head.MultiHeadAttention(4, 2, dropout=0.5).double().eval()
    x = torch.randn(1, 3, 4, dtype=torch.float64)
    first, second = module(x, x, x), module(x, x, x)
    np.testing.assert_array_equal(first.detach(), second.detach())
    module.dropout.p = 0.0
    np.testing.assert_array_equal(first.detach(), module(x, x, x).detach())


@pytest.mark.parametrize("case", ["N44", "N45"])
def test_the_running_softmax_goes_through_the_right_states(case):
    case = CASES[case]
    scores = torch.tensor(case.inputs["scores"])[None]
    value = torch.tensor(case.inputs["v"])
    states = online_softmax.stream(scores, value, int(case.inputs["tile"]))
    for state, row in zip(states, case.expected["trace"], strict=True):
        expected = {key: float(row[key]) for key in ("m", "l")}
        np.testing.assert_allclose(state.row_max.item(), expected["m"])
        np.testing.assert_allclose(state.row_sum.item(), expected["l"])
        np.testing.assert_allclose(state.acc[0], row["o"], atol=case.atol)
    out, lse = online_softmax.finish(states[-1])
    np.testing.assert_allclose(out[0], case.expected["out"], atol=case.atol)
    np.testing.assert_allclose(lse, case.expected["lse"], rtol=1e-9)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(out[0], case.wrong["out"], atol=case.atol)


def test_n47_flash_tiles_of_the_cases_size():
    case = CASES["N47"]
    for run in (flash_forward.attention, flash_forward.attention_cuda):
        out = run(*(torch.tensor(x) for x in qkv(case)), TILE_L=4, TILE_S=4)
        np.testing.assert_allclose(out[0, 0], case.expected, atol=case.atol)


@pytest.mark.parametrize(
    "module", [scaled_dot_product, online_softmax, flash_forward]
)
def test_n51_gradients_by_hand(module):
    case = CASES["N51"]
    q, k, v = (torch.tensor(x, requires_grad=True) for x in qkv(case))
    out = module.attention(q, k, v)
    out.backward(torch.tensor(four_axes(case.inputs["dout"])))
    for name, x in (("dq", q), ("dk", k), ("dv", v)):
        expected = case.expected[name]
        np.testing.assert_allclose(x.grad[0, 0], expected, atol=case.atol)
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(q.grad[0, 0], case.wrong["dq_no_scale"])


@pytest.mark.parametrize(
    "module", [scaled_dot_product, online_softmax, flash_forward]
)
def test_n54_gradients_at_a_length_that_no_tile_divides(module):
    case = CASES["N54"]
    arrays = [x.astype(np.float32) for x in qkv(case)]
    q, k, v = (torch.tensor(x, requires_grad=True) for x in arrays)
    dout = torch.tensor(case.inputs["dout"].astype(np.float32))
    module.attention(q, k, v).backward(dout)
    for name, x in (("dq", q), ("dk", k), ("dv", v)):
        total = x.grad.abs().sum().item()
        expected = case.expected[f"sum_abs_{name}"]
        assert math.isclose(total, expected, rel_tol=case.atol)


def test_n57_bfloat16_is_refused_at_the_device_boundary():
    numbers = torch.tensor(CASES["N57"].inputs["bf16"]).bfloat16()
    with pytest.raises(ValueError, match="bfloat16, which kernels cannot read"):
        to_device(numbers)


def test_every_case_is_used_or_concerns_no_module_here():
    from pathlib import Path

    used = Path(__file__).read_text(encoding="utf-8").lower()
    not_ours = {"N35"}  # GPT-2's transposed Conv1D: the package loads none
    for id_ in CASES.keys() - not_ours:
        assert f'"{id_.lower()}"' in used or f"_{id_.lower()}_" in used, id_
