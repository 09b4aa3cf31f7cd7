"""The functions of `arithmetic`, written so that Numba can compile them.

Float32 functions go through float64 and are rounded once, so the bits are
those of the interpreter.
"""

import math

import numpy as np

from attention_lab.gpu import arithmetic


def mathematics(name, compile_):
    """Return one function of math for float64 and for float32."""
    arguments = "x, y" if name in arithmetic.BINARY else "x"
    wide = arguments.replace("x", "np.float64(x)").replace("y", "np.float64(y)")
    call = f"math.{name}({wide})"
    if name == "pow":
        call = f"({wide.replace(', ', ' ** ')})"
    if name == "exp2":
        call = f"2.0 ** {wide}"
    text = (
        f"def double({arguments}):\n    return {call}\n"
        f"def single({arguments}):\n    return np.float32({call})\n"
    )
    made = {}
    exec(text, {"math": math, "np": np}, made)
    return {
        f"__{name}64": compile_(made["double"]),
        f"__{name}32": compile_(made["single"]),
    }


def cube_root(compile_):
    """Return the cube root for float64 and for float32."""
    double = compile_(arithmetic.cbrt)
    single = compile_(lambda x: np.float32(double(np.float64(x))))
    return {"__cbrt64": double, "__cbrt32": single}


def plain_functions():
    """Return the functions that Numba compiles as they are written."""

    def at(i, size, site):
        if 0 <= i < size:
            return i
        if -size <= i < 0:
            return i + size
        raise IndexError(site)

    def seen(value, event, log):
        here = log[0]
        if here < log.size:
            log[here] = event
        log[0] = here + 1
        return value

    def note(event, log):
        here = log[0]
        if here < log.size:
            log[here] = event
        log[0] = here + 1

    def divide(a, b):
        return a / b

    def floor_divide(a, b):
        return a // b

    def modulo(a, b):
        return a % b

    def divide_whole(a, b, fault):
        if b == 0:
            raise ZeroDivisionError(fault)
        return a // b

    def modulo_whole(a, b, fault):
        if b == 0:
            raise ZeroDivisionError(fault)
        return a % b

    def step(a, fault):
        if a == 0:
            raise ValueError(fault)
        return a

    def power32(x, n):
        result = np.float32(1)
        factor = x
        count = abs(n)
        while count > 0:
            if count & 1:
                result = result * factor
            factor = factor * factor
            count >>= 1
        return np.float32(1) / result if n < 0 else result

    def power64(x, n):
        result = 1.0
        factor = x
        count = abs(n)
        while count > 0:
            if count & 1:
                result = result * factor
            factor = factor * factor
            count >>= 1
        return 1.0 / result if n < 0 else result

    def whole(x):
        if x != x:
            return 0
        if x >= 9.2e18:
            return 9223372036854775807
        if x <= -9.2e18:
            return -9223372036854775808
        return np.int64(x)

    def rounded(x):
        return np.int64(np.rint(x))

    def floor(x):
        return np.int64(math.floor(x))

    def ceil(x):
        return np.int64(math.ceil(x))

    def isnan(x):
        return math.isnan(x)

    def isinf(x):
        return math.isinf(x)

    def isfinite(x):
        return math.isfinite(x)

    def popc(x):
        bits = np.uint64(x)
        total = 0
        while bits:
            total += np.int64(bits & np.uint64(1))
            bits >>= np.uint64(1)
        return total

    def clz(x):
        bits = np.uint32(x)
        total = 32
        while bits:
            total -= 1
            bits >>= np.uint32(1)
        return total

    def ffs(x):
        bits = np.uint64(x)
        place = 0
        if bits == 0:
            return place
        place = 1
        while bits & np.uint64(1) == 0:
            bits >>= np.uint64(1)
            place += 1
        return place

    def brev(x):
        bits = np.uint32(x)
        made = np.uint32(0)
        for _ in range(32):
            made = np.uint32(made << np.uint32(1) | bits & np.uint32(1))
            bits >>= np.uint32(1)
        return made

    return {
        "__at": at,
        "__seen": seen,
        "__note": note,
        "__divide": divide,
        "__floor_divide": floor_divide,
        "__modulo": modulo,
        "__step": step,
        "__divide_whole": divide_whole,
        "__modulo_whole": modulo_whole,
        "__power32": power32,
        "__power64": power64,
        "__larger": arithmetic.larger,
        "__smaller": arithmetic.smaller,
        "__edge": arithmetic.edge,
        "__length": _length,
        "__span": arithmetic.span,
        "__span_at": arithmetic.span_at,
        "__whole": whole,
        "__round_to": arithmetic.round_to,
        "__power_whole": arithmetic.power_whole,
        "__trunc": whole,
        "__round": rounded,
        "__floor": floor,
        "__ceil": ceil,
        "__isnan": isnan,
        "__isinf": isinf,
        "__isfinite": isfinite,
        "__popc": popc,
        "__clz": clz,
        "__ffs": ffs,
        "__brev": brev,
    }


def _length(lower, upper, size):
    """Return how many elements a slice has."""
    low = lower + size if lower < 0 else lower
    high = upper + size if upper < 0 else upper
    low = min(max(low, 0), size)
    high = min(max(high, 0), size)
    return max(0, high - low)
