"""The checks of what a kernel costs: traffic, precision, what it compiles to.

Each returns its `Check`, or a sentence that says why it was not done.
"""

import importlib.util
import os
from typing import Any

import numpy as np

from attention_lab.gpu import compile_card
from attention_lab.gpu.compile_card import PYTHON_VARIABLE, WHEELS
from attention_lab.gpu.errors import CompileRefused, CompilerMissing
from attention_lab.gpu.limits import MAX_SHARED_BYTES
from attention_lab.verify.kernel.bench import Prepared, Run
from attention_lab.verify.kernel.case import BadCase, in_words
from attention_lab.verify.kernel.checks import REFUSALS, Work
from attention_lab.verify.kernel.compare import counterexample
from attention_lab.verify.report import Check

ARCHITECTURE = (7, 5)  # a T4: what Colab lends


def check_traffic(work: Work) -> Check | str:
    """Check the accesses to global memory against a formula or a budget."""
    if work.traffic is None and work.budget is None:
        return "give traffic= or budget="
    if not work.ended:
        return "no run came to its end"

    def find(sizes: dict[str, Any]) -> str | None:
        run = work.bench.run(sizes)
        if run.was_refused or run.is_stuck:
            return None
        case = work.bench.prepare(sizes)
        for formula, is_exact in ((work.traffic, True), (work.budget, False)):
            if formula is not None:
                wrong = _wrong_traffic(case, run, formula, is_exact)
                if wrong:
                    return wrong
        return None

    found = work.first(work.ended, find)
    if found is None:
        return Check("traffic", True)
    sizes, what = found
    example = counterexample(work.bench.prepare(sizes))
    return Check("traffic", False, what, example)


def _wrong_traffic(
    case: Prepared, run: Run, formula: Any, is_exact: bool
) -> str | None:
    """Say which array was read or written too often, or None."""
    where = in_words(case.sizes)
    try:
        allowed = {
            name: (int(reads), int(writes))
            for name, (reads, writes) in formula(**case.sizes).items()
        }
    except Exception as error:
        return (
            f"The formula raised {type(error).__name__}: {error} at {where}; "
            "it must return {array: (reads, writes)}."
        )
    for name, counts in allowed.items():
        if name not in case.names:
            return (
                f"The formula names `{name}`, but the kernel's parameters are "
                f"{', '.join(case.names)}."
            )
        row = run.recording.traffic[name]
        # An atomic operation reads and writes.
        measured = (row.reads + row.atomics, row.writes + row.atomics)
        pairs = zip(("read", "written"), measured, counts, strict=True)
        for verb, seen, limit in pairs:
            if seen > limit or (is_exact and seen != limit):
                limit_is = "the formula says" if is_exact else "allowed are"
                ratio = f", {seen / limit:.3g} times as many" if limit else ""
                return (
                    f"`{name}`: {seen} numbers are {verb}, {limit_is} "
                    f"{limit}{ratio} (at {where})."
                )
    return None


def is_float64_meant(case: Prepared) -> bool:
    """Say whether an array of the launch is float64."""
    return any(
        isinstance(arg, np.ndarray) and arg.dtype == np.float64
        for arg in case.launch.args
    )


def check_precision(work: Work) -> Check | str:
    """Check that a float32 kernel does no arithmetic in float64."""
    if not work.ran:
        return "no run came to its end"
    case = work.bench.prepare(work.ran[-1])
    if is_float64_meant(case):
        return "the arrays are float64"
    for note in work.bench.run(work.ran[-1]).recording.notes:
        if note.kind == "accidental-float64":
            return Check(
                "stays in float32",
                False,
                note.sentence,
                mistake="float64-accumulator",
            )
    return Check("stays in float32", True)


def check_card(work: Work, signature: Any) -> Check | str:
    """Check what NVIDIA's compiler makes of the kernel, where it is there."""
    if not work.ended:
        return "no run came to its end"
    has_other = PYTHON_VARIABLE in os.environ
    if not has_other and importlib.util.find_spec("numba_cuda") is None:
        return f"NVIDIA's compiler is not installed: {WHEELS}"
    case = work.bench.prepare(work.ended[-1])
    arguments = case.launch.args if signature is None else signature
    try:
        card = compile_card(case.kernel, arguments, ARCHITECTURE)
    except CompilerMissing as missing:
        return str(missing)
    except CompileRefused as refused:
        mistake = refused.kind if refused.kind in REFUSALS else None
        if "not a constant" in str(refused):
            mistake = "shared-size-from-argument"
        return Check("compile card", False, str(refused), mistake=mistake)
    what, mistake = "", None
    if card.f64_instructions and not is_float64_meant(case):
        what = f"{card.f64_instructions} instructions compute in float64"
        mistake = "float64-accumulator"
    elif card.spill_bytes:
        what = (
            f"{card.spill_bytes} bytes of a thread's variables do not fit "
            "into its registers and are spilled to memory"
        )
    elif card.shared_bytes > MAX_SHARED_BYTES:
        what = f"{card.shared_bytes} bytes of shared memory are needed"
        mistake = "too-much-shared-memory"
    if not what:
        return Check("compile card", True)
    return Check("compile card", False, f"{what} ({card}).", mistake=mistake)


def remarks(work: Work) -> tuple[str, ...]:
    """Return the recorder's notes that fail nothing, each once."""
    said = {}
    for sizes in work.ran:
        try:
            notes = work.bench.run(sizes).recording.notes
        except BadCase:
            continue
        for note in notes:
            if note.kind != "accidental-float64":
                said[note.kind, note.line] = str(note)
    return tuple(said.values())
