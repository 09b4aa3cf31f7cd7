"""What does each rung of `tiled_matmul` save, on paper and when it runs?

The formulas say how much a rung reads and in how many 32-byte sectors;
`measure` records the kernel and counts. `ladder` puts both side by side.

Letters: L rows, S columns, D the summed axis.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numba import float32

from attention_lab.gpu import record
from attention_lab.steps.launch import blank, cdiv
from attention_lab.steps.matmul_tile import Tile
from attention_lab.steps.tiled_matmul import RUNGS, choose_rung

WARP = 32  # lanes of a warp, and banks of shared memory
ITEM_BYTES = 4  # float32
SECTOR_ITEMS = 8  # float32 numbers in a sector of 32 bytes


# -- On paper --------------------------------------------------------------


def predicted_traffic(
    rung: str, L: int, S: int, D: int, tile: Tile | None = None
) -> dict[str, tuple[int, int]]:
    """Count the elements that a rung moves to and from global memory.

    Without tiles every output reads D of each factor. With them, a block
    reads its rows of `a` and its columns of `b` once: `a` is read by each of
    the ⌈S/TILE_S⌉ blocks beside each other, `b` by each of ⌈L/TILE_L⌉.

    Returns
    -------
    {array: (reads, writes)}.

    Examples
    --------
    >>> predicted_traffic("coalesced", L=32, S=32, D=8)["a_LD"]
    (8192, 0)
    >>> predicted_traffic("shared_tile", L=32, S=32, D=8)["a_LD"]
    (512, 0)
    """
    tile = choose_rung(rung, tile, ITEM_BYTES)
    times_a, times_b = S, L
    if RUNGS[rung].is_shared:
        times_a, times_b = cdiv(S, tile.TILE_S), cdiv(L, tile.TILE_L)
    return {
        "a_LD": (L * D * times_a, 0),
        "b_DS": (D * S * times_b, 0),
        "out_LS": (0, L * S),
    }


def predicted_shared_reads(
    rung: str, L: int, S: int, D: int, tile: Tile | None = None
) -> int:
    """Count the elements that a rung reads from shared memory.

    For each d of a tile, a thread reads PATCH_L of `a` and PATCH_S of `b` for
    its PATCH_L · PATCH_S outputs. A block at the edge computes as much as any
    other, with zeros.

    Examples
    --------
    >>> predicted_shared_reads("shared_tile", L=16, S=16, D=16)  # 2·16 each
    8192
    """
    tile = choose_rung(rung, tile, ITEM_BYTES)
    if not RUNGS[rung].is_shared:
        return 0
    blocks = cdiv(L, tile.TILE_L) * cdiv(S, tile.TILE_S)
    threads = tile.TILE_L * tile.TILE_S // (tile.PATCH_L * tile.PATCH_S)
    steps = cdiv(D, tile.TILE_D) * tile.TILE_D
    return blocks * threads * steps * (tile.PATCH_L + tile.PATCH_S)


def predicted_sectors(rung: str, L: int, S: int, D: int) -> dict[str, float]:
    """Return the sectors of a warp's request, for the rung's usual tile.

    The 32 lanes of a warp lie in rows of neighbours. A row of `width` lanes
    that are `stride` elements apart takes width · min(stride, 8) / 8 sectors.

    - naive: 32 lanes in 32 rows of `a` and `out`, and one element of `b`
    - coalesced: one element of `a`, 32 neighbours of `b` and `out`
    - with tiles: a row of the tile, TILE_D of `a` and TILE_S of `b`; the
      outputs of neighbouring threads are PATCH_S apart

    Raises
    ------
    ValueError
        If the tile does not divide L, S and D, or 8 does not divide S and D:
        then rows begin inside a sector, and the mean has no short formula.

    Examples
    --------
    >>> predicted_sectors("naive", L=32, S=32, D=8)
    {'a_LD': 32, 'b_DS': 1, 'out_LS': 32}
    """
    tile = choose_rung(rung, None, ITEM_BYTES)
    for axis, size, step in (
        ("L", L, tile.TILE_L),
        ("S", S, math.lcm(tile.TILE_S, SECTOR_ITEMS)),
        ("D", D, math.lcm(tile.TILE_D, SECTOR_ITEMS)),
    ):
        if size < 1 or size % step:
            raise ValueError(
                f"axis {axis} has size {size}, but the sectors of {rung} have "
                f"a formula for multiples of {step} only"
            )
    if RUNGS[rung].is_turned:
        return {"a_LD": WARP, "b_DS": 1, "out_LS": WARP}
    wide = tile.TILE_S // tile.PATCH_S
    return {
        "a_LD": _sectors(tile.TILE_D, 1) if RUNGS[rung].is_shared else 1,
        "b_DS": _sectors(tile.TILE_S, 1),
        "out_LS": _sectors(wide, tile.PATCH_S),
    }


def _sectors(width: int, stride: int) -> int:
    """Return the sectors of 32 lanes in rows of `width`, `stride` apart."""
    width = min(width, WARP)
    return WARP // width * cdiv(width * min(stride, SECTOR_ITEMS), SECTOR_ITEMS)


def predicted_passes(tile: Tile | None = None) -> dict[str, int]:
    """Return the passes that the worst request to each tile takes.

    For the last rung. Neighbouring lanes store `a` turned, one row of a_tile
    apart: without PAD all TILE_D rows begin in one bank. Threads read b_tile
    PATCH_S apart, element by element; a fused load of 16 bytes takes fewer
    passes than the four it replaces.

    Examples
    --------
    >>> usual = RUNGS["register_2d"].tile
    >>> predicted_passes(usual._replace(PAD=0))["a_tile"]
    8
    >>> predicted_passes(usual)["a_tile"]
    1
    """
    tile = choose_rung("register_2d", tile, ITEM_BYTES)
    width = tile.TILE_L + tile.PAD
    wide = tile.TILE_S // tile.PATCH_S
    lanes = range(WARP)
    stored = [t % tile.TILE_D * width + t // tile.TILE_D for t in lanes]
    read_a = [t // wide * tile.PATCH_L for t in lanes]
    read_b = [t % wide * tile.PATCH_S for t in lanes]
    return {
        "a_tile": max(_passes(stored), _passes(read_a)),
        "b_tile": _passes(read_b),
    }


def _passes(words: list[int]) -> int:
    """Return how many different words the busiest bank must serve."""
    banks = [word % WARP for word in set(words)]
    return max(banks.count(bank) for bank in banks)


# -- When it runs ----------------------------------------------------------


def measure(
    rung: str,
    L: int,
    S: int,
    D: int,
    tile: Tile | None = None,
    order: str = "ascending",
    seed: int = 0,
) -> Any:
    """Record one rung on normal numbers in float32.

    Returns
    -------
    An `attention_lab.gpu.recording.Recording` that knows its formula.
    """
    tile = choose_rung(rung, tile, ITEM_BYTES)
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal(s).astype("f4") for s in ((L, D), (D, S)))
    recording = record(
        RUNGS[rung].make_kernel(float32, tile),
        *RUNGS[rung].launch(L, S, tile),
        *(blank((L, S), float32), a, b),
        order=order,
        seed=seed,
    )
    return recording.against(predicted_traffic(rung, L, S, D, tile))


class LadderRow(NamedTuple):
    """One rung: predictions, each followed by what the recording counted.

    reads, shared_reads : elements read per output, global and shared memory.
    sectors : {array: sectors per request}; 4 are ideal for 32 lanes.
    """

    rung: str
    reads: float
    reads_measured: float
    shared_reads: float
    shared_reads_measured: float
    sectors: dict[str, float]
    sectors_measured: dict[str, float]
    is_clean: bool


def ladder(L: int = 128, S: int = 128, D: int = 16) -> list[LadderRow]:
    """Record every rung on one product; return a row for each.

    Raises
    ------
    ValueError
        If `predicted_sectors` has no formula for the sizes.
    """
    return [_row(rung, L, S, D) for rung in RUNGS]


def _row(rung: str, L: int, S: int, D: int) -> LadderRow:
    sectors = predicted_sectors(rung, L, S, D)
    recording = measure(rung, L, S, D)
    counted = recording.traffic
    expected = predicted_traffic(rung, L, S, D)
    outputs = L * S
    return LadderRow(
        rung,
        sum(reads for reads, _ in expected.values()) / outputs,
        counted.total("reads") / outputs,
        predicted_shared_reads(rung, L, S, D) / outputs,
        counted.total("reads", "shared") / outputs,
        sectors,
        {name: counted[name].sectors_per_request for name in sectors},
        recording.is_clean,
    )


def as_table(rows: list[LadderRow]) -> str:
    """Write a ladder as text; a number is followed by = and its measurement."""
    lines = [
        f"{'rung':12} {'reads/output':>15} {'shared reads':>15}"
        f"  sectors per request: a, b, out"
    ]
    for row in rows:
        pairs = [
            (row.reads, row.reads_measured),
            (row.shared_reads, row.shared_reads_measured),
            *zip(
                row.sectors.values(), row.sectors_measured.values(), strict=True
            ),
        ]
        reads, shared, *sectors = (_compared(*pair) for pair in pairs)
        lines.append(
            f"{row.rung:12} {reads:>15} {shared:>15}  {', '.join(sectors)}"
        )
    return "\n".join(lines)


def _compared(predicted: float, measured: float) -> str:
    """Return "4 = 4" where both agree, and "4 ≠ 5" where they do not."""
    sign = "=" if predicted == measured else "≠"
    return f"{predicted:g} {sign} {measured:g}"
