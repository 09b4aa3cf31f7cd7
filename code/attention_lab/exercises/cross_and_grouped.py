"""Checks of the chapter on two lengths, masks and shared key heads."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from einops import rearrange
from numba import float32
from torch import Tensor

from attention_lab import masks
from attention_lab.error_bound import error_bound
from attention_lab.examples import example_qkv
from attention_lab.exercises.answers import Case, function
from attention_lab.exercises.exercise import Exercise
from attention_lab.exercises.own_work import own_work
from attention_lab.exercises.parsons import Parsons
from attention_lab.reference import attention_reference
from attention_lab.steps.grouped_query import make_grouped_sum_kernel
from attention_lab.steps.kv_cache import KVCache
from attention_lab.steps.launch import cdiv
from attention_lab.steps.multi_head import split_heads
from attention_lab.steps.scaled_dot_product import (
    attention_weights,
    share_heads,
    softmax,
)
from attention_lab.verify.kernel.case import Launch
from attention_lab.verify.known_mistakes import known_mistakes
from attention_lab.verify.report import Check

# -- two lengths -----------------------------------------------------------


def _two_lengths(B: int, H: int, L: int, S: int, D: int) -> Case:
    """Return tokens of two sequences whose heads make varied scores."""
    rng = np.random.default_rng([B, H, L, S, D])
    return {
        "query_BLE": torch.tensor(2 * rng.standard_normal((B, L, H * D))),
        "key_BSE": torch.tensor(rng.standard_normal((B, S, H * D))),
        "num_heads": H,
    }


def _cross_weights(
    query_BLE: Tensor,
    key_BSE: Tensor,
    num_heads: int,
    split: Any = split_heads,
    scale: float | None = None,
) -> Tensor:
    q, k = split(query_BLE, num_heads), split(key_BSE, num_heads)
    return attention_weights(q, k, k, scale=scale)


def _bound_of_weights(
    query_BLE: Tensor, key_BSE: Tensor, num_heads: int
) -> float:
    """Return the error bound of an output that shows the weights."""
    q, k = (split_heads(x, num_heads) for x in (query_BLE, key_BSE))
    one_hot = torch.eye(k.shape[2], dtype=k.dtype).expand(*k.shape[:3], -1)
    return error_bound(q, k, one_hot)


def _by_view(x: Tensor, H: int) -> Tensor:
    B, rows, E = x.shape
    return x.view(B, H, rows, E // H)


def _over_queries(query_BLE: Tensor, key_BSE: Tensor, num_heads: int) -> Tensor:
    q, k = (split_heads(x, num_heads) for x in (query_BLE, key_BSE))
    return softmax(k @ q.mT * q.shape[-1] ** -0.5).mT


def _examine_two_lengths(answer: Any) -> Iterable[Check]:
    yield function(
        "weights",
        answer,
        [
            _two_lengths(*size)
            for size in ((1, 2, 2, 3, 2), (2, 3, 5, 7, 4), (1, 2, 7, 3, 5))
        ],
        _cross_weights,
        bound=_bound_of_weights,
        called="weights_BHLS",
        wrong={
            "split-by-view": lambda *a: _cross_weights(*a, split=_by_view),
            "scale-missing": lambda *a: _cross_weights(*a, scale=1.0),
            "softmax-over-queries": _over_queries,
        },
    )


two_lengths = Exercise(
    "cross_and_grouped.two_lengths",
    _examine_two_lengths,
    hints={
        "weights": (
            "Which axis of `key_BSE` holds the heads? It is the last one.",
            "The line above it does the same for the query.",
        )
    },
)


# -- real and past ---------------------------------------------------------


def _real(lengths_B: Tensor, L: int) -> Tensor:
    return masks.padding(lengths_B.numpy(), L, like=lengths_B)


def _real_and_past(lengths_B: Tensor, L: int) -> Tensor:
    return _real(lengths_B, L) & masks.causal(L, L, like=lengths_B)


def _examine_real_and_past(answer: Any) -> Iterable[Check]:
    check = function(
        "the mask",
        answer,
        [
            {"lengths_B": torch.tensor(lengths), "L": L}
            for lengths, L in (([2, 3], 3), ([1, 5, 4], 5), ([4], 4))
        ],
        _real_and_past,
        called="keep",
        wrong={
            "mask-polarity": lambda n, L: ~_real_and_past(n, L),
            "A key must be allowed by both masks; one of the two is enough "
            "here.": lambda n, L: _real(n, L) | masks.causal(L, L, like=n),
            "The padding is missing.": lambda n, L: (
                masks.causal(L, L, like=n).expand(len(n), 1, L, L)
            ),
            "The future is not hidden.": lambda n, L: _real(n, L).expand(
                len(n), 1, L, L
            ),
            "causal-off-by-one-self": lambda n, L: (
                _real(n, L) & torch.ones(L, L).tril(-1).bool()
            ),
            "causal-transposed": lambda n, L: (
                _real(n, L) & torch.ones(L, L).triu().bool()
            ),
            "mask-on-queries": lambda n, L: (
                _real(n, L).mT & masks.causal(L, L, like=n)
            ),
        },
    )
    yield check
    if check.passed:
        dtype = getattr(answer(torch.tensor([1, 2]), 3), "dtype", None)
        yield Check(
            "boolean",
            dtype == torch.bool,
            "" if dtype == torch.bool else f"The mask has dtype {dtype}.",
        )


real_and_past = Exercise(
    "cross_and_grouped.real_and_past",
    _examine_real_and_past,
    hints={
        "the mask": (
            "Draw the mask of 3 tokens, 2 of them real: which cells are True?",
            "In the mask of the past, rows are queries and columns are keys. "
            "The mask of the padding is about keys, and needs two axes of size "
            "1 between its own.",
        ),
        "boolean": (
            "A mask of numbers would be added to the scores.",
            "A comparison of two tensors is boolean.",
        ),
    },
)


# -- grouped heads ---------------------------------------------------------


def _grouped_case(
    B: int, H: int, H_kv: int, L: int, S: int, D: int, gain: float = 1.0
) -> Case:
    q, k, v = example_qkv(B, H, L, S, D, H_kv=H_kv)
    return {
        "query_BHLD": torch.tensor(q * np.float32(gain)),
        "key_BHSD": torch.tensor(k),
        "value_BHSD": torch.tensor(v),
    }


def _exhibit(id: str) -> Any:
    attend = known_mistakes()[id].exhibit()
    return lambda q, k, v: attend(q, k, v, enable_gqa=True)


def _examine_grouped_heads(answer: Any) -> Iterable[Check]:
    check = function(
        "output",
        answer,
        [
            _grouped_case(1, 2, 1, 1, 2, 2),
            _grouped_case(1, 4, 2, 3, 2, 2),
            _grouped_case(2, 6, 2, 5, 7, 3),
            _grouped_case(1, 6, 3, 2, 4, 5, gain=10.0),
        ],
        lambda q, k, v: attention_reference(q, k, v, enable_gqa=True).out_BHLD,
        bound=lambda q, k, v: error_bound(q, k, v, enable_gqa=True),
        called="out_BHLD",
        wrong={
            id: _exhibit(id)
            for id in ("gqa-tiled", "gqa-first-head-only", "gqa-mean-of-heads")
        },
    )
    yield check
    if check.passed:
        q, k, v = _grouped_case(1, 2, 1, 1, 2, 2).values()
        yield own_work("your own", lambda: answer(q, k, v))


grouped_heads = Exercise(
    "cross_and_grouped.grouped_heads",
    _examine_grouped_heads,
    hints={
        "output": (
            "How many query heads share a key head? Compute that number first.",
            "Make a key for each query head, or an axis for the group; then it "
            "is attention as before.",
        ),
        "your own": (
            "Scores, softmax, sum: three lines.",
            "`query @ key.mT` is the first, once the heads fit each other.",
        ),
    },
)


# -- whose gradient --------------------------------------------------------


def _each_case(B: int, H: int, H_kv: int, S: int, D: int) -> Case:
    # Whole numbers: their sum has no rounding, whatever its order.
    rng = np.random.default_rng([B, H, H_kv, S, D])
    each = rng.integers(-99, 99, (B, H, S, D)).astype(np.float32)
    return {"each_BHSD": torch.tensor(each), "key_heads": H_kv}


def _shared_gradient(each_BHSD: Tensor, key_heads: int) -> Tensor:
    """Let PyTorch send the gradients back through the shared heads."""
    B, H, S, D = each_BHSD.shape
    leaf = torch.zeros(B, key_heads, S, D, requires_grad=True)
    share_heads(leaf, H // key_heads).backward(each_BHSD)
    return leaf.grad


def _group_of(each_BHSD: Tensor, key_heads: int) -> Tensor:
    return each_BHSD.unflatten(1, (key_heads, -1))


def _examine_whose_gradient(answer: Any) -> Iterable[Check]:
    yield function(
        "gradient",
        answer,
        [
            _each_case(1, 2, 1, 1, 1),
            _each_case(1, 6, 2, 2, 2),
            _each_case(2, 6, 3, 5, 3),
        ],
        _shared_gradient,
        called="key_grad_BHSD",
        wrong={
            "backward-gqa-not-summed": lambda e, n: _group_of(e, n)[:, :, 0],
            "The mean is too small by the number of heads that share.": (
                lambda e, n: _group_of(e, n).mean(2)
            ),
            "gqa-tiled": lambda e, n: rearrange(
                e, "b (g h) s d -> g b h s d", h=n
            ).sum(0),
        },
    )


whose_gradient = Exercise(
    "cross_and_grouped.whose_gradient",
    _examine_whose_gradient,
    hints={
        "gradient": (
            "Which of the query heads read key head 0?",
            "Give the heads two axes, key head and member of the group. One of "
            "them must vanish.",
        )
    },
)


# -- bytes of a cache ------------------------------------------------------

_DTYPES = {2: torch.float16, 4: torch.float32, 8: torch.float64}


def _cache_bytes(
    layers: int, key_heads: int, D: int, S: int, bytes_per_number: int
) -> int:
    kind = {"dtype": _DTYPES[bytes_per_number], "device": "meta"}
    return layers * KVCache(1, key_heads, D, S, **kind).nbytes


def _examine_cache_bytes(answer: Any) -> Iterable[Check]:
    names = ("layers", "key_heads", "D", "S", "bytes_per_number")
    yield function(
        "bytes",
        answer,
        [
            dict(zip(names, sizes, strict=True))
            for sizes in ((1, 1, 1, 1, 2), (3, 2, 5, 7, 4), (24, 8, 64, 999, 2))
        ],
        _cache_bytes,
        called="the number of bytes",
        wrong={
            "A cache holds keys and values; this counts one of them.": (
                lambda *sizes: _cache_bytes(*sizes) // 2
            ),
            "These are numbers; each has several bytes.": (
                lambda *sizes: _cache_bytes(*sizes) // sizes[-1]
            ),
            "Every layer has a cache of its own.": (
                lambda *sizes: _cache_bytes(1, *sizes[1:])
            ),
            "No scores are kept: the cache grows with S, not with S².": (
                lambda *sizes: _cache_bytes(*sizes) * sizes[3]
            ),
        },
    )


cache_bytes = Exercise(
    "cross_and_grouped.cache_bytes",
    _examine_cache_bytes,
    hints={
        "bytes": (
            "What is kept of one token, in one layer?",
            "Two arrays, each with the axes H_kv, S and D.",
        )
    },
)


# -- the lines of a kernel -------------------------------------------------

GROUP = 2


def _launch_sum(H_kv: int, L: int, S: int, D: int) -> Launch:
    weights, _, _ = example_qkv(1, GROUP * H_kv, L, S, S)
    _, _, v = example_qkv(1, H_kv, L, S, D)
    out = np.empty((1, GROUP * H_kv, L, D), np.float32)
    grid = (cdiv(D, 4), cdiv(L, 2), H_kv)
    return Launch(grid, (4, 2, 1), (out, weights, v))


def _sum_reference(weights_BHLS: np.ndarray, v_BHSD: np.ndarray) -> np.ndarray:
    return weights_BHLS @ np.repeat(v_BHSD, GROUP, axis=1)


shared_sum = Parsons(
    "cross_and_grouped.shared_sum",
    make_grouped_sum_kernel(GROUP, float32),
    _launch_sum,
    _sum_reference,
    given=6,
    distractors=["    h = h_kv // group"],
    hints={
        "values": (
            "Follow key head 1: which query heads read it?",
            "A total starts at 0 once, before the first key; a value is read "
            "inside the loop over the keys.",
        )
    },
    sizes=[
        {"H_kv": 1, "L": 1, "S": 1, "D": 1},
        {"H_kv": 2, "L": 3, "S": 5, "D": 4},
        {"H_kv": 3, "L": 2, "S": 4, "D": 5},
    ],
)
