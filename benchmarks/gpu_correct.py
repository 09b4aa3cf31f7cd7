"""Every kernel against float64, at sizes that break careless kernels.

On a GPU the inputs are torch tensors there, which the kernels read in place;
on the recorder they are NumPy arrays. A reading is the largest error as a
share of the error bound, over all results of a kernel: above 1 is wrong.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

from gpu_cases import (
    CASES,
    PRODUCTS,
    QUICK_CASES,
    QUICK_PRODUCTS,
    Answer,
    Case,
    backward_answer,
    forward_answer,
    product,
    question,
    share_of_bound,
)
from gpu_readings import Reading, Task

from attention_lab.gpu.door import runs_on_gpu
from attention_lab.steps import (
    flash_backward,
    flash_forward,
    flash_register,
    flash_tensor_core,
    grouped_query,
    online_softmax,
    row_softmax,
    scaled_dot_product,
    split_keys,
    tiled_matmul,
)

UNIT = "of bound"
#: Overwrites of half a GiB before the late input: 10 ms at 5 TB/s.
LATE = 100
#: Name -> (function, dtype). Each returns an output, or with a log-sum-exp.
FORWARD: dict[str, tuple[Callable[..., Any], str]] = {
    "three kernels": (scaled_dot_product.attention_cuda, "float32"),
    "row softmax": (row_softmax.unfused_forward_cuda, "float32"),
    "row softmax, one pass": (
        functools.partial(row_softmax.unfused_forward_cuda, is_one_pass=True),
        "float32",
    ),
    "grouped heads": (grouped_query.attention_cuda, "float32"),
    "online softmax": (online_softmax.attention_cuda, "float32"),
    "split keys": (split_keys.split_forward_cuda, "float32"),
    "flash, thread per row": (flash_forward.flash_forward_cuda, "float32"),
    "flash, register tile": (flash_register.flash_register_cuda, "float32"),
    "flash, tensor core": (flash_tensor_core.flash_tensor_core_cuda, "float16"),
}


def has_torch_cuda() -> bool:
    """Say whether torch, too, works on the GPU that runs the kernels."""
    import torch

    return runs_on_gpu() and torch.cuda.is_available()


def placed(array: Any) -> Any:
    """Put a NumPy array where the kernels run; leave anything else alone."""
    if not hasattr(array, "dtype") or not has_torch_cuda():
        return array
    import torch

    return torch.tensor(array, device="cuda")


def parts(result: Any) -> dict[str, Any]:
    """Name the arrays of a forward result."""
    if isinstance(result, tuple):
        return {"out": result[0], "lse": result[1]}
    return {"out": result}


def verdict(name: str, answer: Answer, found: dict[str, Any]) -> Reading:
    """Compare results with float64; say what is wrong if something is."""
    share = share_of_bound(answer, found)
    if math.isinf(share):
        note = "a result has another shape, a NaN, or an infinity out of place"
        return Reading(name, None, UNIT, note, is_wrong=True)
    return Reading(name, share, UNIT, is_wrong=not share <= 1)


def run_forward(
    run: Callable[..., Any], case: Case, dtype: str
) -> dict[str, Any]:
    """Run a forward kernel on a case."""
    qkv, options, _ = question(case, dtype)
    options = {name: placed(x) for name, x in options.items()}
    return parts(run(*map(placed, qkv), **options))


def run_backward(case: Case, dtype: str) -> dict[str, Any]:
    """Run the flash forward and backward kernels on a case."""
    qkv, options, out_grad = question(case, dtype)
    options = {name: placed(x) for name, x in options.items()}
    qkv = tuple(map(placed, qkv))
    out, lse = flash_forward.flash_forward_cuda(*qkv, **options)
    made = flash_backward.flash_backward_cuda(
        placed(out_grad), *qkv, out, lse, **options
    )
    return dict(zip(("query", "key", "value"), made, strict=True))


def attention_tasks(quick: bool) -> list[Task]:
    """List every attention kernel in every case, the first case first."""
    tasks = []
    for case in QUICK_CASES if quick else CASES:
        for kernel, (run, dtype) in FORWARD.items():
            name = f"{kernel}: {case.name}"

            def forward(_: float, name=name, run=run, case=case, dtype=dtype):
                found = run_forward(run, case, dtype)
                return verdict(name, forward_answer(case, dtype), found)

            tasks.append(Task(name, UNIT, forward, needs_gpu=False))
        name = f"flash, backward: {case.name}"

        def backward(_: float, name=name, case=case):
            found = run_backward(case, "float32")
            return verdict(name, backward_answer(case, "float32"), found)

        tasks.append(Task(name, UNIT, backward, needs_gpu=False))
    return tasks


def product_tasks(quick: bool) -> list[Task]:
    """List every rung of the matrix product in every size."""
    tasks = []
    for sizes in QUICK_PRODUCTS if quick else PRODUCTS:
        L, S, D, factor = sizes
        for rung in tiled_matmul.RUNGS:
            name = f"matmul, {rung}: {L} × {D} × {S}, × {factor:g}"

            def multiply(_: float, name=name, rung=rung, sizes=sizes):
                a, b, answer = product(*sizes)
                out = tiled_matmul.matmul_cuda(placed(a), placed(b), rung)
                return verdict(name, answer, {"out": out})

            tasks.append(Task(name, UNIT, multiply, needs_gpu=False))
    return tasks


def autograd_task(case: Case) -> Task:
    """Send a gradient back through the operation of PyTorch."""
    name = f"flash_attention, autograd: {case.name}"

    def measure(_: float) -> Reading:
        import torch

        from attention_lab.steps import flash_attention

        arrays, options, out_grad = question(case, "float32")
        device = "cuda" if has_torch_cuda() else "cpu"
        leaves = [
            torch.tensor(x, device=device, requires_grad=True) for x in arrays
        ]
        options = {name: placed(x) for name, x in options.items()}
        out = flash_attention(*leaves, **options)
        out.backward(torch.tensor(out_grad, device=device))
        names = ("query", "key", "value")
        found = dict(zip(names, (x.grad for x in leaves), strict=True))
        return verdict(name, backward_answer(case, "float32"), found)

    return Task(name, UNIT, measure, needs_gpu=False)


def stream_task() -> Task:
    """Run a kernel between two torch operations on a stream of its own.

    The input is made late and the output read early: without order between
    torch's stream and the kernels', both hold something else.
    """
    name = "flash, register tile: on another stream of torch"

    def measure(_: float) -> Reading:
        import torch

        case = CASES[0]
        (q, k, v), options, _ = question(case, "float32")
        ready, k, v = map(placed, (q, k, v))
        late = torch.zeros_like(ready)
        buffer = torch.empty(2**29, dtype=torch.uint8, device="cuda")
        # Compile now: the input is late only if the launch is quick.
        flash_register.flash_register_cuda(late, k, v, **options)
        torch.cuda.synchronize()
        with torch.cuda.stream(torch.cuda.Stream()):
            for _ in range(LATE):
                buffer.zero_()
            late.copy_(ready)
            out, lse = flash_register.flash_register_cuda(late, k, v, **options)
            found = {"out": out.clone(), "lse": lse.clone()}
        torch.cuda.synchronize()
        return verdict(name, forward_answer(case, "float32"), found)

    return Task(name, UNIT, measure)


def tasks(quick: bool) -> list[Task]:
    """List all tasks of the section."""
    return [
        *attention_tasks(quick),
        *product_tasks(quick),
        autograd_task((QUICK_CASES if quick else CASES)[0]),
        stream_task(),
    ]
