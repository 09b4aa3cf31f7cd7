import numpy as np
import pytest
import torch

from attention_lab.axes import ShapeMismatch
from attention_lab.error_bound import rounding
from attention_lab.examples import example_qkv
from attention_lab.steps import explain_with_care as care
from attention_lab.steps import scaled_dot_product, vision
from attention_lab.verify import check_same_as


@pytest.fixture(scope="module")
def model():
    return vision.load_checkpoint()[0]


@pytest.fixture(scope="module")
def images():
    return vision.load_split()[1].images[:7]


def weights_and_values(S=13, D=3):
    q, k, v = (torch.tensor(x) for x in example_qkv(2, 3, 5, S, D))
    return scaled_dot_product.attention_weights(q, k, v), v


@pytest.mark.parametrize(("S", "D"), [(13, 3), (7, 5), (3, 1)])
def test_other_weights_are_weights_with_the_same_output(S, D):
    weights, value = weights_and_values(S, D)
    other = care.other_weights(weights, value)
    assert (other >= 0).all()
    ones = torch.ones(2, 3, 5)
    check_same_as(other.sum(-1), ones, rounding(ones))
    expected = scaled_dot_product.mix_values(weights, value)
    mixed = scaled_dot_product.mix_values(other, value)
    check_same_as(mixed, expected, rounding(expected))


def test_other_weights_are_far_from_the_first():
    weights, value = weights_and_values()
    other = care.other_weights(weights, value)
    # As far as possible: in every row some weight has reached 0 …
    assert (other.amin(-1) <= rounding(weights)).all()
    # … and the largest has become smaller.
    first = weights.argmax(-1, keepdim=True)
    assert (other.gather(-1, first) < weights.gather(-1, first)).all()


def test_where_no_other_weights_exist_they_stay():
    weights, value = weights_and_values(S=4, D=3)
    other = care.other_weights(weights, value)
    check_same_as(other, weights, rounding(weights))
    weights, value = weights_and_values(S=1, D=3)
    check_same_as(care.other_weights(weights, value), weights)


def test_equal_values_free_all_weights():
    weights, value = weights_and_values(S=4, D=3)
    value = value[:, :, :1].expand(-1, -1, 4, -1)
    other = care.other_weights(weights, value)
    moved = (other - weights).abs().sum(-1)
    assert (moved > 0.01).all()


def test_arrays_without_heads_are_refused():
    weights, value = weights_and_values()
    with pytest.raises(ShapeMismatch, match="weights_BHLS has 2 axes"):
        care.other_weights(weights[0, 0], value)
    with pytest.raises(ShapeMismatch, match="value has 3 axes"):
        care.other_weights(weights, value[0])


@torch.no_grad()
def test_the_model_says_the_same_with_other_weights(model, images):
    expected = model(images)
    try:
        found = model.use(care.attention)(images)
    finally:
        model.use(scaled_dot_product.attention)
    check_same_as(found, expected, vision.SAME_LOGITS)


@torch.no_grad()
def test_weight_received_is_the_mean_column_of_the_weights(model, images):
    x_BLE = model.blocks[0](model.tokens(images))
    q, k, v = model.blocks[1].project(x_BLE)
    weights = scaled_dot_product.attention_weights(q, k, v).numpy()
    expected = weights.mean(axis=(1, 2))
    found = care.weight_received(model, images)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    first = care.weight_received(model, images, block=0)
    assert (first - found).abs().max() > 0.01


def test_looking_leaves_the_model_as_it_was(model, images):
    counted = vision.Counted(scaled_dot_product.attention)
    model.use(counted, block=1)
    try:
        care.weight_received(model, images)
        assert model.blocks[1].attention is counted
        assert model.blocks[0].attention is not counted
        assert counted.calls == 0
    finally:
        model.use(scaled_dot_product.attention)


@torch.no_grad()
def test_the_fall_of_a_logit_is_that_of_a_painted_image(model, images):
    falls = care.fall_of_logit(model, images)
    painted = images.clone()
    painted[:, 2:4, 4:6] = 0  # patch 6: row 1, column 2
    whole, after = model(images), model(painted)
    named = whole.argmax(1)
    for image in range(len(images)):
        expected = whole[image, named[image]] - after[image, named[image]]
        np.testing.assert_allclose(falls[image, 6], expected, atol=1e-5)
    assert falls.shape == (7, 16)
    assert (falls.abs().amax(0) > 0.1).any()


def test_ranks_are_compared_as_by_hand():
    # Ranks 0 1 2 against 0 2 1: deviations (-1, 0, 1) and (-1, 1, 0).
    one = torch.tensor([[1.0, 5.0, 9.0]])
    other = torch.tensor([[2.0, 8.0, 4.0]])
    assert care.rank_correlation(one, other).item() == pytest.approx(1 / 2)
    # A tie: ranks 0.5 0.5 2 against 0 1 2; 1.5 / √(1.5 · 2).
    tied = torch.tensor([[3.0, 3.0, 4.0]])
    expected = 1.5 / np.sqrt(1.5 * 2)
    assert care.rank_correlation(tied, one).item() == pytest.approx(expected)
    assert care.rank_correlation(one * 0, one).isnan().all()


def test_ranks_agree_with_scipy():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 9, (2, 5, 16)).astype(np.float32)
    found = care.rank_correlation(torch.tensor(one), torch.tensor(other))
    expected = [
        spearmanr(a, b).statistic for a, b in zip(one, other, strict=True)
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
