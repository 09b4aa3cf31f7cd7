"""The limits of a launch that every supported GPU shares.

NVIDIA, CUDA C++ Programming Guide, table "Technical Specifications per
Compute Capability"; the same for 7.5, 8.0 and 9.0.
"""

import math
import os

import numpy as np

from attention_lab.gpu.errors import LaunchRefused, WrongArgument, WrongValue

WARP_SIZE = 32
MAX_THREADS_PER_BLOCK = 1024
MAX_BLOCK = (1024, 1024, 64)
MAX_GRID = (2**31 - 1, 65535, 65535)
# Static, or dynamic without an opt-in that Numba does not offer.
MAX_SHARED_BYTES = 48 * 1024

# A `while` loop with more trips is given up: it would take from ten seconds
# to half a minute, and more likely never ends. By (engine, recorded).
TRIPS_VARIABLE = "ATTENTION_LAB_MOST_TRIPS"
MOST_TRIPS = {
    ("python", False): 1 << 26,
    ("python", True): 1 << 23,
    ("compiled", False): 1 << 32,
    ("compiled", True): 1 << 28,
}
# The same for a loop that waits for other threads on every trip.
MOST_WAITS = 1 << 16


def most_trips(engine, recorded):
    """Return the two limits on the trips of a `while` loop.

    Parameters
    ----------
    engine : "python" or "compiled"
    recorded : whether every access is kept

    Returns
    -------
    The limit of a loop, and of one that only other threads can end. Both
    are the environment variable ``ATTENTION_LAB_MOST_TRIPS`` where it is set.
    """
    chosen = os.environ.get(TRIPS_VARIABLE)
    if chosen is None:
        return MOST_TRIPS[engine, recorded], MOST_WAITS
    if not chosen.isdecimal() or int(chosen) < 1:
        raise WrongValue(
            f"the environment variable {TRIPS_VARIABLE} is {chosen!r}; it "
            "must be a whole number of at least 1"
        )
    return int(chosen), int(chosen)


def three_sizes(sizes, what):
    """Return a launch size as (x, y, z).

    Parameters
    ----------
    sizes : an integer or a tuple of up to three
    what : "grid" or "block", for messages

    Raises
    ------
    WrongArgument
        If a size is not a whole number; Numba refuses 2.0 as well.
    WrongValue
        If there are none, or more than three.
    """
    given = tuple(sizes) if isinstance(sizes, (tuple, list)) else (sizes,)
    if not 1 <= len(given) <= 3:
        raise WrongValue(
            f"a {what} has 1, 2 or 3 sizes, not {len(given)}: {sizes!r}"
        )
    for size in given:
        if isinstance(size, (float, np.floating)):
            raise WrongArgument(
                f"the {what} {sizes!r} must be whole numbers: use "
                "-(-n // threads), not n / threads"
            )
        if not isinstance(size, (int, np.integer)):
            raise WrongArgument(
                f"the {what} is {sizes!r}; it must be a whole number such as "
                "128, or a tuple of up to three, such as (16, 16)"
            )
    return tuple(int(size) for size in given) + (1,) * (3 - len(given))


def dynamic_bytes(size):
    """Return a size of dynamic shared memory, if it can be one.

    Raises
    ------
    WrongArgument
        If it is not a whole number.
    WrongValue
        If it is negative.
    """
    if not isinstance(size, (int, np.integer)) or isinstance(size, bool):
        raise WrongArgument(
            f"the dynamic shared memory is {size!r}; it must be a whole "
            "number of bytes, such as 4 * threads"
        )
    if size < 0:
        raise WrongValue(
            f"the dynamic shared memory is {size} bytes; it cannot be negative"
        )
    return int(size)


def check_launch(grid, block):
    """Refuse grid and block sizes that no GPU accepts.

    Raises
    ------
    LaunchRefused
        With kind "empty-launch" or "too-many-threads".
    """
    for what, sizes in (("grid", grid), ("block", block)):
        if min(sizes) < 0:
            raise LaunchRefused(
                f"the {what} {sizes} has a negative size: sizes count blocks "
                "and threads, from 1",
                "empty-launch",
            )
        if min(sizes) == 0:
            raise LaunchRefused(
                f"the {what} {sizes} is empty, and a GPU refuses an empty "
                "launch: return early when there is no work",
                "empty-launch",
            )
    threads = math.prod(block)
    if threads > MAX_THREADS_PER_BLOCK or any(
        size > limit for size, limit in zip(block, MAX_BLOCK, strict=True)
    ):
        raise LaunchRefused(
            f"the block {block} has {threads} threads; a GPU accepts at most "
            f"{MAX_THREADS_PER_BLOCK} in all and {MAX_BLOCK} along x, y, z: "
            "use smaller blocks and more of them",
            "too-many-threads",
        )
    if any(size > limit for size, limit in zip(grid, MAX_GRID, strict=True)):
        raise LaunchRefused(
            f"the grid {grid} is larger than {MAX_GRID} along x, y, z: put "
            "the longest axis on x",
            "too-many-threads",
        )


def check_shared(static_bytes, dynamic_bytes):
    """Refuse more shared memory than one block can have.

    Raises
    ------
    LaunchRefused
        With kind "too-much-shared-memory".
    """
    total = static_bytes + dynamic_bytes
    if total > MAX_SHARED_BYTES:
        raise LaunchRefused(
            f"one block asks for {total} bytes of shared memory "
            f"({static_bytes} in cuda.shared.array, {dynamic_bytes} at "
            f"launch); a block has {MAX_SHARED_BYTES}: use smaller tiles",
            "too-much-shared-memory",
        )
