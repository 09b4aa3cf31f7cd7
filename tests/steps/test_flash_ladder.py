"""Which rung runs, and the same answer from each."""

import numpy as np
import pytest

from attention_lab.error_bound import error_bound
from attention_lab.examples import example_qkv
from attention_lab.gpu.tensor_core import Multiplier, mma_by_shuffles
from attention_lab.steps import flash_ladder
from attention_lab.steps.flash_ladder import RUNGS, choose_rung, flash_cuda


@pytest.fixture
def with_tensor_cores(monkeypatch):
    """Pretend that there are tensor cores; the shuffles do their work."""
    there = Multiplier(mma_by_shuffles, True, "Tensor cores multiply.")
    monkeypatch.setattr(flash_ladder, "choose_mma", lambda: there)


@pytest.mark.parametrize(
    ("dtype", "D", "rung", "reason"),
    [
        ("float16", 64, "tensor_core", "Tensor cores multiply."),
        ("float16", 128, "tensor_core", "Tensor cores multiply."),
        ("float16", 129, "register_tile", "D = 129, D_v = 64 exceed 128"),
        ("float16", 1100, "thread_per_row", "D = 1100, D_v = 64 fit no"),
        ("float32", 64, "register_tile", "float16 only, not float32"),
        ("bfloat16", 64, "register_tile", "float16 only, not bfloat16"),
        ("float64", 64, "register_tile", "float16 only, not float64"),
        ("float32", 509, "thread_per_row", "D = 509, D_v = 64 fit no"),
        ("float64", 300, "thread_per_row", "D = 300, D_v = 64 fit no"),
    ],
)
@pytest.mark.usefixtures("with_tensor_cores")
def test_the_highest_rung_that_runs_is_taken(dtype, D, rung, reason):
    choice = choose_rung(dtype, D, 64)
    assert choice.rung == rung
    assert reason in choice.sentence


def test_float16_without_tensor_cores_takes_the_register_tile(monkeypatch):
    sentence = "Shuffles multiply, not tensor cores: it is an old GPU."
    without = Multiplier(mma_by_shuffles, False, sentence)
    monkeypatch.setattr(flash_ladder, "choose_mma", lambda: without)
    assert choose_rung("float16", 64, 64) == ("register_tile", sentence)


def test_every_rung_gives_the_same():
    q, k, v = (x.astype(np.float16) for x in example_qkv(B=1, H=1, D=3))
    outs = {r: flash_cuda(q, k, v, rung=r).out_BHLD for r in RUNGS}
    bound = error_bound(q, k, v)
    for out in outs.values():
        assert out.dtype == np.float16
        np.testing.assert_allclose(
            out, outs["thread_per_row"], atol=bound, rtol=0
        )


@pytest.mark.usefixtures("with_tensor_cores")
def test_the_chosen_rung_is_the_one_that_runs(monkeypatch):
    ran = []
    for name in RUNGS:
        monkeypatch.setitem(
            RUNGS,
            name,
            lambda *_, name=name, **tiles: ran.append((name, tiles)),
        )
    q = np.zeros((1, 1, 2, 3), np.float32)
    flash_cuda(q, q, q)
    flash_cuda(*[q.astype(np.float16)] * 3, TILE_S=16)
    flash_cuda(q, q, q, rung="thread_per_row", TILE_L=8)
    assert ran == [
        ("register_tile", {}),
        ("tensor_core", {"TILE_S": 16}),
        ("thread_per_row", {"TILE_L": 8}),
    ]


def test_an_unknown_rung_is_refused_with_the_names_there_are():
    q = np.zeros((1, 1, 2, 3), np.float32)
    with pytest.raises(ValueError, match=r"rung is 'wgmma'; .*tensor_core"):
        flash_cuda(q, q, q, rung="wgmma")


def test_input_that_holds_no_numbers_is_refused():
    with pytest.raises(ValueError, match="query has dtype int64"):
        flash_cuda(*[np.zeros((1, 1, 2, 3), int)] * 3)
