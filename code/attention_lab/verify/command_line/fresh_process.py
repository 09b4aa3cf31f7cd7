"""Verify what is in a file in a fresh process, and wait for its answer."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from attention_lab.verify.command_line.load import CannotVerify
from attention_lab.verify.command_line.worker import Request
from attention_lab.verify.isolation.processes import end_descendants
from attention_lab.verify.isolation.words import signal_in_words, tail_in_words
from attention_lab.verify.report import Report, report_from_json

POLL_SECONDS = 0.05
STARTING_SECONDS = 60.0  # Python and PyTorch, from a cold and slow disk
ENDING_SECONDS = 30.0  # a battery ends itself before; this is the last resort
TAIL_CHARACTERS = 2000


def verify_in_fresh_process(request: Request) -> Report:
    """Let a worker import and verify; `request.answers` is filled in here.

    Raises
    ------
    CannotVerify
        If there is nothing to verify: the import fails, hangs or crashes.
    """
    with tempfile.TemporaryDirectory() as folder:
        answers = Path(folder) / "answers.jsonl"
        answers.touch()
        request = replace(request, answers=str(answers))
        with _Worker(request) as worker:
            return _wait(worker, request)


def _wait(worker: "_Worker", request: Request) -> Report:
    limits = {
        "imports": request.seconds,
        "loaded": request.seconds + ENDING_SECONDS,
    }
    deadline = time.monotonic() + STARTING_SECONDS
    while True:
        is_over = worker.process.poll() is not None
        said = worker.answers()
        if "report" in said:
            return report_from_json(said["report"])
        if "cannot" in said:
            raise CannotVerify(said["cannot"])
        for stage in [stage for stage in limits if stage in said]:
            deadline = time.monotonic() + limits.pop(stage)
        if is_over:
            raise CannotVerify(_how_it_ended(worker, request, said))
        if time.monotonic() > deadline:
            raise CannotVerify(_what_takes_so_long(request, said))
        time.sleep(POLL_SECONDS)


def _what_takes_so_long(request: Request, said: dict[str, Any]) -> str:
    file = Path(request.path).name
    limit = f"at the time limit of {request.seconds:g} s"
    if "loaded" in said:
        return f"the checks of {request.name} did not stop {limit}"
    if "imports" in said:
        return (
            f"{file} was still being imported {limit}. Put what is to run "
            'only as a script under if __name__ == "__main__"'
        )
    return f"Python did not start within {STARTING_SECONDS:g} s"


def _how_it_ended(
    worker: "_Worker", request: Request, said: dict[str, Any]
) -> str:
    code = worker.process.returncode
    file = Path(request.path).name
    when = "verified" if "loaded" in said else "imported"
    what = (
        signal_in_words(-code)
        if code < 0
        else f"It ended its process with exit code {code}"
    )
    printed = tail_in_words(worker.output())
    return f"{file} broke off while it was {when}. {what}. {printed}".rstrip()


class _Worker:
    """A worker process with its own group, which ends with it."""

    def __init__(self, request: Request) -> None:
        self.path = Path(request.answers)
        # -P: the current folder's files are no modules of the worker's.
        self.process = subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "attention_lab.verify.command_line.worker",
                request.to_json(),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._tail = ""
        self._reader = threading.Thread(
            target=self._read, args=(self.process.stdout,), daemon=True
        )
        self._reader.start()

    def __enter__(self) -> "_Worker":
        return self

    def __exit__(self, *error: object) -> None:
        if hasattr(os, "killpg"):
            # Whatever the file started goes with it.
            if self.process.poll() is None:
                end_descendants(self.process.pid)
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self._reader.join(1)
        if not self._reader.is_alive():
            self.process.stdout.close()

    def answers(self) -> dict[str, Any]:
        """Return what the worker has answered up to now."""
        said: dict[str, Any] = {}
        lines = self.path.read_text("utf-8").split("\n")
        for line in lines[:-1]:  # the last one may be half written
            said |= json.loads(line)
        return said

    def output(self) -> str:
        """Return the last that it printed."""
        self._reader.join(0.2)
        return self._tail

    def _read(self, stream: IO[bytes]) -> None:
        while chunk := stream.read1(1 << 16):
            text = self._tail + chunk.decode("utf-8", "replace")
            self._tail = text[-TAIL_CHARACTERS:]
