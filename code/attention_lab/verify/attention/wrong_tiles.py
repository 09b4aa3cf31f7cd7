"""What online softmax gives when one line of its loop over tiles is wrong.

The loop keeps three numbers per query: the largest score so far, the sum of the
weights relative to it, and the weighted values. Source of the right loop:
Milakov and Gimelshein 2018, algorithm 3; Dao et al. 2022, algorithm 1.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np

from attention_lab.verify.attention.case import Case
from attention_lab.verify.attention.parts import parts_of
from attention_lab.verify.attention.wrong_attention import (
    interleaved,
    right_scale,
)
from attention_lab.verify.attention.wrong_masks import right_mask

#: Widths of a tile that are tried: the common powers of two, and single keys.
TILES = (1, 2, 4, 8, 16, 32, 64, 128)


@dataclass(frozen=True)
class Loop:
    """How one loop over tiles goes; the defaults are right."""

    rescale_sum: bool = True
    rescale_acc: bool = True
    inverse: bool = False
    first_max: float = -np.inf
    drop_tail: bool = False
    keep_first: bool = False
    pad_tail: bool = False
    own_max: bool = False
    average_tiles: bool = False
    empty_tile_is_nan: bool = False
    skip_last_tile: bool = False
    triangle_per_tile: bool = False
    mask_per_tile: bool = False
    divide_every_tile: bool = False


@lru_cache(maxsize=8192)
def tiled_output(case: Case, tile: int, loop: Loop) -> np.ndarray | None:
    """Run a loop over tiles of `tile` keys; (B, H, L, D_v), or None.

    None where a mistake of the loop needs more than one tile to show.
    """
    scores, value = _scores(case, tile, loop)
    S = scores.shape[-1]
    tail = S % tile
    if loop.drop_tail:
        kept = max(S - tail, tile) if loop.keep_first else S - tail
        scores, value = scores[..., :kept], value[..., :kept, :]
    if loop.pad_tail and tail:
        added = np.zeros((*scores.shape[:-1], tile - tail), np.float32)
        if case.is_causal:  # a triangle hides what lies beyond it
            place, rows = np.arange(S, S + tile - tail), scores.shape[-2]
            added[..., place > np.arange(rows)[:, None]] = -np.inf
        scores = np.concatenate([scores, added], axis=-1)
        value = np.pad(value, [(0, 0), (0, 0), (0, tile - tail), (0, 0)])
    with np.errstate(all="ignore"):
        return _run(scores, value, tile, loop)


def _scores(case: Case, tile: int, loop: Loop) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores with every mask added, and the values per head."""
    p = parts_of(case)
    key = interleaved(p.key, case.sizes)
    value = interleaved(p.value, case.sizes)
    scores = p.query @ key.swapaxes(-1, -2) * right_scale(p)
    L, S = case.sizes.L, case.sizes.S
    inside = np.arange(S) % tile  # a key's place inside its tile
    bias, _ = right_mask(p, scores)
    if bias is not None:
        bias = np.broadcast_to(bias, scores.shape)
        scores = scores + (bias[..., inside] if loop.mask_per_tile else bias)
    if case.is_causal:
        place = inside if loop.triangle_per_tile else np.arange(S)
        rows = np.arange(L)[:, None]
        scores = np.where(place <= rows, scores, -np.inf)
        if loop.skip_last_tile:
            ends = np.minimum((rows // tile + 1) * tile, L)
            visible = np.maximum(ends // tile, 1) * tile
            scores = np.where(np.arange(S) < visible, scores, -np.inf)
    # An initial maximum of 0 shows only where exp underflows, as in float32.
    return scores.astype(np.float32), value.astype(np.float32)


def _run(
    scores: np.ndarray, value: np.ndarray, tile: int, loop: Loop
) -> np.ndarray:
    rows = (*scores.shape[:-1], 1)
    row_max = np.full(rows, loop.first_max, np.float32)
    row_sum = np.zeros(rows, np.float32)
    acc = np.zeros((*scores.shape[:-1], value.shape[-1]))
    averages = []
    for start in range(0, scores.shape[-1], tile):
        part = scores[..., start : start + tile]
        values = value[..., start : start + tile, :]
        tile_max = part.max(-1, keepdims=True)
        new_max = np.maximum(row_max, tile_max)
        safe = new_max
        if not loop.empty_tile_is_nan:
            safe = np.where(np.isinf(new_max), 0.0, new_max)
        factor = np.exp(row_max - safe)
        base = np.where(np.isinf(tile_max), 0.0, tile_max)
        weights = np.exp(part - (base if loop.own_max else safe))
        if loop.average_tiles:
            total = weights.sum(-1, keepdims=True)
            averages.append((weights @ values) / np.where(total, total, 1))
        acc_factor = 1 / factor if loop.inverse else factor
        if loop.inverse:
            acc_factor = np.where(np.isinf(acc_factor), 1.0, acc_factor)
        row_sum = row_sum * (factor if loop.rescale_sum else 1)
        row_sum = row_sum + weights.sum(-1, keepdims=True)
        acc = acc * (acc_factor if loop.rescale_acc else 1) + weights @ values
        row_max = new_max
        if loop.divide_every_tile:
            acc = acc / np.where(row_sum == 0, 1, row_sum)
    if loop.divide_every_tile:
        return acc
    if loop.average_tiles:
        return np.mean(averages, axis=0) if averages else acc
    if loop.empty_tile_is_nan:
        return acc / row_sum
    return acc / np.where(row_sum == 0, 1, row_sum)


_LOOPS: tuple[tuple[str, Loop], ...] = (
    ("online-sum-not-rescaled", Loop(rescale_sum=False)),
    ("online-acc-not-rescaled", Loop(rescale_acc=False)),
    ("online-neither-rescaled", Loop(rescale_sum=False, rescale_acc=False)),
    ("online-inverse-rescale", Loop(inverse=True)),
    ("online-initial-max-zero", Loop(first_max=0.0)),
    ("online-first-tile-masked-nan", Loop(empty_tile_is_nan=True)),
    ("online-tail-dropped", Loop(drop_tail=True)),
    ("online-tail-dropped", Loop(drop_tail=True, keep_first=True)),
    ("online-tail-unmasked", Loop(pad_tail=True)),
    ("online-last-tile-max-only", Loop(own_max=True)),
    ("split-merge-averaged", Loop(average_tiles=True)),
    ("online-causal-tile-skipped-wrongly", Loop(skip_last_tile=True)),
    ("online-causal-not-offset", Loop(triangle_per_tile=True)),
    ("online-mask-not-offset", Loop(mask_per_tile=True)),
    ("online-divided-every-tile", Loop(divide_every_tile=True)),
)

#: (mistake, its output on a case) for every loop and width of a tile.
TILED: tuple[tuple[str, Callable[[Case], np.ndarray | None]], ...] = tuple(
    (name, partial(tiled_output, tile=tile, loop=loop))
    for name, loop in _LOOPS
    for tile in TILES
    # The average of single keys is the mean of the values: no tile did it.
    if not (loop.average_tiles and tile == 1)
)
