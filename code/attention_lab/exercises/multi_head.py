"""The exercises of the chapter on multi-head attention."""

from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from attention_lab import examples
from attention_lab.exercises import answers
from attention_lab.exercises.exercise import Exercise
from attention_lab.steps.multi_head import MultiHeadAttention
from attention_lab.verify.report import Check

#: Sizes B, L, H, D: the smallest that tell heads and tokens apart, and primes.
SIZES = ((1, 2, 2, 3), (2, 5, 3, 4), (1, 3, 5, 2))


def _coded(*shape: int) -> Tensor:
    """Return whole numbers that tell where each element came from."""
    return torch.tensor(examples.position_coded(*shape)).double()


def _split(x_BLE: Tensor, num_heads: int) -> Tensor:
    return rearrange(x_BLE, "b l (h d) -> b h l d", h=num_heads)


def _view(x_BLE: Tensor, num_heads: int) -> Tensor:
    B, L, E = x_BLE.shape
    return x_BLE.reshape(B, num_heads, L, E // num_heads)


def _deal(x_BLE: Tensor, num_heads: int) -> Tensor:
    return rearrange(x_BLE, "b l (d h) -> b h l d", h=num_heads)


# -- loop: one gap ----------------------------------------------------------


def _loop(x_BLE: Tensor, weight_EE: Tensor, num_heads: int) -> Tensor:
    return _split(x_BLE @ weight_EE.T, num_heads)


def _first_head(x_BLE: Tensor, weight_EE: Tensor, num_heads: int) -> Tensor:
    heads = _loop(x_BLE, weight_EE, num_heads)
    return heads[:, :1].expand_as(heads)


def _examine_loop(answer: Any) -> list[Check]:
    rng = torch.Generator().manual_seed(0)
    cases = [
        {
            "x_BLE": _coded(B, L, H * D),
            "weight_EE": torch.randint(
                -5, 6, (H * D, H * D), generator=rng
            ).double(),
            "num_heads": H,
        }
        for B, L, H, D in SIZES
    ]
    wrong = {
        "split-d-h-order": lambda x, w, h: _deal(x @ w.T, h),
        "split-by-view": lambda x, w, h: _view(x @ w.T, h),
        "transposed-weights": lambda x, w, h: _split(x @ w, h),
        "Every turn of the loop takes the rows of head 0.": _first_head,
    }
    return [
        answers.function(
            "every head", answer, cases, _loop, called="q_BHLD", wrong=wrong
        )
    ]


loop = Exercise(
    "multi_head.loop",
    _examine_loop,
    hints={
        "every head": (
            "How many rows belong to one head, and where do those of head 1 "
            "begin?",
            "With H = 2 and D = 3, head 0 has the rows 0, 1, 2. Write down the "
            "first and the last row of head 1.",
        )
    },
)

# -- split: blank -----------------------------------------------------------


def _examine_split(answer: Any) -> list[Check]:
    cases = [
        {"x_BLE": _coded(B, L, H * D), "num_heads": H} for B, L, H, D in SIZES
    ]
    wrong = {
        "split-by-view": _view,
        "split-d-h-order": _deal,
        "The heads still stand behind the tokens.": lambda x, h: rearrange(
            x, "b l (h d) -> b l h d", h=h
        ),
    }
    return [
        answers.function(
            "elements", answer, cases, _split, called="x_BHLD", wrong=wrong
        )
    ]


split = Exercise(
    "multi_head.split",
    _examine_split,
    hints={
        "elements": (
            "Compare the element that is named with the input: which token and "
            "which channel is it?",
            "Two steps: one gives the head a name inside E, one moves axes.",
        )
    },
)

# -- the head of a row, by experiment ---------------------------------------


def _head_that_changes(row: int, embed_dim: int, num_heads: int) -> int:
    """Change one row of W_q and see which head's queries change."""
    with torch.random.fork_rng(devices=()):  # the reader's own stays as it is
        torch.manual_seed(0)
        module = MultiHeadAttention(embed_dim, num_heads).double()
    x_BLE = torch.ones(1, 2, embed_dim, dtype=torch.float64)
    with torch.no_grad():
        before = module.project(x_BLE, x_BLE, x_BLE)[0]
        module.q_proj.weight[row] += 1.0
        after = module.project(x_BLE, x_BLE, x_BLE)[0]
    (changed,) = (before != after).any(-1).any(-1)[0].nonzero()
    return int(changed)


def _examine_row(answer: Any) -> list[Check]:
    cases = [
        {"row": row, "embed_dim": E, "num_heads": H}
        for E, H in ((6, 2), (12, 3))
        for row in (0, 1, E // H, E - 1)
    ]
    wrong = {
        "split-d-h-order": lambda row, E, H: row % H,
        "This divides by the number of heads, not by the rows of one head.": (
            lambda row, E, H: row // H
        ),
        "This is the channel inside the head.": (
            lambda row, E, H: row % (E // H)
        ),
    }
    return [
        answers.function(
            "the head",
            answer,
            cases,
            _head_that_changes,
            called="the head",
            wrong=wrong,
        )
    ]


head_of_row = Exercise(
    "multi_head.head_of_row",
    _examine_row,
    hints={
        "the head": (
            "How many rows belong to one head?",
            "List the rows of every head for E = 6 and H = 2, then look for "
            "the operation that gives the list's number.",
        )
    },
)

# -- merge: blank -----------------------------------------------------------


def _merge(x_BHLD: Tensor) -> Tensor:
    return rearrange(x_BHLD, "b h l d -> b l (h d)")


def _examine_merge(answer: Any) -> list[Check]:
    cases = [{"x_BHLD": _coded(B, H, L, D)} for B, L, H, D in SIZES]
    wrong = {
        "merge-without-permute": lambda x: x.reshape(
            x.shape[0], x.shape[2], -1
        ),
        "merge-wrong-order": lambda x: rearrange(x, "b h l d -> b l (d h)"),
    }
    return [
        answers.function(
            "elements", answer, cases, _merge, called="x_BLE", wrong=wrong
        )
    ]


merge = Exercise(
    "multi_head.merge",
    _examine_merge,
    hints={
        "elements": (
            "A merge undoes a split, in the opposite order.",
            "First bring the heads back beside their channels, then join.",
        )
    },
)

# -- one head less: blank ---------------------------------------------------


def _without_head(out_BLE: Tensor, num_heads: int, h: int) -> Tensor:
    heads = _split(out_BLE, num_heads).clone()
    heads[:, h] = 0
    return _merge(heads)


def _without_view(out_BLE: Tensor, num_heads: int, h: int) -> Tensor:
    heads = _view(out_BLE, num_heads).clone()
    heads[:, h] = 0
    return heads.reshape(out_BLE.shape)


def _without_dealt(out_BLE: Tensor, num_heads: int, h: int) -> Tensor:
    out = out_BLE.clone()
    out[..., h::num_heads] = 0
    return out


def _without_token(out_BLE: Tensor, num_heads: int, h: int) -> Tensor:
    out = out_BLE.clone()
    out[:, h] = 0
    return out


def _examine_ablate(answer: Any) -> list[Check]:
    cases = [
        {"out_BLE": 1 + _coded(B, L, H * D), "num_heads": H, "h": h}
        for B, L, H, D in SIZES
        for h in range(min(H, L))
    ]
    wrong = {
        "split-by-view": _without_view,
        "split-d-h-order": _without_dealt,
        "This takes a token away, not a head.": _without_token,
    }
    return [
        answers.function(
            "one head less",
            answer,
            cases,
            _without_head,
            called="out_BLE",
            wrong=wrong,
        )
    ]


ablate = Exercise(
    "multi_head.ablate",
    _examine_ablate,
    hints={
        "one head less": (
            "Which columns did this head write, and in which tokens?",
            "It is the same range of channels in every token.",
        )
    },
)
