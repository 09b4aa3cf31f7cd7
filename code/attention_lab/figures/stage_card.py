"""Stage card: a stage's kernel beside the shapes of the same run.

The static layer lists the lines that touch memory and shows what the first
block touches of each array. The interactive layer has one cursor for the
source, the threads and the arrays.
"""

import math
from dataclasses import replace
from typing import Any

from attention_lab.axes import axis_letters
from attention_lab.figures.data import (
    as_number,
    as_sequence,
    as_text,
    check_schema,
    check_size,
    read_field,
)
from attention_lab.figures.digits import error_text
from attention_lab.figures.live import LiveFigure
from attention_lab.figures.marks import Label, Mark, shorten
from attention_lab.figures.palette import AXIS_COLORS, MUTED, STATE_COLORS
from attention_lab.figures.parts import cell, chip, empty_grid, heading, note
from attention_lab.figures.picture import (
    MAX_PANEL_WIDTH,
    Panel,
    Picture,
    Table,
    Verdict,
)
from attention_lab.figures.recorded import read_recording, steps_of, unrolled

SCHEMA = "stage_card.v1"
#: Squares along one axis of an array, and numbers of lines of a kernel.
MOST_SQUARES, MOST_LINES, MOST_KERNELS = 24, 120, 4
_SQUARE = 9


def draw_stage_card(run: Any, *, title: str | None = None) -> LiveFigure:
    """Draw the kernels of a stage: source, shapes, and what touches what.

    Parameters
    ----------
    run : what `attention_lab.steps.stage_run.stage_run` returns (schema
        "stage_card.v1").
    title : heading of the figure; by default the stage's name.

    Returns
    -------
    A `LiveFigure`. Its verdicts: the result's shape, its values against the
    reference, hazards in all thread orders, and traffic against the formula.

    Raises
    ------
    ShapeMismatch
        If the columns of a recording have different lengths.
    ValueError
        If the run has another schema, holds no kernel or no access, or an
        array is too large to draw; names the place and the sizes.
    """
    data = read_stage(run)
    verdicts = stage_verdicts(data)
    data["verdicts"] = [verdict.as_data() for verdict in verdicts]
    panels = []
    for kernel in data["kernels"]:
        panels += [_source_panel(kernel), _arrays_panel(kernel)]
    names = [kernel["recording"]["kernel"] for kernel in data["kernels"]]
    picture = Picture(
        [replace(panel, width=MAX_PANEL_WIDTH) for panel in panels],
        title or f"{_named(data['stage'])}: the kernel and its shapes",
        f"For {', '.join(names)}: the lines that touch memory, and what the "
        "first block touches of each array.",
        _finding(data),
        verdicts,
        _table(data),
    )
    return LiveFigure(picture, data, "stage_card")


def read_stage(run: Any) -> dict[str, Any]:
    """Return a run of a stage, or refuse it.

    Examples
    --------
    >>> read_stage({"schema": "stage_card.v0"})
    Traceback (most recent call last):
    ValueError: run has schema 'stage_card.v0'; this figure draws \
'stage_card.v1'
    """
    check_schema(run, SCHEMA, "run")
    data = dict(run)
    as_text("run.stage", read_field(run, "stage", "run"))
    result = read_field(run, "result", "run")
    as_number("run.result.bound", read_field(result, "bound", "run.result"))
    if read_field(result, "error", "run.result") is not None:
        as_number("run.result.error", result["error"], least=0)
    kernels = as_sequence(
        "run.kernels", read_field(run, "kernels", "run"), "a list"
    )
    if not kernels:
        raise ValueError("run.kernels is empty: there is nothing to draw")
    check_size("run", "kernels", len(kernels), MOST_KERNELS)
    data["kernels"] = []
    for number, kernel in enumerate(kernels):
        place = f"run.kernels[{number}]"
        recording = read_recording(
            f"{place}.recording", read_field(kernel, "recording", place), "line"
        )
        if not read_field(kernel, "hazards", place):
            raise ValueError(f"{place}.hazards names no thread order")
        source = read_field(kernel, "source", place)
        check_size(place, "lines", len(source), MOST_LINES)
        listed = {line for line, _ in source}
        for site in recording["sites"]:
            if site["line"] not in listed:
                raise ValueError(
                    f"{place}.source lacks line {site['line']}, which touches "
                    "memory"
                )
        for memory in recording["memory"]:
            for size in memory["shape"][-2:]:
                where = f"{place}, {memory['label']}"
                check_size(where, "in squares", size, MOST_SQUARES)
        data["kernels"].append({**kernel, "recording": recording})
    return data


def stage_verdicts(data: dict) -> list[Verdict]:
    """Return what was checked on a run: shape, values, hazards, traffic."""
    result, kernels = data["result"], data["kernels"]
    source = f"{data['dtype']}, seed {data['seed']}, recorded"
    error = math.inf if result["error"] is None else result["error"]
    orders = list(kernels[0]["hazards"])
    hazards = sum(sum(kernel["hazards"].values()) for kernel in kernels)
    moved = sum(
        row["reads"] + row["writes"]
        for kernel in kernels
        for row in kernel["recording"]["traffic"]["arrays"]
        if row["space"] == "global"
    )
    formula = sum(
        sum(map(sum, kernel["recording"]["formula"].values()))
        for kernel in kernels
    )
    is_equal = all(
        kernel["recording"]["verdict"]["traffic_equals_formula"] is True
        for kernel in kernels
    )
    return [
        Verdict(
            f"shape of {result['name']}",
            result["shape"] == result["expected_shape"],
            " × ".join(map(str, result["shape"])),
            f"must be {' × '.join(map(str, result['expected_shape']))}",
            source,
        ),
        Verdict(
            "values against the reference",
            error <= result["bound"],
            f"off by {error_text(error)}",
            f"≤ {error_text(result['bound'])}",
            source,
        ),
        Verdict(
            "races, bounds, barriers",
            hazards == 0,
            f"{hazards} hazards" if hazards else "none found",
            f"threads {', '.join(orders)}",
            "recorded",
        ),
        Verdict(
            "traffic",
            is_equal,
            f"{moved} reads and writes",
            f"formula {formula}, array by array",
            "recorded",
        ),
    ]


def _named(stage: str) -> str:
    """Return such as "Flash forward"."""
    words = stage.replace("_", " ").replace("qkv", "QKV")
    return words[:1].upper() + words[1:]


def _finding(data: dict) -> str:
    """Say what is read and written, in numbers and in lines."""
    parts = []
    for kernel in data["kernels"]:
        recording = kernel["recording"]
        rows = [
            row
            for row in recording["traffic"]["arrays"]
            if row["space"] == "global"
        ]
        lines = _lines(recording)
        parts.append(
            f"{recording['kernel']} reads {sum(r['reads'] for r in rows)} and "
            f"writes {sum(r['writes'] for r in rows)} numbers in "
            f"{len(lines)} of {len(kernel['source'])} lines"
        )
    return f"{'; '.join(parts)}."


def _source_panel(kernel: dict) -> Panel:
    """Draw the lines that touch memory, each with what it touches."""
    recording = kernel["recording"]
    marks: list[Mark] = [
        heading(0, 8, shorten(recording["kernel"], 13, 290, bold=True)),
        note(0, 28, "the lines that touch memory"),
    ]
    said, y = [], 50.0
    for line, text, touches in _lines(recording):
        code = shorten(text, 9.5, 262, mono=True)
        marks.append(Label(26, y, str(line), 10, "end", MUTED))
        marks.append(Label(32, y, code, 9.5, "start", mono=True))
        marks.append(note(32, y + 15, shorten(", ".join(touches), 11, 262)))
        said.append(f"Line {line}, {text}: {', '.join(touches)}.")
        y += 36
    return Panel.around(marks, " ".join(said))


def _lines(recording: dict) -> list[tuple[int, str, list[str]]]:
    """Return (line, text, ["reads x", …]) in the order of the first visit."""
    found: dict[int, tuple[str, dict[str, None]]] = {}
    for step in steps_of(recording):
        for number in step["sites"]:
            site = recording["sites"][number]
            label = recording["memory"][site["memory"]]["label"]
            verb = {"read": "reads", "write": "writes"}.get(
                site["kind"], "updates"
            )
            _, touches = found.setdefault(site["line"], (site["text"], {}))
            touches[f"{verb} {label}"] = None
    return [(line, text, [*t]) for line, (text, t) in found.items()]


def _arrays_panel(kernel: dict) -> Panel:
    """Draw each array with its axes; what the first block touches is filled."""
    recording = kernel["recording"]
    steps = steps_of(recording)
    block = steps[0]["block"]
    touched: dict[int, dict[int, str]] = {}
    for step in steps:
        if step["block"] != block:
            continue
        for number, runs in zip(step["sites"], step["elements"], strict=True):
            site = recording["sites"][number]
            mine = touched.setdefault(site["memory"], {})
            for element in unrolled(runs):
                is_write = site["kind"] != "read" or mine.get(element) == "w"
                mine[element] = "w" if is_write else "r"
    marks: list[Mark] = [
        heading(0, 8, "What the first block touches"),
        note(0, 28, "light: read, dark: written; one slice each"),
    ]
    said, y = [], 50.0
    for number, elements in touched.items():
        memory = recording["memory"][number]
        marks += _axes_row(y, memory)
        y, drawn = _squares(y + 14, memory["shape"], elements)
        marks += drawn
        y += 20
        said.append(
            f"{memory['label']}, {' × '.join(map(str, memory['shape']))}: "
            f"{len(elements)} elements."
        )
    return Panel.around(marks, " ".join(said))


def _axes_row(y: float, memory: dict) -> list[Mark]:
    """Return a name and, for each axis, its chip and its size."""
    marks: list[Mark] = [Label(0, y, memory["label"], 11, "start", bold=True)]
    letters = letters_of(memory)
    x = 104.0
    for place, size in enumerate(memory["shape"]):
        if letters:
            marks += chip(x, y, letters[place], AXIS_COLORS[letters[place]])
            x += 20
        marks.append(Label(x, y, str(size), 11, "start"))
        x += 20
    return marks


def letters_of(memory: dict) -> str:
    """Return the axis letters of an array's name, where they fit its shape.

    Examples
    --------
    >>> letters_of({"label": "lse_BHL", "shape": [1, 2, 7]})
    'BHL'
    >>> letters_of({"label": "k_tile", "shape": [4, 3]})
    ''
    """
    letters = axis_letters(memory["label"])
    return letters if len(letters) == len(memory["shape"]) else ""


def _squares(
    y: float, shape: list[int], elements: dict[int, str]
) -> tuple[float, list[Mark]]:
    """Draw the last two axes of the slice of the first element touched."""
    columns = shape[-1]
    rows = shape[-2] if len(shape) > 1 else 1
    first = min(elements) // (rows * columns) * rows * columns
    fills = {"r": STATE_COLORS["kept"], "w": STATE_COLORS["written"]}
    marks: list[Mark] = [empty_grid(0, y, columns, rows, _SQUARE, _SQUARE)]
    for n in range(rows * columns):
        fill = fills.get(elements.get(first + n, ""))
        if fill:
            x, top = n % columns * _SQUARE, y + n // columns * _SQUARE
            marks += cell(x, top, _SQUARE, _SQUARE, fill)
    return y + rows * _SQUARE, marks


def _table(data: dict) -> Table:
    """Return one row per line that touches memory."""
    rows = []
    for kernel in data["kernels"]:
        recording = kernel["recording"]
        steps = steps_of(recording)
        for line, text, touches in _lines(recording):
            visits = [
                step
                for step in steps
                if recording["sites"][step["sites"][0]]["line"] == line
            ]
            rows.append(
                (
                    recording["kernel"],
                    str(line),
                    text,
                    ", ".join(touches),
                    str(len(visits)),
                )
            )
    return Table(
        "Every line that touches memory",
        ("kernel", "line", "source", "touches", "visits by blocks"),
        tuple(rows),
    )
