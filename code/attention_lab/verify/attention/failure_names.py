"""Name a mistake from how a function fails, where no numbers can say.

A guess is made only where the plainest input gives right outputs: otherwise
something else is wrong first.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attention_lab.error_bound import ulp
from attention_lab.verify.attention.case import Case, right_answer, sizes
from attention_lab.verify.attention.comparison import fits
from attention_lab.verify.attention.subject import Subject

PLAIN = Case(sizes(2, 3, 5, 5, 4))
#: What NumPy and PyTorch say where an array does not fit a given shape.
WRONG_SHAPE = ("invalid for input of size", "cannot reshape")


def only_in_half(subject: Subject, failing: Sequence[Case]) -> bool:
    """Whether half-precision cases give right outputs in float32."""
    if any(case.dtype not in ("float16", "bfloat16") for case in failing):
        return False
    single = [replace(case, dtype="float32") for case in failing]
    return all(fits(subject.run(case), case) for case in single)


def name_half(subject: Subject, failing: Sequence[Case]) -> str | None:
    """Return how half precision is lost, if the outputs show it.

    Low precision is off by a few units where scores are small, and by much more
    where they are large; an overflow is right until then.
    """
    outcomes = [subject.run(case) for case in failing]
    if all(case.mask is not None for case in failing):
        overflows = any("overflow" in one.problem for one in outcomes)
        odd = [one.out_BHLD for one in outcomes if one.out_BHLD is not None]
        lost = any(not np.isfinite(out).all() for out in odd)
        return "sentinel-in-half" if overflows or lost else None
    if any(one.kind for one in outcomes):
        return None
    dtypes = {case.dtype for case in failing}
    if not all(_is_close(subject, dtype) for dtype in dtypes):
        return None
    finite = all(np.isfinite(one.out_BHLD).all() for one in outcomes)
    return "softmax-in-half" if finite else "float16-overflow"


def _is_close(subject: Subject, dtype: str) -> bool:
    """Whether small scores lose no more than a few units of the precision."""
    case = replace(PLAIN, dtype=dtype)
    out = subject.run(case).out_BHLD
    right = right_answer(case).out_BHLD
    if out is None:
        return False
    room = 16 * ulp(np.abs(right).max(), dtype)
    return bool(np.all(np.abs(out - right) <= room))


def name_failure(subject: Subject, case: Case) -> str | None:
    """Return the mistake that fits how a call on a case failed."""
    outcome, n = subject.run(case), case.sizes
    if outcome.kind not in ("raised", "shape") or not fits(
        subject.run(PLAIN), PLAIN
    ):
        return None
    if case.strided:
        return "noncontiguous-view"
    if n.H_kv != n.H:
        # Here the number of groups and their size are the same.
        square = Case(sizes(1, 4, 5, 5, 4, H_kv=2))
        swapped = fits(subject.run(square), square)
        return "gqa-group-size-swapped" if swapped else "gqa-not-supported"
    if n.D_v != n.D:
        return "value-width-assumed"
    if n.L == n.S or n.L == 0 or n.S == 0 or case.mask is not None:
        return None
    if subject.run(Case(n)).out_BHLD is not None:
        return "causal-needs-square" if case.is_causal else None
    misfits = any(words in outcome.problem for words in WRONG_SHAPE)
    return "query-length-for-keys" if misfits else None


def is_dropout(subject: Subject) -> bool:
    """Whether outputs differ as if weights were dropped at random.

    With the identity as values the output is the weights: dropped ones are 0,
    the others grow by one common factor.
    """
    case = Case(sizes(1, 2, 17, 17, 17), values="identity")
    out = subject.run_again(case).out_BHLD
    if out is None:
        return False
    ratio = out / right_answer(case).out_BHLD
    kept = ratio[out != 0]
    return (
        0 < kept.size < ratio.size
        and bool(kept.min() > 1)
        and bool(np.ptp(kept) <= 1e-3 * kept.max())
    )
