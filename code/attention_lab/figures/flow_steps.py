"""Shape flow: one box per step, its edges in the axes' colours.

Reads the data of `ShapeFlow.to_dict()`, schema `shape_flow.v1`.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from attention_lab.figures.data import as_text, shown_places
from attention_lab.figures.flow_data import (
    Cells,
    cells_of,
    check_flow,
    check_views,
    choose_steps,
)
from attention_lab.figures.marks import (
    Box,
    Label,
    Mark,
    Stroke,
    shorten,
    text_width,
)
from attention_lab.figures.palette import (
    AXIS_COLORS,
    CELL_EDGE,
    MUTED,
    STATE_COLORS,
    ink_on,
    token_color,
)
from attention_lab.figures.parts import (
    AXIS_NOUNS,
    CHIP,
    cell,
    cell_font,
    chip,
    hatch,
    note,
)
from attention_lab.figures.picture import (
    MAX_PANEL_WIDTH,
    Panel,
    Picture,
    Table,
    Verdict,
)

MOST_ROWS, MOST_COLUMNS, MOST_SHEETS = 8, 12, 4
_WIDTH = MAX_PANEL_WIDTH - 4
_DEPTH = 9.0  # how far each sheet behind sticks out
_EDGE = 4.0
_NAMELESS = CELL_EDGE


def draw_shape_flow(
    flow: Any,
    *,
    steps: Sequence[int] | None = None,
    title: str | None = None,
) -> Picture:
    """Draw the steps of a traced function as boxes.

    A cell is an element of the first slice: its shade is the token that it
    came from, its number the column. Sheets behind are the axis before.

    Parameters
    ----------
    flow : what `ShapeFlow.to_dict()` returns.
    steps : which steps to draw; by default the inputs and those steps that
        move elements or contract axes, at most 18.
    title : heading of the picture.

    Returns
    -------
    One panel per step. The verdicts hold the views against the memory they
    look at, and repeat what `ShapeFlow.verify` found.

    Raises
    ------
    ValueError
        If the data have another schema, nothing was recorded, or there is no
        such step.

    Examples
    --------
    >>> import torch
    >>> from attention_lab.shape_flow import trace_shapes
    >>> x = torch.zeros(2, 3)
    >>> flow = trace_shapes(torch.t, x, letters={0: "LE"})
    >>> print(draw_shape_flow(flow.to_dict()))
    What t does to shapes
    1 step: 1 view, 0 copies, 0 tensors computed anew.
    ✓ strides lead to the elements drawn: 6 of 6 elements of 1 view (exact; \
read from the memory's codes)
    """
    data = check_flow(flow)
    drawn = choose_steps(data, steps)
    failed = {f["step"]: f for f in data["failures"]}
    panels = [_panel(data, v, None, None) for v in data["inputs"]]
    panels += [_panel(data, s["outputs"][0], s, failed) for s in drawn]
    if title is None:
        title = f"What {data['title']} does to shapes"
    as_text("title", title)
    left = len(data["steps"]) - len(drawn)
    more = f" {left} steps are not drawn." if left else ""
    return Picture(
        panels,
        title,
        "One box per step. Shade: the token an element came from; number: "
        f"its column.{more}",
        _finding(data),
        _verdicts(data),
        _table(data),
    )


def _finding(data: Mapping[str, Any]) -> str:
    """Say what goes wrong, or count what the steps made."""
    if data["failures"]:
        fact = min(data["failures"], key=lambda f: f["step"])
        wanted = fact["pattern"].partition("->")[2].strip()
        return (
            f"Step {fact['step']} is the first that goes wrong: "
            f"{fact['share']:.1%} of its elements are not where {wanted} "
            "needs them."
        )
    made = [v["memory"] for s in data["steps"] for v in s["outputs"]]
    count = len(data["steps"])
    return (
        f"{count} {'step' if count == 1 else 'steps'}: "
        f"{_count(made.count('view'), 'view', 'views')}, "
        f"{_count(made.count('copy'), 'copy', 'copies')}, "
        + _count(made.count("new"), "tensor", "tensors")
        + " computed anew."
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _verdicts(data: Mapping[str, Any]) -> list[Verdict]:
    right, total, views = check_views(data)
    found = [
        Verdict(
            "strides lead to the elements drawn",
            right == total,
            f"{right} of {total} elements of {_count(views, 'view', 'views')}",
            "exact",
            "read from the memory's codes",
        )
    ]
    for fact in data["verified"]:
        if fact["step"] is not None:
            found.append(
                Verdict(
                    f"{fact['root']} arrives as {fact['pattern']} in step "
                    f"{fact['step']}",
                    True,
                    f"0 of {fact['elements']} misplaced",
                    "exact",
                    "element codes",
                )
            )
    for fact in data["failures"]:
        found.append(
            Verdict(
                fact["text"].rstrip("."),
                False,
                f"{fact['share']:.1%} misplaced",
                "exact",
                "element codes",
            )
        )
    return found


def _panel(
    data: Mapping[str, Any],
    value: Mapping[str, Any],
    step: Mapping[str, Any] | None,
    failed: Mapping[int, Any] | None,
) -> Panel:
    """Lay out one tensor: heading, box, and a line per axis."""
    wrong = (failed or {}).get(step["number"]) if step else None
    name = f"{step['number']}  {step['call']}" if step else value["name"]
    style = {"mono": True, "bold": True}
    text = shorten(name, 13, _WIDTH, **style)
    marks: list[Mark] = [Label(0, 8, text, 13, anchor="start", **style)]
    line = shorten(_second_line(value, step), 11, _WIDTH)
    marks.append(note(0, 27, line))
    y = 44.0
    if step is None:
        marks.append(note(0, y, "shade: token · number: column"))
        y += 14
    if wrong is not None:
        marks += _wrong_line(y + 5, wrong)
        y += 24
    grid, y = _grid(cells_of(data, value), value, y)
    marks += grid
    y += 16
    for letter, size, stride, why in _axes(value):
        marks += _axis_line(y, letter, size, stride)
        y += 20
        if why:
            for part in _wrapped(why):
                marks.append(note(22, y - 2, part))
                y += 15
    return Panel.around(marks, _describe(name, value, wrong))


def _second_line(
    value: Mapping[str, Any], step: Mapping[str, Any] | None
) -> str:
    """Say what the result is in memory, and where the call stands."""
    if step is None:
        return "given"
    memory = value["memory"]
    words = {"view": f"view of {value['of']}", "same": f"is {value['of']}"}
    parts = [words.get(memory, memory)]
    if len(step["outputs"]) > 1:
        parts.append(f"first of {len(step['outputs'])}")
    if step["source"]:
        parts.append(f"{step['source']['file']}:{step['source']['line']}")
    return " · ".join(parts)


def _wrong_line(y: float, wrong: Mapping[str, Any]) -> list[Mark]:
    """Say that this step is the one that goes wrong."""
    fill = STATE_COLORS["wrong"]
    text = f"✗ goes wrong here: {wrong['share']:.1%} misplaced"
    width = min(_WIDTH, text_width(text, 12, bold=True) + 12)
    return [
        Box(0, y - 10, width, 20, fill=fill, edge=None),
        Label(
            6, y, text, 12, anchor="start", bold=True, color=ink_on(fill),
            on=fill,
        ),
    ]  # fmt: skip


def _axes(value: Mapping[str, Any]) -> list[tuple[str, int, Any, str]]:
    """Return (letter, size, stride, reason) of every axis."""
    strides = value["strides"] or ["–"] * len(value["shape"])
    rows = zip(value["letters"], value["shape"], strides, strict=True)
    return [
        (letter, size, stride, value["why"].get(str(axis), ""))
        for axis, (letter, size, stride) in enumerate(rows)
    ]


def colors_of(letter: str) -> list[str]:
    """Return a colour per factor of an axis.

    Examples
    --------
    >>> colors_of("B·H") == [AXIS_COLORS["B"], AXIS_COLORS["H"]]
    True
    """
    return [AXIS_COLORS.get(part, _NAMELESS) for part in letter.split("·")]


def _axis_line(y: float, letter: str, size: int, stride: Any) -> list[Mark]:
    """Return "[H] head 3   stride 4"."""
    marks: list[Mark] = []
    x = 0.0
    for part, color in zip(letter.split("·"), colors_of(letter), strict=True):
        marks += chip(x, y, part, color)
        x += CHIP + 2
    nouns = [AXIS_NOUNS.get(part, "") for part in letter.split("·")]
    text = f"{'·'.join(n for n in nouns if n)} {size}".strip()
    start = max(x + 3, 22)
    text = shorten(text, 12, 144 - start) if start < 120 else str(size)
    marks.append(Label(start, y, text, 12, anchor="start"))
    stride_text = f"stride {stride}"
    marks.append(
        Label(
            max(150, start + 40),
            y,
            stride_text,
            12,
            anchor="start",
            mono=True,
            color=MUTED,
        )
    )
    return marks


def _wrapped(text: str, size: float = 11) -> list[str]:
    """Cut a reason into lines that fit beside the chips."""
    lines, line = [], ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and text_width(longer, size) > _WIDTH - 24:
            lines.append(line)
            longer = word
        line = longer
    return [shorten(part, size, _WIDTH - 24) for part in [*lines, line]]


def _grid(
    cells: Cells, value: Mapping[str, Any], y: float
) -> tuple[list[Mark], float]:
    """Draw the front sheet with its cells, the sheets behind, the edges."""
    letters = ["1", "1", *value["letters"]]
    shape = [1, 1, *value["shape"]]
    rows = shown_places(shape[-2], MOST_ROWS)
    columns = shown_places(shape[-1], MOST_COLUMNS)
    deep = len(value["shape"]) > 2
    behind = min(shape[-3], MOST_SHEETS) - 1 if deep else 0
    room = _WIDTH - _EDGE - behind * _DEPTH
    side = min(26.0, math.floor(room / len(columns)))
    height = min(side, 22.0)
    x, y = _EDGE, y + behind * _DEPTH
    right, bottom = x + side * len(columns), y + height * len(rows)
    marks: list[Mark] = []
    for place in range(behind, 0, -1):
        far, near = place * _DEPTH, (place - 1) * _DEPTH
        corner = (
            (x + far, y - near),
            (x + far, y - far),
            (right + far, y - far),
            (right + far, bottom - far),
            (right + near, bottom - far),
        )
        marks.append(Stroke((corner,), color=MUTED, width=0.8))
    texts = [
        str(cells.columns[r, c])
        for r in rows
        for c in columns
        if r is not None and c is not None
    ]
    font = cell_font([*texts, "0"], side, 10)
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            left, top = x + j * side, y + i * height
            if row is None or column is None:
                marks += _gap(left + side / 2, top + height / 2, i, j, row)
                continue
            marks += _cell(cells, row, column, left, top, side, height, font)
    if cells.tokens is None:
        marks.append(hatch(x, y, right - x, bottom - y))
    marks += _edge((x, bottom + 2), (right, bottom + 2), letters[-1])
    if len(value["shape"]) > 1:
        marks += _edge((x - 2, y), (x - 2, bottom), letters[-2])
    if behind:
        far = behind * _DEPTH
        marks += _edge(
            (right + 2, bottom), (right + 2 + far, bottom - far), letters[-3]
        )
    return marks, bottom + 6


def _cell(
    cells: Cells,
    row: int,
    column: int,
    x: float,
    y: float,
    width: float,
    height: float,
    font: float,
) -> list[Mark]:
    """Draw one element: shade by token, number by column."""
    if cells.tokens is None or cells.tokens[row, column] < 0:
        return [Box(x, y, width, height, edge=CELL_EDGE, edge_width=0.6)]
    fill = token_color(int(cells.tokens[row, column]), cells.count)
    text = str(cells.columns[row, column]) if font else ""
    return cell(x, y, width, height, fill, text, size=font or 10)


def _gap(x: float, y: float, i: int, j: int, row: int | None) -> list[Mark]:
    """Mark the break in a long axis once."""
    if row is None:
        return [Label(x, y, "⋮", 11, color=MUTED)] if j == 0 else []
    return [Label(x, y, "…", 11, color=MUTED)] if i == 0 else []


def _edge(
    start: tuple[float, float], end: tuple[float, float], letter: str
) -> list[Mark]:
    """Draw an edge in the colours of its axis, one piece per factor."""
    colors = colors_of(letter)
    marks: list[Mark] = []
    for place, color in enumerate(colors):
        a, b = place / len(colors), (place + 1) / len(colors)
        line = tuple(
            (
                start[0] + part * (end[0] - start[0]),
                start[1] + part * (end[1] - start[1]),
            )
            for part in (a, b)
        )
        dash = (3.0, 2.0) if letter == "?" else None
        marks.append(Stroke((line,), color=color, width=_EDGE, dash=dash))
    return marks


def _describe(name: str, value: Mapping[str, Any], wrong: Any) -> str:
    axes = ", ".join(
        f"{letter} {size} stride {stride}"
        for letter, size, stride, _ in _axes(value)
    )
    end = " This step goes wrong." if wrong is not None else ""
    return f"{name}: {value['memory']}; axes {axes or 'none'}.{end}"


def _table(data: Mapping[str, Any]) -> Table:
    """Return all steps, one per row."""
    rows = []
    for step in data["steps"]:
        for value in step["outputs"]:
            source = step["source"]
            line = f"{source['file']}:{source['line']}" if source else "–"
            rows.append(
                (
                    value["name"],
                    step["call"],
                    " ".join(value["letters"]) or "–",
                    str(tuple(value["shape"])),
                    str(tuple(value["strides"])),
                    value["memory"],
                    line,
                )
            )
    head = ("result", "operation", "axes", "shape", "strides", "memory", "line")
    return Table("All steps", head, tuple(rows))
