"""Call any attention function on a case, whatever arrays it takes."""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attention_lab.verify.attention.case import (
    Case,
    arguments,
    out_gradient,
)
from attention_lab.verify.isolation.words import place_in_words


@dataclass(frozen=True)
class Outcome:
    """What one call gave: an output in float64, or a problem in words.

    `kind` is the problem's kind: "raised", "nothing", "type", "shape" or
    "dtype"; "" where there is none.
    """

    out_BHLD: np.ndarray | None
    problem: str = ""
    kind: str = ""


@dataclass
class Subject:
    """An attention function under test and what has been seen of it.

    `library` is "torch" or "numpy"; `names` maps our name of an optional
    argument that may be tested to the function's own, `has` are all that it
    has; `log` keeps every case and its outcome.
    With `explain` False, failures are neither shrunk nor named: much faster.
    """

    function: Callable
    library: str
    names: dict[str, str]
    abilities: frozenset[str]
    has: frozenset[str] = frozenset()
    log: dict[Case, Outcome] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    explain: bool = True
    by_keyword: tuple[str, ...] = ()
    pair_searches: int = 0
    naming_s: float = 0.0

    def supports(self, feature: str) -> bool:
        """Whether an optional argument or an ability may be tested."""
        return feature in self.names or feature in self.abilities

    def run(self, case: Case) -> Outcome:
        """Call the function on a case, once; the outcome is remembered."""
        if case not in self.log:
            self.log[case] = self.run_again(case)
        return self.log[case]

    def run_again(self, case: Case) -> Outcome:
        """Call the function on a case."""
        try:
            result = self.call(*self.everything(case))
        except Exception as error:
            return Outcome(None, describe_error(error), "raised")
        return self.read(result, case)

    def arrays(self, case: Case) -> dict[str, Any]:
        """Return query, key, value in the function's library and dtype."""
        given = {}
        for name in ("query", "key", "value"):
            array = arguments(case)[name]
            if case.strided:
                # The same numbers, laid out as (B, L, H, D) in memory.
                array = np.ascontiguousarray(array.swapaxes(1, 2))
            array = self._convert(array, case.dtype)
            given[name] = array.swapaxes(1, 2) if case.strided else array
        return given

    def call(self, arrays: dict[str, Any], options: dict[str, Any]) -> Any:
        """Call the function with arrays of its library; may raise anything.

        `arrays` are query, key, value and possibly attn_mask; `options` the
        other arguments, by our names.
        """
        given = dict(options)
        if arrays.get("attn_mask") is not None:
            given["attn_mask"] = arrays["attn_mask"]
        named = {self.names[name]: value for name, value in given.items()}
        inputs = [arrays[name] for name in ("query", "key", "value")]
        if self.by_keyword:
            named |= zip(self.by_keyword, inputs, strict=True)
            inputs = []
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return self.function(*inputs, **named)

    def mask(self, case: Case) -> Any:
        """Return a case's mask in the function's library, or None."""
        mask = arguments(case)["attn_mask"]
        if mask is None:
            return None
        is_bool = mask.dtype == bool
        return self._convert(mask, "bool" if is_bool else case.dtype)

    def everything(self, case: Case) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return a case's arrays, with its mask, and its other arguments."""
        arrays = self.arrays(case) | {"attn_mask": self.mask(case)}
        options = case.options()
        options.pop("attn_mask", None)
        return arrays, options

    def gradients(self, case: Case) -> dict[str, np.ndarray | None]:
        """Send `out_gradient(case)` back; None where nothing arrives."""
        given, options = self.everything(case)
        mask = given.pop("attn_mask")
        arrays = {name: x.requires_grad_() for name, x in given.items()}
        out = first_array(self.call(arrays | {"attn_mask": mask}, options))
        if not out.requires_grad:
            return dict.fromkeys(arrays)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out.backward(self._convert(out_gradient(case), case.dtype))
        return {
            name: None
            if array.grad is None
            else array.grad.double().numpy().copy()
            for name, array in arrays.items()
        }

    def _convert(self, array: np.ndarray, dtype: str) -> Any:
        """Return a fresh, contiguous array of the function's library."""
        if self.library == "numpy":
            return np.array(array, dtype=dtype, order="C")
        import torch  # the function takes tensors

        tensor = torch.from_numpy(np.array(array, order="C"))
        return tensor.to(getattr(torch, dtype))

    def read(self, result: Any, case: Case) -> Outcome:
        """Turn what was returned into an outcome."""
        if result is None:
            return Outcome(
                None, "it returns None instead of an array", "nothing"
            )
        try:
            return self._read(first_array(result), case)
        except Exception as error:
            return Outcome(
                None,
                f"what it returns cannot be read: {describe_error(error)}",
                "type",
            )

    def _read(self, out: Any, case: Case) -> Outcome:
        if not hasattr(out, "shape") or not hasattr(out, "dtype"):
            kind = type(out).__name__
            return Outcome(
                None, f"it returns a {kind} instead of an array", "type"
            )
        n = case.sizes
        wanted = (n.B, n.H, n.L, n.D_v)
        if tuple(out.shape) != wanted:
            return Outcome(
                None,
                f"it returns shape {tuple(out.shape)}, but (B, H, L, D_v) is "
                f"{wanted}",
                "shape",
            )
        return Outcome(as_float64(out), *_wrong_dtype(out, case.dtype))


def first_array(result: Any) -> Any:
    """Return the output of a function that may return more beside it."""
    has_more = isinstance(result, tuple | list) and len(result) > 0
    return result[0] if has_more and hasattr(result[0], "shape") else result


def as_float64(array: Any) -> np.ndarray:
    """Copy any array or tensor to a float64 NumPy array."""
    if hasattr(array, "detach"):
        array = array.detach().cpu().double().numpy()
    return np.array(array, dtype=np.float64)


def describe_error(error: BaseException) -> str:
    """Say in one line what was raised."""
    text = " ".join(str(error).split())
    text = f"{text[:157]}…" if len(text) > 158 else text
    text = text.rstrip(".")
    name = type(error).__name__
    place = place_in_words(error)
    where = f" ({place})" if place else ""
    what = f"it raises {name}: {text}" if text else f"it raises {name}"
    return f"{what}{where}"


def _dtype(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def _wrong_dtype(out: Any, wanted: str) -> tuple[str, str]:
    """Return the problem with an output's dtype and its kind, or nothing."""
    found = _dtype(out)
    if found == wanted:
        return "", ""
    return f"it returns {found}, but query has {wanted}", "dtype"
