import json
import math

import numpy as np
import pytest

from attention_lab import examples, masks
from attention_lab.axes import ShapeMismatch
from attention_lab.reference import attention_gradients_reference
from attention_lab.steps import saturation
from attention_lab.steps.saturation import record_saturation, standard_error


@pytest.fixture(scope="module")
def recording():
    return record_saturation((1, 16, 256))


def mask_of(recording, name, flipped=False, empty=False):
    return next(
        mask
        for mask in recording["masks"]
        if (mask["name"], mask["flipped"], mask["empty"])
        == (name, flipped, empty)
    )


def test_scores_weights_and_entropy_are_those_of_numpy(recording):
    q, k, _ = examples.example_qkv(1, 1, 64, 64, 16, 16)
    for run, factor in zip(
        [row[1] for row in recording["runs"]], (0.25, 1.0), strict=True
    ):
        scores = (q.astype(float) @ k.swapaxes(2, 3).astype(float))[0, 0]
        scores *= factor
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights /= weights.sum(1, keepdims=True)
        entropy = -(weights * np.log(weights)).sum(1).mean()
        np.testing.assert_allclose(run["std"], scores.std(ddof=1), atol=1e-4)
        np.testing.assert_allclose(run["entropy"], entropy, atol=1e-4)
        largest = np.sort(weights[0])[::-1][:16]
        np.testing.assert_allclose(run["weights"], largest, atol=1e-4)


def test_every_score_is_in_the_histogram_also_those_beyond_its_end(recording):
    for row in recording["runs"]:
        for run in row:
            assert sum(run["counts"]) == 64 * 64
    raw = recording["runs"][1][2]
    assert raw["counts"][0] + raw["counts"][-1] > 0


def test_the_spread_is_one_within_four_standard_errors(recording):
    for row in recording["runs"]:
        for run in row:
            assert abs(run["ratio"] - 1) <= run["tolerance"]
    wide = recording["runs"][1][2]
    # The mistake √E for √D, with two heads, is far outside.
    assert abs(wide["ratio"] / math.sqrt(2) - 1) > wide["tolerance"]


def test_the_standard_error_is_that_of_many_draws():
    rng = np.random.default_rng(0)
    q, k = (rng.normal(size=(400, 64, 4)) for _ in "qk")
    ratios = (q @ k.swapaxes(1, 2)).std(axis=(1, 2)) / 2
    measured = ratios.std()
    # 400 draws know their spread to about 1 / √800 = 3.5 %; three of these,
    # and 5 % for the terms of higher order that the formula leaves out.
    np.testing.assert_allclose(measured, standard_error(4), rtol=0.16)


def test_scaling_keeps_entropy_and_gradient_raw_scores_lose_them(recording):
    scaled, raw = recording["runs"]
    assert scaled[2]["entropy"] > 3.4
    assert raw[2]["entropy"] < 0.5
    assert raw[2]["gradient"] < scaled[2]["gradient"] / 2


@pytest.mark.parametrize("flipped", [False, True])
@pytest.mark.parametrize("empty", [False, True])
def test_gradients_of_the_values_are_those_of_the_reference(
    recording, flipped, empty
):
    arrays = examples.example_qkv(1, 1, 5, 7, 11)
    grad_out = np.zeros((1, 1, 5, 11), np.float32)
    grad_out[0, 0, 0] = 1
    for name, make in saturation.MASKS.items():
        keep = make().copy()
        if empty:
            keep[2] = False
        keep = keep != flipped
        exact = attention_gradients_reference(grad_out, *arrays, keep)
        grads = np.linalg.norm(exact.value_BHSD[0, 0], axis=-1)
        mask = mask_of(recording, name, flipped, empty)
        assert mask["keep"] == keep.astype(int).flatten().tolist()
        np.testing.assert_allclose(mask["ours"]["grads"], grads, atol=1e-4)


def test_one_empty_row_makes_every_plain_gradient_nan(recording):
    harmless = mask_of(recording, "causal, upper left")
    assert None not in harmless["plain"]["grads"]
    mask = mask_of(recording, "causal, upper left", empty=True)
    assert mask["plain"]["grads"] == [None] * 7
    weights = mask["plain"]["weights"]
    assert [x for x in range(35) if weights[x] is None] == list(range(14, 21))
    assert None not in mask["ours"]["weights"] + mask["ours"]["grads"]


def test_the_wrong_polarity_can_empty_a_row_by_itself(recording):
    mask = mask_of(recording, "causal, lower right", flipped=True)
    assert mask["plain"]["grads"] == [None] * 7


def test_outputs_equal_the_reference_and_pytorch(recording):
    for mask in recording["masks"]:
        assert mask["output_error"] <= mask["output_bound"]
        assert mask["sdpa_error"] <= mask["output_bound"]
        assert mask["grad_error"] <= mask["grad_bound"]


def test_a_mask_of_ones_own_is_run_as_the_chapters_are(recording):
    kinds = {
        "mine": masks.causal(5, 7),
        "padding": masks.padding([4], 7),  # axes B 1 1 S
        "one key": np.arange(7) == 3,
    }
    mine = record_saturation((1, 4), kinds)
    assert len(mine["masks"]) == 12
    for name, known in (
        ("mine", "causal, upper left"),
        ("padding", "padding, 4 keys are real"),
    ):
        for flipped in (False, True):
            one = mask_of(mine, name, flipped)
            other = mask_of(recording, known, flipped)
            assert {**one, "name": ""} == {**other, "name": ""}
    one_key = mask_of(mine, "one key")
    assert one_key["ours"]["weights"] == [0, 0, 0, 1, 0, 0, 0] * 5


@pytest.mark.parametrize(
    ("kinds", "error", "says"),
    [
        ({}, ValueError, "kinds is empty"),
        ({"a": np.ones((5, 7))}, ValueError, r"kinds\['a'\] must be a boolean"),
        (
            {"a": np.ones((5, 6), bool)},
            ShapeMismatch,
            r"'a'\] has shape \(5, 6\), .* axis S of size 7",
        ),
        ({"a": np.ones((2, 1, 5, 7), bool)}, ShapeMismatch, "axis L of size 5"),
    ],
)
def test_bad_masks_are_refused(kinds, error, says):
    with pytest.raises(error, match=says):
        record_saturation((1,), kinds)


def test_data_are_plain_json(recording):
    json.dumps(recording, allow_nan=False)


@pytest.mark.parametrize(
    ("widths", "says"), [((), "widths is empty"), ((4, 0), "at least 1, not 0")]
)
def test_bad_widths_are_refused(widths, says):
    with pytest.raises(ValueError, match=says):
        record_saturation(widths)
