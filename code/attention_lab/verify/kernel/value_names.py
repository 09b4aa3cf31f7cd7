"""Which known mistake gives these values: compare with wrong answers.

A wrong answer is a function of the inputs that computes, in NumPy, what a
kernel with one known mistake gives. A mistake is named if its answer agrees
with the kernel's at *every* tested size and differs from the right one at some.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from attention_lab.verify.kernel.bench import Prepared, Run, as_outputs
from attention_lab.verify.kernel.bounds import rounding_bounds
from attention_lab.verify.kernel.compare import compare, largest_difference
from attention_lab.verify.known_mistakes import known_mistakes

WrongAnswers = Mapping[str, Any]
#: How many times the allowed error no rounding explains.
FAR = 1000.0


def name_values(
    runs: Iterable[tuple[Prepared, Run]], wrong_answers: WrongAnswers | None
) -> tuple[str | None, str]:
    """Return the id of the mistake, and its name where it has no card.

    Parameters
    ----------
    runs : every tested size that ran to its end.
    wrong_answers : mistake -> a function of the inputs, or several; the first
        mistake that fits is named.
    """
    # Small sizes hide most mistakes; large ones rule an answer out at once.
    runs = list(runs)[::-1]
    for name, functions in (wrong_answers or {}).items():
        many = functions if isinstance(functions, tuple | list) else [functions]
        if any(_explains(function, runs) for function in many):
            return (name, name) if name in known_mistakes() else (None, name)
    if _only_nan_differs(runs):
        return "nan-blind-test", ""
    return None, ""


def _explains(
    function: Callable[..., Any], runs: list[tuple[Prepared, Run]]
) -> bool:
    differs = False
    for case, run in runs:
        try:
            with np.errstate(all="ignore"):
                wrong = _answer(function, case, run)
                bounds = _own_bounds(function, case, run, wrong)
        except Exception:
            return False  # a mistake that cannot be made on these inputs
        compared = partial(largest_difference, missing=run.missing)
        if compared(run.outputs, wrong, bounds, equal_nan=True):
            return False
        differs = differs or bool(
            compared(wrong, case.expected, bounds, equal_nan=True)
        )
    return differs


def _answer(
    function: Callable[..., Any], case: Prepared, run: Run
) -> tuple[np.ndarray, ...]:
    wrong = as_outputs(function(*case.given))[: len(run.outputs)]
    for one, output in zip(wrong, run.outputs, strict=True):
        if one.shape != output.shape:
            raise ValueError("another shape")
    return wrong


def _own_bounds(
    function: Callable[..., Any],
    case: Prepared,
    run: Run,
    wrong: tuple[np.ndarray, ...],
) -> tuple[float, ...]:
    """Return the bounds for a wrong answer: its rounding errors may be larger.

    Where the kernel is further away than any rounding, they need not be known.
    """
    far = tuple(FAR * bound for bound in case.bounds)
    if largest_difference(run.outputs, wrong, far, run.missing, equal_nan=True):
        return case.bounds
    own = rounding_bounds(
        lambda *given: as_outputs(function(*given)),
        case.given,
        wrong,
        [a.dtype for a in run.outputs],
    )
    return tuple(max(a, b) for a, b in zip(case.bounds, own, strict=True))


def _only_nan_differs(runs: list[tuple[Prepared, Run]]) -> bool:
    """Say whether a comparison that skips NaN would find nothing.

    That is what max(error, NaN) does where max keeps its first argument. There
    must be elements to compare beside the NaN, and all must be right.
    """
    found = False
    for case, run in runs:
        hidden = tuple(
            absent | (np.isnan(got) if got.dtype.kind == "f" else absent)
            for got, absent in zip(run.outputs, run.missing, strict=True)
        )
        seen = replace(run, missing=hidden)
        if compare(case, seen) is not None:
            return False
        has_others = not all(absent.all() for absent in hidden)
        found = found or (has_others and compare(case, run) is not None)
    return found
