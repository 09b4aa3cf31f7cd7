"""Choose the engine that runs a kernel: the interpreter, or machine code."""

import importlib.util

import numpy as np

from attention_lab.gpu.arguments import check_stores
from attention_lab.gpu.compiled_dialect import CompiledEmitter
from attention_lab.gpu.compiled_engine import run_compiled
from attention_lab.gpu.engine import ORDERS, run_python
from attention_lab.gpu.errors import (
    KernelError,
    UnsupportedConstruct,
    WrongArgument,
    WrongValue,
)
from attention_lab.gpu.lowering import lower

# Compiling takes one to two seconds; below twice that it does not pay.
PATIENCE_SECONDS = 4.0
ENGINES = ("auto", "python", "compiled")


def has_numba():
    """Say whether Numba is installed, without importing it."""
    try:
        return importlib.util.find_spec("numba") is not None
    except (ImportError, ValueError):
        return False


def check_turns(order, seed, engine):
    """Refuse what cannot be an order of turns, its seed, or an engine.

    Raises
    ------
    WrongValue, WrongArgument
        With the choices there are.
    """
    for name, given, choices in (
        ("order", order, ORDERS),
        ("engine", engine, ENGINES),
    ):
        if not isinstance(given, str) or given not in choices:
            raise WrongValue(
                f"{name} is {given!r}; it can be "
                + ", ".join(f"'{choice}'" for choice in choices[:-1])
                + f" or '{choices[-1]}'"
            )
    if not isinstance(seed, (int, np.integer)):
        raise WrongArgument(f"seed is {seed!r}; it must be a whole number")


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
    check_turns(order, seed, engine)
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
