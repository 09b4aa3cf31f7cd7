"""Group accesses into warp requests, the unit in which memory works.

A warp executes one load for up to 32 lanes at once. Global memory answers
in sectors of 32 bytes; shared memory has 32 banks of 4 bytes, and serves
two words of one bank one after the other.
"""

from dataclasses import dataclass

import numpy as np

from attention_lab.gpu.limits import WARP_SIZE

SECTOR_BYTES = 32
BANKS = 32
BANK_BYTES = 4


@dataclass(frozen=True)
class Requests:
    """The warp requests of one piece of memory, one row each.

    Attributes
    ----------
    site : number of the place in the source
    lanes : how many lanes took part
    cost : global memory: sectors; shared memory: passes, 1 is no conflict
    least : the cost had the lanes used neighbouring elements
    """

    site: np.ndarray
    lanes: np.ndarray
    cost: np.ndarray
    least: np.ndarray


def warp_requests(events, memory):
    """Return the requests of the events of one piece of memory.

    A request is one access of the source, executed at once by lanes of one
    warp. Which executions belong together follows from the rule by which a
    GPU runs structured code: lanes that part at a condition or leave a loop
    early wait where their ways meet again.

    - Each access that is written is a site of its own: ``x[i] + x[i + 1]``
      are two requests, and so are the two sides of ``x[i] if c else x[j]``,
      whose lanes part. ``x[i] += 1`` is one read and one write.
    - In a loop, the n-th trip of one lane goes with the n-th trip of the
      others, wherever their counters stand. A lane that makes fewer trips
      is missing from the later requests.
    - A loop inside a loop starts to count anew on each trip of the outer
      one, also when lanes make different numbers of inner trips.
    - Accesses of different stretches between barriers never go together.

    GPUs since Volta may let parted lanes drift further apart: then there
    are more requests than these, never fewer.

    Parameters
    ----------
    events : accesses of this memory only
    memory : the `Memory`
    """
    if (events.element < 0).any():
        events = events.select(events.element >= 0)
    if not len(events):
        nothing = np.empty(0, np.int64)
        return Requests(nothing, nothing, nothing, nothing)
    stretch, turn = slots(events)
    thread = events.thread.astype(np.int64)
    request = _mixed((stretch, thread // team_size(memory), turn))
    address = memory.addresses(events.element)
    unit = SECTOR_BYTES if memory.space == "global" else BANK_BYTES
    # Equal keys are lanes of one request that want the same unit.
    units = address // unit
    units -= units.min()
    many = int(units.max()) + 1
    distinct, first, lanes = np.unique(
        _mixed((request, units)), return_index=True, return_counts=True
    )
    owner = distinct // many
    starts = np.flatnonzero(np.diff(owner, prepend=-1))
    lanes = np.add.reduceat(lanes, starts)
    site = events.site[first[starts]]
    if memory.space == "global":
        cost = np.diff(starts, append=len(distinct))
        least = -(-lanes * memory.itemsize // SECTOR_BYTES)
        return Requests(site, lanes, cost, np.maximum(least, 1))
    number = np.repeat(
        np.arange(len(starts)), np.diff(starts, append=len(distinct))
    )
    # The least address was subtracted; that only turns the banks in a ring.
    bank = distinct % many % BANKS
    busy = np.bincount(number * BANKS + bank, minlength=len(starts) * BANKS)
    passes = busy.reshape(-1, BANKS).max(axis=1)
    return Requests(site, lanes, passes, np.ones_like(passes))


def slots(events):
    """Return which executions of an access belong together, see above.

    Equal pairs (stretch, turn) are one execution by the lanes of a block; the
    teams of `team_size` lanes that share it make one request each.
    """
    stretch = _mixed((events.site, events.block, events.epoch, events.trip))
    thread = events.thread.astype(np.int64)
    return stretch, _occurrence(_mixed((stretch, thread)))


def team_size(memory):
    """Return how many neighbouring lanes make one request together.

    8-byte elements of shared memory are served half a warp at a time.
    """
    is_halved = memory.space == "shared" and memory.itemsize == 8
    return WARP_SIZE // 2 if is_halved else WARP_SIZE


def _mixed(columns):
    """Return one number per row that is equal for equal rows.

    The last column can be read back as the remainder by its largest value
    plus one.
    """
    mixed = columns[0].astype(np.int64)
    for column in columns[1:]:
        size = int(column.max()) + 1
        if (int(mixed.max()) + 1) * size >= 2**62:
            mixed = np.unique(mixed, return_inverse=True)[1]
        mixed = mixed * size + column
    return mixed


def _occurrence(keys):
    """Return how often each key has come before, in the given order."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    position = np.arange(len(keys))
    new = np.ones(len(keys), bool)
    new[1:] = ordered[1:] != ordered[:-1]
    start = np.maximum.accumulate(np.where(new, position, 0))
    turn = np.empty(len(keys), np.int64)
    turn[order] = position - start
    return turn
