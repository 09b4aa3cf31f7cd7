"""Sentences about code that did not come to its end."""

import os
import re
import signal
import sys
import sysconfig
import traceback
from pathlib import Path

VERIFIER = Path(__file__).parents[1]
MUSEUM = VERIFIER / "museum"
RECORDER = VERIFIER.parent / "gpu"
#: Kernels as the recorder runs them: their lines are not the kernel's own.
GENERATED = ("<lowered ", "<recorded ", "<compiled ")
TAIL_LINES = 3


def ran_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that there was no memory left.

    PyTorch raises a RuntimeError then, known only by its text.
    """
    signs = ("can't allocate memory", "not enough memory", "bad_alloc")
    return isinstance(error, MemoryError) or (
        isinstance(error, RuntimeError)
        and any(sign in str(error) for sign in signs)
    )


def out_of_memory_in_words(memory_bytes: int) -> str:
    """Say that the limit of memory was reached."""
    return (
        f"It needed more memory than the limit of {size_in_words(memory_bytes)}"
    )


def forks_in_words(count: int) -> str:
    """Say how many processes the code started by copying its own."""
    if count == 1:
        return "It had started a process of its own."
    return f"It had started at least {count} processes of its own."


def too_many_forks_in_words(most: int) -> str:
    """Say that the code copied its process too often."""
    return f"It started more than {most} processes of its own"


def raised_in_words(error: BaseException, if_nowhere: str = "It") -> str:
    """Say what was raised and where, without an end: "It raised ...".

    Where `place_in_words` finds no place, the sentence is about `if_nowhere`.
    """
    place = place_in_words(error)
    who = "It" if place or not isinstance(error, Exception) else if_nowhere
    if isinstance(error, SystemExit):
        what = f"It called sys.exit({'' if error.code is None else error.code})"
    else:
        text = " ".join(str(error).split())
        text = f"{text[:200]}…" if len(text) > 200 else text
        name = type(error).__name__
        what = (
            f"{who} raised {name}: {text}" if text else f"{who} raised {name}"
        )
    return f"{what} ({place})" if place else what


def place_in_words(error: BaseException) -> str:
    """Say where an error was raised: "line 12 of my.py, in attend".

    The place is the innermost line that is neither Python's, nor an installed
    library's, nor the verifier's own; "" where there is none.
    """
    frames = [
        (frame.filename, frame.lineno, frame.name)
        for frame in reversed(traceback.extract_tb(error.__traceback__))
    ]
    return _first_place(frames)


def stack_in_words(stack: str) -> str:
    """Say where Python was, from what faulthandler wrote; "" if unknown.

    What called the verifier is not looked at.
    """
    frames = [
        (name, int(line), function)
        for name, line, function in re.findall(
            r'^  File "(.*)", line (\d+) in (.*)$', stack, re.MULTILINE
        )
    ]
    ours = [k for k, frame in enumerate(frames) if is_verifier(frame[0])]
    return _first_place(frames[: ours[-1]] if ours else frames)


def signal_in_words(number: int) -> str:
    """Say which signal ended a process."""
    try:
        name = signal.Signals(number).name
    except ValueError:  # a real-time signal has no name
        name = str(number)
    if name == "SIGKILL":
        return (
            "It was killed (signal SIGKILL), as systems do when their memory "
            "is used up"
        )
    return f"It crashed with signal {name}"


def size_in_words(size_bytes: int) -> str:
    """Return a size such as "4 GiB" or "512 MiB"."""
    if size_bytes >= 1 << 30:
        return f"{size_bytes / (1 << 30):.3g} GiB"
    return f"{size_bytes / (1 << 20):.3g} MiB"


def tail_in_words(output: str) -> str:
    """Quote the last lines of an output in one sentence; "" if it is empty."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    if not lines:
        return ""
    tail = " / ".join(lines[-TAIL_LINES:])
    return f'It last printed: "{tail[-300:]}".'


def _first_place(frames: list[tuple[str, int | None, str]]) -> str:
    """Return the innermost of the frames that are the user's."""
    for filename, line, function in frames:
        if _is_ours(filename) or _is_installed(filename):
            continue
        path = Path(filename)
        inside = "" if function == "<module>" else f", in {function}"
        if path.suffix == ".py" and "ipykernel" not in filename:
            return f"line {line} of {path.name}{inside}"
        return f"line {line}{inside}"
    return ""


def is_verifier(filename: str) -> bool:
    """Whether code is the verifier's own; the museum's is a subject."""
    return filename.startswith(f"{VERIFIER}{os.sep}") and (
        not filename.startswith(f"{MUSEUM}{os.sep}")
    )


def _is_ours(filename: str) -> bool:
    """Whether code is the verifier's or the recorder's, or made by it."""
    return is_verifier(filename) or filename.startswith(
        (f"{RECORDER}{os.sep}", *GENERATED)
    )


def _is_installed(filename: str) -> bool:
    standard = sysconfig.get_path("stdlib")
    return (
        filename.startswith((standard, "<frozen", "<string>"))
        or "site-packages" in filename
        or filename.startswith(sys.exec_prefix + "/lib/")
    )
