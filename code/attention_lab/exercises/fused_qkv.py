"""The exercises of the chapter on the fused projection."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # torch loads it at the first checkpoint
from einops import rearrange
from torch import Tensor

from attention_lab import examples
from attention_lab.error_bound import rounding
from attention_lab.exercises import answers
from attention_lab.exercises.exercise import Exercise
from attention_lab.steps.fused_qkv import FusedQKVAttention
from attention_lab.verify.report import Check

#: Sizes B, L, H, D: more than one head and token, and primes.
SIZES = ((1, 1, 2, 3), (1, 2, 3, 2), (2, 5, 3, 7))

#: Sizes B, L, H, H_kv, D; three equal parts would hold whole heads as well.
GROUPED_SIZES = ((1, 1, 4, 1, 3), (1, 2, 8, 2, 3), (2, 5, 6, 3, 2))


def _coded(*shape: int) -> Tensor:
    """Return whole numbers that tell where each element came from."""
    return torch.tensor(examples.position_coded(*shape)).double()


# -- fuse: one gap ----------------------------------------------------------


def _fused(q_EE: Tensor, k_EE: Tensor, v_EE: Tensor) -> Tensor:
    return torch.cat([q_EE, k_EE, v_EE])


def _examine_fuse(answer: Any) -> list[Check]:
    cases = []
    for _, _, H, D in SIZES:
        qkv = _coded(3, H * D, H * D)
        cases.append(dict(zip(("q_EE", "k_EE", "v_EE"), qkv, strict=True)))
    wrong = {
        "fused-order-swapped": lambda q, k, v: torch.cat([k, q, v]),
        "The keys and values stand in each other's place.": (
            lambda q, k, v: torch.cat([q, v, k])
        ),
        "The weights stand side by side: that makes the input wider.": (
            lambda q, k, v: torch.cat([q, k, v], dim=1)
        ),
        "This goes row by row through the three weights, as (h d p) does.": (
            lambda q, k, v: torch.stack([q, k, v], 1).flatten(0, 1)
        ),
    }
    return [
        answers.function(
            "rows", answer, cases, _fused, called="the weight", wrong=wrong
        )
    ]


fuse = Exercise(
    "fused_qkv.fuse",
    _examine_fuse,
    hints={
        "rows": (
            "A row of a weight makes one output channel. Which channels come "
            "first in (p h d)?",
            "All rows of q, then all rows of k, then all rows of v.",
        )
    },
)

# -- unfuse (h 3 d): blank --------------------------------------------------


def _unpacking(layout: str) -> Callable[[Tensor, int], tuple[Tensor, ...]]:
    def unpack(packed: Tensor, num_heads: int) -> tuple[Tensor, ...]:
        pattern = f"b l ({layout}) -> p b h l d"
        return tuple(rearrange(packed, pattern, p=3, h=num_heads))

    return unpack


def _examine_unfuse(answer: Any) -> list[Check]:
    cases = [
        {"packed": _coded(B, L, 3 * H * D), "num_heads": H}
        for B, L, H, D in SIZES
    ]
    wrong = {
        "fused-layout-head-by-head": _unpacking("p h d"),
        "fused-layout-interleaved": _unpacking("h d p"),
        "The heads still stand behind the tokens.": lambda packed, h: tuple(
            rearrange(packed, "b l (h p d) -> p b l h d", p=3, h=h)
        ),
    }
    return [
        answers.function(
            "elements",
            answer,
            cases,
            _unpacking("h p d"),
            called="q_BHLD, k_BHLD, v_BHLD",
            wrong=wrong,
        )
    ]


unfuse = Exercise(
    "fused_qkv.unfuse",
    _examine_unfuse,
    hints={
        "elements": (
            "In (h p d), what comes after the queries of head 0?",
            "First name the three sizes inside the packed axis, in their order "
            "in memory; then move the axis of size 3 to the front.",
        )
    },
)

# -- grouped heads: blank ---------------------------------------------------


def _grouped(
    packed: Tensor, num_heads: int, key_heads: int
) -> tuple[Tensor, ...]:
    D = packed.shape[-1] // (num_heads + 2 * key_heads)
    heads = rearrange(packed, "b l (h d) -> b h l d", d=D)
    return heads.split([num_heads, key_heads, key_heads], dim=1)


def _three_equal_parts(
    packed: Tensor, num_heads: int, key_heads: int
) -> tuple[Tensor, ...]:
    parts = packed.chunk(3, dim=-1)
    D = packed.shape[-1] // (num_heads + 2 * key_heads)
    return tuple(rearrange(x, "b l (h d) -> b h l d", d=D) for x in parts)


def _repeated(
    packed: Tensor, num_heads: int, key_heads: int
) -> tuple[Tensor, ...]:
    q, k, v = _grouped(packed, num_heads, key_heads)
    group = num_heads // key_heads
    return (
        q,
        k.repeat_interleave(group, dim=1),
        v.repeat_interleave(group, dim=1),
    )


def _examine_grouped(answer: Any) -> list[Check]:
    cases = [
        {
            "packed": _coded(B, L, (H + 2 * H_kv) * D),
            "num_heads": H,
            "key_heads": H_kv,
        }
        for B, L, H, H_kv, D in GROUPED_SIZES
    ]
    wrong = {
        "The packed axis is cut into three equal parts; k and v have fewer "
        "heads.": _three_equal_parts,
        "The key heads are repeated already; the exercise asks for the packed "
        "ones.": _repeated,
        "The keys and values stand in each other's place.": (
            lambda *case: (lambda q, k, v: (q, v, k))(*_grouped(*case))
        ),
    }
    return [
        answers.function(
            "elements",
            answer,
            cases,
            _grouped,
            called="q_BHLD, k_BHLD, v_BHLD",
            wrong=wrong,
        )
    ]


grouped = Exercise(
    "fused_qkv.grouped",
    _examine_grouped,
    hints={
        "elements": (
            "How many heads are packed altogether? That gives D.",
            "Where do the channels of k begin, in units of D, and where those "
            "of v?",
        )
    },
)

# -- recompute and keep the gradients ---------------------------------------


def _gradients(module: Any) -> list[Tensor | None]:
    return [parameter.grad for parameter in module.parameters()]


def _examine_recompute(answer: Any) -> list[Check]:
    if not callable(answer):
        return [Check("output", False, "Answer with a function.")]
    with torch.random.fork_rng(devices=()):  # the reader's own stays as it is
        torch.manual_seed(0)
        module = FusedQKVAttention(6, 2).double()
        x_BLE = torch.randn(2, 5, 6, dtype=torch.float64)
    expected = module(x_BLE)
    expected.square().sum().backward()
    plain = _gradients(module)
    module.zero_grad(set_to_none=True)

    projections = []
    module.qkv.register_forward_hook(lambda *_: projections.append(1))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            out = answer(module, x_BLE)
        except Exception as error:
            return [Check("output", False, answers.said(error))]
        output = answers.array(
            "output", out, expected, rounding(expected), "out_BLE"
        )
        if not output.passed:
            return [output]
        try:
            out.square().sum().backward()
        except RuntimeError as error:
            reason = answers.said(error)
        else:
            reason = ""
    is_reentrant = any("requires_grad=True" in str(w.message) for w in caught)
    return [
        output,
        _check_gradients(module, plain, reason, is_reentrant),
        Check(
            "recomputation",
            len(projections) > 1,
            "The module ran once only, so everything was kept for the "
            "backward pass.",
        ),
    ]


def _check_gradients(
    module: Any, plain: list[Tensor | None], reason: str, is_reentrant: bool
) -> Check:
    name = "gradients"
    ours = _gradients(module)
    missing = sum(gradient is None for gradient in ours)
    if missing:
        what = f"{missing} of {len(ours)} parameters got no gradient. {reason}"
        mistake = "reentrant-checkpoint" if is_reentrant else None
        return Check(name, False, what.strip(), mistake=mistake)
    for gradient, expected in zip(ours, plain, strict=True):
        found = answers.array(
            name, gradient, expected, rounding(expected), "gradient"
        )
        if not found.passed:
            return found
    return Check(name, True)


recompute = Exercise(
    "fused_qkv.recompute",
    _examine_recompute,
    hints={
        "gradients": (
            "Does what you return still know how it was computed? Print its "
            "grad_fn.",
            "Nothing may cut the graph: neither no_grad nor detach.",
        ),
        "recomputation": (
            "Calling the module alone keeps every array.",
            "Who calls the module a second time, in the backward pass?",
        ),
    },
)
