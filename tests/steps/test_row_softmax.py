import numpy as np
import pytest
import torch
from numba import float32

from attention_lab.error_bound import error_bound, lse_error_bound
from attention_lab.examples import example_qkv
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.recorder import record
from attention_lab.reference import attention_reference
from attention_lab.steps import row_softmax as step
from attention_lab.steps.scaled_dot_product import make_softmax_kernel
from cases import random_mask
from test_mistakes_are_caught import edited

recorder_only = pytest.mark.skipif(
    runs_on_gpu(), reason="records the launches that the recorder makes"
)
ORDERS = ["ascending", "descending", "shuffled"]
MAKE = {
    False: step.make_row_softmax_kernel,
    True: step.make_one_pass_softmax_kernel,
}


def run(kernel, scores, warps, order=None):
    """Launch or record a softmax kernel on scores of (B, H, L, S)."""
    B, H, L, _ = scores.shape
    weights, lse = np.full_like(scores, np.nan), np.full((B, H, L), np.nan)
    lse = lse.astype(scores.dtype)
    sizes = (L, B * H), (warps * step.WARP, 1)
    if order is None:
        kernel[sizes](weights, lse, scores)
        return weights, lse
    recording = record(kernel, *sizes, weights, lse, scores, order=order)
    return weights, lse, recording


def exact_softmax(scores):
    """Return weights and log-sum-exp of scores in float64, row by row."""
    scores = scores.astype(np.float64)
    weights, lse = np.zeros_like(scores), np.full(scores.shape[:-1], -np.inf)
    for row in np.ndindex(lse.shape):
        seen = scores[row] > -np.inf
        if seen.any():
            shifted = np.exp(scores[row][seen] - scores[row].max())
            weights[row][seen] = shifted / shifted.sum()
            lse[row] = scores[row].max() + np.log(shifted.sum())
    return weights, lse


@pytest.mark.parametrize("lanes", [1, 2, 8, 32])
@pytest.mark.parametrize("S", [0, 1, 7, 31, 32, 33])
def test_the_lanes_of_a_warp_find_the_softmax(S, lanes):
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((2, 3, S)) * 100
    scores[0, 1] = -np.inf
    weights, lse = step.softmax(torch.tensor(scores), lanes)
    expected = exact_softmax(scores)
    np.testing.assert_allclose(weights, expected[0], atol=1e-12)
    np.testing.assert_allclose(lse, expected[1], rtol=1e-14)


@pytest.mark.parametrize("lanes", [0, 3, 2.5])
def test_lanes_that_cannot_pair_up_are_refused(lanes):
    with pytest.raises(ValueError, match="lanes must be a"):
        step.softmax(torch.zeros(3), lanes)


@pytest.mark.parametrize("is_one_pass", [False, True])
@pytest.mark.parametrize("mode", ["plain", "causal", "masked row"])
@pytest.mark.parametrize("S", [1, 31, 33, 67])
def test_output_and_log_sum_exp_are_right(S, mode, is_one_pass):
    q, k, v = example_qkv(B=1, H=2, L=3, S=S, D=5, D_v=2)
    q *= np.float32(100)
    mask = random_mask((1, 2, 3, S)) if mode == "masked row" else None
    options = (mask, mode == "causal")
    exact = attention_reference(q, k, v, *options)
    out, lse = step.unfused_forward_cuda(
        q, k, v, *options, is_one_pass=is_one_pass
    )
    bound = error_bound(q, k, v, *options)
    np.testing.assert_allclose(out, exact.out_BHLD, atol=bound, rtol=0)
    bound = lse_error_bound(q, k, v, *options)
    np.testing.assert_allclose(lse, exact.lse_BHL, atol=bound, rtol=0)


@pytest.mark.parametrize("is_one_pass", [False, True])
def test_no_keys_and_nan(is_one_pass):
    q, k, v = example_qkv(S=0)
    out, lse = step.unfused_forward_cuda(q, k, v, is_one_pass=is_one_pass)
    assert (out == 0).all()
    assert (lse == -np.inf).all()
    q, k, v = example_qkv(B=1, H=2, L=2, S=5)
    k[0, 0, 3] = np.nan
    out, lse = step.unfused_forward_cuda(q, k, v, is_one_pass=is_one_pass)
    assert np.isnan(out[0, 0]).all()
    assert np.isnan(lse[0, 0]).all()
    assert np.isfinite(out[0, 1]).all()


# -- recorded --------------------------------------------------------------


@recorder_only
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("is_one_pass", [False, True])
def test_rows_are_clean_and_move_what_the_formula_says(
    is_one_pass, is_causal, order
):
    for L, S, warps in ((1, 1, 1), (5, 33, 2), (3, 67, 2)):
        rng = np.random.default_rng(0)
        scores = rng.standard_normal((1, 2, L, S)).astype(np.float32)
        scores[0, 0, 0] = -np.inf
        kernel = MAKE[is_one_pass](float32, is_causal, warps)
        weights, lse, recording = run(kernel, scores, warps, order)
        assert recording.hazards == (), str(recording)
        kinds = {note.kind for note in recording.notes}
        assert not {kind for kind in kinds if "float64" in kind}
        formula = step.unfused_forward_traffic(
            L, S, D=1, H=2, causal=is_causal, is_one_pass=is_one_pass
        )["softmax"]
        counts = recording.traffic.counts()
        assert counts == {
            "scores_BHLS": formula["scores"],
            "weights_BHLS": formula["weights"],
            "lse_BHL": formula["log_sum_exp"],
        }
        hidden = is_causal & ~np.tri(L, S, dtype=bool)
        expected = exact_softmax(np.where(hidden, -np.inf, scores))
        np.testing.assert_allclose(weights, expected[0], atol=1e-6)
        np.testing.assert_allclose(lse, expected[1], rtol=1e-6)


@recorder_only
def test_a_row_per_block_reads_whole_sectors():
    scores = np.zeros((1, 1, 32, 64), np.float32)
    *_, ours = run(MAKE[False](float32, False, 2), scores, 2, "ascending")
    weights = np.empty_like(scores)
    kernel = make_softmax_kernel(float32)
    theirs = record(kernel, (1, 1), (32, 1), weights, scores)
    # 32 neighbours of 4 bytes are 4 sectors; 32 rows are 32.
    assert ours.traffic["scores_BHLS"].sectors_per_request == 4
    assert theirs.traffic["scores_BHLS"].sectors_per_request == 32


# -- planted mistakes ------------------------------------------------------


def broken_kernel(is_one_pass, old, new, tmp_path, monkeypatch):
    """Build a kernel in which one device function is edited."""
    name = "make_block_merge" if is_one_pass else "make_block_reduce"
    make = getattr(step, name)
    monkeypatch.setattr(
        step, name, lambda *args: edited(make(*args), old, new, tmp_path)
    )
    return MAKE[is_one_pass].__wrapped__(float32, False, 2)


@recorder_only
@pytest.mark.parametrize(
    ("is_one_pass", "comment"),
    [
        (False, "every warp's value is there before anyone reads"),
        (False, "nobody overwrites a value still being read"),
        (True, "every warp's pair is there before anyone reads"),
    ],
)
def test_a_forgotten_barrier_is_a_race(
    is_one_pass, comment, tmp_path, monkeypatch
):
    old = f"cuda.syncthreads()  # {comment}"
    kernel = broken_kernel(is_one_pass, old, "pass", tmp_path, monkeypatch)
    scores = np.zeros((1, 1, 2, 70), np.float32)
    *_, recording = run(kernel, scores, 2, "ascending")
    assert "race" in recording.kinds, str(recording)


@pytest.mark.parametrize(
    ("is_one_pass", "old", "new"),
    [
        (False, "16 >> step", "8 >> step"),  # half a warp is forgotten
        (False, "range(1, WARPS)", "range(1, 1)"),  # a warp is forgotten
        (True, "range(5)", "range(4)"),
        (True, "max_of_warp[warp], sum", "row_max, sum"),
    ],
)
def test_a_lost_part_of_the_row_fails_the_comparison(
    is_one_pass, old, new, tmp_path, monkeypatch
):
    kernel = broken_kernel(is_one_pass, old, new, tmp_path, monkeypatch)
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((1, 1, 2, 70)).astype(np.float32) * 9
    _, lse = run(kernel, scores, 2)
    expected = exact_softmax(scores)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        np.testing.assert_allclose(lse, expected[1], rtol=1e-6)
