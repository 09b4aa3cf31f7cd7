"""Run a lowered kernel as machine code, through Numba's CPU compiler.

The scheduler is the interpreter's; only the threads are compiled. It pays
one to two seconds of compiling per kernel, argument types and block size.
"""

import warnings

import numpy as np

from attention_lab.gpu.access import MOST_AXES
from attention_lab.gpu.compiled_helpers import (
    HEADER,
    MISSES,
    OUTSIDE_ROWS,
    ROW,
    ROWS,
    compiled_helpers,
)
from attention_lab.gpu.endless import Endless
from attention_lab.gpu.engine import (
    FAULTS,
    Run,
    coordinates,
    explained,
    shared_lengths,
    turns,
)
from attention_lab.gpu.errors import UnsupportedConstruct
from attention_lab.gpu.naming import Names
from attention_lab.gpu.python_dialect import unwritten
from attention_lab.gpu.schedule import BlockRun

FIRST_LOG = 1 << 22


class CompiledBoxes:
    """Where compiled threads leave values: one array per kind of number."""

    def __init__(self, threads):
        self.floats = np.zeros(threads), np.zeros(threads)
        self.wholes = np.zeros(threads, np.int64), np.zeros(threads, np.int64)
        self.operand = np.zeros(threads, np.int64)
        self.mask = np.full(threads, 0xFFFFFFFF, np.int64)
        self.select(None)

    def select(self, dtype):
        """Choose the arrays that hold values of this type."""
        is_float = dtype is not None and dtype.kind == "f"
        self.value, self.result = self.floats if is_float else self.wholes

    def arrays(self):
        """Return the arrays in the order in which threads take them."""
        return (
            self.floats[0],
            self.wholes[0],
            self.operand,
            self.mask,
            self.floats[1],
            self.wholes[1],
        )


def empty_log(size):
    """Return a log with room for `size` events."""
    log = np.empty(HEADER + size, np.int64)
    log[:MISSES] = HEADER, 0, 0
    return log


def compiled_function(lowered):
    """Return the compiled thread function, and the loop if there is one."""
    import numba

    if lowered.machine:
        return lowered.machine["thread"], lowered.machine.get("loop")
    namespace = dict(compiled_helpers())
    namespace["__Endless"] = Endless
    namespace.update(lowered.constants)
    exec(lowered.code, namespace)
    compile_ = numba.njit(error_model="numpy")
    namespace["thread"] = lowered.machine["thread"] = compile_(
        namespace["thread"]
    )
    if "loop" in namespace:
        lowered.machine["loop"] = compile_(namespace["loop"])
    return lowered.machine["thread"], lowered.machine.get("loop")


def run_compiled(
    lowered, arguments, grid, block, shared_bytes, order, seed, recorded
):
    """Run a kernel as machine code; see `engine.run_python`.

    A recording whose log turns out too small starts again, on restored
    arrays, with a log of the right size.
    """
    copies = [
        np.array(a, copy=True) if recorded and isinstance(a, np.ndarray) else a
        for a in arguments
    ]
    log = empty_log(FIRST_LOG) if recorded else None
    launch = (grid, block, shared_bytes, order, seed)
    while True:
        try:
            done = _run_once(lowered, arguments, *launch, log)
        except _numba_error() as error:
            # Our typing rules let through what the compiler does not take.
            raise UnsupportedConstruct(
                "a part of this kernel in the compiled engine",
                f"`{lowered.name}`",
                'Use engine="python". Numba says: '
                + " ".join(str(error).split())[:200],
            ) from None
        if log is None:
            return done
        end = int(log[0])
        if end <= len(log):
            break
        log = empty_log(end - HEADER)
        for argument, copy in zip(arguments, copies, strict=True):
            if isinstance(argument, np.ndarray):
                argument[...] = copy
    done.log = log[HEADER:end]
    done.segments.end = np.asarray(done.segments.end) - HEADER
    rows = log[ROWS:HEADER].reshape(OUTSIDE_ROWS, ROW)[: int(log[1])]
    for site, *values in rows.tolist():
        many = lowered.axes[lowered.sites[site].name]
        edges = values[MOST_AXES:]
        spans = tuple(
            (edges[2 * k], edges[2 * k + 1]) if edges[2 * k + 1] >= 0 else None
            for k in range(many)
        )
        done.outside.append((site, tuple(values[:many]), spans))
    return done


def _numba_error():
    """Return the base of the errors of Numba's compiler."""
    from numba.core.errors import NumbaError

    return NumbaError


def _run_once(lowered, arguments, grid, block, shared_bytes, order, seed, log):
    """Run all blocks once."""
    function, loop = compiled_function(lowered)
    lengths = shared_lengths(lowered, shared_bytes)
    threads = coordinates(block)
    turn = turns(len(threads), order, seed)
    blocks = turns(grid[0] * grid[1] * grid[2], order, seed)
    boxes = CompiledBoxes(len(threads))
    memory = [
        np.empty(
            array.shape if array.shape[0] is not None else length, array.dtype
        )
        for array, length in zip(lowered.shared, lengths, strict=True)
    ]
    first = (*arguments, *memory, *boxes.arrays(), *grid)
    if log is not None:
        first = (*first, log)
    done = Run(names=Names(grid, block))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if loop is not None:
            _run_loop(lowered, loop, first, blocks, turn, log, done)
            return done
        places = coordinates(grid)
        for number in blocks:
            for array in memory:
                array[...] = unwritten(array.dtype)
            place = places[number]
            run = BlockRun(
                [
                    function(*first, *threads[t], *place, t)
                    for t in range(len(turn))
                ],
                turn,
                lowered.stops,
                boxes,
                number,
                None if log is None else done.segments,
                None if log is None else log[:1].item,
            )
            try:
                run.run()
            except FAULTS as error:
                raise _fault(
                    lowered, error, done.names.both(run.current, number)
                ) from None
            done.trouble = run.trouble
            done.strays.extend((number, *stray) for stray in run.strays)
            if done.trouble is not None:
                break
    return done


def _run_loop(lowered, loop, first, blocks, turn, log, done):
    """Run threads that never wait, in one compiled loop."""
    rows = len(blocks) * len(turn) if log is not None else 1
    ends = np.zeros(rows, np.int64)
    now = np.zeros(2, np.int64)
    try:
        loop(*first, np.array(blocks), np.array(turn), ends, now)
    except FAULTS as error:
        block, thread = now.tolist()
        raise _fault(lowered, error, done.names.both(thread, block)) from None
    if log is None:
        return
    segments = done.segments
    segments.block = np.repeat(blocks, len(turn))
    segments.thread = np.tile(turn, len(blocks))
    segments.epoch = np.zeros(rows, np.int32)
    segments.clock = np.zeros(rows, np.int32)
    segments.end = ends


def _fault(lowered, error, who):
    """Return the error to show for one raised inside machine code."""
    number = error.args[0] if error.args else None
    place, variable = None, ""
    if isinstance(number, int) and 0 <= number < len(lowered.faults):
        place, variable = lowered.faults[number]
    return explained(lowered, error, place, variable, who)
