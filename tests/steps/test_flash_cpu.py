import inspect
import platform

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from attention_lab import masks
from attention_lab.error_bound import error_bound, lse_error_bound
from attention_lab.examples import example_qkv
from attention_lab.reference import attention_reference
from attention_lab.steps import flash_cpu as step
from cases import random_mask

TILE_L, TILE_S = step.TILE_L, step.TILE_S


def assert_right(out, lse, inputs, options):
    exact = attention_reference(*inputs, **options)
    bound = error_bound(*inputs, **options)
    np.testing.assert_allclose(out, exact.out_BHLD, atol=bound, rtol=0)
    bound = lse_error_bound(*inputs, **options)
    np.testing.assert_allclose(lse, exact.lse_BHL, atol=bound, rtol=0)


@pytest.mark.parametrize("mode", ["plain", "causal", "masked row", "bias"])
@pytest.mark.parametrize(
    ("L", "S"),
    [
        (1, 1),
        (TILE_L - 1, TILE_S + 1),
        (TILE_L, TILE_S),
        (TILE_L + 1, TILE_S - 1),
        (2, 3 * TILE_S + 2),
    ],
)
def test_output_and_log_sum_exp_are_right_at_ragged_tiles(L, S, mode):
    inputs = example_qkv(B=1, H=2, H_kv=1, L=L, S=S, D=7, D_v=5)
    inputs[0][...] *= 10
    options = {
        "plain": {},
        "causal": {"is_causal": True},
        "masked row": {"attn_mask": random_mask((1, 2, L, S))},
        "bias": {"attn_mask": inputs[1][0, 0, :, 0].copy()},
    }[mode]
    options["enable_gqa"] = True
    assert_right(*step.flash_forward_cpu(*inputs, **options), inputs, options)


@pytest.mark.parametrize("D", [1, 2, 3, 4, 5, 64])
def test_every_remainder_of_the_widths_is_right(D):
    inputs = example_qkv(B=1, H=1, L=3, S=6, D=D, D_v=D)
    inputs[0][...] *= 100
    assert_right(*step.flash_forward_cpu(*inputs), inputs, {})


def test_key_lengths_are_a_mask_that_broadcasts():
    inputs = example_qkv(B=3, H=2, L=4, S=TILE_S + 3, D=5)
    keep = masks.padding([0, 2, TILE_S + 1], TILE_S + 3)
    options = {"attn_mask": keep}
    out, lse = step.flash_forward_cpu(*inputs, **options)
    assert_right(out, lse, inputs, options)
    assert (out[0] == 0).all()
    assert (lse[0] == -np.inf).all()


def test_a_boolean_mask_is_neither_copied_nor_turned_into_numbers():
    keep = torch.ones(5, 7, dtype=torch.bool)
    kept, bias = step.split_mask(keep, np.dtype("float32"))
    assert kept.ctypes.data == keep.data_ptr()
    assert (kept.dtype, bias.size) == (bool, 0)


@settings(deadline=None, max_examples=30)
@given(
    st.lists(
        st.one_of(
            st.floats(-1e4, 1e4, width=32),
            st.just(-np.inf),
            st.floats(-(2.0**-126), 2.0**-126, width=32),
        ),
        min_size=1,
        max_size=70,
    ),
    st.randoms(),
)
def test_scores_of_any_size_and_order_give_no_nan(scores, random):
    bias = np.array(scores, np.float32)
    one = np.ones((1, 1, 1, 1), np.float32)
    key = np.zeros((1, 1, len(scores), 1), np.float32)
    value = np.linspace(-1, 1, len(scores), dtype="f4").reshape(key.shape)
    order = list(range(len(scores)))
    random.shuffle(order)
    for places in (slice(None), order):
        inputs = (one, key, value[:, :, places])
        found = step.flash_forward_cpu(*inputs, bias[places])
        assert not np.isnan(found.out_BHLD).any()
        assert not np.isnan(found.lse_BHL).any()
        exact = attention_reference(*inputs, bias[places])
        np.testing.assert_allclose(found.out_BHLD, exact.out_BHLD, atol=1e-5)
        np.testing.assert_allclose(found.lse_BHL, exact.lse_BHL, rtol=1e-5)


@njit
def exponentials(x):
    """Return what the compiled loops take for exp(x)."""
    result = np.empty_like(x)
    for i in range(x.size):
        result[i] = step.exp(x[i])
    return result


def test_exp_is_within_one_unit_in_the_last_place():
    x = np.linspace(-87, 0, 100_003).astype(np.float32)
    exact = np.exp(x.astype(np.float64))
    units = np.abs(exponentials(x) - exact) / np.spacing(exact.astype("f4"))
    assert units.max() <= 1.0


def test_exp_of_hidden_keys_is_nothing_and_nan_stays():
    x = np.array([-np.inf, -3e38, -88, 0, np.nan], np.float32)
    np.testing.assert_array_equal(exponentials(x), [0, 0, 0, 1, np.nan])


@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="reads the instructions of an x86-64 processor",
)
def test_exp_is_calculated_for_several_numbers_at_once():
    rows = np.zeros(TILE_L, np.float32)
    update = njit(fastmath=step.FAST)(step.update.py_func)
    update(np.zeros((TILE_S, TILE_L), np.float32), rows, rows, rows, 1)
    (assembly,) = update.inspect_asm().values()
    assert "mulps" in assembly  # "ps": several float32, "ss" would be one
    assert "expf" not in assembly


# -- planted mistakes ------------------------------------------------------

LOOPS = (
    "load_queries",
    "score_tile",
    "mix_tile",
    "hide_keys",
    "at",
    "update",
    "attend_rows",
)


def attend_in_python(name, old, new, q, k, v, is_causal):
    """Run the loops without compiling them, on small tiles, one edited."""
    names = dict(vars(step), exp=np.exp, TILE_L=4, TILE_S=8)
    for loop in LOOPS:
        source = inspect.getsource(getattr(step, loop).py_func)
        body = source[source.index("def ") :]
        if loop == name:
            assert old in body
            body = body.replace(old, new)
        exec(body, names)
    out, lse = np.zeros(v.shape, v.dtype), np.zeros(q.shape[:3], q.dtype)
    out = out[:, :, : q.shape[2]].copy()
    scale = q.dtype.type(q.shape[3] ** -0.5)
    nothing = np.empty((0, 0, 0, 0), q.dtype)
    for row0 in range(0, q.shape[2], 4):
        names["attend_rows"](
            *(out[0, 0], lse[0, 0], q[0, 0], k[0, 0], v[0, 0]),
            *(row0, scale, is_causal, nothing, nothing, 0, 0),
        )
    return out, lse


@pytest.mark.parametrize("is_causal", [False, True])
def test_the_loops_are_right_without_a_mistake(is_causal):
    inputs = example_qkv(B=1, H=1, L=5, S=11, D=5)
    found = attend_in_python("at", "", "", *inputs, is_causal)
    assert_right(*found, inputs, {"is_causal": is_causal})


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("update", "row_sum[i] * rescale[i]", "row_sum[i]"),
        ("hide_keys", "s0 + s > row0 + i", "s0 + s >= row0 + i"),
        ("mix_tile", "range(0, D_v, 4)", "range(4, D_v, 4)"),
        ("mix_tile", "weights[keys:] = 0", "pass"),
        ("score_tile", "range(0, D, 2)", "range(0, D - 1, 2)"),
        ("attend_rows", "acc[d, i] *= rescale[i]", "pass"),
        (
            "attend_rows",
            "range(0, visible, TILE_S)",
            "range(0, TILE_S, TILE_S)",
        ),
    ],
)
def test_a_planted_mistake_fails_the_comparison(name, old, new):
    inputs = example_qkv(B=1, H=1, L=5, S=11, D=5)
    is_causal = name == "hide_keys"
    found = attend_in_python(name, old, new, *inputs, is_causal)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_right(*found, inputs, {"is_causal": is_causal})
