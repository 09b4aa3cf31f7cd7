"""What does it cost to move the elements of a permutation?

    place = Σ index · stride

`permute` only exchanges strides, which is free. A copy in the new order walks
through two arrays, and a permutation lets it walk through one of them in order:
the kernel that gathers writes neighbours, the kernel that scatters reads them.

Source: PyTorch documentation, "Tensor Views" and "torch.Tensor.view"; NVIDIA,
CUDA C++ Best Practices Guide, "Coalesced Access to Global Memory". Memory: the
copy. Letters: any; the axes of an array of up to four are permuted.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float
from numba import float32
from torch import Tensor

from attention_lab import examples
from attention_lab.axes import ShapeMismatch, check_tile
from attention_lab.gpu import cuda, record, to_device
from attention_lab.steps.launch import (
    MAX_THREADS,
    blank,
    cdiv,
    kernel_dtype,
    same_kind,
    to_real,
)

THREADS = 128  # of a block: four warps
MOST_AXES = 4
WAYS = ("gather", "scatter")


# -- PyTorch ---------------------------------------------------------------


def contiguous_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides, in numbers, of an array that lies row by row.

    Examples
    --------
    >>> contiguous_strides((2, 3, 5))
    (15, 5, 1)
    """
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def permute(x: Float[Tensor, "..."], axes: Sequence[int]) -> Tensor:
    """Copy a tensor with its axes in another order.

    Axis i of the result is axis axes[i] of x, as in `torch.permute`.

    Raises
    ------
    ShapeMismatch
        If `axes` does not name every axis of x once.

    Examples
    --------
    >>> import torch
    >>> permute(torch.arange(6.0).reshape(2, 3), (1, 0)).flatten().tolist()
    [0.0, 3.0, 1.0, 4.0, 2.0, 5.0]
    """
    return x.permute(check_permutation(x.shape, axes)).contiguous()


def check_permutation(
    shape: Sequence[int], axes: Sequence[int]
) -> tuple[int, ...]:
    """Return axes as a tuple, or refuse what is no permutation of the axes.

    Raises
    ------
    ShapeMismatch
        Names the axes that are there, and those that were given.
    """
    axes = tuple(axes)
    if sorted(map(repr, axes)) != sorted(map(repr, range(len(shape)))):
        raise ShapeMismatch(
            f"axes must name each of the {len(shape)} axes of x once, from 0 "
            f"to {len(shape) - 1}, not {axes}"
        )
    return axes


# -- CUDA kernels ----------------------------------------------------------


@cuda.jit(device=True)
def place_of(n, size_1, size_2, size_3, step_0, step_1, step_2, step_3):
    """One thread finds where element n lies in an array with these strides."""
    i_3, rest = n % size_3, n // size_3
    i_2, rest_2 = rest % size_2, rest // size_2
    i_1, i_0 = rest_2 % size_1, rest_2 // size_1
    return i_0 * step_0 + i_1 * step_1 + i_2 * step_2 + i_3 * step_3


@cuda.jit
def gather_kernel(
    out, x, size_1, size_2, size_3, step_0, step_1, step_2, step_3
):
    """One thread per place of out: it fetches the element that belongs there.

    Sizes are those of out, steps the strides of x in the order of its axes.
    """
    n = cuda.grid(1)
    if n < out.size:
        # 1. Load: from a place that the strides tell.
        place = place_of(
            n, size_1, size_2, size_3, step_0, step_1, step_2, step_3
        )
        element = x[place]

        # 2. Compute: nothing; a permutation only moves.

        # 3. Store: neighbouring threads write neighbours.
        out[n] = element


@cuda.jit
def scatter_kernel(
    out, x, size_1, size_2, size_3, step_0, step_1, step_2, step_3
):
    """One thread per element of x: it takes the element to its place in out.

    Sizes are those of x, steps the strides of out in the order of its axes.
    """
    n = cuda.grid(1)
    if n < x.size:
        # 1. Load: neighbouring threads read neighbours.
        element = x[n]

        # 2. Compute: nothing; a permutation only moves.

        # 3. Store: to a place that the strides tell.
        place = place_of(
            n, size_1, size_2, size_3, step_0, step_1, step_2, step_3
        )
        out[place] = element


# -- Launch ----------------------------------------------------------------


class Walk(NamedTuple):
    """How a kernel walks: its launch, and what it needs to know.

    grid, block : the launch.
    sizes : of the axes that thread numbers are taken apart by, the first left
        out: nothing is divided by it.
    steps : how far one step along each of these axes moves in the other array.
    """

    kernel: Any
    grid: int
    block: int
    sizes: tuple[int, ...]
    steps: tuple[int, ...]


def plan_walk(
    shape: Sequence[int],
    axes: Sequence[int],
    by: str = "gather",
    threads: int = THREADS,
) -> Walk:
    """Return the launch that permutes an array of this shape.

    Parameters
    ----------
    threads : of a block, at most 1024.

    Raises
    ------
    ShapeMismatch
        If there are more than four axes, or `axes` is no permutation.
    ValueError
        If `by` is not "gather" or "scatter", or a block has not 1 … 1024
        threads.

    Examples
    --------
    >>> walk = plan_walk((2, 3), (1, 0), "gather")
    >>> walk.sizes, walk.steps  # one step along the old rows moves 1
    ((1, 3, 2), (0, 0, 1, 3))
    """
    if check_tile("threads", threads) > MAX_THREADS:
        raise ValueError(
            f"threads = {threads}, but CUDA allows {MAX_THREADS} in a block"
        )
    if by not in WAYS:
        raise ValueError(f"by must be one of {', '.join(WAYS)}, not {by!r}")
    if len(shape) > MOST_AXES:
        raise ShapeMismatch(
            f"x has {len(shape)} axes {tuple(shape)}, but at most {MOST_AXES} "
            "can be permuted"
        )
    axes = check_permutation(shape, axes)
    sizes = [shape[axis] for axis in axes]
    if by == "gather":
        strides = contiguous_strides(shape)
        steps = [strides[axis] for axis in axes]
    else:
        strides = contiguous_strides(sizes)
        steps = [strides[axes.index(axis)] for axis in range(len(shape))]
        sizes = list(shape)
    missing = MOST_AXES - len(shape)
    sizes = [1] * missing + sizes
    return Walk(
        gather_kernel if by == "gather" else scatter_kernel,
        cdiv(math.prod(shape), threads),
        threads,
        tuple(sizes[1:]),
        (0,) * missing + tuple(steps),
    )


def permute_cuda(
    x: Float[Any, "..."], axes: Sequence[int], by: str = "gather"
) -> Any:
    """Copy an array with its axes in another order, by a kernel.

    NumPy array or torch tensor in, the same kind out.

    Parameters
    ----------
    x : up to four axes.
    axes : axis i of the result is axis axes[i] of x.
    by : "gather" gives each place of the result a thread, "scatter" each
        element of x.

    Errors: `plan_walk`; a dtype that kernels cannot compute in is a ValueError.
    """
    real = kernel_dtype("x", x)
    walk = plan_walk(x.shape, axes, by)
    shape = tuple(x.shape[axis] for axis in axes)
    if 0 in shape:
        return same_kind(blank(shape, real), x)
    out = to_device(blank(shape, real).reshape(-1))
    line = to_device(to_real(x, real).reshape(-1))
    walk.kernel[walk.grid, walk.block](out, line, *walk.sizes, *walk.steps)
    return same_kind(out.copy_to_host().reshape(shape), x)


# -- Recorded --------------------------------------------------------------


def predicted_traffic(shape: Sequence[int]) -> dict[str, tuple[int, int]]:
    """Count the elements that either kernel moves: each once in, once out.

    Examples
    --------
    >>> predicted_traffic((2, 3))
    {'out': (0, 6), 'x': (6, 0)}
    """
    elements = math.prod(shape)
    return {"out": (0, elements), "x": (elements, 0)}


def measure(
    shape: Sequence[int],
    axes: Sequence[int],
    by: str = "gather",
    order: str = "ascending",
    threads: int = THREADS,
) -> Any:
    """Record a kernel on position-coded float32 numbers.

    Parameters and errors: `plan_walk`, and `order` of `gpu.record`.

    Returns
    -------
    An `attention_lab.gpu.recording.Recording` that knows its formula.
    """
    walk = plan_walk(shape, axes, by, threads)
    x = examples.position_coded(math.prod(shape)).astype(np.float32)
    return record(
        walk.kernel, walk.grid, walk.block, blank(x.shape, float32), x,
        *walk.sizes, *walk.steps, order=order,
    ).against(predicted_traffic(shape))  # fmt: skip
