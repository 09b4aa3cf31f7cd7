import ctypes
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_array_less

from attention_lab.verify.isolation import forked, isolated, processes
from attention_lab.verify.isolation.isolated import Progress, isolated_report
from attention_lab.verify.isolation.watchdog import TimeIsUp, run_until
from attention_lab.verify.isolation.words import (
    RECORDER,
    VERIFIER,
    forks_in_words,
    place_in_words,
    ran_out_of_memory,
    signal_in_words,
    stack_in_words,
    tail_in_words,
)
from attention_lab.verify.report import Check, Counterexample, Report

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


# What comes back -----------------------------------------------------------


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


# Time ----------------------------------------------------------------------


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
    assert f"of test_isolated.py, in {hang.__name__}." in what
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


# Crashes and exits ---------------------------------------------------------


def crash():
    print("loading the last tile")
    ctypes.string_at(0)


@needs_copy
def test_a_crash_names_the_signal_the_place_and_what_was_printed():
    what = what_of(verify(crash))
    assert what.startswith("It crashed with signal SIGSEGV (L = 5, S = 7).")
    assert "of test_isolated.py, in crash." in what
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


# Memory --------------------------------------------------------------------


needs_memory_limit = pytest.mark.skipif(
    sys.platform != "linux", reason="memory is limited on Linux only"
)


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


# What it prints and starts -------------------------------------------------


@needs_copy
def test_what_it_prints_stays_out_of_the_report_and_of_the_terminal(capfd):
    def chatter():
        print('{"report": "mine"}')
        print("error", file=sys.stderr)
        os.write(1, b"raw\n")
        subprocess.run([sys.executable, "-c", "print(1)"], check=True)

    assert verify(chatter).passed
    assert capfd.readouterr() == ("", "")


@needs_copy
def test_gigabytes_of_output_neither_block_nor_fill_memory():
    def flood():
        block = b"x" * (1 << 20)
        for _ in range(1024):
            os.write(1, block)
        os._exit(1)

    report = verify(flood, seconds=30)
    assert_array_less(len(what_of(report)), 600)
    assert "exit code 1" in what_of(report)


@needs_copy
def test_it_gets_no_input():
    assert "It raised EOFError" in what_of(verify(input))


@needs_copy
def test_descriptors_that_it_closes_are_its_own_loss():
    what = what_of(verify(lambda: os.closerange(0, 4096)))
    assert "It ended its process" in what or "It raised OSError" in what


@needs_copy
def test_garbage_in_the_channel_is_no_report(monkeypatch):
    pipe = os.pipe
    channels = []

    def noted_pipe():
        channels.append(pipe())
        return channels[-1]

    monkeypatch.setattr(os, "pipe", noted_pipe)

    def scribble():
        for garbage in (b"[1]", b"null", b"\xff{", b'{"report": 3}', b"{}"):
            os.write(channels[0][1], garbage + b"\n")
        os._exit(0)

    assert "It ended its process" in what_of(verify(scribble))


@needs_copy
def test_threads_that_go_on_do_not_keep_it():
    began = time.monotonic()
    started = lambda: threading.Thread(target=hang_in_python).start()  # noqa: E731
    assert verify(started, seconds=5).passed
    assert_array_less(time.monotonic() - began, 3.0)


@needs_copy
def test_a_process_that_it_starts_does_not_outlive_it(tmp_path):
    note = tmp_path / "pid"

    def start():
        process = subprocess.Popen(["sleep", "60"])
        note.write_text(str(process.pid))

    with warnings.catch_warnings():
        assert verify(start).passed
    wait_until_dead(int(note.read_text()))


@needs_copy
def test_a_copy_that_it_makes_of_itself_does_not_go_on_with_the_checks():
    report = verify(os.fork)
    assert report.passed
    assert [check.name for check in report.checks] == ["first", "second"]


# Processes of its own ------------------------------------------------------


def attend_often(attend):
    """Call it as a battery does: many times between two messages."""
    source = "def calls(attend):\n    for _ in range(12): attend()\n"
    namespace = {}
    # As if it were a file of the verifier: it is what copies may not run.
    exec(compile(source, f"{VERIFIER}/battery.py", "exec"), namespace)
    namespace["calls"](attend)


@needs_copy
def test_copies_of_the_copy_end_where_the_verifier_would_go_on(tmp_path):
    calls = tmp_path / "calls"
    calls.touch()

    def forks():
        pid = os.fork()
        with calls.open("a") as file:
            file.write(".")
        if pid:
            os.waitpid(pid, 0)

    assert verify(lambda: attend_often(forks)).passed
    # Two processes come to the end of each call, and one of them goes on.
    assert len(calls.read_text()) == 2 * 12


@needs_copy
def test_a_copy_may_do_its_own_work():
    def forks_and_waits():
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 7

    assert verify(lambda: attend_often(forks_and_waits)).passed


@needs_copy
def test_a_bomb_of_copies_stays_bounded_and_is_said_in_words(monkeypatch):
    monkeypatch.setattr(processes, "MOST_FORKS", 20)
    monkeypatch.setattr(forked, "MOST_FORKS", 20)

    def bomb():
        while True:
            os.fork()

    what = what_of(verify(bomb))
    assert "It started more than 20 processes of its own" in what


@needs_copy
def test_an_end_after_a_copy_names_the_copy():
    def leaves_it_to_the_copy():
        if os.fork():
            os._exit(0)

    what = what_of(verify(lambda: attend_often(leaves_it_to_the_copy)))
    assert "exit code 0" in what
    assert "It had started a process of its own." in what


@needs_copy
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
@pytest.mark.parametrize("ending", ["returns", "hangs"])
def test_what_left_the_group_is_found_and_ended(tmp_path, ending):
    note = tmp_path / "pid"

    def start():
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            note.write_text(str(os.getpid()))
            time.sleep(60)
        while not (note.exists() and note.read_text()):
            time.sleep(0.01)
        {"returns": int, "hangs": hang_in_python}[ending]()

    report = verify(start, seconds=2)
    assert report.passed == (ending == "returns")
    wait_until_dead(int(note.read_text()))


@needs_copy
@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_program_in_a_session_of_its_own_is_ended(tmp_path):
    note = tmp_path / "pid"

    def start():
        nowhere = subprocess.DEVNULL
        process = subprocess.Popen(
            ["sleep", "60"],
            start_new_session=True,
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
        )
        note.write_text(str(process.pid))

    with warnings.catch_warnings():
        assert verify(start).passed
    wait_until_dead(int(note.read_text()))


# Notebooks -----------------------------------------------------------------


@needs_copy
def test_nothing_displayed_in_the_copy_reaches_the_notebook(monkeypatch):
    read, write = os.pipe()

    class Session:
        def send(self, *message):
            os.write(write, b"sent")

    kernel = SimpleNamespace(session=Session(), _allow_stdin=True)
    shell = SimpleNamespace(
        kernel=kernel, display_pub=SimpleNamespace(session=Session())
    )
    ipython = SimpleNamespace(get_ipython=lambda: shell)
    monkeypatch.setitem(sys.modules, "IPython", ipython)

    def displays():
        kernel.session.send("stream")
        shell.display_pub.session.send("display_data")
        assert not kernel._allow_stdin

    assert verify(displays).passed
    os.close(write)
    assert os.read(read, 4) == b""
    os.close(read)
    assert kernel._allow_stdin


# The caller ----------------------------------------------------------------


@needs_copy
def test_no_process_and_no_descriptor_is_left():
    def descriptors():
        return len(os.listdir("/dev/fd"))  # noqa: PTH208

    verify(lambda: None)
    gc.collect()
    before = descriptors()
    for subject in (lambda: None, crash, lambda: sys.exit(1)):
        verify(subject)
    assert descriptors() == before
    assert not has_child()


@needs_copy
def test_ctrl_c_ends_the_copy_and_reaches_the_caller(tmp_path):
    note = tmp_path / "pid"

    def hang():
        note.write_text(str(os.getpid()))
        hang_in_python()

    # A shell starts what runs in its background with Ctrl-C ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            verify(hang, seconds=20)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not is_alive(int(note.read_text()))
    assert not has_child()


@needs_copy
@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere it takes until its alarm"
)
def test_the_copy_dies_with_a_caller_that_is_killed(tmp_path):
    note = tmp_path / "pid"
    program = f"""
import os, pathlib, time
from attention_lab.verify.isolation.isolated import isolated_report
def build(progress):
    pathlib.Path({str(note)!r}).write_text(str(os.getpid()))
    while True:
        time.sleep(1)
isolated_report(build, subject="it", kind="numpy", seconds=60)
"""
    with subprocess.Popen([sys.executable, "-c", program]) as caller:
        until = time.monotonic() + 10
        while not (note.exists() and note.read_text()):
            assert time.monotonic() < until
            time.sleep(0.02)
        caller.kill()
    wait_until_dead(int(note.read_text()))


@needs_copy
def test_the_caller_may_ignore_its_children():
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert verify(lambda: None).passed
        assert "It ended its process" in what_of(verify(lambda: os._exit(1)))
    finally:
        signal.signal(signal.SIGCHLD, before)


@needs_copy
def test_from_two_threads_at_once():
    reports = {}

    def work(name, subject):
        reports[name] = verify(subject, seconds=0.5)

    threads = [
        threading.Thread(target=work, args=("good", lambda: None)),
        threading.Thread(target=work, args=("bad", hang_in_python)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert reports["good"].passed
    assert "time limit" in what_of(reports["bad"])


@needs_copy
def test_the_warning_about_forking_with_threads_is_silenced_alone(monkeypatch):
    fork = os.fork

    def fork_of_python_3_12():
        warnings.warn(
            "This process (pid=1) is multi-threaded, use of fork() may lead "
            "to deadlocks in the child.",
            DeprecationWarning,
            stacklevel=2,
        )
        return fork()

    monkeypatch.setattr(os, "fork", fork_of_python_3_12)
    assert verify(lambda: None).passed
    monkeypatch.setattr(
        os, "fork", lambda: warnings.warn("other", stacklevel=2)
    )
    with pytest.raises(UserWarning, match="other"):
        verify(lambda: None)


# Threads of libraries ------------------------------------------------------


@needs_copy
def test_after_parallel_work_here_torch_still_computes_in_the_copy():
    torch = pytest.importorskip("torch")
    checkpoint = pytest.importorskip("torch.utils.checkpoint").checkpoint
    numba = pytest.importorskip("numba")
    before = torch.get_num_threads()

    @numba.njit(parallel=True)
    def total(x):
        result = 0.0
        for i in numba.prange(x.size):
            result += x[i]
        return result

    def train(n):
        x = torch.randn(n, n, requires_grad=True)
        y = checkpoint(lambda x: (x @ x).softmax(-1), x, use_reentrant=True)
        torch.nn.functional.scaled_dot_product_attention(
            y[None, None], y[None, None], x[None, None]
        ).sum().backward()
        assert bool(x.grad.isfinite().all())

    try:
        torch.set_num_threads(4)
        train(600)
        total(np.ones(1000))
        np.ones((600, 600)) @ np.ones((600, 600))
        threads = []
        report = verify(lambda: (train(600), threads.append(1)), seconds=20)
        assert report.passed, str(report)
        one = verify(lambda: sys.exit(torch.get_num_threads()))
        assert "sys.exit(1)" in what_of(one)
        # Numba itself refuses to go on in a copy where its threads are
        # OpenMP's; then the verification runs here instead.
        assert verify(lambda: total(np.ones(1000))).passed
    finally:
        torch.set_num_threads(before)


@needs_copy
def test_the_callers_gradient_mode_does_not_matter():
    torch = pytest.importorskip("torch")
    with torch.inference_mode():
        assert verify(lambda: None).notes == ()


# Where no copy can be made -------------------------------------------------


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


# Words ---------------------------------------------------------------------


def test_progress_alone_drops_what_it_is_told():
    progress = Progress()
    progress.starts("first")
    progress.finished(FIRST)


def test_libraries_are_passed_over_when_a_place_is_named():
    stack = f"""Current thread 0x1 (most recent call first):
  File "{threading.__file__}", line 9 in wait
  File "/x/site-packages/torch/functional.py", line 5 in einsum
  File "/x/ipykernel_7/12.py", line 4 in attend
  File "/x/mine.py", line 8 in <module>
  File "{isolated.__file__}", line 3 in build
  File "/x/caller.py", line 99 in <module>
"""
    assert stack_in_words(stack) == "line 4, in attend"
    last = "\n".join(stack.splitlines()[-3:-1])
    assert stack_in_words(last) == "line 8 of mine.py"
    # What called the verifier is not where the code hangs.
    assert stack_in_words("\n".join(stack.splitlines()[-2:])) == ""
    assert stack_in_words("nothing") == ""


def test_a_line_of_generated_code_is_not_named():
    recorder = RECORDER / "engine.py"
    stack = f"""Current thread 0x1 (most recent call first):
  File "<lowered hang 7>", line 6 in thread
  File "{recorder}", line 3 in run
  File "/x/mine.py", line 8 in outer
"""
    assert stack_in_words(stack) == "line 8 of mine.py, in outer"
    assert stack_in_words("\n".join(stack.splitlines()[:-1])) == ""


def test_the_place_of_an_error_is_named():
    def attend():
        return np.zeros(3) @ np.zeros(2)

    with pytest.raises(ValueError, match="matmul") as raised:
        attend()
    line = attend.__code__.co_firstlineno + 1
    place = f"line {line} of test_isolated.py, in attend"
    assert place_in_words(raised.value) == place
    assert place_in_words(ValueError("never raised")) == ""


def test_words_for_rare_endings():
    assert "a process of its own" in forks_in_words(1)
    assert signal_in_words(signal.SIGBUS) == "It crashed with signal SIGBUS"
    assert signal_in_words(63) == "It crashed with signal 63"
    assert tail_in_words("\n \n") == ""
    assert tail_in_words("a\nb\nc\nd\n") == 'It last printed: "b / c / d".'
    assert ran_out_of_memory(RuntimeError("std::bad_alloc"))
    assert not ran_out_of_memory(ValueError("not enough memory"))
