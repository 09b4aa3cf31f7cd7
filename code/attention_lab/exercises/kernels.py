"""Check a kernel that a reader wrote or put together."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attention_lab.verify.kernel.battery import verify_kernel
from attention_lab.verify.report import Report

#: The checks of every kernel; an exercise may add "traffic" and
#: "stays in float32".
CHECKS = (
    "runs",
    "no hazard",
    "output written",
    "inputs unchanged",
    "values",
    "order does not matter",
)


def examine_kernel(
    kernel: Any,
    launch: Callable[..., Any],
    reference: Callable[..., Any],
    *more: str,
    **options: Any,
) -> Report:
    """Run `verify_kernel` with the checks of an exercise.

    What an exercise does not ask for is not listed as untested.

    Parameters
    ----------
    kernel, launch, reference, **options : as for `verify_kernel`.
    *more : names of further checks.
    """
    report = verify_kernel(
        kernel,
        launch,
        reference,
        only=(*CHECKS, *more),
        isolate=False,
        **options,
    )
    asked = {
        name: reason
        for name, reason in report.not_tested.items()
        if name in (*CHECKS, *more)
    }
    return replace(report, not_tested=asked)
