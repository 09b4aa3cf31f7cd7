"""What does Numba cost? The same flash kernel, in CUDA C, in turns with ours.

`gpu_flash.cu` is `flash_register` again, for the same tiles. It is first
compared with float64, then timed. "Numba of CUDA C" is the time of CUDA C
divided by Numba's: 1 is as fast.
"""

import math
from pathlib import Path
from typing import Any

from gpu_attention import CAUSAL, FULL, Size, inputs
from gpu_cases import CASES, Case, forward_answer, question
from gpu_correct import UNIT, placed, verdict
from gpu_nvrtc import MAJORS, CudaCError, Function, Prepared, compile_cubin
from gpu_readings import Reading, Task
from gpu_timer import launches_of, medians, replay

from attention_lab.steps.flash_register import LANES, ROWS, flash_register_cuda
from attention_lab.steps.launch import cdiv

SOURCE = Path(__file__).with_name("gpu_flash.cu")
TILE = 64  # what `flash_register` takes for these lengths
KERNEL = "flash_register"
#: D and D_v are 64, as in the timed calls; lengths that no tile divides.
CHECKED = tuple(case for case in CASES if case.D == 64)


def build(D: int, D_v: int, is_causal: bool) -> Function:
    """Compile and load the kernel for two widths, with or without a mask.

    Raises
    ------
    CudaCError
        If NVRTC or the driver refuses.
    """
    import torch

    major, minor = torch.cuda.get_device_capability()
    defined = {
        "D": D,
        "D_V": D_v,
        "TILE_L": TILE,
        "TILE_S": TILE,
        "IS_CAUSAL": int(is_causal),
    }
    options = [f"-D{name}={number}" for name, number in defined.items()]
    source = SOURCE.read_text(encoding="utf-8")
    # The driver loads what torch's own version of CUDA makes.
    majors = (int(torch.version.cuda.partition(".")[0]), *MAJORS)
    architecture = f"sm_{major}{minor}"
    cubin = compile_cubin(source, architecture, *options, majors=majors)
    return Function(cubin, KERNEL)


def prepared(
    function: Function, q: Any, k: Any, v: Any, out: Any, lse: Any
) -> Prepared:
    """Return the launch for one call; the same grid as Numba's."""
    B, H, L, D = q.shape
    group = H // k.shape[1]
    return function.prepare(
        (cdiv(L, TILE), B * H),
        (LANES, TILE // ROWS),
        *(out, lse, q, k, v),
        *(1 / math.sqrt(D), group, H, L, k.shape[2]),
    )


def results_for(q: Any, v: Any) -> tuple[Any, Any]:
    """Return an output and a log-sum-exp in which nothing is written (NaN)."""
    out = q.new_full((*q.shape[:3], v.shape[3]), math.nan)
    return out, q.new_full(q.shape[:3], math.nan)


def check_task(case: Case) -> Task:
    """Compare the kernel in CUDA C with float64."""
    name = f"CUDA C, register tile: {case.name}"

    def measure(_: float) -> Reading:
        import torch

        arrays, options, _ = question(case, "float32")
        q, k, v = map(placed, arrays)
        out, lse = results_for(q, v)
        is_causal = options.get("is_causal", False)
        try:
            function = build(case.D, case.D_v, is_causal)
        except CudaCError as error:
            return Reading(name, None, UNIT, f"not measured: {error}")
        prepared(function, q, k, v, out, lse)()
        torch.cuda.synchronize()
        answer = forward_answer(case, "float32")
        return verdict(name, answer, {"out": out, "lse": lse})

    return Task(name, UNIT, measure)


def price_task(size: Size, title: str) -> Task:
    """Time the kernel in CUDA C beside the same kernel in Numba."""
    name = f"CUDA C, register tile, {title}"

    def measure(seconds: float) -> Reading:
        q, k, v, _ = inputs(size, "float32")
        options = {"is_causal": size.is_causal}
        out, lse = results_for(q, v)
        try:
            function = build(size.D, size.D, size.is_causal)
        except CudaCError as error:
            return Reading(name, None, "ms", f"not measured: {error}")
        kept = launches_of(
            lambda: flash_register_cuda(
                q, k, v, **options, TILE_L=TILE, TILE_S=TILE
            )
        )
        runs = {
            "c": prepared(function, q, k, v, out, lse),
            "numba": replay(kept),
        }
        times = medians(runs, seconds)
        details = {
            "Numba ms": times.ms["numba"],
            "Numba of CUDA C": times.ms["c"] / times.ms["numba"],
            "rounds": times.rounds,
        }
        return Reading(name, times.ms["c"], "ms", details=details)

    return Task(name, "ms", measure)


def tasks() -> list[Task]:
    """List the comparisons with float64, then those with Numba."""
    return [
        *map(check_task, CHECKED),
        price_task(FULL, "L = 4096"),
        price_task(CAUSAL, "L = 4096, causal"),
    ]
