"""Time the recorder against Numba's simulator, on the same kernel source.

    python benchmarks/recorder.py [--out recorder.json] [--quick]

Prints a table and writes JSON. The simulator runs in a process of its own
(`--simulator` is that process), since it cannot share one with the rest.
Every time is the best of a few calls after a first one, which compiles;
that first call is given too.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
import types
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
KERNELS = HERE.parent / "tests" / "gpu"
# name, kind, L, D, tile; S = L.
CASES = [
    ("tiled scores", "tiled", 64, 16, 4),
    ("flash", "flash", 64, 16, 16),
    ("flash", "flash", 256, 64, 32),
]


def arguments(kind, L, D):
    """Return fresh arguments of a kernel."""
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    if kind == "tiled":
        scores = np.zeros((L, L), np.float32)
        return scores, normal(L, D), normal(L, D), np.float32(D**-0.5)
    output = np.zeros((1, 1, L, D), np.float32)
    log_sum_exp = np.zeros((1, 1, L), np.float32)
    inputs = [normal(1, 1, L, D) for _ in range(3)]
    return output, log_sum_exp, *inputs, np.float32(D**-0.5)


def kernel_and_launch(kind, L, D, tile):
    """Return a kernel with its grid and block."""
    import attention_kernels as kernels

    if kind == "tiled":
        blocks = -(-L // tile)
        kernel = kernels.make_tiled_scores(tile)
        return kernel, (blocks, blocks), (tile, tile)
    return kernels.make_flash(D, tile, tile, False), (-(-L // tile), 1), tile


def timed(call, repeats):
    """Return the seconds of the first call and the best of the others."""
    seconds = []
    for _ in range(repeats + 1):
        began = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - began)
    return seconds[0], min(seconds[1:], default=seconds[0])


def simulate(index):
    """Print the seconds that Numba's simulator takes for one case."""
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1"
    from numba import cuda

    # The kernels import `cuda` from our package: here that is Numba's.
    stand_in = types.ModuleType("attention_lab.gpu")
    stand_in.cuda = cuda
    sys.modules["attention_lab"] = types.ModuleType("attention_lab")
    sys.modules["attention_lab.gpu"] = stand_in
    _, kind, L, D, tile = CASES[index]
    kernel, grid, block = kernel_and_launch(kind, L, D, tile)
    args = arguments(kind, L, D)
    _, best = timed(lambda: kernel[grid, block](*args), 1)
    print(json.dumps({"seconds": best, "sum": float(args[0].sum())}))


def simulator_seconds(index):
    """Return what `simulate` prints, from a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "--simulator", str(index)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def measure(index, repeats):
    """Return all times of one case."""
    from attention_lab.gpu import record
    from attention_lab.gpu.launch import launch
    from attention_lab.gpu.limits import three_sizes

    name, kind, L, D, tile = CASES[index]
    kernel, grid, block = kernel_and_launch(kind, L, D, tile)
    args = arguments(kind, L, D)
    sizes = three_sizes(grid, "grid"), three_sizes(block, "block")
    row = {"case": name, "L": L, "D": D, "tile": tile}
    simulator = simulator_seconds(index)
    row["simulator_s"] = simulator["seconds"]
    for engine in ("python", "compiled"):

        def run(engine=engine):
            launch(kernel, *sizes, args, engine=engine)

        def run_recorded(engine=engine):
            record(kernel, grid, block, *args, engine=engine)

        for label, call in (("plain", run), ("recorded", run_recorded)):
            first, best = timed(call, repeats)
            key = f"{label}_{engine}"
            row[f"{key}_first_s"] = first
            row[f"{key}_s"] = best
            row[f"{key}_ratio"] = simulator["seconds"] / best
        np.testing.assert_allclose(
            float(args[0].sum()), simulator["sum"], rtol=1e-3
        )
    row["accesses"] = len(record(kernel, grid, block, *args).events)
    return row


def main():
    """Measure everything, print a table, write JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", default="recorder.json")
    parser.add_argument("--quick", action="store_true", help="small cases")
    parser.add_argument("--simulator", type=int, default=None)
    options = parser.parse_args()
    sys.path.insert(0, str(KERNELS))
    if options.simulator is not None:
        simulate(options.simulator)
        return
    import numba

    rows = []
    for index in range(2 if options.quick else len(CASES)):
        row = measure(index, 2 if CASES[index][2] > 64 else 5)
        rows.append(row)
        print(f"{row['case']} L={row['L']} D={row['D']}:")
        print(f"  simulator          {row['simulator_s']:9.4f} s")
        for key in ("plain", "recorded"):
            for engine in ("python", "compiled"):
                name = f"{key}_{engine}"
                print(
                    f"  {key:9} {engine:8} {row[name + '_s']:9.4f} s"
                    f"  {row[name + '_ratio']:8.1f} x"
                    f"  (first call {row[name + '_first_s']:.2f} s)"
                )
    machine = {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "numba": numba.__version__,
        "processor": platform.processor() or platform.machine(),
    }
    Path(options.out).write_text(
        json.dumps({"machine": machine, "cases": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    main()
