"""What torch's profiler sees: copies through the host, and torch's kernels.

It stays attached to the driver once it was used, so this section is the last:
nothing that is timed comes after it.
"""

import re
from collections.abc import Callable
from typing import Any

from gpu_attention import SHORT, inputs, torch_backend
from gpu_readings import Reading, Task

from attention_lab.steps.flash_register import flash_register_cuda

#: The runtime's and the driver's functions, such as cudaLaunchKernel; unlike
#: the kernels of cutlass.
HOST_CALL = re.compile("cu(da)?[A-Z]")
NOTHING_SEEN = "not measured: the profiler shows no kernel"


def seen_on_gpu(call: Callable[[], Any]) -> list[str]:
    """Return the names of the kernels and copies that a call makes."""
    import torch

    call()  # what is built at the first call does not count
    torch.cuda.synchronize()
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        call()
        torch.cuda.synchronize()
    names = [event.key for event in profile.key_averages()]
    return [name for name in names if not HOST_CALL.match(name)]


def in_place_task() -> Task:
    """Check that a tensor on the GPU is read, and the result made, there."""
    name = "flash, register tile: copies through the host"

    def measure(_: float) -> Reading:
        q, k, v, _ = inputs(SHORT, "float32")
        names = seen_on_gpu(lambda: flash_register_cuda(q, k, v))
        if not any("flash_register" in kernel for kernel in names):
            return Reading(name, None, "copies", NOTHING_SEEN)
        copies = [n for n in names if "HtoD" in n or "DtoH" in n]
        note = ", ".join(copies)
        return Reading(name, len(copies), "copies", note, is_wrong=bool(copies))

    return Task(name, "copies", measure)


def backend_task(dtype: str) -> Task:
    """Name the kernels behind torch's SDPA in one precision."""
    name = f"torch SDPA, {dtype}"

    def measure(_: float) -> Reading:
        import torch

        q, k, v, _ = inputs(SHORT, dtype)
        sdpa = torch.nn.functional.scaled_dot_product_attention
        with torch_backend(dtype):
            names = seen_on_gpu(lambda: sdpa(q, k, v))
        if not names:
            return Reading(name, None, "kernels", NOTHING_SEEN)
        shown = ", ".join(kernel[:80] for kernel in names)
        return Reading(name, len(names), "kernels", shown)

    return Task(name, "kernels", measure)


def tasks() -> list[Task]:
    """List what the profiler is asked."""
    return [in_place_task(), backend_task("float32"), backend_task("float16")]
