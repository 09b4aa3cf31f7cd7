"""A launch for every wrong kernel, the name of its mistake, and words that
the sentence about it must contain.

Most compute the right answer in some schedule: that is why they are here.
"""

from dataclasses import dataclass

import numpy as np
from mutants_with_hazards import (
    TILE,
    N,
    accumulates_into_nothing,
    atomic_and_plain_read,
    atomics_into_nothing,
    barrier_for_the_grid,
    barrier_in_a_helper_under_condition,
    barrier_under_condition,
    big_tiles,
    blocks_overlap,
    break_before_barrier,
    column_for_row,
    copies,
    dynamic_tile,
    everybody_writes_one,
    forgets_the_last_column,
    forgets_the_zeros,
    half_a_warp_waits,
    left_neighbour,
    lost_update,
    mask_without_me,
    no_guard,
    one_too_far,
    reads_before_its_own_write,
    reads_shared_nobody_filled,
    reduction_without_barrier,
    return_before_barrier,
    reversed_without_barrier,
    shuffle_after_return,
    shuffle_from_outside_the_mask,
    shuffle_under_condition,
    shuffle_wider_than_the_block,
    tile_one_short,
    tiles_without_second_barrier,
    two_barriers_for_one,
    unequal_trips,
    warp_barrier_between_warps,
)
from mutants_with_notes import (
    bare_accumulator,
    bare_infinity,
    bare_literals,
    barrier_after_return_not_taken,
    barrier_under_condition_that_holds,
    column_of_a_tile,
    divides_by_a_count,
    every_second_word,
    rows_across_lanes,
    scale_is_a_python_float,
    transposed_store,
    two_on_a_line,
    two_statements_on_a_line,
)


@dataclass(frozen=True)
class Mutant:
    """A wrong kernel, and what must be said about it."""

    kernel: object
    grid: object
    block: object
    shapes: tuple
    kind: str
    words: tuple = ()
    shared_bytes: int = 0
    is_note: bool = False

    def __str__(self):
        """Name the mutant by its kernel."""
        return f"{self.kind}-{self.kernel.py_func.__name__}"

    def args(self):
        """Return fresh arguments: arrays for shapes, numbers as they are."""
        rng = np.random.default_rng(1)
        made = []
        for shape in self.shapes:
            if isinstance(shape, tuple):
                made.append(rng.standard_normal(shape).astype(np.float32))
            else:
                made.append(shape)
        return made


ONE_BLOCK = ((N,), (N,))


def _hazard(kernel, kind, *words, grid=1, block=N, shapes=ONE_BLOCK, **more):
    return Mutant(kernel, grid, block, shapes, kind, words, **more)


def _note(kernel, kind, *words, grid=1, block=N, shapes=ONE_BLOCK):
    return _hazard(
        kernel,
        kind,
        *words,
        grid=grid,
        block=block,
        shapes=shapes,
        is_note=True,
    )


SQUARE = ((N, N),) * 2
MUTANTS = [
    _hazard(reversed_without_barrier, "race", "s[", "syncthreads"),
    _hazard(
        tiles_without_second_barrier,
        "race",
        "q_tile",
        block=(TILE, TILE),
        shapes=((TILE, TILE), (TILE, 2 * TILE), (TILE, 2 * TILE)),
    ),
    _hazard(
        reduction_without_barrier,
        "race",
        "s[",
        block=64,
        shapes=((1,), (64,)),
    ),
    _hazard(everybody_writes_one, "race", "s[0]", "one thread"),
    _hazard(lost_update, "race", "out[0]", grid=2, shapes=((1,), (16,))),
    _hazard(
        blocks_overlap, "race", "block", grid=3, block=4, shapes=((10,), (10,))
    ),
    _hazard(
        barrier_for_the_grid,
        "race",
        "nothing orders two blocks",
        grid=2,
        shapes=((16,), (16,)),
    ),
    _hazard(
        warp_barrier_between_warps, "race", block=64, shapes=((64,), (64,))
    ),
    _hazard(half_a_warp_waits, "race", block=32, shapes=((32,), (32,))),
    _hazard(atomic_and_plain_read, "race", "atomic.add"),
    _hazard(barrier_under_condition, "divergent-barrier", "finished"),
    _hazard(two_barriers_for_one, "divergent-barrier", "waits at"),
    _hazard(return_before_barrier, "divergent-barrier", "finished"),
    _hazard(unequal_trips, "divergent-barrier"),
    _hazard(barrier_in_a_helper_under_condition, "divergent-barrier", "waits"),
    _hazard(break_before_barrier, "divergent-barrier"),
    _hazard(no_guard, "out-of-bounds", "[8]", grid=3, block=4),
    _hazard(one_too_far, "out-of-bounds", "x[8]"),
    _hazard(left_neighbour, "out-of-bounds", "x[-1]", "negative"),
    _hazard(tile_one_short, "out-of-bounds", "s[7]"),
    _hazard(
        column_for_row,
        "out-of-bounds",
        "x[3, 0]",
        block=(4, 3),
        shapes=((3, 4), (3, 4)),
    ),
    _hazard(reads_shared_nobody_filled, "uninitialised-read", "s[4]"),
    _hazard(accumulates_into_nothing, "uninitialised-read", "acc[0]", "local"),
    _hazard(atomics_into_nothing, "uninitialised-read", "s[0]"),
    _hazard(reads_before_its_own_write, "uninitialised-read", "shared"),
    _hazard(
        copies,
        "unwritten-output",
        "2 of the 10",
        grid=2,
        block=4,
        shapes=((10,), (10,)),
    ),
    _hazard(forgets_the_zeros, "unwritten-output", "out"),
    _hazard(
        forgets_the_last_column, "unwritten-output", "[0, 7]", shapes=SQUARE
    ),
    _hazard(copies, "too-many-threads", "2048", block=2048),
    _hazard(copies, "too-many-threads", "64", block=(1, 1, 65)),
    _hazard(big_tiles, "too-much-shared-memory", "65536", "49152"),
    _hazard(
        dynamic_tile, "too-much-shared-memory", "50000", shared_bytes=50_000
    ),
    _hazard(copies, "empty-launch", "empty", grid=0),
    _hazard(copies, "empty-launch", "block", block=(4, 0)),
    _hazard(
        shuffle_under_condition,
        "warp-divergent-shuffle",
        "mask",
        block=32,
        shapes=((32,), (32,)),
    ),
    _hazard(
        shuffle_after_return,
        "warp-divergent-shuffle",
        "thread 20",
        block=32,
        shapes=((20,), (32,)),
    ),
    _hazard(
        mask_without_me,
        "warp-divergent-shuffle",
        "own lane",
        block=32,
        shapes=((32,), (32,)),
    ),
    _hazard(
        shuffle_from_outside_the_mask,
        "warp-divergent-shuffle",
        "thread 20",
        block=32,
        shapes=((32,), (32,)),
    ),
    _hazard(
        shuffle_wider_than_the_block,
        "warp-divergent-shuffle",
        "undefined",
        block=16,
        shapes=((16,), (16,)),
    ),
    _note(barrier_under_condition_that_holds, "conditional-barrier"),
    _note(barrier_after_return_not_taken, "conditional-barrier", "return"),
    _note(two_on_a_line, "shared-arrays-on-one-line"),
    _note(two_statements_on_a_line, "shared-arrays-on-one-line"),
    _note(bare_accumulator, "accidental-float64", "literal 0.0"),
    _note(bare_literals, "accidental-float64", "literal 0.5"),
    _note(bare_infinity, "accidental-float64"),
    _note(divides_by_a_count, "accidental-float64", "int64"),
    _note(
        scale_is_a_python_float,
        "accidental-float64",
        "the argument `scale`",
        shapes=((N,), (N,), 0.5),
    ),
    _note(
        rows_across_lanes,
        "strided-access",
        "32.0 sectors",
        block=32,
        shapes=((32,), (32, 16)),
    ),
    _note(
        transposed_store,
        "strided-access",
        "out",
        block=(32, 2),
        shapes=((32, 2), (2, 32)),
    ),
    _note(
        column_of_a_tile,
        "bank-conflict",
        "32.0 passes",
        block=32,
        shapes=((32, 32), (32, 32)),
    ),
    _note(
        every_second_word,
        "bank-conflict",
        "2.0 passes",
        block=32,
        shapes=((32,), (32,)),
    ),
]
