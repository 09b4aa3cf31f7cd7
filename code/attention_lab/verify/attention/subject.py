"""Call any attention function on a case, whatever arrays it takes."""

import inspect
import warnings
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attention_lab.verify.attention.case import (
    Case,
    arguments,
    out_gradient,
    sizes,
)

#: Our name of an optional argument -> the names that people give it.
NAMES = {
    "attn_mask": ("attn_mask", "mask", "attention_mask"),
    "is_causal": ("is_causal", "causal"),
    "scale": ("scale", "softmax_scale", "sm_scale"),
    "enable_gqa": ("enable_gqa", "gqa"),
}
#: What a function may be said to support, besides its optional arguments.
ABILITIES = (
    "cross_attention",
    "value_width",
    "float_mask",
    "half_precision",
    "double_precision",
    "gradients",
)


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
    pair_searches: int = 0

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
            result = self.call(self.arrays(case), case.options())
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
        """Call the function with arrays of its library; may raise anything."""
        named = {}
        for name, value in options.items():
            if name == "attn_mask":
                is_bool = value.dtype == bool
                dtype = "bool" if is_bool else str(_dtype(arrays["query"]))
                value = self._convert(value, dtype)
            named[self.names[name]] = value
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            return self.function(
                arrays["query"], arrays["key"], arrays["value"], **named
            )

    def gradients(self, case: Case) -> dict[str, np.ndarray | None]:
        """Send `out_gradient(case)` back; None where nothing arrives."""
        arrays = {
            name: array.requires_grad_()
            for name, array in self.arrays(case).items()
        }
        out = first_array(self.call(arrays, case.options()))
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
        out = first_array(result)
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
        try:
            return Outcome(as_float64(out), *_wrong_dtype(out, case.dtype))
        except Exception as error:
            return Outcome(
                None,
                f"what it returns cannot be read: {describe_error(error)}",
                "type",
            )


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
    return f"it raises {name}: {text}" if text else f"it raises {name}"


def check_supports(supports: Collection[str] | None) -> None:
    """Refuse words that are neither an optional argument nor an ability.

    Raises
    ------
    ValueError
        Lists the words that are known.
    """
    known = (*NAMES, *ABILITIES)
    if isinstance(supports, str) or (
        supports is not None and not set(supports) <= set(known)
    ):
        raise ValueError(
            f"supports must be a collection of {', '.join(known)}, not "
            f"{supports!r}"
        )


def read_subject(
    function: Callable, supports: Collection[str] | None
) -> Subject:
    """Find out how a function wants to be called, by calling it once."""
    names = _names_of(function)
    abilities = set(ABILITIES)
    has = frozenset(names)
    if supports is not None:
        names = {k: v for k, v in names.items() if k in supports}
        abilities &= set(supports)
    library = _library_of(function, names, abilities)
    if library != "torch":
        abilities -= {"gradients"}
    return Subject(function, library, names, frozenset(abilities), has)


def _names_of(function: Callable) -> dict[str, str]:
    """Read which optional arguments a function has, and their names."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # built-ins, such as PyTorch's own
        return {name: name for name in NAMES}
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return {name: name for name in NAMES}
    return {
        name: alias
        for name, aliases in NAMES.items()
        for alias in aliases
        if alias in parameters
    }


def _library_of(
    function: Callable, names: dict[str, str], abilities: set[str]
) -> str:
    """Try tensors, then NumPy arrays: take the first that gives such back."""
    case = Case(sizes(1, 2, 3, 3, 4))
    libraries = ["torch", "numpy"] if has_torch() else ["numpy"]
    runs = {}
    for library in libraries:
        subject = Subject(function, library, names, frozenset(abilities))
        try:
            out = first_array(subject.call(subject.arrays(case), {}))
        except Exception as error:
            runs[library] = error
            continue
        if _is_of(out, library):
            return library
        runs[library] = out
    # Nothing fits: report on what it seems to be written for.
    code = getattr(function, "__globals__", {})
    words = getattr(getattr(function, "__code__", None), "co_names", ())
    modules = {
        getattr(code.get(word), "__name__", "").partition(".")[0]
        for word in words
    }
    wants_numpy = "numpy" in modules and "torch" not in modules
    gave_array = hasattr(runs.get("numpy"), "shape")
    return "numpy" if wants_numpy or gave_array else libraries[0]


def has_torch() -> bool:
    """Whether PyTorch is installed; imports it."""
    try:
        import torch  # noqa: F401 - only whether it is there
    except ImportError:
        return False
    return True


def _is_of(out: Any, library: str) -> bool:
    is_tensor = type(out).__module__.startswith("torch")
    return hasattr(out, "shape") and is_tensor == (library == "torch")


def _dtype(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


def _wrong_dtype(out: Any, wanted: str) -> tuple[str, str]:
    """Return the problem with an output's dtype and its kind, or nothing."""
    found = _dtype(out)
    if found == wanted:
        return "", ""
    return f"it returns {found}, but query has {wanted}", "dtype"
