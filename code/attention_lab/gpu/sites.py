"""The parts of a lowered kernel: places that touch memory or wait, lines."""

import math
from dataclasses import dataclass

from attention_lab.gpu.kernel_source import Place

SITE_BITS = 12  # an event is one integer: element << SITE_BITS | site
# Marks a new trip of a loop in which threads part, see `trips`; the number of
# the loop is added.
TICK = -(2**62)
MOST_LOOPS = 2**32
# Marks a fence, of a block or of the whole device.
FIRST_FENCE = TICK + MOST_LOOPS
LAST_MARK = FIRST_FENCE + 1
FENCES = {"threadfence_block": FIRST_FENCE, "threadfence": LAST_MARK}


@dataclass(frozen=True)
class Site:
    """One place in the source that touches memory.

    Every access that is written in the source has a site of its own, also
    where a line has several, and again for each call of a function.

    Attributes
    ----------
    place : the line
    name : the memory, as the lowered kernel calls it
    label : the memory, as the reader calls it
    space : "global", "shared" or "local"
    kind : "read", "write", or the name of an atomic operation
    view : what the reader calls the part of the memory that is indexed here
    axes : what that part does to each axis of the memory: "whole", "at" for
        one fixed index, or "span"; () if the whole memory is indexed
    column : where in the text of that place, counted from 1
    loop : the innermost loop around it whose trips are told apart, or -1
    """

    place: Place
    name: str
    label: str
    space: str
    kind: str
    view: str = ""
    axes: tuple = ()
    column: int = 0
    loop: int = -1

    @property
    def line(self):
        """What accesses of one kind to one view in one line share."""
        return (
            self.place,
            self.name,
            self.label,
            self.space,
            self.kind,
            self.view,
            self.axes,
        )


@dataclass(frozen=True)
class Stop:
    """One place in the source where a thread waits for others.

    Attributes
    ----------
    place : the line
    op : the operation, such as ``"syncthreads"`` or ``"shfl_xor_sync"``
    dtype : of the value that is exchanged, if one is
    loops : the places of the loops around a block barrier, outermost first
    """

    place: Place
    op: str
    dtype: object = None
    loops: tuple = ()


# Where a thread stands is one integer, so that it costs nothing to compare:
# the number of the stop in the low bits, and above it the trip of each loop
# around a block barrier. Zero has run to the end of the kernel; a negative
# number has left it by a `return`, which is in the table of stops too.
STOP_BITS = 16
STOP_MASK = (1 << STOP_BITS) - 1
TRIP_BITS = 46


def stop_text(number, trips):
    """Return the text of the integer for a stop.

    Parameters
    ----------
    number : of the stop
    trips : the variables that count the trips of the loops around it
    """
    text = str(number)
    for k, variable in enumerate(trips):
        bits = TRIP_BITS // len(trips)
        shift = STOP_BITS + k * bits
        text += f" | ({variable} & {(1 << bits) - 1}) << {shift}"
    return text


def stop_number(code):
    """Return the number of the stop where a thread stands."""
    return -code if code < 0 else code & STOP_MASK


def trips_of(code, stop):
    """Return the trips that a thread at a barrier is on, outermost first."""
    many = len(stop.loops)
    bits = TRIP_BITS // max(many, 1)
    return [
        code >> STOP_BITS + k * bits & ((1 << bits) - 1) for k in range(many)
    ]


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


class UnprovenPart(Unproven):
    """The text of an index that may miss the part of an axis that it counts.

    Attributes
    ----------
    parts : the texts of the index, and of the start and length of the part
    """

    parts = ()


def row_major(sizes):
    """Return the distance between neighbours along each axis, in elements."""
    return [math.prod(sizes[k + 1 :]) for k in range(len(sizes))]
