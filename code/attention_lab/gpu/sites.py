"""The parts of a lowered kernel: places that touch memory or wait, lines."""

import math
from dataclasses import dataclass

from attention_lab.gpu.kernel_source import Place

SITE_BITS = 12  # an event is one integer: element << SITE_BITS | site
# Marks a new trip of a loop in which threads part, see `trips`.
TICK = -(2**62)


@dataclass(frozen=True)
class Site:
    """One place in the source that touches memory.

    Every access that is written in the source has a site of its own, also
    where a line has several, and again for each call of a function.

    Attributes
    ----------
    place : the line
    column : where in the text of that place, counted from 1
    loop : the innermost loop around it whose trips are told apart, or -1
    name : the memory, as the lowered kernel calls it
    label : the memory, as the reader calls it
    space : "global", "shared" or "local"
    kind : "read", "write", or the name of an atomic operation
    """

    place: Place
    name: str
    label: str
    space: str
    kind: str
    column: int = 0
    loop: int = -1

    @property
    def line(self):
        """What accesses of one kind to one array in one line share."""
        return self.place, self.name, self.label, self.space, self.kind


@dataclass(frozen=True)
class Stop:
    """One place in the source where a thread waits for others.

    Attributes
    ----------
    place : the line
    op : the operation, such as ``"syncthreads"`` or ``"shfl_xor_sync"``
    dtype : of the value that is exchanged, if one is
    """

    place: Place
    op: str
    dtype: object = None


class Writer:
    """Collects lines of text, each with the place it came from."""

    def __init__(self):
        self.lines = []
        self.origins = []
        self.depth = 0

    def line(self, text, place=None):
        """Add one line at the present depth."""
        self.lines.append("    " * self.depth + text)
        self.origins.append(place)

    def text(self):
        """Return everything written."""
        return "\n".join(self.lines) + "\n"


class Unproven(str):
    """The text of an index that may be outside its array."""

    __slots__ = ()


def row_major(sizes):
    """Return the distance between neighbours along each axis, in elements."""
    return [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
