"""Find arguments that are the same memory, whole or in part."""

import math

import numpy as np


def shared_regions(names, arrays):
    """Return which arguments share memory, and how to compare their elements.

    Parameters
    ----------
    names, arrays : the global arrays of a launch

    Returns
    -------
    The groups of names that share memory; the pairs of names that overlap
    without being the same array; and, for every array whose elements cannot
    be told apart by their numbers, (start, unit): where it begins in the
    memory of its group, and the size of the largest pieces that all elements
    of the group consist of, both in bytes.
    """
    groups, pairs = [], []
    for name, array in zip(names, arrays, strict=True):
        mine = [name]
        for group in list(groups):
            others = [arrays[names.index(other)] for other in group]
            if any(np.shares_memory(array, other) for other in others):
                pairs.extend(
                    (other, name)
                    for other in group
                    if not _is_same(array, arrays[names.index(other)])
                    and np.shares_memory(array, arrays[names.index(other)])
                )
                groups.remove(group)
                mine = group + mine
        groups.append(mine)
    regions = {}
    for group in groups:
        members = [arrays[names.index(name)] for name in group]
        if _overlaps_itself(members[0]) or not all(
            _is_same(members[0], member) for member in members
        ):
            regions.update(zip(group, _regions(members), strict=True))
    return tuple(tuple(g) for g in groups if len(g) > 1), pairs, regions


def _address(array):
    """Return where the first element of an array is."""
    return array.__array_interface__["data"][0]


def _is_same(one, two):
    """Say whether two arrays are the same view of the same memory."""
    return (_address(one), one.shape, one.strides, one.dtype) == (
        _address(two),
        two.shape,
        two.strides,
        two.dtype,
    )


def _overlaps_itself(array):
    """Say whether two elements of one array may be the same memory."""
    if array.size == 0:
        return False
    extent = array.itemsize
    for stride, size in sorted(
        (abs(stride), size)
        for stride, size in zip(array.strides, array.shape, strict=True)
        if size > 1
    ):
        if stride < extent:
            return True
        extent += stride * (size - 1)
    return False


def _regions(members):
    """Return (start, unit) of each array of a group."""
    begins = [np.lib.array_utils.byte_bounds(member)[0] for member in members]
    starts = [begin - min(begins) for begin in begins]
    unit = math.gcd(
        *starts,
        *(member.itemsize for member in members),
        *(abs(stride) for member in members for stride in member.strides),
    )
    return [(start, unit) for start in starts]
