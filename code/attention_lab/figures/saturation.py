"""Saturation and masks: what large scores and empty rows do to a softmax.

The static layer: scores and weights at four widths, entropy and gradient
against the width, and one empty row with the plain softmax and with ours. The
interactive layer walks through every width and every mask.
"""

from typing import Any

from attention_lab.figures.axis_plot import Axis, Plot
from attention_lab.figures.digits import decimal_text, error_text, weight_text
from attention_lab.figures.live import LiveFigure
from attention_lab.figures.marks import Box, Label, Mark, Stroke, shorten
from attention_lab.figures.palette import (
    AXIS_COLORS,
    CELL_EDGE,
    FAINT,
    MUTED,
    STATE_COLORS,
    weight_color,
)
from attention_lab.figures.parts import axis_text, cell, hatch, heading, note
from attention_lab.figures.picture import Panel, Picture, Table, Verdict
from attention_lab.figures.saturation_data import read_saturation

_KEPT, _DOT = STATE_COLORS["kept"], AXIS_COLORS["D"]
_CELL = 32
#: What is held against what: label, error and bound of a mask.
_AGAINST = (
    ("output against the reference", "output_error", "output_bound"),
    ("PyTorch's output against the reference", "sdpa_error", "output_bound"),
    ("gradients of the values against PyTorch's", "grad_error", "grad_bound"),
)


def draw_saturation(
    recording: Any, *, title: str = "Large scores, and rows without keys"
) -> LiveFigure:
    """Draw what the width of heads and a mask do to a softmax.

    Parameters
    ----------
    recording : what `attention_lab.steps.saturation.record_saturation` returns
        (schema "saturation.v1").
    title : heading of the figure.

    Returns
    -------
    A `LiveFigure`: the scores' spread is held against √D, outputs against the
    reference, and gradients against PyTorch's; those of the book are finite.

    Raises
    ------
    ShapeMismatch
        If a list has not one entry per width, bar, query or key.
    ValueError
        If the recording has another schema, is empty, holds NaN, or is too
        large to draw; names the place and the sizes.
    """
    data = read_saturation(recording)
    scaled, raw = data["runs"]
    widest = data["widths"][-1]
    poisoned = [m for m in data["masks"] if None in m["plain"]["grads"]]
    shown = next((m for m in poisoned if m["empty"]), data["masks"][0])
    shown = next((m for m in poisoned if m["name"].startswith("causal")), shown)
    picture = Picture(
        [
            _multiples(data),
            _curves(
                data,
                "entropy",
                "How many keys share the weight",
                f"mean entropy; even weights: {decimal_text(data['even'])}",
            ),
            _curves(
                data,
                "gradient",
                "What a score can still learn",
                "mean norm of a row's gradient",
            ),
            _empty_row(data, shown),
        ],
        title,
        "Four panels: scores and weights at growing width, entropy, gradient, "
        "and a row without keys.",
        f"At width {widest} raw scores leave an entropy of "
        f"{decimal_text(raw[-1]['entropy'])}, scaled ones "
        f"{decimal_text(scaled[-1]['entropy'])}; and with the plain softmax "
        "one row without keys turns the gradient of every value into NaN, "
        "although the loss does not read that row.",
        _verdicts(data),
        _table(data),
    )
    source = f"{data['dtype']}, seed {data['seed']}"
    state = {
        **data,
        "runs": [
            [{**run, "checked": _checked_run(run, source)} for run in row]
            for row in data["runs"]
        ],
        "masks": [
            {**mask, "checked": _checked_mask(mask, source)}
            for mask in data["masks"]
        ],
    }
    return LiveFigure(picture, state, "saturation")


def _checked_run(run: dict[str, Any], source: str) -> list[dict[str, Any]]:
    """Return what was checked on one width, for the script."""
    off = abs(run["ratio"] - 1)
    return [
        _checked(
            "std, divided by √D if raw, against 1", off, run["tolerance"],
            f"four standard errors; {source}",
        )
    ]  # fmt: skip


def _checked_mask(mask: dict[str, Any], source: str) -> list[dict[str, Any]]:
    """Return what was checked on one mask, for the script."""
    nan = sum(mask["ours"][part].count(None) for part in mask["ours"])
    return [
        _checked(label, mask[error], mask[bound], source)
        for label, error, bound in _AGAINST
    ] + [_checked("NaN in our weights and gradients", nan, 0, source)]


def _checked(
    label: str, off: float, bound: float, source: str
) -> dict[str, Any]:
    return {
        "label": label,
        "passed": bool(off <= bound),
        "value": error_text(off),
        "held": f"≤ {error_text(bound)}; {source}",
    }


def _multiples(data: dict[str, Any]) -> Panel:
    """Return raw scores and the largest weights at up to four widths."""
    raw = data["runs"][1]
    last = len(raw) - 1
    columns = sorted({round(last * part / 3) for part in range(4)})
    marks: list[Mark] = [
        heading(0, 8, "Without the factor 1 ÷ √D"),
        note(
            0, 28, f"scores, −{data['end']} … {data['end']}; beyond: outer bars"
        ),
        note(
            0, 44, f"and the {len(raw[0]['weights'])} largest weights of row 0"
        ),
    ]
    for line, column in enumerate(columns):
        run, y = raw[column], 60 + 62 * line
        middle = y + 24
        marks += axis_text(0, middle, "D", str(data["widths"][column]))[0]
        most = max(run["counts"])
        width = 110 / len(run["counts"])
        for place, count in enumerate(run["counts"]):
            if count:
                tall = max(44 * count / most, 1)
                marks.append(
                    Box(
                        62 + place * width,
                        y + 44 - tall,
                        width,
                        tall,
                        _KEPT,
                        CELL_EDGE,
                        0.6,
                    )
                )
        step = 104 / len(run["weights"])
        for place, weight in enumerate(run["weights"]):
            tall = max(44 * weight, 0.5)
            marks.append(
                Box(
                    182 + place * step,
                    y + 44 - tall,
                    step,
                    tall,
                    weight_color(weight),
                    CELL_EDGE,
                    0.6,
                )
            )
        marks += [
            Stroke(
                (
                    ((62, y + 44), (172, y + 44)),
                    ((182, y + 44), (286, y + 44)),
                ),
                FAINT,
            ),
            Label(
                286, y + 8, f"entropy {decimal_text(run['entropy'])}", 11, "end"
            ),
        ]
    return Panel.around(
        marks,
        "Raw scores: "
        + ", ".join(
            f"D {data['widths'][c]} std {decimal_text(raw[c]['std'])}, "
            f"entropy {decimal_text(raw[c]['entropy'])}"
            for c in columns
        )
        + ".",
    )


def _curves(data: dict[str, Any], field: str, title: str, text: str) -> Panel:
    """Return one number of the runs against the width, with and without."""
    widths = data["widths"]
    lines = [[run[field] for run in row] for row in data["runs"]]
    high = max(max(max(line) for line in lines), 0.1) * 1.15
    step = 1 if high > 2 else 0.25
    ticks = tuple(
        (n * step, f"{n * step:g}") for n in range(int(high / step) + 1)
    )
    plot = Plot(
        40, 62, 240, 130,
        Axis(
            0.8, 1.3 * widths[-1], "head width D",
            tuple((D, str(D)) for D in widths), is_log=True,
        ),
        Axis(0, high, field, ticks),
    )  # fmt: skip
    marks = [heading(0, 8, title), note(0, 28, text), *plot.frame()]
    ends = [(line[-1], text) for line, text in zip(
        lines, ("÷ √D", "raw"), strict=True
    )]  # fmt: skip
    for line, dash in zip(lines, (None, (5, 3)), strict=True):
        points = list(zip(widths, line, strict=True))
        marks.append(plot.line(points, dash=dash))
        marks += [plot.dot(*point, fill=_DOT) for point in points]
    for value, how in ends:
        x, y = plot.point(widths[-1], value)
        marks.append(Label(x, y - 12, how, 11, "end"))
    return Panel.around(
        marks,
        f"{title}: "
        + "; ".join(
            f"{how} "
            + ", ".join(
                f"{decimal_text(x)} at D {D}"
                for D, x in zip(widths, line, strict=True)
            )
            for line, (_, how) in zip(lines, ends, strict=True)
        )
        + ".",
    )


def _empty_row(data: dict[str, Any], mask: dict[str, Any]) -> Panel:
    """Return weights under a mask, and the gradients of the values."""
    L, S, _ = data["mask_sizes"]
    left = 46
    marks: list[Mark] = [
        heading(0, 8, shorten(f"No key: {mask['name']}", 13, 286, bold=True)),
        note(0, 28, "weights; hatched: forbidden"),
    ]
    marks += axis_text(left, 48, "S", f"key 0 … {S - 1}")[0]
    y = 60
    for row in range(L):
        marks.append(Label(left - 6, y + 12, str(row), 11, "end", MUTED))
        for key in range(S):
            x, place = left + key * _CELL, row * S + key
            if mask["keep"][place]:
                weight = mask["ours"]["weights"][place] or 0.0
                marks += cell(
                    x, y, _CELL, 24, weight_color(weight), weight_text(weight),
                    size=10,
                )  # fmt: skip
            else:
                marks += [
                    Box(x, y, _CELL, 24, None, CELL_EDGE, 0.6),
                    hatch(x, y, _CELL, 24),
                ]
        y += 24
    y += 26
    marks.append(
        note(0, y - 4, "gradients of the values; the loss reads row 0")
    )
    y += 8
    for name in ("plain", "ours"):
        marks.append(Label(left - 6, y + 12, name, 11, "end"))
        for key, grad in enumerate(mask[name]["grads"]):
            x = left + key * _CELL
            if grad is None:
                fill, text = STATE_COLORS["wrong"], "NaN"
            else:
                fill, text = _KEPT, weight_text(min(grad, 1.0))
                if grad > 1:
                    text = decimal_text(grad, 1)
            marks += cell(x, y, _CELL, 24, fill, text, size=10)
        y += 28
    bad = mask["plain"]["grads"].count(None)
    return Panel.around(
        marks,
        f"Mask {mask['name']}: with the plain softmax {bad} of {S} gradients "
        f"are NaN, with ours {mask['ours']['grads'].count(None)}.",
    )


def _verdicts(data: dict[str, Any]) -> list[Verdict]:
    """Hold spreads, outputs and gradients to what they must be."""
    source = f"{data['dtype']}, seed {data['seed']}"
    runs = [run for row in data["runs"] for run in row]
    far = max(runs, key=lambda r: abs(r["ratio"] - 1) / r["tolerance"])
    verdicts = [
        Verdict(
            "std of raw scores ÷ √D, and of scaled ones, is 1",
            all(abs(r["ratio"] - 1) <= r["tolerance"] for r in runs),
            f"at worst {far['ratio']:.3f}",
            f"1 ± {error_text(far['tolerance'])}, four standard errors",
            f"{len(runs)} runs; {source}",
        )
    ]
    masks = data["masks"]
    for label, error, bound in _AGAINST:
        worst = max(masks, key=lambda m: m[error] / m[bound])
        verdicts.append(
            Verdict(
                f"{label}, {len(masks)} masks",
                all(m[error] <= m[bound] for m in masks),
                f"at worst off by {error_text(worst[error])}",
                f"≤ {error_text(worst[bound])}",
                source,
            )
        )
    ours = sum(m["ours"][x].count(None) for m in masks for x in m["ours"])
    plain = sum(None in m["plain"]["grads"] for m in masks)
    verdicts += [
        Verdict(
            "no NaN in our weights and gradients",
            ours == 0,
            f"{ours} NaN",
            "exact",
            f"{len(masks)} masks; {source}",
        ),
        Verdict(
            "an empty row poisons the plain softmax's gradients",
            all(
                (None in m["plain"]["grads"]) == (None in m["plain"]["weights"])
                for m in masks
            )
            and plain > 0,
            f"{plain} of {len(masks)} masks",
            "just those with an empty row",
            source,
        ),
    ]
    return verdicts


def _table(data: dict[str, Any]) -> Table:
    rows = [
        (
            str(D), how, decimal_text(run["std"]), f"{run['ratio']:.4f}",
            decimal_text(run["entropy"]), decimal_text(run["gradient"]),
            f"{run['weights'][0]:.4f}",
        )
        for how, row in zip(("÷ √D", "raw"), data["runs"], strict=True)
        for D, run in zip(data["widths"], row, strict=True)
    ]  # fmt: skip
    return Table(
        "Every width, with and without the factor",
        ("D", "scores", "std", "ratio", "entropy", "gradient",
         "largest weight of row 0"),
        tuple(rows),
    )  # fmt: skip
