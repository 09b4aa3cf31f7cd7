"""The runs behind the stage cards: real kernels, held against the reference."""

import json

import numpy as np
import pytest

from attention_lab.steps import stage_run as module
from attention_lab.steps.stage_run import ORDERS, STAGES, stage_run


@pytest.fixture(scope="module")
def runs():
    return {stage: stage_run(stage) for stage in STAGES}


def test_there_is_a_run_for_every_stage(runs):
    assert list(runs) == [
        "scaled_dot_product", "multi_head", "fused_qkv", "online_softmax",
        "flash_forward",
    ]  # fmt: skip


@pytest.mark.parametrize("stage", STAGES)
def test_result_hazards_and_traffic_are_right(runs, stage):
    run = runs[stage]
    result = run["result"]
    assert result["shape"] == result["expected_shape"]
    assert result["error"] is not None
    assert result["error"] <= result["bound"]
    for kernel in run["kernels"]:
        assert kernel["hazards"] == dict.fromkeys(ORDERS, 0)
        assert kernel["recording"]["order"] == "ascending"
        assert kernel["recording"]["verdict"]["traffic_equals_formula"] is True


@pytest.mark.parametrize("stage", STAGES)
def test_the_source_is_what_the_recording_names(runs, stage):
    for kernel in runs[stage]["kernels"]:
        lines = dict(kernel["source"])
        assert kernel["source"][0][1].startswith(
            f"def {kernel['recording']['kernel']}("
        )
        for site in kernel["recording"]["sites"]:
            assert site["text"] == lines[site["line"]].strip()


def test_the_data_are_the_same_each_time(runs):
    again = stage_run("flash_forward")
    assert json.dumps(again) == json.dumps(runs["flash_forward"])


def test_a_split_in_another_order_is_off():
    def tangled(x_BHLD, x_BLE):
        x_BHLD.reshape(-1)[:] = x_BLE.reshape(-1)

    launches, result = module._multi_head(0)
    tangled(result.found, launches[0].arguments[1])
    data = module._result_data(result)
    assert data["shape"] == data["expected_shape"]
    assert data["error"] > data["bound"]


def test_a_result_with_nan_or_of_another_shape_is_infinitely_off():
    good = np.zeros((2, 3))
    for found in (np.full((2, 3), np.nan), np.zeros((3, 2))):
        result = module.Result("out_LD", found, good, 1.0)
        assert module._result_data(result)["error"] is None


def test_a_stage_that_is_none_is_refused():
    with pytest.raises(ValueError, match="no stage 'flash'; there are scaled_"):
        stage_run("flash")
