"""The kernels of the flash backward pass: clean, counted, compiled."""

import inspect

import numpy as np
import pytest
from numba import float32
from test_shipped_kernels import ORDERS, assert_clean, recordings  # noqa: F401

from attention_lab.examples import example_qkv
from attention_lab.gpu.backward_traffic import (
    flash_backward_traffic,
    query_rows_loaded,
)
from attention_lab.gpu.compile_card import compile_card, compile_cards
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.errors import CompilerMissing
from attention_lab.gpu.recorder import record
from attention_lab.source import plain_function
from attention_lab.steps import flash_backward, flash_forward
from attention_lab.steps.flash_backward_kernels import (
    make_dkv_kernel,
    make_dq_kernel,
    make_row_dot_kernel,
)
from attention_lab.steps.plain_backward import make_softmax_backward_kernel
from cases import random_mask
from test_mistakes_are_caught import edited

on_the_recorder = pytest.mark.skipif(
    runs_on_gpu(), reason="records the launches that the recorder makes"
)
MODES = ["plain", "causal", "masked row", "shared heads"]
NAMES = {
    "q_BHLD": "query",
    "k_BHSD": "key",
    "v_BHSD": "value",
    "out_BHLD": "output",
    "out_grad_BHLD": "output_gradient",
    "lse_BHL": "log_sum_exp",
    "row_dot_BHL": "row_dot",
    "dq_BHLD": "query_gradient",
    "dk_BHSD": "key_gradient",
    "dv_BHSD": "value_gradient",
}


def run_backward(recordings, L, S, mode, D=3, D_v=5, **tiles):  # noqa: F811
    """Run the backward pass; leave the recordings of its kernels alone."""
    H_kv = 1 if mode == "shared heads" else 2
    q, k, v = example_qkv(B=2, H=2, H_kv=H_kv, L=L, S=S, D=D, D_v=D_v)
    mask = random_mask((2, 2, L, S)) if mode == "masked row" else None
    options = (mask, mode == "causal", None, mode == "shared heads")
    out, lse = flash_forward.flash_forward_cuda(q, k, v, *options)
    recordings.clear()
    flash_backward.flash_backward_cuda(
        np.ones_like(out), q, k, v, out, lse, *options, **tiles
    )


@on_the_recorder
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("split", [1, 4])
@pytest.mark.parametrize("mode", MODES)
def test_the_kernels_are_clean(recordings, mode, split, order):  # noqa: F811
    recordings.order = order
    tiles = {"TILE_L": 4, "TILE_S": 3, "SPLIT": split}
    run_backward(recordings, 5, 7, mode, **tiles)
    assert len(recordings) == 3
    assert_clean(recordings)


@on_the_recorder
@pytest.mark.parametrize("mode", ["plain", "causal", "shared heads"])
@pytest.mark.parametrize("tiles", [(4, 4, 1), (3, 5, 1), (5, 2, 2)], ids=str)
@pytest.mark.parametrize(("L", "S"), [(1, 1), (7, 11), (11, 5)])
def test_they_move_what_the_formula_says(
    recordings,  # noqa: F811
    L,
    S,
    tiles,
    mode,
):
    sizes = dict(zip(("TILE_L", "TILE_S", "SPLIT"), tiles, strict=True))
    run_backward(recordings, L, S, mode, **sizes)
    formula = flash_backward_traffic(
        L=L,
        S=S,
        D=3,
        D_v=5,
        B=2,
        H=2,
        H_kv=1 if mode == "shared heads" else 2,
        causal=mode == "causal",
        **sizes,
    )
    for recording, expected in zip(recordings, formula.values(), strict=True):
        counts = recording.traffic.counts()
        counts.pop("bias_BHLS", None)
        assert {NAMES[name]: both for name, both in counts.items()} == expected


def test_by_hand_a_causal_walk_begins_at_the_diagonal():
    # Keys 0-3 need queries 0-9, keys 4-6 need queries 3-9: tiles of 3.
    assert query_rows_loaded(10, 7, 3, 4, causal=True) == 10 + 7
    # No query is as late as key 4.
    assert query_rows_loaded(3, 7, 3, 4, causal=True) == 3


FORGOTTEN = {
    "dq": (make_dq_kernel, "both tiles are complete", "k_tile"),
    "dq, the second": (make_dq_kernel, "nobody overwrites", "k_tile"),
    "dkv": (make_dkv_kernel, "all of it is there", "q_tile"),
    "dkv, the second": (make_dkv_kernel, "nobody overwrites", "q_tile"),
}


@on_the_recorder
@pytest.mark.parametrize("name", FORGOTTEN)
def test_a_forgotten_barrier_is_named(name, tmp_path):
    make, comment, raced = FORGOTTEN[name]
    kernel = make(3, 3, 4, 4, 1, float32, False, False)
    lines = inspect.getsource(plain_function(kernel)).splitlines()
    code = next(line for line in lines if comment in line).strip()
    broken = edited(kernel, code, "pass", tmp_path)
    q, k, v = example_qkv(B=1, H=1, L=9, S=9, D=3)
    rows = np.ones((1, 1, 9), np.float32)
    bias = np.zeros((1, 1, 1, 1), np.float32)
    outs = [np.full_like(q, np.nan) for _ in range(1 + name.startswith("dkv"))]
    inputs = (q, k, v, q.copy(), rows, rows.copy(), bias, np.float32(0.5), 1)
    assert record(kernel, (3, 1), 4, *outs, *inputs).hazards == ()
    recording = record(broken, (3, 1), 4, *outs, *inputs)
    races = [h for h in recording.hazards if h.kind == "race"]
    assert races, str(recording)
    assert raced in str(recording)


# -- NVIDIA's compiler ------------------------------------------------------

F4, F3 = "float32[:,:,:,::1]", "float32[:,:,::1]"
ARCHITECTURES = [(7, 5), (8, 0), (9, 0)]
INPUTS = (F4, F4, F4, F4, F3, F3, F4, "float32", "int64")
KIND = (64, 64, 16, 16)
COMPILED = {
    "row_dot": (make_row_dot_kernel(16, 4, float32), (F3, F4, F4)),
    "softmax": (
        make_softmax_backward_kernel(float32),
        (F4, F4, F4, "float32"),
    ),
    "dq": (make_dq_kernel(*KIND, 4, float32, True, True), (F4, *INPUTS)),
    "dkv": (make_dkv_kernel(*KIND, 4, float32, True, True), (F4, F4, *INPUTS)),
}
WHOLE_ROWS = make_dkv_kernel(*KIND, 1, float32, False, False)
JOBS = {
    **{(n, cc): (*COMPILED[n], cc) for n in COMPILED for cc in ARCHITECTURES},
    "whole rows": (WHOLE_ROWS, (F4, F4, *INPUTS), (7, 5)),
}


@pytest.fixture(scope="module")
def cards():
    """Return the cards; skip where nothing can be compiled for a GPU."""
    try:
        compile_card(*COMPILED["row_dot"])
    except CompilerMissing as missing:
        pytest.skip(str(missing))
    return dict(zip(JOBS, compile_cards(JOBS.values()), strict=True))


@pytest.mark.parametrize("cc", ARCHITECTURES, ids=["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("name", COMPILED)
def test_split_rows_fit_into_the_registers(cards, name, cc):
    card = cards[name, cc]
    assert card.f64_instructions == 0
    assert card.spill_bytes == 0
    assert 0 < card.registers <= 255
    assert card.fma_f32_instructions > 0
    assert card.shared_bytes <= 48 * 1024


def test_whole_rows_spill(cards):
    card = cards["whole rows"]
    assert card.spill_bytes > 0
    assert card.registers == 255
    assert card.f64_instructions == 0
