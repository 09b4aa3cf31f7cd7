"""The checked, recorded accesses that lowered Python text calls."""

import operator
from functools import cache

import numpy as np

from attention_lab.gpu.arithmetic import WHOLE_TYPES, larger, smaller
from attention_lab.gpu.python_dialect import unwritten
from attention_lab.gpu.sites import SITE_BITS

MOST_AXES = 6
# From here on, a number stands for an index that misses the part of an array
# that it counts: a view may be named by it, and used often.
MISS = -(2**61)

# `log` receives place << SITE_BITS | site, or -1 - row for a row of `outside`.
_TEMPLATE = """
def list_load{n}(memory, {sizes}, {indices}, site):
    if {inside}:
        place = {flat}
        log(place << {bits} | site)
        return memory[place]
    where = strayed(({sizes},), ({indices},), site)
    return junk_like(memory) if where is None else memory[where]


def list_store{n}(memory, {sizes}, {indices}, value, site):
    if {inside}:
        place = {flat}
        log(place << {bits} | site)
        memory[place] = value
        return
    where = strayed(({sizes},), ({indices},), site)
    if where is not None:
        memory[where] = value


def global_load{n}(memory, {sizes}, {indices}, site):
    if {inside}:
        log(({flat}) << {bits} | site)
        value = memory[{indices}]
        return value if value.dtype.char in "fe" else value.item()
    where = strayed(({sizes},), ({indices},), site)
    value = junk(memory.dtype) if where is None else memory.flat[where]
    return value if memory.dtype.char in "fe" else value.item()


def global_store{n}(memory, {sizes}, {indices}, value, site):
    if {inside}:
        log(({flat}) << {bits} | site)
        memory[{indices}] = value
        return
    where = strayed(({sizes},), ({indices},), site)
    if where is not None:
        memory.flat[where] = value
"""


def _written(many):
    """Return the text of the four accesses to an array of `many` axes."""
    sizes = [f"n{k}" for k in range(many)]
    indices = [f"i{k}" for k in range(many)]
    flat = indices[0]
    for size, index in zip(sizes[1:], indices[1:], strict=True):
        flat = f"({flat}) * {size} + {index}"
    inside = " and ".join(
        f"0 <= {index} < {size}"
        for size, index in zip(sizes, indices, strict=True)
    )
    return _TEMPLATE.format(
        n=many,
        sizes=", ".join(sizes),
        indices=", ".join(indices),
        inside=inside,
        flat=flat,
        bits=SITE_BITS,
    )


@cache
def _compiled():
    """Return the code of the accesses for every number of axes."""
    text = "".join(_written(many) for many in range(1, MOST_AXES + 1))
    return compile(text, "<recorded accesses>", "exec")


def flat_index(sizes, indices):
    """Return the row-major place of an element."""
    place = 0
    for size, index in zip(sizes, indices, strict=True):
        place = place * size + index
    return place


def wrapped(sizes, indices, spans):
    """Return the indices with negative ones counted from the end.

    That is what Numba does on a GPU too; None when one is past the end.

    Parameters
    ----------
    sizes : of the whole memory
    indices : as they are written
    spans : for each axis the (start, length) of the part that is indexed,
        or None for all of it
    """
    made = []
    for size, index, span in zip(sizes, indices, spans, strict=True):
        start, length = span or (0, size)
        index = index + length if index < 0 else index
        if not (0 <= index < length and start + index < size):
            return None
        made.append(start + index)
    return made


class Strays:
    """Keeps the accesses out of bounds, as (site, indices, spans).

    Parameters
    ----------
    outside : the list that receives them
    """

    def __init__(self, outside):
        self.outside = outside
        self.numbers = {}
        self.misses = []

    def span(self, i, start, count):
        """Return the place in the whole axis, or the number of a miss."""
        if 0 <= i < count:
            return start + i
        miss = (i, start, count)
        if miss not in self.numbers:
            self.numbers[miss] = MISS + len(self.misses)
            self.misses.append(miss)
        return self.numbers[miss]

    def keep(self, sizes, indices, site):
        """Keep one access; return where it lands, or None."""
        spans = [None] * len(indices)
        indices = list(indices)
        for k, index in enumerate(indices):
            if 0 <= index - MISS < len(self.misses):
                indices[k], *span = self.misses[index - MISS]
                spans[k] = tuple(span)
        self.outside.append((site, tuple(indices), tuple(spans)))
        return wrapped(sizes, indices, spans)


def junk_like(memory):
    """Return what a load past the end of a list yields."""
    first = memory[0] if memory else 0.0
    if isinstance(first, (float, np.floating)):
        return type(first)("nan")
    return 0


def recorded_accesses(log, outside):
    """Return the accesses by the names that lowered text uses.

    Parameters
    ----------
    log : the append method of a list of integers
    outside : the `Strays` that keep accesses out of bounds
    """

    def strayed(sizes, indices, site):
        inside = outside.keep(sizes, indices, site)
        log(-len(outside.outside))
        return None if inside is None else flat_index(sizes, inside)

    namespace = {
        "log": log,
        "strayed": strayed,
        "junk_like": junk_like,
        "junk": lambda dtype: np.zeros(1, dtype)[0]
        if dtype.kind != "f"
        else unwritten(dtype),
    }
    exec(_compiled(), namespace)
    made = {"__log": log, "__span": outside.span}
    for many in range(1, MOST_AXES + 1):
        for name in ("list_load", "list_store", "global_load", "global_store"):
            made[f"__{name}{many}"] = namespace[f"{name}{many}"]
    return made


def wrapping(sign, dtype):
    """Return the sum, or difference, that keeps the width of a type."""
    half = 2 ** (8 * dtype.itemsize - 1) if dtype.kind == "i" else 0
    span = 2 ** (8 * dtype.itemsize)
    return lambda old, value: (old + sign * value + half) % span - half


def atomic_accesses(log, outside):
    """Return the atomic operations; with `log` None they are not recorded."""

    def place_of(sizes, indices, site):
        if all(0 <= i < n for i, n in zip(indices, sizes, strict=True)):
            if log is not None:
                log(flat_index(sizes, indices) << SITE_BITS | site)
            return indices
        if log is None:
            inside = wrapped(sizes, indices, [None] * len(sizes))
            if inside is None:
                raise IndexError(indices)
            return inside
        inside = outside.keep(sizes, indices, site)
        log(-len(outside.outside))
        return inside

    def list_atomic(memory, sizes, indices, operation, values, site):
        inside = place_of(sizes, indices, site)
        if inside is None:
            return junk_like(memory)
        where = flat_index(sizes, inside)
        old = memory[where]
        memory[where] = operation(old, *values)
        return old

    def global_atomic(memory, sizes, indices, operation, values, site):
        inside = place_of(sizes, indices, site)
        if inside is None:
            return memory.dtype.type(0)
        where = tuple(inside)
        old = memory[where]
        if memory.dtype.char not in "fe":
            old = old.item()
        memory[where] = operation(old, *values)
        return old

    return {
        **{
            f"__{name}_{dtype.name}": wrapping(sign, dtype)
            for name, sign in (("add", 1), ("sub", -1))
            for dtype in WHOLE_TYPES
        },
        "__list_atomic": list_atomic,
        "__global_atomic": global_atomic,
        "__add": lambda old, value: old + value,
        "__sub": lambda old, value: old - value,
        "__max": lambda old, value: value if value > old else old,
        "__min": lambda old, value: value if value < old else old,
        "__nanmax": larger,
        "__nanmin": smaller,
        "__and_": operator.and_,
        "__or_": operator.or_,
        "__xor": operator.xor,
        "__inc": lambda old, most: 0 if old >= most else old + 1,
        "__dec": lambda old, most: most if not 0 < old <= most else old - 1,
        "__exch": lambda old, value: value,
        "__cas": lambda old, expected, value: (
            value if old == expected else old
        ),
    }
