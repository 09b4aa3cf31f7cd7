import numpy as np
import pytest
import torch

from attention_lab.error_bound import gradient_error_bound
from attention_lab.examples import example_qkv
from attention_lab.reference import attention_gradients_reference
from attention_lab.steps.flash_backward import flash_backward
from attention_lab.steps.flash_backward_slips import (
    BACKWARD_SLIPS,
    NO_BACKWARD_SLIP,
    flash_backward_with_slip,
)
from attention_lab.steps.flash_forward import flash_forward
from attention_lab.verify.known_mistakes import known_mistakes
from cases import tensors

TILES = {"TILE_L": 4, "TILE_S": 4}
#: The exhibit of the museum that makes the same mistake on a whole matrix.
EXHIBITS = {
    "row_dot_lost": "backward-ds-without-d",
    "scale_lost": "backward-scale-lost",
    "dk_transposed": "backward-dk-transposed",
    "causal_ignored": "backward-causal-ignored",
    "scores_for_weights": "backward-dv-uses-scores",
    "max_for_lse": "backward-recompute-with-wrong-lse",
}


def given(L, S, is_causal, B=1, H=1, D=3, dtype=np.float32):
    """Return the gradient of the output, the inputs, what forward left."""
    q, k, v = tensors(*example_qkv(B, H, L, S, D, dtype=dtype))
    rng = np.random.default_rng(1)
    out_grad = torch.from_numpy(rng.standard_normal(q.shape).astype(dtype))
    return out_grad, q, k, v, *flash_forward(q, k, v, is_causal=is_causal)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("L", "S"), [(12, 12), (13, 7), (5, 7), (1, 1)])
def test_without_a_slip_the_loop_is_flash_backward(L, S, is_causal):
    arrays = given(L, S, is_causal, B=2, H=3, D=5)
    ours, right = [], []
    options = {"is_causal": is_causal, "TILE_L": 4, "TILE_S": 3}
    found = flash_backward_with_slip(
        NO_BACKWARD_SLIP, *arrays, **options, trace=ours
    )
    expected = flash_backward(*arrays, **options, trace=right)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(ours, right, strict=True):
        for part, same in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, same)


@pytest.mark.parametrize("slip", BACKWARD_SLIPS)
def test_each_slip_changes_one_part_of_the_loop(slip):
    parts = zip(BACKWARD_SLIPS[slip], NO_BACKWARD_SLIP, strict=True)
    changed = [wrong is not right for wrong, right in parts]
    assert sum(changed) == 3  # its name, what it says, one part


@pytest.mark.parametrize("slip", BACKWARD_SLIPS)
def test_in_one_tile_each_slip_is_the_mistake_of_the_museum(slip):
    is_causal = slip == "causal_ignored"
    arrays = given(7, 7, is_causal, D=5, dtype=np.float64)
    found = flash_backward_with_slip(
        BACKWARD_SLIPS[slip], *arrays, is_causal, TILE_L=7, TILE_S=7
    )
    leaves = [x.clone().requires_grad_() for x in arrays[1:4]]
    exhibit = known_mistakes()[EXHIBITS[slip]].exhibit()
    exhibit(*leaves, is_causal=is_causal).backward(arrays[0])
    # The exhibits take D from their weights, the loop from the output: with
    # wrong weights these are not the same, and only dV needs no D.
    needs_d = slip in ("causal_ignored", "max_for_lse")
    for ours, leaf in list(zip(found, leaves, strict=True))[2 * needs_d :]:
        np.testing.assert_allclose(ours, leaf.grad, atol=1e-12, rtol=1e-12)


def test_every_slip_has_an_exhibit_of_its_own():
    assert set(EXHIBITS) == set(BACKWARD_SLIPS)
    assert len(set(EXHIBITS.values())) == len(EXHIBITS)


WRONG = {
    "row_dot_lost": "query key",
    "scale_lost": "query key",
    "dk_transposed": "key",
    "causal_ignored": "query key value",
    "scores_for_weights": "value",
    "max_for_lse": "query key value",
}


@pytest.mark.parametrize("slip", WRONG)
def test_a_slip_spoils_its_gradients_and_no_other(slip):
    is_causal = slip == "causal_ignored"
    arrays = given(12, 12, is_causal)
    found = flash_backward_with_slip(
        BACKWARD_SLIPS[slip], *arrays, is_causal, **TILES
    )
    plain = [x.numpy() for x in arrays[:4]]
    exact = attention_gradients_reference(*plain, is_causal=is_causal)
    bounds = gradient_error_bound(*plain, is_causal=is_causal)
    for name, ours, right, bound in zip(
        bounds._fields, found, exact, bounds, strict=True
    ):
        error = np.abs(ours.numpy() - right).max()
        if name in WRONG[slip].split():
            assert error > 1000 * bound, name
        else:
            assert error <= bound, name


def test_by_hand_a_lost_scale_is_a_factor():
    arrays = given(5, 7, False, D=4, dtype=np.float64)
    right = flash_backward(*arrays, **TILES)
    wrong = flash_backward_with_slip(
        BACKWARD_SLIPS["scale_lost"], *arrays, **TILES
    )
    for number, factor in enumerate((2, 2, 1)):  # √4 for dQ and dK
        np.testing.assert_allclose(
            wrong[number], factor * right[number], rtol=1e-12
        )


def test_a_row_that_sees_no_key_sends_nothing_back():
    # lse = −∞ is what forward leaves for such a row; exp(−∞ + ∞) is no number.
    out_grad, q, k, v, out, lse = given(5, 5, False)
    out[:, :, 2], lse[:, :, 2] = 0, -torch.inf
    arrays = (out_grad, q, k, v, out, lse)
    dq, dk, dv = flash_backward_with_slip(NO_BACKWARD_SLIP, *arrays, **TILES)
    assert (dq[:, :, 2] == 0).all()
    assert dk.isfinite().all()
    assert dv.isfinite().all()


@pytest.mark.parametrize(
    ("L", "tiles"), [(12, (4, 3)), (13, (4, 4)), (12, (6, 4))]
)
def test_the_missing_transpose_is_refused_where_a_shape_would_complain(
    L, tiles
):
    arrays = given(L, L, False)
    sizes = dict(zip(("TILE_L", "TILE_S"), tiles, strict=True))
    with pytest.raises(
        ValueError, match=rf"square tiles .*L = {L}.*TILE_L = {tiles[0]}"
    ):
        flash_backward_with_slip(
            BACKWARD_SLIPS["dk_transposed"], *arrays, **sizes
        )


@pytest.mark.parametrize("name", ["TILE_L", "TILE_S"])
def test_a_tile_of_nothing_is_refused(name):
    arrays = given(5, 7, False)
    with pytest.raises(ValueError, match=name):
        flash_backward_with_slip(
            NO_BACKWARD_SLIP, *arrays, **{**TILES, name: 0}
        )
