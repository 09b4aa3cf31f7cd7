import gzip
import json

import numpy as np
import pytest
import torch

from attention_lab.error_bound import gradient_error_bound
from attention_lab.gpu.backward_traffic import flash_backward_traffic
from attention_lab.reference import attention_gradients_reference
from attention_lab.steps import flash_theatre_backward as step
from attention_lab.steps.flash_backward import flash_backward
from attention_lab.steps.flash_backward_slips import (
    BACKWARD_SLIPS,
    flash_backward_with_slip,
)
from attention_lab.steps.flash_theatre_backward import (
    BACKWARD_SETTINGS,
    BackwardSetting,
    backward_inputs,
    record_theatre_backward,
)
from attention_lab.steps.recorded import record_flash_backward

NAMES = [setting.name for setting in BACKWARD_SETTINGS]
WRONG = [(s, slip) for s in BACKWARD_SETTINGS for slip in s.slips]
HALF_A_UNIT = 0.5 * 10.0**-step.DECIMALS


@pytest.fixture(scope="module")
def recording():
    return record_theatre_backward()


def find(recording, setting, slip=None):
    return next(
        run
        for run in recording["runs"]
        if (run["name"], run["slip"]) == (setting.name, slip)
    )


def truth(setting):
    given = backward_inputs(setting)[:4]
    mask = {"is_causal": setting.is_causal}
    return (
        attention_gradients_reference(*given, **mask),
        gradient_error_bound(*given, **mask),
    )


@pytest.mark.parametrize("setting", BACKWARD_SETTINGS, ids=NAMES)
def test_right_runs_end_at_the_reference(recording, setting):
    run = find(recording, setting)
    exact, bounds = truth(setting)
    last = {j: at for at, (_, j) in enumerate(run["tiles"])}  # of each column
    collected = {
        part: np.concatenate([run[part][last[j]] for j in sorted(last)])
        for part in ("dk", "dv")
    }
    for name, found, right, bound in zip(
        ("dq", "dk", "dv"),
        (np.array(run["dq"]), collected["dk"], collected["dv"]),
        exact,
        bounds,
        strict=True,
    ):
        assert run[f"{name}_error"] <= run[f"{name}_bound"] == bound
        off = np.abs(found - right.ravel()).max()
        assert off <= run[f"{name}_error"] + 1.01 * HALF_A_UNIT


@pytest.mark.parametrize("setting", BACKWARD_SETTINGS, ids=NAMES)
def test_traffic_equals_the_formulas(recording, setting):
    traffic = find(recording, setting)["traffic"]
    assert traffic["total"] == traffic["formula"]
    assert traffic["naive"] == traffic["naive_formula"]
    assert traffic["hazards"] == 0
    assert traffic["so_far"] == sorted(set(traffic["so_far"]))
    assert traffic["before"] < traffic["so_far"][0]
    assert traffic["so_far"][-1] < traffic["total"] < traffic["naive"]
    assert traffic["square"] < traffic["naive"]


def test_traffic_so_far_is_what_each_tile_brings(recording):
    # 12 queries and keys, tiles of 4 × 4, 3 channels. Row dots: 2·12·3 + 12.
    # dQ: q, dO 2·12·3, lse and D 2·12, three blocks of all keys and values
    # 3·2·12·3, dQ 12·3. A column: k, v 2·4·3, then per tile 2·4·3 + 2·4; the
    # one before has stored 2·4·3.
    traffic = find(recording, BACKWARD_SETTINGS[0])["traffic"]
    assert traffic["before"] == 84 + 72 + 24 + 216 + 36
    so_far = [traffic["before"], *traffic["so_far"], traffic["total"]]
    steps = np.diff(so_far).tolist()
    assert steps == [24 + 32, 32, 32, *[24 + 24 + 32, 32, 32] * 2, 24]


@pytest.mark.parametrize("setting", BACKWARD_SETTINGS, ids=NAMES)
def test_the_recorded_kernels_are_right_too(setting):
    inputs = backward_inputs(setting)
    recordings, gradients = record_flash_backward(
        *inputs, setting.is_causal, setting.TILE_L, setting.TILE_S
    )
    assert [run.kernel for run in recordings] == [
        "row_dot_kernel",
        "dq_kernel",
        "dkv_kernel",
    ]
    for ours, right, bound in zip(gradients, *truth(setting), strict=True):
        np.testing.assert_allclose(ours, right, atol=bound, rtol=0)


@pytest.mark.parametrize(
    ("setting", "slip"), WRONG, ids=[slip for _, slip in WRONG]
)
def test_the_error_shown_is_that_of_a_real_run(recording, setting, slip):
    run = {**find(recording, setting), **find(recording, setting, slip)}
    arrays = [torch.from_numpy(x) for x in backward_inputs(setting)]
    tiles = {"TILE_L": setting.TILE_L, "TILE_S": setting.TILE_S}
    found = flash_backward_with_slip(
        BACKWARD_SLIPS[slip], *arrays, setting.is_causal, **tiles
    )
    exact, bounds = truth(setting)
    uses = []
    for name, ours, right, bound in zip(
        ("dq", "dk", "dv"), found, exact, bounds, strict=True
    ):
        assert run[f"{name}_error"] == np.abs(ours.numpy() - right).max()
        uses.append(run[f"{name}_error"] / bound)
    assert max(uses) > 1000


def test_all_six_slips_are_shown():
    assert sorted(slip for _, slip in WRONG) == sorted(BACKWARD_SLIPS)


@pytest.mark.parametrize("slip", [None, "row_dot_lost", "max_for_lse"])
def test_states_are_those_of_the_loop(recording, slip):
    setting = BACKWARD_SETTINGS[0]
    run = {**find(recording, setting), **find(recording, setting, slip)}
    trace = []
    arrays = [torch.from_numpy(x) for x in backward_inputs(setting)]
    options = {"TILE_L": 4, "TILE_S": 4, "trace": trace}
    if slip is None:
        flash_backward(*arrays, **options)
    else:
        flash_backward_with_slip(BACKWARD_SLIPS[slip], *arrays, **options)
    assert run["tiles"] == [[t.tile_row, t.tile_col] for t in trace]
    for part, field in step.PARTS.items():
        for listed, tile in zip(run[part], trace, strict=True):
            found = getattr(tile, field).numpy().ravel()
            np.testing.assert_allclose(listed, found, atol=5.1e-5, rtol=0)


def test_a_slip_leaves_out_what_it_has_in_common(recording):
    run = find(recording, BACKWARD_SETTINGS[0], "dk_transposed")
    assert set(run) == {"name", "slip", "dk", "dk_error", "traffic"}


def test_a_causal_run_walks_down_from_the_diagonal(recording):
    run = find(recording, BACKWARD_SETTINGS[1])
    assert run["tiles"] == [[i, j] for j in range(4) for i in range(j, 4)]
    assert run["scores"][0][1] is None
    assert run["weights"][0][1] == 0
    assert run["d_scores"][0][1] == 0


def test_it_is_plain_json_of_the_promised_size(recording):
    text = json.dumps(recording, separators=(",", ":"), allow_nan=False)
    assert json.loads(text) == recording
    assert len(gzip.compress(text.encode())) <= 20_000


def test_two_recordings_are_the_same(recording):
    backward_inputs.cache_clear()
    assert record_theatre_backward() == recording


def test_the_formulas_are_not_the_measurement(monkeypatch):
    def wrong(*sizes, **options):
        return {
            **flash_backward_traffic(*sizes, **options),
            "one more": {"weights": (0, 1)},
        }

    monkeypatch.setattr(step, "flash_backward_traffic", wrong)
    monkeypatch.setattr(step, "plain_backward_traffic", lambda *sizes: {})
    one = (BackwardSetting("one", 4, 4),)
    traffic = record_theatre_backward(one)["runs"][0]["traffic"]
    assert traffic["total"] == traffic["formula"] - 1
    assert traffic["naive"] > traffic["naive_formula"] == 0


def test_nothing_to_run_and_unknown_slips_are_refused():
    with pytest.raises(ValueError, match="settings is empty"):
        record_theatre_backward(())
    with pytest.raises(ValueError, match="the slip 'typo'; there are row_dot"):
        record_theatre_backward((BackwardSetting("one", slips=("typo",)),))
