"""The reference's gradients are those of finite differences, and of torch."""

import numpy as np
import pytest
import torch
from numpy.testing import assert_allclose

from attention_lab import masks
from attention_lab.axes import ShapeMismatch
from attention_lab.examples import example_qkv
from attention_lab.reference import (
    attention_gradients_reference,
    attention_reference,
)
from cases import random_mask

SIZES = {"B": 2, "H": 3, "L": 5, "S": 7, "D": 11}
OPTIONS = {
    "plain": {},
    "causal": {"is_causal": True},
    "scale": {"scale": 0.7},
    "boolean mask": {"attn_mask": random_mask((2, 3, 5, 7))},
    "row that sees nothing": {
        "attn_mask": masks.causal(5, 7) & (np.arange(5) != 3)[:, None]
    },
    "added mask": {
        "attn_mask": np.random.default_rng(5).standard_normal((5, 7))
    },
}


def arrays(dtype=np.float64):
    qkv = [x.astype(dtype) for x in example_qkv(**SIZES)]
    shape = (*qkv[0].shape[:-1], qkv[2].shape[-1])
    return np.random.default_rng(2).standard_normal(shape), *qkv


@pytest.mark.parametrize("name", OPTIONS)
def test_they_agree_with_finite_differences(name):
    out_grad, *qkv = arrays()
    options = OPTIONS[name]
    found = attention_gradients_reference(out_grad, *qkv, **options)
    rng = np.random.default_rng(4)
    step = 1e-5
    for number, gradient in enumerate(found):
        direction = rng.standard_normal(gradient.shape)
        ends = []
        for sign in (1, -1):
            moved = list(qkv)
            moved[number] = qkv[number] + sign * step * direction
            out = attention_reference(*moved, **options).out_BHLD
            ends.append((out * out_grad).sum())
        slope = (ends[0] - ends[1]) / (2 * step)
        assert_allclose((gradient * direction).sum(), slope, rtol=1e-7)


def test_grouped_heads_add_their_gradients():
    out_grad, q, k, v = arrays()
    one = attention_gradients_reference(
        out_grad, q, k[:, :1], v[:, :1], enable_gqa=True
    )
    repeated = [np.repeat(x[:, :1], 3, axis=1) for x in (k, v)]
    each = attention_gradients_reference(out_grad, q, *repeated)
    assert_allclose(one.key_BHSD[:, 0], each.key_BHSD.sum(1), rtol=1e-12)
    assert_allclose(one.value_BHSD[:, 0], each.value_BHSD.sum(1), rtol=1e-12)
    assert_allclose(one.query_BHLD, each.query_BHLD, rtol=1e-12)


def test_they_agree_with_torch():
    out_grad, *qkv = arrays()
    tensors = [torch.tensor(x, requires_grad=True) for x in qkv]
    out = torch.nn.functional.scaled_dot_product_attention(*tensors)
    out.backward(torch.tensor(out_grad))
    found = attention_gradients_reference(out_grad, *qkv)
    for gradient, tensor in zip(found, tensors, strict=True):
        assert_allclose(gradient, tensor.grad, rtol=1e-11, atol=1e-13)


def test_a_row_that_sees_nothing_gives_and_gets_no_gradient():
    out_grad, *qkv = arrays()
    options = OPTIONS["row that sees nothing"]
    found = attention_gradients_reference(out_grad, *qkv, **options)
    assert (found.query_BHLD[:, :, 3] == 0).all()
    other = out_grad.copy()
    other[:, :, 3] = 1e6
    again = attention_gradients_reference(other, *qkv, **options)
    for one, two in zip(found, again, strict=True):
        assert (one == two).all()


def test_a_gradient_of_another_shape_is_refused():
    out_grad, *qkv = arrays()
    with pytest.raises(ShapeMismatch, match=r"out_grad has shape \(2, 3, 5\)"):
        attention_gradients_reference(out_grad[..., 0], *qkv)
