"""Find accesses to one element that nothing puts in order.

The order that counts is not the one in which the threads happened to run,
but the one the kernel enforces: a thread's own accesses follow each other;
a block barrier orders the threads of its block; a warp operation orders the
lanes that take part; nothing orders two blocks. Two accesses of one element
that are not ordered, at least one of them a store, and not both atomic, are
a race, whatever values were stored. In a kernel with fences, `fences` is
asked whether these and atomic operations make the order.
"""

from dataclasses import dataclass

import numpy as np

from attention_lab.gpu.events import numbered
from attention_lab.gpu.explain import Hazard, atomic_advice
from attention_lab.gpu.fences import Published
from attention_lab.gpu.limits import WARP_SIZE

# Each pair of lines is reported once; more pairs than this say nothing new.
MOST_PAIRS = 20
MOST_SINCE = 64
LOAD, ATOMIC, STORE = range(3)


@dataclass
class _Access:
    """One row of the events, as a race needs it."""

    site: object
    element: int
    thread: int
    block: int
    row: int | None


@dataclass
class _Race:
    """Two accesses that race, and how often their lines do.

    Attributes
    ----------
    one, two : the first example
    update : the line where both threads change what they have read, if they do
    count : on how many elements and stretches
    """

    one: _Access
    two: _Access
    update: object
    count: int = 1


def races(events):
    """Return one hazard for each pair of lines that race.

    Parameters
    ----------
    events : the accesses of a run
    """
    found = {}
    published = Published(events) if events.fences else None
    for name, part in events.together():
        memory = events.memory[name]
        if memory.space == "local":
            continue
        kinds = part.of_sites(_kind)
        if not kinds.any():
            continue
        if (part.element < 0).any():
            inside = part.element >= 0
            part, kinds = part.select(inside), kinds[inside]
            if not len(part.element):
                continue  # every access was outside; that is its own hazard
        if memory.space == "global":
            _between_blocks(part, kinds, found, published)
        _within_blocks(part, kinds, found, published)
    return [_hazard(events, race) for race in found.values()]


def _kind(site):
    """Return `LOAD`, `ATOMIC` or `STORE`."""
    return {"read": LOAD, "write": STORE}.get(site.kind, ATOMIC)


def _unordered(kinds, groups, actors, count):
    """Return the groups in which two actors conflict.

    A conflict needs two different actors on one element: one that stores,
    and another of any kind; or one atomic and one plain load.
    """
    first = np.full(count, np.iinfo(np.int32).max, np.int32)
    last = np.full(count, -1, np.int32)
    np.minimum.at(first, groups, actors)
    np.maximum.at(last, groups, actors)
    several = first < last
    if not several.any():
        return several
    done = np.bincount(groups * 3 + kinds, minlength=3 * count) > 0
    loads, atomics, stores = done.reshape(count, 3).T
    return several & (stores | (atomics & loads))


def _between_blocks(events, kinds, found, published):
    """Look for conflicts of different blocks: nothing ever orders them."""
    groups, count = numbered(events.element)
    keep = _keep_pairs if published is None else _keep_unpublished
    bad = _unordered(kinds, groups, events.block, count)
    for rows in _rows_of(groups, bad):
        teams = events.block[rows]
        keep(events, kinds, rows, found, teams, None, published)


def _within_blocks(events, kinds, found, published):
    """Look for conflicts in one block between two of its barriers."""
    epochs = int(events.epoch.max()) + 1
    stretch = events.block.astype(np.int64) * epochs + events.epoch
    elements = int(events.element.max()) + 1
    groups, count = numbered(stretch * elements + events.element)
    keep = _keep_pairs if published is None else _keep_unpublished
    bad = _unordered(kinds, groups, events.thread, count)
    for rows in _rows_of(groups, bad):
        warps = events.thread[rows] // WARP_SIZE
        keep(events, kinds, rows, found, warps, _unordered_lanes, published)


def _rows_of(groups, bad):
    """Yield the rows of every bad group, in the order of the events."""
    rows = np.flatnonzero(bad[groups])
    order = rows[np.argsort(groups[rows], kind="stable")]
    edges = np.flatnonzero(np.diff(groups[order])) + 1
    if len(order):
        yield from np.split(order, edges)


def _unordered_lanes(events, a, b):
    """Say whether nothing orders two accesses of one warp and epoch."""
    first, second = events.thread[a], events.thread[b]
    if first == second:
        return False
    # The later one has seen the earlier one's clock if they are ordered.
    one, two = events.clocks[events.clock[a]], events.clocks[events.clock[b]]
    lane_a, lane_b = first % WARP_SIZE, second % WARP_SIZE
    a_before_b = two[lane_a] > one[lane_a]
    b_before_a = one[lane_b] > two[lane_b]
    return not (a_before_b or b_before_a)


def _keep_pairs(events, kinds, rows, found, teams, unordered, _=None):
    """Keep the first example of every pair of lines that conflict.

    Members of different teams (blocks, or warps) are never ordered; those
    of one team are asked about with `unordered`, unless that is None.
    """
    by_site = {}
    seen = set()
    for row, team in zip(rows, teams, strict=True):
        site = int(events.line_of_site[events.site[row]])
        key = (site, int(events.thread[row]), int(team), int(events.clock[row]))
        if key not in seen:
            seen.add(key)
            by_site.setdefault(site, []).append((row, int(team)))
    names = sorted(by_site)
    for k, one in enumerate(names):
        for two in names[k:]:
            if not _conflict(
                kinds[by_site[one][0][0]], kinds[by_site[two][0][0]]
            ):
                continue
            key = (one, two, unordered is None)
            if key not in found and len(found) >= MOST_PAIRS:
                continue
            pair = _example(events, by_site[one], by_site[two], unordered)
            if pair is not None:
                _keep(events, rows, found, key, pair)


def _keep_unpublished(events, kinds, rows, found, teams, unordered, published):
    """Do the work of `_keep_pairs` in a kernel with fences.

    An order passes on, so it is enough to compare an access with the last
    store before it and with what came after that store, the latest
    `MOST_SINCE` of them.
    """
    store, since = [], []
    for row, team in zip(rows, teams, strict=True):
        for other, other_team in (*store, *since[-MOST_SINCE:]):
            if not _conflict(kinds[row], kinds[other]):
                continue
            if team == other_team and (
                unordered is None or not unordered(events, row, other)
            ):
                continue
            if published.orders(events.row[row], events.row[other]):
                continue
            pair = sorted((row, other), key=lambda r: events.site[r])
            one, two = (int(events.line_of_site[events.site[r]]) for r in pair)
            key = (one, two, unordered is None)
            if key in found or len(found) < MOST_PAIRS:
                _keep(events, rows, found, key, pair)
        if kinds[row] == STORE:
            store, since = [(row, team)], []
        else:
            since.append((row, team))


def _keep(events, rows, found, key, pair):
    """Keep an example of two lines that race, or count one more."""
    if key in found:
        found[key].count += 1
        return
    one, two = (_access(events, row) for row in pair)
    found[key] = _Race(one, two, _update(events, rows, pair))


def _update(events, rows, pair):
    """Return the line where two threads change what they have read.

    None if they do not both load and store the element.
    """
    place = None
    for row in pair:
        mine = rows[
            (events.thread[rows] == events.thread[row])
            & (events.block[rows] == events.block[row])
        ]
        sites = [events.sites[number] for number in events.site[mine]]
        if {site.kind for site in sites} != {"read", "write"}:
            return None
        place = next(site.place for site in sites if site.kind == "write")
    return place


def _conflict(one, two):
    """Say whether two kinds of access need an order between them."""
    return one != two or one == STORE


def _example(events, first, second, unordered):
    """Return two rows that nothing orders, or None."""
    for row, team in first[:1] + first[-1:]:
        for other, other_team in second[:1] + second[-1:]:
            if team != other_team:
                return row, other
    if unordered is None:
        return None
    if len({team for _, team in first + second}) > 1:
        return next(
            (row, other)
            for row, team in first
            for other, other_team in second
            if team != other_team
        )
    for row, _ in first:
        for other, _ in second:
            if unordered(events, row, other):
                return row, other
    return None


def _access(events, row):
    """Return one row of the events."""
    elements = events.element if events.own is None else events.own
    return _Access(
        events.sites[events.site[row]],
        int(elements[row]),
        int(events.thread[row]),
        int(events.block[row]),
        None if events.row is None else int(events.row[row]),
    )


def _verb(site):
    """Say what an access does."""
    return {"read": "reads", "write": "writes"}.get(
        site.kind, f"does atomic.{site.kind} on"
    )


def _shown(events, access):
    """Return an element as a reader writes it."""
    memory = events.memory[access.site.name]
    indices = ", ".join(map(str, memory.indices(access.element)))
    return f"{memory.label}[{indices}]"


def _hazard(events, race):
    """Say what races."""
    a, b, names = race.one, race.two, events.names
    memory = events.memory[a.site.name]
    again = "it"
    if a.site.name != b.site.name:
        again = f"{_shown(events, b)}, which is the same memory,"
    first = f"{_verb(a.site)} {_shown(events, a)} ({a.site.place})"
    second = f"{_verb(b.site)} {again} ({b.site.place})"
    if a.block == b.block:
        who = (
            f"in {names.block_of(a.block)}, {names.thread(a.thread)} {first} "
            f"and {names.thread(b.thread)} {second} with no barrier between"
        )
        advice = "Put cuda.syncthreads() between the two"
        if a.site.kind == "write" == b.site.kind:
            advice = "Let one thread write each element, or use cuda.atomic"
    else:
        who = (
            f"{names.both(a.thread, a.block)} {first} and "
            f"{names.both(b.thread, b.block)} {second}, and nothing orders "
            "two blocks"
        )
        advice = (
            "Let one block own each element, use cuda.atomic, or split the "
            "kernel into two launches"
        )
    kinds = {a.site.kind, b.site.kind}
    if "write" in kinds and kinds & {"cas", "exch"}:
        advice = "Store with cuda.atomic.exch, after a cuda.threadfence()"
    if race.update is not None:
        advice = atomic_advice(memory.label, race.update)
    return Hazard(
        "race",
        f"{who}. {advice}: on a GPU the result depends on luck."
        f"{_missing_fence(events, a, b)}",
        array=memory.label,
        indices=memory.indices(a.element),
        threads=(a.thread, b.thread),
        blocks=(a.block, b.block),
        lines=(a.site.place.line, b.site.place.line),
        count=race.count,
    )


def _missing_fence(events, a, b):
    """Say so if only a fence is missing between two accesses."""
    atomic = {a.site.kind, b.site.kind} - {"read", "write"}
    if a.row is None or atomic:
        return ""
    row = Published(events).through(a.row, b.row, without_fence=True)
    if row is None:
        return ""
    site = events.sites[events.site[row]]
    return (
        f" The atomic operation on `{site.label}` ({site.place}) puts the "
        "two in order only if the thread calls cuda.threadfence() before it."
    )
