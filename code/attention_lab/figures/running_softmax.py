"""Running softmax: one frame per tile of scores, read once and let go."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from attention_lab.figures.data import (
    as_array,
    as_number,
    check_same_size,
)
from attention_lab.figures.digits import (
    cell_text,
    decimal_text,
    error_text,
    fixed_text,
)
from attention_lab.figures.marks import Box, Label, Mark, Stroke
from attention_lab.figures.palette import (
    MUTED,
    value_color,
)
from attention_lab.figures.parts import cell, hatch, heading, key_span, note
from attention_lab.figures.picture import Panel, Picture, Table, Verdict
from attention_lab.figures.running_trace import (
    MOST_KEYS_PER_TILE,
    Frame,
    largest_gap,
    read_frames,
)

MOST_CHANNELS = 6
_WIDTH, _BARS_TOP, _BARS_HEIGHT = 232, 52, 84
_BLUE, _AMBER = value_color(-0.6), value_color(0.5)


def draw_running_softmax(
    trace: Sequence[Any],
    *,
    output: Any,
    reference: Any,
    tolerance: float,
    provenance: str,
    title: str = "Softmax over scores that arrive tile by tile",
) -> Picture:
    """Draw the running maximum, sum and mix of one row as a comic.

    Parameters
    ----------
    trace : per tile a mapping or an object with `scores` (1-D), `row_max`,
        `row_sum` and `acc` (1-D) after the tile, and `rescale`: what the old
        sum and `acc` were multiplied by. `trace_of_row` makes one.
    output : the final row.
    reference : what it should be.
    tolerance : largest error allowed, for the output and for the state.
    provenance : where the trace was recorded.
    title : heading of the picture.

    Returns
    -------
    One panel per tile.

    Raises
    ------
    ShapeMismatch
        If `output`, `reference` and the tiles' `acc` differ in size.
    ValueError
        If the trace is no list, empty, too long, incomplete, holds NaN or
        differs from its own scores without limit, if `tolerance` is not
        finite and at least 0, or a text is missing.

    Examples
    --------
    >>> tile = {"scores": [0.0, 0.0], "row_max": 0.0, "row_sum": 2.0,
    ...         "rescale": 0.0, "acc": [3.0]}
    >>> draw_running_softmax([tile], output=[1.5], reference=[1.5],
    ...                      tolerance=1e-6, provenance="by hand").passed
    True
    """
    frames = read_frames(trace)
    tolerance = as_number("tolerance", tolerance, least=0)
    final = as_array("output", output, axes="D").astype(float)
    wanted = as_array("reference", reference, axes="D").astype(float)
    check_same_size("output", final.size, "D", "reference", wanted.size)
    check_same_size("output", final.size, "D", "trace", frames[0].acc.size)
    with np.errstate(over="ignore"):  # as_number refuses the infinity
        error = np.max(np.abs(final - wanted))
    error = as_number("the distance of output to reference", error)
    gap, where = largest_gap(frames)
    grown = sum(f.row_max > f.old_max for f in frames[1:])
    keys = sum(frame.scores.size for frame in frames)
    held = f"≤ {error_text(tolerance)}"
    if grown:
        often = {1: "once", 2: "twice"}.get(grown, f"{grown} times")
        story = (
            f"The maximum grew {often} after the first tile; each time, what "
            "had been summed was scaled down by α."
        )
    else:
        story = (
            "The maximum never grew after the first tile, so nothing had to "
            "be scaled down."
        )
    return Picture(
        layout_running_softmax(frames),
        title,
        f"{len(frames)} frames, one per tile of scores, in the order read.",
        f"{story} Each of the {keys} scores was read once.",
        [
            Verdict(
                "final row against the reference",
                error <= tolerance,
                f"off by {error_text(error)}",
                held,
                provenance,
            ),
            Verdict(
                "in every frame, max, α and sum follow from the scores",
                gap <= tolerance,
                f"off by {error_text(gap)}{where}",
                held,
                provenance,
            ),
        ],
        _table(frames),
    )


def layout_running_softmax(frames: Sequence[Frame]) -> list[Panel]:
    """Return one panel per frame, all with the same scale."""
    scores = np.concatenate([frame.scores for frame in frames]).astype(float)
    finite = scores[np.isfinite(scores)]
    low = min(0.0, *finite.tolist()) if finite.size else 0.0
    high = max(0.0, *finite.tolist()) if finite.size else 0.0
    if low == high:
        high = low + 1.0
    return [
        _frame(frame, number, len(frames), scores.size, low, high)
        for number, frame in enumerate(frames, start=1)
    ]


def _frame(
    frame: Frame, number: int, count: int, keys: int, low: float, high: float
) -> Panel:
    """Lay out one frame: the keys read, the bars, the ledger."""
    span = key_span(frame.first_key, frame.scores.size)
    marks: list[Mark] = [heading(0, 8, f"tile {number} of {count}")]
    marks.append(note(_WIDTH - 2, 8, span, anchor="end"))
    marks += _strip(frame, keys)
    marks += _bars(frame, low, high)
    marks += _ledger(frame)
    return Panel.around(
        marks,
        f"Tile {number} of {count}, {span}: max {decimal_text(frame.row_max)}, "
        f"rescale {decimal_text(frame.rescale)}, "
        f"sum {decimal_text(frame.row_sum)}.",
    )


def _strip(frame: Frame, keys: int) -> list[Mark]:
    """Draw one small box per key; the tile's own are filled."""
    side = min(14.0, (_WIDTH - 4) / keys)
    marks: list[Mark] = []
    for key in range(keys):
        inside = 0 <= key - frame.first_key < frame.scores.size
        fill = _AMBER if inside else None
        marks.append(
            Box(1 + key * side, 24, side, 10, fill=fill, edge_width=0.6)
        )
    return marks


def _bars(frame: Frame, low: float, high: float) -> list[Mark]:
    """Draw the tile's scores as bars from 0, with the maximum as a line."""
    right = _WIDTH - 62
    pitch = right / MOST_KEYS_PER_TILE
    pitch = min(right / frame.scores.size, max(pitch, 34))
    scale = _BARS_HEIGHT / (high - low)
    zero = _BARS_TOP + high * scale
    marks: list[Mark] = []
    for j, score in enumerate(frame.scores.tolist()):
        x = j * pitch + 2
        if math.isinf(score):
            marks.append(hatch(x, _BARS_TOP, pitch - 4, _BARS_HEIGHT))
        else:
            top = min(zero, zero - score * scale)
            fill = _AMBER if score >= 0 else _BLUE
            marks.append(
                Box(
                    x, top, pitch - 4, abs(score) * scale,
                    fill=fill, edge=None,
                )
            )  # fmt: skip
        marks.append(
            Label(
                x + (pitch - 4) / 2,
                _BARS_TOP + _BARS_HEIGHT + 12,
                cell_text(score),
                11,
            )
        )
    marks.append(Stroke((((0, zero), (right, zero)),), width=0.8))
    if not math.isinf(frame.old_max) and frame.old_max != frame.row_max:
        y = zero - frame.old_max * scale
        line = ((0, y), (right, y))
        marks.append(Stroke((line,), color=MUTED, width=1.2, dash=(3, 3)))
    if not math.isinf(frame.row_max):
        y = zero - frame.row_max * scale
        marks.append(Stroke((((0, y), (right, y)),), width=2))
        text = f"max {fixed_text(frame.row_max)}"
        marks.append(Label(right + 5, y, text, 11, anchor="start", bold=True))
    return marks


def _ledger(frame: Frame) -> list[Mark]:
    """Write the frame's arithmetic, one quantity per line."""
    old_max, new_max = fixed_text(frame.old_max), fixed_text(frame.row_max)
    alpha = fixed_text(frame.rescale)
    grew = frame.row_max > frame.old_max
    lines = (
        ("max", f"{old_max} → {new_max}" if grew else f"{new_max}, as before"),
        ("α", f"e^({old_max} − {_wrapped(new_max)}) = {alpha}"),
        (
            "sum",
            f"{alpha}·{fixed_text(frame.old_sum)} + "
            f"{fixed_text(frame.added)} = {fixed_text(frame.row_sum)}",
        ),
    )
    y = _BARS_TOP + _BARS_HEIGHT + 38.0
    marks: list[Mark] = []
    for name, text in lines:
        marks.append(Label(0, y, name, 12, anchor="start", bold=True))
        marks.append(Label(36, y, text, 11, anchor="start", mono=True))
        y += 19
    marks.append(Label(0, y + 4, "acc", 12, anchor="start", bold=True))
    scale = float(np.max(np.abs(frame.acc))) or 1.0
    for j, value in enumerate(frame.acc[:MOST_CHANNELS].tolist()):
        fill = value_color(value / scale)
        x = 36 + 29 * j
        marks += cell(x, y - 6, 29, 20, fill, cell_text(value), size=10)
    if frame.acc.size > MOST_CHANNELS:
        x = 40 + 29 * MOST_CHANNELS
        marks.append(Label(x, y + 4, "…", 11, anchor="start", color=MUTED))
    return marks


def _wrapped(text: str) -> str:
    """Put a negative number in brackets."""
    return f"({text})" if text.startswith("−") else text


def _table(frames: Sequence[Frame]) -> Table:
    return Table(
        "The trace as numbers",
        ("tile", "scores", "max", "α", "sum", "acc"),
        tuple(
            (
                str(number),
                "  ".join(decimal_text(s, 3) for s in frame.scores),
                decimal_text(frame.row_max, 4),
                decimal_text(frame.rescale, 4),
                decimal_text(frame.row_sum, 4),
                "  ".join(decimal_text(a, 3) for a in frame.acc),
            )
            for number, frame in enumerate(frames, start=1)
        ),
    )
