"""What the tests of the flash ladder share: rungs, inputs, edited kernels."""

import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from attention_lab.error_bound import error_bound, lse_error_bound
from attention_lab.examples import example_qkv
from attention_lab.reference import attention_reference
from attention_lab.source import plain_function
from attention_lab.steps import flash_register, flash_tensor_core


class Rung(NamedTuple):
    """A kernel: how to run it, what it computes in, sizes at its edges."""

    run: Callable
    dtype: type
    module: Any
    factory: str
    sizes: list[tuple[int, int, int, int]]
    tiles: list[tuple[int, int]]


#: sizes are (L, S, D, D_v): 1, primes, tile−1, tile, tile+1, L ≠ S.
RUNGS = {
    "register": Rung(
        flash_register.flash_register_cuda,
        np.float32,
        flash_register,
        "make_flash_register_kernel",
        [
            (1, 1, 1, 1),
            (7, 15, 3, 15),
            (8, 16, 4, 16),
            (9, 17, 5, 17),
            (13, 5, 7, 2),
        ],
        [(4, 16), (8, 16), (12, 48), (32, 16)],
    ),
    "tensor core": Rung(
        flash_tensor_core.flash_tensor_core_cuda,
        np.float16,
        flash_tensor_core,
        "make_flash_tensor_core_kernel",
        [
            (1, 1, 1, 1),
            (15, 17, 15, 7),
            (16, 16, 16, 8),
            (17, 15, 17, 9),
            (5, 13, 3, 2),
        ],
        [(16, 16), (32, 16), (16, 48), (48, 32)],
    ),
}


def inputs(rung: Rung, **sizes: int) -> list[np.ndarray]:
    """Return query, key and value in the dtype of a rung."""
    return [x.astype(rung.dtype) for x in example_qkv(**sizes)]


def assert_right(rung: Rung, q, k, v, *options: Any, **tiles: int) -> None:
    """Run a rung; compare output and log-sum-exp with float64."""
    assert_close(rung.run(q, k, v, *options, **tiles), q, k, v, *options)


def assert_close(result: Any, q, k, v, *options: Any) -> None:
    """Compare an output and a log-sum-exp with float64, within the bounds."""
    exact = attention_reference(q, k, v, *options)
    assert result.out_BHLD.dtype == q.dtype
    assert result.lse_BHL.dtype == np.float32
    for name, bound in (
        ("out_BHLD", error_bound(q, k, v, *options)),
        ("lse_BHL", lse_error_bound(q, k, v, *options)),
    ):
        got, expected = getattr(result, name), getattr(exact, name)
        np.testing.assert_allclose(
            got.astype(np.float64), expected, atol=bound, rtol=0, err_msg=name
        )


def edited(
    function: Any, old: str, new: str, folder: Path, **names: Any
) -> Any:
    """Define a kernel or device function again, one piece of it replaced.

    Parameters
    ----------
    old : must occur exactly once; "" replaces nothing.
    names : what the function sees instead of its own names.
    """
    plain = plain_function(function)
    source = textwrap.dedent(inspect.getsource(plain))
    assert source.count(old) == 1 or not old, f"{old!r} is not there once"
    known = dict(plain.__globals__)
    cells = plain.__closure__ or ()
    for name, cell in zip(plain.__code__.co_freevars, cells, strict=True):
        known[name] = cell.cell_contents
    known |= names
    path = folder / f"edited_{plain.__name__}.py"
    made = source.replace(old, new) if old else source
    path.write_text(made, encoding="utf-8")
    exec(compile(made, path, "exec"), known)
    return known[plain.__name__]


def part_of(kernel: Any, name: str) -> Any:
    """Return a device function that a kernel calls, by name."""
    plain = plain_function(kernel)
    cells = plain.__closure__ or ()
    names = dict(zip(plain.__code__.co_freevars, cells, strict=True))
    if name in names:
        return names[name].cell_contents
    return plain.__globals__[name]
