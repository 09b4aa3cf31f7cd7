"""Run a verification in a copy of this process that can be stopped."""

import contextlib
import ctypes
import faulthandler
import json
import os
import selectors
import signal
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from attention_lab.verify.isolation.notebook import leave_the_notebook
from attention_lab.verify.isolation.processes import (
    MOST_FORKS,
    ForkCount,
    adopt_orphans,
    end_descendants,
    end_orphans,
    verifiers_own_fork,
    watch_forks,
)
from attention_lab.verify.isolation.progress import Heard, Message, Progress
from attention_lab.verify.isolation.words import (
    out_of_memory_in_words,
    raised_in_words,
    ran_out_of_memory,
    stack_in_words,
    too_many_forks_in_words,
)
from attention_lab.verify.report import Report

POLL_SECONDS = 0.02
READY_SECONDS = 4.0  # a copy that works needs a tenth; others never are
HEARD_SECONDS = 1.0  # until the caller, who polls, has heard the report
DYING_SECONDS = 0.3  # to say where it is, and to be gone after a kill
TAIL_BYTES = 2000
PR_SET_PDEATHSIG = 1  # from Linux's prctl.h


@dataclass
class Ending:
    """How the copy ended, and everything it said before.

    `hung` if it was stopped at the limit; `signal` and `exit_code` if it
    ended by itself without a report; `place` is where Python was then;
    `forks` is how often it copied itself.
    """

    heard: Heard = field(default_factory=Heard)
    hung: bool = False
    signal: int | None = None
    exit_code: int | None = None
    place: str = ""
    output: str = ""
    forks: int = 0


def run_forked(
    build: Callable[[Progress], Report], seconds: float, memory_bytes: int
) -> Ending:
    """Run `build` in a forked copy, for at most `seconds`.

    The copy is in a session of its own, so that neither Ctrl-C nor a signal
    of its own to its group reaches beyond it, and everything that it started
    is ended with it. A copy that sees that it cannot compute says so
    (`heard.unfit`), or never becomes ready (`heard.ready`): then nothing is
    known about the code.
    """
    pipes = [os.pipe() for _ in range(3)]
    count = ForkCount()
    parent = os.getpid()
    with warnings.catch_warnings():
        # Python 3.12 warns that a lock held by another thread stays locked in
        # the copy. The copy runs in one thread, tries out what it needs
        # before it starts, and is stopped if it hangs.
        warnings.filterwarnings(
            "ignore",
            r".*use of fork\(\) may lead to deadlocks",
            DeprecationWarning,
        )
        with verifiers_own_fork():
            pid = os.fork()
    if pid == 0:
        try:
            ends = [write for _, write in pipes]
            _live(build, ends, count, parent, seconds, memory_bytes)
        finally:
            # Not sys.exit: nothing of the caller's may run twice.
            os._exit(0)
    for _, write in pipes:
        os.close(write)
    watched = _Watched(pid, *(read for read, _ in pipes))
    try:
        ending = watched.until_the_end(seconds)
        ending.forks = count.value
        return ending
    finally:
        watched.bury()
        count.close()


class _Watched:
    """The caller's side: reads what the copy says, and ends it."""

    def __init__(
        self, pid: int, messages: int, output: int, stack: int
    ) -> None:
        self.pid = pid
        self.ending = Ending()
        self.status: int | None = None
        self.reaped = False
        self.unfinished_line = b""
        self.kept = {output: b"", stack: b""}
        self.messages, self.output, self.stack = messages, output, stack
        self.selector = selectors.DefaultSelector()
        for pipe in (messages, output, stack):
            os.set_blocking(pipe, False)
            self.selector.register(pipe, selectors.EVENT_READ)

    def until_the_end(self, seconds: float) -> Ending:
        ending, heard = self.ending, self.ending.heard
        deadline = time.monotonic() + READY_SECONDS
        was_ready = False
        while not heard.is_over:
            left = deadline - time.monotonic()
            if left <= 0:
                ending.hung = True
                self._ask_where()
                break
            if self._is_gone():
                self._read_all()
                break
            self._read(min(left, POLL_SECONDS))
            if heard.ready and not was_ready:
                was_ready = True
                deadline = time.monotonic() + seconds
        if self.status is not None and not heard.is_over:
            if os.WIFSIGNALED(self.status):
                ending.signal = os.WTERMSIG(self.status)
            else:
                ending.exit_code = os.waitstatus_to_exitcode(self.status)
        text = self.kept[self.stack].decode("utf-8", "replace")
        ending.place = stack_in_words(text)
        ending.output = self.kept[self.output].decode("utf-8", "replace")
        return ending

    def bury(self) -> None:
        """End the copy and what it started; leave no zombie and no pipe."""
        if not self.reaped:
            end_descendants(self.pid)
        for end in (os.killpg, os.kill):
            # It may be gone, or not yet lead its group.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                end(self.pid, signal.SIGKILL)
        if not self.reaped:
            # Nothing outlives SIGKILL, so this ends.
            with contextlib.suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        else:
            end_orphans([self.messages, self.output])
        self.selector.close()
        for pipe in (self.messages, self.output, self.stack):
            os.close(pipe)

    def _is_gone(self) -> bool:
        try:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:  # the caller ignores SIGCHLD: no status
            self.reaped = True
            return True
        if pid:
            self.reaped, self.status = True, status
        return self.reaped

    def _ask_where(self) -> None:
        """Let the copy write where it is, even from inside compiled code."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGUSR1)
        until = time.monotonic() + DYING_SECONDS
        while time.monotonic() < until:
            read_any = self._read(POLL_SECONDS)
            if self.kept[self.stack] and not read_any:
                break

    def _read_all(self) -> None:
        """Read what is in the pipes now, and no more than that can be."""
        until = time.monotonic() + DYING_SECONDS
        while self._read(0) and time.monotonic() < until:
            pass

    def _read(self, wait: float) -> bool:
        read_any = False
        for key, _ in self.selector.select(wait):
            chunk = os.read(key.fd, 1 << 16)
            if not chunk:  # nobody can write any more
                self.selector.unregister(key.fd)
                continue
            read_any = True
            if key.fd == self.messages:
                *lines, rest = (self.unfinished_line + chunk).split(b"\n")
                self.unfinished_line = rest
                # The signal that asks where it hangs may have woken it up:
                # what it says after its time is not heard.
                for line in lines if not self.ending.hung else ():
                    self.ending.heard.hear_line(line)
            elif key.fd == self.output:
                self.kept[key.fd] = (self.kept[key.fd] + chunk)[-TAIL_BYTES:]
            else:
                self.kept[key.fd] += chunk
        if not self.selector.get_map():
            time.sleep(wait)  # select would return at once
        return read_any


def _live(
    build: Callable[[Progress], Report],
    pipes: list[int],
    count: ForkCount,
    parent: int,
    seconds: float,
    memory_bytes: int,
) -> None:
    """Be the copy: make ready, run `build`, say what came of it."""
    messages, output, stack = pipes

    def tell(message: Message) -> None:
        line = memoryview(json.dumps(message).encode() + b"\n")
        while line:
            line = line[os.write(messages, line) :]

    def too_many_forks() -> None:
        with contextlib.suppress(OSError):  # the code may have closed it
            tell({"raised": too_many_forks_in_words(MOST_FORKS)})
        os.killpg(0, signal.SIGKILL)

    _own_session(parent, READY_SECONDS + seconds + 5)
    _own_streams(output, stack)
    try:
        _compute_a_little()
    except Exception as error:
        tell({"unfit": raised_in_words(error)})
        return
    limited = limit_memory(memory_bytes)
    watch_forks(count, too_many_forks)
    tell({"ready": True})
    try:
        report = build(Progress(tell))
        message = {"report": report.to_json()}
    except BaseException as error:
        # SystemExit and KeyboardInterrupt too: the code under test may raise
        # them, and the caller's Ctrl-C does not come here.
        if ran_out_of_memory(error):
            raised = out_of_memory_in_words(memory_bytes)
        else:
            raised = raised_in_words(error, if_nowhere="The verifier")
        message = {"raised": raised}
    if limited is not None:
        # What is left to do needs memory itself.
        _set_memory_limit(limited)
    tell(message)
    # While it lives it is known what it started; so it waits for its end.
    time.sleep(HEARD_SECONDS)


def _own_session(parent: int, seconds: float) -> None:
    """Cut the ties to the caller's terminal, signals and life."""
    os.setsid()
    signal.set_wakeup_fd(-1)  # it would wake the caller's event loop
    for number in (signal.SIGTERM, signal.SIGALRM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # The last resorts, should the caller be killed while this runs: an alarm
    # that ends the process, and on Linux the kernel's word for it.
    signal.setitimer(signal.ITIMER_REAL, seconds)
    adopt_orphans()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(0)


def _own_streams(output: int, stack: int) -> None:
    """Send what the code prints to the caller's pipe; give it no input."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115
    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = open(  # noqa: SIM115 - it lives as long as the process
            number,
            "w",
            buffering=1,
            encoding="utf-8",
            errors="backslashreplace",
            closefd=False,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    leave_the_notebook()
    faulthandler.enable(stack, all_threads=False)
    faulthandler.register(signal.SIGUSR1, stack, all_threads=False)


def _compute_a_little() -> None:
    """Use one thread, and try what a copied process may be unable to do.

    Threads are not copied. A library that waits for its own would wait for
    ever, and PyTorch refuses a backward pass where a GPU's threads ran it
    before. It is better to know that now than to blame the code for it.
    """
    for name in ("OMP", "MKL", "OPENBLAS"):
        os.environ[f"{name}_NUM_THREADS"] = "1"
    torch = sys.modules.get("torch")
    if torch is not None:
        torch.set_num_threads(1)
        with torch.inference_mode(False), torch.enable_grad():
            x = torch.ones(128, 128, device="cpu", requires_grad=True)
            (x @ x).softmax(-1).sum().backward()
    x = np.ones((128, 128))
    x @ x


def limit_memory(memory_bytes: int) -> int | None:
    """Allow this process so much more memory than now.

    Returns
    -------
    The limit from before; None where there can be none: only Linux says how
    much is in use.
    """
    if sys.platform != "linux":
        return None
    import resource  # not on Windows

    pages = int(open("/proc/self/statm").read().split()[0])  # noqa: SIM115, PTH123
    wanted = pages * resource.getpagesize() + memory_bytes
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    # A stricter limit from outside stays.
    for limit in (soft, hard):
        if limit != resource.RLIM_INFINITY:
            wanted = min(wanted, limit)
    _set_memory_limit(wanted)
    # No file of the size of the memory when it crashes.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return soft


def _set_memory_limit(soft: int) -> None:
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
