"""Launch cost, the peaks of the machine, and the ladder of matrix products.

Everything here needs a GPU, and torch with CUDA. float32 products of torch
(cuBLAS) are made without TF32.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

from gpu_readings import Reading, Task
from gpu_timer import medians

from attention_lab.gpu import cuda, to_device
from attention_lab.steps.launch import cdiv
from attention_lab.steps.tiled_matmul import RUNGS

#: Bytes of the copied array, and side of the multiplied matrices.
COPY_BYTES = 2**30
PEAK_SIDE = 8192
#: L = S = D of the ladder.
SIDE = 4096
#: Launches between two looks at the clock.
BATCH = 200
#: What the rungs reach elsewhere, in CUDA C, as a share of cuBLAS: Boehm 2022,
#: kernels 1 to 5, on an A6000 at 4092.
KNOWN_SHARES = {
    "naive": 0.013,
    "coalesced": 0.085,
    "shared_tile": 0.128,
    "register_1d": 0.365,
    "register_2d": 0.687,
}
#: Numbers that later sections compare with; filled by `peak_tasks`.
PEAKS: dict[str, float] = {}


# -- Launch cost -----------------------------------------------------------


@cuda.jit
def touch_one_kernel(x):
    """One thread, one number: all that remains is the launch."""
    x[0] = x[1]


@cuda.jit
def touch_eight_kernel(a, b, c, d, e, f, g, h):
    """As above, with as many arrays as an attention kernel takes."""
    a[0] = b[1] + c[1] + d[1] + e[1] + f[1] + g[1] + h[1]


def per_launch(name: str, launch: Callable[[], Any], seconds: float) -> Reading:
    """Return the median microseconds from one launch to the next.

    By the clock of the host, over batches; each ends when the GPU is done.
    """
    import torch

    launch()
    torch.cuda.synchronize()
    end = time.monotonic() + seconds
    each = []
    while len(each) < 5 or (time.monotonic() < end and len(each) < 100):
        began = time.perf_counter()
        for _ in range(BATCH):
            launch()
        torch.cuda.synchronize()
        each.append((time.perf_counter() - began) / BATCH * 1e6)
    median = statistics.median(each)
    return Reading(name, median, "µs", details={"batches": len(each)})


def launch_tasks() -> list[Task]:
    """List what a launch costs: numba's, torch's, a whole attention call."""

    def one_array() -> Any:
        import torch

        x = to_device(torch.ones(2, device="cuda"))
        configured = touch_one_kernel[1, 1]
        return lambda: configured(x)

    def eight_arrays() -> Any:
        import torch

        arrays = [to_device(torch.ones(2, device="cuda")) for _ in range(8)]
        configured = touch_eight_kernel[1, 1]
        return lambda: configured(*arrays)

    def torch_add() -> Any:
        import torch

        x = torch.ones(2, device="cuda")
        return lambda: x.add_(1)

    def whole_call() -> Any:
        import torch

        from attention_lab.steps.flash_register import flash_register_cuda

        x = torch.ones(1, 1, 1, 16, device="cuda")
        return lambda: flash_register_cuda(x, x, x)

    def sdpa_call() -> Any:
        import torch

        x = torch.ones(1, 1, 1, 16, device="cuda")
        sdpa = torch.nn.functional.scaled_dot_product_attention
        return lambda: sdpa(x, x, x)

    def task(name: str, prepare: Callable[[], Any]) -> Task:
        def measure(seconds: float) -> Reading:
            return per_launch(name, prepare(), seconds)

        return Task(name, "µs", measure)

    return [
        task("numba kernel, 1 array", one_array),
        task("numba kernel, 8 arrays", eight_arrays),
        task("torch add_, 1 number", torch_add),
        task("whole call of flash_register_cuda, L = S = 1", whole_call),
        task("whole call of torch SDPA, L = S = 1", sdpa_call),
    ]


# -- Peaks -----------------------------------------------------------------


def peak_tasks() -> list[Task]:
    """List the measured peaks that other readings are compared with."""
    copy = f"torch copy of {COPY_BYTES // 2**30} GiB"

    def measure_copy(seconds: float) -> Reading:
        import torch

        x = torch.zeros(COPY_BYTES // 4, device="cuda")
        y = torch.empty_like(x)
        times = medians({"copy": lambda: y.copy_(x)}, seconds)
        rate = 2 * COPY_BYTES / times.ms["copy"] / 1e6  # read and written
        PEAKS["GB/s"] = rate
        return Reading(copy, rate, "GB/s", details={"rounds": times.rounds})

    def matmul(dtype: str) -> Task:
        name = f"torch matmul, {dtype}, {PEAK_SIDE} × {PEAK_SIDE}"

        def measure(seconds: float) -> Reading:
            import torch

            shape = (PEAK_SIDE, PEAK_SIDE)
            kind = {"device": "cuda", "dtype": getattr(torch, dtype)}
            a, b = (torch.randn(shape, **kind) for _ in "ab")
            out = torch.empty_like(a)
            run = {"matmul": lambda: torch.matmul(a, b, out=out)}
            times = medians(run, seconds)
            rate = 2 * PEAK_SIDE**3 / times.ms["matmul"] / 1e9
            PEAKS[dtype] = rate
            details = {"rounds": times.rounds}
            return Reading(name, rate, "TFLOP/s", details=details)

        return Task(name, "TFLOP/s", measure)

    return [
        Task(copy, "GB/s", measure_copy),
        matmul("float32"),
        matmul("float16"),
    ]


def compared_with_peak(dtype: str, rate: float) -> dict[str, float]:
    """Return a rate in TFLOP/s as a share of the large product, if known."""
    return {"of large matmul": rate / PEAKS[dtype]} if dtype in PEAKS else {}


# -- Matrix products -------------------------------------------------------


def matmul_tasks() -> list[Task]:
    """List the rungs of the ladder; each takes turns with cuBLAS."""
    return [rung_task(rung) for rung in RUNGS]


def rung_task(rung: str) -> Task:
    """Time one rung beside torch.matmul, kernel alone, in float32."""

    def measure(seconds: float) -> Reading:
        import torch
        from numba import float32

        a, b = (torch.randn(SIDE, SIDE, device="cuda") for _ in "ab")
        out, theirs = torch.empty_like(a), torch.empty_like(a)
        tile = RUNGS[rung].tile
        kernel = RUNGS[rung].make_kernel(float32, tile)
        configured = kernel[RUNGS[rung].launch(SIDE, SIDE, tile)]
        arrays = [to_device(x) for x in (out, a, b)]
        runs = {
            "ours": lambda: configured(*arrays),
            "cublas": lambda: torch.matmul(a, b, out=theirs),
        }
        times = medians(runs, seconds)
        ours, cublas = times.ms["ours"], times.ms["cublas"]
        rate = 2 * SIDE**3 / ours / 1e9
        details = {
            "TFLOP/s": rate,
            "of cuBLAS": cublas / ours,
            "of known share": cublas / ours / KNOWN_SHARES[rung],
            **compared_with_peak("float32", rate),
            "cuBLAS ms": cublas,
            "blocks": cdiv(SIDE, tile.TILE_L) * cdiv(SIDE, tile.TILE_S),
            "rounds": times.rounds,
        }
        return Reading(rung, ours, "ms", details=details)

    return Task(rung, "ms", measure)
