"""The exercises of the chapter on the tiled matrix product."""

import math
from typing import Any

import numpy as np
from numba import float32

from attention_lab.exercises import answers
from attention_lab.exercises.exercise import Exercise
from attention_lab.exercises.kernels import examine_kernel
from attention_lab.exercises.parsons import Parsons
from attention_lab.gpu import cuda, record
from attention_lab.steps import matmul_ladder
from attention_lab.steps.matmul_tile import Tile
from attention_lab.verify.kernel.case import Launch
from attention_lab.verify.report import Check, Report

#: The side of a tile, and of a block.
TILE = 4
#: One output, a full tile, and several with ragged ends on all three axes.
SIZES = [
    {"L": 1, "S": 1, "D": 1},
    {"L": 4, "S": 4, "D": 4},
    {"L": 5, "S": 7, "D": 6},
]
BANKS = 32


def launch(L: int, S: int, D: int) -> Launch:
    """Return a launch with one thread per output, in blocks of TILE × TILE."""
    rng = np.random.default_rng(8)
    a_LD = rng.standard_normal((L, D)).astype(np.float32)
    b_DS = rng.standard_normal((D, S)).astype(np.float32)
    grid = (-(-S // TILE), -(-L // TILE))
    args = (np.empty((L, S), np.float32), a_LD, b_DS)
    return Launch(grid, (TILE, TILE), args)


def _product(a_LD: np.ndarray, b_DS: np.ndarray) -> np.ndarray:
    return a_LD @ b_DS


_BARRIERS = (
    "Who writes the tiles, and who reads them?",
    "Two moments need a barrier, in every turn of the loop and for every "
    "thread of the block.",
)

# -- Parsons: where the barriers go -----------------------------------------


@cuda.jit(device=True)
def load_tile(tile, x, row, column):
    """One thread brings one element of a tile; outside of x it is 0."""
    rows, columns = x.shape
    is_inside = row < rows and column < columns
    element = x[row, column] if is_inside else float32(0.0)
    tile[cuda.threadIdx.y, cuda.threadIdx.x] = element


@cuda.jit
def product_kernel(out_LS, a_LD, b_DS):
    """One thread per output, one block per tile of outputs."""
    a_tile = cuda.shared.array((TILE, TILE), float32)
    b_tile = cuda.shared.array((TILE, TILE), float32)
    s, row = cuda.grid(2)
    ts, tl = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0.0)
    for d0 in range(0, a_LD.shape[1], TILE):
        # 1. Load
        load_tile(a_tile, a_LD, row, d0 + ts)
        load_tile(b_tile, b_DS, d0 + tl, s)
        cuda.syncthreads()  # both tiles are complete before anyone reads

        # 2. Compute
        for d in range(TILE):
            total += a_tile[tl, d] * b_tile[d, ts]
        cuda.syncthreads()  # nobody overwrites a tile still being read

    # 3. Store
    if row < out_LS.shape[0] and s < out_LS.shape[1]:
        out_LS[row, s] = total


barriers = Parsons(
    "tiled_matmul.barriers",
    product_kernel,
    launch,
    _product,
    given=5,
    distractors=["if row >= out_LS.shape[0]:", "    return"],
    hints={"no hazard": _BARRIERS},
    sizes=SIZES,
)

# -- a ragged load: one gap -------------------------------------------------


def _examine_ragged(answer: Any) -> Report:
    return examine_kernel(
        answer, launch, _product, "stays in float32", sizes=SIZES
    )


ragged = Exercise(
    "tiled_matmul.ragged",
    _examine_ragged,
    hints={
        "no hazard": (
            "Which element does this thread read, and does it exist?",
            "Both indices of an array need a look: the row and the column.",
        ),
        "values": (
            "Print both conditions for a matrix smaller than one tile.",
            "A thread loads for others, too: its own output need not exist.",
        ),
    },
)

# -- reads: the formula against a recording ---------------------------------


def _recorded_reads(L: int, S: int, D: int, side: int) -> int:
    tile = Tile(side, side, side)
    run = matmul_ladder.measure("shared_tile", L, S, D, tile)
    return int(run.traffic.total("reads"))


def _examine_reads(answer: Any) -> list[Check]:
    names = ("L", "S", "D", "side")
    sizes = [(4, 4, 3, 2), (5, 7, 3, 2), (7, 5, 4, 4)]
    wrong = {
        "This is the kernel without tiles.": lambda L, S, D, n: 2 * L * S * D,
        "Every input is read once for each row or column of tiles, not once.": (
            lambda L, S, D, n: L * D + D * S
        ),
        "The last tile is ragged, and its block reads, too.": (
            lambda L, S, D, n: L * D * (S // n) + D * S * (L // n)
        ),
        "This is right only where the tiles fit.": (
            lambda L, S, D, n: 2 * L * S * D / n
        ),
        "Rows and columns have changed places: how often a row of a is read "
        "depends on the columns of the output.": (
            lambda L, S, D, n: (
                L * D * math.ceil(L / n) + D * S * math.ceil(S / n)
            )
        ),
    }
    return [
        answers.function(
            "recorded reads ÷ formula",
            answer,
            [dict(zip(names, size, strict=True)) for size in sizes],
            _recorded_reads,
            called="the formula",
            wrong=wrong,
        )
    ]


reads = Exercise(
    "tiled_matmul.reads",
    _examine_reads,
    hints={
        "recorded reads ÷ formula": (
            "How many blocks stand beside each other? Each needs all of its "
            "rows of a.",
            "Add two products: the size of a times the columns of blocks, and "
            "the size of b times the rows of blocks.",
        )
    },
)

# -- banks: the formula against a recording ---------------------------------


def _recorded_passes(lanes: int, stride: int) -> int:
    """Let lane i write element i · stride of shared memory; count passes."""
    size = lanes * stride

    @cuda.jit
    def strided_kernel(out):
        tile = cuda.shared.array(size, float32)
        i = cuda.threadIdx.x
        tile[i * stride] = float32(1.0)
        out[i] = tile[i * stride]

    out = np.empty(lanes, np.float32)
    run = record(strided_kernel, 1, lanes, out)
    return int(run.traffic["tile"].worst_bank_conflict)


def _examine_passes(answer: Any) -> list[Check]:
    sizes = [(8, 1), (8, 128), (8, 132), (8, 129), (32, 2), (32, 33), (8, 16)]
    wrong = {
        "Only a stride that is a multiple of 32 is seen as a conflict; others "
        "share banks as well.": (
            lambda lanes, stride: lanes if stride % BANKS == 0 else 1
        ),
        "Neighbours in other banks do not wait for each other.": (
            lambda lanes, stride: lanes
        ),
        "This counts the banks in use, not the lanes in one of them.": (
            lambda lanes, stride: len(
                {i * stride % BANKS for i in range(lanes)}
            )
        ),
        "This is right for 32 lanes; fewer lanes can miss each other.": (
            lambda lanes, stride: math.gcd(stride, BANKS)
        ),
    }
    return [
        answers.function(
            "passes",
            answer,
            [{"lanes": lanes, "stride": stride} for lanes, stride in sizes],
            _recorded_passes,
            called="the count",
            wrong=wrong,
        )
    ]


passes = Exercise(
    "tiled_matmul.passes",
    _examine_passes,
    hints={
        "passes": (
            "List the banks of the lanes for a stride of 16.",
            "The number of passes is how many lanes the fullest bank has.",
        )
    },
)
