"""The check that a kernel stays finite where the exact result does.

It returns its `Check`, or a sentence that says why it was not done.
"""

from typing import Any

import numpy as np

from attention_lab.verify.kernel.case import BadCase
from attention_lab.verify.kernel.checks import Work, named
from attention_lab.verify.kernel.compare import (
    Difference,
    counterexample,
    element,
)
from attention_lab.verify.kernel.strong_inputs import (
    CHANGES,
    FAR_ABOVE,
    FAR_BELOW,
    Change,
    is_floating,
)
from attention_lab.verify.report import Check

NAME = "large scores"


def check_large(work: Work) -> Check | str:
    """Check with strong inputs that the outputs are finite where they should.

    Each of `CHANGES` is made to the inputs of every size.
    """
    if not work.ended:
        return "no run came to its end"
    case = work.bench.prepare(work.ended[0])
    if not any(map(is_floating, case.launch.args[case.launch.outputs :])):
        return "the kernel has no floating inputs"
    for sizes in work.ended:
        if _not_finite(work, sizes, None) is not None:
            return "the outputs are not finite even with small inputs"
    refused = []
    for change in CHANGES:
        try:
            failed = _check(work, change)
        except BadCase as bad:
            refused.append(f"{change.words}, {bad}")
            continue
        if failed is not None:
            return failed
    if len(refused) == len(CHANGES):
        return refused[0]
    return Check(NAME, True)


def _check(work: Work, change: Change) -> Check | None:
    """Return the failed check with one change of the inputs, or None."""
    found = work.first(
        work.ended, lambda sizes: _not_finite(work, sizes, change)
    )
    if found is None:
        return None
    sizes, difference = found
    case = work.bench.prepare(sizes, change)
    what = (
        f"{change.words}, "
        f"{element(case, difference.output, difference.where)} is "
        f"{difference.got:g}, but the exact result is "
        f"{difference.expected:.6g}. {difference.count} of {difference.of} "
        "elements are not finite."
    )
    said, mistake = named(what, work, CHANGES)
    if mistake is None and said == what:
        # Some numbers may lie where float32 is about to underflow, where no
        # wrong answer agrees to the last digit. None of these do.
        said, mistake = named(what, work, (FAR_BELOW, FAR_ABOVE))
    if mistake == "nan-blind-test":
        mistake = None  # that the kernel overflows is a mistake of its own
    return Check(NAME, False, said, counterexample(case, difference), mistake)


def _not_finite(
    work: Work, sizes: dict[str, Any], change: Change | None
) -> Difference | None:
    """Return the first element that is ∞ or NaN where the exact one is not."""
    case = work.bench.prepare(sizes, change)
    run = work.bench.run(sizes, change=change)
    if run.was_refused or run.is_stuck:
        return None
    triples = zip(run.outputs, case.expected, run.missing, strict=True)
    for k, (got, want, absent) in enumerate(triples):
        if got.dtype.kind != "f":
            continue
        fits = np.abs(want) <= np.finfo(got.dtype).max
        bad = fits & ~np.isfinite(got) & ~absent
        if bad.any():
            where = tuple(int(i) for i in np.argwhere(bad)[0])
            return Difference(
                k,
                where,
                got[where].item(),
                want[where].item(),
                0.0,
                int(bad.sum()),
                bad.size,
            )
    return None
