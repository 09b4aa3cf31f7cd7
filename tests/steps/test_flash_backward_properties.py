"""What holds for the gradients of any input."""

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from attention_lab.error_bound import gradient_error_bound
from backward_cases import (
    arrays,
    in_kernels,
    in_pytorch,
    plant,  # noqa: F401
)

SIZES = {"L": 5, "S": 6, "D": 3, "D_v": 2}
seeds = st.integers(0, 10_000)
tiles = st.integers(1, 7)
runs = st.sampled_from([in_pytorch, in_kernels])
# The sizes are small as they are: shrinking a failure would take minutes.
few = settings(
    max_examples=8,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
)


def assert_close(found, other, given, options):
    """Compare two correct results: each is within the bound of the truth."""
    bounds = gradient_error_bound(*given, **options)
    for one, two, bound in zip(found, other, bounds, strict=True):
        assert_allclose(one, two, atol=2 * bound, rtol=0)


@few
@given(seeds, tiles, tiles, runs, st.sampled_from(["plain", "causal"]))
def test_tile_sizes_change_nothing(seed, TILE_L, TILE_S, run, mode):
    given, options = arrays(**SIZES, mode=mode, seed=seed)
    found = run(*given, options, TILE_L=TILE_L, TILE_S=TILE_S)
    whole = run(*given, options, TILE_L=5, TILE_S=6)
    assert_close(found, whole, given, options)


@few
@given(seeds, runs, st.integers(1, 4))
def test_later_keys_change_no_bit_of_earlier_gradients(seed, run, now):
    (out_grad, q, k, v), options = arrays(**SIZES, mode="causal", seed=seed)
    tiles = {"TILE_L": 2, "TILE_S": 3}
    out_grad[:, :, now:] = 0  # only the queries before `now` send anything
    before = run(out_grad, q, k, v, options, **tiles)
    k[:, :, now:] += 1
    v[:, :, now:] *= -3
    q[:, :, now:] += 2
    after = run(out_grad, q, k, v, options, **tiles)
    for one, other in zip(before, after, strict=True):
        one, other = np.asarray(one), np.asarray(other)
        assert_array_equal(one[:, :, :now], other[:, :, :now])
        assert (one[:, :, now:] == 0).all()
        assert (other[:, :, now:] == 0).all()


@few
@given(seeds, runs, st.permutations(range(6)))
def test_reordered_keys_reorder_their_gradients(seed, run, order):
    (out_grad, q, k, v), options = arrays(**SIZES, seed=seed)
    found = run(out_grad, q, k, v, options)
    other = run(out_grad, q, k[:, :, order], v[:, :, order], options)
    moved = found[0], *(np.asarray(x)[:, :, order] for x in found[1:])
    assert_close(moved, other, (out_grad, q, k, v), options)


@few
@given(
    seeds,
    runs,
    st.sampled_from([1e-40, 1e-20, 1.0, 1e4]),
    st.sampled_from([1e-40, 1.0, 1e4]),
    st.floats(0, 1),
)
def test_finite_input_never_gives_nan(seed, run, size, values, share):
    (out_grad, q, k, v), _ = arrays(**SIZES, seed=seed)
    q, k, v = (q * np.float32(size), k, v * np.float32(values))
    keep = np.random.default_rng(seed).random((1, 4, 5, 6)) < share
    found = run(out_grad, q, k, v, {"attn_mask": keep})
    for gradient in found:
        assert np.isfinite(np.asarray(gradient)).all()
    unseen = ~keep.any(-1)
    assert (np.asarray(found[0])[unseen] == 0).all()


BROKEN = {
    test_tile_sizes_change_nothing: (
        "make_dq_kernel",
        "min(TILE_S, visible - s0)",
        "TILE_S",
    ),
    test_later_keys_change_no_bit_of_earlier_gradients: (
        "make_weigh",
        "s > row",
        "s > row + 1",
    ),
    test_reordered_keys_reorder_their_gradients: (
        "make_take_tile",
        "add_v(dv, weight, out_grad_tile",
        "add_v(dv, weight * s, out_grad_tile",
    ),
    test_finite_input_never_gives_nan: (
        "make_read_row",
        "lse = real(math.inf)",
        "pass",
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("check", BROKEN, ids=lambda check: check.__name__)
def test_each_of_these_checks_can_fail(check, plant):  # noqa: F811
    plant(*BROKEN[check])
    with pytest.raises(AssertionError):
        check()
