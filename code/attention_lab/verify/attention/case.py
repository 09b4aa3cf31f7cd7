"""Inputs on which attention functions are tried, small and made by a rule.

A case is a recipe: sizes, options, how its mask is made. The same recipe at
smaller sizes is again a case, so that a failing one can be shrunk.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from attention_lab.error_bound import error_bound
from attention_lab.reference import (
    ReferenceGradients,
    attention_gradients_reference,
    attention_reference,
)


class Sizes(NamedTuple):
    """One size per axis; `H_kv` heads of keys and values, `D_v` their width."""

    B: int
    H: int
    H_kv: int
    L: int
    S: int
    D: int
    D_v: int


def sizes(
    B: int,
    H: int,
    L: int,
    S: int,
    D: int,
    D_v: int | None = None,
    H_kv: int | None = None,
) -> Sizes:
    """Return sizes in which D_v is D and H_kv is H unless told otherwise."""
    return Sizes(
        B,
        H,
        H if H_kv is None else H_kv,
        L,
        S,
        D,
        D if D_v is None else D_v,
    )


def _see_own_and_some(n: Sizes, rng: np.random.Generator) -> np.ndarray:
    """Let every query see a third of the keys, and one of them for sure."""
    keep = rng.random((n.B, n.H, n.L, n.S)) < 0.35
    sure = rng.integers(n.S, size=(n.B, n.H, n.L, 1))
    np.put_along_axis(keep, sure, True, axis=-1)
    return keep


def _per_sample(n: Sizes, rng: np.random.Generator) -> np.ndarray:
    return _see_own_and_some(n._replace(H=1), rng)


def _per_head(n: Sizes, rng: np.random.Generator) -> np.ndarray:
    return _see_own_and_some(n._replace(B=1), rng)


def _for_all(n: Sizes, rng: np.random.Generator) -> np.ndarray:
    return _see_own_and_some(n._replace(B=1, H=1), rng)[0, 0]


def _padding(n: Sizes, rng: np.random.Generator) -> np.ndarray:
    """Hide the last keys of each sample; another number in every sample."""
    lengths = 1 + (np.arange(n.B) + n.S // 2) % max(n.S - 1, 1)
    return (np.arange(n.S) < lengths[:, None])[:, None, None]


def _left_padding(n: Sizes, rng: np.random.Generator) -> np.ndarray:
    return _padding(n, rng)[..., ::-1]


def _empty_row(n: Sizes, rng: np.random.Generator) -> np.ndarray:
    """Hide every key from the last query."""
    keep = _for_all(n, rng)
    keep[-1] = False
    return keep


def _added(keep: np.ndarray, n: Sizes, rng: np.random.Generator) -> np.ndarray:
    """Return numbers to add: some finite, −∞ where `keep` is False."""
    return np.where(keep, 2 * rng.standard_normal(keep.shape), -np.inf)


#: How a mask is made, by name; all are True = may attend, or added.
MASKS: dict[str, Callable[[Sizes, np.random.Generator], np.ndarray]] = {
    "(L, S)": _for_all,
    "(B, 1, L, S)": _per_sample,
    "(1, H, L, S)": _per_head,
    "(B, H, L, S)": _see_own_and_some,
    "padding (B, 1, 1, S)": _padding,
    "left padding (B, 1, 1, S)": _left_padding,
    "last row empty (L, S)": _empty_row,
    "whole rows (B, 1, L, 1)": lambda n, rng: (
        rng.random((n.B, 1, n.L, 1)) < 0.5
    ),
    "added (L, S)": lambda n, rng: _added(_for_all(n, rng), n, rng),
    "added (B, 1, L, S)": lambda n, rng: _added(_per_sample(n, rng), n, rng),
    "added (1, H, 1, S)": lambda n, rng: _added(
        _per_head(n._replace(L=1), rng), n, rng
    ),
    "added, last row empty (L, S)": lambda n, rng: _added(
        _empty_row(n, rng), n, rng
    ),
    # Low, but not −∞: the row is an ordinary softmax.
    "added, −300 everywhere (L, S)": lambda n, rng: np.full((n.L, n.S), -300.0),
}


def _also_causal(name: str) -> Callable[[Sizes, np.random.Generator], Any]:
    def mask(n: Sizes, rng: np.random.Generator) -> np.ndarray:
        given = MASKS[name](n, rng)
        seen = np.tri(n.L, n.S, dtype=bool)
        is_bool = given.dtype == bool
        return given & seen if is_bool else np.where(seen, given, -np.inf)

    return mask


for _name in ("padding (B, 1, 1, S)", "added (L, S)"):
    MASKS[f"{_name} and causal"] = _also_causal(_name)


@dataclass(frozen=True)
class Case:
    """A recipe for the arguments of one call.

    `gain` multiplies the queries, and with them the scores. `hidden` says
    what stands at the last key of the padding or of the causal triangle:
    "huge" makes it dominate wherever it is seen. `values` is "random", or
    "identity" so that the output shows the weights. `strided` hands over
    transposed views.
    """

    sizes: Sizes
    mask: str | None = None
    is_causal: bool = False
    scale: float | None = None
    gain: float = 1.0
    hidden: str = "ordinary"
    values: str = "random"
    dtype: str = "float32"
    strided: bool = False

    def options(self) -> dict[str, Any]:
        """Return the other arguments, without those left at their default."""
        given: dict[str, Any] = {}
        if self.mask is not None:
            given["attn_mask"] = arguments(self)["attn_mask"]
        if self.is_causal:
            given["is_causal"] = True
        if self.scale is not None:
            given["scale"] = self.scale
        if self.sizes.H_kv != self.sizes.H:
            given["enable_gqa"] = True
        return given

    def smaller(self, axis: str, size: int) -> "Case":
        """Return the same recipe with another size along one axis."""
        return replace(self, sizes=self.sizes._replace(**{axis: size}))


@lru_cache(maxsize=512)
def arguments(case: Case) -> dict[str, Any]:
    """Make a case's arrays; float64, but exact in the case's dtype.

    Returns query (B, H, L, D), key (B, H_kv, S, D), value (B, H_kv, S, D_v)
    and attn_mask or None. Nobody may write into them: they are shared.
    """
    n = case.sizes
    rng = np.random.default_rng([len(n), *n])
    query = case.gain * rng.standard_normal((n.B, n.H, n.L, n.D))
    key = rng.standard_normal((n.B, n.H_kv, n.S, n.D))
    value = rng.standard_normal((n.B, n.H_kv, n.S, n.D_v))
    mask = None if case.mask is None else MASKS[case.mask](n, rng)
    if case.hidden == "huge":
        key, value = _make_hidden_huge(case, key, value, mask)
    if case.values == "identity":
        value = np.broadcast_to(np.eye(n.S), (n.B, n.H_kv, n.S, n.S))
    if mask is not None and mask.dtype != bool:
        mask = _exact(mask, case.dtype)
    arrays = {
        "query": _exact(query, case.dtype),
        "key": _exact(key, case.dtype),
        "value": _exact(value, case.dtype),
        "attn_mask": mask,
    }
    for array in arrays.values():
        if array is not None:
            array.flags.writeable = False
    return arrays


def _make_hidden_huge(
    case: Case, key: np.ndarray, value: np.ndarray, mask: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Let the keys that a mask hides dominate, where they are seen at all."""
    S = case.sizes.S
    hidden = np.zeros((case.sizes.B, 1, S, 1), bool)
    if mask is not None:
        hidden = ~mask.any(axis=(1, 2))[:, None, :, None]
    elif case.is_causal:
        hidden[:, :, -1] = True
    return np.where(hidden, 3000 * key, key), np.where(hidden, 1e4, value)


def _exact(array: np.ndarray, dtype: str) -> np.ndarray:
    """Round to a dtype and return float64."""
    if dtype == "bfloat16":
        bits = np.ascontiguousarray(array, np.float32).view(np.uint32)
        return (bits & 0xFFFF0000).view(np.float32).astype(np.float64)
    with np.errstate(over="ignore"):
        return np.array(np.asarray(array, dtype), np.float64)


class Right(NamedTuple):
    """The right output in float64, and how far a correct one may be from it."""

    out_BHLD: np.ndarray
    bound: float


@lru_cache(maxsize=512)
def right_answer(case: Case) -> Right:
    """Compute a case's output in float64 and its error bound."""
    call = _call(case)
    return Right(attention_reference(**call).out_BHLD, error_bound(**call))


@lru_cache(maxsize=64)
def right_gradients(case: Case) -> ReferenceGradients:
    """Compute a case's gradients in float64, for `out_gradient(case)`."""
    return attention_gradients_reference(out_gradient(case), **_call(case))


def sees_nothing(case: Case) -> np.ndarray:
    """Return which queries may see no key; (B, H, L)."""
    n = case.sizes
    seen = np.ones((n.B, n.H, n.L, n.S), bool)
    mask = arguments(case)["attn_mask"]
    if mask is not None:
        seen = seen & (mask if mask.dtype == bool else mask > -np.inf)
    if case.is_causal:
        seen = seen & np.tri(n.L, n.S, dtype=bool)
    return ~seen.any(-1)


def out_gradient(case: Case) -> np.ndarray:
    """Return the gradient that is sent back through the output."""
    n = case.sizes
    rng = np.random.default_rng(1)
    return _exact(rng.standard_normal((n.B, n.H, n.L, n.D_v)), case.dtype)


def _call(case: Case) -> dict[str, Any]:
    """Return the arguments in the case's own precision, for the reference."""
    given = case.options()
    arrays = arguments(case)
    mask = arrays["attn_mask"]
    if mask is not None:
        given["attn_mask"] = (
            mask if mask.dtype == bool else in_dtype(mask, case.dtype)
        )
    for name in ("query", "key", "value"):
        given[name] = in_dtype(arrays[name], case.dtype)
    return given


def in_dtype(array: np.ndarray, dtype: str) -> Any:
    """Return an array in a dtype; a tensor for bfloat16, which NumPy lacks."""
    if dtype == "bfloat16":
        import torch  # only cases for torch functions have this dtype

        return torch.from_numpy(array.copy()).bfloat16()
    return array.astype(dtype)
