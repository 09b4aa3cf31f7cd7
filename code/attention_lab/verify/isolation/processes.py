"""Processes that the code under test starts: counted, stopped, found again."""

import contextlib
import ctypes
import mmap
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from attention_lab.verify.isolation.words import is_verifier

#: More copies than this are taken for an accident; each takes its memory.
MOST_FORKS = 300
#: How often to look for processes that were started while others were ended.
ROUNDS = 20
PR_SET_CHILD_SUBREAPER = 36  # from Linux's prctl.h
PROC = Path("/proc")
_forks_for_verifier = threading.Event()
WRITES = os.O_WRONLY | os.O_RDWR


class ForkCount:
    """How often a process and its copies copied themselves, in shared memory.

    To be made before the first copy.
    """

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8)

    @property
    def value(self) -> int:
        """Return the number up to now."""
        return int.from_bytes(self._memory[:8], "little")

    def add_one(self) -> None:
        """Count one more. Two at the very same time may count as one."""
        self._memory[:8] = (self.value + 1).to_bytes(8, "little")

    def close(self) -> None:
        """Give the memory back."""
        self._memory.close()


def watch_forks(count: ForkCount, too_many: Callable[[], None]) -> None:
    """Count this process's copies from now on, and let none run the verifier.

    A copy runs the code that made it, as it should, and ends where that code
    would return to the verifier: two of them would go on with the checks.

    Parameters
    ----------
    count : of this process and its copies.
    too_many : called before one more than `MOST_FORKS` copies are made.
    """

    def before() -> None:
        if _forks_for_verifier.is_set():
            return
        count.add_one()
        if count.value > MOST_FORKS:
            sys.setprofile(None)  # a copy may say this for all
            too_many()

    os.register_at_fork(before=before, after_in_child=_end_at_the_verifier)


@contextlib.contextmanager
def verifiers_own_fork() -> Iterator[None]:
    """Let the copy made in this block run the verifier.

    Code under test may verify something itself.
    """
    _forks_for_verifier.set()
    try:
        yield
    finally:
        _forks_for_verifier.clear()


def _end_at_the_verifier() -> None:
    is_own = _forks_for_verifier.is_set()
    sys.setprofile(None if is_own else _end_on_return)


def _end_on_return(frame: FrameType, event: str, _: Any) -> None:
    """End the process when a call made by the verifier returns."""
    if event == "return":
        returns_to = frame.f_back
    elif event in ("c_return", "c_exception"):
        returns_to = frame
    else:
        return
    if returns_to is None or frame.f_code.co_filename == __file__:
        return
    file = returns_to.f_code.co_filename
    # The hooks of this file run where a copy's copy is made.
    if file != __file__ and is_verifier(file):
        os._exit(0)


def adopt_orphans() -> None:
    """Become the parent of every process below whose parent ends.

    So that `end_descendants` finds them all. On Linux only.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)


def end_descendants(pid: int) -> None:
    """Stop a process and kill all below it, where /proc says which they are."""
    if not PROC.is_dir():
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, signal.SIGSTOP)  # it shall start no more
    for _ in range(ROUNDS):
        found = _below(pid)
        if not found:
            break
        _kill(found)


def end_orphans(pipes: list[int]) -> None:
    """Kill what can still write into these pipes, and is none of ours.

    It was started by a process that has ended meanwhile.
    """
    if not PROC.is_dir():
        return
    names = {f"pipe:[{os.fstat(pipe).st_ino}]" for pipe in pipes}
    ours = {os.getpid(), *_below(os.getpid())}
    _kill(
        pid
        for pid in _parents()
        if pid not in ours and _can_write(PROC / str(pid), names)
    )


def _kill(pids: Any) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def _below(pid: int) -> set[int]:
    """Return the living processes below one."""
    parents = _parents()
    found, new = set(), {pid}
    while new:
        new = {child for child, parent in parents.items() if parent in new}
        new -= found
        found |= new
    return found


def _parents() -> dict[int, int]:
    """Return process -> its parent, for every process that is alive."""
    parents = {}
    for folder in PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with contextlib.suppress(OSError, ValueError):
            # "pid (name) state parent ..."; the name may hold anything.
            text = (folder / "stat").read_text("utf-8", "replace")
            state, parent, *_ = text.rpartition(")")[2].split()
            if state not in ("Z", "X"):
                parents[int(folder.name)] = int(parent)
    return parents


def _can_write(process: Path, names: set[str]) -> bool:
    """Whether a process holds the writing end of a pipe of these names."""
    with contextlib.suppress(OSError, ValueError):
        for link in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(link.readlink()) not in names:
                    continue
                about = (process / "fdinfo" / link.name).read_text()
                flags = about.partition("flags:")[2].split()[0]
                if int(flags, 8) & WRITES:
                    return True
    return False
