"""Planted mistakes: each must fail the very comparison that pages use."""

import inspect
import math
import textwrap
from types import FunctionType

import numpy as np
import pytest
import torch

from attention_lab.error_bound import error_bound
from attention_lab.examples import example_qkv, position_coded
from attention_lab.gpu import cuda, to_device
from attention_lab.reference import attention_reference
from attention_lab.source import plain_function
from attention_lab.steps import flash_forward, multi_head, online_softmax
from attention_lab.steps.online_softmax import RunningSoftmax, finite
from attention_lab.verify import check_same_as
from attention_lab.verify.checks import WrongValues
from cases import random_mask


def plain(q, k, v, scale=None, axis=-1, mask=None, after=None, bias=None):
    """Attention with a place for each mistake."""
    scores = q @ np.swapaxes(k, -1, -2)
    scores = scores * (q.shape[-1] ** -0.5 if scale is None else scale)
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    with np.errstate(invalid="ignore"):
        weights = np.exp(scores - scores.max(axis, keepdims=True))
        weights = weights / weights.sum(axis, keepdims=True)
    if after is not None:
        weights = weights * after
    return weights @ v


CAUSAL = np.tri(5, 7, dtype=bool)
MASK = random_mask((2, 3, 5, 7))

# name -> (the mistake, the options that the right answer is computed with)
MISTAKES = {
    "missing scale": (lambda q, k, v: plain(q, k, v, scale=1.0), {}),
    "scale of the model width": (
        lambda q, k, v: plain(q, k, v, scale=33**-0.5),
        {},
    ),
    "scaled twice": (lambda q, k, v: plain(q, k, v, scale=1 / 11), {}),
    "softmax over the queries": (lambda q, k, v: plain(q, k, v, axis=-2), {}),
    "keys and values swapped": (lambda q, k, v: plain(q, v, k), {}),
    "causal ignored": (plain, {"is_causal": True}),
    "causal transposed": (
        lambda q, k, v: plain(q, k, v, mask=~np.tri(5, 7, -1, dtype=bool)),
        {"is_causal": True},
    ),
    "causal off by one": (
        lambda q, k, v: plain(q, k, v, mask=np.tri(5, 7, 1, dtype=bool)),
        {"is_causal": True},
    ),
    "causal at the lower right": (
        lambda q, k, v: plain(q, k, v, mask=np.tri(5, 7, 2, dtype=bool)),
        {"is_causal": True},
    ),
    "mask polarity": (
        lambda q, k, v: plain(q, k, v, mask=~CAUSAL),
        {"attn_mask": CAUSAL},
    ),
    "mask after the softmax": (
        lambda q, k, v: plain(q, k, v, after=CAUSAL),
        {"attn_mask": CAUSAL},
    ),
    "weak sentinel": (
        lambda q, k, v: plain(q, k, v, bias=np.where(CAUSAL, 0, -10)),
        {"attn_mask": CAUSAL},
    ),
    "no care for a row that sees nothing": (
        lambda q, k, v: plain(q, k, v, mask=MASK),
        {"attn_mask": MASK},
    ),
    "last key dropped": (
        lambda q, k, v: plain(q, k[:, :, :-1], v[:, :, :-1]),
        {},
    ),
    "padded keys enter with a score of 0": (
        lambda q, k, v: plain(
            q,
            np.concatenate([k, np.zeros_like(k[:, :, :1])], 2),
            np.concatenate([v, np.zeros_like(v[:, :, :1])], 2),
        ),
        {},
    ),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", MISTAKES)
def test_wrong_attention_fails_the_readers_check(name):
    mistake, options = MISTAKES[name]
    q, k, v = example_qkv()
    right = attention_reference(q, k, v, **options).out_BHLD
    bound = error_bound(q, k, v, **options)
    with pytest.raises(WrongValues, match="out_BHLD differs at B = "):
        check_same_as(mistake(q, k, v), right, bound, name="out_BHLD")


def test_plain_attention_itself_passes_the_readers_check():
    q, k, v = example_qkv()
    right = attention_reference(q, k, v).out_BHLD
    check_same_as(plain(q, k, v), right, error_bound(q, k, v))


def test_grouped_heads_in_the_wrong_order_fail():
    q, k, v = example_qkv(H=6, H_kv=2)
    right = attention_reference(q, k, v, enable_gqa=True).out_BHLD
    wrong = plain(q, np.tile(k, (1, 3, 1, 1)), np.tile(v, (1, 3, 1, 1)))
    with pytest.raises(WrongValues, match="H = "):
        check_same_as(wrong, right, 1e-5, name="out_BHLD")


@pytest.mark.parametrize(
    "wrong",
    [
        lambda x, H: x.view(x.shape[0], H, x.shape[1], -1),
        lambda x, H: x.unflatten(-1, (-1, H)).permute(0, 3, 1, 2),
        lambda x, H: multi_head.split_heads(x, H).flip(1),
    ],
    ids=["view without permute", "(d h) for (h d)", "heads reversed"],
)
def test_wrong_head_splits_fail(wrong):
    x_BLE = torch.tensor(position_coded(2, 5, 12), dtype=torch.float64)
    right = multi_head.split_heads(x_BLE, 3)
    with pytest.raises(WrongValues, match="heads_BHLD differs at B = 0, H = "):
        check_same_as(wrong(x_BLE, 3), right, name="heads_BHLD")


def no_rescale_of_the_sum(state, row_max, weights, value):
    rescale = torch.exp(state.row_max - finite(row_max))
    return RunningSoftmax(
        row_max,
        state.row_sum + weights.sum(-1),
        state.acc * rescale[..., None] + weights @ value,
    )


def no_rescale_of_the_accumulator(state, row_max, weights, value):
    rescale = torch.exp(state.row_max - finite(row_max))
    return RunningSoftmax(
        row_max,
        state.row_sum * rescale + weights.sum(-1),
        state.acc + weights @ value,
    )


def inverse_rescale(state, row_max, weights, value):
    # As printed in FlashAttention-2, algorithm 1, line 10.
    rescale = torch.exp(state.row_max - finite(row_max))
    inverse = torch.where(rescale > 0, 1 / rescale, rescale)
    return RunningSoftmax(
        row_max,
        state.row_sum * rescale + weights.sum(-1),
        state.acc * inverse[..., None] + weights @ value,
    )


@pytest.mark.parametrize(
    "combine",
    [no_rescale_of_the_sum, no_rescale_of_the_accumulator, inverse_rescale],
)
def test_wrong_online_updates_fail(combine, monkeypatch):
    def update(state, scores, value):
        row_max = torch.maximum(state.row_max, scores.amax(-1))
        weights = torch.exp(scores - finite(row_max)[..., None])
        return combine(state, row_max, weights, value)

    arrays = example_qkv(dtype=np.float64)
    right = attention_reference(*arrays).out_BHLD
    monkeypatch.setattr(online_softmax, "update", update)
    out = online_softmax.attention(*(torch.tensor(x) for x in arrays))
    with pytest.raises(WrongValues):
        check_same_as(out, right, error_bound(*arrays))


def edited(kernel, old, new, folder):
    """Compile a kernel again with one piece of its source replaced."""
    function = plain_function(kernel)
    source = textwrap.dedent(inspect.getsource(function))
    assert source.count(old) >= 1
    names = dict(function.__globals__)
    cells = function.__closure__ or ()
    for name, cell in zip(function.__code__.co_freevars, cells, strict=True):
        names[name] = cell.cell_contents
    path = folder / "edited_kernel.py"
    path.write_text(source.replace(old, new), encoding="utf-8")
    exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
    found = names[function.__name__]
    assert isinstance(plain_function(found), FunctionType)
    return found


def run_flash(kernel, q, k, v, TILE_L):
    _, _, L, _ = q.shape
    out = to_device(np.full((1, 1, L, v.shape[3]), np.nan, np.float32))
    lse = to_device(np.full((1, 1, L), np.nan, np.float32))
    bias = to_device(np.zeros((1, 1, 1, 1), np.float32))
    scale = np.float32(1 / math.sqrt(q.shape[3]))
    arrays = [to_device(x) for x in (q, k, v)]
    kernel[(-(-L // TILE_L), 1), TILE_L](out, lse, *arrays, bias, scale, 1)
    return out.copy_to_host()


FLASH_EDITS = {
    "ragged tile ignored": (
        "min(visible, s0 + TILE_S) if row < L else s0",
        "s0 + TILE_S",
    ),
    "second tile skipped": (
        "range(0, visible, TILE_S)",
        "range(0, TILE_S, TILE_S)",
    ),
    "values loaded as keys": (
        "load_tile(v_tile, v_BHSD",
        "load_tile(v_tile, k_BHSD",
    ),
    "scale forgotten": ("d] * scale if", "d] if"),
    "last row not stored": (
        "if row < L:\n        store",
        "if row < L - 1:\n        store",
    ),
}


@pytest.mark.parametrize("name", FLASH_EDITS)
def test_wrong_flash_kernels_fail(name, tmp_path):
    from numba import float32

    q, k, v = example_qkv(B=1, H=1, L=5, S=7, D=3)
    right = attention_reference(q, k, v).out_BHLD
    bound = error_bound(q, k, v)
    kernel = flash_forward.make_flash_kernel(3, 3, 4, 4, float32, False, False)
    check_same_as(run_flash(kernel, q, k, v, 4), right, bound)
    broken = edited(kernel, *FLASH_EDITS[name], tmp_path)
    wrong = run_flash(broken, q, k, v, 4)
    with pytest.raises(WrongValues):
        check_same_as(wrong, right, bound)


def test_a_store_that_is_missing_shows_as_nan():
    @cuda.jit
    def half(out, x):
        i = cuda.grid(1)
        if i < x.size // 2:
            out[i] = x[i]

    x = np.arange(6, dtype=np.float32)
    out = to_device(np.full(6, np.nan, np.float32))
    half[1, 8](out, to_device(x))
    with pytest.raises(WrongValues, match="nan"):
        check_same_as(out.copy_to_host(), x)
