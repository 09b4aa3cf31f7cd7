"""What a verification in a copy of the process gives back, and its limits."""

import os
import signal
import sys
import threading
import time

import numpy as np
import pytest
from foreign_code import (
    FIRST,
    crash,
    hang_and_catch_everything,
    hang_and_ignore_signals,
    hang_in_c,
    hang_in_python,
    has_child,
    needs_copy,
    needs_memory_limit,
    verify,
    what_of,
)
from numpy.testing import assert_array_less

from attention_lab.verify.isolation import forked, isolated
from attention_lab.verify.isolation.isolated import isolated_report
from attention_lab.verify.isolation.watchdog import TimeIsUp, run_until
from attention_lab.verify.report import Check, Counterexample, Report

# What comes back ------------------------------------------------------------


@pytest.mark.parametrize("isolate", [True, False])
def test_the_report_of_the_battery_comes_back(isolate):
    example = Counterexample(
        sizes={"L": 3}, inputs={"query": [[1.0]]}, got="nan", expected=0.5
    )
    bad = Check("bad", False, "token 2 sees token 3", example, "mask-polarity")
    whole = Report("it", "numpy", (FIRST, bad), {"gqa": "no argument"}, ("n",))
    report = isolated_report(
        lambda progress: whole, subject="x", kind="y", isolate=isolate
    )
    assert report.checks == whole.checks
    assert report.not_tested == whole.not_tested
    assert (report.subject, report.kind) == ("it", "numpy")
    assert report.notes[0] == "n"


def test_nothing_is_noted_where_it_was_isolated_and_else_why_not():
    if isolated.why_not_copied() is None:
        assert verify(lambda: None).notes == ()
    (note,) = verify(lambda: None, isolate=False).notes
    assert "inside this process, as isolate=False asks for" in note
    assert "could not have been stopped" in note


@needs_copy
def test_the_copy_changes_nothing_here():
    changed = []
    assert verify(lambda: changed.append(1)).passed
    assert changed == []


@needs_copy
def test_it_costs_a_fraction_of_a_second():
    def cost():
        began, busy_before = time.perf_counter(), sum(os.times()[:4])
        assert verify(lambda: None).passed
        return sum(os.times()[:4]) - busy_before, time.perf_counter() - began

    busy, wall = zip(*(cost() for _ in range(10)), strict=True)
    # Processor time, here and in the copy: 40 to 60 ms on an idle machine.
    # Other work on the machine adds to both.
    assert_array_less(min(busy), 0.2)
    assert_array_less(min(wall), 1.0)


@needs_copy
def test_a_long_report_fits_through():
    inputs = {"query": np.arange(60_000.0).tolist()}
    long = Check("long", False, counterexample=Counterexample(inputs=inputs))
    report = isolated_report(
        lambda progress: Report("it", "numpy", (long,)), subject="", kind=""
    )
    assert report.checks == (long,)


@pytest.mark.parametrize("limits", [{"seconds": 0}, {"memory_bytes": -1}])
def test_a_limit_of_nothing_is_refused(limits):
    with pytest.raises(ValueError, match="must be above 0"):
        verify(lambda: None, **limits)


# Time -----------------------------------------------------------------------


@needs_copy
@pytest.mark.parametrize(
    "hang",
    [
        hang_in_python,
        hang_and_catch_everything,
        hang_in_c,
        hang_and_ignore_signals,
    ],
)
def test_a_hang_is_stopped_and_its_place_is_named(hang):
    began = time.monotonic()
    what = what_of(verify(hang, seconds=0.3))
    assert_array_less(time.monotonic() - began, 2.0)
    assert what.startswith("It was still running at the time limit of 0.3 s")
    assert "(L = 5, S = 7)" in what
    assert f"of foreign_code.py, in {hang.__name__}." in what
    assert not has_child()


@pytest.mark.parametrize("hang", [hang_in_python, hang_and_catch_everything])
def test_inside_this_process_python_code_is_stopped_too(hang):
    report = verify(hang, seconds=0.2, isolate=False)
    what = what_of(report)
    assert "time limit of 0.2 s (L = 5, S = 7)" in what
    assert "could not have been stopped" in report.notes[0]


def test_the_watchdog_insists_when_it_is_caught_once():
    caught = []

    def stubborn():
        try:
            hang_in_python()
        except TimeIsUp:
            caught.append(1)
        hang_in_python()

    with pytest.raises(TimeIsUp):
        run_until(stubborn, 0.1)
    assert caught == [1]


def test_the_watchdog_never_barks_afterwards():
    for _ in range(30):
        try:
            run_until(lambda: time.sleep(0.002), 0.002)
        except TimeIsUp:
            continue
    # A late one would be raised here.
    sum(range(100_000))


def test_the_watchdog_works_in_any_thread():
    seen = []

    def work():
        seen.append(what_of(verify(hang_in_python, seconds=0.1, isolate=False)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(5)
    assert "time limit" in seen[0]


# Crashes and exits ----------------------------------------------------------


@needs_copy
def test_a_crash_names_the_signal_the_place_and_what_was_printed():
    what = what_of(verify(crash))
    assert what.startswith("It crashed with signal SIGSEGV (L = 5, S = 7).")
    assert "of foreign_code.py, in crash." in what
    assert 'It last printed: "loading the last tile".' in what


@needs_copy
def test_an_abort_and_a_kill_are_told_apart():
    assert "signal SIGABRT" in what_of(verify(os.abort))
    killed = what_of(verify(lambda: os.kill(os.getpid(), signal.SIGKILL)))
    assert "It was killed (signal SIGKILL)" in killed


@needs_copy
@pytest.mark.parametrize("code", [0, 7])
def test_a_hard_exit_is_reported(code):
    what = what_of(verify(lambda: os._exit(code)))
    assert f"It ended its process with exit code {code}" in what


@pytest.mark.parametrize("isolate", [True, False])
def test_a_soft_exit_is_reported(isolate):
    what = what_of(verify(lambda: sys.exit(3), isolate=isolate))
    assert what.startswith("It called sys.exit(3)")
    assert "(L = 5, S = 7)" in what


@needs_copy
def test_its_own_keyboard_interrupt_stays_in_the_copy():
    def interrupted():
        raise KeyboardInterrupt

    assert "It raised KeyboardInterrupt" in what_of(verify(interrupted))
    to_itself = verify(lambda: os.kill(0, signal.SIGINT))
    assert "It raised KeyboardInterrupt" in what_of(to_itself)


@pytest.mark.parametrize("isolate", [True, False])
def test_what_it_raises_is_reported_with_the_place(isolate):
    def attend():
        raise IndexError("tile 3\nis not there")

    what = what_of(verify(attend, isolate=isolate))
    assert what.startswith("It raised IndexError: tile 3 is not there (line ")
    assert "of test_isolated.py, in attend)" in what


@pytest.mark.parametrize("isolate", [True, False])
def test_endless_recursion_is_reported(isolate):
    def attend():
        attend()

    what = what_of(verify(attend, isolate=isolate))
    assert "It raised RecursionError" in what


@needs_copy
def test_before_any_check_has_started_the_failure_has_a_name_too():
    def build(progress):
        os._exit(1)

    report = isolated_report(build, subject="it", kind="numpy")
    (check,) = report.checks
    assert check.name == isolated.UNNAMED
    assert not report.passed


def test_a_battery_that_returns_no_report_has_failed():
    report = isolated_report(lambda progress: None, subject="it", kind="numpy")
    assert not report.passed
    assert "The verifier raised AttributeError" in report.checks[0].what


# Memory ---------------------------------------------------------------------


@needs_copy
@needs_memory_limit
def test_too_much_memory_for_numpy_is_said_in_words():
    what = what_of(verify(lambda: np.ones(1 << 28), memory_bytes=256 << 20))
    assert what.startswith("It needed more memory than the limit of 256 MiB")


@needs_copy
@needs_memory_limit
def test_too_much_memory_for_torch_is_said_in_words():
    torch = pytest.importorskip("torch")
    what = what_of(verify(lambda: torch.zeros(1 << 29), memory_bytes=1 << 30))
    assert what.startswith("It needed more memory than the limit of 1 GiB")


@needs_copy
@needs_memory_limit
def test_memory_filled_bit_by_bit_is_said_in_words():
    def hoard():
        kept = []
        while True:
            kept.append(bytearray(1 << 20))

    what = what_of(verify(hoard, memory_bytes=64 << 20))
    assert what.startswith("It needed more memory than the limit of 64 MiB")


@needs_copy
@needs_memory_limit
def test_a_stricter_limit_from_outside_stays():
    def inner():
        report = verify(lambda: np.ones(1 << 27), memory_bytes=1 << 40)
        raise ValueError(what_of(report))

    what = what_of(verify(inner, memory_bytes=256 << 20))
    assert "It needed more memory" in what


# Where no copy can be made --------------------------------------------------


def test_without_fork_it_runs_here(monkeypatch):
    monkeypatch.delattr(os, "fork", raising=False)
    report = verify(lambda: None)
    assert report.passed
    assert "because this system cannot copy a process" in report.notes[0]
    assert "time limit" in what_of(verify(hang_in_python, seconds=0.1))


def test_with_torch_on_the_gpu_it_runs_here(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    here = []
    report = verify(lambda: here.append(1))
    assert here == [1]
    assert "because it uses the GPU" in report.notes[0]


@pytest.mark.parametrize(
    ("error", "uses"), [(None, True), (RuntimeError("no driver"), False)]
)
def test_numba_on_the_gpu_is_noticed(monkeypatch, error, uses):
    class Driver:
        def __init__(self):
            self.is_initialized = True
            self.initialization_error = error

    module = type(sys)("driver")
    module.driver = Driver()
    name = "numba.cuda.cudadrv.driver"
    monkeypatch.setitem(sys.modules, name, module)
    assert isolated._uses_gpu() == uses


@pytest.mark.parametrize("started", [True, False])
def test_jax_at_work_is_noticed(monkeypatch, started):
    module = type(sys)("xla_bridge")
    module.backends_are_initialized = lambda: started
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", module)
    assert isolated._uses_jax() == started


@needs_copy
def test_a_copy_that_cannot_compute_is_not_blamed_on_the_code(monkeypatch):
    def refuse():
        raise RuntimeError("Unable to handle autograd's threading")

    monkeypatch.setattr(forked, "_compute_a_little", refuse)
    report = verify(lambda: None)
    assert report.passed
    assert "a copy of it cannot compute" in report.notes[0]


@needs_copy
@pytest.mark.parametrize("broken", [hang_in_python, crash])
def test_a_copy_that_does_not_come_to_life_is_not_either(monkeypatch, broken):
    monkeypatch.setattr(forked, "READY_SECONDS", 0.3)
    monkeypatch.setattr(forked, "_compute_a_little", broken)
    report = verify(lambda: None)
    assert report.passed
    assert "does not come to life" in report.notes[0]


@needs_copy
def test_a_second_copy_is_made_where_the_first_is_stuck(monkeypatch):
    copies = []
    fork = os.fork

    def counted_fork():
        copies.append(1)
        return fork()

    def stuck_at_first():
        if len(copies) == 1:
            hang_in_python()

    monkeypatch.setattr(os, "fork", counted_fork)
    monkeypatch.setattr(forked, "_compute_a_little", stuck_at_first)
    monkeypatch.setattr(forked, "READY_SECONDS", 1.0)
    report = verify(lambda: None)
    assert report.passed
    assert report.notes == ()
    assert len(copies) == 2
