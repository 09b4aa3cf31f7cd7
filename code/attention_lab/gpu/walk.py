"""Put the accesses of a recording in the order a reader walks through them.

A recording holds them thread by thread. Here they stand in the order of the
program: request by request, as memory sees them, or line by line, as a reader
of the source does. Local arrays are left out, which belong to one thread; and
so is what lies outside its array, which has no place to be drawn and is a
hazard already.
"""

from itertools import groupby

import numpy as np

from attention_lab.gpu.warp_requests import slots, team_size

REQUEST_COLUMNS = (
    "block", "epoch", "site", "threads", "elements", "addresses"
)  # fmt: skip
LINE_COLUMNS = ("block", "epoch", "threads", "sites", "elements")


def by_request(events):
    """Return one row per warp request, as columns.

    Parameters
    ----------
    events : the accesses

    Returns
    -------
    The columns `REQUEST_COLUMNS`. Those of threads, elements (row-major
    numbers) and addresses (bytes) hold `runs`, with one number per lane.
    """
    columns = [[] for _ in REQUEST_COLUMNS]
    for block, epoch, executions in _stretches(events):
        for site, rows in executions:
            memory = events.memory[events.sites[site].name]
            team = events.thread[rows] // team_size(memory)
            for number in np.unique(team):
                mine = rows[team == number]
                row = (
                    block,
                    epoch,
                    site,
                    runs(events.thread[mine]),
                    runs(events.element[mine]),
                    runs(memory.addresses(events.element[mine])),
                )
                for column, value in zip(columns, row, strict=True):
                    column.append(value)
    return columns


def by_line(events):
    """Return one row per visit of a source line by the threads of a block.

    A loop that stands in one line is one visit; a call of a function is
    visited anew each time.

    Returns
    -------
    The columns `LINE_COLUMNS`: threads as `runs`, the sites of the line, and
    for each of these the elements touched, as `runs`, each once.
    """
    columns = [[] for _ in LINE_COLUMNS]
    for block, epoch, executions in _stretches(events):
        for visit in _visits(events.sites, executions):
            rows = np.concatenate([rows for _, rows in visit])
            sites = list(dict.fromkeys(site for site, _ in visit))
            row = (
                block,
                epoch,
                runs(np.unique(events.thread[rows])),
                sites,
                [
                    runs(np.unique(events.element[rows][at]))
                    for at in (events.site[rows] == site for site in sites)
                ],
            )
            for column, value in zip(columns, row, strict=True):
                column.append(value)
    return columns


def runs(numbers):
    """Return numbers as [start, step, count, start, step, count, …].

    Examples
    --------
    >>> runs([4, 5, 6, 7, 20])
    [4, 1, 4, 20, 0, 1]
    """
    listed = [int(x) for x in numbers]
    made = []
    while listed:
        step = listed[1] - listed[0] if len(listed) > 1 else 0
        count = 1
        while count < len(listed) and (
            listed[count] - listed[count - 1] == step
        ):
            count += 1
        made += [listed[0], step if count > 1 else 0, count]
        listed = listed[count:]
    return made


def _stretches(events):
    """Yield block, epoch and, in order, (site, rows) of each execution."""
    is_local = events.of_sites(lambda site: site.space == "local").astype(bool)
    kept = np.flatnonzero(~is_local & (events.element >= 0))
    if not len(kept):
        return
    part = events.select(kept)
    stretch, turn = slots(part)
    pair = stretch * (int(turn.max()) + 1) + turn
    order = np.lexsort((kept, part.thread, part.epoch, part.block))
    where = zip(part.block[order], part.epoch[order], order, strict=True)
    for (block, epoch), group in groupby(where, lambda item: item[:2]):
        mine = np.array([row for _, _, row in group])
        threads = groupby(mine, lambda row: part.thread[row])
        ways = [tuple(pair[list(rows)].tolist()) for _, rows in threads]
        # The rows of one execution, threads ascending.
        found = {}
        for row in mine:
            found.setdefault(int(pair[row]), []).append(row)
        executions = []
        for slot in merged(ways):
            rows = np.array(found[slot])
            executions.append((int(part.site[rows[0]]), kept[rows]))
        yield int(block), int(epoch), executions


def merged(ways):
    """Return one order that agrees with all ways through a program.

    Examples
    --------
    >>> merged([("a", "b", "d"), ("a", "c", "d")])
    ['a', 'c', 'b', 'd']
    """
    made, place = [], {}
    for way in sorted(dict.fromkeys(ways), key=len, reverse=True):
        at = -1
        for slot in way:
            if slot in place:
                at = max(at, place[slot])
                continue
            at += 1
            made.insert(at, slot)
            place = {known: number for number, known in enumerate(made)}
    return made


def _visits(sites, executions):
    """Split executions where the line changes, or another call begins."""
    visit = []
    for site, rows in executions:
        seen = [known for known, _ in visit]
        is_other = visit and sites[site].place != sites[seen[-1]].place
        is_next_call = site not in seen and len(set(seen)) < len(seen)
        if is_other or is_next_call:
            yield visit
            visit = []
        visit.append((site, rows))
    if visit:
        yield visit
