"""Shape flow: one box per step, its edges in the axes' colours.

Reads the data of `ShapeFlow.to_dict()`, schema `shape_flow.v1`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attention_lab.figures.data import as_text
from attention_lab.figures.flow_box import WIDTH, colors_of, draw_box
from attention_lab.figures.flow_data import (
    cells_of,
    check_flow,
    check_views,
    choose_steps,
)
from attention_lab.figures.marks import (
    Box,
    Label,
    Mark,
    shorten,
    text_width,
)
from attention_lab.figures.palette import (
    MUTED,
    STATE_COLORS,
    ink_on,
)
from attention_lab.figures.parts import (
    AXIS_NOUNS,
    CHIP,
    chip,
    note,
)
from attention_lab.figures.picture import (
    Panel,
    Picture,
    Table,
    Verdict,
)


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
    text = shorten(name, 13, WIDTH, **style)
    marks: list[Mark] = [Label(0, 8, text, 13, anchor="start", **style)]
    line = shorten(_second_line(value, step), 11, WIDTH)
    marks.append(note(0, 27, line))
    y = 44.0
    if step is None:
        marks.append(note(0, y, "shade: token · number: column"))
        y += 14
    if wrong is not None:
        marks += _wrong_line(y + 5, wrong)
        y += 24
    grid, y = draw_box(cells_of(data, value), value, y)
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
    width = min(WIDTH, text_width(text, 12, bold=True) + 12)
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
        if line and text_width(longer, size) > WIDTH - 24:
            lines.append(line)
            longer = word
        line = longer
    return [shorten(part, size, WIDTH - 24) for part in [*lines, line]]


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
