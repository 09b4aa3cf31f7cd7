"""The arithmetic of a GPU, where Python's differs.

Two libraries of the same functions: `python_helpers` works on Python
numbers and NumPy float32 scalars, `compiled_helpers` on what Numba makes
of them. Both take float32 functions through float64 and round once, so
both engines give the same bits.
"""

import math
import operator

import numpy as np

ONE = np.float32(1)
INT64_HALF = 2**63
INT64_SPAN = 2**64

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


def whole(x):
    """Round towards zero, as the GPU's conversion does."""
    try:
        return int(x)
    except ValueError:
        return 0
    except OverflowError:
        return INT64_HALF - 1 if x > 0 else -INT64_HALF


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


def power_whole(a, n, fault):
    """Raise a whole number to a whole power, in 64 bits, as Numba does."""
    if n < 0:
        if a == 0:
            raise ZeroDivisionError(fault)
        if a == 1 or a == -1:
            n = -n
        else:
            return 0
    result = 1
    while n > 0:
        if n & 1:
            result = result * a
        a = a * a
        n >>= 1
    return result


def wrapped_power(a, n):
    """Return `power_whole` for Python's numbers, which have no width."""
    if n < 0:
        return power_whole(a, n, 0)
    return wrap64(pow(a, n, INT64_SPAN))


def edge(i, size):
    """Return where a slice that is cut at `i` begins."""
    if i < 0:
        i += size
    return min(max(i, 0), size)


def length(lower, upper, size):
    """Return how many elements a slice has."""
    return max(0, edge(upper, size) - edge(lower, size))


def span(i, start, count):
    """Return the place in the whole axis; far outside if there is none."""
    return start + i if 0 <= i < count else i - 2**40


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


def popc(x):
    """Count the bits that are set."""
    return (x & 0xFFFFFFFFFFFFFFFF).bit_count()


def clz(x):
    """Count the leading zeros of a 32-bit number."""
    return 32 - (x & 0xFFFFFFFF).bit_length()


def ffs(x):
    """Return the place of the lowest set bit, from 1; 0 if none is."""
    return (x & -x).bit_length()


def brev(x):
    """Reverse the bits of a 32-bit number."""
    return int(f"{x & 0xFFFFFFFF:032b}"[::-1], 2)


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
        "__divide_whole": operator.floordiv,
        "__modulo_whole": operator.mod,
        "__larger": larger,
        "__smaller": smaller,
        "__wrap64": wrap64,
        "__whole": whole,
        "__cbrt64": cbrt,
        "__cbrt32": _rounded(cbrt),
        "__round_to": lambda x, n: float(round_to(x, n)),
        "__power_whole": wrapped_power,
        "__edge": edge,
        "__length": length,
        "__span": span,
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
    for name in UNARY:
        if hasattr(math, name):
            helpers[f"__{name}64"] = _safe(name)
            helpers[f"__{name}32"] = _rounded(_safe(name))
    for name in BINARY:
        helpers[f"__{name}64"] = _safe_two(name)
        helpers[f"__{name}32"] = _rounded(_safe_two(name))
    return helpers
