"""The trace of a running softmax: read, completed and held to its rules."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_lab.axes import check_tile
from attention_lab.figures.data import (
    as_array,
    as_number,
    as_sequence,
    check_index,
    check_same_size,
    check_size,
    read_field,
)

MOST_TILES, MOST_KEYS_PER_TILE = 12, 8


@dataclass(frozen=True)
class Frame:
    """The state after one tile, and what it was before."""

    scores: np.ndarray
    first_key: int
    old_max: float
    row_max: float
    rescale: float
    old_sum: float
    row_sum: float
    acc: np.ndarray

    @property
    def added(self) -> float:
        """What the tile's own weights add to the sum."""
        if math.isinf(self.row_max):
            return 0.0
        with np.errstate(over="ignore"):  # where the maximum is wrong
            return float(np.exp(self.scores.astype(float) - self.row_max).sum())


def trace_of_row(
    scores_LS: Any, states: Sequence[Any], TILE_S: int, *, row: int = 0
) -> list[dict[str, Any]]:
    """Return the trace of one row from the states after each tile.

    Parameters
    ----------
    scores_LS : the scores that were streamed.
    states : after each tile the `row_max` (L), `row_sum` (L) and `acc` (L, D)
        of all rows, as `online_softmax.stream` returns them.
    TILE_S : keys per tile.
    row : which row. Its α is e^(old max − max): a state does not record the
        factor used, but a wrong one shows in the sum.

    Raises
    ------
    ShapeMismatch
        If the number of states is not that of the tiles, or a state has not
        one row per row of the scores.
    ValueError
        If `states` is no list, `row` is outside its axis, the data are empty
        or hold NaN, or a maximum shrinks so far that α is infinite.

    Examples
    --------
    >>> state = {"row_max": [1.0], "row_sum": [2.0], "acc": [[3.0]]}
    >>> trace_of_row([[1.0, 1.0]], [state], 2)[0]["rescale"]
    0.0
    """
    scores = as_array("scores_LS", scores_LS, axes="LS", allow_minus_inf=True)
    row = check_index("row", row, "L", scores.shape[0])
    starts = range(0, scores.shape[1], check_tile("TILE_S", TILE_S))
    states = as_sequence("states", states, "a list of states, one per tile")
    check_same_size("states", len(states), "tiles", "scores_LS", len(starts))
    trace, old_max = [], -math.inf
    for number, start in enumerate(starts):
        place = f"states[{number}]"
        step: dict[str, Any] = {"scores": scores[row, start : start + TILE_S]}
        for name in ("row_max", "row_sum", "acc"):
            part = as_array(
                f"{place}.{name}",
                read_field(states[number], name, place),
                axes="LD" if name == "acc" else "L",
                allow_minus_inf=name == "row_max",
            )
            check_same_size(
                f"{place}.{name}", part.shape[0], "L", "scores_LS",
                scores.shape[0],
            )  # fmt: skip
            step[name] = part[row]
        new_max = float(step["row_max"])
        step["rescale"] = as_number(
            f"{place}: α = e^(old max − max)", _factor(old_max, new_max)
        )
        old_max = new_max
        trace.append(step)
    return trace


def read_frames(trace: Sequence[Any]) -> list[Frame]:
    """Return the trace as frames, each with the state before it.

    Raises
    ------
    ValueError
        If the trace is no list, empty, too long, incomplete, or holds NaN.
    """
    trace = as_sequence("trace", trace, "a list of steps, one per tile")
    if len(trace) == 0:
        raise ValueError("trace is empty: there is no tile to draw")
    check_size("trace", "tiles", len(trace), MOST_TILES)
    frames: list[Frame] = []
    old_max, old_sum, first = -math.inf, 0.0, 0
    for number, step in enumerate(trace):
        place = f"trace[{number}]"
        scores = as_array(
            f"{place}.scores",
            read_field(step, "scores", place),
            axes="S",
            allow_minus_inf=True,
        )
        check_size(f"{place}.scores", "S", scores.size, MOST_KEYS_PER_TILE)
        acc = as_array(f"{place}.acc", read_field(step, "acc", place), axes="D")
        if frames:
            check_same_size(
                f"{place}.acc", acc.size, "D", "trace[0].acc",
                frames[0].acc.size,
            )  # fmt: skip
        row_max, row_sum, rescale = (
            as_number(
                f"{place}.{name}",
                read_field(step, name, place),
                allow_minus_inf=name == "row_max",
            )
            for name in ("row_max", "row_sum", "rescale")
        )
        frames.append(
            Frame(
                scores, first, old_max, row_max, rescale, old_sum, row_sum, acc
            )
        )
        old_max, old_sum, first = row_max, row_sum, first + scores.size
    return frames


def largest_gap(frames: Sequence[Frame]) -> tuple[float, str]:
    """Return how far max, α or sum is from what the scores say, and where.

    max is the largest score so far, α = e^(old max − max), and
    sum = α · old sum + Σ e^(score − max).

    Raises
    ------
    ValueError
        If the distance is not finite; names the step and the quantity.
    """
    worst, where = 0.0, ""
    for number, frame in enumerate(frames, start=1):
        largest = max(frame.old_max, float(frame.scores.max()))
        told = {"sum": frame.rescale * frame.old_sum + frame.added}
        found = {"sum": frame.row_sum}
        if largest != frame.row_max:
            told["max"], found["max"] = largest, frame.row_max
        if frame.old_sum != 0:  # else there is nothing to scale
            told["α"] = _factor(frame.old_max, frame.row_max)
            found["α"] = frame.rescale
        for name, value in told.items():
            gap = as_number(
                f"trace[{number - 1}]: the distance of {name} to what the "
                "scores say",
                abs(found[name] - value),
            )
            if gap > worst:
                worst, where = gap, f" ({name}, tile {number})"
    return worst, where


def _factor(old_max: float, new_max: float) -> float:
    """Return α = e^(old max − max): 0 after nothing, ∞ where it overflows."""
    if math.isinf(old_max):
        return 0.0
    with np.errstate(over="ignore"):
        return float(np.exp(old_max - new_max))
