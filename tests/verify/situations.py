"""Calls of attention functions, each with its own way of being right."""

import functools
import inspect
import math
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from attention_lab.error_bound import error_bound
from attention_lab.examples import example_qkv
from attention_lab.reference import (
    attention_gradients_reference,
    attention_reference,
    to_float64,
)

#: Our name of an option -> the names it may have.
NAMES = {
    "attn_mask": ("attn_mask", "mask"),
    "is_causal": ("is_causal", "causal"),
    "scale": ("scale", "softmax_scale"),
    "enable_gqa": ("enable_gqa",),
}
DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float64": torch.float64,
}


class Situation(NamedTuple):
    """A name, the inputs, the options, and what a function needs for it."""

    name: str
    qkv: tuple[torch.Tensor, torch.Tensor, torch.Tensor]
    options: dict[str, Any]
    needs: tuple[str, ...] = ()


def _tensors(gain: float = 1.0, dtype: str = "float32", **sizes: int):
    q, k, v = (torch.tensor(x) for x in example_qkv(**sizes))
    wanted = DTYPES.get(dtype, torch.float32)
    return tuple(x.to(wanted) for x in (gain * q, k, v))


def _keep(*shape: int) -> torch.Tensor:
    """Return a mask that allows a part of each row, and key 0 always."""
    keep = torch.tensor(np.random.default_rng(3).random(shape) < 0.5)
    keep[..., 0] = True
    return keep


def _added(keep: torch.Tensor) -> torch.Tensor:
    numbers = np.random.default_rng(4).standard_normal(keep.shape)
    bias = torch.tensor(numbers, dtype=torch.float32)
    return bias.masked_fill(~keep, -math.inf)


def _without_row(keep: torch.Tensor, row: int) -> torch.Tensor:
    keep = keep.clone()
    keep[..., row, :] = False
    return keep


def _strided(qkv):
    return tuple(x.transpose(1, 2).contiguous().transpose(1, 2) for x in qkv)


def _all() -> Iterator[Situation]:
    plain, square = _tensors(), _tensors(L=5, S=5)
    yield Situation("plain", plain, {}, ("cross_attention",))
    yield Situation("square", square, {})
    yield Situation("one key", _tensors(B=1, H=1, L=1, S=1), {})
    yield Situation("one sample", _tensors(B=1, L=5, S=5), {})
    yield Situation("one head", _tensors(H=1, L=5, S=5), {})
    yield Situation("width 4", _tensors(D=4, L=5, S=5), {})
    yield Situation("large scores", _tensors(30.0, L=5, S=5), {})
    far = _tensors(L=5, S=5)
    low = (40.0 + far[0].abs(), -40.0 - far[1].abs(), far[2])
    yield Situation("very low scores", low, {})
    uneven = torch.tensor([1.0, 300.0, 1.0, 1.0, 1.0])[:, None] * square[0]
    uneven[..., 0, :], uneven[..., 0, 0] = 0.0, -3.0
    yield Situation("rows of unlike size", (uneven, *square[1:]), {})
    yield Situation("value width", _tensors(D_v=6), {}, ("value_width",))
    yield Situation("strided", _strided(square), {})
    for L, S in ((40, 70), (40, 40), (40, 64)):
        long = _tensors(1.0, B=1, H=2, L=L, S=S, D=8)
        needs = ("cross_attention",) if L != S else ()
        yield Situation(f"long ({L}, {S})", long, {}, needs)
    yield Situation("scale", square, {"scale": 0.7})
    yield Situation("no keys", _tensors(S=0), {}, ("cross_attention",))
    yield Situation("no queries", _tensors(L=0), {}, ("cross_attention",))
    for L, S in ((5, 5), (5, 7), (7, 5), (40, 40)):
        qkv = _tensors(B=1, H=2, L=L, S=S, D=8)
        needs = ("cross_attention",) if L != S else ()
        options = {"is_causal": True}
        yield Situation(f"causal ({L}, {S})", qkv, options, needs)
    yield from _with_masks(plain, square)
    for H_kv in (1, 2, 3):
        qkv = _tensors(H=6, H_kv=H_kv, L=5, S=5)
        yield Situation(f"{H_kv} of 6 heads", qkv, {"enable_gqa": True})
    for dtype in DTYPES:
        qkv = _tensors(dtype=dtype, L=5, S=5)
        needs = () if dtype == "float64" else ("half_precision",)
        yield Situation(dtype, qkv, {}, needs)
    masked = {"attn_mask": _keep(5, 5)}
    half = _tensors(dtype="float16", L=5, S=5)
    yield Situation("float16, mask", half, masked, ("half_precision",))
    long = _tensors(12.0, "bfloat16", B=1, H=2, L=5, S=257, D=8)
    needs = ("half_precision", "cross_attention")
    yield Situation("bfloat16, long", long, {}, needs)
    large = tuple(x.half() for x in _tensors(300.0, L=5, S=5))
    large = (large[0], 30 * large[1], large[2])
    options = {"scale": 0.001}
    yield Situation("float16, large", large, options, ("half_precision",))


def _with_masks(plain, square) -> Iterator[Situation]:
    cross = ("cross_attention",)
    for name, shape in {
        "(L, S)": (5, 7),
        "(1, S)": (1, 7),
        "(B, 1, L, S)": (2, 1, 5, 7),
        "(1, H, L, S)": (1, 3, 5, 7),
        "(B, H, L, S)": (2, 3, 5, 7),
        "(B, 1, 1, S)": (2, 1, 1, 7),
    }.items():
        mask = {"attn_mask": _keep(*shape)}
        yield Situation(f"mask {name}", plain, mask, cross)
    full = {"attn_mask": torch.ones(5, 7, dtype=torch.bool)}
    yield Situation("mask of True", plain, full, cross)
    padding = {"attn_mask": _keep(2, 1, 1, 5)}
    yield Situation("square, padding", square, padding)
    yield Situation("square, mask (L, S)", square, {"attn_mask": _keep(5, 5)})
    pairs = _tensors(B=3, L=5, S=5)
    per_sample = {"attn_mask": _keep(3, 1, 5, 5)}
    yield Situation("square, B = H", pairs, per_sample)
    long = _tensors(B=1, H=2, L=20, S=40, D=8)
    keep = _keep(20, 40)
    yield Situation("long, mask", long, {"attn_mask": keep}, cross)
    late = keep.clone()
    late[3, :18] = False
    late[3, 20] = True
    options = {"attn_mask": late}
    yield Situation("long, first tile hidden", long, options, cross)
    number = ("float_mask", "cross_attention")
    added = {"attn_mask": _added(_keep(5, 7))}
    yield Situation("numbers", plain, added, number)
    weak = {"attn_mask": _added(torch.ones(2, 1, 5, 7, dtype=torch.bool))}
    yield Situation("finite numbers", plain, weak, number)
    per_row = {"attn_mask": _added(torch.ones(20, 1, dtype=torch.bool))}
    yield Situation("long, a number per row", long, per_row, number)
    zeros = {"attn_mask": torch.zeros(5, 7)}
    yield Situation("numbers of 0", plain, zeros, number)
    empty = _without_row(_keep(5, 7), 2)
    yield Situation("empty row", plain, {"attn_mask": empty}, cross)
    added = {"attn_mask": _added(empty)}
    yield Situation("empty row, numbers", plain, added, number)


SITUATIONS = {situation.name: situation for situation in _all()}
#: Situations whose gradients are compared as well.
BACKWARD = (
    "square",
    "one key",
    "plain",
    "scale",
    "causal (5, 5)",
    "2 of 6 heads",
    "square, mask (L, S)",
    "empty row",
    "empty row, numbers",
)


def option_names(function: Callable) -> dict[str, str]:
    """Return the function's own names of the options that it has."""
    try:
        parameters = inspect.signature(function).parameters
    except ValueError:
        return {name: name for name in NAMES}
    return {
        name: alias
        for name, aliases in NAMES.items()
        for alias in aliases
        if alias in parameters
    }


def can(function: Callable, situation: Situation, supports) -> bool:
    """Whether a function has what a situation needs."""
    names = option_names(function)
    if not set(situation.options) <= set(names):
        return False
    needed = {*situation.needs, *situation.options}
    return supports is None or needed <= set(supports)


def call(function: Callable, qkv, options: dict[str, Any], library="torch"):
    """Call a function with tensors, or with arrays, and return its output."""
    names = option_names(function)
    if library == "numpy":
        qkv = [x.numpy() for x in qkv]
        options = {
            name: x.numpy() if isinstance(x, torch.Tensor) else x
            for name, x in options.items()
        }
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        out = function(*qkv, **{names[k]: v for k, v in options.items()})
    return out[0] if isinstance(out, tuple) else out


@functools.cache
def right_answer(name: str) -> tuple[np.ndarray, float]:
    """Return the right output of a situation, and its error bound."""
    _, qkv, options, _ = SITUATIONS[name]
    right = attention_reference(*qkv, **options).out_BHLD
    return right, error_bound(*qkv, **options)


def what_is_wrong(function, situation, library="torch") -> str:
    """Return what a function does wrong in a situation; "" if nothing."""
    _, qkv, options, _ = situation
    # Clones of strided tensors keep their strides.
    given = [x.clone() for x in qkv]
    try:
        out = call(function, given, options, library)
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    for before, after in zip(qkv, given, strict=True):
        if not torch.equal(before, after):
            return "changes its inputs"
    right, bound = right_answer(situation.name)
    if tuple(out.shape) != right.shape:
        return f"shape {tuple(out.shape)} instead of {right.shape}"
    if str(out.dtype).removeprefix("torch.") != str(qkv[0].dtype)[6:]:
        return f"dtype {out.dtype}"
    error = np.abs(to_float64(out) - right).max(initial=0.0)
    return "" if error <= bound else f"error {error:.3g} > {bound:.3g}"


def wrong_gradients(function, situation) -> str:
    """Return what is wrong with the gradients of q, k, v; "" if nothing."""
    _, qkv, options, _ = situation
    given = [x.double().requires_grad_() for x in qkv]
    try:
        out = call(function, given, options)
        dout = torch.linspace(-1.0, 1.0, out.numel(), dtype=torch.float64)
        out.backward(dout.reshape(out.shape))
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    right = attention_gradients_reference(
        dout.reshape(out.shape).numpy(), *(x.detach() for x in given), **options
    )
    for name, x, expected in zip("qkv", given, right, strict=True):
        if x.grad is None:
            return f"no gradient of {name}"
        error = np.abs(x.grad.numpy() - expected).max(initial=0.0)
        if not error <= 1e-9 * max(1.0, np.abs(expected).max(initial=0.0)):
            return f"gradient of {name} off by {error:.3g}"
    return ""
