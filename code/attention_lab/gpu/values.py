"""What is known about a value before the kernel runs."""

import math
from dataclasses import dataclass, replace

import numpy as np

INT8 = np.dtype("i1")
INT32 = np.dtype("i4")
INT64 = np.dtype("i8")
UINT16 = np.dtype("u2")
UINT32 = np.dtype("u4")
UINT64 = np.dtype("u8")
FLOAT16 = np.dtype("f2")
FLOAT32 = np.dtype("f4")
FLOAT64 = np.dtype("f8")
BOOL = np.dtype("?")
# No array is longer than this; it keeps index arithmetic inside 64 bits.
LONGEST = 2**40


@dataclass(frozen=True)
class Number:
    """A scalar.

    Attributes
    ----------
    dtype : the type Numba gives it
    low, high : bounds of an integer
    varies : whether threads of one block may see different values
    why : for a float64, where it comes from, when nobody asked for it
    """

    dtype: np.dtype
    low: float = -math.inf
    high: float = math.inf
    varies: bool = False
    why: str = ""

    @property
    def is_float(self):
        """Say whether this is a floating-point number."""
        return self.dtype.kind == "f"


@dataclass(frozen=True)
class Group:
    """A tuple of values."""

    items: tuple


@dataclass(frozen=True)
class Nothing:
    """The value None, or something that is good for printing only.

    Attributes
    ----------
    what : what a message calls it
    """

    what: str = "None"


@dataclass(frozen=True)
class Whole:
    """An axis of an array that a view leaves as it is."""


@dataclass(frozen=True)
class At:
    """An axis that a view has fixed at one index."""

    index: Number


@dataclass(frozen=True)
class Span:
    """An axis of which a view shows a part."""

    start: Number
    length: Number


@dataclass(frozen=True)
class Array:
    """An array, or a view of one.

    Attributes
    ----------
    name : the variable that holds the memory when the kernel runs
    label : what the reader calls it
    space : "global", "shared" or "local"
    dtype : of its elements
    shape : its sizes, where they are known before the launch (else None)
    axes : what the view does to each axis of the memory
    """

    name: str
    label: str
    space: str
    dtype: np.dtype
    shape: tuple
    axes: tuple

    @property
    def free(self):
        """The axes of the memory that the view still has, in order."""
        return tuple(
            k for k, axis in enumerate(self.axes) if not isinstance(axis, At)
        )


@dataclass(frozen=True)
class Choice:
    """One of several arrays; which, only the running kernel knows.

    Attributes
    ----------
    options : the arrays, sorted by `key_of`
    """

    options: tuple


def integer_range(dtype):
    """Return the smallest and the largest value of an integer dtype."""
    if dtype == BOOL:
        return 0, 1
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def number(dtype, varies=False, low=None, high=None, why=""):
    """Make a Number, with the bounds of its dtype unless others are given."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        return Number(dtype, varies=varies, why=why)
    least, most = integer_range(dtype)
    if dtype.itemsize == 8 and low is None and high is None:
        least = -math.inf if dtype.kind == "i" else 0
        most = math.inf
    return Number(
        dtype,
        least if low is None else low,
        most if high is None else high,
        varies,
    )


def exactly(value):
    """Return what is known about a Python or NumPy constant."""
    if isinstance(value, (bool, np.bool_)):
        return Number(BOOL, int(value), int(value))
    if isinstance(value, int):
        return Number(INT64, value, value)
    if isinstance(value, float) and not isinstance(value, np.generic):
        return Number(FLOAT64, why=f"the literal {value!r}")
    if isinstance(value, np.generic) and value.dtype.kind in "fiu":
        if value.dtype.kind == "f":
            why = "a float64 constant" if value.dtype == FLOAT64 else ""
            return Number(value.dtype, why=why)
        return Number(value.dtype, int(value), int(value))
    if isinstance(value, tuple):
        return Group(tuple(exactly(item) for item in value))
    if value is None:
        return Nothing()
    if isinstance(value, str):
        return Nothing(f"the text {value!r}")
    return Nothing(f"`{getattr(value, '__name__', value)!s}`")


def join(first, second):
    """Return what is known when a value may be either; None if nothing."""
    if first is None or first == second:
        return second
    if second is None:
        return first
    if isinstance(first, Number) and isinstance(second, Number):
        return Number(
            np.promote_types(first.dtype, second.dtype),
            min(first.low, second.low),
            max(first.high, second.high),
            first.varies or second.varies,
            first.why or second.why,
        )
    if isinstance(first, Group) and isinstance(second, Group):
        if len(first.items) != len(second.items):
            raise TypeError("tuples of different lengths")
        return Group(
            tuple(
                join(a, b)
                for a, b in zip(first.items, second.items, strict=True)
            )
        )
    arrays = (Array, Choice)
    if isinstance(first, arrays) and isinstance(second, arrays):
        return _join_arrays(first, second)
    raise TypeError(f"{describe(first)} and {describe(second)}")


def key_of(array):
    """Return what views of an array must have in common to be one variable."""
    return array.name, tuple(isinstance(axis, At) for axis in array.axes)


def _join_arrays(first, second):
    """Join arrays: a view of the same memory, or one of several arrays."""
    options = {}
    for array in (*options_of(first), *options_of(second)):
        key = key_of(array)
        old = options.get(key)
        options[key] = array if old is None else _join_views(old, array)
    made = tuple(options[key] for key in sorted(options))
    for one in made[1:]:
        if one.dtype != made[0].dtype or len(one.free) != len(made[0].free):
            raise TypeError(
                f"{describe(made[0])} ({made[0].dtype}, {len(made[0].free)} "
                f"axes) and {describe(one)} ({one.dtype}, {len(one.free)} "
                "axes)"
            )
    return made[0] if len(made) == 1 else Choice(made)


def options_of(value):
    """Return the arrays that a value may be."""
    return value.options if isinstance(value, Choice) else (value,)


def _join_views(first, second):
    """Join two views of the same memory with the same axes fixed."""
    axes = []
    for k, (a, b) in enumerate(zip(first.axes, second.axes, strict=True)):
        if isinstance(a, At):
            a = At(join(a.index, b.index))
        elif isinstance(a, Span) or isinstance(b, Span):
            a, b = (_as_span(axis, first.shape[k]) for axis in (a, b))
            a = Span(join(a.start, b.start), join(a.length, b.length))
        axes.append(a)
    return replace(first, axes=tuple(axes))


def _as_span(axis, size):
    """Return a whole axis as the part that contains everything."""
    if isinstance(axis, Span):
        return axis
    length = (
        number(INT64, low=0, high=LONGEST) if size is None else exactly(size)
    )
    return Span(exactly(0), length)


def widen(old, new):
    """Give up on bounds that keep growing from round to round."""
    if isinstance(old, Number) and isinstance(new, Number):
        return replace(
            new,
            low=new.low if new.low >= old.low else _floor(new),
            high=new.high if new.high <= old.high else math.inf,
        )
    if isinstance(old, Group) and isinstance(new, Group):
        pairs = zip(old.items, new.items, strict=True)
        return Group(tuple(widen(a, b) for a, b in pairs))
    if isinstance(old, Choice) and isinstance(new, Choice):
        before = {key_of(option): option for option in old.options}
        return Choice(
            tuple(
                widen(before.get(key_of(option), option), option)
                for option in new.options
            )
        )
    if isinstance(old, Array) and isinstance(new, Array):
        axes = []
        for a, b in zip(old.axes, new.axes, strict=True):
            if isinstance(b, At):
                b = At(widen(a.index, b.index))
            elif isinstance(a, Span) and isinstance(b, Span):
                b = Span(widen(a.start, b.start), widen(a.length, b.length))
            axes.append(b)
        return replace(new, axes=tuple(axes))
    return new


def _floor(value):
    """Return the least value that the dtype allows, as far as it matters."""
    return 0 if value.dtype.kind == "u" else -math.inf


def describe(value):
    """Name a kind of value for a message."""
    if isinstance(value, Array):
        return f"the {value.space} array `{value.label}`"
    if isinstance(value, Choice):
        names = sorted({f"`{option.label}`" for option in value.options})
        return f"one of the arrays {' and '.join(names)}"
    if isinstance(value, Number):
        return f"a number of type {value.dtype}"
    if isinstance(value, Group):
        return f"a tuple of {len(value.items)}"
    return value.what
