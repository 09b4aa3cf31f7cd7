"""Hostile inputs, and what float64 says about them."""

import functools
from typing import Any, NamedTuple

import numpy as np
from machine import SEED

from attention_lab import masks
from attention_lab.error_bound import (
    error_bound,
    gradient_error_bound,
    lse_error_bound,
    ulp,
)
from attention_lab.reference import (
    attention_gradients_reference,
    attention_reference,
)


class Case(NamedTuple):
    """Sizes of one attention call; factor multiplies the queries.

    mask : "", "causal", "masked rows" (the first row sees no key), "lower
        right", or "added" (numbers to add to the scores).
    """

    name: str
    L: int
    S: int
    D: int = 19
    D_v: int = 7
    B: int = 2
    H: int = 4
    H_kv: int = 4
    factor: float = 1.0
    mask: str = ""


#: 64 is the largest tile of the kernels; 19 and 7 are no multiple of anything.
#: Cases that differ in lengths only share a compiled kernel.
CASES = (
    Case("primes, L < S", 37, 53),
    Case("scores × 100", 37, 53, factor=100.0),
    Case("causal, L < S", 37, 53, mask="causal"),
    Case("causal, L > S", 53, 37, mask="causal"),
    Case("masked rows", 37, 53, mask="masked rows"),
    Case("tile − 1, tile + 1", 63, 65),
    Case("tile, tile", 64, 64),
    Case("tile + 1, tile − 1", 65, 63),
    Case("GQA", 37, 53, H=6, H_kv=2),
    Case("GQA, masked rows", 53, 37, H=6, H_kv=2, mask="masked rows"),
    Case("causal at the lower right", 37, 53, mask="lower right"),
    Case("numbers to add", 37, 53, mask="added"),
    Case("D = 64, several tiles", 129, 131, 64, 64, B=1, H=2, H_kv=2),
    Case("D = 64, causal, × 100", 129, 131, 64, 64, 1, 2, 2, 100.0, "causal"),
    Case("one of everything", 1, 1, 1, 1, 1, 1, 1),
)
QUICK_CASES = (
    Case("primes", 5, 7, 3, 2, 1, 2, 2),
    Case("causal, × 100", 5, 7, 3, 2, 1, 2, 2, 100.0, "causal"),
    Case("GQA, masked rows", 5, 7, 3, 2, 1, 4, 2, mask="masked rows"),
)
#: L, S, D of a matrix product, and a factor; 128 is the largest tile.
PRODUCTS = (
    (1, 1, 1, 1.0),
    (131, 67, 37, 1.0),
    (127, 129, 7, 1.0),
    (129, 127, 9, 100.0),
    (128, 128, 8, 1.0),
    (257, 193, 131, 1.0),
)
QUICK_PRODUCTS = ((1, 1, 1, 1.0), (17, 13, 11, 100.0))


class Question(NamedTuple):
    """The arrays of a case, its options, and the gradient of its output."""

    qkv: tuple[np.ndarray, np.ndarray, np.ndarray]
    options: dict[str, Any]
    out_grad: np.ndarray


class Answer(NamedTuple):
    """Exact results by name, and the error that each may have."""

    exact: dict[str, np.ndarray]
    bound: dict[str, float]


@functools.cache
def question(case: Case, dtype: str) -> Question:
    """Return the input of a case in some precision; always the same."""
    rng = np.random.default_rng(SEED)

    def normal(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(dtype)

    q = normal(case.B, case.H, case.L, case.D) * np.dtype(dtype).type(
        case.factor
    )
    k = normal(case.B, case.H_kv, case.S, case.D)
    v = normal(case.B, case.H_kv, case.S, case.D_v)
    out_grad = normal(case.B, case.H, case.L, case.D_v)
    options: dict[str, Any] = {"enable_gqa": case.H_kv != case.H}
    if case.mask == "causal":
        options["is_causal"] = True
    elif case.mask == "lower right":
        options["attn_mask"] = masks.causal(case.L, case.S, "lower_right")
    elif case.mask == "masked rows":
        keep = rng.random((case.B, case.H, case.L, case.S)) > 0.3
        keep[:, :, 0] = False
        options["attn_mask"] = keep
    elif case.mask == "added":
        options["attn_mask"] = normal(case.L, case.S)
    elif case.mask:
        raise ValueError(f"mask is {case.mask!r}, which no case has")
    return Question((q, k, v), options, out_grad)


@functools.cache
def forward_answer(case: Case, dtype: str) -> Answer:
    """Return output and log-sum-exp in float64, and their bounds."""
    (q, k, v), options, _ = question(case, dtype)
    exact = attention_reference(q, k, v, **options)
    return Answer(
        {"out": exact.out_BHLD, "lse": exact.lse_BHL},
        {
            "out": error_bound(q, k, v, **options),
            "lse": lse_error_bound(q, k, v, **options),
        },
    )


@functools.cache
def backward_answer(case: Case, dtype: str) -> Answer:
    """Return the gradients in float64, and their bounds."""
    qkv, options, out_grad = question(case, dtype)
    exact = attention_gradients_reference(out_grad, *qkv, **options)
    bounds = gradient_error_bound(out_grad, *qkv, **options)
    names = ("query", "key", "value")
    return Answer(
        dict(zip(names, exact, strict=True)),
        dict(zip(names, bounds, strict=True)),
    )


@functools.cache
def product(
    L: int, S: int, D: int, factor: float
) -> tuple[np.ndarray, np.ndarray, Answer]:
    """Return two factors, their product in float64, and its bound.

    The rule of `error_bound`, with two plain float32 products.
    """
    rng = np.random.default_rng(SEED)
    a = (rng.standard_normal((L, D)) * factor).astype("f4")
    b = rng.standard_normal((D, S)).astype("f4")
    exact = a.astype("f8") @ b.astype("f8")
    one_by_one = np.zeros_like(exact, dtype="f4")
    for d in range(D):
        one_by_one += a[:, d, None] * b[d]
    worst = max(np.abs(x - exact).max() for x in (a @ b, one_by_one))
    bound = 2 * worst + 2 * ulp(np.abs(exact).max(), "float32")
    return a, b, Answer({"out": exact}, {"out": bound})


def share_of_bound(answer: Answer, found: dict[str, Any]) -> float:
    """Return the largest error, as a share of what is allowed.

    1 is just allowed. A result of another shape, a NaN, or an infinity in
    another place gives infinity.

    Examples
    --------
    >>> answer = Answer({"out": np.ones(2)}, {"out": 0.5})
    >>> share_of_bound(answer, {"out": np.array([1.0, 1.25])})
    0.5
    >>> share_of_bound(answer, {"out": np.array([1.0, np.nan])})
    inf
    """
    worst = 0.0
    for name, array in found.items():
        exact, bound = answer.exact[name], answer.bound[name]
        if hasattr(array, "detach"):
            array = array.detach().cpu().numpy()
        got = np.asarray(array, np.float64)
        if got.shape != exact.shape:
            return float("inf")
        same = got == exact  # also where both are −∞
        if not np.isfinite(got[~same]).all():
            return float("inf")
        error = np.abs(got[~same] - exact[~same]).max(initial=0.0)
        if not np.isfinite(error):
            return float("inf")
        worst = max(worst, error / bound if error else 0.0)
    return float(worst)
