"""The trace of a running softmax: read, completed and held to its rules."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_lab.axes import check_tile
from attention_lab.figures.data import (
    as_array,
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
        If the number of states is not that of the tiles.
    ValueError
        If `row` is outside its axis, or the data are empty or hold NaN.

    Examples
    --------
    >>> state = {"row_max": [1.0], "row_sum": [2.0], "acc": [[3.0]]}
    >>> trace_of_row([[1.0, 1.0]], [state], 2)[0]["rescale"]
    0.0
    """
    scores = as_array("scores_LS", scores_LS, ndim=2, allow_minus_inf=True)
    row = check_index("row", row, "L", scores.shape[0])
    starts = range(0, scores.shape[1], check_tile("TILE_S", TILE_S))
    check_same_size("states", len(states), "tiles", "scores_LS", len(starts))
    trace, old_max = [], -math.inf
    for number, start in enumerate(starts):
        place = f"states[{number}]"
        step: dict[str, Any] = {"scores": scores[row, start : start + TILE_S]}
        for name in ("row_max", "row_sum", "acc"):
            part = as_array(
                f"{place}.{name}",
                read_field(states[number], name, place),
                ndim=2 if name == "acc" else 1,
                allow_minus_inf=name == "row_max",
            )
            step[name] = part[check_index("row", row, "L", part.shape[0])]
        new_max = float(step["row_max"])
        grew_from_nothing = math.isinf(old_max)
        step["rescale"] = (
            0.0 if grew_from_nothing else math.exp(old_max - new_max)
        )
        old_max = new_max
        trace.append(step)
    return trace


def read_frames(trace: Sequence[Any]) -> list[Frame]:
    """Return the trace as frames, each with the state before it.

    Raises
    ------
    ValueError
        If the trace is empty, too long, incomplete, or holds NaN.
    """
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
            ndim=1,
            allow_minus_inf=True,
        )
        check_size(f"{place}.scores", "S", scores.size, MOST_KEYS_PER_TILE)
        acc = as_array(f"{place}.acc", read_field(step, "acc", place), ndim=1)
        if frames:
            check_same_size(
                f"{place}.acc", acc.size, "D", "trace[0].acc",
                frames[0].acc.size,
            )  # fmt: skip
        row_max, row_sum, rescale = (
            _number(place, name, read_field(step, name, place))
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
    """
    worst, where = 0.0, ""
    for number, frame in enumerate(frames, start=1):
        largest = max(frame.old_max, float(frame.scores.max()))
        told = {"sum": frame.rescale * frame.old_sum + frame.added}
        found = {"sum": frame.row_sum}
        if largest != frame.row_max:
            told["max"], found["max"] = largest, frame.row_max
        if frame.old_sum != 0:  # else there is nothing to scale
            told["α"] = math.exp(frame.old_max - frame.row_max)
            found["α"] = frame.rescale
        for name, value in told.items():
            gap = abs(found[name] - value)
            if gap > worst:
                worst, where = gap, f" ({name}, tile {number})"
    return worst, where


def _number(place: str, name: str, value: Any) -> float:
    """Return one number of a step; only the maximum may be −∞."""
    array = as_array(
        f"{place}.{name}", value, allow_minus_inf=name == "row_max"
    )
    if array.size != 1:
        raise ValueError(
            f"{place}.{name} must be one number, not {array.shape}"
        )
    return float(array.reshape(()))
