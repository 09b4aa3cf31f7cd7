"""The functions that compiled kernels call, and their recorded accesses."""

import math
from functools import cache

import numpy as np

from attention_lab.gpu import arithmetic
from attention_lab.gpu.access import MISS, MOST_AXES
from attention_lab.gpu.compiled_arithmetic import (
    conversions,
    cube_root,
    mathematics,
    plain_functions,
)
from attention_lab.gpu.sites import SITE_BITS

# The log is one array: how many events; how many accesses out of bounds; how
# many indices missed a part of an array, and (index, start, length) of these;
# a row for each of the first accesses out of bounds; and then the events.
# A row is the site, the indices, and (start, length) of the part of each axis.
OUTSIDE_ROWS = 1024
MISSES = 3
MOST_MISSES = 1024
ROWS = MISSES + 3 * MOST_MISSES
# A miss is MISS, plus its number in the high bits, plus the place in the whole
# axis where it lands, from 1: there may be more than have a row.
PLACE_BITS = 41
PLACE_MASK = (1 << PLACE_BITS) - 1
ROW = 1 + 3 * MOST_AXES
HEADER = ROWS + OUTSIDE_ROWS * ROW

_ACCESS = """
def load{n}(memory, {indices}, site, log):
    if {inside}:
        here = log[0]
        if here < log.size:
            log[here] = ({flat}) << {bits} | site
        log[0] = here + 1
        return memory[{indices}]
    ({wraps},) = strayed{n}(memory, {indices}, site, log)
    if {w0} < 0:
        return junk(memory)
    return memory[{wraps}]


def store{n}(memory, {indices}, value, site, log):
    if {inside}:
        here = log[0]
        if here < log.size:
            log[here] = ({flat}) << {bits} | site
        log[0] = here + 1
        memory[{indices}] = value
    else:
        ({wraps},) = strayed{n}(memory, {indices}, site, log)
        if {w0} >= 0:
            memory[{wraps}] = value


def strayed{n}(memory, {indices}, site, log):
    row = min(log[1], {rows} - 1)
    base = {first_row} + row * {row}
    log[base] = site
    {wrap_lines}
    log[1] += 1
    here = log[0]
    if here < log.size:
        log[here] = -1 - row
    log[0] = here + 1
    if {gone}:
        return ({minus},)
    return ({wraps},)
"""

_ATOMIC = """
def logged_{op}{n}(memory, index, {values}, site, log):
    ({indices},) = index
    if {inside}:
        here = log[0]
        if here < log.size:
            log[here] = ({flat}) << {bits} | site
        log[0] = here + 1
        return atomic_{op}(memory, ({indices},), {values})
    ({wraps},) = strayed{n}(memory, {indices}, site, log)
    if {w0} < 0:
        return junk(memory)
    return atomic_{op}(memory, ({wraps},), {values})
"""


def _pieces(many):
    """Return the parts of the texts above for `many` axes."""
    indices = [f"i{k}" for k in range(many)]
    wraps = [f"w{k}" for k in range(many)]
    flat = "i0"
    for k in range(1, many):
        flat = f"({flat}) * memory.shape[{k}] + i{k}"
    return {
        "n": many,
        "bits": SITE_BITS,
        "rows": OUTSIDE_ROWS,
        "row": ROW,
        "indices": ", ".join(indices),
        "wraps": ", ".join(wraps),
        "w0": "w0",
        "flat": flat,
        "inside": " and ".join(
            f"0 <= i{k} < memory.shape[{k}]" for k in range(many)
        ),
        "first_row": ROWS,
        "wrap_lines": "\n    ".join(
            f"w{k} = landed(i{k}, memory.shape[{k}], {k}, base, log)"
            for k in range(many)
        ),
        "gone": " or ".join(f"w{k} < 0" for k in range(many)),
        "minus": ", ".join(["-1"] * many),
    }


def _span(i, start, count, log):
    """Return the place in the whole axis, or the number of a miss."""
    if 0 <= i < count:
        return start + i
    number = 0
    while number < log[2]:
        here = MISSES + 3 * number
        if (log[here], log[here + 1], log[here + 2]) == (i, start, count):
            break
        number += 1
    if number == log[2] and number < MOST_MISSES:
        here = MISSES + 3 * number
        log[here] = i
        log[here + 1] = start
        log[here + 2] = count
        log[2] += 1
    lands = start + i + count if -count <= i < 0 else -1
    return MISS + (number << PLACE_BITS) + lands + 1


def _landed(i, size, axis, base, log):
    """Keep an index that may be outside; return where it lands, or -1."""
    edges = base + 1 + MOST_AXES + 2 * axis
    log[edges + 1] = -1
    place = i + size if i < 0 else i + 0
    number = i - MISS >> PLACE_BITS if i < 0 else -1
    if 0 <= number <= MOST_MISSES:
        place = (i - MISS & PLACE_MASK) - 1
        i = place if place >= 0 else MISS
        if number < log[2]:
            here = MISSES + 3 * number
            i = log[here]
            log[edges] = log[here + 1]
            log[edges + 1] = log[here + 2]
    log[base + 1 + axis] = i
    return place if 0 <= place < size else -1


@cache
def compiled_helpers():
    """Return all functions that compiled text may call, by name."""
    import numba

    compile_ = numba.njit(error_model="numpy", no_cpython_wrapper=True)
    helpers = {
        f"__{name}": getattr(np, name)
        for name in [
            "float32",
            "float64",
            "int8",
            "int16",
            "int32",
            "int64",
            "uint8",
            "uint16",
            "uint32",
            "uint64",
        ]
    }
    helpers["__np"] = np
    helpers["__one"] = np.float32(1)
    helpers["__bool"] = np.bool_
    helpers.update(conversions(compile_))
    for name, function in plain_functions(compile_, helpers).items():
        helpers[name] = compile_(function)
    for name in arithmetic.UNARY + arithmetic.BINARY:
        if hasattr(math, name):
            helpers.update(mathematics(name, compile_))
    helpers.update(cube_root(compile_))
    namespace = {"junk": _make_junk(numba), "landed": compile_(_landed)}
    helpers["__span"] = compile_(_span)
    for name in _ATOMICS:
        namespace[f"atomic_{name}"] = compile_(_ATOMICS[name])
        helpers[f"__{name}"] = namespace[f"atomic_{name}"]
    for many in range(1, MOST_AXES + 1):
        _accesses(many, namespace, helpers, compile_)
    return helpers


def _accesses(many, namespace, helpers, compile_):
    """Add the recorded accesses to arrays of `many` axes."""
    pieces = _pieces(many)
    text = _ACCESS.format(**pieces)
    for op in _ATOMICS:
        if op == "cas":
            continue
        text += _ATOMIC.format(**pieces, op=op, values="value")
    text += _ATOMIC.format(**pieces, op="cas", values="expected, value")
    made = {}
    exec(compile(text, "<compiled accesses>", "exec"), namespace, made)
    names = [f"strayed{many}", *(n for n in made if "strayed" not in n)]
    for name in names:
        function = made[name]
        namespace[name] = helpers[f"__{name}"] = compile_(function)


def _make_junk(numba):
    """Return what a load past the end yields: NaN, or zero."""

    def junk(memory):
        raise NotImplementedError

    @numba.extending.overload(junk)
    def _(memory):
        dtype = numba.np.numpy_support.as_dtype(memory.dtype)
        value = dtype.type(np.nan if dtype.kind == "f" else 0)
        return lambda memory: value

    return junk


def _cas(memory, index, expected, value):
    old = memory[index]
    memory[index] = value if old == expected else old
    return old


_UPDATE = """
def update(memory, index, value):
    old = memory[index]
    memory[index] = {new}
    return old
"""
_NEW = {
    "add": "old + value",
    "sub": "old - value",
    "max": "value if value > old else old",
    "min": "value if value < old else old",
    "nanmax": "value if value > old or old != old else old",
    "nanmin": "value if value < old or old != old else old",
    "and_": "old & value",
    "or_": "old | value",
    "xor": "old ^ value",
    "inc": "old * 0 if old >= value else old + 1",
    "dec": "value if old == 0 or old > value else old - 1",
    "exch": "value",
}


def _update(new):
    """Return the function that replaces an element by this text."""
    made = {}
    exec(_UPDATE.format(new=new), made)
    return made["update"]


_ATOMICS = {name: _update(new) for name, new in _NEW.items()}
_ATOMICS["cas"] = _cas
