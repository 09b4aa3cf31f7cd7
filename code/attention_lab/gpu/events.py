"""Every memory access of a run, as columns of numbers."""

import math
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from attention_lab.gpu.access import wrapped
from attention_lab.gpu.limits import WARP_SIZE
from attention_lab.gpu.naming import Names, indices
from attention_lab.gpu.sites import FENCES, FIRST_FENCE, LAST_MARK, SITE_BITS
from attention_lab.gpu.trips import trips


@dataclass(frozen=True)
class Memory:
    """One piece of memory that a kernel uses.

    Attributes
    ----------
    name : what the lowered kernel calls it
    label : what the reader calls it
    space : "global", "shared" or "local"
    shape : its sizes
    strides : distances between neighbours, in bytes
    dtype : of its elements
    start, unit : where it begins in memory that it shares with others, and
        the size of the pieces in which that is counted, in bytes; unit 0 is
        memory of its own, counted in elements. See `overlap`.
    """

    name: str
    label: str
    space: str
    shape: tuple
    strides: tuple
    dtype: np.dtype
    start: int = 0
    unit: int = 0

    @property
    def elements(self):
        """How many elements there are."""
        return int(np.prod(self.shape))

    @property
    def itemsize(self):
        """The size of one element, in bytes."""
        return self.dtype.itemsize

    def indices(self, element):
        """Return the indices of an element, given its row-major number."""
        return tuple(int(i) for i in np.unravel_index(element, self.shape))

    def addresses(self, elements):
        """Return the address of elements, in bytes.

        Counted from the element with the least address, or from the least
        address of all arrays that share this memory.
        """
        least = sum(
            min(0, stride) * (size - 1)
            for stride, size in zip(self.strides, self.shape, strict=True)
        )
        offsets = np.full(len(elements), self.start - least, np.int64)
        for index, stride in zip(
            np.unravel_index(elements, self.shape), self.strides, strict=True
        ):
            offsets += index * stride
        return offsets

    def pieces(self, elements):
        """Return the pieces of memory that elements consist of, as rows."""
        if not self.unit:
            return elements[:, None]
        first = self.addresses(elements) // self.unit
        return first[:, None] + np.arange(self.itemsize // self.unit)


@dataclass(frozen=True)
class Events:
    """The accesses of a run, in the order in which they happened.

    Attributes
    ----------
    site : number of the place in the source
    element : row-major number of the element; -1 outside the array
    thread, block : who
    epoch : how many barriers the block had passed
    clock : number of the warp's vector clock
    trip : equal on the same trips of the loops in which threads part
    sites : the places, by number
    memory : the pieces of memory, by their lowered name
    clocks : the vector clocks, one row of 32 per number
    outside : (row, site, indices, spans) of the accesses outside their array
    names : of the threads and blocks
    same : the names of the arguments that share memory, by group
    fences : (row, thread, block, epoch, whether it reaches other blocks) of
        every fence; it comes just before the row
    row : row among all events; only kept where atomic operations or fences
        may make an order
    own : in `together`, the element by its own array's count, where
        `element` counts pieces of shared memory
    """

    site: np.ndarray
    element: np.ndarray
    thread: np.ndarray
    block: np.ndarray
    epoch: np.ndarray
    clock: np.ndarray
    trip: np.ndarray
    sites: tuple
    memory: dict
    clocks: np.ndarray
    outside: tuple
    names: Names
    same: tuple = ()
    fences: tuple = ()
    row: np.ndarray | None = None
    own: np.ndarray | None = None

    def __len__(self):
        """Return how many accesses there were."""
        return len(self.site)

    def select(self, rows):
        """Return the events of some rows (without `outside`)."""
        columns = (
            self.site,
            self.element,
            self.thread,
            self.block,
            self.epoch,
            self.clock,
            self.trip,
        )
        return Events(
            *(column[rows] for column in columns),
            self.sites,
            self.memory,
            self.clocks,
            (),
            self.names,
            self.same,
            self.fences,
            None if self.row is None else self.row[rows],
            None if self.own is None else self.own[rows],
        )

    @cached_property
    def parts(self):
        """The events of each piece of memory, in order, by its name."""
        names = {name: k for k, name in enumerate(self.memory)}
        of_site = np.array([names[s.name] for s in self.sites], np.int16)
        if not len(self):
            return {}
        which = of_site[self.site]
        order = np.argsort(which, kind="stable")
        ends = np.searchsorted(which[order], np.arange(len(names) + 1))
        together = self.select(order)
        return {
            name: together.select(slice(ends[k], ends[k + 1]))
            for name, k in names.items()
            if ends[k + 1] > ends[k]
        }

    def together(self):
        """Yield each piece of memory once: its name, space and events.

        Elements of arguments that overlap are counted in pieces of the
        memory they share, so an event may have several rows.
        """
        others = {name for names in self.same for name in names[1:]}
        for name, memory in self.memory.items():
            if name in others:
                continue
            names = next((n for n in self.same if n[0] == name), (name,))
            if len(names) == 1:
                part = self.parts.get(name)
            else:
                mine = self.of_sites(lambda s, n=names: s.name in n)
                part = self.select(mine.astype(bool))
            if part is None or not len(part):
                continue
            yield name, part.in_pieces(names) if memory.unit else part

    def in_pieces(self, names):
        """Return the events with a row for each piece of each element."""
        inside = self.element >= 0
        made = [np.flatnonzero(~inside)], [self.element[~inside]]
        for name in names:
            mine = self.of_sites(lambda s, n=name: s.name == n).astype(bool)
            rows = np.flatnonzero(mine & inside)
            pieces = self.memory[name].pieces(self.element[rows])
            made[0].append(np.repeat(rows, pieces.shape[1]))
            made[1].append(pieces.reshape(-1))
        rows, pieces = map(np.concatenate, made)
        order = np.argsort(rows, kind="stable")
        part = self.select(rows[order])
        return replace(part, element=pieces[order], own=part.element)

    @cached_property
    def line_of_site(self):
        """For each site, the first site of the same line, kind and array."""
        first = {}
        return np.array(
            [first.setdefault(s.line, k) for k, s in enumerate(self.sites)],
            np.int32,
        )

    def of_sites(self, test):
        """Return for each event whether its site passes a test."""
        chosen = np.array([int(test(s)) for s in self.sites], np.int8)
        return chosen[self.site]

    def rows(self, count=None):
        """Yield events as dictionaries with names, for reading.

        Threads and blocks are numbers, or indices where there are several
        axes.
        """
        for row in range(len(self) if count is None else min(count, len(self))):
            site = self.sites[self.site[row]]
            element = int(self.element[row])
            memory = self.memory[site.name]
            yield {
                "block": indices(int(self.block[row]), self.names.grid),
                "thread": indices(int(self.thread[row]), self.names.block),
                "epoch": int(self.epoch[row]),
                "array": site.label,
                "space": site.space,
                "kind": site.kind,
                "index": memory.indices(element) if element >= 0 else None,
                "line": site.place.line,
            }


def numbered(keys):
    """Return a small number for every key, equal for equal keys.

    Also returns how many numbers there are; not all need be in use.
    """
    if not len(keys):
        return keys, 0
    low, high = int(keys.min()), int(keys.max())
    if high - low < 4 * len(keys) + 1024:
        return keys - low, high - low + 1
    distinct, number = np.unique(keys, return_inverse=True)
    return number, len(distinct)


def memory_of(lowered, arguments, shared_lengths, regions):
    """Return the pieces of memory of a run, by name.

    Parameters
    ----------
    lowered : the kernel
    arguments : as the kernel sees them
    shared_lengths : of the shared arrays
    regions : from `overlap.shared_regions`
    """
    made = {}
    given = dict(zip(lowered.parameters, arguments, strict=True))
    for name in lowered.arrays:
        array = given[name]
        made[name] = Memory(
            name,
            name,
            "global",
            array.shape,
            array.strides,
            array.dtype,
            *regions.get(name, ()),
        )
    lengths = iter(shared_lengths)
    for array in (*lowered.shared, *lowered.local):
        shape = array.shape
        if array.space == "shared":
            length = next(lengths)
            shape = (length,) if shape[0] is None else shape
        strides = tuple(
            int(np.prod(shape[k + 1 :])) * array.dtype.itemsize
            for k in range(len(shape))
        )
        made[array.name] = Memory(
            array.name, array.label, array.space, shape, strides, array.dtype
        )
    return made


def _site_loops(log, kept, lowered, run):
    """Return the innermost loop with ticks of each entry's site, or -1."""
    site = log & ((1 << SITE_BITS) - 1)
    site[~kept] = -1
    for row in np.flatnonzero((log < 0) & kept):
        site[row] = run.outside[-1 - log[row]][0]
    return np.array([*(s.loop for s in lowered.sites), -1], np.int64)[site]


def decode(lowered, run, memory, same=()):
    """Make columns of the log of a run.

    Parameters
    ----------
    lowered : the kernel
    run : what the engine left behind
    memory : from `memory_of`
    same : the groups of arguments that share memory
    """
    log = np.asarray(run.log, np.int64)
    ends = np.asarray(run.segments.end, np.int64)
    segments = run.segments
    kept = log > LAST_MARK
    marks = np.flatnonzero(~kept)
    trip = np.zeros(len(log), np.int32)
    fences = []
    if len(marks):
        fences = fences_of(log, marks, segments)
        where = _site_loops(log, kept, lowered, run)
        owners = np.asarray(segments.block, np.int64)
        owners = owners * math.prod(run.names.block) + segments.thread
        trip = trips(log, ends, owners, where, lowered.ticking)[kept]
        log, ends = log[kept], ends - np.searchsorted(marks, ends)
    lengths = np.diff(ends, prepend=0)

    def column(values):
        return np.repeat(np.asarray(values, np.int32), lengths)

    site = (log & ((1 << SITE_BITS) - 1)).astype(np.int32)
    element = log >> SITE_BITS
    outside = []
    for row in np.flatnonzero(log < 0):
        number, written, spans = run.outside[-1 - log[row]]
        site[row] = number
        known = memory[lowered.sites[number].name]
        # A negative index that wraps does touch an element, on a GPU too.
        inside = wrapped(known.shape, written, spans)
        element[row] = (
            -1 if inside is None else np.ravel_multi_index(inside, known.shape)
        )
        outside.append((int(row), number, tuple(map(int, written)), spans))
    total = len(log)
    has_atomics = any(s.kind not in ("read", "write") for s in lowered.sites)
    return Events(
        site,
        element,
        column(segments.thread)[:total],
        column(segments.block)[:total],
        column(segments.epoch)[:total],
        column(segments.clock)[:total],
        trip[:total],
        lowered.sites,
        memory,
        np.array(list(segments.clocks), np.int32).reshape(-1, WARP_SIZE),
        tuple(outside),
        run.names,
        tuple(same),
        tuple(fences),
        np.arange(total) if has_atomics or fences else None,
    )


def fences_of(log, marks, segments):
    """Return (row, thread, block, epoch, whether it reaches other blocks)."""
    ends = np.asarray(segments.end, np.int64)
    found = []
    for before in np.flatnonzero(log[marks] >= FIRST_FENCE).tolist():
        at = int(marks[before])
        segment = int(np.searchsorted(ends, at, side="right"))
        found.append(
            (
                at - before,
                int(segments.thread[segment]),
                int(segments.block[segment]),
                int(segments.epoch[segment]),
                bool(log[at] == FENCES["threadfence"]),
            )
        )
    return found
