"""What failed before, kept in a file, so that hints grow across runs."""

import contextlib
import json
import os
import sys
from pathlib import Path

from attention_lab.verify.report import Report

Counts = dict[str, dict[str, int]]


def counts_file() -> Path:
    """Return the path of the file in the user's cache folder.

    $XDG_CACHE_HOME where that is set, else what the system uses.
    """
    home = Path.home()
    folder = {
        "darwin": home / "Library" / "Caches",
        "win32": Path(os.environ.get("LOCALAPPDATA") or home),
    }.get(sys.platform, home / ".cache")
    folder = Path(os.environ.get("XDG_CACHE_HOME") or folder)
    return folder / "attention-lab" / "failures.json"


def failures_before(owner: str) -> dict[str, int]:
    """Return check -> how often it failed since it last passed."""
    counts = _read().get(owner)
    if not isinstance(counts, dict):
        return {}
    return {
        name: count for name, count in counts.items() if isinstance(count, int)
    }


def remember(owner: str, report: Report, *, afresh: bool = False) -> None:
    """Count a report's failures; a check that passes starts from 0 again.

    `afresh` forgets what was counted before.
    Where the file cannot be written, nothing is remembered.
    """
    everything = _read()
    counts = {} if afresh else failures_before(owner)
    for check in report.checks:
        if check.passed:
            counts.pop(check.name, None)
        else:
            counts[check.name] = counts.get(check.name, 0) + 1
    everything[owner] = counts
    if not counts:
        del everything[owner]
    with contextlib.suppress(OSError):
        _write(everything)


def _read() -> Counts:
    try:
        counts = json.loads(counts_file().read_text("utf-8"))
    except (OSError, ValueError, RuntimeError):  # no home is a RuntimeError
        return {}
    return counts if isinstance(counts, dict) else {}


def _write(counts: Counts) -> None:
    path = counts_file()
    path.parent.mkdir(parents=True, exist_ok=True)
    # In one step: another run may read or write at the same time.
    new = path.with_name(f"{path.name}.{os.getpid()}")
    new.write_text(json.dumps(counts, indent=1), "utf-8")
    new.replace(path)
