"""Verify any attention function: run the checks and report in words."""

from collections.abc import Callable, Collection
from typing import Any

from attention_lab.verify.attention.case import right_answer
from attention_lab.verify.attention.kinds import KINDS
from attention_lab.verify.attention.signature import (
    NAMES,
    check_supports,
    has_torch,
    read_subject,
)
from attention_lab.verify.attention.subject import Subject
from attention_lab.verify.choice import chosen_checks
from attention_lab.verify.hints import with_growing_hints
from attention_lab.verify.isolation.isolated import Progress, isolated_report
from attention_lab.verify.report import Check, Report

#: Without these, the other checks would repeat the same failure, or compare
#: noise.
FIRST = ("runs", "shape", "repeatable")


def verify_attention(
    fn: Callable[..., Any],
    *,
    supports: Collection[str] | None = None,
    only: Collection[str] | None = None,
    isolate: bool = True,
    seconds: float = 20.0,
) -> Report:
    """Run a battery against an attention function and say what is wrong.

    Parameters
    ----------
    fn : a callable with the signature of
        `torch.nn.functional.scaled_dot_product_attention`, or a part of it:
        (query, key, value, attn_mask, is_causal, scale, enable_gqa), arrays of
        shape (B, H, L, D) and (B, H, S, D). It may take PyTorch tensors, NumPy
        arrays or what the Python array API describes, and may return more
        arrays after the output.
    supports : what is to be tested, where the function claims less than it has
        arguments for: names of optional arguments, and "cross_attention",
        "value_width", "float_mask", "half_precision", "double_precision",
        "gradients". None means everything that the signature has.
    only : names of checks, to run no others.
    isolate : run the function in a process of its own, so that it can neither
        hang nor crash this one.
    seconds : how long all of it may take.

    Returns
    -------
    A report: print it. What the function cannot be asked is listed in
    `not_tested`.

    Raises
    ------
    ValueError
        If `supports` or `only` has an unknown word, or `fn` cannot be called.

    Examples
    --------
    >>> import torch
    >>> from torch.nn.functional import scaled_dot_product_attention
    >>> verify_attention(scaled_dot_product_attention).passed
    True
    """
    if not callable(fn):
        raise ValueError(f"fn must be callable, not {type(fn).__name__}")
    check_supports(supports)
    chosen = chosen_checks(only, [kind.name for kind in KINDS])
    for kind in KINDS:
        if kind.name in chosen:
            for case in kind.cases:
                right_answer(case)  # computed once, before any child process

    has_torch()  # imported here, not at the expense of the child's time

    def build(progress: Progress) -> Report:
        progress.starts("runs", "finding out which arrays it takes")
        subject = read_subject(fn, supports)
        return run_battery(subject, _name(fn), chosen, progress)

    report = isolated_report(
        build,
        subject=_name(fn),
        kind="attention",
        seconds=seconds,
        isolate=isolate,
    )
    return with_growing_hints(report, _full_name(fn))


def run_battery(
    subject: Subject, name: str, chosen: frozenset[str], progress: Progress
) -> Report:
    """Run the chosen checks that a function can be asked."""
    checks: list[Check] = []
    not_tested: dict[str, str] = {}
    for kind in KINDS:
        if kind.name not in chosen and kind.name not in FIRST:
            continue
        missing = [need for need in kind.needs if not subject.supports(need)]
        if missing:
            not_tested[kind.name] = _why_not(missing[0], subject)
            continue
        progress.starts(kind.name)
        check = kind.run(subject, kind.name)
        progress.finished(check)
        checks.append(check)
        if kind.name in FIRST and not check.passed:
            not_tested["the other checks"] = f"“{kind.name}” comes first"
            break
    return Report(
        subject=name,
        kind=subject.library,
        checks=tuple(checks),
        not_tested=not_tested,
        notes=tuple(subject.notes),
    )


def _why_not(need: str, subject: Subject) -> str:
    if need == "gradients" and subject.library == "numpy":
        return "it works on NumPy arrays, which carry no gradients"
    if need in NAMES and need not in subject.has:
        return f"it has no argument {need}"
    return f"supports does not list {need}"


def _name(fn: Any) -> str:
    return getattr(fn, "__name__", type(fn).__name__)


def _full_name(fn: Any) -> str:
    module = getattr(fn, "__module__", "")
    return f"{module}.{getattr(fn, '__qualname__', _name(fn))}"
