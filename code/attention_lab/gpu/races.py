"""Find accesses to one element that nothing puts in order.

The order that counts is not the one in which the threads happened to run,
but the one the kernel enforces: a thread's own accesses follow each other;
a block barrier orders the threads of its block; a warp operation orders the
lanes that take part; nothing orders two blocks. Two accesses of one element
that are not ordered, at least one of them a store, and not both atomic, are
a race, whatever values were stored.
"""

from dataclasses import dataclass

import numpy as np

from attention_lab.gpu.events import numbered
from attention_lab.gpu.explain import Hazard
from attention_lab.gpu.limits import WARP_SIZE

# Each pair of lines is reported once; more pairs than this say nothing new.
MOST_PAIRS = 20


@dataclass
class _Access:
    """One row of the events, as a race needs it."""

    site: object
    element: int
    thread: int
    block: int
    epoch: int
    clock: int


def races(events):
    """Return one hazard for each pair of lines that race.

    Parameters
    ----------
    events : the accesses of a run
    """
    found = {}
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
            _between_blocks(part, kinds, found)
        _within_blocks(part, kinds, found, memory.elements)
    return [_hazard(events, a, b, count) for (a, b, count) in found.values()]


def _kind(site):
    """Return 0 for a load, 1 for an atomic operation, 2 for a store."""
    return {"read": 0, "write": 2}.get(site.kind, 1)


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


def _between_blocks(events, kinds, found):
    """Look for conflicts of different blocks: nothing ever orders them."""
    groups, count = numbered(events.element)
    bad = _unordered(kinds, groups, events.block, count)
    for rows in _rows_of(groups, bad):
        _keep_pairs(events, kinds, rows, found, events.block[rows], None)


def _within_blocks(events, kinds, found, elements):
    """Look for conflicts in one block between two of its barriers."""
    epochs = int(events.epoch.max()) + 1
    stretch = events.block.astype(np.int64) * epochs + events.epoch
    groups, count = numbered(stretch * (elements + 1) + events.element)
    bad = _unordered(kinds, groups, events.thread, count)
    for rows in _rows_of(groups, bad):
        warps = events.thread[rows] // WARP_SIZE
        _keep_pairs(events, kinds, rows, found, warps, _unordered_lanes)


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


def _keep_pairs(events, kinds, rows, found, teams, unordered):
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
            if pair is None:
                continue
            if key in found:
                found[key][2] += 1
            else:
                found[key] = [*(_access(events, row) for row in pair), 1]


def _conflict(one, two):
    """Say whether two kinds of access need an order between them."""
    return one != two or one == 2


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
    return _Access(
        events.sites[events.site[row]],
        int(events.element[row]),
        int(events.thread[row]),
        int(events.block[row]),
        int(events.epoch[row]),
        int(events.clock[row]),
    )


def _verb(site):
    """Say what an access does."""
    return {"read": "reads", "write": "writes"}.get(
        site.kind, f"does atomic.{site.kind} on"
    )


def _hazard(events, a, b, count):
    """Say what races."""
    memory = events.memory[a.site.name]
    indices = memory.indices(a.element)
    shown = f"{memory.label}[{', '.join(map(str, indices))}]"
    if a.block == b.block:
        who = (
            f"in block {a.block}, thread {a.thread} {_verb(a.site)} {shown} "
            f"({a.site.place}) and thread {b.thread} {_verb(b.site)} it "
            f"({b.site.place}) with no barrier between"
        )
        advice = "Put cuda.syncthreads() between the two"
        if a.site.kind == "write" == b.site.kind:
            advice = "Let one thread write each element, or use cuda.atomic"
    else:
        who = (
            f"thread {a.thread} of block {a.block} {_verb(a.site)} {shown} "
            f"({a.site.place}) and thread {b.thread} of block {b.block} "
            f"{_verb(b.site)} it ({b.site.place}), and nothing orders two "
            "blocks"
        )
        advice = (
            "Let one block own each element, use cuda.atomic, or split the "
            "kernel into two launches"
        )
    return Hazard(
        "race",
        f"{who}. {advice}: on a GPU the result depends on luck.",
        array=memory.label,
        indices=indices,
        threads=(a.thread, b.thread),
        blocks=(a.block, b.block),
        lines=(a.site.place.line, b.site.place.line),
        count=count,
    )
