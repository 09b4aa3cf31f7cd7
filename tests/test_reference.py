import math

import numpy as np
import pytest
import torch

from attention_lab.examples import example_qkv
from attention_lab.reference import attention_reference
from cases import random_mask


def test_two_keys_by_hand():
    # q = [1, 0]; keys [2, 0] and [0, 3]; scale 1: scores 2 and 0.
    # weights e²/(e²+1) = 0.8808 and 0.1192; values 10 and 20:
    # 8.808 + 2.384 = 11.192; log-sum-exp = log(e² + 1) = 2.1269.
    q = np.array([[[[1.0, 0.0]]]])
    k = np.array([[[[2.0, 0.0], [0.0, 3.0]]]])
    v = np.array([[[[10.0], [20.0]]]])
    out, lse = attention_reference(q, k, v, scale=1.0)
    w = math.exp(2) / (math.exp(2) + 1)
    np.testing.assert_allclose(out.item(), 10 * w + 20 * (1 - w), rtol=1e-15)
    np.testing.assert_allclose(
        lse.item(), math.log(math.exp(2) + 1), rtol=1e-15
    )


def test_the_default_scale_is_one_over_root_of_the_querys_width():
    # D = 4: q·k = 4·1·2 = 8, times 1/2 gives the score 4 beside a score of 0.
    q, v = np.ones((1, 1, 1, 4)), np.array([[[[1.0], [0.0]]]])
    k = np.stack([np.full(4, 2.0), np.zeros(4)])[None, None]
    out = attention_reference(q, k, v).out_BHLD.item()
    np.testing.assert_allclose(out, 1 / (1 + math.exp(-4)), rtol=1e-15)


@pytest.mark.parametrize(
    ("is_causal", "mask"),
    [(False, None), (True, None), (False, "bool"), (False, "float")],
)
def test_agrees_with_pytorch_in_float64(is_causal, mask):
    q, k, v = example_qkv(D_v=13, dtype=np.float64)
    attn_mask = None
    if mask == "bool":
        attn_mask = random_mask((2, 3, 5, 7))
    elif mask == "float":
        attn_mask = np.random.default_rng(1).standard_normal((5, 7))
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, (q, k, v)),
        attn_mask=None if attn_mask is None else torch.tensor(attn_mask),
        is_causal=is_causal,
    )
    ours = attention_reference(q, k, v, attn_mask, is_causal).out_BHLD
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-14)


def test_grouped_heads_agree_with_pytorch():
    q, k, v = example_qkv(H=6, H_kv=3, dtype=np.float64)
    theirs = torch.nn.functional.scaled_dot_product_attention(
        *map(torch.tensor, (q, k, v)), enable_gqa=True
    )
    ours = attention_reference(q, k, v, enable_gqa=True).out_BHLD
    np.testing.assert_allclose(ours, theirs.numpy(), atol=1e-14)


def test_a_row_that_sees_nothing_gives_zero_and_minus_infinity():
    q, k, v = example_qkv()
    mask = random_mask((2, 3, 5, 7))
    out, lse = attention_reference(q, k, v, mask)
    assert (out[:, :, 0] == 0).all()
    assert (lse[:, :, 0] == -np.inf).all()
    assert np.isfinite(lse[:, :, 1:][mask[:, :, 1:].any(-1)]).all()


def test_log_sum_exp_is_that_of_the_scores():
    q, k, v = example_qkv(dtype=np.float64)
    scores = np.einsum("bhld,bhsd->bhls", q, k) / math.sqrt(11)
    expected = np.log(np.exp(scores).sum(-1))
    lse = attention_reference(q, k, v).lse_BHL
    np.testing.assert_allclose(lse, expected, rtol=1e-13)


def test_no_keys_give_zeros_and_no_queries_give_nothing():
    q, k, v = example_qkv(D_v=13)
    out, lse = attention_reference(q, k[:, :, :0], v[:, :, :0])
    np.testing.assert_array_equal(out, np.zeros((2, 3, 5, 13)))
    assert (lse == -np.inf).all()
    assert attention_reference(q[:, :, :0], k, v).out_BHLD.shape == (
        2,
        3,
        0,
        13,
    )


def test_half_precision_tensors_are_read_exactly():
    q, k, v = (torch.tensor(x).bfloat16() for x in example_qkv())
    out = attention_reference(q, k, v).out_BHLD
    expected = attention_reference(q.double(), k.double(), v.double()).out_BHLD
    np.testing.assert_array_equal(out, expected)
