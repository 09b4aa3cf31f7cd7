import numpy as np
import pytest
import torch

from attention_lab.error_bound import error_bound
from attention_lab.examples import example_qkv
from attention_lab.reference import attention_reference
from attention_lab.steps.flash_forward import flash_forward
from attention_lab.steps.flash_mistakes import (
    NO_SLIP,
    SLIPS,
    flash_with_slip,
)
from cases import tensors

TILES = {"TILE_L": 4, "TILE_S": 4}


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("L", "S"), [(16, 16), (14, 13), (5, 7), (1, 1)])
def test_without_a_slip_the_loop_is_flash_forward(L, S, is_causal):
    x = tensors(*example_qkv(B=2, H=3, L=L, S=S, D=5))
    ours, right = [], []
    out = flash_with_slip(NO_SLIP, *x, is_causal, **TILES, trace=ours)
    expected = flash_forward(*x, None, is_causal, **TILES, trace=right)
    for one, other in zip(out, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(ours, right, strict=True):
        for part, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("slip", SLIPS)
def test_each_slip_changes_one_part_of_the_loop(slip):
    parts = ("begin", "take_in", "load")
    changed = [
        part
        for part in parts
        if getattr(SLIPS[slip], part) is not getattr(NO_SLIP, part)
    ]
    assert len(changed) == 1


@pytest.mark.parametrize("slip", ["acc_not_rescaled", "sum_not_rescaled"])
def test_without_rescaling_rows_whose_maximum_stays_are_right(slip):
    # Query 0 sees its largest score first, query 1 last.
    q = torch.tensor([[[[1.0], [-1.0]]]])
    k = torch.tensor([[[[2.0], [0.0]]]])
    v = torch.tensor([[[[1.0], [5.0]]]])
    out, _ = flash_with_slip(SLIPS[slip], q, k, v, TILE_L=2, TILE_S=1)
    exact = attention_reference(q, k, v).out_BHLD
    off = abs(out.numpy() - exact)[0, 0, :, 0]
    assert off[0] < 1e-6
    assert off[1] > 0.1


def test_by_hand_the_unmasked_tail_halves_the_output():
    # One real key with score 0 and one key of zeros: weights 1/2 and 1/2.
    one = torch.ones(1, 1, 1, 1)
    slip = SLIPS["tail_unmasked"]
    out, lse = flash_with_slip(slip, 0 * one, one, one, TILE_L=1, TILE_S=2)
    assert out.item() == 0.5
    assert lse.item() == pytest.approx(np.log(2), abs=1e-7)


def test_by_hand_the_stale_tile_counts_a_key_twice():
    # Keys of score 0: values 2, 4 and then 6 and the stale 4: mean 4.
    zero = torch.zeros(1, 1, 3, 1)
    v = torch.tensor([[[[2.0], [4.0], [6.0]]]])
    slip = SLIPS["stale_tile"]
    trace = []
    out, _ = flash_with_slip(
        slip, zero[:, :, :1], zero, v, TILE_L=1, TILE_S=2, trace=trace
    )
    assert out.item() == 4.0
    assert trace[-1].row_sum.item() == 4.0
    v[0, 0, 1] = 10.0
    out, _ = flash_with_slip(slip, zero[:, :, :1], zero, v, TILE_L=1, TILE_S=2)
    assert out.item() == (2 + 10 + 6 + 10) / 4


def test_a_maximum_of_zero_is_harmless_until_every_weight_underflows():
    q, k, v = example_qkv(B=1, H=1, L=5, S=7, D=3)
    slip = SLIPS["max_starts_at_zero"]
    out, _ = flash_with_slip(slip, *tensors(q, k, v), **TILES)
    exact = attention_reference(q, k, v).out_BHLD
    bound = error_bound(q, k, v)
    np.testing.assert_allclose(out, exact, atol=bound, rtol=0)
    q[..., 0], k[..., 0] = 20, -20
    out, lse = flash_with_slip(slip, *tensors(q, k, v), **TILES)
    assert (out == 0).all()
    assert (lse == -np.inf).all()


@pytest.mark.parametrize("name", ["TILE_L", "TILE_S"])
def test_a_tile_of_nothing_is_refused(name):
    x = tensors(*example_qkv(L=5, S=7))
    with pytest.raises(ValueError, match=name):
        flash_with_slip(NO_SLIP, *x, **{**TILES, name: 0})
