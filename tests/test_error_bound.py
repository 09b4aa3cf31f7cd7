import numpy as np
import pytest
import torch

from attention_lab.error_bound import (
    error_bound,
    gradient_error_bound,
    lse_error_bound,
    rounding,
    ulp,
)
from attention_lab.examples import example_qkv
from attention_lab.reference import (
    attention_gradients_reference,
    attention_reference,
)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_ulp_is_numpys_spacing(dtype):
    for magnitude in (1.0, 1.5, 3.0, 1000.0, 1e-6):
        assert ulp(magnitude, dtype) == np.spacing(
            np.dtype(dtype).type(magnitude)
        )


def test_ulp_of_bfloat16_is_torchs_eps():
    assert ulp(1.0, "bfloat16") == torch.finfo(torch.bfloat16).eps


@pytest.mark.parametrize("factor", [1, 100])
def test_pytorchs_own_attention_is_within_the_bound(factor):
    for seed in range(10):
        q, k, v = example_qkv(L=17, S=33, seed=seed)
        q = q * np.float32(factor)
        theirs = torch.nn.functional.scaled_dot_product_attention(
            *map(torch.tensor, (q, k, v))
        )
        error = np.abs(theirs.numpy() - attention_reference(q, k, v).out_BHLD)
        assert error.max() <= error_bound(q, k, v)


def test_the_bound_is_smaller_than_a_real_mistake():
    q, k, v = example_qkv()
    right = attention_reference(q, k, v).out_BHLD
    # A scale of 1/√12 instead of 1/√11: the smallest mistake worth the name.
    wrong = attention_reference(q, k, v, scale=12**-0.5).out_BHLD
    assert np.abs(wrong - right).max() > 1000 * error_bound(q, k, v)


def test_half_precisions_allow_one_more_rounding():
    q, k, v = example_qkv()
    half = [x.astype(np.float16) for x in (q, k, v)]
    assert 1e-4 < error_bound(*half) < 1e-2
    assert error_bound(q, k, v) < 1e-5
    assert error_bound(*(x.astype(np.float64) for x in (q, k, v))) < 1e-14


def test_masks_are_part_of_the_bound():
    q, k, v = example_qkv()
    keep = np.zeros((5, 7), bool)
    assert error_bound(q, k, v, keep) < 1e-30  # every row is 0, exactly
    assert error_bound(q, k, v, is_causal=True) < 1e-5
    assert error_bound(q, k[:, :, :0], v[:, :, :0]) < 1e-30
    assert error_bound(q[:, :, :0], k, v) == 0.0


def test_the_log_sum_exp_has_a_bound_of_its_own():
    q, k, v = example_qkv()
    assert 1e-8 < lse_error_bound(q, k, v) < 1e-5
    half = [x.astype(np.float16) for x in (q, k, v)]
    assert lse_error_bound(*half) < 1e-5  # float32, not float16
    assert lse_error_bound(*(x.astype(np.float64) for x in (q, k, v))) < 1e-14
    assert lse_error_bound(q, k[:, :, :0], v[:, :, :0]) == 0.0
    keep = np.tri(5, 7, -1, dtype=bool)  # row 0 sees nothing
    assert lse_error_bound(q, k, v, keep) < 1e-5


def test_rounding_covers_another_order_of_addition_and_no_mistake():
    numbers = np.random.default_rng(0).random((1000, 60))
    sums = numbers.sum(1)
    backwards = np.zeros(1000)
    for column in numbers.T[::-1]:
        backwards += column
    assert 0 < np.abs(backwards - sums).max() <= rounding(sums)
    assert np.abs(numbers[:, :-1].sum(1) - sums).max() > 1e10 * rounding(sums)
    single = sums.astype(np.float32)
    assert rounding(single) == 2.0**29 * rounding(single.astype(np.float64))
    assert rounding(np.zeros(0)) < 1e-30


@pytest.mark.parametrize("factor", [1e-6, 1e-7])
def test_small_half_precision_outputs_are_spaced_as_subnormals_are(factor):
    for seed in range(5):
        q, k, v = (torch.tensor(x).half() for x in example_qkv(seed=seed))
        v = v * factor
        out = torch.nn.functional.scaled_dot_product_attention(q, k, v)
        exact = attention_reference(q, k, v).out_BHLD
        error = np.abs(out.double().numpy() - exact)
        assert error.max() <= error_bound(q, k, v)


def test_inputs_that_are_not_finite_have_no_bound():
    q, k, v = example_qkv()
    v[0, 0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="the inputs are not finite"):
        error_bound(q, k, v)


@pytest.mark.parametrize("factor", [1, 100])
def test_pytorchs_own_gradients_are_within_the_bound(factor):
    for seed in range(3):
        arrays = example_qkv(L=7, S=13, D=5, seed=seed)
        arrays = (arrays[0] * np.float32(factor), *arrays[1:])
        out_grad = example_qkv(L=7, D=5, seed=seed + 1)[0]
        qkv = [torch.tensor(x, requires_grad=True) for x in arrays]
        out = torch.nn.functional.scaled_dot_product_attention(*qkv)
        out.backward(torch.tensor(out_grad))
        exact = attention_gradients_reference(out_grad, *arrays)
        bounds = gradient_error_bound(out_grad, *arrays)
        for x, right, bound in zip(qkv, exact, bounds, strict=True):
            assert np.abs(x.grad.numpy() - right).max() <= bound


def test_the_bound_of_gradients_is_smaller_than_a_real_mistake():
    q, k, v = example_qkv()
    right = attention_gradients_reference(q, q, k, v)
    wrong = attention_gradients_reference(q, q, k, v, scale=12**-0.5)
    bounds = gradient_error_bound(q, q, k, v)
    for one, other, bound in zip(right, wrong, bounds, strict=True):
        assert np.abs(one - other).max() > 1000 * bound


def test_gradients_of_half_precisions_allow_one_more_rounding():
    q, k, v = example_qkv()
    half = [x.astype(np.float16) for x in (q, q, k, v)]
    brain = [torch.tensor(x).bfloat16() for x in (q, q, k, v)]
    double = [x.astype(np.float64) for x in (q, q, k, v)]
    for bound in zip(
        gradient_error_bound(*double),
        gradient_error_bound(q, q, k, v),
        gradient_error_bound(*half),
        gradient_error_bound(*brain),
        strict=True,
    ):
        assert bound[0] < 1e-13 < 1e-8 < bound[1] < 1e-5
        assert 1e-4 < bound[2] < bound[3] < 0.5


def test_masks_and_empty_axes_are_part_of_the_bound_of_gradients():
    q, k, v = example_qkv()
    nothing = gradient_error_bound(q, q, k, v, np.zeros((5, 7), bool))
    assert max(nothing) < 1e-30
    assert gradient_error_bound(q, q, k[:, :, :0], v[:, :, :0])[1:] == (0, 0)
    few = gradient_error_bound(q, q, k[:, :1], v[:, :1], enable_gqa=True)
    assert 1e-8 < max(few) < 1e-4
