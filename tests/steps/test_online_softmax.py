import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from attention_lab.axes import ShapeMismatch
from attention_lab.examples import example_qkv
from attention_lab.steps import online_softmax as step


def test_three_scores_by_hand():
    # Scores 0, ln 2, ln 4; values 1, 2, 4.
    # After one key: max 0, sum 1, acc 1.
    # After two: factor e^(0 − ln 2) = 1/2: sum 1/2 + 1, acc 1/2 + 2.
    # After three: factor 1/2: sum 3/4 + 1, acc 5/4 + 4; out 5.25 / 1.75 = 3.
    row = [[0.0, math.log(2), math.log(4)]]
    scores = torch.tensor(row, dtype=torch.float64)
    value = torch.tensor([[1.0], [2.0], [4.0]], dtype=torch.float64)
    one, two, three = step.stream(scores, value)
    assert (one.row_max.item(), one.row_sum.item()) == (0.0, 1.0)
    np.testing.assert_allclose(two.row_sum.item(), 1.5)
    np.testing.assert_allclose(two.acc.item(), 2.5)
    np.testing.assert_allclose(three.row_sum.item(), 1.75)
    out, lse = step.finish(three)
    np.testing.assert_allclose(out.item(), 3.0)
    np.testing.assert_allclose(lse.item(), math.log(7), rtol=1e-15)


def test_row_sum_is_rescaled_when_the_maximum_grows():
    scores, value = torch.tensor([[0.0, 10.0]]), torch.ones(2, 1)
    first, second = step.stream(scores, value)
    kept = second.row_sum.item() - 1.0
    np.testing.assert_allclose(
        kept, first.row_sum.item() * math.exp(-10), rtol=1e-2
    )


def test_nothing_is_rescaled_when_the_maximum_stays():
    first, second = step.stream(torch.tensor([[3.0, 1.0]]), torch.ones(2, 1))
    assert first.row_max == second.row_max
    assert second.row_sum == 1 + torch.tensor(-2.0).exp()


def test_a_first_tile_without_visible_keys_is_no_nan():
    scores = torch.tensor([[-math.inf, -math.inf, 2.0, 1.0]])
    states = step.stream(scores, torch.ones(4, 1), TILE_S=2)
    assert states[0].row_sum.item() == 0.0
    assert step.finish(states[1])[0].item() == 1.0


def test_a_last_tile_without_visible_keys_changes_nothing():
    scores = torch.tensor([[2.0, 1.0, -math.inf]])
    states = step.stream(scores, torch.ones(3, 1), TILE_S=2)
    for before, after in zip(*states, strict=True):
        assert before.item() == after.item()


def states_of(scores):
    """Return one state per score, each of a single key; values are known."""
    value = torch.arange(1.0, len(scores) + 1).double()
    row = torch.tensor([scores], dtype=torch.float64)
    whole = step.start(row, 1)
    return [
        step.update(whole, row[:, s : s + 1], value[s : s + 1, None])
        for s in range(len(scores))
    ]


scores_with_gaps = st.lists(
    st.one_of(
        st.floats(-1e4, 1e4), st.just(-math.inf), st.floats(-1e-300, 1e-300)
    ),
    min_size=3,
    max_size=3,
)


@given(scores_with_gaps)
def test_merging_is_associative_and_commutative(scores):
    a, b, c = states_of(scores)
    left = step.finish(step.merge(step.merge(a, b), c))
    right = step.finish(step.merge(a, step.merge(b, c)))
    turned = step.finish(step.merge(step.merge(c, b), a))
    for other in (right, turned):
        for x, y in zip(left, other, strict=True):
            np.testing.assert_allclose(x, y, rtol=1e-12, atol=1e-12)
            assert not torch.isnan(x).any()


@given(
    st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=9), st.integers(1, 9)
)
def test_the_tile_size_does_not_matter(scores, tile):
    row = torch.tensor([scores], dtype=torch.float64)
    value = torch.arange(row.numel()).double()[:, None]
    out, lse = step.finish(step.stream(row, value, tile)[-1])
    weights = torch.softmax(row, -1)
    np.testing.assert_allclose(out, weights @ value, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(lse, torch.logsumexp(row, -1), rtol=1e-14)


@pytest.mark.parametrize("TILE_S", [1, 2, 6, 7, 8])
def test_attention_does_not_depend_on_the_tile(TILE_S):
    q, k, v = (torch.tensor(x) for x in example_qkv(dtype=np.float64))
    expected = step.attention(q, k, v)
    out = step.attention(q, k, v, TILE_S=TILE_S)
    np.testing.assert_allclose(out, expected, atol=1e-14)


def test_bad_input_is_refused():
    q, k, v = (torch.tensor(x) for x in example_qkv())
    with pytest.raises(ValueError, match="TILE_S must be a whole number"):
        step.attention(q, k, v, TILE_S=0)
    with pytest.raises(ValueError, match="TILE_S must be a whole number"):
        step.stream(torch.zeros(2, 3), torch.zeros(3, 1), TILE_S=0)
    with pytest.raises(ShapeMismatch, match=r"axis S has size 4, but .* S = 3"):
        step.stream(torch.zeros(2, 3), torch.zeros(4, 1))
