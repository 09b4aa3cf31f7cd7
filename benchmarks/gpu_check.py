"""Run every kernel on one GPU: is it right, how fast, how much memory?

    make gpu-check
    python benchmarks/gpu_check.py [--out FILE] [--quick] [--dry-run]

At most six minutes. Needs a GPU, and a torch that sees it. Every section has a
time budget and names what it left out. Prints tables and the targets, writes
`benchmarks/results/gpu_check.json`, and exits with 1 if a kernel is wrong or a
measurement broke off; a missed target is no error.

`--dry-run` needs no GPU: the kernels run on the recorder, and whatever needs a
GPU says so instead of showing a number. `--quick` takes small sizes for the
comparison with float64. Both write a file only with `--out`.

The JSON, version `gpu_check.v1`: `machine`, `seed`, `method` (how times were
taken), `is_dry_run`, `seconds`; `sections`, by name, with `budget_s`,
`seconds`, `left_out` and `readings` (`name`, `value` or null, `unit`, `note`
(why there is no number), `details`, `is_wrong`); `targets` with `least`,
`value` or null, and `verdict` (reached, missed, or why neither).
"""

import argparse
import faulthandler
import importlib.util
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
OUT = HERE / "results" / "gpu_check.json"
LIMIT_S = 360
#: Kept free for what no section counts: starting, and writing the file.
SPARE_S = 15
NEEDED = ("numpy", "torch", "numba", "einops", "jaxtyping", "beartype")


def missing_packages() -> list[str]:
    """Name what has to be installed before anything here can run."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def sections(quick: bool) -> list[Any]:
    """List the sections, the most important first; budgets in seconds."""
    import gpu_attention
    import gpu_correct
    import gpu_cuda_c
    import gpu_memory
    import gpu_profile
    import gpu_speed
    from gpu_readings import Section

    return [
        Section("right at hostile sizes", 140, gpu_correct.tasks(quick)),
        Section("peaks", 15, gpu_speed.peak_tasks()),
        Section("attention, forward", 60, gpu_attention.forward_tasks()),
        Section("matrix products, 4096 × 4096", 30, gpu_speed.matmul_tasks()),
        Section("attention, backward", 25, gpu_attention.backward_tasks()),
        Section("Numba beside CUDA C", 25, gpu_cuda_c.tasks()),
        Section("launch cost", 10, gpu_speed.launch_tasks()),
        Section("memory", 25, gpu_memory.tasks()),
        Section("seen by the profiler", 10, gpu_profile.tasks()),
    ]


def targets() -> list[Any]:
    """List what the kernels should reach."""
    from gpu_readings import Target
    from gpu_speed import KNOWN_SHARES

    forward, share = "attention, forward", "of SDPA"
    return [
        Target(
            "float32 flash / torch SDPA float32",
            0.40,
            forward,
            "flash, register tile, L = 4096",
            share,
        ),
        Target(
            "float16 tensor-core flash / torch SDPA flash",
            0.30,
            forward,
            "flash, tensor core, L = 4096",
            share,
        ),
        *(
            Target(
                f"matmul {rung}: share of cuBLAS / known share",
                0.9,
                "matrix products, 4096 × 4096",
                rung,
                "of known share",
            )
            for rung in KNOWN_SHARES
        ),
        Target(
            "Numba / the same CUDA C",
            0.95,
            "Numba beside CUDA C",
            "CUDA C, register tile, L = 4096",
            "Numba of CUDA C",
        ),
    ]


def about(why_no_gpu: str) -> dict[str, Any]:
    """Name the machine, its GPU, and the versions."""
    import numba
    import numpy
    import torch
    from machine import machine

    from attention_lab.gpu import where
    from attention_lab.gpu.tensor_core import choose_mma

    found = {
        **machine(torch, numba, numpy),
        "numba_cuda": version("numba_cuda"),
        "kernels": where(),
        "tensor_cores": choose_mma().sentence,
        "gpu": why_no_gpu,
    }
    if why_no_gpu:
        return found
    gpu = torch.cuda.get_device_properties(0)
    driver = Path("/proc/driver/nvidia/version")
    return {
        **found,
        "gpu": gpu.name,
        "compute_capability": f"{gpu.major}.{gpu.minor}",
        "multiprocessors": gpu.multi_processor_count,
        "memory_bytes": gpu.total_memory,
        "torch_cuda": torch.version.cuda,
        "driver": driver.read_text().splitlines()[0] if driver.exists() else "",
        "tf32_for_float32": torch.backends.cuda.matmul.allow_tf32,
    }


def version(module: str) -> str:
    """Return a module's version, or "not installed"."""
    if importlib.util.find_spec(module) is None:
        return "not installed"
    return getattr(importlib.import_module(module), "__version__", "unknown")


def why_no_gpu(is_dry_run: bool) -> str:
    """Say why nothing can be measured here, or return ""."""
    import torch
    from gpu_readings import NO_GPU

    from attention_lab.gpu.door import runs_on_gpu

    if is_dry_run or not runs_on_gpu():
        return NO_GPU
    if not torch.cuda.is_available():
        return f"not measured: torch {torch.__version__} does not see the GPU"
    return ""


def check(options: argparse.Namespace, started: float) -> dict[str, Any]:
    """Run all sections, print them, and return what goes into the file.

    Parameters
    ----------
    started : when the six minutes began, on the clock `time.monotonic`.
    """
    import torch
    from gpu_readings import judge
    from gpu_timer import METHOD
    from machine import SEED

    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    no_gpu = why_no_gpu(options.dry_run)
    if options.out is None and not no_gpu and not options.quick:
        options.out = OUT
    found: dict[str, Any] = {
        "version": "gpu_check.v1",
        "machine": about(no_gpu),
        "seed": SEED,
        "method": METHOD,
        "is_dry_run": options.dry_run,
        "sections": {},
    }
    for name, value in found["machine"].items():
        print(f"{name:20} {value}")
    print(f"\n{METHOD}\n")
    made = sections(options.quick)
    for section in made:
        section.run(no_gpu, started + LIMIT_S - SPARE_S)
        print(section.table(), "\n", flush=True)
        found["sections"][section.name] = section.as_json()
        found["seconds"] = time.monotonic() - started
        save(options, found)  # a later section may take the process with it
    found["targets"] = [judge(target, made) for target in targets()]
    print("targets")
    for each in found["targets"]:
        value = "" if each["value"] is None else f"{each['value']:.3f}"
        least = f"≥ {each['least']}"
        print(f"  {each['name']:48} {least:>7} {value:>7}  {each['verdict']}")
    wrong = [r.name for section in made for r in section.readings if r.is_wrong]
    found["wrong"] = wrong
    found["seconds"] = time.monotonic() - started
    save(options, found)
    print(f"\n{found['seconds']:.0f} s; wrong: {', '.join(wrong) or 'nothing'}")
    return found


def save(options: argparse.Namespace, found: dict[str, Any]) -> None:
    """Write the JSON, where there is a place for it."""
    if options.out is not None:
        text = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
        options.out.write_text(text + "\n", encoding="utf-8")


def main(arguments: list[str] | None = None) -> int:
    """Read the command line, check, and return the exit status."""
    started = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, help=f"default: {OUT.name}")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    parser.add_argument(
        "--dry-run", action="store_true", help="on the recorder, with no GPU"
    )
    options = parser.parse_args(arguments)
    missing = missing_packages()
    if missing:
        print(f"missing: pip install {' '.join(missing)}", file=sys.stderr)
        return 2
    # Tiny grids are meant: numba's remarks on them would hide the tables.
    os.environ.setdefault("NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS", "0")
    if options.dry_run:
        os.environ["ATTENTION_LAB_DEVICE"] = "recorder"
    from attention_lab.gpu.door import runs_on_gpu

    if not options.dry_run:
        if not runs_on_gpu():
            print("No GPU works here: add --dry-run.", file=sys.stderr)
            return 2
        left_s = LIMIT_S - (time.monotonic() - started)
        faulthandler.dump_traceback_later(left_s, exit=True)
    try:
        return 1 if check(options, started)["wrong"] else 0
    finally:
        faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    sys.exit(main())
