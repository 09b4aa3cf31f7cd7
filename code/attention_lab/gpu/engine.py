"""Run a lowered kernel in the interpreter."""

import itertools
import math
import random
import re
import sys
import time
import traceback
from array import array
from dataclasses import dataclass, field

import numpy as np

from attention_lab.gpu.access import (
    Strays,
    atomic_accesses,
    recorded_accesses,
)
from attention_lab.gpu.arithmetic import python_helpers
from attention_lab.gpu.endless import Endless, sentence
from attention_lab.gpu.errors import KernelFault
from attention_lab.gpu.limits import check_shared
from attention_lab.gpu.naming import Names
from attention_lab.gpu.python_dialect import unwritten
from attention_lab.gpu.schedule import BlockRun, Boxes, Segments

_HELPERS = {**python_helpers(), "__Endless": Endless}
ORDERS = ("ascending", "descending", "shuffled")
FAULTS = (
    Endless,
    IndexError,
    ZeroDivisionError,
    ValueError,
    OverflowError,
    UnboundLocalError,
    AssertionError,
)


@dataclass
class Run:
    """What a run leaves behind besides the arrays.

    Attributes
    ----------
    log : one integer per access, in the order they happened
    outside : (site, indices, spans) of accesses out of bounds, see `access`
    segments : which thread made which accesses
    trouble : what stopped the run early, or None
    strays : (block, stop, thread, source, everyone) of shuffles that read
        from nobody
    names : of the threads and blocks
    """

    log: object = field(default_factory=lambda: array("q"))
    outside: list = field(default_factory=list)
    segments: Segments = field(default_factory=Segments)
    trouble: object = None
    strays: list = field(default_factory=list)
    names: Names = field(default_factory=Names)


def turns(count, order, seed):
    """Return the numbers 0 to count - 1 in the order asked for."""
    numbers = list(range(count))
    if order == "descending":
        numbers.reverse()
    elif order == "shuffled":
        random.Random(int(seed)).shuffle(numbers)
    return numbers


def coordinates(sizes):
    """Return (x, y, z) of every thread or block, x fastest."""
    return [
        (x, y, z)
        for z, y, x in itertools.product(*(range(n) for n in sizes[::-1]))
    ]


def shared_lengths(lowered, shared_bytes):
    """Return how many elements each shared array has.

    A kernel has at most one dynamic array; it gets all dynamic memory.
    """
    check_shared(lowered.shared_bytes, shared_bytes)
    return [
        math.prod(shared.shape)
        if shared.shape[0] is not None
        else shared_bytes // shared.dtype.itemsize
        for shared in lowered.shared
    ]


def run_python(
    lowered,
    arguments,
    grid,
    block,
    shared_bytes,
    order,
    seed,
    recorded,
    patience=None,
):
    """Run a kernel thread by thread in the interpreter.

    Parameters
    ----------
    lowered : a `Lowered` kernel of the Python dialect
    arguments : NumPy arrays and scalars, in order
    grid, block : the launch, three sizes each
    shared_bytes : dynamic shared memory of each block
    order, seed : the order in which threads and blocks take their turns
    recorded : whether `lowered` writes a log
    patience : seconds of computing after which to give up, or None; a busy
        machine does not change the choice

    Returns
    -------
    A `Run`; None if after some block the whole would take too long.
    """
    done = Run(names=Names(grid, block))
    log = done.log.append if recorded else None
    namespace = dict(_HELPERS)
    namespace.update(lowered.constants)
    strays = Strays(done.outside)
    if recorded:
        namespace.update(recorded_accesses(log, strays))
    namespace.update(atomic_accesses(log, strays))
    exec(lowered.code, namespace)
    threads = coordinates(block)
    boxes = Boxes(len(threads))
    given = dict(zip(lowered.parameters, arguments, strict=True))
    function = namespace["build"](
        *(given[name] for name in lowered.arrays),
        log,
        boxes.value,
        boxes.operand,
        boxes.mask,
        boxes.result,
        *grid,
    )
    numbers = [
        argument.item() if argument.dtype.char not in "fe" else argument
        for name, argument in given.items()
        if name not in lowered.arrays
    ]
    lengths = shared_lengths(lowered, shared_bytes)
    blocks = coordinates(grid)
    turn = turns(len(threads), order, seed)
    with np.errstate(all="ignore"):
        began = time.thread_time()
        for count, number in enumerate(turns(len(blocks), order, seed)):
            if patience is not None and count:
                taken = time.thread_time() - began
                if taken / count * len(blocks) > patience:
                    return None
            memory = []
            for shared, length in zip(lowered.shared, lengths, strict=True):
                memory.append([unwritten(shared.dtype)] * length)
                if shared.shape[0] is None:
                    memory.append(length)
            start = _Starter(function, numbers, memory, threads, blocks[number])
            if lowered.waits:
                _run_waiting(
                    lowered, start, turn, boxes, number, recorded, done
                )
            else:
                _run_freely(lowered, start, turn, number, recorded, done)
            if done.trouble is not None:
                break
    return done


class _Starter:
    """Starts one thread of a block."""

    def __init__(self, function, numbers, memory, threads, place):
        self.function = function
        self.first = (*numbers, *memory)
        self.threads = threads
        self.place = place

    def __call__(self, thread):
        return self.function(
            *self.first, *self.threads[thread], *self.place, thread
        )


def _run_freely(lowered, start, turn, number, recorded, done):
    """Run the threads of a block that never wait."""
    segments = done.segments
    thread = 0
    try:
        for thread in turn:
            start(thread)
            if recorded:
                segments.block.append(number)
                segments.thread.append(thread)
                segments.epoch.append(0)
                segments.clock.append(0)
                segments.end.append(len(done.log))
    except FAULTS as error:
        raise fault(lowered, error, done.names.both(thread, number)) from None


def _run_waiting(lowered, start, turn, boxes, number, recorded, done):
    """Run the threads of a block that wait for each other."""
    run = BlockRun(
        [start(thread) for thread in range(len(turn))],
        turn,
        lowered.stops,
        boxes,
        number,
        done.segments if recorded else None,
        done.log.__len__,
    )
    try:
        run.run()
    except FAULTS as error:
        who = done.names.both(run.current, number)
        raise fault(lowered, error, who) from None
    done.trouble = run.trouble
    done.strays.extend((number, *stray) for stray in run.strays)


def fault(lowered, error, who):
    """Return the error to show for one raised inside a lowered kernel."""
    place = None
    for frame in traceback.extract_tb(sys.exc_info()[2]):
        if frame.filename == lowered.filename:
            place = lowered.origins[frame.lineno - 1] or place
    detail = ""
    if isinstance(error, UnboundLocalError):
        # Python says "cannot access local variable 'x' where ...".
        detail = str(error).split("'")[1]
    if isinstance(error, AssertionError):
        place, detail = lowered.faults[error.args[0]]
    return explained(lowered, error, place, detail, who)


def explained(lowered, error, place, detail, who):
    """Return an error of a running kernel as a sentence for its author.

    Parameters
    ----------
    lowered : the kernel
    error : what was raised
    place : the line, or None if it is not known
    detail : the variable that has no value, or why the kernel stops
    who : the thread, in words
    """
    if isinstance(error, Endless):
        loop = lowered.loops[error.args[0]]
        return KernelFault(sentence(loop, who), "endless-loop")
    where = f"{place}: {who}" if place else who
    if isinstance(error, IndexError):
        return KernelFault(
            f"{where} uses an index outside its array. A GPU would read or "
            "overwrite other memory without a word: guard the access, or "
            "see all of them with record(...).hazards.",
            "out-of-bounds",
        )
    if isinstance(error, ZeroDivisionError):
        return KernelFault(
            f"{where} divides a whole number by zero; on a GPU the result "
            "is undefined.",
            "division-by-zero",
        )
    if isinstance(error, UnboundLocalError):
        # What a view depends on has a name that ends in __0, __0n and so on.
        name = re.sub(r"__(\d+n?|set|which)$", "", detail)
        return KernelFault(
            f"{where} uses `{lowered.labels.get(name, name)}`, which has no "
            "value on the path it took; on a GPU it would hold anything. Set "
            "it before the condition.",
            "unset-variable",
        )
    if isinstance(error, AssertionError):
        return KernelFault(
            f"{where} stops, because {detail}. On a GPU it would stop without "
            "a word, and its results would be missing, unless the kernel is "
            "compiled with debug=True.",
            "stopped",
        )
    if isinstance(error, ValueError) and error.args[:1] != (str(error),):
        error = "range() arg 3 must not be zero"  # machine code's number
    return KernelFault(f"{where} cannot compute this: {error}.", "fault")
