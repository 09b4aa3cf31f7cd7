"""Measure the extra memory of attention on a CPU as L grows; S = L.

    python benchmarks/memory.py [--out memory.json] [--quick] [--heads 1]

Linux only. Every reading comes from a process of its own, forked from one that
has imported the libraries and computed nothing. It runs the method once on a
small input, so that threads and compiled code are there; then it resets the
system's record of the largest resident size, runs once, and reads the record.
"Extra" is what came on top, the result included. Prints a table, and writes
JSON with the slopes of log(memory) against log(L): 1 is linear, 2 quadratic.
"""

import argparse
import multiprocessing
from pathlib import Path
from typing import Any

import numba
import numpy as np
import torch
from machine import SEED, machine, write

from attention_lab.steps.flash_cpu import flash_forward_cpu

LENGTHS = (1024, 2048, 4096, 8192)
QUICK_LENGTHS = (1024, 2048)
D = 64
WARM_UP = 128
MIB = 2**20
TARGETS = {"naive/ours": 256, "slope_ours": 1.05, "slope_naive": 1.9}


def naive(q: Any, k: Any, v: Any) -> Any:
    """Attend as a textbook does; stores all scores and all weights."""
    return torch.softmax(q @ k.mT * D**-0.5, -1) @ v


METHODS = {
    "naive": naive,
    "sdpa": torch.nn.functional.scaled_dot_product_attention,
    "ours": flash_forward_cpu,
}


def status_bytes(field: str) -> int:
    """Read a size of this process, such as VmRSS or VmHWM."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def measure_here(name: str, L: int, heads: int) -> dict[str, int]:
    """Return the extra bytes of one call in this process, and the result's."""
    torch.manual_seed(SEED)
    run = METHODS[name]
    small, large = (
        [torch.randn(1, heads, length, D) for _ in "qkv"]
        for length in (WARM_UP, L)
    )
    run(*small)
    Path("/proc/self/clear_refs").write_text("5")  # forget the largest size
    before = status_bytes("VmRSS")
    result = run(*large)
    extra = status_bytes("VmHWM") - before
    parts = result if isinstance(result, tuple) else (result,)
    kept = sum(part.numel() * part.element_size() for part in parts)
    return {"extra_bytes": extra, "result_bytes": kept}


def measure(name: str, L: int, heads: int) -> dict[str, Any]:
    """Return the reading of one method at one length, from a new process."""
    forked = multiprocessing.get_context("fork")
    receiver, sender = forked.Pipe(duplex=False)
    worker = forked.Process(
        target=lambda: sender.send(measure_here(name, L, heads))
    )
    worker.start()
    sender.close()  # so that a worker that dies ends the wait below
    reading = receiver.recv()
    worker.join()
    return {"method": name, "L": L, "heads": heads, "D": D, **reading}


def slope(rows: list[dict[str, Any]], name: str) -> float:
    """Fit log(extra) = slope · log(L) + constant by least squares."""
    points = [(r["L"], r["extra_bytes"]) for r in rows if r["method"] == name]
    return float(np.polyfit(*np.log(np.array(points, float)).T, 1)[0])


def summary(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return slopes, and the ratios at the largest L."""
    last = {r["method"]: r for r in rows}  # rows go up in L
    extra = {name: last[name]["extra_bytes"] for name in METHODS}
    beyond = {
        name: extra[name] - last[name]["result_bytes"] for name in METHODS
    }
    return {
        "L": last["ours"]["L"],
        "naive/ours": extra["naive"] / extra["ours"],
        "sdpa/ours": extra["sdpa"] / extra["ours"],
        "naive/ours beyond the result": beyond["naive"]
        / max(beyond["ours"], 1),
        **{f"slope_{name}": slope(rows, name) for name in METHODS},
    }


def main() -> None:
    """Measure everything, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="memory.json")
    parser.add_argument("--quick", action="store_true", help="two lengths")
    parser.add_argument("--heads", type=int, default=1)
    options = parser.parse_args()
    about = machine(torch, numba)
    # Not read: compiling leaves freed memory behind, which a reading of the
    # same process would use up first. The next ones load what it compiled.
    measure("ours", WARM_UP, options.heads)
    print(f"{'L':>6} " + " ".join(f"{name + ' MiB':>12}" for name in METHODS))
    rows = []
    for L in QUICK_LENGTHS if options.quick else LENGTHS:
        new = [measure(name, L, options.heads) for name in METHODS]
        cells = [f"{row['extra_bytes'] / MIB:12.2f}" for row in new]
        print(f"{L:6} " + " ".join(cells), flush=True)
        rows += new
    found = summary(rows)
    for key, value in found.items():
        target = f"  (target {TARGETS[key]})" if key in TARGETS else ""
        print(f"{key:28} {value:10.2f}{target}")
    write(
        options.out,
        {"machine": about, "seed": SEED, "rows": rows, "summary": found},
    )


if __name__ == "__main__":
    main()
