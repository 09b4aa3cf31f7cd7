"""Time attention on a CPU: torch naive, torch SDPA and ours, side by side.

    python benchmarks/cpu_speed.py [--out cpu_speed.json] [--quick] [--heads 1]

All methods take turns in one process, on the same float32 input, S = L and
D = 64; the ratios are of the medians. Two further readings say what a gap is
made of: the share of exp in our loop, and how fast torch multiplies.
`seconds_of_cores` is the time that all cores together worked; on a busy
machine it is the more trustworthy of the two. Prints a table, writes JSON.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

from machine import SEED, machine, write

LENGTHS = (1024, 4096, 8192)
QUICK_LENGTHS = (512, 1024)
D = 64
METHODS = ("naive", "sdpa", "ours", "ours causal", "sdpa causal", "matmuls")
TARGETS = {"naive/ours": 2.0, "sdpa/ours": 0.5}


def methods(L: int, heads: int) -> dict[str, Callable[[], Any]]:
    """Return the calls to time, without arguments.

    "matmuls" are the two products of naive attention on a buffer that is
    there already, with no softmax between: what torch's BLAS needs for the
    same arithmetic.
    """
    import torch

    from attention_lab.steps.flash_cpu import attention_cpu

    torch.manual_seed(SEED)
    q, k, v = (torch.randn(1, heads, L, D) for _ in "qkv")
    sdpa = torch.nn.functional.scaled_dot_product_attention
    scores, out = torch.empty(1, heads, L, L), torch.empty_like(q)

    def matmuls() -> None:
        torch.matmul(q, k.mT, out=scores)
        torch.matmul(scores, v, out=out)

    return {
        "naive": lambda: torch.softmax(q @ k.mT * D**-0.5, -1) @ v,
        "sdpa": lambda: sdpa(q, k, v),
        "ours": lambda: attention_cpu(q, k, v),
        "ours causal": lambda: attention_cpu(q, k, v, is_causal=True),
        "sdpa causal": lambda: sdpa(q, k, v, is_causal=True),
        "matmuls": matmuls,
    }


def measure(L: int, heads: int, repeats: int) -> dict[str, Any]:
    """Return the medians of all methods at one length, after one warm-up."""
    calls = methods(L, heads)
    wall: dict[str, list[float]] = {name: [] for name in calls}
    cores: dict[str, list[float]] = {name: [] for name in calls}
    for repeat in range(repeats + 1):
        for name, call in calls.items():
            began, worked = time.perf_counter(), time.process_time()
            call()
            if repeat:
                wall[name].append(time.perf_counter() - began)
                cores[name].append(time.process_time() - worked)
    return {
        "L": L,
        "heads": heads,
        "D": D,
        "repeats": repeats,
        "seconds": {n: statistics.median(x) for n, x in wall.items()},
        "seconds_of_cores": {n: statistics.median(x) for n, x in cores.items()},
    }


def exp_share() -> float:
    """Return the share of our loop that finds maxima and takes exponentials.

    Measured on one tile on one core, each part as often as for one query.
    """
    import numpy as np

    from attention_lab.steps import flash_cpu as step

    rng = np.random.default_rng(SEED)
    keys, rows = step.TILE_S, step.TILE_L
    q_tile = rng.standard_normal((D + 1, rows)).astype("f4")
    k = rng.standard_normal((keys, D)).astype("f4")
    scores, acc = np.zeros((keys, rows), "f4"), np.zeros((D + 3, rows), "f4")
    state = [np.zeros(rows, "f4") for _ in range(3)]
    parts = {
        "score": lambda: step.score_tile(scores, q_tile, k, 0, keys),
        "softmax": lambda: step.update(scores, *state, keys),
        "mix": lambda: step.mix_tile(acc, scores, k, 0, keys),
    }
    seconds = {}
    for name, part in parts.items():
        part()
        times = []
        for _ in range(20):
            began = time.thread_time()
            for _ in range(50):
                part()
            times.append(time.thread_time() - began)
        seconds[name] = min(times)
    return seconds["softmax"] / sum(seconds.values())


def summary(row: dict[str, Any]) -> dict[str, float]:
    """Return the ratios at one length, by the clock and by the cores."""
    found = {}
    for kind, suffix in (("seconds", ""), ("seconds_of_cores", " of cores")):
        spent = row[kind]
        for name in ("naive", "sdpa", "matmuls"):
            found[f"{name}/ours{suffix}"] = spent[name] / spent["ours"]
        causal = spent["sdpa causal"] / spent["ours causal"]
        found[f"sdpa/ours causal{suffix}"] = causal
    return found


def main() -> None:
    """Measure everything, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="cpu_speed.json")
    parser.add_argument("--quick", action="store_true", help="small lengths")
    parser.add_argument("--heads", type=int, default=1)
    options = parser.parse_args()
    import numba
    import torch

    about = machine(torch, numba)
    rows = []
    print(f"{'L':>6} " + " ".join(f"{name + ' s':>14}" for name in METHODS))
    for L in QUICK_LENGTHS if options.quick else LENGTHS:
        row = measure(L, options.heads, 3 if options.quick else 7)
        rows.append(row)
        for kind in ("seconds", "seconds_of_cores"):
            cells = [f"{row[kind][name]:14.4f}" for name in METHODS]
            print(f"{L:6} " + " ".join(cells) + f"  {kind}", flush=True)
    found = summary(rows[-1])
    found["share of maxima and exp in ours"] = exp_share()
    for key, value in found.items():
        target = f"  (target {TARGETS[key]})" if key in TARGETS else ""
        print(f"{key:34} {value:8.2f}{target}")
    write(
        options.out,
        {"machine": about, "seed": SEED, "rows": rows, "summary": found},
    )


if __name__ == "__main__":
    main()
