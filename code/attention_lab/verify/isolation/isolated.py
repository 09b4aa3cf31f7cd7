"""Run a verification so that the code under test cannot hurt its caller."""

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from attention_lab.verify.isolation.forked import Ending, run_forked
from attention_lab.verify.isolation.progress import Heard, Progress
from attention_lab.verify.isolation.watchdog import TimeIsUp, run_until
from attention_lab.verify.isolation.words import (
    forks_in_words,
    raised_in_words,
    ran_out_of_memory,
    signal_in_words,
    size_in_words,
    tail_in_words,
)
from attention_lab.verify.report import Check, Report

__all__ = ["Progress", "isolated_report"]

#: The name of a failed check where none was running.
UNNAMED = "comes to an end"
#: What is not tested by a report that broke off.
AFTER_IT = "all that comes after it"
#: How many copies are made until one comes to life. Another thread may hold a
#: library's lock at the very moment of the copy; in the next it will not.
COPIES = 3
#: What Numba writes before it ends a copied process.
NUMBA_GAVE_UP = "Terminating: fork() called from a process already using"


def isolated_report(
    build: Callable[[Progress], Report],
    *,
    subject: str,
    kind: str,
    seconds: float = 20.0,
    memory_bytes: int = 4 << 30,
    isolate: bool = True,
) -> Report:
    """Run `build` in a copy of this process, with limits, and report on it.

    Whatever the code under test does there, a report comes back: it may hang,
    crash, exit, print or start processes. Checks that were finished before
    are in the report, followed by a failed one under the name that was
    started. The copy guards against accidents, not against malice.

    Where a process cannot be copied (Windows, a GPU or JAX in use), or with
    ``isolate=False``, it runs inside this process. Python code is still
    interrupted at the limit; a note says what could not be guarded against.

    Parameters
    ----------
    build : runs the checks, tells its `Progress`, returns the report. Changes
        that it makes to objects are lost with the copy.
    subject, kind : as in `Report`, for a report that `build` did not return.
    seconds : limit of time.
    memory_bytes : how much more memory than now it may take; on Linux only.
    isolate : False to run it inside this process.

    Returns
    -------
    The report of `build`, or what is known about why there is none.

    Raises
    ------
    ValueError
        If a limit is not above 0.
    """
    if not seconds > 0 or not memory_bytes > 0:
        raise ValueError(
            f"seconds and memory_bytes must be above 0, not {seconds!r} and "
            f"{memory_bytes!r}"
        )
    broken = partial(_broken_report, subject=subject, kind=kind)
    reason = why_not_copied() if isolate else "as isolate=False asks for"
    if reason is None:
        for _ in range(COPIES):
            ending = run_forked(build, seconds, memory_bytes)
            if ending.heard.ready or ending.heard.unfit:
                break
        reason = _why_copy_failed(ending)
        if reason is None:
            heard = ending.heard
            if heard.report is not None:
                return heard.report
            return broken(heard, _what_happened(ending, seconds, memory_bytes))
    return _run_here(build, broken, seconds, reason)


def broke_off(report: Report) -> bool:
    """Whether a verification did not come to its end.

    It reached the time limit, or the code under test ended the process.
    """
    return AFTER_IT in report.not_tested


def why_not_copied() -> str | None:
    """Return why a copy of this process could not compute, or None."""
    if not hasattr(os, "fork"):
        return "because this system cannot copy a process"
    if _uses_gpu():
        return "because it uses the GPU, which a copy of it could not"
    if _uses_jax():
        return "because it uses JAX, whose threads are not copied"
    return None


def _uses_gpu() -> bool:
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        return True
    module = sys.modules.get("numba.cuda.cudadrv.driver")
    known = vars(getattr(module, "driver", None) or object)
    return bool(known.get("is_initialized")) and (
        known.get("initialization_error") is None
    )


def _uses_jax() -> bool:
    bridge = sys.modules.get("jax._src.xla_bridge")
    started = getattr(bridge, "backends_are_initialized", lambda: True)
    return bridge is not None and started()


def _why_copy_failed(ending: Ending) -> str | None:
    """Return why nothing is known about the code, though a copy was made."""
    heard = ending.heard
    if heard.unfit:
        return f"because a copy of it cannot compute ({heard.unfit})"
    if not heard.ready:
        return "because a copy of it does not come to life"
    if ending.signal == signal.SIGTERM and NUMBA_GAVE_UP in ending.output:
        return "because Numba's threads, in use here, are not copied"
    return None


def _what_happened(ending: Ending, seconds: float, memory_bytes: int) -> str:
    """Say why a copy gave no report."""
    heard = ending.heard
    about = f" ({heard.about})" if heard.about else ""
    place = f" It was at {ending.place}." if ending.place else ""
    if ending.forks:
        place += f" {forks_in_words(ending.forks)}"
    if heard.raised:
        return f"{heard.raised}{about}."
    if ending.hung:
        return f"{_still_running(seconds)}{about}.{place}"
    if ending.signal is not None:
        what = signal_in_words(ending.signal)
        if ending.signal == signal.SIGABRT:
            # What C++ does when an allocation fails.
            limit = size_in_words(memory_bytes)
            what += f", perhaps at the memory limit of {limit}"
    elif ending.exit_code is not None:
        what = f"It ended its process with exit code {ending.exit_code}"
    else:
        what = "It ended its process"
    said = tail_in_words(ending.output)
    return f"{what}{about}.{place}{' ' + said if said else ''}"


def _still_running(seconds: float) -> str:
    return f"It was still running at the time limit of {seconds:g} s"


def _broken_report(
    heard: Heard, what: str, *, subject: str, kind: str
) -> Report:
    """Report what was finished, and that the rest was not."""
    failed = Check(name=heard.running or UNNAMED, passed=False, what=what)
    return Report(
        subject=subject,
        kind=kind,
        checks=(*heard.checks, failed),
        not_tested={AFTER_IT: "it did not get there"},
    )


def _run_here(
    build: Callable[[Progress], Report],
    broken: Callable[[Heard, str], Report],
    seconds: float,
    reason: str,
) -> Report:
    """Run `build` inside this process, under a watchdog."""
    heard = Heard()
    try:
        report = run_until(lambda: build(Progress(heard.hear)), seconds)
        # Through JSON, so that a report is the same as from a copy.
        heard.hear({"report": report.to_json()})
        report = heard.report
    except TimeIsUp:
        about = f" ({heard.about})" if heard.about else ""
        report = broken(heard, f"{_still_running(seconds)}{about}.")
    except (Exception, SystemExit) as error:
        # KeyboardInterrupt goes on: here it is the caller's own.
        about = f" ({heard.about})" if heard.about else ""
        what = (
            "It needed more memory than there is"
            if ran_out_of_memory(error)
            else raised_in_words(error, if_nowhere="The verifier")
        )
        report = broken(heard, f"{what}{about}.")
    note = (
        f"It ran inside this process, {reason}: a hang in compiled code, a "
        "crash or a lack of memory could not have been stopped."
    )
    return replace(report, notes=(*report.notes, note))
