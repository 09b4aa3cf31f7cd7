"""Order that a kernel makes itself, by fences and atomic operations.

A thread that stores data, calls ``cuda.threadfence()`` and then does an
atomic operation has published the data; a thread that later does an atomic
operation on the same element may use it, and so may its block after a
barrier. Locks and "the last block adds up" work like this. Without the fence
there is no such order: atomic operations on a GPU are relaxed, and do not
order the accesses around them (PTX ISA, Memory Consistency Model; a lock
without fences failed on real GPUs in Alglave et al., "GPU Concurrency: Weak
Behaviours and Programming Assumptions", 2015).

This order is taken as it came about in the run: another schedule may take
the lock in another order, and what a thread does with the value it got is
not understood.
"""

import numpy as np


class Published:
    """Answers whether fences and atomic operations order two accesses.

    Parameters
    ----------
    events : all accesses of a run, with their `row`
    """

    def __init__(self, events):
        atomic = events.of_sites(lambda s: s.kind not in ("read", "write"))
        rows = np.flatnonzero((atomic != 0) & (events.element >= 0))
        self.events = events
        self.row = rows
        self.thread = events.thread[rows]
        self.block = events.block[rows]
        self.epoch = events.epoch[rows]
        self.variable = self.variables(rows)
        # For each: the last fence of the same thread before it.
        self.fence_row = {False: self.blank(), True: self.blank()}
        self.fence_epoch = {False: self.blank(), True: self.blank()}
        for row, thread, block, epoch, reaches_all in events.fences:
            after = (
                (self.thread == thread)
                & (self.block == block)
                & (self.row >= row)
            )
            for wide in (False, True) if reaches_all else (False,):
                self.fence_row[wide][after] = row
                self.fence_epoch[wide][after] = epoch

    def blank(self):
        """Return a column that says: there was no fence."""
        return np.full(len(self.row), -1, np.int64)

    def variables(self, rows):
        """Return a number for the element that each operation works on."""
        first = {name: names[0] for names in self.events.same for name in names}
        names = [first.get(s.name, s.name) for s in self.events.sites]
        number = {name: k for k, name in enumerate(dict.fromkeys(names))}
        of_site = np.array([number[name] for name in names], np.int64)
        keys = np.stack(
            [of_site[self.events.site[rows]], self.events.element[rows]]
        )
        if not keys.size:
            return np.zeros(0, np.int64)
        return np.unique(keys, axis=1, return_inverse=True)[1].reshape(-1)

    def orders(self, row, other, without_fence=False):
        """Say whether the earlier access surely comes before the later.

        Parameters
        ----------
        row, other : rows of all events
        without_fence : whether to ask what would be, had it fences
        """
        return self.through(row, other, without_fence) is not None

    def through(self, row, other, without_fence=False):
        """Return the row of the operation that publishes, or None."""
        first, second = sorted((int(row), int(other)))
        events = self.events
        thread, block = events.thread[first], events.block[first]
        epoch = events.epoch[first]
        same_block = self.block == block
        if without_fence:
            fence_row, fence_epoch = self.row, self.epoch
        else:
            between_blocks = bool(block != events.block[second])
            fence_row = self.fence_row[between_blocks]
            fence_epoch = self.fence_epoch[between_blocks]
        gives = same_block & (
            ((self.thread == thread) & (fence_row > first))
            | (fence_epoch > epoch)
        )
        takes = (self.block == events.block[second]) & (
            ((self.thread == events.thread[second]) & (self.row < second))
            | (self.epoch < events.epoch[second])
        )
        if not (gives.any() and takes.any()):
            return None
        last = np.full(int(self.variable.max()) + 1, -1, np.int64)
        np.maximum.at(last, self.variable[takes], self.row[takes])
        useful = gives & (self.row < last[self.variable])
        if not useful.any():
            return None
        return int(self.row[np.argmax(useful)])
