"""The arithmetic of a GPU, where Python's differs.

Two libraries of the same functions: `python_helpers` works on Python
numbers and NumPy float32 scalars, `compiled_helpers` on what Numba makes
of them. Both take float32 functions through float64 and round once, so
both engines give the same bits; float64's gamma and lgamma alone may
differ in the last places.
"""

import math
import operator

import numpy as np

ONE = np.float32(1)
INT64_HALF = 2**63
INT64_SPAN = 2**64
# Numba multiplies up to this exponent, and asks pow() beyond.
LAST_EXACT_POWER = 0x10000
WHOLE_TYPES = [
    np.dtype(name) for name in ("i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8")
]

UNARY = [
    "acos",
    "acosh",
    "asin",
    "asinh",
    "atan",
    "atanh",
    "cos",
    "cosh",
    "erf",
    "erfc",
    "exp",
    "exp2",
    "expm1",
    "fabs",
    "gamma",
    "lgamma",
    "log",
    "log10",
    "log1p",
    "log2",
    "radians",
    "degrees",
    "sin",
    "sinh",
    "sqrt",
    "tan",
    "tanh",
]
BINARY = ["atan2", "copysign", "fmod", "hypot", "pow"]


def limit_of(name, x):
    """Return what a GPU gives where Python's math raises an error."""
    if math.isnan(x):
        return math.nan
    if name in ("log", "log2", "log10"):
        return -math.inf if x == 0 else math.nan
    if name == "log1p":
        return -math.inf if x == -1 else math.nan
    if name in ("exp", "exp2", "expm1", "cosh"):
        return math.inf
    if name == "sinh":
        return math.copysign(math.inf, x)
    if name == "atanh" and abs(x) == 1:
        return math.copysign(math.inf, x)
    if name == "gamma" and x == 0:
        return math.copysign(math.inf, x)
    if name in ("gamma", "lgamma") and (x > 0 or name == "lgamma"):
        return math.inf
    return math.nan


def _safe(name):
    """Return math's function, with limits instead of errors."""
    plain = getattr(math, name)

    def function(x):
        try:
            return plain(x)
        except (ValueError, OverflowError):
            return limit_of(name, x)

    return function


def _safe_two(name):
    """Return math's function of two numbers, without errors."""
    plain = getattr(math, name)
    fallback = {"pow": np.power, "fmod": np.fmod, "hypot": np.hypot}

    def function(x, y):
        try:
            return plain(x, y)
        except (ValueError, OverflowError, ZeroDivisionError):
            return float(fallback[name](np.float64(x), np.float64(y)))

    return function


def _rounded(function):
    """Return the function with its result rounded to float32."""
    return lambda *x: function(*x) * ONE


def divide(a, b):
    """Divide as IEEE 754 does."""
    try:
        return a / b
    except ZeroDivisionError:
        if a == 0 or a != a:
            return math.nan
        return math.copysign(math.inf, a) * math.copysign(1.0, b)


def floor_divide(a, b):
    """Return Python's ``a // b`` for floats, NaN where it would raise."""
    try:
        return a // b
    except ZeroDivisionError:
        return divide(a, b)


def modulo(a, b):
    """Return Python's ``a % b`` for floats, NaN where it would raise."""
    try:
        return a % b
    except ZeroDivisionError:
        return math.nan


def power(x, n):
    """Return ``x ** n`` for a whole n, by repeated multiplication."""
    result = None
    factor, count = x, abs(n)
    while count:
        if count & 1:
            result = factor if result is None else result * factor
        factor = factor * factor
        count >>= 1
    one = type(x)(1)
    if result is None:
        return one
    return divide(one, result) if n < 0 else result


def larger(a, b):
    """Return the larger number; a NaN loses, as in CUDA's fmax."""
    return b if b > a or a != a else a


def smaller(a, b):
    """Return the smaller number; a NaN loses, as in CUDA's fmin."""
    return b if b < a or a != a else a


def wrap64(x):
    """Keep the low 64 bits of a signed number."""
    return (x + INT64_HALF) % INT64_SPAN - INT64_HALF


def conversion_limits(dtype, bits):
    """Return (least, most, result for NaN) of a float that turns whole.

    A GPU does not wrap: its ``cvt`` stops at the ends of the type. There is
    none to 8 bits, so Numba's compiler goes through 16 and keeps the low 8;
    only its float16 goes to 8 bits directly (PTX ISA, "cvt").

    Parameters
    ----------
    dtype : of the whole number
    bits : width of the float
    """
    width = 8 * dtype.itemsize
    if width == 8 and bits > 16:
        width = 16
    not_a_number = 0
    if bits == 64 or width == 64:
        not_a_number = 1 << width - 1
    if dtype.kind == "u":
        return 0, 2**width - 1, not_a_number
    return -(2 ** (width - 1)), 2 ** (width - 1) - 1, -not_a_number


def _truncation(dtype, bits):
    """Return the function that makes a float whole, as a GPU does."""
    least, most, not_a_number = conversion_limits(dtype, bits)
    half = 2 ** (8 * dtype.itemsize - 1) if dtype.kind == "i" else 0
    span = 2 ** (8 * dtype.itemsize)

    def function(x):
        if x != x:
            made = not_a_number
        elif x >= most:
            made = most
        elif x <= least:
            made = least
        else:
            # For float16 alone, Numba asks for the nearest.
            made = int(np.rint(x) if bits == 16 else x)
        return (made + half) % span - half

    return function


whole = _truncation(np.dtype("i8"), 64)


def single(x):
    """Return a large whole number as float32, rounded once."""
    return np.float32(np.int64(x) if x < INT64_HALF else np.uint64(x))


def divide_whole(a, b):
    """Return ``a // b``; Numba gives 0 where the quotient has no room."""
    return 0 if b == -1 and a == -INT64_HALF else a // b


def shift_left(a, b):
    """Shift by the low 32 bits of `b`; beyond 63 nothing is left.

    So does PTX (``shl.b64`` clamps), as long as the compiler cannot see
    that the shift is too far.
    """
    b &= 0xFFFFFFFF
    return a << b if b < 64 else 0


def shift_right(a, b):
    """Shift by the low 32 bits of `b`; beyond 63 only the sign is left."""
    return a >> min(b & 0xFFFFFFFF, 64)


def _whole_power(name):
    """Return ``a ** b`` of whole numbers, in 64 bits as Numba has it."""
    convert = _truncation(np.dtype(name), 64)
    half = INT64_HALF if name == "int64" else 0

    def function(a, b):
        if b > LAST_EXACT_POWER:
            return convert(_safe_two("pow")(float(a), float(b)))
        if b < 0:
            if a == 0:
                raise ZeroDivisionError
            if a not in (1, -1):
                return 0
            b = -b
        return (pow(a, b, INT64_SPAN) + half) % INT64_SPAN - half

    return function


def cbrt(x):
    """Return the cube root, which the oldest Python we serve has not."""
    if x == 0 or math.isnan(x) or math.isinf(x):
        return x
    root = math.fabs(x) ** (1.0 / 3.0)
    root = root - (root * root * root - math.fabs(x)) / (3.0 * root * root)
    return math.copysign(root, x)


def round_to(x, digits):
    """Round to decimal digits as Numba does, which differs from Python."""
    if math.isinf(x) or math.isnan(x):
        return x
    large = 1.0
    if digits > 22:
        small, large = 10.0 ** (digits - 22), 1e22
    else:
        small = 10.0 ** abs(digits)
    y = x * small * large if digits >= 0 else x / small
    if math.isinf(y):
        return x
    z = np.rint(y)
    if math.fabs(y - z) == 0.5:
        z = 2.0 * np.rint(y / 2.0)
    return z / large / small if digits >= 0 else z * small


def edge(i, size):
    """Return where a slice that is cut at `i` begins."""
    if i < 0:
        i += size
    return min(max(i, 0), size)


def length(lower, upper, size):
    """Return how many elements a slice has."""
    return max(0, edge(upper, size) - edge(lower, size))


def span_at(i, start, count):
    """Return the place in the whole axis, as Python indexing finds it."""
    if -count <= i < count:
        return start + i + (count if i < 0 else 0)
    raise IndexError(i)


def at(i, size):
    """Return an index as Python counts it; outside is an error."""
    if 0 <= i < size:
        return i
    if -size <= i < 0:
        return i + size
    raise IndexError(i)


def popc(x, width):
    """Count the bits that are set."""
    return (x & (1 << width) - 1).bit_count()


def clz(x, width):
    """Count the leading zeros."""
    return width - (x & (1 << width) - 1).bit_length()


def ffs(x, width):
    """Return the place of the lowest set bit, from 1; 0 if none is."""
    return (x & -x).bit_length()


def brev(x, width):
    """Reverse the order of the bits."""
    return int(f"{x & (1 << width) - 1:0{width}b}"[::-1], 2)


def python_helpers():
    """Return the functions that lowered Python text may call, by name."""
    helpers = {
        "__one": ONE,
        "__float32": np.float32,
        "__float16": np.float16,
        "__divide": divide,
        "__floor_divide": floor_divide,
        "__modulo": modulo,
        "__power32": power,
        "__power64": power,
        "__divide_whole": divide_whole,
        "__modulo_whole": operator.mod,
        "__larger": larger,
        "__smaller": smaller,
        "__wrap64": wrap64,
        "__single": single,
        "__shift_left": shift_left,
        "__shift_right": shift_right,
        "__power_int64": _whole_power("int64"),
        "__power_uint64": _whole_power("uint64"),
        "__cbrt64": cbrt,
        "__cbrt32": _rounded(cbrt),
        "__round_to": lambda x, n: float(round_to(x, n)),
        "__edge": edge,
        "__length": length,
        "__span_at": span_at,
        "__at": at,
        "__popc": popc,
        "__clz": clz,
        "__ffs": ffs,
        "__brev": brev,
        "__floor": lambda x: whole(np.floor(x)),
        "__ceil": lambda x: whole(np.ceil(x)),
        "__trunc": whole,
        "__round": lambda x: whole(np.rint(x)),
        "__isnan": math.isnan,
        "__isinf": math.isinf,
        "__isfinite": math.isfinite,
    }
    for dtype in WHOLE_TYPES:
        for bits in (16, 32, 64):
            name = f"__{dtype.name}_of{bits}"
            helpers[name] = _truncation(dtype, bits)
    for name in UNARY:
        if hasattr(math, name):
            helpers[f"__{name}64"] = _safe(name)
            helpers[f"__{name}32"] = _rounded(_safe(name))
    for name in BINARY:
        helpers[f"__{name}64"] = _safe_two(name)
        helpers[f"__{name}32"] = _rounded(_safe_two(name))
    return helpers
