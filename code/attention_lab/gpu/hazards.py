"""Name what is wrong with a kernel, from the accesses of one run.

The threads took their turns in one order; these checks ask what the kernel
guarantees in every order. A clean result still speaks of the recorded input
only.
"""

import math

import numpy as np

from attention_lab.gpu.events import numbered
from attention_lab.gpu.explain import Hazard, explain_trouble
from attention_lab.gpu.races import races

INITIALISES = ("write", "exch")


def find_hazards(events, run, stops, argument_arrays):
    """Return all hazards of a run, the most direct first.

    Parameters
    ----------
    events : the accesses
    run : what the engine left behind
    stops : every place that waits
    argument_arrays : names of the global arrays
    """
    found = []
    if run.trouble is not None:
        found.append(explain_trouble(run.trouble, stops, run.names))
    found += out_of_bounds(events)
    found += races(events)
    found += uninitialised_reads(events)
    found += stray_shuffles(run, stops)
    if run.trouble is None:
        found += unwritten_outputs(events, argument_arrays)
    return found


def out_of_bounds(events):
    """Return one hazard per line that leaves its array."""
    found = {}
    for row, number, written, spans in events.outside:
        number = int(events.line_of_site[number])
        if (number, "n") in found:
            found[number, "n"] += 1
            continue
        found[number, "n"] = 1
        site = events.sites[number]
        memory = events.memory[site.name]
        thread, block = int(events.thread[row]), int(events.block[row])
        verb = "reads" if site.kind == "read" else "writes"
        reason = (
            "a negative index counts from the end, silently, on a GPU too"
            if any(i < 0 for i in written)
            else "a GPU does not check, and touches whatever lies there"
        )
        who = events.names.both(thread, block)
        what = _missed(site, memory, written, spans)
        sentence = (
            f"{site.place}: {who} {verb} {what}; {reason}. Guard the access "
            "with a condition."
        )
        found[number] = Hazard(
            "out-of-bounds",
            sentence,
            array=memory.label,
            indices=written,
            threads=(thread,),
            blocks=(block,),
            lines=(site.place.line,),
        )
    return [
        _times(hazard, found[key, "n"])
        for key, hazard in found.items()
        if isinstance(hazard, Hazard)
    ]


def _missed(site, memory, written, spans):
    """Say which element is outside, and outside of what."""
    if not site.axes:
        return (
            f"{memory.label}[{', '.join(map(str, written))}], but the shape "
            f"is {memory.shape}"
        )
    shown, part = [], []
    for axis, index, span, size in zip(
        site.axes, written, spans, memory.shape, strict=True
    ):
        if axis == "at":
            start, length = span or (0, 0)
            of = f" of {start}:{start + length}" if span else ""
            part.append(f"{index}{of}")
            continue
        # A part is only known on the axis on which it was missed.
        known = axis == "whole" or span
        start, length = span or (0, size)
        shown.append(str(index) if known else "...")
        part.append(f"{start}:{start + length}" if known else "...")
    whole = f"{memory.label}[{', '.join(part)}]"
    if site.view:
        return f"{site.view}[{', '.join(shown)}], but {site.view} is {whole}"
    return f"{whole}[{', '.join(shown)}], which is outside that part"


def _times(hazard, count):
    """Return a hazard with its count."""
    return Hazard(**{**hazard.__dict__, "count": count})


def uninitialised_reads(events):
    """Return one hazard per line that reads memory nobody wrote before.

    A store of another thread with no barrier between is a race, and is
    reported as one, not here.
    """
    found = []
    for name, part in events.parts.items():
        memory = events.memory[name]
        if memory.space == "global":
            continue
        rows = _never_initialised(part, memory)
        found += _report_uninitialised(part, memory, rows)
    return found


def _never_initialised(events, memory):
    """Return the rows that load what no earlier store can have written."""
    stores = events.of_sites(lambda s: s.kind in INITIALISES).astype(bool)
    # One key per element that a store can reach: the block's for shared
    # memory, the thread's own for local arrays.
    owner = events.block.astype(np.int64)
    if memory.space == "local":
        owner = owner * (int(events.thread.max()) + 1) + events.thread
    place, count = numbered(owner * (memory.elements + 1) + events.element)
    # A load outside the array has a hazard of its own.
    loads = ~stores & (events.element >= 0)
    if memory.space == "local":
        first = np.full(count, len(events))
        rows = np.flatnonzero(stores)
        # Backwards, so that the earliest store stays.
        first[place[rows[::-1]]] = rows[::-1]
        return np.flatnonzero(loads & (first[place] > np.arange(len(events))))
    never = np.iinfo(np.int32).max
    first_epoch = np.full(count, never, np.int32)
    np.minimum.at(first_epoch, place[stores], events.epoch[stores])
    surely = loads & (first_epoch[place] > events.epoch)
    # In the epoch of the first store: a store of another thread is either
    # ordered by the warp or a race; the thread's own must come earlier.
    rows = np.flatnonzero(stores & (events.epoch == first_epoch[place]))
    first_row = np.full(count, len(events))
    first_row[place[rows[::-1]]] = rows[::-1]
    lowest, highest = np.full(count, never), np.full(count, -1)
    np.minimum.at(lowest, place[rows], events.thread[rows])
    np.maximum.at(highest, place[rows], events.thread[rows])
    late = (
        loads
        & (first_epoch[place] == events.epoch)
        & (lowest[place] == events.thread)
        & (highest[place] == events.thread)
        & (first_row[place] > np.arange(len(events)))
    )
    return np.flatnonzero(surely | late)


def _report_uninitialised(events, memory, rows):
    """Return one hazard for each line among the rows."""
    made = []
    lines = events.line_of_site[events.site[rows]]
    for number in np.unique(lines):
        mine = rows[lines == number]
        row = mine[0]
        site = events.sites[number]
        indices = memory.indices(int(events.element[row]))
        thread, block = int(events.thread[row]), int(events.block[row])
        made.append(
            Hazard(
                "uninitialised-read",
                f"{site.place}: {events.names.both(thread, block)} reads "
                f"{memory.label}[{', '.join(map(str, indices))}] of the "
                f"{memory.space} array before anything was written there; "
                "on a GPU it holds whatever was there before. Fill it first.",
                array=memory.label,
                indices=indices,
                threads=(thread,),
                blocks=(block,),
                lines=(site.place.line,),
                count=len(mine),
            )
        )
    return made


def unwritten_outputs(events, argument_arrays):
    """Return a hazard for each array that is stored to, but not everywhere.

    Only for arrays that the kernel never reads: others may well be changed
    in part.
    """
    made = []
    for name in argument_arrays:
        memory = events.memory[name]
        names = next((n for n in events.same if name in n), (name,))
        kinds = {s.kind for s in events.sites if s.name in names}
        own = [s.place for s in events.sites if s.name == name]
        if kinds != {"write"} or not own:
            continue
        written = _written(events, names, memory)
        missing = int((~written).sum())
        if not missing:
            continue
        indices = memory.indices(int(np.argmin(written)))
        line = own[0]
        made.append(
            Hazard(
                "unwritten-output",
                f"{line}: {missing} of the {written.size} elements of "
                f"`{memory.label}` were never written, the first at "
                f"{list(indices)}. Is the grid too small (use -(-n // "
                "threads) blocks), or is a store missing?",
                array=memory.label,
                indices=indices,
                lines=(line.line,),
                count=missing,
            )
        )
    return made


def _written(events, names, memory):
    """Say for each element of an array whether it was stored to.

    Stores under all names of its memory count.
    """
    pieces = memory.pieces(np.arange(memory.elements))
    stored = [
        events.memory[name].pieces(part.element[part.element >= 0]).reshape(-1)
        for name, part in events.parts.items()
        if name in names
    ]
    return np.isin(
        pieces, np.concatenate([np.empty(0, np.int64), *stored])
    ).all(axis=1)


def stray_shuffles(run, stops):
    """Return a hazard per shuffle that reads a lane that takes no part.

    The lanes at the end of an incomplete warp that read past it in a
    shuffle up or down keep junk, as in every tree reduction; that alone is
    no mistake unless all lanes do so.
    """
    made, names = {}, run.names
    for block, stop, thread, source, everyone in run.strays:
        known = stops[stop]
        missing = source >= math.prod(names.block)
        if stop in made or (
            missing
            and not everyone
            and known.op in ("shfl_down_sync", "shfl_up_sync")
        ):
            continue
        made[stop] = Hazard(
            "warp-divergent-shuffle",
            f"{known.place}: in {names.block_of(block)} "
            f"{names.thread(thread)} reads the value of "
            f"{names.thread(source)} in {known.op}, but "
            f"{names.thread(source)} does not take part, so the result is "
            "undefined. Let the whole warp make the call.",
            threads=(thread, source),
            blocks=(block,),
            lines=(known.place.line,),
        )
    return list(made.values())
