"""Every memory access of a run, as columns of numbers."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from attention_lab.gpu.access import wrapped
from attention_lab.gpu.limits import WARP_SIZE
from attention_lab.gpu.sites import SITE_BITS
from attention_lab.gpu.trips import is_tick, trips


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
    """

    name: str
    label: str
    space: str
    shape: tuple
    strides: tuple
    dtype: np.dtype

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
        """Return the address of elements, in bytes from the first."""
        offsets = np.zeros(len(elements), np.int64)
        for index, stride in zip(
            np.unravel_index(elements, self.shape), self.strides, strict=True
        ):
            offsets += index * stride
        # Memory begins at the element with the least address.
        return offsets - sum(
            min(0, stride) * (size - 1)
            for stride, size in zip(self.strides, self.shape, strict=True)
        )


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
    outside : (row, site, indices) of the accesses outside their array
    same : for each array that was passed under several names, the names
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
    same: tuple = ()

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
        """Yield each piece of memory once, with its name and its events."""
        others = {name for names in self.same for name in names[1:]}
        for name, part in self.parts.items():
            if name not in others:
                names = next((n for n in self.same if n[0] == name), (name,))
                if len(names) > 1:
                    mine = self.of_sites(lambda s, n=names: s.name in n)
                    part = self.select(mine.astype(bool))
                yield name, part

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
        """Yield events as dictionaries with names, for reading."""
        for row in range(len(self) if count is None else min(count, len(self))):
            site = self.sites[self.site[row]]
            element = int(self.element[row])
            memory = self.memory[site.name]
            yield {
                "block": int(self.block[row]),
                "thread": int(self.thread[row]),
                "epoch": int(self.epoch[row]),
                "array": site.label,
                "space": site.space,
                "kind": site.kind,
                "index": memory.indices(element) if element >= 0 else None,
                "line": site.place.line,
            }


def same_arrays(names, arrays):
    """Return the groups of names under which one array was passed.

    Also returns the pairs of names whose arrays overlap without being
    the same.
    """
    groups, overlaps = {}, []
    for name, array in zip(names, arrays, strict=True):
        key = (
            array.__array_interface__["data"][0],
            array.shape,
            array.strides,
            array.dtype,
        )
        for other, members in groups.items():
            if other != key and np.shares_memory(
                array, arrays[names.index(members[0])]
            ):
                overlaps.append((members[0], name))
        groups.setdefault(key, []).append(name)
    return tuple(tuple(g) for g in groups.values() if len(g) > 1), overlaps


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


def memory_of(lowered, arguments, shared_lengths):
    """Return the pieces of memory of a run, by name."""
    made = {}
    given = dict(zip(lowered.parameters, arguments, strict=True))
    for name in lowered.arrays:
        array = given[name]
        made[name] = Memory(
            name, name, "global", array.shape, array.strides, array.dtype
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


def _site_loops(log, ticks, lowered, run):
    """Return the innermost loop with ticks of each entry's site, or -1."""
    site = log & ((1 << SITE_BITS) - 1)
    site[ticks] = 0
    for row in np.flatnonzero((log < 0) & ~ticks):
        site[row] = run.outside[-1 - log[row]][0]
    return np.array([s.loop for s in lowered.sites], np.int64)[site]


def decode(lowered, run, memory, same=()):
    """Make columns of the log of a run.

    Parameters
    ----------
    lowered : the kernel
    run : what the engine left behind
    memory : from `memory_of`
    same : from `same_arrays`
    """
    log = np.asarray(run.log, np.int64)
    ends = np.asarray(run.segments.end, np.int64)
    segments = run.segments
    trip = np.zeros(len(log), np.int64)
    ticks = is_tick(log)
    if ticks.any():
        where = _site_loops(log, ticks, lowered, run)
        owner = np.asarray(segments.block, np.int64) * run.threads_per_block
        owner += np.asarray(segments.thread, np.int64)
        owner = np.repeat(owner, np.diff(ends, prepend=0))
        trip = trips(log, owner, where, lowered.loops)[~ticks]
        passed = np.concatenate([[0], np.cumsum(ticks)])
        log, ends = log[~ticks], ends - passed[ends]
    lengths = np.diff(ends, prepend=0)

    def column(values):
        return np.repeat(np.asarray(values, np.int32), lengths)

    site = (log & ((1 << SITE_BITS) - 1)).astype(np.int32)
    element = log >> SITE_BITS
    outside = []
    for row in np.flatnonzero(log < 0):
        number, indices = run.outside[-1 - log[row]]
        site[row] = number
        known = memory[lowered.sites[number].name]
        # A negative index that wraps does touch an element, on a GPU too.
        inside = wrapped(known.shape, indices)
        element[row] = (
            -1 if inside is None else np.ravel_multi_index(inside, known.shape)
        )
        outside.append((int(row), number, tuple(map(int, indices))))
    total = len(log)
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
        tuple(same),
    )
