"""The exercises of the chapter on the flash forward pass."""

import math
from typing import Any

import numpy as np
import torch
from numba import float32

from attention_lab import examples
from attention_lab.error_bound import error_bound
from attention_lab.exercises import answers
from attention_lab.exercises.exercise import Exercise
from attention_lab.exercises.kernels import examine_kernel
from attention_lab.exercises.parsons import Parsons
from attention_lab.gpu import cuda, record
from attention_lab.reference import attention_reference
from attention_lab.steps import flash_forward as step
from attention_lab.verify.kernel.case import Launch
from attention_lab.verify.kernel.wrong_answers import attention_wrong_answers
from attention_lab.verify.report import Check, Report

#: Width of a head, and the side of a tile, in both kernels.
D, TILE = 3, 4
#: One tile, less than one, and several with a ragged end, on both axes.
SIZES = [{"L": 1, "S": 1}, {"L": 3, "S": 5}, {"L": 6, "S": 9}]
NEEDS = {
    "no hazard": (
        "Who writes the shared tile, and who reads it?",
        "Two moments need a barrier: before the tile is read, and before it is "
        "overwritten.",
    ),
    "values": (
        "Which of the kept numbers belong to an older maximum?",
        "When the maximum grows, sum and mix shrink by the same factor.",
    ),
}

# -- Parsons: the walk over the tiles ---------------------------------------


@cuda.jit(device=True)
def begin(q, acc, q_LD, row, scale):
    """One thread fetches its scaled query, and empties its mix."""
    for d in range(D):
        q[d] = q_LD[row, d] * scale if row < q_LD.shape[0] else float32(0.0)
        acc[d] = float32(0.0)


@cuda.jit(device=True)
def load_tile(tile, x_SD, s0):
    """One thread brings one row of the tile, if there is such a row."""
    s = s0 + cuda.threadIdx.x
    if s < x_SD.shape[0]:
        for d in range(D):
            tile[cuda.threadIdx.x, d] = x_SD[s, d]


@cuda.jit(device=True)
def dot(q, k_tile, s):
    """One thread multiplies its query with key s of the tile."""
    total = float32(0.0)
    for d in range(D):
        total += q[d] * k_tile[s, d]
    return total


@cuda.jit(device=True)
def mix(acc, rescale, weight, v_tile, s):
    """One thread shrinks its mix and adds value s of the tile."""
    for d in range(D):
        acc[d] = acc[d] * rescale + weight * v_tile[s, d]


@cuda.jit(device=True)
def store_row(out_LD, row, acc, row_sum):
    """One thread divides its mix and writes it."""
    for d in range(D):
        out_LD[row, d] = acc[d] / row_sum


@cuda.jit
def walk_kernel(out_LD, q_LD, k_SD, v_SD, scale):
    """One thread per query, one block per TILE queries."""
    k_tile = cuda.shared.array((TILE, D), float32)
    v_tile = cuda.shared.array((TILE, D), float32)
    q = cuda.local.array(D, float32)
    acc = cuda.local.array(D, float32)
    row = cuda.grid(1)
    S = k_SD.shape[0]
    row_max, row_sum = float32(-math.inf), float32(0.0)
    begin(q, acc, q_LD, row, scale)
    for s0 in range(0, S, TILE):
        # 1. Load: every thread brings one key and one value.
        load_tile(k_tile, k_SD, s0)
        load_tile(v_tile, v_SD, s0)
        cuda.syncthreads()  # both tiles are complete before anyone reads

        # 2. Compute
        for s in range(min(TILE, S - s0)):
            score = dot(q, k_tile, s)
            new_max = max(row_max, score)
            rescale = math.exp(row_max - new_max)
            weight = math.exp(score - new_max)
            row_sum = row_sum * rescale + weight
            mix(acc, rescale, weight, v_tile, s)
            row_max = new_max
        cuda.syncthreads()  # nobody overwrites a tile still being read

    # 3. Store
    if row < out_LD.shape[0]:
        store_row(out_LD, row, acc, row_sum)


def launch(L: int, S: int) -> Launch:
    """Return a launch of one head: one thread per query, TILE in a block."""
    q, k, v = (
        x[0, 0] for x in examples.example_qkv(B=1, H=1, L=L, S=S, D=D, seed=4)
    )
    args = (np.empty_like(q), q, k, v, np.float32(D**-0.5))
    return Launch(-(-L // TILE), TILE, args)


def _reference(q: Any, k: Any, v: Any, scale: float) -> np.ndarray:
    q, k, v = (x[None, None] for x in (q, k, v))
    return attention_reference(q, k, v, scale=scale).out_BHLD[0, 0]


def _bound(q: Any, k: Any, v: Any, scale: float) -> float:
    q, k, v = (x[None, None] for x in (q, k, v))
    return error_bound(q, k, v, scale=float(scale))


_OPTIONS = {
    "sizes": SIZES,
    "error_bound": _bound,
    "wrong_answers": attention_wrong_answers(TILE),
}

walk = Parsons(
    "flash_forward.walk",
    walk_kernel,
    launch,
    _reference,
    given=8,
    distractors=["        rescale = math.exp(new_max - row_max)"],
    hints=NEEDS,
    **_OPTIONS,
)

# -- ragged: one gap --------------------------------------------------------


def _visited_keys(S: int, TILE_S: int) -> list[tuple[int, int]]:
    """Run the loop and read off which keys every tile holds."""
    trace: list[Any] = []
    q, k, v = (
        torch.tensor(x) for x in examples.example_qkv(B=1, H=1, L=1, S=S, D=2)
    )
    step.flash_forward(q, k, v, TILE_S=TILE_S, trace=trace)
    starts = [tile.tile_col * TILE_S for tile in trace]
    counts = [tile.scores.shape[-1] for tile in trace]
    return [(s, s + n) for s, n in zip(starts, counts, strict=True)]


def _examine_ragged(answer: Any) -> list[Check]:
    wrong = {
        "online-tail-dropped": lambda S, T: [
            (s, s + T) for s in range(0, S - T + 1, T)
        ],
        "online-tail-unmasked": lambda S, T: [
            (s, s + T) for s in range(0, S, T)
        ],
        "The last key of every tile is left out.": lambda S, T: [
            (s, min(S, s + T) - 1) for s in range(0, S, T)
        ],
    }
    return [
        answers.function(
            "keys of every tile",
            answer,
            [
                {"S": S, "TILE_S": T}
                for S, T in ((3, 3), (4, 3), (7, 3), (2, 5))
            ],
            _visited_keys,
            called="the list",
            wrong=wrong,
        )
    ]


ragged = Exercise(
    "flash_forward.ragged",
    _examine_ragged,
    hints={
        "keys of every tile": (
            "With 7 keys in tiles of 3: where does the last tile end?",
            "It ends where a full tile would, or where the keys end.",
        )
    },
)

# -- causal: blank ----------------------------------------------------------


def _visited_tiles(L: int, S: int, TILE_L: int, TILE_S: int) -> int:
    trace: list[Any] = []
    q, k, v = (
        torch.tensor(x) for x in examples.example_qkv(B=1, H=1, L=L, S=S, D=2)
    )
    tiles = {"TILE_L": TILE_L, "TILE_S": TILE_S}
    step.flash_forward(q, k, v, is_causal=True, **tiles, trace=trace)
    return len(trace)


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


def _lower_triangle(L: int, S: int, TILE_L: int, TILE_S: int) -> int:
    rows = _cdiv(L, TILE_L)
    return rows * (rows + 1) // 2


def _by_first_query(L: int, S: int, TILE_L: int, TILE_S: int) -> int:
    return sum(_cdiv(min(S, l0 + 1), TILE_S) for l0 in range(0, L, TILE_L))


def _examine_causal(answer: Any) -> list[Check]:
    sizes = [
        (4, 4, 4, 4),
        (5, 5, 2, 2),
        (5, 9, 4, 3),
        (9, 4, 2, 3),
        (7, 7, 2, 5),
    ]
    names = ("L", "S", "TILE_L", "TILE_S")
    wrong = {
        "These are all tiles; a causal mask skips some.": (
            lambda L, S, a, b: _cdiv(L, a) * _cdiv(S, b)
        ),
        "This is right for square tiles and L = S only.": _lower_triangle,
        "A tile is needed as soon as one of its queries sees a key of it; this "
        "asks its first query.": _by_first_query,
        "A ragged tile is a tile, too.": lambda L, S, a, b: sum(
            min(S, l0 + a) // b for l0 in range(0, L, a)
        ),
    }
    return [
        answers.function(
            "visited tiles",
            answer,
            [dict(zip(names, size, strict=True)) for size in sizes],
            _visited_tiles,
            called="the count",
            wrong=wrong,
        )
    ]


causal_tiles = Exercise(
    "flash_forward.causal_tiles",
    _examine_causal,
    hints={
        "visited tiles": (
            "Take one row of tiles. Which key is the last that any of its "
            "queries sees?",
            "Its last query sees the keys before l0 + TILE_L, if there are so "
            "many. Count their tiles, and add up the rows of tiles.",
        )
    },
)

# -- reads: the formula against a recording ---------------------------------


def _recorded_reads(L: int, S: int, TILE_L: int) -> int:
    """Record the chapter's kernel and count the numbers read from the keys."""
    q, k, v = examples.example_qkv(B=1, H=1, L=L, S=S, D=D)
    kernel = step.make_flash_kernel(D, D, TILE_L, TILE, float32, False, False)
    out = np.empty_like(q)
    lse = np.empty(q.shape[:3], np.float32)
    no_bias = np.zeros((1, 1, 1, 1), np.float32)
    args = (out, lse, q, k, v, no_bias, np.float32(1.0), 1)
    grid = (_cdiv(L, TILE_L), 1)
    return int(record(kernel, grid, TILE_L, *args).traffic["k_BHSD"].reads)


def _examine_reads(answer: Any) -> list[Check]:
    wrong = {
        "Every query fetches every key here; the queries of a block share.": (
            lambda L, S, T: L * S * D
        ),
        "Every block fetches the keys anew.": lambda L, S, T: S * D,
        "The last block is ragged, and it fetches all keys, too.": (
            lambda L, S, T: L // T * S * D
        ),
        "These are keys; each has D = 3 numbers.": (
            lambda L, S, T: _cdiv(L, T) * S
        ),
    }
    sizes = [(2, 3, 2), (5, 7, 2)]
    return [
        answers.function(
            "recorded reads ÷ formula",
            answer,
            [dict(zip(("L", "S", "TILE_L"), s, strict=True)) for s in sizes],
            _recorded_reads,
            called="the formula",
            wrong=wrong,
        )
    ]


key_reads = Exercise(
    "flash_forward.key_reads",
    _examine_reads,
    hints={
        "recorded reads ÷ formula": (
            "How many blocks are there, and how many numbers does one fetch?",
            "Five queries in tiles of two are three blocks.",
        )
    },
)

# -- the kernel: blank ------------------------------------------------------


def _examine_kernel(answer: Any) -> Report:
    return examine_kernel(
        answer,
        launch,
        _reference,
        "traffic",
        "stays in float32",
        budget=lambda L, S: {"k_SD": (L * S * D, 0), "v_SD": (L * S * D, 0)},
        **_OPTIONS,
    )


kernel = Exercise(
    "flash_forward.kernel",
    _examine_kernel,
    hints={
        **NEEDS,
        "traffic": (
            "How often does one thread fetch one key?",
            "One look at a key gives its score, and the score is all you need "
            "of it.",
        ),
        "output written": (
            "Which thread writes which row, and what of the last block?",
            "Every thread with a query writes D numbers at the end.",
        ),
    },
)
