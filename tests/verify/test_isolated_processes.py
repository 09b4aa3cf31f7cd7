"""What foreign code prints and starts, and what is left of it afterwards."""

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
from foreign_code import (
    attend_often,
    crash,
    hang_in_python,
    has_child,
    is_alive,
    needs_copy,
    verify,
    wait_until_dead,
    what_of,
)
from numpy.testing import assert_array_less

from attention_lab.verify.isolation import forked, processes

# What it prints and starts --------------------------------------------------


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


# Processes of its own -------------------------------------------------------


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


# Notebooks ------------------------------------------------------------------


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


# The caller -----------------------------------------------------------------


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


# Threads of libraries -------------------------------------------------------


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
