"""What does the way back look like from tile to tile, right and wrong?

Runs the loop of `flash_backward` and the wrong loops of
`flash_backward_slips`, records the kernels of this book for the traffic,
holds everything against the float64 reference, and returns it all as data for
the figure "flash theatre, backward". Nothing in the data is computed in any
other way.

Source: Dao 2023, "FlashAttention-2", section 3.1.2, algorithm 2.
Letters: B batch, H heads, L queries, S keys, D head width.
"""

import functools
from typing import Any, NamedTuple

import numpy as np
import torch

from attention_lab import examples
from attention_lab.error_bound import gradient_error_bound
from attention_lab.gpu.backward_traffic import (
    flash_backward_traffic,
    plain_backward_traffic,
)
from attention_lab.reference import attention_gradients_reference
from attention_lab.steps.flash_backward import GradientStep, flash_backward
from attention_lab.steps.flash_backward_slips import (
    BACKWARD_SLIPS,
    flash_backward_with_slip,
)
from attention_lab.steps.flash_forward import flash_forward
from attention_lab.steps.flash_theatre import DECIMALS, distance, listed
from attention_lab.steps.recorded import (
    numbers_moved,
    numbers_moved_so_far,
    record_flash_backward,
    record_plain_backward,
)
from attention_lab.steps.scaled_dot_product import attention_weights

SCHEMA = "flash_theatre_backward.v1"
D = 3
#: What a recording calls the parts of a `GradientStep`.
PARTS = {
    "scores": "scores",
    "weights": "weights",
    "d_weights": "d_weights",
    "d_scores": "d_scores",
    "dq_sum": "query_sum",
    "dk": "key_grad",
    "dv": "value_grad",
}
#: Arrays of the plain kernels that have a number for every query and key.
SQUARE = ("scores_BHLS", "weights_BHLS", "d_weights_BHLS", "d_scores_BHLS")


class BackwardSetting(NamedTuple):
    """What a reader may choose: sizes, tiles, mask; and the slips it shows."""

    name: str
    L: int = 12
    S: int = 12
    TILE_L: int = 4
    TILE_S: int = 4
    is_causal: bool = False
    slips: tuple[str, ...] = ()


BACKWARD_SETTINGS = (
    BackwardSetting(
        "12 × 12, tiles 4 × 4",
        slips=(
            "row_dot_lost",
            "scale_lost",
            "dk_transposed",
            "scores_for_weights",
            "max_for_lse",
        ),
    ),
    BackwardSetting(
        "13 × 13, ragged tiles 4 × 4, causal",
        L=13,
        S=13,
        is_causal=True,
        slips=("causal_ignored",),
    ),
    BackwardSetting("12 × 12, tiles 6 × 6", TILE_L=6, TILE_S=6),
    BackwardSetting("11 × 10, ragged tiles 4 × 3", L=11, S=10, TILE_S=3),
)


class _Inputs(NamedTuple):
    """What the backward pass of one setting gets, as NumPy arrays."""

    out_grad: np.ndarray
    q: np.ndarray
    k: np.ndarray
    v: np.ndarray
    out: np.ndarray
    lse: np.ndarray


def record_theatre_backward(
    settings: tuple[BackwardSetting, ...] = BACKWARD_SETTINGS, *, seed: int = 0
) -> dict[str, Any]:
    """Run every setting, right and with its slips; return the data.

    Parameters
    ----------
    settings : which runs to make. Each gives one right run and one per slip.
    seed : of the normal queries, keys and values; head width 3, one head. The
        gradient of the output takes the seed after it.

    Returns
    -------
    Plain dictionaries, lists and numbers, ready for JSON:

    schema, seed, D, dtype, decimals : "flash_theatre_backward.v1", and how it
        was made.
    slips : for each slip its `name` and what it `says`.
    runs : one per setting and slip, the right run of a setting first:

        name, L, S, TILE_L, TILE_S, is_causal : the setting
        slip : which one, or None for the right loop
        tiles : the visited tiles in order, [tile row, tile column]
        scores, weights, d_weights, d_scores : for each visited tile one list,
            rows first; None stands for −∞
        dq_sum, dk, dv : for each visited tile what its queries and its keys
            have collected when it is done; `dq_sum` lacks the scale
        lse, row_dot, dq : L, L and L·D numbers: what the forward pass left,
            the row dots, and dQ at the end
        dq_error, dk_error, dv_error : distance to the float64 reference; None
            if infinite
        dq_bound, dk_bound, dv_bound : `gradient_error_bound`'s limits
        traffic : right runs only, counted in a recording of the kernels, in
            numbers of 4 bytes: `before` by the row dot and dQ kernels, which
            run first, `so_far` with what the kernel for dK and dV moved after
            each visited tile, the `total`, the `formula`'s total, the five
            plain kernels' total `naive` and theirs by formula
            `naive_formula`, `square` of it for weights and their gradients,
            `hazards` found, and the kernels' `source_sha256`.

        A run with a slip holds only what differs from the right run; the rest
        is that run's.

    Numbers of tiles and results are rounded to 4 decimals; errors and bounds
    are not rounded.

    Raises
    ------
    ValueError
        If there is no setting, or a slip that is not one of `BACKWARD_SLIPS`.
    """
    if not settings:
        raise ValueError("settings is empty: there is nothing to run")
    runs = []
    for setting in settings:
        for slip in setting.slips:
            if slip not in BACKWARD_SLIPS:
                raise ValueError(
                    f"{setting.name!r} asks for the slip {slip!r}; there are "
                    f"{', '.join(BACKWARD_SLIPS)}"
                )
        right = _run(setting, None, seed)
        runs.append(right)
        for slip in setting.slips:
            wrong = _run(setting, slip, seed)
            kept = ("name", "slip", "traffic")
            runs.append(
                {
                    part: x
                    for part, x in wrong.items()
                    if part in kept or x != right[part]
                }
            )
    used = {run["slip"] for run in runs}
    return {
        "schema": SCHEMA,
        "seed": seed,
        "D": D,
        "dtype": "float32",
        "decimals": DECIMALS,
        "slips": {
            slip: {"name": known.name, "says": known.says}
            for slip, known in BACKWARD_SLIPS.items()
            if slip in used
        },
        "runs": runs,
    }


@functools.cache
def backward_inputs(setting: BackwardSetting, seed: int = 0) -> _Inputs:
    """Return the gradient of the output, the inputs, and what forward left."""
    L, S = setting.L, setting.S
    q, k, v = examples.example_qkv(1, 1, L, S, D, seed=seed)
    rng = np.random.default_rng(seed + 1)
    out_grad = rng.standard_normal(q.shape).astype(q.dtype)
    tensors = (torch.from_numpy(x) for x in (q, k, v))
    out, lse = flash_forward(*tensors, is_causal=setting.is_causal)
    return _Inputs(out_grad, q, k, v, out.numpy(), lse.numpy())


def _run(
    setting: BackwardSetting, slip: str | None, seed: int
) -> dict[str, Any]:
    """Make one run and hold it against the reference."""
    inputs = backward_inputs(setting, seed)
    arrays = [torch.from_numpy(x) for x in inputs]
    trace: list[GradientStep] = []
    tiles = {"TILE_L": setting.TILE_L, "TILE_S": setting.TILE_S}
    options = {"is_causal": setting.is_causal, **tiles, "trace": trace}
    if slip is None:
        gradients = flash_backward(*arrays, **options)
    else:
        known = BACKWARD_SLIPS[slip]
        gradients = flash_backward_with_slip(known, *arrays, **options)
    exact, bounds = _truth(setting, seed)
    names = ("dq", "dk", "dv")
    each = zip(names, gradients, exact, bounds, strict=True)
    checked = {}
    for name, ours, right, bound in each:
        checked[f"{name}_error"] = distance(ours, right)
        checked[f"{name}_bound"] = bound
    sizes = ("L", "S", "TILE_L", "TILE_S", "is_causal")
    return {
        "name": setting.name,
        **{name: getattr(setting, name) for name in sizes},
        "slip": slip,
        "tiles": [[step.tile_row, step.tile_col] for step in trace],
        **{
            part: [listed(getattr(step, field)) for step in trace]
            for part, field in PARTS.items()
        },
        "lse": listed(inputs.lse),
        "row_dot": listed((inputs.out_grad * inputs.out).sum(-1)),
        "dq": listed(gradients.query_BHLD),
        **checked,
        "traffic": None if slip else _traffic(setting, seed),
    }


@functools.cache
def _truth(setting: BackwardSetting, seed: int) -> tuple[Any, Any]:
    """Return the exact gradients and how far right ones may be off."""
    given = backward_inputs(setting, seed)[:4]
    mask = {"is_causal": setting.is_causal}
    return (
        attention_gradients_reference(*given, **mask),
        gradient_error_bound(*given, **mask),
    )


def _traffic(setting: BackwardSetting, seed: int) -> dict[str, Any]:
    """Record the flash kernels, and count what they moved after each tile."""
    inputs = backward_inputs(setting, seed)
    L, S, TILE_L, TILE_S, is_causal = setting[1:6]
    tiles = {"TILE_L": TILE_L, "TILE_S": TILE_S}
    recordings, _ = record_flash_backward(*inputs, is_causal, **tiles)
    formula = flash_backward_traffic(L, S, D, **tiles, causal=is_causal)
    before = sum(numbers_moved(recordings[:2]).values())
    so_far, last = numbers_moved_so_far(recordings[2].events)
    moved = _plain_moved(L, S)
    return {
        "before": before,
        "so_far": [before + many for many in so_far],
        "total": before + last,
        "formula": _total(formula),
        "naive": sum(moved.values()),
        "naive_formula": _total(plain_backward_traffic(L, S, D)),
        "square": sum(moved[array] for array in SQUARE),
        "hazards": sum(len(run.hazards) for run in recordings),
        "source_sha256": [run.source_sha256 for run in recordings],
    }


def _total(formula: dict[str, Any]) -> int:
    """Return all reads and writes of a formula."""
    return sum(sum(map(sum, arrays.values())) for arrays in formula.values())


@functools.cache
def _plain_moved(L: int, S: int) -> dict[str, int]:
    """Record the plain kernels; return the numbers moved, by array."""
    q, k, v = examples.example_qkv(1, 1, L, S, D)
    weights = attention_weights(*map(torch.from_numpy, (q, k, v)))
    recordings, _ = record_plain_backward(q, q, k, v, weights.numpy())
    return numbers_moved(recordings)
