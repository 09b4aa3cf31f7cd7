"""What attention adds to the memory of the GPU as L grows; S = L.

Read from torch's allocator, which all methods share: our kernels write into
tensors. "Extra" is the largest sum of allocations during a call, above what
was there before; the result is part of it.
"""

import gc
import math
from collections.abc import Callable
from typing import Any

from gpu_readings import Reading, Task
from machine import SEED

LENGTHS = (1024, 2048, 4096, 8192, 16384)
D = 64
MIB = 2**20
METHODS = ("naive", "SDPA", "ours")
#: (method, L) -> extra bytes, for the slopes.
EXTRA: dict[tuple[str, int], int] = {}


def method(name: str) -> Callable[..., Any]:
    """Return an attention function by its name here."""
    import torch

    from attention_lab.steps.flash_register import flash_register_cuda

    return {
        "naive": lambda q, k, v: torch.softmax(q @ k.mT * D**-0.5, -1) @ v,
        "SDPA": torch.nn.functional.scaled_dot_product_attention,
        "ours": flash_register_cuda,
    }[name]


def memory_task(name: str, L: int) -> Task:
    """Measure the extra memory of one call, after one warm-up."""
    title = f"{name}, L = {L}"

    def measure(_: float) -> Reading:
        import torch

        torch.manual_seed(SEED)
        run = method(name)
        q, k, v = (torch.randn(1, 1, L, D, device="cuda") for _ in "qkv")
        try:
            run(q, k, v)  # a library may keep a workspace from now on
            torch.cuda.synchronize()
            gc.collect()  # nothing of that call counts as being there before
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            result = run(q, k, v)
            torch.cuda.synchronize()
        except torch.cuda.OutOfMemoryError:
            note = "not measured: it does not fit into the GPU's memory"
            return Reading(title, None, "MiB", note)
        finally:
            torch.cuda.empty_cache()
        extra = torch.cuda.max_memory_allocated() - before
        del result
        EXTRA[name, L] = extra
        return Reading(title, extra / MIB, "MiB")

    return Task(title, "MiB", measure)


def slope_task(name: str) -> Task:
    """Fit log(extra) = slope · log(L) + constant: 1 is linear, 2 quadratic."""
    title = f"{name}, slope"

    def measure(_: float) -> Reading:
        points = [
            (math.log(L), math.log(extra))
            for (of, L), extra in EXTRA.items()
            if of == name and extra > 0
        ]
        if len(points) < 2:
            note = "not measured: fewer than two lengths"
            return Reading(title, None, "", note)
        mean_x, mean_y = (
            sum(axis) / len(points) for axis in zip(*points, strict=True)
        )
        rise = sum((x - mean_x) * (y - mean_y) for x, y in points)
        run = sum((x - mean_x) ** 2 for x, _ in points)
        return Reading(title, rise / run, "", details={"lengths": len(points)})

    return Task(title, "", measure)


def ratio_task() -> Task:
    """Compare naive with ours at the largest length that both have."""
    title = "naive / ours"

    def measure(_: float) -> Reading:
        both = [
            L
            for L in LENGTHS
            if all((n, L) in EXTRA for n in ("naive", "ours"))
        ]
        if not both:
            return Reading(title, None, "×", "not measured: no common length")
        L = both[-1]
        ratio = EXTRA["naive", L] / EXTRA["ours", L]
        return Reading(title, ratio, "×", details={"L": L})

    return Task(title, "×", measure)


def tasks() -> list[Task]:
    """List all methods at all lengths, then the slopes and the ratio."""
    EXTRA.clear()
    return [
        *(memory_task(name, L) for L in LENGTHS for name in METHODS),
        *(slope_task(name) for name in METHODS),
        ratio_task(),
    ]
