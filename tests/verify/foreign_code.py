"""Foreign code that misbehaves, and what its callers ask about it."""

import ctypes
import os
import signal
import subprocess
import sys
import time

import pytest

from attention_lab.verify.isolation import isolated
from attention_lab.verify.isolation.isolated import isolated_report
from attention_lab.verify.isolation.words import (
    VERIFIER,
)
from attention_lab.verify.report import Check, Report

needs_copy = pytest.mark.skipif(
    isolated.why_not_copied() is not None,
    reason=f"no isolation here: {isolated.why_not_copied()}",
)


FIRST = Check(name="first", passed=True)


def verify(subject, *, seconds=10.0, memory_bytes=1 << 30, isolate=True):
    """Run `subject` as a battery of two checks would."""

    def build(progress):
        progress.starts("first", "L = 1")
        progress.finished(FIRST)
        progress.starts("second", "L = 5, S = 7")
        subject()
        second = Check(name="second", passed=True)
        progress.finished(second)
        return Report("it", "numpy", (FIRST, second))

    return isolated_report(
        build,
        subject="it",
        kind="numpy",
        seconds=seconds,
        memory_bytes=memory_bytes,
        isolate=isolate,
    )


def what_of(report):
    """Return the sentence about the second check, which must have failed."""
    assert not report.passed
    assert [check.name for check in report.checks] == ["first", "second"]
    assert report["first"].passed
    assert not report["second"].passed
    assert report.not_tested
    return report["second"].what


def has_child():
    """Whether this process has a child, dead or alive."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


def is_alive(pid):
    """Whether a process runs; a zombie that waits for its parent does not."""
    try:
        state = subprocess.run(
            ["ps", "-o", "stat=", "-p", str(pid)],
            capture_output=True,
            text=True,
            check=False,
        ).stdout
    except FileNotFoundError:
        pytest.skip("needs ps")
    return bool(state.strip()) and not state.startswith("Z")


def wait_until_dead(pid):
    until = time.monotonic() + 3
    while is_alive(pid):
        assert time.monotonic() < until, f"{pid} still runs"
        time.sleep(0.05)


def hang_in_python():
    while True:
        pass


def hang_and_catch_everything():
    while True:
        try:
            while True:
                pass
        except Exception:
            continue


def hang_in_c():
    # pause() of the C library, called with Python's lock held.
    ctypes.PyDLL(None).pause()


def hang_and_ignore_signals():
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGALRM):
        signal.signal(number, signal.SIG_IGN)
    while True:
        time.sleep(10)


def crash():
    print("loading the last tile")
    ctypes.string_at(0)


needs_memory_limit = pytest.mark.skipif(
    sys.platform != "linux", reason="memory is limited on Linux only"
)


def attend_often(attend):
    """Call it as a battery does: many times between two messages."""
    source = "def calls(attend):\n    for _ in range(12): attend()\n"
    namespace = {}
    # As if it were a file of the verifier: it is what copies may not run.
    exec(compile(source, f"{VERIFIER}/battery.py", "exec"), namespace)
    namespace["calls"](attend)
