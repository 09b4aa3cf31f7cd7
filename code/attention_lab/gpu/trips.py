"""Tell apart the trips of loops in which the lanes of a warp part.

Such a loop writes a tick to the log at the start of every trip: the number
`TICK` plus its own number. From the ticks follows, for each access, which
trip of each loop around it a thread was on.
"""

import numpy as np

from attention_lab.gpu.sites import MOST_LOOPS, TICK


def trips(log, owner, site_loop, parents):
    """Return one number per entry of a log: equal on the same trips.

    A loop counts its ticks from the last tick of the loop around it, or
    from the start of the thread. The number of an access combines the
    counts of all loops around its site.

    Parameters
    ----------
    log : entries of all threads, ticks and other marks among them
    owner : one number per entry, equal for the entries of one thread
    site_loop : for each entry, the innermost loop with ticks, or -1
    parents : for each such loop the next one around it, or -1
    """
    order = np.argsort(owner, kind="stable")
    number = np.where(log < TICK + MOST_LOOPS, log - TICK, -1)[order]
    position = np.arange(len(log))
    begins = np.diff(owner[order], prepend=-1) != 0
    result = np.zeros(len(log), np.int64)
    combined = []
    for loop, parent in enumerate(parents):
        ticks = number == loop
        passed = np.cumsum(ticks)
        restarts = begins | (number == parent) if parent >= 0 else begins
        start = np.maximum.accumulate(np.where(restarts, position, 0))
        count = passed - (passed - ticks)[start]
        if parent >= 0:
            outer, size = combined[parent], int(count.max()) + 1
            if (int(outer.max()) + 1) * size >= 2**31:
                outer = np.unique(outer, return_inverse=True)[1]
            count = outer * size + count
        combined.append(count)
        inside = site_loop[order] == loop
        result[order[inside]] = count[inside]
    return result
