"""What does the kernel of a stage do, line by line, and is it right?

Runs the real kernels of a stage on small arrays, recorded in three thread
orders, and holds the result against the reference and the traffic against its
formula. It returns all of it as data for the figure "stage card".

Source: the formulas are those of `attention_lab.gpu.traffic`.
Letters: B batch, H heads, L queries, S keys, D head width, E model width,
P = 3 (q, k, v).
"""

import ast
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numba import float32

from attention_lab import examples
from attention_lab.error_bound import error_bound
from attention_lab.gpu import record
from attention_lab.gpu.traffic import (
    flash_forward_traffic,
    naive_forward_traffic,
)
from attention_lab.reference import attention_reference
from attention_lab.steps import (
    flash_forward,
    fused_qkv,
    multi_head,
    online_softmax,
    scaled_dot_product,
)
from attention_lab.steps.launch import cdiv

SCHEMA = "stage_card.v1"
ORDERS = ("ascending", "descending", "shuffled")
#: Small, ragged against every block and tile, and no two alike.
H, L, S, D = 2, 7, 10, 3
TILE_L, TILE_S = 4, 4


class Launch(NamedTuple):
    """One launch: its arguments, and the traffic it should have."""

    kernel: Any
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    formula: dict[str, tuple[int, int]]


class Result(NamedTuple):
    """What the launches of a stage leave behind, and what they should."""

    name: str
    found: np.ndarray
    expected: np.ndarray
    bound: float


def stage_run(stage: str, *, seed: int = 0) -> dict[str, Any]:
    """Run the kernels of a stage on small arrays; return data of the runs.

    Parameters
    ----------
    stage : the name of its module, one of `STAGES`.
    seed : of the normal queries, keys and values. What only moves elements
        moves the numbers 0, 1, 2, …

    Returns
    -------
    Plain dictionaries, lists and numbers, ready for JSON:

    schema, stage, seed, dtype : "stage_card.v1", and how it was made
    result : name, shape and expected_shape of the stage's result; its error
        (largest distance to the expectation, None if infinite or NaN) and the
        bound it is held against, 0 for what only moves elements
    kernels : one per launch: the recording by line (with `against` its
        formula), the source of each function that touches memory as
        [line, text] pairs, and how many hazards each thread order showed

    Raises
    ------
    ValueError
        If there is no such stage; names those there are.
    """
    if stage not in _STAGES:
        raise ValueError(
            f"there is no stage {stage!r}; there are {', '.join(_STAGES)}"
        )
    kernels: list[dict[str, Any]] = []
    hazards: list[dict[str, int]] = []
    for order in reversed(ORDERS):  # the result is that of the first
        launches, result = _STAGES[stage](seed)
        for place, launch in enumerate(launches):
            recording = record(
                launch.kernel, launch.grid, launch.block, *launch.arguments,
                order=order, seed=seed, engine="python",
            ).against(launch.formula)  # fmt: skip
            if order == ORDERS[0]:
                kernels.append(_kernel_data(recording))
            if place == len(hazards):
                hazards.append({})
            hazards[place][order] = len(recording.hazards)
    for kernel, found in zip(kernels, hazards, strict=True):
        kernel["hazards"] = {order: found[order] for order in ORDERS}
    return {
        "schema": SCHEMA,
        "stage": stage,
        "seed": seed,
        "dtype": "float32",
        "result": _result_data(result),
        "kernels": kernels,
    }


def _result_data(result: Result) -> dict[str, Any]:
    """Compare what was found with what was expected; NaN is infinitely off."""
    error = math.inf
    if result.found.shape == result.expected.shape:
        distance = np.abs(result.found.astype(np.float64) - result.expected)
        error = float(distance.max())
    return {
        "name": result.name,
        "shape": list(result.found.shape),
        "expected_shape": list(result.expected.shape),
        "error": error if math.isfinite(error) else None,
        "bound": float(result.bound),
    }


def _kernel_data(recording: Any) -> dict[str, Any]:
    """Return a recording by line, with the source it ran."""
    functions = {}
    for site in recording.events.sites:
        # All kernels and what they call stand beside this file.
        file = Path(__file__).with_name(site.place.file)
        first, lines = _function_around(file, site.place.line)
        functions[first] = lines
    kernel = recording.kernel
    # The kernel first, then what it calls, as they stand in their files.
    ordered = sorted(
        functions.values(), key=lambda ls: f"def {kernel}(" not in str(ls)
    )
    return {
        "recording": recording.to_data("line"),
        "source": [line for lines in ordered for line in lines],
    }


def _function_around(file: Path, line: int) -> tuple[tuple, list[list]]:
    """Return the innermost function around a line, as [line, text] pairs."""
    lines, spans = _functions_in(file)
    first, last, cut = max(s for s in spans if s[0] <= line <= s[1])
    return (file, first), [
        [number, lines[number - 1][cut:]] for number in range(first, last + 1)
    ]


@functools.cache
def _functions_in(file: Path) -> tuple[list[str], list[tuple[int, int, int]]]:
    """Return the lines of a file, and first, last and indent of functions."""
    text = file.read_text(encoding="utf-8")
    return text.splitlines(), [
        (node.lineno, node.end_lineno, node.col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]


def _blank(*shape: int) -> np.ndarray:
    return np.full(shape, np.nan, np.float32)


def _counted(*shape: int) -> np.ndarray:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape)


def _attention_inputs(seed: int) -> tuple[Any, ...]:
    """Return q, k, v, no mask, the scale, and what the result must be."""
    q, k, v = examples.example_qkv(1, H, L, S, D, seed=seed)
    exact = attention_reference(q, k, v).out_BHLD
    no_bias, scale = np.zeros((1, 1, 1, 1), np.float32), np.float32(D**-0.5)
    return q, k, v, no_bias, scale, exact, error_bound(q, k, v)


def _scaled_dot_product(seed: int) -> tuple[list[Launch], Result]:
    step = scaled_dot_product
    q, k, v, no_bias, scale, exact, bound = _attention_inputs(seed)
    scores, weights, out = (
        _blank(1, H, L, S),
        _blank(1, H, L, S),
        _blank(1, H, L, D),
    )
    block = (step.THREADS_X, step.THREADS_L, 1)
    rows = cdiv(L, step.THREADS_L)
    names = {
        "query": "q_BHLD", "key": "k_BHSD", "value": "v_BHSD",
        "scores": "scores_BHLS", "weights": "weights_BHLS",
        "output": "out_BHLD",
    }  # fmt: skip
    by_name = {
        kernel: {names[array]: counts for array, counts in arrays.items()}
        for kernel, arrays in naive_forward_traffic(L, S, D, H=H).items()
    }
    launches = [
        Launch(
            step.make_scores_kernel(float32, False, False),
            (cdiv(S, step.THREADS_X), rows, H), block,
            (scores, q, k, no_bias, scale, 1), by_name["scores"],
        ),
        Launch(
            step.make_softmax_kernel(float32),
            (cdiv(L, step.THREADS_ROW), H), (step.THREADS_ROW, 1),
            (weights, scores), by_name["softmax"],
        ),
        Launch(
            step.make_weighted_sum_kernel(float32),
            (cdiv(D, step.THREADS_X), rows, H), block,
            (out, weights, v, 1), by_name["weighted_sum"],
        ),
    ]  # fmt: skip
    return launches, Result("out_BHLD", out, exact, bound)


def _multi_head(seed: int) -> tuple[list[Launch], Result]:
    step = multi_head
    x, heads, merged = (
        _counted(1, L, H * D),
        _blank(1, H, L, D),
        _blank(1, L, H * D),
    )
    grid = (cdiv(D, step.THREADS_D), cdiv(L, step.THREADS_L), H)
    block = (step.THREADS_D, step.THREADS_L, 1)
    split = {"x_BHLD": (0, x.size), "x_BLE": (x.size, 0)}
    launches = [
        Launch(step.split_heads_kernel, grid, block, (heads, x), split),
        Launch(
            step.merge_heads_kernel, grid, block, (merged, heads),
            {name: counts[::-1] for name, counts in split.items()},
        ),
    ]  # fmt: skip
    expected = x.reshape(1, L, H, D).transpose(0, 2, 1, 3)
    return launches, Result("x_BHLD", heads, expected, 0.0)


def _fused_qkv(seed: int) -> tuple[list[Launch], Result]:
    step = fused_qkv
    packed, qkv = _counted(1, L, 3 * H * D), _blank(3, 1, H, L, D)
    steps = step.layout_steps("p h d", H, D)
    launch = Launch(
        step.split_qkv_kernel,
        (cdiv(D, step.THREADS_D), cdiv(L, step.THREADS_L), H),
        (step.THREADS_D, step.THREADS_L, 1),
        (qkv, packed, steps["p"], steps["h"], steps["d"]),
        {"qkv_PBHLD": (0, qkv.size), "packed": (packed.size, 0)},
    )
    expected = packed.reshape(1, L, 3, H, D).transpose(2, 0, 3, 1, 4)
    return [launch], Result("qkv_PBHLD", qkv, expected, 0.0)


def _one_pass(
    kernel: Any, grid: tuple, block: tuple, tiles: tuple, seed: int
) -> tuple[list[Launch], Result]:
    """Return the launch of a kernel that reads q, k, v and stores out, lse."""
    q, k, v, no_bias, scale, exact, bound = _attention_inputs(seed)
    out = _blank(1, H, L, D)
    names = {
        "query": "q_BHLD", "key": "k_BHSD", "value": "v_BHSD",
        "output": "out_BHLD", "log_sum_exp": "lse_BHL",
    }  # fmt: skip
    counts = flash_forward_traffic(L, S, D, *tiles, H=H)
    launch = Launch(
        kernel, grid, block,
        (out, _blank(1, H, L), q, k, v, no_bias, scale, 1),
        {names[array]: moved for array, moved in counts.items()},
    )  # fmt: skip
    return [launch], Result("out_BHLD", out, exact, bound)


def _online_softmax(seed: int) -> tuple[list[Launch], Result]:
    threads = online_softmax.THREADS_ROW
    kernel = online_softmax.make_online_softmax_kernel(
        D, D, float32, False, False
    )
    # Each query fetches every key for itself: a tile of one query.
    grid = (cdiv(L, threads), H)
    return _one_pass(kernel, grid, (threads, 1), (1, 1), seed)


def _flash_forward(seed: int) -> tuple[list[Launch], Result]:
    kernel = flash_forward.make_flash_kernel(
        D, D, TILE_L, TILE_S, float32, False, False
    )
    grid = (cdiv(L, TILE_L), H)
    return _one_pass(kernel, grid, (TILE_L,), (TILE_L, TILE_S), seed)


_STAGES: dict[str, Callable[[int], tuple[list[Launch], Result]]] = {
    "scaled_dot_product": _scaled_dot_product,
    "multi_head": _multi_head,
    "fused_qkv": _fused_qkv,
    "online_softmax": _online_softmax,
    "flash_forward": _flash_forward,
}
STAGES = tuple(_STAGES)
