import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import float32

from attention_lab.error_bound import error_bound, lse_error_bound
from attention_lab.examples import example_qkv
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.recorder import record
from attention_lab.reference import attention_reference
from attention_lab.steps import split_keys as step
from attention_lab.steps import split_keys_kernels as kernels
from cases import random_mask, tensors
from test_mistakes_are_caught import edited

recorder_only = pytest.mark.skipif(
    runs_on_gpu(), reason="records the launches that the recorder makes"
)
ARRAYS = {
    "q_BHLD": "query",
    "k_BHSD": "key",
    "v_BHSD": "value",
    "out_BHLD": "output",
    "lse_BHL": "log_sum_exp",
}


def record_both(q, k, v, shares, is_causal=False, order="ascending", **made):
    """Record the two kernels; return both recordings, output and lse."""
    B, H, L, D = q.shape
    states = [np.full((shares, B, H, L), np.nan, q.dtype) for _ in "ms"]
    accs = np.full((shares, *q.shape[:3], v.shape[3]), np.nan, q.dtype)
    out, lse = np.full(accs.shape[1:], np.nan, q.dtype), states[0][0].copy()
    bias = np.zeros((1, 1, 1, 1), q.dtype)
    make = made.get("make_split", kernels.make_split_kernel)
    split = record(
        make(D, v.shape[3], float32, False, is_causal),
        *((L, shares, B * H), (32, 1, 1), *states, accs, q, k, v, bias),
        *(q.dtype.type(D**-0.5), H // k.shape[1]),
        order=order,
    )
    merged = record(
        made.get("merge", kernels.make_merge_kernel(float32)),
        *((L, B * H), (32, 1), out, lse, *states, accs),
        order=order,
    )
    return split, merged, out, lse


def assert_right(out, lse, inputs, options):
    exact = attention_reference(*inputs, *options)
    bound = error_bound(*inputs, *options)
    np.testing.assert_allclose(out, exact.out_BHLD, atol=bound, rtol=0)
    bound = lse_error_bound(*inputs, *options)
    np.testing.assert_allclose(lse, exact.lse_BHL, atol=bound, rtol=0)


@pytest.mark.parametrize("shares", [1, 2, 3, 13, 99, None])
@pytest.mark.parametrize("mode", ["plain", "causal", "masked row"])
def test_the_number_of_shares_does_not_matter(mode, shares):
    inputs = example_qkv(B=1, H=2, L=3, S=13, D=9, D_v=7)
    inputs[0][...] *= 100
    mask = random_mask((1, 2, 3, 13)) if mode == "masked row" else None
    options = (mask, mode == "causal")
    assert_right(
        *step.split_forward_cuda(*inputs, *options, shares=shares),
        inputs,
        options,
    )
    mask = None if mask is None else torch.tensor(mask)
    found = step.split_forward(
        *tensors(*inputs), mask, mode == "causal", shares=shares
    )
    assert_right(*found, inputs, options)


@pytest.mark.parametrize("S", [1, 63, 64, 65])
def test_one_query_and_many_keys(S):
    inputs = example_qkv(B=1, H=1, L=1, S=S, D=5)
    assert_right(*step.split_forward_cuda(*inputs), inputs, ())


@settings(deadline=None, max_examples=40)
@given(
    st.lists(
        st.one_of(
            st.floats(-1e4, 1e4), st.just(-np.inf), st.floats(-1e-300, 1e-300)
        ),
        min_size=1,
        max_size=11,
    ),
    st.integers(1, 12),
    st.randoms(),
)
def test_neither_the_cut_nor_the_order_of_keys_matters(scores, shares, random):
    # One query of 1 turns the keys into the scores; a mask holds the −∞.
    bias = torch.tensor(scores, dtype=torch.float64)
    one = torch.ones(1, 1, 1, 1, dtype=torch.float64)
    key = bias.clamp(min=-1e9).reshape(1, 1, -1, 1)
    value = torch.arange(len(scores)).double().reshape(key.shape)
    keep = bias > -np.inf
    whole = step.split_forward(one, key, value, keep, shares=1)
    order = list(range(len(scores)))
    random.shuffle(order)
    cut = step.split_forward(
        *(one, key[:, :, order], value[:, :, order], keep[order]),
        shares=shares,
    )
    for a, b in zip(whole, cut, strict=True):
        assert not torch.isnan(a).any()
        np.testing.assert_allclose(b, a, rtol=1e-12, atol=1e-11)


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        (0, "shares must be a whole number of at least 1, not 0"),
        (2.5, "shares must be a whole number of at least 1, not 2.5"),
    ],
)
@pytest.mark.parametrize("run", [step.split_forward, step.split_forward_cuda])
def test_bad_shares_are_refused(run, shares, message):
    with pytest.raises(ValueError, match=message):
        run(*tensors(*example_qkv()), shares=shares)


def test_more_shares_than_the_grid_allows_are_refused():
    with pytest.raises(
        ValueError, match=r"shares = 70000 .* CUDA allows 65535"
    ):
        step.check_shares(70_000, 80_000)


def test_no_keys_and_nan():
    q, k, v = example_qkv(S=0)
    for out, lse in (
        step.split_forward_cuda(q, k, v),
        step.split_forward(*tensors(q, k, v)),
    ):
        assert (np.asarray(out) == 0).all()
        assert (np.asarray(lse) == -np.inf).all()
    q, k, v = example_qkv(B=1, H=2, L=2, S=5)
    k[0, 0, 3] = np.nan
    out, lse = step.split_forward_cuda(q, k, v, shares=2)
    assert np.isnan(out[0, 0]).all()
    assert np.isnan(lse[0, 0]).all()
    assert np.isfinite(out[0, 1]).all()


# -- recorded --------------------------------------------------------------


@recorder_only
@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
@pytest.mark.parametrize("is_causal", [False, True])
def test_both_kernels_are_clean_and_move_what_the_formula_says(
    is_causal, order
):
    for L, S, D, shares in ((1, 1, 1, 1), (1, 17, 9, 3), (5, 7, 11, 2)):
        q, k, v = example_qkv(B=1, H=2, H_kv=1, L=L, S=S, D=D)
        *both, out, lse = record_both(q, k, v, shares, is_causal, order)
        formula = step.split_forward_traffic(
            L, S, D, shares, H=2, causal=is_causal
        )
        for recording, expected in zip(both, formula.values(), strict=True):
            assert recording.hazards == (), str(recording)
            kinds = {note.kind for note in recording.notes}
            assert not {kind for kind in kinds if "float64" in kind}
            counts = recording.traffic.counts()
            counts = {ARRAYS.get(n, n): moved for n, moved in counts.items()}
            zero = dict.fromkeys(expected, (0, 0))
            assert {**zero, **counts} == expected
        repeated = [np.repeat(x, 2, axis=1) for x in (k, v)]
        assert_right(out, lse, (q, *repeated), (None, is_causal))


@recorder_only
def test_four_keys_are_read_in_four_sectors():
    q, k, v = example_qkv(B=1, H=1, L=1, S=8, D=16)
    split, *_ = record_both(q, k, v, 1)
    assert split.traffic["k_BHSD"].sectors_per_request == 4
    assert split.traffic["v_BHSD"].sectors_per_request == 4


# -- planted mistakes ------------------------------------------------------


@recorder_only
@pytest.mark.parametrize(
    ("old", "new"),
    [
        # The shares' states are not shrunk to the common maximum.
        ("row, d] * rescale", "row, d]"),
        ("sums[p, b, h, row] * rescale", "sums[p, b, h, row]"),
        # A share is forgotten.
        ("range(shares)", "range(1, shares)"),
    ],
)
def test_a_wrong_merge_of_shares_fails_the_comparison(old, new, tmp_path):
    inputs = example_qkv(B=1, H=1, L=2, S=9, D=5)
    merge = edited(kernels.make_merge_kernel(float32), old, new, tmp_path)
    *_, out, lse = record_both(*inputs, 3, merge=merge)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_right(out, lse, inputs, ())


@recorder_only
@pytest.mark.parametrize(
    ("helper", "old", "new"),
    [
        # The groups' accumulators are not shrunk to the common maximum.
        ("make_merge_groups", "acc[i] * mine", "acc[i]"),
        ("make_merge_groups", "other_sum * theirs", "other_sum"),
        # One of the two exchanges is left out.
        ("make_merge_groups", "range(LANE_BITS, 5)", "range(LANE_BITS, 4)"),
        # Earlier keys are not shrunk when the maximum grows.
        ("make_take_key", "row_sum * rescale", "row_sum"),
        # The sum over a group's lanes reaches half of them.
        ("make_score", "range(LANE_BITS)", "range(2)"),
    ],
)
def test_a_lost_rescale_inside_a_warp_fails_the_comparison(
    helper, old, new, tmp_path, monkeypatch
):
    make = getattr(kernels, helper)
    monkeypatch.setattr(
        kernels, helper, lambda *args: edited(make(*args), old, new, tmp_path)
    )
    inputs = example_qkv(B=1, H=1, L=2, S=19, D=9)
    build = kernels.make_split_kernel.__wrapped__
    *_, out, lse = record_both(*inputs, 2, make_split=build)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_right(out, lse, inputs, ())
