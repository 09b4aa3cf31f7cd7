import math

import numpy as np
import pytest
import torch

from attention_lab.examples import example_qkv
from attention_lab.steps import scaled_dot_product as step


def test_weights_of_three_keys_by_hand():
    # Scores 0, ln 2 and ln 5: exponentials 1, 2 and 5, which sum to 8.
    q = torch.ones(1, 1, 1, 1)
    k = torch.tensor([0.0, math.log(2), math.log(5)]).reshape(1, 1, 3, 1)
    weights = step.attention_weights(q, k, k)
    expected = torch.tensor([[[[1 / 8, 2 / 8, 5 / 8]]]])
    torch.testing.assert_close(weights, expected)


def test_every_row_of_weights_sums_to_one():
    q, k, v = (torch.tensor(x) for x in example_qkv())
    weights = step.attention_weights(q, k, v, is_causal=True)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 5))


def test_softmax_by_hand_and_without_keys():
    row = step.softmax(torch.tensor([0.0, math.log(3)]))
    torch.testing.assert_close(row, torch.tensor([0.25, 0.75]))
    nothing = step.softmax(torch.full((2,), -math.inf))
    assert nothing.tolist() == [0.0, 0.0]
    assert step.softmax(torch.zeros(3, 0)).shape == (3, 0)


def test_softmax_of_huge_scores_is_exact():
    row = step.softmax(torch.tensor([1e30, 1e30, -1e30]))
    assert row.tolist() == [0.5, 0.5, 0.0]


def test_heads_are_shared_by_neighbours():
    x = torch.arange(2.0).reshape(1, 2, 1, 1)
    assert step.share_heads(x, 3).flatten().tolist() == [0, 0, 0, 1, 1, 1]


def test_a_tile_of_scores_is_masked_where_it_lies():
    whole = step.masked(torch.zeros(1, 1, 5, 7), None, is_causal=True)
    tile = step.masked(torch.zeros(1, 1, 2, 3), None, True, 3, 2)
    torch.testing.assert_close(tile, whole[..., 3:5, 2:5])


def test_a_kernel_tracks_no_gradient():
    q, k, v = (torch.tensor(x, requires_grad=True) for x in example_qkv(H=1))
    assert not step.attention_cuda(q, k, v).requires_grad


def test_more_heads_than_the_grid_allows_are_refused():
    q, k, v = (np.zeros((70_000, 1, 1, 1), np.float32) for _ in range(3))
    with pytest.raises(ValueError, match=r"B·H needs 70000 .* 65535"):
        step.attention_cuda(q, k, v)
