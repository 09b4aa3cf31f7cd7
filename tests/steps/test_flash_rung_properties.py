"""What holds for every input of the ladder's kernels.

Widths and tiles are few, so that few kernels are built; the lengths and the
numbers are drawn.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.error_bound import error_bound, lse_error_bound
from attention_lab.examples import example_qkv
from flash_rungs import RUNGS, assert_close, assert_right

D, D_V = 3, 2
SMALL_TILES = {"TILE_L": 16, "TILE_S": 16}
lengths = st.integers(1, 21)
seeds = st.integers(0, 2**16)
few = settings(max_examples=5, deadline=None, derandomize=True)
every_rung = pytest.mark.parametrize(
    "rung", RUNGS.values(), ids=[name.replace(" ", "_") for name in RUNGS]
)


def draw_inputs(rung, L, S, seed):
    """Return normal query, key and value of one head."""
    made = example_qkv(B=1, H=1, L=L, S=S, D=D, D_v=D_V, seed=seed)
    return [x.astype(rung.dtype) for x in made]


@every_rung
@few
@given(L=lengths, S=lengths, seed=seeds, which=st.integers(0, 3))
def test_the_size_of_the_tiles_changes_rounding_only(rung, L, S, seed, which):
    q, k, v = draw_inputs(rung, L, S, seed)
    TILE_L, TILE_S = rung.tiles[which]
    small = rung.run(q, k, v, **SMALL_TILES)
    other = rung.run(q, k, v, TILE_L=TILE_L, TILE_S=TILE_S)
    for one, two, bound in zip(
        small, other, (error_bound(q, k, v), lse_error_bound(q, k, v)),
        strict=True,
    ):  # fmt: skip
        np.testing.assert_allclose(one, two, atol=bound, rtol=0)


@every_rung
@few
@given(L=st.integers(2, 21), seed=seeds, data=st.data())
def test_the_future_changes_no_bit_of_the_past(rung, L, seed, data):
    q, k, v = draw_inputs(rung, L, L, seed)
    now = data.draw(st.integers(1, L - 1), "now")
    before = rung.run(q, k, v, None, True, **SMALL_TILES)
    k[:, :, now:] = k[:, :, now:] * 5 + 1
    v[:, :, now:] = -v[:, :, now:] - 1
    after = rung.run(q, k, v, None, True, **SMALL_TILES)
    for one, two in zip(before, after, strict=True):
        np.testing.assert_array_equal(one[:, :, :now], two[:, :, :now])
    assert (before.out_BHLD[:, :, now:] != after.out_BHLD[:, :, now:]).any()


@every_rung
@few
@given(L=lengths, S=lengths, seed=seeds)
def test_the_order_of_the_keys_changes_rounding_only(rung, L, S, seed):
    q, k, v = draw_inputs(rung, L, S, seed)
    order = np.random.default_rng(seed).permutation(S)
    result = rung.run(q, k[:, :, order], v[:, :, order], **SMALL_TILES)
    assert_close(result, q, k, v)


@every_rung
@few
@given(
    L=lengths,
    S=lengths,
    seed=seeds,
    size=st.sampled_from([1e-7, 1e-3, 30.0, 1e4]),
    sign=st.sampled_from([-1, 1]),
)
def test_scores_of_any_size_give_no_nan(rung, L, S, seed, size, sign):
    q, k, v = draw_inputs(rung, L, S, seed)
    root = np.sqrt(size)
    q, k = (q * root * sign).astype(rung.dtype), (k * root).astype(rung.dtype)
    assert_right(rung, q, k, v, **SMALL_TILES)


@every_rung
@few
@given(S=lengths, seed=seeds, steps=st.integers(6, 7))
def test_values_below_the_normal_numbers_are_kept(rung, S, seed, steps):
    # Values of some 2^steps of the smallest number there is: more than the
    # bound, so that flushing them to zero would fail.
    q, k, v = draw_inputs(rung, 3, S, seed)
    smallest = {np.float32: -149, np.float16: -24}[rung.dtype]
    v = np.ldexp(v.astype(np.float64), smallest + steps).astype(rung.dtype)
    assert 0 < np.abs(v).max() < np.finfo(rung.dtype).smallest_normal
    assert_right(rung, q, k, v, **SMALL_TILES)


@every_rung
@few
@given(L=lengths, S=lengths, seed=seeds, kept=st.floats(0, 1))
def test_any_mask_gives_zero_or_a_mixture_and_no_nan(rung, L, S, seed, kept):
    q, k, v = draw_inputs(rung, L, S, seed)
    mask = np.random.default_rng(seed).random((1, 1, L, S)) < kept
    assert_right(rung, q, k, v, mask, **SMALL_TILES)
    out, lse = rung.run(q, k, v, mask, **SMALL_TILES)
    unseen = ~mask.any(-1)
    assert (out[unseen] == 0).all()
    assert (np.isneginf(lse) == unseen).all()
