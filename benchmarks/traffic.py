"""Count what every kernel of the steps moves, beside what its formula says.

    python benchmarks/traffic.py [--out traffic.json] [--quick]

Every launch is recorded on the CPU, so the figures are exact and the same on
every machine. "naive/this" compares the bytes with those of the first rung.
Prints two tables, attention and the matrix product, and writes JSON.
"""

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np
from machine import SEED, machine, write

from attention_lab.examples import example_qkv
from attention_lab.gpu import launch
from attention_lab.gpu.recorder import record
from attention_lab.gpu.recording import Recording
from attention_lab.gpu.traffic import (
    flash_forward_traffic,
    naive_forward_traffic,
)
from attention_lab.steps import (
    flash_forward,
    matmul_ladder,
    online_softmax,
    row_softmax,
    scaled_dot_product,
    split_keys,
)
from attention_lab.steps.tiled_matmul import RUNGS

Counts = dict[str, tuple[int, int]]
BYTES = 4  # of a float32
SHARES = 2  # of the keys, in the split rung
TILE = 16  # queries and keys, in the flash rung
# What the formulas call the arrays of the kernels.
ARRAYS = {
    "q_BHLD": "query",
    "k_BHSD": "key",
    "v_BHSD": "value",
    "out_BHLD": "output",
    "lse_BHL": "log_sum_exp",
    "scores_BHLS": "scores",
    "weights_BHLS": "weights",
}


def flash(**sizes: Any) -> list[Counts]:
    """Return the formula of the tiled kernel."""
    return [flash_forward_traffic(**sizes, TILE_L=TILE, TILE_S=TILE)]


def online(**sizes: Any) -> list[Counts]:
    """Return the formula of one thread per query: tiles of one by one."""
    return [flash_forward_traffic(**sizes, TILE_L=1, TILE_S=1)]


def naive(**sizes: Any) -> list[Counts]:
    """Return the formulas of the three naive kernels, in order."""
    return list(naive_forward_traffic(**sizes).values())


def by_rows(is_one_pass: bool) -> Callable[..., list[Counts]]:
    """Return the formulas of three kernels whose softmax has rows."""
    return lambda **sizes: list(
        row_softmax.unfused_forward_traffic(
            **sizes, is_one_pass=is_one_pass
        ).values()
    )


def split(**sizes: Any) -> list[Counts]:
    """Return the formulas of both kernels that split the keys."""
    return list(
        split_keys.split_forward_traffic(**sizes, shares=SHARES).values()
    )


#: rung -> the call that launches its kernels, and their formulas.
ATTENTION: dict[str, tuple[Callable, Callable, dict]] = {
    "naive": (scaled_dot_product.attention_cuda, naive, {}),
    "softmax by rows": (row_softmax.attention_cuda, by_rows(False), {}),
    "softmax in one pass": (
        row_softmax.attention_cuda,
        by_rows(True),
        {"is_one_pass": True},
    ),
    "online softmax": (online_softmax.attention_cuda, online, {}),
    "split keys": (split_keys.attention_cuda, split, {"shares": SHARES}),
    "flash": (
        flash_forward.attention_cuda,
        flash,
        {"TILE_L": TILE, "TILE_S": TILE},
    ),
}


@contextmanager
def recorded() -> Iterator[list[Recording]]:
    """Record every launch in the block, instead of only running it."""
    kept: list[Recording] = []
    run = launch.Configured.__call__

    def call(self: Any, *args: Any) -> None:
        kept.append(record(self.kernel, self.grid, self.block, *args))

    launch.Configured.__call__ = call
    try:
        yield kept
    finally:
        launch.Configured.__call__ = run


def counts_of(recording: Recording) -> Counts:
    """Return the global traffic by the formulas' names."""
    counts = recording.traffic.counts()
    return {ARRAYS.get(name, name): moved for name, moved in counts.items()}


def row(
    rung: str, counted: list[Counts], formula: list[Counts], is_clean: bool
) -> dict[str, Any]:
    """Return the sums over all kernels of a rung, and whether all agree."""
    moved, expected = (
        sum(sum(map(sum, kernel.values())) for kernel in kernels)
        for kernels in (counted, formula)
    )
    return {
        "rung": rung,
        "counted": moved,
        "formula": expected,
        "every_array_agrees": counted == formula,
        "bytes": moved * BYTES,
        "is_clean": is_clean,
    }


def attention_rows(L: int, D: int, is_causal: bool) -> list[dict[str, Any]]:
    """Record every attention rung on one input; S = L."""
    rows = []
    for rung, (call, formula, options) in ATTENTION.items():
        q, k, v = example_qkv(B=1, H=1, L=L, S=L, D=D, seed=SEED)
        with recorded() as recordings:
            call(q, k, v, None, is_causal, **options)
        expected = formula(L=L, S=L, D=D, causal=is_causal)
        clean = all(recording.is_clean for recording in recordings)
        counted = [counts_of(recording) for recording in recordings]
        rows.append(row(rung, counted, expected, clean))
    return rows


def matmul_rows(size: int, D: int) -> list[dict[str, Any]]:
    """Record every rung of the matrix product, size × D times D × size."""
    rows = []
    for rung in RUNGS:
        recording = matmul_ladder.measure(rung, size, size, D, seed=SEED)
        expected = matmul_ladder.predicted_traffic(rung, size, size, D)
        counted = recording.traffic.counts()
        rows.append(row(rung, [counted], [expected], recording.is_clean))
    return rows


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """Print one table, and add the ratio to the first row's bytes."""
    print(f"{title}\n{'rung':20} {'counted':>9} {'formula':>9} naive/this")
    for each in rows:
        each["naive/this"] = rows[0]["bytes"] / each["bytes"]
        verdict = "equal" if each["every_array_agrees"] else "DIFFERENT"
        clean = "clean" if each["is_clean"] else "NOT CLEAN"
        print(
            f"{each['rung']:20} {each['counted']:9} {each['formula']:9} "
            f"{each['naive/this']:10.2f}  {verdict}, {clean}"
        )


def main() -> None:
    """Record everything, print two tables, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="traffic.json")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    options = parser.parse_args()
    L, D, size = (24, 4, 16) if options.quick else (64, 32, 128)
    tables = {}
    for is_causal in (False, True):
        title = f"attention, L = S = {L}, D = {D}, causal: {is_causal}"
        tables[title] = attention_rows(L, D, is_causal)
    title = f"matrix product, L = S = {size}, D = {2 * D}"
    tables[title] = matmul_rows(size, 2 * D)
    for title, rows in tables.items():
        show(title, rows)
    write(
        options.out,
        {"machine": machine(np, numba), "seed": SEED, "tables": tables},
    )


if __name__ == "__main__":
    main()
