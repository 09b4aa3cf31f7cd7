"""What does a flash run look like from tile to tile, right and wrong?

Runs the loop of `flash_forward` and the wrong loops of `flash_mistakes`,
records the kernels of this book for the traffic, holds everything against the
float64 reference, and returns it all as data for the figure "flash theatre".
Nothing in the data is computed in any other way.

Source: Dao et al. 2022, "FlashAttention", algorithm 1 and theorem 2 (traffic).
Letters: B batch, H heads, L queries, S keys, D head width.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np
import torch

from attention_lab import examples
from attention_lab.error_bound import error_bound, lse_error_bound
from attention_lab.gpu.traffic import (
    flash_forward_traffic,
    naive_forward_traffic,
)
from attention_lab.reference import attention_reference
from attention_lab.steps import flash_forward as flash
from attention_lab.steps.flash_forward import TileStep
from attention_lab.steps.flash_mistakes import SLIPS, flash_with_slip
from attention_lab.steps.recorded import (
    numbers_moved,
    numbers_moved_so_far,
    record_flash,
    record_three_kernels,
)

SCHEMA = "flash_theatre.v1"
#: Numbers of a state are kept to this many decimals.
DECIMALS = 4
D = 8
#: A product of these two in one channel puts every score near −120.
_FAR = math.sqrt(120 * math.sqrt(D))


class Setting(NamedTuple):
    """What a reader may choose: sizes, tiles, mask; and the slips it shows."""

    name: str
    L: int = 16
    S: int = 16
    TILE_L: int = 4
    TILE_S: int = 4
    is_causal: bool = False
    is_far: bool = False
    slips: tuple[str, ...] = ()


SETTINGS = (
    Setting(
        "16 × 16, tiles 4 × 4",
        slips=("acc_not_rescaled", "sum_not_rescaled"),
    ),
    Setting("16 × 16, tiles 4 × 4, causal", is_causal=True),
    Setting("16 × 16, tiles 8 × 4", TILE_L=8),
    Setting("16 × 16, tiles 8 × 4, causal", TILE_L=8, is_causal=True),
    Setting("16 × 16, tiles 4 × 8", TILE_S=8),
    Setting("16 × 16, tiles 4 × 8, causal", TILE_S=8, is_causal=True),
    Setting(
        "14 × 13, ragged tiles 4 × 4",
        L=14,
        S=13,
        slips=("tail_unmasked", "stale_tile"),
    ),
    Setting("14 × 13, ragged tiles 4 × 4, causal", 14, 13, is_causal=True),
    Setting(
        "16 × 16, tiles 4 × 4, scores near −120",
        is_far=True,
        slips=("max_starts_at_zero",),
    ),
)


def record_theatre(
    settings: tuple[Setting, ...] = SETTINGS, *, seed: int = 0
) -> dict[str, Any]:
    """Run every setting, right and with its slips; return the data.

    Parameters
    ----------
    settings : which runs to make. Each gives one right run and one per slip.
    seed : of the normal queries, keys and values; head width 8, one head.

    Returns
    -------
    Plain dictionaries, lists and numbers, ready for JSON:

    schema, seed, D, dtype, decimals : "flash_theatre.v1", and how it was made.
    slips : for each slip its `name` and what it `says`.
    runs : one per setting and slip, the right run of a setting first:

        name, L, S, TILE_L, TILE_S, is_causal : the setting
        slip : which one, or None for the right loop
        tiles : the visited tiles in order, [tile row, tile column]
        scores, row_max, rescale, row_sum, acc : for each visited tile one
            list, rows first; None stands for −∞. A state is the one after
            the tile, and `rescale` is the α that belongs to the maxima.
        out, lse : the result, L·D and L numbers; None stands for −∞
        output_error, lse_error : distance to the float64 reference; None if
            infinite
        output_bound, lse_bound : `error_bound`'s limits for this input
        traffic : right runs only, counted in a recording of the kernels, in
            numbers of 4 bytes: `so_far` after each visited tile, the `total`
            with the results stored, the `formula`'s total, the three naive
            kernels' total `naive` and theirs by formula `naive_formula`,
            `square` of it for scores and weights, `hazards` found, and the
            kernel's `source_sha256`.

    Numbers of scores, states and results are rounded to 4 decimals; errors and
    bounds are not rounded.

    Raises
    ------
    ValueError
        If there is no setting, or a slip that is not one of `SLIPS`.
    """
    if not settings:
        raise ValueError("settings is empty: there is nothing to run")
    runs = []
    for setting in settings:
        for slip in setting.slips:
            if slip not in SLIPS:
                raise ValueError(
                    f"{setting.name!r} asks for the slip {slip!r}; there are "
                    f"{', '.join(SLIPS)}"
                )
        runs += [_run(setting, slip, seed) for slip in (None, *setting.slips)]
    used = {run["slip"] for run in runs}
    return {
        "schema": SCHEMA,
        "seed": seed,
        "D": D,
        "dtype": "float32",
        "decimals": DECIMALS,
        "slips": {
            slip: {"name": SLIPS[slip].name, "says": SLIPS[slip].says}
            for slip in SLIPS
            if slip in used
        },
        "runs": runs,
    }


def theatre_inputs(setting: Setting, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Return the queries, keys and values of a setting, one head."""
    q, k, v = examples.example_qkv(1, 1, setting.L, setting.S, D, seed=seed)
    if setting.is_far:
        q[..., -1], k[..., -1] = _FAR, -_FAR
    return q, k, v


def _run(setting: Setting, slip: str | None, seed: int) -> dict[str, Any]:
    """Make one run and hold it against the reference."""
    arrays = theatre_inputs(setting, seed)
    q, k, v = (torch.from_numpy(x) for x in arrays)
    trace: list[TileStep] = []
    tiles = {"TILE_L": setting.TILE_L, "TILE_S": setting.TILE_S}
    options = {"is_causal": setting.is_causal, **tiles, "trace": trace}
    if slip is None:
        out, lse = flash.flash_forward(q, k, v, **options)
    else:
        out, lse = flash_with_slip(SLIPS[slip], q, k, v, **options)
    exact, bound, lse_bound = _truth(setting, seed)
    sizes = ("L", "S", "TILE_L", "TILE_S", "is_causal")
    return {
        "name": setting.name,
        **{name: getattr(setting, name) for name in sizes},
        "slip": slip,
        "tiles": [[step.tile_row, step.tile_col] for step in trace],
        **{
            name: [listed(getattr(step, name)) for step in trace]
            for name in ("scores", "row_max", "rescale", "row_sum", "acc")
        },
        "out": listed(out),
        "lse": listed(lse),
        "output_error": distance(out, exact.out_BHLD),
        "lse_error": distance(lse, exact.lse_BHL),
        "output_bound": bound,
        "lse_bound": lse_bound,
        "traffic": None if slip else _traffic(setting, seed),
    }


@functools.cache
def _truth(setting: Setting, seed: int) -> tuple[Any, float, float]:
    """Return the reference of a setting and how far a right run may be off."""
    arrays = theatre_inputs(setting, seed)
    mask = {"is_causal": setting.is_causal}
    return (
        attention_reference(*arrays, **mask),
        error_bound(*arrays, **mask),
        lse_error_bound(*arrays, **mask),
    )


def listed(array: Any) -> list[float | None]:
    """Return the numbers of an array in one list, rounded; None for −∞."""
    rounded = np.asarray(array, np.float64).ravel().round(DECIMALS) + 0.0
    return [None if x == -math.inf else x for x in rounded.tolist()]


def distance(result: Any, exact: np.ndarray) -> float | None:
    """Return the largest distance to a reference; None if infinite."""
    off = np.abs(np.asarray(result, np.float64) - exact).max().item()
    return off if math.isfinite(off) else None


def _traffic(setting: Setting, seed: int) -> dict[str, Any]:
    """Record the flash kernel, and count what it moved after each tile."""
    q, k, v = theatre_inputs(setting, seed)
    L, S, TILE_L, TILE_S, is_causal = setting[1:6]
    (recording,) = record_flash(q, k, v, is_causal, TILE_L, TILE_S)
    sizes = {"L": L, "S": S, "D": D, "causal": is_causal}
    formula = flash_forward_traffic(**sizes, TILE_L=TILE_L, TILE_S=TILE_S)
    by_formula = naive_forward_traffic(**sizes)
    moved = _naive_moved(L, S, is_causal)
    so_far, total = numbers_moved_so_far(recording.events)
    return {
        "so_far": so_far,
        "total": total,
        "formula": sum(map(sum, formula.values())),
        "naive": sum(moved.values()),
        "naive_formula": sum(
            sum(map(sum, arrays.values())) for arrays in by_formula.values()
        ),
        "square": moved["scores_BHLS"] + moved["weights_BHLS"],
        "hazards": len(recording.hazards),
        "source_sha256": recording.source_sha256,
    }


@functools.cache
def _naive_moved(L: int, S: int, is_causal: bool) -> dict[str, int]:
    """Record the three naive kernels; return the numbers moved, by array."""
    inputs = examples.example_qkv(1, 1, L, S, D)
    return numbers_moved(record_three_kernels(*inputs, is_causal))
