import gzip
import json

import numpy as np
import pytest
import torch

from attention_lab.examples import digit_patches, load_digit
from attention_lab.figures.weights import sum_tolerance
from attention_lab.steps import patch_ledger as step

L = S = 16
CHECKS = ("sum", "output", "shuffle")


@pytest.fixture(scope="module")
def ledger():
    return step.record_patch_ledger()


def runs_of(data, **wanted):
    """The runs whose own fields, or whose source's, are those wanted."""
    fields = [
        (run, {**data["sources"][run["source"]], **run}) for run in data["runs"]
    ]
    return [
        run
        for run, all_ in fields
        if all(all_[name] == value for name, value in wanted.items())
    ]


def by_hand(temperature, axis):
    """Attention of the digit's patches with each other, in float64."""
    x = digit_patches().astype(np.float64)
    exp = np.exp(x @ x.T / temperature)
    weights = exp / exp.sum(axis={"S": 1, "L": 0}[axis], keepdims=True)
    return weights, weights @ x


@pytest.mark.parametrize(
    ("temperature", "axis"), [(0.25, "S"), (1, "S"), (4, "S"), (1, "L")]
)
def test_the_patches_themselves_are_mixed_as_by_hand(ledger, temperature, axis):
    (run,) = runs_of(
        ledger, digit=0, kind="patches", temperature=temperature, axis=axis
    )
    weights, out = by_hand(temperature, axis)
    half = 0.5001  # of a unit, from rounding
    found = np.reshape(run["weights"], (L, S))
    np.testing.assert_allclose(found, 1000 * weights, rtol=0, atol=half)
    np.testing.assert_allclose(
        run["sums"], 1000 * weights.sum(axis=1), rtol=0, atol=half
    )
    found = np.reshape(run["out"], (L, 4))
    np.testing.assert_allclose(found, 100 * out, rtol=0, atol=half)


def test_every_right_run_is_within_its_bounds(ledger):
    rights = runs_of(ledger, axis="S")
    assert len(rights) == 3 * 5 + 4 + 5
    for run in rights:
        for check in CHECKS:
            assert run[f"{check}_error"] <= run[f"{check}_bound"]
    eps = sum_tolerance(np.zeros((L, S), np.float32))
    assert {run["sum_bound"] for run in rights} == {eps}


def test_the_wrong_axis_is_seen_and_is_still_equivariant(ledger):
    wrongs = runs_of(ledger, axis="L")
    assert len(wrongs) == 2 * 5
    for run in wrongs:
        assert run["sum_error"] > 1000 * run["sum_bound"]
        assert run["output_error"] > 1000 * run["output_bound"]
        assert run["shuffle_error"] <= run["shuffle_bound"]
        columns = np.reshape(run["weights"], (L, S)).sum(axis=0)
        np.testing.assert_allclose(columns, 1000, rtol=0, atol=S / 2)


def test_a_lower_temperature_makes_the_largest_weight_larger(ledger):
    for head in range(4):
        cold, warm, hot = (
            np.reshape(run["weights"], (L, S)).max(axis=1)
            for temperature in (0.25, 1, 4)
            for run in runs_of(
                ledger, digit=0, kind="trained", head=head, axis="S",
                temperature=temperature,
            )
        )  # fmt: skip
        assert (cold >= warm).all()
        assert (warm >= hot).all()
        assert cold.sum() > hot.sum()


def test_training_makes_the_heads_choosy(ledger):
    def largest(kind):
        runs = runs_of(ledger, digit=0, kind=kind, temperature=1, axis="S")
        assert len(runs) == 4
        return np.mean([np.reshape(r["weights"], (L, S)).max(1) for r in runs])

    assert largest("trained") > 3 * largest("untrained")


def test_two_empty_patches_have_the_same_key_and_get_the_same(ledger):
    for digit, index in enumerate(step.DIGITS):
        empty = np.flatnonzero((digit_patches(index) == 0).all(axis=1))
        for run in runs_of(ledger, digit=digit, kind="patches"):
            a, b = ledger["sources"][run["source"]]["same"]
            assert [a, b] == empty[:2].tolist()
            weights = np.reshape(run["weights"], (L, S))
            np.testing.assert_array_equal(weights[:, a], weights[:, b])
    for source in ledger["sources"]:
        # A position is added to each patch, so no two keys are equal.
        assert (source["same"] is None) == (source["kind"] != "patches")


def test_the_data_are_small_plain_and_say_how_they_were_made(ledger):
    text = json.dumps(ledger, separators=(",", ":"), allow_nan=False)
    assert len(gzip.compress(text.encode())) <= 20_000
    assert ledger["schema"] == "patch_ledger.v1"
    assert [digit["label"] for digit in ledger["digits"]] == [3, 8]
    pixels = np.reshape(ledger["digits"][0]["pixels"], (8, 8)) / 16
    np.testing.assert_array_equal(pixels, load_digit())


def test_the_same_seed_gives_the_same_data_and_another_does_not(ledger):
    few = {"digits": (13,), "temperatures": (1,)}
    first, again, other = (
        step.record_patch_ledger(**few, seed=seed) for seed in (0, 0, 1)
    )
    assert first == again
    changed = [
        source["kind"]
        for source, changed in zip(
            first["sources"], other["sources"], strict=True
        )
        if source != changed
    ]
    assert changed == ["untrained"] * 4


def forgets_the_last_key(weights, values):
    return weights[..., :-1] @ values[..., :-1, :]


def counts_places(q, k, v, scale):
    rows = torch.arange(q.shape[2], dtype=q.dtype)
    scores = scale * (q @ k.transpose(-2, -1)) + 0.01 * rows
    return torch.softmax(scores, dim=-1)


@pytest.mark.parametrize(
    ("name", "mistake", "check"),
    [
        ("mix_values", forgets_the_last_key, "output"),
        ("attention_weights", counts_places, "shuffle"),
    ],
)
def test_a_planted_mistake_is_off(monkeypatch, name, mistake, check):
    monkeypatch.setattr(step, name, mistake)
    data = step.record_patch_ledger(digits=(13,), temperatures=(1,))
    for run in runs_of(data, axis="S"):
        assert run[f"{check}_error"] > 10 * run[f"{check}_bound"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"digits": ()}, "digits is empty"),
        ({"temperatures": (2, 4)}, "hold 1, not 2, 4"),
        ({"temperatures": (1, 0)}, "above 0 and hold 1, not 1, 0"),
    ],
)
def test_nothing_to_run_is_refused(options, says):
    with pytest.raises(ValueError, match=says):
        step.record_patch_ledger(**options)
