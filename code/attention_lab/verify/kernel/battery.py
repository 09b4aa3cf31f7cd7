"""Verify a CUDA kernel: run it here, recorded, and say what is wrong.

The kernel needs no change and no GPU: it runs on the recorder of
`attention_lab.gpu`, which sees every access to memory.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any

from attention_lab.verify.choice import chosen_checks
from attention_lab.verify.hints import with_growing_hints
from attention_lab.verify.isolation.isolated import Progress, isolated_report
from attention_lab.verify.kernel.bench import (
    Bench,
    is_factory,
    python_function,
)
from attention_lab.verify.kernel.case import BadCase, Launch
from attention_lab.verify.kernel.checks import (
    Work,
    check_hazards,
    check_inputs,
    check_orders,
    check_runs,
    check_values,
    check_written,
)
from attention_lab.verify.kernel.cost_checks import (
    check_card,
    check_precision,
    check_traffic,
    remarks,
)
from attention_lab.verify.kernel.large_check import check_large
from attention_lab.verify.kernel.sizes import default_sizes
from attention_lab.verify.report import Check, Report

CHECKS: dict[str, Callable[[Work], Check | str]] = {
    "runs": check_runs,
    "no hazard": check_hazards,
    "output written": check_written,
    "inputs unchanged": check_inputs,
    "values": check_values,
    "order does not matter": check_orders,
    "traffic": check_traffic,
    "large scores": check_large,
    "stays in float32": check_precision,
}


def verify_kernel(
    kernel: Any,
    launch: Callable[..., Launch],
    reference: Callable[..., Any],
    *,
    sizes: Iterable[Mapping[str, Any]] | None = None,
    error_bound: Callable[..., Any] | None = None,
    traffic: Callable[..., Any] | None = None,
    budget: Callable[..., Any] | None = None,
    signature: Any = None,
    wrong_answers: Mapping[str, Any] | None = None,
    only: Collection[str] | None = None,
    isolate: bool = True,
    seconds: float = 60.0,
) -> Report:
    """Verify a kernel: values, memory accesses, traffic, what it compiles to.

    Parameters
    ----------
    kernel : a function decorated with ``@cuda.jit``, of this package or of
        Numba; or, where it depends on the sizes, a function with the one
        parameter `sizes` that returns it: ``lambda sizes: make(sizes["D"])``.
    launch : called with sizes as keywords, returns a `Launch`: grid, block
        and arguments, outputs first. The inputs are taken from it.
    reference : called with the inputs, floating arrays in float64; returns
        the expected output, or a tuple of them.
    sizes : keyword arguments of `launch`, smallest first. By default
        `sizes.default_sizes`: ragged sizes around the tile.
    error_bound : called with the inputs, returns the largest allowed error,
        or one for each output. By default `bounds.rounding_bounds`.
        For attention, `attention_lab.error_bound` has the book's rule.
    traffic : called with sizes, returns {parameter: (reads, writes)}, the
        exact number of elements read from and written to global memory.
    budget : the same, but as upper limits.
    signature : the argument types for the compiler; by default as launched.
    wrong_answers : mistake -> function of the inputs that gives its result,
        or several; such as `wrong_answers.attention_wrong_answers`.
    only : names of checks, to run no others.
    isolate, seconds : see `isolated.isolated_report`.

    Returns
    -------
    A `Report` of kind "kernel". It never raises for a wrong kernel.

    Raises
    ------
    ValueError
        If `only` names no check.

    Examples
    --------
    >>> import numpy as np
    >>> from attention_lab.gpu import cuda
    >>> @cuda.jit
    ... def double(out, x):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         out[i] = x[i] + x[i]
    >>> def launch(n):
    ...     x = np.arange(n, dtype=np.float32)
    ...     return Launch(-(-n // 4), 4, (np.empty_like(x), x))
    >>> verify_kernel(double, launch, lambda x: 2 * x, isolate=False).passed
    True
    """
    subject = _name(kernel)
    build = partial(
        _build,
        subject,
        Bench(kernel, launch, reference, error_bound),
        None if sizes is None else [dict(one) for one in sizes],
        traffic,
        budget,
        signature,
        wrong_answers,
        chosen_checks(only, (*CHECKS, "compile card")),
    )
    report = isolated_report(
        build, subject=subject, kind="kernel", seconds=seconds, isolate=isolate
    )
    module = getattr(python_function(kernel), "__module__", "")
    return with_growing_hints(report, f"{module}.{subject}")


def _build(
    subject: str,
    bench: Bench,
    sizes: list[dict[str, Any]] | None,
    traffic: Callable[..., Any] | None,
    budget: Callable[..., Any] | None,
    signature: Any,
    wrong_answers: Mapping[str, Any] | None,
    chosen: frozenset[str],
    progress: Progress,
) -> Report:
    """Run the checks one after the other."""
    progress.starts("runs", "the first launch")
    tried = default_sizes(bench) if sizes is None else sizes
    work = Work(bench, tried, wrong_answers, traffic, budget)
    checks: list[Check] = []
    not_tested: dict[str, str] = {}

    def take(name: str, check: Callable[[], Check | str]) -> None:
        progress.starts(name)
        try:
            result = check()
        except BadCase as bad:
            result = Check(name, False, str(bad))
        if isinstance(result, str):
            not_tested[name] = result
        else:
            checks.append(result)
            progress.finished(result)

    for name, check in CHECKS.items():
        if name != "runs" and name not in chosen:
            continue
        take(name, partial(check, work))
        if name == "runs" and not work.ran:
            reason = "the kernel could not be run"
            not_tested |= dict.fromkeys([*CHECKS, "compile card"], reason)
            del not_tested["runs"]
            return Report(subject, "kernel", tuple(checks), not_tested)
    if not all(check.passed for check in checks):
        not_tested["compile card"] = "something else failed first"
    elif "compile card" in chosen:
        take("compile card", partial(check_card, work, signature))
    return Report(subject, "kernel", tuple(checks), not_tested, remarks(work))


def _name(kernel: Any) -> str:
    """Return the kernel's name; of a factory, where it was written."""
    name = getattr(python_function(kernel), "__name__", type(kernel).__name__)
    if is_factory(kernel) and name == "<lambda>":
        return "kernel"
    return name
