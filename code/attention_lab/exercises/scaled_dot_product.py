"""The exercises of the chapter on the scaled dot product."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attention_lab import examples, masks
from attention_lab.error_bound import rounding
from attention_lab.exercises import answers
from attention_lab.exercises.exercise import Exercise
from attention_lab.verify.report import Check

# -- scale: one gap ---------------------------------------------------------


def _scores(q_BHLD: Tensor, k_BHSD: Tensor) -> Tensor:
    return q_BHLD @ k_BHSD.mT / math.sqrt(q_BHLD.shape[-1])


def _scaled_by(factor: Callable[[Tensor, Tensor], float]) -> Any:
    return lambda q, k: q @ k.mT * factor(q, k)


_SCALES = {
    "scale-missing": _scaled_by(lambda q, k: 1.0),
    "scale-twice": _scaled_by(lambda q, k: 1 / q.shape[-1]),
    "scale-multiplied": _scaled_by(lambda q, k: q.shape[-1] ** 0.5),
    "scale-model-width": _scaled_by(
        lambda q, k: (q.shape[1] * q.shape[-1]) ** -0.5
    ),
    "scale-num-heads": _scaled_by(lambda q, k: q.shape[1] ** -0.5),
    "scale-key-length": _scaled_by(lambda q, k: k.shape[2] ** -0.5),
}


def _queries_and_keys(**sizes: int) -> dict[str, Tensor]:
    q, k, _ = examples.example_qkv(**sizes, dtype=np.float64)
    return {"q_BHLD": torch.tensor(q), "k_BHSD": torch.tensor(k)}


def _examine_scale(answer: Any) -> list[Check]:
    cases = [
        _queries_and_keys(B=1, H=1, L=1, S=1, D=2),
        _queries_and_keys(B=1, H=2, L=2, S=3, D=5),
        _queries_and_keys(B=2, H=3, L=5, S=7, D=11),
    ]
    return [
        answers.function(
            "scores",
            answer,
            cases,
            _scores,
            bound=lambda q, k: rounding(_scores(q, k)),
            called="scores_BHLS",
            wrong=_SCALES,
        )
    ]


scale = Exercise(
    "scaled_dot_product.scale",
    _examine_scale,
    hints={
        "scores": (
            "The factor may depend on one size only. Which axis is summed?",
            "A sum of D terms of variance 1 has variance D. By what do you "
            "divide numbers to divide their variance by D?",
        )
    },
)

# -- causal: blank ----------------------------------------------------------


def _is_no_mask(result: Any) -> str | None:
    if "bool" in str(result.dtype):
        return None
    return (
        f"The mask has dtype {result.dtype}. A mask of numbers is added to the "
        "scores, where 0 forbids nothing; return a boolean one."
    )


_CAUSAL = {
    "mask-polarity": lambda L, S: ~masks.causal(L, S),
    "causal-transposed": lambda L, S: masks.causal(S, L).T,
    "causal-lower-right": lambda L, S: masks.causal(L, S, "lower_right"),
    "causal-off-by-one-future": lambda L, S: np.tri(L, S, 1, dtype=bool),
    "causal-off-by-one-self": lambda L, S: np.tri(L, S, -1, dtype=bool),
}


def _examine_causal(answer: Any) -> list[Check]:
    sizes = [(1, 1), (2, 3), (5, 3), (5, 7)]
    return [
        answers.function(
            "keys seen",
            answer,
            [{"L": L, "S": S} for L, S in sizes],
            masks.causal,
            called="keep_LS",
            wrong=_CAUSAL,
            refuse=_is_no_mask,
        )
    ]


causal = Exercise(
    "scaled_dot_product.causal",
    _examine_causal,
    hints={
        "keys seen": (
            "Draw the mask of two queries and three keys on paper first.",
            "Compare two arrays of positions: one as a column, one as a row.",
        )
    },
)

# -- an empty row: blank ----------------------------------------------------

EMPTY = 2


def _row_cases() -> list[dict[str, Tensor]]:
    rng = torch.Generator().manual_seed(3)
    cases = []
    for rows, keys, size, empty in (
        (1, 2, 1, []),
        (3, 5, 1, [EMPTY]),
        (5, 7, 1000, [EMPTY]),
        (2, 3, 1, [0, 1]),
    ):
        scores_LS = size * torch.randn(
            rows, keys, generator=rng, dtype=torch.float64
        )
        keep_LS = torch.ones(rows, keys, dtype=torch.bool)
        keep_LS[:, -1] = keys == 2  # one key is hidden from all
        keep_LS[empty] = False
        cases.append({"scores_LS": scores_LS, "keep_LS": keep_LS})
    return cases


def _weights(scores_LS: Tensor, keep_LS: Tensor) -> np.ndarray:
    scores = np.where(keep_LS.numpy(), scores_LS.detach().numpy(), -np.inf)
    largest = scores.max(-1, keepdims=True)
    raw = np.exp(scores - np.where(np.isinf(largest), 0, largest))
    total = raw.sum(-1, keepdims=True)
    return raw / np.where(total == 0, 1, total)


def _loss_weights(scores_LS: Tensor) -> np.ndarray:
    """Return a coefficient for every weight: a loss that reads all of them."""
    return np.cos(np.arange(scores_LS.numel())).reshape(scores_LS.shape)


def _gradient(scores_LS: Tensor, keep_LS: Tensor) -> np.ndarray:
    """Return w · (c − Σ w c), the gradient of Σ c w, by hand."""
    weights, c = _weights(scores_LS, keep_LS), _loss_weights(scores_LS)
    return weights * (c - (weights * c).sum(-1, keepdims=True))


def _gradient_of(softmax: Any) -> Any:
    def gradient(scores_LS: Tensor, keep_LS: Tensor) -> Tensor:
        scores_LS = scores_LS.requires_grad_()
        weights = softmax(scores_LS, keep_LS)
        loss = (weights * torch.tensor(_loss_weights(scores_LS))).sum()
        return torch.autograd.grad(loss, scores_LS)[0]

    return gradient


def _plain(scores: Tensor, keep: Tensor) -> Tensor:
    return torch.softmax(scores.masked_fill(~keep, -math.inf), -1)


def _not_shifted(scores: Tensor, keep: Tensor) -> Tensor:
    raw = scores.exp() * keep
    total = raw.sum(-1, keepdim=True)
    return raw / torch.where(total == 0, 1, total)


_SOFTMAXES = {
    "fully-masked-row-nan": _plain,
    "fully-masked-row-uniform": lambda scores, keep: torch.softmax(
        scores.masked_fill(~keep, -1e9), -1
    ),
    "mask-after-softmax": lambda scores, keep: torch.softmax(scores, -1) * keep,
    "mask-polarity": lambda scores, keep: torch.nan_to_num(
        _plain(scores, ~keep)
    ),
    "mask-ignored": lambda scores, keep: torch.softmax(scores, -1),
    "no-max-subtraction": _not_shifted,
}
_GRADIENTS = {
    "fully-masked-row-gradient-nan": _gradient_of(
        lambda scores, keep: torch.nan_to_num(
            torch.softmax(scores + torch.where(keep, 0.0, -math.inf), -1)
        )
    ),
}


def _examine_empty_row(answer: Any) -> list[Check]:
    found = answers.function(
        "weights",
        answer,
        _row_cases(),
        _weights,
        bound=lambda s, keep: rounding(_weights(s, keep)),
        called="weights_LS",
        wrong=_SOFTMAXES,
    )
    if not found.passed:
        return [found]
    return [
        found,
        answers.function(
            "gradient",
            _gradient_of(answer),
            _row_cases(),
            _gradient,
            bound=lambda s, keep: rounding(np.ones(1)),
            called="grad_LS",
            wrong=_GRADIENTS,
        ),
    ]


empty_row = Exercise(
    "scaled_dot_product.empty_row",
    _examine_empty_row,
    hints={
        "weights": (
            "Print the weights of an empty row, step by step.",
            "−∞ minus −∞ is NaN, and so is 0 divided by 0. Both can be avoided "
            "before they happen.",
        ),
        "gradient": (
            "What happens to a gradient of 0 on its way through a NaN?",
            "A repaired output does not repair the way back: see that no NaN "
            "arises, or that nothing goes back through it.",
        ),
    },
)

# -- polarity: a table of two by two ----------------------------------------

_APIS = ("scaled_dot_product_attention", "MultiheadAttention")


def _keys_read() -> dict[str, dict[bool, bool]]:
    """Run both operations on two keys; say which mask value lets a key in."""
    keep = torch.tensor([[True, False]])
    value = torch.tensor([[[1.0], [2.0]]])  # key 0 gives 1, key 1 gives 2
    query = torch.zeros(1, 1, 1)
    sdpa = torch.nn.functional.scaled_dot_product_attention(
        query, torch.zeros(1, 2, 1), value, attn_mask=keep
    )
    module = torch.nn.MultiheadAttention(1, 1, bias=False, batch_first=True)
    with torch.no_grad():
        for weight in (module.in_proj_weight, module.out_proj.weight):
            weight.fill_(1.0)
        theirs, _ = module(query, torch.zeros(1, 2, 1), value, attn_mask=keep)
    outs = dict(zip(_APIS, (sdpa.item(), theirs.item()), strict=True))
    return {
        name: {True: out == 1.0, False: out == 2.0}
        for name, out in outs.items()
    }


def _examine_polarity(answer: Any) -> list[Check]:
    keys = {f"{api}, {value}" for api in _APIS for value in (True, False)}
    if not isinstance(answer, dict) or set(answer) != keys:
        what = f"Keep the table's four entries: {', '.join(sorted(keys))}."
        return [Check("the table", False, what)]
    for key, value in answer.items():
        if not isinstance(value, bool | np.bool_):
            what = f"Write True or False for “{key}”, not {value!r}."
            return [Check("the table", False, what)]
    return [
        Check(
            api,
            all(answer[f"{api}, {v}"] == seen for v, seen in read.items()),
            "A run on two keys reads another key than your table says.",
        )
        for api, read in _keys_read().items()
    ]


_RUN_IT = (
    "Run it: one query, two keys, the values 1 and 2, the mask (True, False).",
    "If both keys were read, the output would be 1.5. What is it?",
)

polarity = Exercise(
    "scaled_dot_product.polarity",
    _examine_polarity,
    hints=dict.fromkeys(_APIS, _RUN_IT),
)

# -- the cost of additive attention -----------------------------------------


def _counted(L: int, S: int, D: int) -> int:
    """Compute additive scores in plain loops and count the multiplications."""
    rng = np.random.default_rng(0)
    q_LD, k_SD = rng.normal(size=(L, D)), rng.normal(size=(S, D))
    w_DD, u_DD = rng.normal(size=(D, D)), rng.normal(size=(D, D))
    a_D = rng.normal(size=D)
    count = 0

    def times(matrix: np.ndarray, vector: np.ndarray) -> list[float]:
        nonlocal count
        out = []
        for row in matrix:
            total = 0.0
            for x, y in zip(row, vector, strict=True):
                total += x * y
                count += 1
            out.append(total)
        return out

    queries = [times(w_DD, q) for q in q_LD]
    keys = [times(u_DD, k) for k in k_SD]
    for q in queries:
        for k in keys:
            hidden = np.tanh(np.add(q, k))
            times(hidden[None], a_D)
    return count


_COUNTS = {
    "W and U are applied once per query and once per key, not once per pair.": (
        lambda L, S, D: L * S * D * D
    ),
    "W q and U k are computed once each, not again for every pair.": (
        lambda L, S, D: 2 * L * S * D * D + L * S * D
    ),
    "The keys go through a matrix as well.": (
        lambda L, S, D: L * D * D + L * S * D
    ),
    "This leaves out the two matrices.": lambda L, S, D: L * S * D,
    "This leaves out the product with a, once per pair.": (
        lambda L, S, D: (L + S) * D * D
    ),
    "This is the cost of a dot product with two projections and the values.": (
        lambda L, S, D: (L + S) * D * D + 2 * L * S * D
    ),
}


def _examine_additive(answer: Any) -> list[Check]:
    sizes = [(1, 2, 3), (5, 7, 3), (3, 2, 11)]
    return [
        answers.function(
            "multiplications",
            answer,
            [dict(zip("LSD", size, strict=True)) for size in sizes],
            _counted,
            called="the count",
            wrong=_COUNTS,
        )
    ]


additive = Exercise(
    "scaled_dot_product.additive",
    _examine_additive,
    hints={
        "multiplications": (
            "Which parts of the formula need the query and the key together?",
            "Count three products one after the other: W q for all queries, "
            "U k for all keys, a · tanh(…) for all pairs.",
        )
    },
)
