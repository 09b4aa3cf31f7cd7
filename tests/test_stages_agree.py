"""Each stage against the one before it, on the same input."""

import numpy as np
import pytest
import torch

from attention_lab.examples import digit_patches, example_qkv
from attention_lab.steps import (
    flash_forward,
    fused_qkv,
    multi_head,
    online_softmax,
    scaled_dot_product,
)
from cases import random_mask, tensors


@pytest.mark.parametrize("mode", ["plain", "causal", "masked row"])
def test_online_and_flash_equal_scaled_dot_product(mode):
    q, k, v = tensors(*example_qkv(L=13, S=17, dtype=np.float64))
    mask = random_mask((2, 3, 13, 17)) if mode == "masked row" else None
    options = (None if mask is None else torch.tensor(mask), mode == "causal")
    first = scaled_dot_product.attention(q, k, v, *options)
    second = online_softmax.attention(q, k, v, *options)
    third = flash_forward.attention(q, k, v, *options, TILE_L=4, TILE_S=4)
    np.testing.assert_allclose(second, first, atol=1e-14)
    np.testing.assert_allclose(third, second, atol=1e-14)


def test_one_head_is_scaled_dot_product():
    torch.manual_seed(0)
    module = multi_head.MultiHeadAttention(4, 1).double()
    x = torch.tensor(digit_patches(), dtype=torch.float64)[None]
    q, k, v = (
        p(x)[:, None] for p in (module.q_proj, module.k_proj, module.v_proj)
    )
    mixed = scaled_dot_product.attention(q, k, v)[:, 0]
    expected = module.out_proj(mixed).detach()
    np.testing.assert_allclose(module(x, x, x).detach(), expected, atol=1e-15)


def test_every_stage_agrees_on_the_digit():
    torch.manual_seed(0)
    x = torch.tensor(digit_patches(), dtype=torch.float64)[None]
    separate = multi_head.MultiHeadAttention(4, 2).double()
    fused = fused_qkv.FusedQKVAttention(4, 2, "h p d").double()
    fused.load_separate(separate)
    expected = separate(x, x, x).detach()
    np.testing.assert_allclose(fused(x).detach(), expected, atol=1e-15)
    q, k, v = separate.project(x, x, x)
    flash = flash_forward.attention_cuda(q, k, v, TILE_L=5, TILE_S=3)
    out = separate.out_proj(multi_head.merge_heads(flash)).detach()
    np.testing.assert_allclose(out, expected, atol=1e-14)
