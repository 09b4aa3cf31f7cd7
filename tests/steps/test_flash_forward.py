import numpy as np
import pytest
import torch

from attention_lab.error_bound import error_bound, lse_error_bound
from attention_lab.examples import example_qkv
from attention_lab.reference import attention_reference
from attention_lab.steps import flash_forward as step
from cases import random_mask, tensors

TILES = [(1, 1), (4, 4), (3, 5), (8, 2), (16, 16)]


@pytest.mark.parametrize("tiles", TILES, ids=str)
@pytest.mark.parametrize("length", [1, 3, 4, 5, 13])
@pytest.mark.parametrize("is_causal", [False, True])
def test_ragged_tiles_change_nothing(length, tiles, is_causal):
    q, k, v = example_qkv(B=1, H=2, L=length, S=7, D=3, D_v=5)
    TILE_L, TILE_S = tiles
    exact = attention_reference(q, k, v, is_causal=is_causal)
    bound = error_bound(q, k, v, is_causal=is_causal)
    out, lse = step.flash_forward(
        *tensors(q, k, v), None, is_causal, TILE_L=TILE_L, TILE_S=TILE_S
    )
    np.testing.assert_allclose(out, exact.out_BHLD, atol=bound, rtol=0)
    bound = lse_error_bound(q, k, v, is_causal=is_causal)
    np.testing.assert_allclose(lse, exact.lse_BHL, atol=bound, rtol=0)


@pytest.mark.parametrize("tiles", [(3, 5), (4, 4), (8, 2)], ids=str)
@pytest.mark.parametrize(("L", "S"), [(3, 4), (4, 5), (13, 7)])
@pytest.mark.parametrize("mode", ["plain", "causal", "masked row"])
def test_the_kernel_agrees_at_ragged_tiles(L, S, tiles, mode):
    q, k, v = example_qkv(B=1, H=2, L=L, S=S, D=3, D_v=5)
    mask = random_mask((1, 2, L, S)) if mode == "masked row" else None
    options = (mask, mode == "causal")
    TILE_L, TILE_S = tiles
    exact = attention_reference(q, k, v, *options)
    bound = error_bound(q, k, v, *options)
    out, lse = step.flash_forward_cuda(
        q, k, v, *options, TILE_L=TILE_L, TILE_S=TILE_S
    )
    np.testing.assert_allclose(out, exact.out_BHLD, atol=bound, rtol=0)
    bound = lse_error_bound(q, k, v, *options)
    np.testing.assert_allclose(lse, exact.lse_BHL, atol=bound, rtol=0)


def test_a_row_that_sees_nothing_has_a_log_sum_exp_of_minus_infinity():
    q, k, v = example_qkv(B=1, H=2, L=5, S=7)
    mask = random_mask((1, 2, 5, 7))
    for lse in (
        step.flash_forward(*tensors(q, k, v), torch.tensor(mask)).lse_BHL,
        step.flash_forward_cuda(q, k, v, mask).lse_BHL,
    ):
        assert (np.asarray(lse)[:, :, 0] == -np.inf).all()
        assert np.isfinite(np.asarray(lse)[:, :, 1:]).all()


def test_no_keys_have_a_log_sum_exp_of_minus_infinity():
    q, k, v = example_qkv(S=0)
    for out, lse in (
        step.flash_forward(*tensors(q, k, v)),
        step.flash_forward_cuda(q, k, v),
    ):
        assert (np.asarray(out) == 0).all()
        assert (np.asarray(lse) == -np.inf).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_the_log_sum_exp_of_half_precision_input_is_float32(dtype):
    # Scores near 127,279 overflow float16; their log-sum-exp must not.
    q = torch.full((1, 1, 1, 2), 300.0, dtype=dtype)
    for run in (step.flash_forward, step.flash_forward_cuda):
        out, lse = run(q, q, q)
        assert (out.dtype, lse.dtype) == (dtype, torch.float32)
        exact = attention_reference(q, q, q).lse_BHL
        bound = lse_error_bound(q, q, q)
        np.testing.assert_allclose(lse, exact, atol=bound, rtol=0)


def test_the_trace_visits_every_tile_in_order():
    q, k, v = tensors(*example_qkv(B=1, H=1, L=5, S=7))
    trace = []
    step.flash_forward(q, k, v, TILE_L=4, TILE_S=3, trace=trace)
    places = [(t.tile_row, t.tile_col) for t in trace]
    assert places == [(i, j) for i in range(2) for j in range(3)]
    assert trace[-1].scores.shape == (1, 1, 1, 1)  # the ragged corner


def test_causal_tiles_above_the_diagonal_are_not_visited():
    q, k, v = tensors(*example_qkv(B=1, H=1, L=8, S=8))
    trace = []
    step.flash_forward(q, k, v, None, True, TILE_L=4, TILE_S=4, trace=trace)
    places = [(t.tile_row, t.tile_col) for t in trace]
    assert places == [(0, 0), (1, 0), (1, 1)]


def test_a_ragged_causal_tile_looks_no_further_than_its_last_query():
    q, k, v = tensors(*example_qkv(B=1, H=1, L=5, S=9))
    trace = []
    step.flash_forward(q, k, v, None, True, TILE_L=4, TILE_S=2, trace=trace)
    assert [t.tile_col for t in trace if t.tile_row == 1] == [0, 1, 2]


def test_the_trace_ends_in_the_result():
    q, k, v = tensors(*example_qkv(B=1, H=1, L=4, S=7))
    trace = []
    out = step.flash_forward(q, k, v, TILE_L=4, TILE_S=3, trace=trace).out_BHLD
    last = trace[-1]
    np.testing.assert_array_equal(out, last.acc / last.row_sum[..., None])
    # What was rescaled and what was added is what is there.
    before, after = trace[-2], trace[-1]
    added = torch.exp(after.scores - after.row_max[..., None]).sum(-1)
    torch.testing.assert_close(
        before.row_sum * after.rescale + added, after.row_sum
    )


@pytest.mark.parametrize("run", [step.flash_forward, step.flash_forward_cuda])
@pytest.mark.parametrize("name", ["TILE_L", "TILE_S"])
@pytest.mark.parametrize("size", [0, -1, 2.5])
def test_bad_tiles_are_refused(run, name, size):
    q, k, v = tensors(*example_qkv())
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        run(q, k, v, **{name: size})


@pytest.mark.parametrize(
    ("tiles", "message"),
    [
        ({"TILE_L": 1025}, "TILE_L = 1025 needs .* CUDA allows 1024"),
        (
            {"TILE_S": 1024},
            "TILE_S = 1024 keys and values .* 88 bytes each, need 90112 bytes "
            ".* 49152",
        ),
    ],
)
def test_tiles_that_no_gpu_can_launch_are_refused(tiles, message):
    q, k, v = example_qkv(D=11)
    with pytest.raises(ValueError, match=message):
        step.flash_forward_cuda(q, k, v, **tiles)
