"""Traffic and roofline ledger: what attention computes, and what it moves.

The static layer: numbers moved by each kernel, where flash moves more than
stored scores, the roofline, and a published table beside its own count. The
interactive layer walks through every entry of the ledger.
"""

from typing import Any

from attention_lab.figures.axis_plot import Axis, Plot, decades
from attention_lab.figures.ledger_checks import (
    grouped,
    table_of,
    totals_of,
    verdicts_of,
)
from attention_lab.figures.ledger_data import read_ledger
from attention_lab.figures.live import LiveFigure
from attention_lab.figures.marks import Box, Label, Mark, Stroke
from attention_lab.figures.palette import (
    AXIS_COLORS,
    CELL_EDGE,
    FAINT,
    MUTED,
    STATE_COLORS,
)
from attention_lab.figures.parts import hatch, heading, note
from attention_lab.figures.picture import Panel, Picture

_KEPT = STATE_COLORS["kept"]
_DOT = AXIS_COLORS["D"]


def draw_ledger(
    ledger: Any, *, title: str = "What attention computes, and what it moves"
) -> LiveFigure:
    """Draw a ledger of operations and traffic, and the roofline.

    Parameters
    ----------
    ledger : what `attention_lab.steps.ledger.record_ledger` returns (schema
        "ledger.v1"). Its first table is the one of the bars.
    title : heading of the figure.

    Returns
    -------
    A `LiveFigure`: recorded traffic and operations are held against the
    formulas, and the printed numbers of a paper against their count. Speeds
    are estimates from datasheets, as if every request went to memory; only
    stored points were measured.

    Raises
    ------
    ShapeMismatch
        If a list has not one entry per kernel, column, device or dtype.
    ValueError
        If the ledger has another schema, is empty, holds NaN, or is too large
        to draw; names the place and the sizes.
    """
    data = read_ledger(ledger)
    first = data["settings"][0]
    column = _fullest(first)
    wide = next(
        (s for s in reversed(data["settings"]) if s["L"] is None), first
    )
    panels = [
        _bars(first, column),
        _crossing(first, column),
        _roofline(data, wide),
        _paper(data["paper"]),
    ]
    totals = totals_of(first, column)
    fewest = min(set(totals) - {"stored once"}, key=totals.get)
    most = max(totals, key=totals.get)
    picture = Picture(
        panels,
        title,
        "Four panels: numbers moved, the crossing, the roofline, a paper's "
        "numbers.",
        f"For the same products “{most}” moves {grouped(totals[most])} numbers "
        f"and “{fewest}” {grouped(totals[fewest])}; flash moves more than "
        "stored scores need where its tile is narrower than D ÷ 2.",
        verdicts_of(data),
        table_of(data),
    )
    checked = [verdict.as_data() for verdict in picture.verdicts[2:]]
    return LiveFigure(picture, {**data, "checked": checked}, "ledger")


def _fullest(setting: dict[str, Any]) -> int:
    """Return the column with most kernels recorded, the last of equals."""
    recorded = [
        sum(any(row[column]["counted"]) for row in setting["entries"])
        for column in range(len(setting["S"]))
    ]
    return max(range(len(recorded)), key=lambda c: (recorded[c], c))


def _bars(setting: dict[str, Any], column: int) -> Panel:
    """Return one bar per kernel, the share of the square array hatched."""
    S = setting["S"][column]
    marks: list[Mark] = [
        heading(0, 8, "Numbers moved to and from memory"),
        note(0, 28, f"{setting['name']}: S = {S}, one head"),
        note(0, 44, "hatched: scores and weights"),
    ]
    totals = totals_of(setting, column)
    most, y = max(totals.values()), 70
    for kernel, row in zip(setting["kernels"], setting["entries"], strict=True):
        entry = row[column]
        how = "recorded" if any(entry["counted"]) else "by formula"
        total = totals[kernel]
        inputs, square, _ = (280 * part / most for part in entry["moved"])
        marks += [
            Label(0, y, kernel, 12, "start", bold=True),
            Label(120, y, how, 11, "start", MUTED),
            Label(280, y, grouped(total), 12, "end"),
            Box(0, y + 10, max(280 * total / most, 1), 12, _KEPT, CELL_EDGE),
        ]
        if square >= 1:
            marks.append(
                hatch(inputs, y + 10, square, 12, gap=4, color=CELL_EDGE)
            )
        y += 38
    return Panel.around(
        marks,
        "Numbers moved: "
        + ", ".join(f"{k} {grouped(n)}" for k, n in totals.items())
        + ".",
    )


def _crossing(setting: dict[str, Any], column: int) -> Panel:
    """Return traffic against the tile, with the bound of stored scores."""
    totals = totals_of(setting, column)
    tiles = {1: "one thread", **{t: f"tile {t}" for t in setting["tiles"]}}
    points = [(tile, totals[name]) for tile, name in tiles.items()]
    bound, half = totals["stored once"], setting["D"] / 2
    values = [*(y for _, y in points), bound]
    low = len(str(min(values))) - 1
    high = len(str(max(values)))
    plot = Plot(
        44, 60, 236, 170,
        Axis(
            0.8, 1.4 * max(tiles), "TILE_L",
            tuple((t, str(t)) for t in tiles), is_log=True,
        ),
        decades("numbers moved", low, high),
    )  # fmt: skip
    x, _ = plot.point(half, 10.0**low)
    _, y = plot.point(1, bound)
    marks = [
        heading(0, 8, f"Narrow tiles move more: D {setting['D']}"),
        note(0, 28, "flash against its tile; S = " + str(setting["S"][column])),
        *plot.frame(),
        plot.line([(0.8, bound), (1.4 * max(tiles), bound)], dash=(5, 3)),
        Label(278, y - 10, "stored once", 11, "end"),
        Stroke((((x, plot.y), (x, plot.y + plot.height)),), FAINT, 1.0, (2, 3)),
        Label(x + 5, plot.y + plot.height - 10, "D ÷ 2", 11, "start"),
        plot.line(points, color=MUTED),
        *(plot.dot(*point, fill=_DOT) for point in points),
    ]
    return Panel.around(
        marks,
        "Flash moves "
        + ", ".join(f"{grouped(y)} with TILE_L {x}" for x, y in points)
        + f"; stored scores need {grouped(bound)}.",
    )


def _roofline(data: dict[str, Any], setting: dict[str, Any]) -> Panel:
    """Return the roofs of all devices, and where each kernel lies."""
    column = min(2, len(setting["S"]) - 1)
    rows = [
        (kernel, row[column])
        for kernel, row in zip(
            setting["kernels"], setting["entries"], strict=True
        )
    ]
    alone = [
        other
        for other in data["settings"]
        if other["L"] == 1 and other["D"] == setting["D"]
    ]
    if alone:
        kernel = alone[0]["kernels"][-2]
        entry = alone[0]["entries"][-2][min(column, len(alone[0]["S"]) - 1)]
        rows.append((f"one query, {kernel}", entry))
    rows.sort(key=lambda row: -row[1]["intensity"][0])
    plot = Plot(
        36, 62, 248, 140, decades("FLOP per byte", -1, 3),
        decades("TFLOP per second, at most", -2, 2),
    )  # fmt: skip
    below = 16 * len(rows) + 8
    marks: list[Mark] = [
        heading(0, 8, "The roof of each device, by datasheet"),
        note(0, 28, f"D {setting['D']}, S = {setting['S'][column]}, float32"),
        *plot.frame(below),
    ]
    roofs: dict[float, list[str]] = {}
    for device in data["devices"]:
        marks.append(plot.line(device["roof"][0], width=1.2))
        peak = device["peak"][0]
        roofs.setdefault(peak, []).append(device["name"])
    for peak, names in roofs.items():
        _, y = plot.point(1000, peak)
        text = f"{', '.join(names)} {peak:g}"
        marks.append(Label(282, y - 8, text, 11, "end"))
    for number, (kernel, entry) in enumerate(rows):
        across = entry["intensity"][0]
        foot = plot.y + plot.height + 16 * number + 14
        x, y = plot.point(across, max(a[0] for a in entry["attainable"]))
        marks.append(Stroke((((x, y), (x, foot)),), FAINT, 1.0))
        marks += [
            plot.dot(across, speeds[0], size=5, fill=_DOT)
            for speeds in entry["attainable"]
        ]
        marks += [
            Box(x - 4, foot - 4, 8, 8, _DOT, CELL_EDGE),
            Label(x + 9, foot, kernel, 11, "start"),
        ]
    marks += [
        plot.dot(point["intensity"], point["tflops"], size=8, fill="#b83280")
        for point in data["points"]
        if point["dtype"] == data["dtypes"][0]["name"]
    ]
    return Panel.around(
        marks,
        "FLOP per byte: "
        + ", ".join(
            f"{name} {entry['intensity'][0]:.1f}" for name, entry in rows
        )
        + ". Ridges: "
        + ", ".join(
            f"{d['name']} {d['roof'][0][1][0]:.1f}" for d in data["devices"]
        )
        + ".",
    )


def _paper(paper: dict[str, Any]) -> Panel:
    """Return printed and counted operations of a published workload."""
    marks: list[Mark] = [
        heading(0, 8, "Printed, and counted"),
        note(0, 28, "GFLOP of FlashAttention's figure 2, left:"),
        note(0, 44, "GPT-2 medium, forward + backward"),
    ]
    most = max(row["counted"] for row in paper["rows"])
    y = 70
    for row in paper["rows"]:
        marks.append(Label(0, y, row["name"], 12, "start", bold=True))
        for field in ("printed", "counted"):
            y += 22
            width = max(150 * row[field] / most, 1)
            marks += [
                Label(0, y, field, 11, "start"),
                Box(56, y - 7, width, 14, _KEPT, CELL_EDGE),
                Label(
                    62 + width, y, f"{row[field]:.1f}", 12, "start", mono=True
                ),
            ]
        y += 30
    return Panel.around(
        marks,
        "; ".join(
            f"{row['name']}: printed {row['printed']}, counted "
            f"{row['counted']:.1f}"
            for row in paper["rows"]
        )
        + ".",
    )
