"""Tell apart the trips of loops in which the lanes of a warp part.

Such a loop writes a tick to the log at the start of every trip: the number
`TICK` plus its own number. From the ticks follows, for each access, which
trip of each loop around it a thread was on.
"""

import numpy as np

from attention_lab.gpu.sites import MOST_LOOPS, TICK


def trips(log, ends, owners, site_loop, parents):
    """Return one number per entry of a log: equal on the same trips.

    A loop counts its ticks from the last tick of the loop around it, or
    from the start of the thread. The number of an access combines the
    counts of all loops around its site.

    Parameters
    ----------
    log : entries of all threads, ticks and other marks among them
    ends : where the segments of the log end
    owners : one number per segment, equal for the segments of one thread
    site_loop : for each entry, the innermost loop with ticks, or -1
    parents : for each such loop the next one around it, or -1
    """
    lengths = np.diff(ends, prepend=0)
    order = np.argsort(owners, kind="stable")
    # From here on, a position counts entries with a thread's all together.
    first = np.empty(len(ends), np.int64)
    first[order] = np.cumsum(lengths[order]) - lengths[order]
    begins = first[order[np.diff(owners[order], prepend=-1) != 0]]

    def position(rows):
        segment = np.searchsorted(ends, rows, side="right")
        return rows - (ends - lengths)[segment] + first[segment]

    rows = np.flatnonzero(log < TICK + MOST_LOOPS)
    # Between two ticks, and two ends of segments, no loop counts.
    starts = np.union1d((ends - lengths)[lengths > 0], rows)
    at = position(starts)
    numbers = np.zeros((len(parents) + 1, len(starts)), np.int32)
    ticks, counts = [], []
    for loop, parent in enumerate(parents):
        mine = np.sort(position(rows[log[rows] == TICK + loop]))
        restarts = ticks[parent] if parent >= 0 else begins
        group = np.searchsorted(restarts, mine, side="right") - 1
        place = np.arange(len(mine))
        restarted = np.diff(group, prepend=-1) != 0
        count = place - np.maximum.accumulate(np.where(restarted, place, 0))
        if parent >= 0:
            outer, size = counts[parent], int(count.max(initial=0)) + 1
            if (int(outer.max(initial=0)) + 1) * size >= 2**31:
                outer = np.unique(outer, return_inverse=True)[1]
            count = outer[group] * size + count
        ticks.append(mine)
        counts.append(count)
        if len(mine):
            last = np.searchsorted(mine, at, side="right") - 1
            numbers[loop] = count[last]
    stretch = np.repeat(
        np.arange(len(starts)), np.diff(starts, append=len(log))
    )
    return numbers[site_loop, stretch]
