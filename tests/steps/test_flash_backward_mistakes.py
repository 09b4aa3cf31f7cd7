"""Planted mistakes in the backward pass: each fails the comparison."""

import numpy as np
import pytest
import torch

from attention_lab.steps import flash_backward as step
from attention_lab.steps.flash_autograd import flash_attention
from attention_lab.verify import verify_attention
from backward_cases import (
    TILES,
    arrays,
    assert_right,
    in_kernels,
    in_pytorch,
    plant,  # noqa: F401
)
from test_mistakes_are_caught import edited

# name -> (the factory, the right line, the wrong one, where it shows)
IN_KERNELS = {
    "scale lost in dK": (
        "make_dkv_kernel",
        "store(dk_BHSD, b, h_kv, s, dk, part, real(1.0))",
        "store(dk_BHSD, b, h_kv, s, dk, part, real(1.0) / scale)",
        "plain",
    ),
    "scale lost in dQ": (
        "make_dq_kernel",
        "store(dq_BHLD, b, h, row, dq, part, scale)",
        "store(dq_BHLD, b, h, row, dq, part, real(1.0))",
        "plain",
    ),
    "D forgotten in dQ": (
        "make_dq_kernel",
        "weight * (d_weight - row_dot)",
        "weight * d_weight",
        "plain",
    ),
    "D forgotten in dK": (
        "make_take_tile",
        "weight * (d_weight - row_dot_tile[i])",
        "weight * d_weight",
        "plain",
    ),
    "dV from weights that are not normalised": (
        "make_take_tile",
        "add_v(dv, weight, out_grad_tile, i, part)",
        "add_v(dv, weight * math.exp(lse_tile[i]), out_grad_tile, i, part)",
        "plain",
    ),
    "the group is not summed": (
        "make_dkv_kernel",
        "range(h_kv * group, (h_kv + 1) * group)",
        "range(h_kv * group, h_kv * group + 1)",
        "shared",
    ),
    "the causal diagonal is off by one": (
        "make_weigh",
        "is_causal and s > row",
        "is_causal and s >= row",
        "causal",
    ),
    "the walk begins a tile too late": (
        "make_dkv_kernel",
        "// TILE_L * TILE_L",
        "// TILE_L * TILE_L + TILE_L",
        "causal",
    ),
    "a row without keys keeps its log-sum-exp": (
        "make_read_row",
        "lse = real(math.inf)",
        "pass",
        "masked row",
    ),
    "the mask is ignored": (
        "make_weigh",
        "score = add_bias(score, bias_BHLS, b, h, row, s)",
        "pass",
        "masked row",
    ),
    "a ragged tile counts stale keys": (
        "make_dq_kernel",
        "min(TILE_S, visible - s0)",
        "TILE_S",
        "plain",
    ),
    "parts are not added up": (
        "make_sum_parts",
        "part_of_sum += other",
        "pass",
        "split",
    ),
}


def case(mode):
    given, options = arrays(5, 7, 3, 5, "plain" if mode == "split" else mode)
    split = {"SPLIT": 2} if mode == "split" else {}
    return given, options, {**TILES, **split}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", IN_KERNELS)
def test_a_wrong_kernel_misses_the_bound(name, plant):  # noqa: F811
    where, old, new, mode = IN_KERNELS[name]
    given, options, tiles = case(mode)
    assert_right(in_kernels(*given, options, **tiles), given, options)
    plant(where, old, new)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_right(in_kernels(*given, options, **tiles), given, options)


IN_PYTORCH = {
    "scale lost in dK": ("d_scores.mT @ q_tile", "d_scores.mT @ q_tile / 9"),
    "D forgotten": ("d_weights - row_dot_BHL1[:, :, rows]", "d_weights"),
    "D over the queries": (
        "(out_grad * out).sum(-1, keepdim=True)",
        "(out_grad * out).sum(-2)[..., :1, None].expand(1, 4, 5, 1)",
    ),
    "dV from scores": (
        "weights.mT @ out_grad_tile",
        "scores.mT @ out_grad_tile",
    ),
    "the last tile forgotten": (
        "range(0, call.S, TILE_S)",
        "range(0, call.S - TILE_S, TILE_S)",
    ),
}


@pytest.mark.parametrize("name", IN_PYTORCH)
def test_a_wrong_derivation_misses_the_bound(name, monkeypatch, tmp_path):
    given, options, tiles = case("plain")
    assert_right(in_pytorch(*given, options, **tiles), given, options)
    wrong = edited(step.flash_backward, *IN_PYTORCH[name], tmp_path)
    monkeypatch.setattr(step, "flash_backward", wrong)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_right(in_pytorch(*given, options, **tiles), given, options)


def test_the_verifier_sees_it_too(plant):  # noqa: F811
    plant(*IN_KERNELS["scale lost in dK"][:3])
    report = verify_attention(
        flash_attention, only={"gradients"}, isolate=False, seconds=120
    )
    assert not report.passed
    assert "the gradient of key" in str(report)


def test_a_missing_store_shows_as_nan(plant):  # noqa: F811
    given, options, tiles = case("plain")
    plant(
        "make_dq_kernel", "store(dq_BHLD, b, h, row, dq, part, scale)", "pass"
    )
    found = in_kernels(*given, options, **tiles)
    assert np.isnan(found.query_BHLD).all()
    assert torch.isfinite(torch.tensor(found.key_BHSD)).all()
