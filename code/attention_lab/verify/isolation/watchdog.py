"""A time limit for code that must run inside this process."""

import ctypes
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
AGAIN_SECONDS = 0.2


class TimeIsUp(BaseException):
    """Raised inside code at its time limit.

    No `Exception`, so that code which catches those cannot go on.
    """


def run_until(work: Callable[[], T], seconds: float) -> T:
    """Run `work` and interrupt it after `seconds`.

    Python raises `TimeIsUp` between two steps of its own. A call into
    compiled code is not interrupted: it is waited for.

    Raises
    ------
    TimeIsUp
        If the time was up first.
    """
    watchdog = _Watchdog(threading.get_ident(), seconds)
    try:
        try:
            watchdog.start()
            return work()
        finally:
            watchdog.stop()
    except TimeIsUp:
        # It may have been raised inside `stop` just now.
        watchdog.stop()
        raise


class _Watchdog(threading.Thread):
    def __init__(self, watched: int, seconds: float) -> None:
        super().__init__(name="time limit of a verification", daemon=True)
        self.watched = ctypes.c_ulong(watched)
        self.seconds = seconds
        self.has_raised = False
        self.over = threading.Event()
        self.lock = threading.Lock()

    def run(self) -> None:
        wait = self.seconds
        while not self.over.wait(wait):
            with self.lock:
                if not self.over.is_set():
                    self.has_raised = True
                    self._raise_in_watched(ctypes.py_object(TimeIsUp))
            # Once more: the code may have caught it.
            wait = AGAIN_SECONDS

    def stop(self) -> None:
        """Raise nothing from now on, and await what is on its way."""
        self.over.set()
        with self.lock:
            if not self.has_raised:
                return
            # One may be on its way. Taking it back would let Python 3.11 check
            # for it for ever, and hang under a profiler: so wait for one.
            try:
                self._raise_in_watched(ctypes.py_object(TimeIsUp))
                while True:
                    pass
            except TimeIsUp:
                self.has_raised = False

    def _raise_in_watched(self, error: ctypes.py_object) -> None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(self.watched, error)
