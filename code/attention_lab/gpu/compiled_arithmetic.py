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
    if name == "fmod":
        call = f"np.{call.removeprefix('math.')}"  # Numba lacks math.fmod
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


def conversions(compile_):
    """Return what turns floats into whole numbers, and powers of those."""
    made = {}
    for dtype in arithmetic.WHOLE_TYPES:
        for bits in (32, 64):
            made[f"__{dtype.name}_of{bits}"] = compile_(
                _truncation(dtype, bits)
            )
    made["__trunc"] = made["__int64_of64"]
    for name, kind in (("int64", np.int64), ("uint64", np.uint64)):
        convert = made[f"__{name}_of64"]
        made[f"__power_{name}"] = compile_(_whole_power(kind, convert))
    return made


def _truncation(dtype, bits):
    """Return the function that makes a float whole, as a GPU does."""
    least, most, not_a_number = arithmetic.conversion_limits(dtype, bits)
    kind = dtype.type
    wide = np.uint64 if dtype.kind == "u" else np.int64
    least, most, not_a_number = map(wide, (least, most, not_a_number))

    def function(x):
        if x != x:
            return kind(not_a_number)
        if x >= np.float64(most):
            return kind(most)
        if x <= np.float64(least):
            return kind(least)
        return kind(wide(x))

    return function


def _whole_power(kind, convert):
    """Return ``a ** b`` of whole numbers, in 64 bits as Numba has it."""
    last = arithmetic.LAST_EXACT_POWER

    def function(a, b, place):
        if b > last:
            return convert(np.float64(a) ** np.float64(b))
        count = np.int64(b)
        if count < 0:
            if a == 0:
                raise ZeroDivisionError(place)
            if a != 1 and a != -1:
                return kind(0)
            count = -count
        # Unsigned, because a signed overflow is undefined.
        result = np.uint64(1)
        factor = np.uint64(a)
        while count > 0:
            if count & 1:
                result = result * factor
            factor = factor * factor
            count >>= 1
        return kind(result)

    return function


def cube_root(compile_):
    """Return the cube root for float64 and for float32."""
    double = compile_(arithmetic.cbrt)
    single = compile_(lambda x: np.float32(double(np.float64(x))))
    return {"__cbrt64": double, "__cbrt32": single}


def plain_functions(compile_, helpers):
    """Return the functions that Numba compiles as they are written."""

    def at(i, size, place):
        if 0 <= i < size:
            return i
        if -size <= i < 0:
            return i + size
        raise IndexError(place)

    def span_at(i, start, count, place):
        if -count <= i < count:
            return start + i + (count if i < 0 else 0)
        raise IndexError(place)

    def given(value, is_set, place):
        if not is_set:
            raise UnboundLocalError(place)
        return value

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

    def divide_whole(a, b, place):
        if b == 0:
            raise ZeroDivisionError(place)
        return a // b

    def modulo_whole(a, b, place):
        if b == 0:
            raise ZeroDivisionError(place)
        return a % b

    def step(a, place):
        if a == 0:
            raise ValueError(place)
        return a

    def shift_left(a, b):
        count = np.int64(b) & 0xFFFFFFFF
        return a << count if count < 64 else a - a

    def shift_right(a, b):
        count = np.int64(b) & 0xFFFFFFFF
        return a >> count if count < 64 else a >> 63 >> 1

    def power32(x, n):
        result = np.float32(1)
        factor = x
        count = np.uint64(abs(n))
        while count > 0:
            if count & np.uint64(1):
                result = result * factor
            factor = factor * factor
            count >>= np.uint64(1)
        return np.float32(1) / result if n < 0 else result

    def power64(x, n):
        result = 1.0
        factor = x
        count = np.uint64(abs(n))
        while count > 0:
            if count & np.uint64(1):
                result = result * factor
            factor = factor * factor
            count >>= np.uint64(1)
        return 1.0 / result if n < 0 else result

    whole = helpers["__int64_of64"]

    def rounded(x):
        return whole(np.rint(x))

    def floor(x):
        return whole(np.floor(x))

    def ceil(x):
        return whole(np.ceil(x))

    def isnan(x):
        return math.isnan(x)

    def isinf(x):
        return math.isinf(x)

    def isfinite(x):
        return math.isfinite(x)

    def bits_of(x, width):
        return np.uint64(x) & np.uint64(2**64 - 1) >> np.uint64(64 - width)

    bits_of = compile_(bits_of)

    def popc(x, width):
        bits = bits_of(x, width)
        total = 0
        while bits:
            total += np.int64(bits & np.uint64(1))
            bits >>= np.uint64(1)
        return total

    def clz(x, width):
        bits = bits_of(x, width)
        total = width
        while bits:
            total -= 1
            bits >>= np.uint64(1)
        return total

    def ffs(x, width):
        bits = bits_of(x, width)
        place = 0
        if bits == 0:
            return place
        place = 1
        while bits & np.uint64(1) == 0:
            bits >>= np.uint64(1)
            place += 1
        return place

    def brev(x, width):
        bits = bits_of(x, width)
        made = np.uint64(0)
        for _ in range(width):
            made = made << np.uint64(1) | bits & np.uint64(1)
            bits >>= np.uint64(1)
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
        "__span_at": span_at,
        "__given": given,
        "__shift_left": shift_left,
        "__shift_right": shift_right,
        "__round_to": arithmetic.round_to,
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
