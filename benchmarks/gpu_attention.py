"""The attention kernels beside torch's, forward and backward, in turns.

FLOP are those of the products that attention needs: 4·B·H·L·S·D forward, 10
backward, half of both with a causal mask. A rung that multiplies more often
(the backward pass does: 14) gets no credit for it. "of SDPA" is torch's time
divided by that of our kernels, in the same precision and the same rounds: 1 is
as fast. "whole call" is what else our function does on the GPU too: it fills
its results with NaN, in which a missing store would show.
"""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

from gpu_correct import FORWARD
from gpu_readings import Reading, Task
from gpu_speed import compared_with_peak
from gpu_timer import launches_of, medians, replay
from machine import SEED

from attention_lab.steps import flash_backward, flash_forward

FORWARD_FLOP, BACKWARD_FLOP = 4, 10
#: The names of the kernels of the backward pass, in the order of launch.
BACKWARD_KERNELS = ("row dots", "dQ", "dK and dV")


class Size(NamedTuple):
    """One benchmarked call; S = L, and as many key heads as query heads."""

    L: int
    B: int = 2
    H: int = 8
    D: int = 64
    is_causal: bool = False

    def flop(self, per_pair: int) -> float:
        """Return the floating-point operations that count."""
        pairs = self.B * self.H * self.L**2 * self.D
        return per_pair * pairs / (2 if self.is_causal else 1)


FULL = Size(4096)
CAUSAL = Size(4096, is_causal=True)
SHORT = Size(1024)
BACKWARD = Size(2048)
BACKWARD_CAUSAL = Size(2048, is_causal=True)


def inputs(size: Size, dtype: str) -> list[Any]:
    """Return query, key, value and the output's gradient on the GPU."""
    import torch

    torch.manual_seed(SEED)
    shape = (size.B, size.H, size.L, size.D)
    kind = {"device": "cuda", "dtype": getattr(torch, dtype)}
    return [torch.randn(shape, **kind) for _ in range(4)]


def torch_backend(dtype: str) -> Any:
    """Return the context in which torch's SDPA runs.

    float16: FlashAttention, where torch has it. Otherwise what torch chooses.
    """
    if why_no_flash(dtype) or dtype == "float32":
        return nullcontext()
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return sdpa_kernel(SDPBackend.FLASH_ATTENTION)


def why_no_flash(dtype: str) -> str:
    """Say that torch's half-precision SDPA is not FlashAttention, or ""."""
    import torch

    if dtype == "float32" or torch.cuda.get_device_capability() >= (8, 0):
        return ""
    return "torch's SDPA is not FlashAttention below compute capability 8.0"


def forward_task(kernel: str, size: Size, title: str) -> Task:
    """Time a forward kernel alone, its whole call, and torch's SDPA."""
    run, dtype = FORWARD[kernel]
    name = f"{kernel}, {title}"

    def measure(seconds: float) -> Reading:
        import torch

        q, k, v, _ = inputs(size, dtype)
        sdpa = torch.nn.functional.scaled_dot_product_attention
        options = {"is_causal": size.is_causal}
        why = why_not_measured(kernel)
        if why:
            return Reading(name, None, "ms", why)
        alone = replay(launches_of(lambda: run(q, k, v, **options)))
        runs: dict[str, Callable[[], Any]] = {
            "alone": alone,
            "call": lambda: run(q, k, v, **options),
            "sdpa": lambda: sdpa(q, k, v, **options),
        }
        with torch_backend(dtype), torch.no_grad():
            times = medians(runs, seconds)
        rate = size.flop(FORWARD_FLOP) / times.ms["alone"] / 1e9
        details = {
            "TFLOP/s": rate,
            "of SDPA": times.ms["sdpa"] / times.ms["alone"],
            **compared_with_peak(dtype, rate),
            "whole call ms": times.ms["call"],
            "whole call of SDPA": times.ms["sdpa"] / times.ms["call"],
            "SDPA ms": times.ms["sdpa"],
            "rounds": times.rounds,
        }
        alone_ms, note = times.ms["alone"], why_no_flash(dtype)
        return Reading(name, alone_ms, "ms", note, details)

    return Task(name, "ms", measure)


def why_not_measured(kernel: str) -> str:
    """Say why a kernel is not what its name says on this GPU, or ""."""
    if "tensor core" not in kernel:
        return ""
    from attention_lab.gpu.tensor_core import choose_mma

    chosen = choose_mma()
    if chosen.on_tensor_cores:
        return ""
    return f"not measured: {chosen.sentence}"


def forward_tasks() -> list[Task]:
    """List the forward rungs at one length, the best ones at more."""
    best = ("flash, register tile", "flash, tensor core")
    return [
        *(
            forward_task(kernel, FULL, "L = 4096")
            for kernel in reversed(FORWARD)
        ),
        *(forward_task(kernel, CAUSAL, "L = 4096, causal") for kernel in best),
        *(forward_task(kernel, SHORT, "L = 1024") for kernel in best),
    ]


def backward_task(size: Size, title: str) -> Task:
    """Time the three backward kernels beside the backward pass of SDPA."""
    name = f"flash, backward, {title}"

    def measure(seconds: float) -> Reading:
        import torch

        q, k, v, out_grad = inputs(size, "float32")
        options = {"is_causal": size.is_causal}
        out, lse = flash_forward.flash_forward_cuda(q, k, v, **options)
        kept = launches_of(
            lambda: flash_backward.flash_backward_cuda(
                out_grad, q, k, v, out, lse, **options
            )
        )
        if len(kept) != len(BACKWARD_KERNELS):
            raise RuntimeError(f"the backward pass made {len(kept)} launches")
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        sdpa = torch.nn.functional.scaled_dot_product_attention
        theirs = sdpa(*leaves, **options)
        runs: dict[str, Callable[[], Any]] = {
            "sdpa": lambda: torch.autograd.grad(
                theirs, leaves, out_grad, retain_graph=True
            ),
            **{
                part: launch.again
                for part, launch in zip(BACKWARD_KERNELS, kept, strict=True)
            },
        }
        times = medians(runs, seconds)
        parts = {f"{part} ms": times.ms[part] for part in BACKWARD_KERNELS}
        total = sum(parts.values())
        rate = size.flop(BACKWARD_FLOP) / total / 1e9
        details = {
            "TFLOP/s": rate,
            "of SDPA": times.ms["sdpa"] / total,
            **compared_with_peak("float32", rate),
            **parts,
            "SDPA ms": times.ms["sdpa"],
            "rounds": times.rounds,
        }
        return Reading(name, total, "ms", details=details)

    return Task(name, "ms", measure)


def backward_tasks() -> list[Task]:
    """List the backward pass, without and with a causal mask."""
    return [
        backward_task(BACKWARD, "L = 2048"),
        backward_task(BACKWARD_CAUSAL, "L = 2048, causal"),
    ]
