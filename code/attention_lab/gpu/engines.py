"""Choose the engine that runs a kernel: the interpreter, or machine code."""

import importlib.util

import numpy as np

from attention_lab.gpu.arguments import check_stores
from attention_lab.gpu.compiled_dialect import CompiledEmitter
from attention_lab.gpu.compiled_engine import run_compiled
from attention_lab.gpu.engine import run_python
from attention_lab.gpu.errors import KernelError, UnsupportedConstruct
from attention_lab.gpu.lowering import lower

# Compiling takes one to two seconds; below twice that it does not pay.
PATIENCE_SECONDS = 4.0


def has_numba():
    """Say whether Numba is installed, without importing it."""
    try:
        return importlib.util.find_spec("numba") is not None
    except (ImportError, ValueError):
        return False


def run(
    kernel, arguments, grid, block, shared_bytes, order, seed, recorded, engine
):
    """Run a kernel on the engine asked for.

    "auto" begins in the interpreter. When its first blocks show that the
    whole would take more than a few seconds, it puts the arrays back as
    they were and starts again as machine code, if Numba is installed.

    Returns
    -------
    The `Lowered` kernel, the `Run`, and the name of the engine used.
    """
    if engine not in ("auto", "python", "compiled"):
        raise ValueError(
            f"engine is {engine!r}; it can be 'auto', 'python' or 'compiled'"
        )
    launch = (arguments, grid, block, shared_bytes, order, seed, recorded)
    if engine == "compiled":
        if not has_numba():
            raise KernelError(
                "the compiled engine needs Numba: install it with "
                "`pip install numba`, or use engine='python'"
            )
        return *_compiled(kernel, *launch), "compiled"
    lowered = lower(kernel, arguments, block, recorded)
    check_stores(lowered, arguments)
    many = grid[0] * grid[1] * grid[2] > 1
    can_switch = engine == "auto" and many and has_numba()
    copies = [
        np.array(a, copy=True) if isinstance(a, np.ndarray) else None
        for a in (arguments if can_switch else ())
    ]
    done = run_python(
        lowered, *launch, PATIENCE_SECONDS if can_switch else None
    )
    if done is not None:
        return lowered, done, "python"
    for argument, copy in zip(arguments, copies, strict=True):
        if copy is not None:
            argument[...] = copy
    try:
        return *_compiled(kernel, *launch), "compiled"
    except UnsupportedConstruct:
        return lowered, run_python(lowered, *launch), "python"


def _compiled(
    kernel, arguments, grid, block, shared_bytes, order, seed, recorded
):
    """Run a kernel as machine code."""
    lowered = lower(kernel, arguments, block, recorded, CompiledEmitter)
    check_stores(lowered, arguments)
    done = run_compiled(
        lowered, arguments, grid, block, shared_bytes, order, seed, recorded
    )
    return lowered, done
