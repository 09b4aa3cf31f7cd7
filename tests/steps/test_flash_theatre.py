import json
import math

import numpy as np
import pytest
import torch

from attention_lab.gpu.traffic import flash_forward_traffic
from attention_lab.reference import attention_reference
from attention_lab.steps import flash_theatre
from attention_lab.steps.flash_forward import flash_forward
from attention_lab.steps.flash_mistakes import SLIPS, flash_with_slip
from attention_lab.steps.flash_theatre import (
    SETTINGS,
    Setting,
    record_theatre,
    theatre_inputs,
)

NAMES = [setting.name for setting in SETTINGS]
WRONG = [(s, slip) for s in SETTINGS for slip in s.slips]


@pytest.fixture(scope="module")
def recording():
    return record_theatre()


def find(recording, setting, slip=None):
    return next(
        run
        for run in recording["runs"]
        if (run["name"], run["slip"]) == (setting.name, slip)
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=NAMES)
def test_right_runs_end_at_the_reference(recording, setting):
    run = find(recording, setting)
    q, k, v = theatre_inputs(setting)
    exact = attention_reference(q, k, v, is_causal=setting.is_causal)
    half_a_unit = 0.5 * 10.0**-flash_theatre.DECIMALS
    for name, truth, error, bound in (
        ("out", exact.out_BHLD, run["output_error"], run["output_bound"]),
        ("lse", exact.lse_BHL, run["lse_error"], run["lse_bound"]),
    ):
        assert error <= bound
        off = np.abs(np.array(run[name]) - truth.ravel()).max()
        assert off <= error + 1.01 * half_a_unit


@pytest.mark.parametrize("setting", SETTINGS, ids=NAMES)
def test_traffic_equals_the_formulas(recording, setting):
    traffic = find(recording, setting)["traffic"]
    assert traffic["total"] == traffic["formula"]
    assert traffic["naive"] == traffic["naive_formula"]
    assert traffic["hazards"] == 0
    assert traffic["so_far"] == sorted(set(traffic["so_far"]))
    assert traffic["so_far"][-1] < traffic["total"]


def test_traffic_so_far_is_what_each_tile_brings(recording):
    # 14 queries, 13 keys, tiles of 4 × 4, 8 channels, no mask: a block reads
    # 4·8 queries, then 2·4·8 numbers per tile, 2·1·8 for the last; the block
    # before has stored 4·8 outputs and 4 log-sum-exps.
    setting = next(s for s in SETTINGS if s.L == 14 and not s.is_causal)
    traffic = find(recording, setting)["traffic"]
    steps = np.diff([0, *traffic["so_far"], traffic["total"]])
    assert steps[:4].tolist() == [32 + 64, 64, 64, 16]
    assert steps[4:8].tolist() == [36 + 32 + 64, 64, 64, 16]
    assert steps[12] == 36 + 16 + 64
    assert steps[-1] == 2 * 9


@pytest.mark.parametrize(
    ("setting", "slip"), WRONG, ids=[slip for _, slip in WRONG]
)
def test_the_error_shown_is_that_of_a_real_run(recording, setting, slip):
    run = find(recording, setting, slip)
    arrays = theatre_inputs(setting)
    tiles = {"TILE_L": setting.TILE_L, "TILE_S": setting.TILE_S}
    x = [torch.from_numpy(a) for a in arrays]
    out, lse = flash_with_slip(SLIPS[slip], *x, setting.is_causal, **tiles)
    exact = attention_reference(*arrays, is_causal=setting.is_causal)
    error = np.abs(out.numpy() - exact.out_BHLD).max()
    assert run["output_error"] == error
    assert error > 1000 * run["output_bound"]
    lse_error = np.abs(lse.numpy() - exact.lse_BHL).max()
    expected = lse_error if math.isfinite(lse_error) else None
    assert run["lse_error"] == expected


def test_there_are_five_wrong_loops():
    assert sorted(slip for _, slip in WRONG) == sorted(SLIPS)


def test_states_are_those_of_the_loop(recording):
    run = find(recording, SETTINGS[0])
    trace = []
    x = [torch.from_numpy(a) for a in theatre_inputs(SETTINGS[0])]
    flash_forward(*x, TILE_L=4, TILE_S=4, trace=trace)
    assert run["tiles"] == [[t.tile_row, t.tile_col] for t in trace]
    for part in ("scores", "row_max", "rescale", "row_sum", "acc"):
        for listed, step in zip(run[part], trace, strict=True):
            found = getattr(step, part).numpy().ravel()
            np.testing.assert_allclose(listed, found, atol=5.1e-5, rtol=0)


def test_a_causal_run_skips_tiles_and_marks_hidden_scores(recording):
    run = find(recording, SETTINGS[1])
    assert run["tiles"] == [[i, j] for i in range(4) for j in range(i + 1)]
    assert run["scores"][0][1] is None
    assert run["scores"][0][0] is not None


def test_it_is_plain_json_of_the_promised_size(recording):
    text = json.dumps(recording, separators=(",", ":"), allow_nan=False)
    assert json.loads(text) == recording
    first = json.dumps(recording["runs"][0], separators=(",", ":"))
    assert len(first) <= 10_000


def test_two_recordings_are_the_same(recording):
    assert record_theatre() == recording


def test_the_flash_formula_is_not_the_measurement(monkeypatch):
    def wrong(**sizes):
        return {**flash_forward_traffic(**sizes), "scores": (0, 1)}

    monkeypatch.setattr(flash_theatre, "flash_forward_traffic", wrong)
    traffic = record_theatre(SETTINGS[:1])["runs"][0]["traffic"]
    assert traffic["total"] == traffic["formula"] - 1


def test_nothing_to_run_and_unknown_slips_are_refused():
    with pytest.raises(ValueError, match="settings is empty"):
        record_theatre(())
    with pytest.raises(ValueError, match="the slip 'typo'; there are acc"):
        record_theatre((Setting("one", slips=("typo",)),))
