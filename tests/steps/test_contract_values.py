"""Every implementation of attention against the float64 reference."""

import numpy as np
import pytest
import torch

from attention_lab.error_bound import error_bound
from attention_lab.examples import example_qkv
from attention_lab.reference import attention_reference
from cases import (
    IMPLEMENTATIONS,
    IN_PYTORCH,
    LARGE_SIZE,
    SIZES,
    as_input,
    random_mask,
)


def assert_right(name, q, k, v, **options):
    """Compare one implementation with the reference, within the bound."""
    options = {key: as_input(name, x)[0] for key, x in options.items()}
    q, k, v = as_input(name, q, k, v)
    out = IMPLEMENTATIONS[name](q, k, v, **options)
    assert type(out) is type(q)
    assert out.dtype == q.dtype
    exact = attention_reference(q, k, v, **options).out_BHLD
    bound = error_bound(q, k, v, **options)
    got = out.double().numpy() if isinstance(out, torch.Tensor) else out
    np.testing.assert_allclose(got, exact, atol=bound, rtol=0)


def options_of(mode, size):
    B, H, L, S, _ = size
    return {
        "plain": {},
        "causal": {"is_causal": True},
        "masked row": {"attn_mask": random_mask((B, H, L, S))},
    }[mode]


@pytest.mark.parametrize("mode", ["plain", "causal", "masked row"])
@pytest.mark.parametrize("size", [*SIZES, LARGE_SIZE], ids=str)
@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_within_the_error_bound(name, size, mode):
    B, H, L, S, D = size
    q, k, v = example_qkv(B, H, L, S, D)
    assert_right(name, q, k, v, **options_of(mode, size))


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
class TestEveryRuleOfTheContract:
    def test_scores_of_any_size_stay_finite(self, name):
        q, k, v = example_qkv(H=2)
        assert_right(name, q * np.float32(100), k, v)
        assert_right(name, q * np.float32(1e4), k, v, is_causal=True)

    def test_a_product_that_overflows_before_it_is_scaled_is_no_nan(self, name):
        # q·k is 4.5e38, beyond float32; the score q·k/√2 = 3.2e38 is not.
        q = np.full((1, 1, 1, 2), 1.5e19, np.float32)
        v = np.arange(4, dtype=np.float32).reshape(1, 1, 2, 2)
        assert_right(name, q, np.repeat(q, 2, axis=2), v)

    def test_any_width_fits_the_default_tiles(self, name):
        assert_right(name, *example_qkv(B=1, H=1, L=2, S=3, D=389))

    def test_values_may_have_another_width(self, name):
        assert_right(name, *example_qkv(H=2, D=3, D_v=5))
        assert_right(name, *example_qkv(H=2, D=5, D_v=1))

    def test_a_given_scale_replaces_the_default(self, name):
        assert_right(name, *example_qkv(H=2), scale=0.37)
        assert_right(name, *example_qkv(H=2), scale=-1.5)

    @pytest.mark.parametrize("shape", [(7,), (5, 7), (5, 1), (2, 1, 1, 7)])
    def test_masks_broadcast(self, name, shape):
        rng = np.random.default_rng(3)
        q, k, v = example_qkv(H=2)
        assert_right(name, q, k, v, attn_mask=rng.random(shape) > 0.4)
        soft = rng.standard_normal(shape).astype(np.float32)
        assert_right(name, q, k, v, attn_mask=soft)

    def test_minus_infinity_in_an_additive_mask_forbids(self, name):
        q, k, v = example_qkv(H=2)
        bias = np.where(random_mask((2, 1, 5, 7)), 0, -np.inf)
        assert_right(name, q, k, v, attn_mask=bias.astype(np.float32))

    @pytest.mark.parametrize("is_causal", [False, True])
    def test_query_heads_share_key_heads_in_order(self, name, is_causal):
        q, k, v = example_qkv(H=6, H_kv=2, L=5, S=3, D=7)
        assert_right(name, q, k, v, enable_gqa=True, is_causal=is_causal)

    @pytest.mark.parametrize(("L", "S"), [(7, 2), (2, 7)])
    def test_causal_is_aligned_at_the_upper_left(self, name, L, S):
        assert_right(name, *example_qkv(H=2, L=L, S=S), is_causal=True)

    def test_no_keys_give_zeros(self, name):
        q, k, v = example_qkv(S=0, D_v=13)
        q, k, v = as_input(name, q, k, v)
        out = IMPLEMENTATIONS[name](q, k, v)
        np.testing.assert_array_equal(out, np.zeros((2, 3, 5, 13)))

    @pytest.mark.parametrize("empty", [{"L": 0}, {"B": 0}, {"D_v": 0}])
    def test_an_empty_axis_gives_an_empty_result(self, name, empty):
        q, k, v = as_input(name, *example_qkv(**empty))
        out = IMPLEMENTATIONS[name](q, k, v)
        assert tuple(out.shape) == (*q.shape[:3], v.shape[3])

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
    def test_half_precisions_accumulate_in_float32(self, name, dtype):
        q, k, v = (torch.tensor(x).to(dtype) for x in example_qkv(H=2))
        out = IMPLEMENTATIONS[name](q * 30, k * 30, v)
        assert out.dtype == dtype
        exact = attention_reference(q * 30, k * 30, v).out_BHLD
        bound = error_bound(q * 30, k * 30, v)
        np.testing.assert_allclose(out.double(), exact, atol=bound, rtol=0)

    def test_float64_is_computed_in_float64(self, name):
        assert_right(name, *example_qkv(H=2, dtype=np.float64))

    def test_arrays_need_not_be_contiguous(self, name):
        q, k, v = (
            x.swapaxes(1, 2).copy().swapaxes(1, 2) for x in example_qkv()
        )
        assert not q.flags.c_contiguous
        assert_right(name, q, k, v)

    def test_inputs_are_not_changed(self, name):
        q, k, v = example_qkv(H=2)
        kept = [x.copy() for x in (q, k, v)]
        IMPLEMENTATIONS[name](*as_input(name, q, k, v), is_causal=True)
        for now, before in zip((q, k, v), kept, strict=True):
            np.testing.assert_array_equal(now, before)

    def test_changing_the_future_changes_no_bit_of_the_past(self, name):
        q, k, v = example_qkv(L=7, S=7, H=2)
        before = IMPLEMENTATIONS[name](*as_input(name, q, k, v), None, True)
        k[:, :, 4:] += 1
        v[:, :, 4:] -= 1
        after = IMPLEMENTATIONS[name](*as_input(name, q, k, v), None, True)
        np.testing.assert_array_equal(before[:, :, :4], after[:, :, :4])
        assert (
            np.asarray(before)[:, :, 4:] != np.asarray(after)[:, :, 4:]
        ).any()

    def test_nan_is_not_swallowed(self, name):
        q, k, v = example_qkv(H=2)
        k[0, 0, 2] = np.nan
        out = IMPLEMENTATIONS[name](*as_input(name, q, k, v))
        assert np.isnan(np.asarray(out)[0, 0]).all()
        assert np.isfinite(np.asarray(out)[1]).all()


@pytest.mark.parametrize("name", IN_PYTORCH)
class TestGradients:
    def test_a_row_that_sees_nothing_has_a_gradient_of_zero(self, name):
        q, k, v = (
            torch.tensor(x, requires_grad=True) for x in example_qkv(H=2)
        )
        mask = torch.tensor(random_mask((2, 2, 5, 7)))
        IMPLEMENTATIONS[name](q, k, v, mask).sum().backward()
        assert (q.grad[:, :, 0] == 0).all()
        for x in (q, k, v):
            assert torch.isfinite(x.grad).all()

    @pytest.mark.parametrize("empty", [{"S": 0}, {"L": 0}])
    def test_empty_axes_have_gradients_of_zero(self, name, empty):
        q, k, v = (
            torch.tensor(x, requires_grad=True) for x in example_qkv(**empty)
        )
        IMPLEMENTATIONS[name](q, k, v).sum().backward()
        for x in (q, k, v):
            np.testing.assert_array_equal(x.grad, np.zeros(x.shape))

    def test_gradients_agree_with_pytorch(self, name):
        arrays = example_qkv(dtype=np.float64, D_v=13)
        grads = []
        for f in (
            IMPLEMENTATIONS[name],
            torch.nn.functional.scaled_dot_product_attention,
        ):
            q, k, v = (torch.tensor(x, requires_grad=True) for x in arrays)
            out = f(q, k, v, is_causal=True)
            (
                out * torch.arange(out.numel()).reshape(out.shape)
            ).sum().backward()
            grads.append([q.grad, k.grad, v.grad])
        for ours, theirs in zip(*grads, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-11)
