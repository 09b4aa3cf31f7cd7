"""Find out how an attention function wants to be called."""

import inspect
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from attention_lab.verify.attention.case import Case, sizes
from attention_lab.verify.attention.subject import Subject, first_array

Parameters = dict[str, inspect.Parameter]

#: Our name of an optional argument -> the names that people give it.
NAMES = {
    "attn_mask": (
        "attn_mask",
        "mask",
        "attention_mask",
        "src_mask",
        "attn_bias",
        "bias",
    ),
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
    "empty",
)
#: Names of query, key and value, for functions that take them by keyword.
INPUTS = (("query", "q"), ("key", "k", "keys"), ("value", "v", "values"))
#: Arguments whose default is what is wanted here.
LEFT_ALONE = ("dropout_p", "dropout", "p_drop", "training", "need_weights")


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
    parameters = _parameters(function)
    subject = Subject(
        function,
        "torch",
        _names_of(parameters),
        frozenset(ABILITIES),
        by_keyword=_inputs_by_keyword(parameters),
    )
    subject.library = _library_of(subject)
    if _takes_any_word(parameters):
        subject.names = _accepted(subject)
    subject.has = frozenset(subject.names)
    if supports is not None:
        asked = {k: v for k, v in subject.names.items() if k in supports}
        subject.names = asked
        subject.abilities &= frozenset(supports)
    if subject.library != "torch":
        subject.abilities -= {"gradients"}
    subject.notes += [
        f"The argument {name} was never given."
        for name in _never_given(parameters)
    ]
    return subject


def _parameters(function: Callable) -> Parameters | None:
    """Return a function's parameters by name; None where nobody can know."""
    schema = getattr(function, "schema", None)
    if schema is not None and hasattr(schema, "arguments"):  # TorchScript
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return {
            one.name: inspect.Parameter(one.name, kind)
            for one in schema.arguments
        }
    # A module's own call takes anything and hands it to `forward`.
    function = getattr(function, "forward", function)
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):  # built-ins, such as PyTorch's own
        return None


def _takes_any_word(parameters: Parameters | None) -> bool:
    return parameters is None or any(
        p.kind is p.VAR_KEYWORD for p in parameters.values()
    )


def _names_of(parameters: Parameters | None) -> dict[str, str]:
    """Read which optional arguments a function has, and their names."""
    found = {
        name: next(
            (alias for alias in aliases if alias in (parameters or {})), ""
        )
        for name, aliases in NAMES.items()
    }
    if _takes_any_word(parameters):
        found = {name: alias or name for name, alias in found.items()}
    return {name: alias for name, alias in found.items() if alias}


def _inputs_by_keyword(parameters: Parameters | None) -> tuple[str, ...]:
    """Return the names of query, key and value if they are keyword-only."""
    by_keyword = {
        name
        for name, p in (parameters or {}).items()
        if p.kind is p.KEYWORD_ONLY
    }
    found = [
        next((name for name in names if name in by_keyword), "")
        for names in INPUTS
    ]
    return tuple(found) if all(found) else ()


def _never_given(parameters: Parameters | None) -> list[str]:
    """Return optional arguments that the battery has no use for."""
    known = {alias for aliases in NAMES.values() for alias in aliases}
    known |= {alias for aliases in INPUTS for alias in aliases}
    return [
        name
        for name, p in list((parameters or {}).items())[3:]
        if name not in (*known, *LEFT_ALONE)
        and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
    ]


def _accepted(subject: Subject) -> dict[str, str]:
    """Try every optional argument of a function that would take any word."""
    n = sizes(1, 2, 3, 3, 4)
    tries = {
        "attn_mask": Case(n, mask="(L, S)"),
        "is_causal": Case(n, is_causal=True),
        "scale": Case(n, scale=0.5),
        "enable_gqa": Case(n._replace(H_kv=1)),
    }
    refusals = ("unexpected keyword", "unknown keyword")
    return {
        name: alias
        for name, alias in subject.names.items()
        if not any(
            words in subject.run_again(tries[name]).problem.lower()
            for words in refusals
        )
    }


def _library_of(subject: Subject) -> str:
    """Take the first library of which arrays go in and come out."""
    case = Case(sizes(1, 2, 3, 3, 4))
    words = _modules_named_in(subject.function)
    wants_numpy = "numpy" in words and "torch" not in words
    libraries = ["torch", "numpy"] if has_torch() else ["numpy"]
    if wants_numpy:
        libraries.reverse()
    outs = {}
    for library in libraries:
        one = replace(subject, library=library)
        try:
            outs[library] = first_array(one.call(one.arrays(case), {}))
        except Exception:
            continue
        if _is_of(outs[library], library):
            return library
    # JAX takes NumPy arrays and returns its own. If nothing fits, report on
    # what the function seems to be written for.
    if hasattr(outs.get("numpy"), "shape"):
        return "numpy"
    return libraries[0]


def _modules_named_in(function: Callable) -> set[str]:
    """Return the top-level modules that a function's code names."""
    scope = getattr(function, "__globals__", {})
    words = getattr(getattr(function, "__code__", None), "co_names", ())
    return {
        getattr(scope.get(word), "__name__", "").partition(".")[0]
        for word in words
    }


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
