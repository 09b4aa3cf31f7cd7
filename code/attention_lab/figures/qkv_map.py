"""QKV map: where each row of a fused projection stands, layout by layout.

The static layer shows the rows in all layouts, a weight that is taken for
another layout's, grouped heads, and what the kernels move. The interactive
layer converts between any two recorded layouts, right and by mistake.
"""

from dataclasses import replace
from typing import Any

from attention_lab.figures.live import LiveFigure
from attention_lab.figures.marks import Label, Mark, Stroke
from attention_lab.figures.packing_map import layout_packing
from attention_lab.figures.palette import MUTED, ROLE_COLORS, ink_on
from attention_lab.figures.parts import cell, heading, note
from attention_lab.figures.picture import Panel, Picture, Table
from attention_lab.figures.qkv_map_data import (
    ROLES,
    map_verdicts,
    misread_rows,
    read_packing_map,
    tag_text,
    with_questions,
)

_CELL, _ROW, _LEFT, _HEAD = 34, 34, 22, 26


def draw_qkv_map(
    recording: Any, *, title: str = "Every row of a fused weight, by layout"
) -> LiveFigure:
    """Draw recorded layouts of fused weights, and conversions between them.

    Parameters
    ----------
    recording : what `attention_lab.steps.qkv_map.record_packing_map` returns
        (schema "packing_map.v1"). The first run is the static picture's.
    title : heading of the figure.

    Returns
    -------
    A `LiveFigure`: weights must come back from every conversion unchanged, a
    converted weight must give the same output, a weight taken for another
    layout's must not, and the recorded kernels must move what the formula says.

    Raises
    ------
    ShapeMismatch
        If H·D is not E, or a layout has not (H + 2·G)·D rows.
    ValueError
        If the recording has another schema, is empty, holds NaN, or is too
        large to draw; names the place and the sizes.
    """
    data = read_packing_map(recording)
    run = data["runs"][0]
    pair = run["pairs"][0]
    source, target = pair["source"], pair["target"]
    wrong = misread_rows(run, source, target)
    grouped = next((r for r in data["runs"] if 1 < r["G"] < r["H"]), None)
    panels = [_columns_panel(run), _misread_panel(data, run, source, target)]
    if grouped:
        panels.append(_columns_panel(grouped))
    panels += [_kernels_panel(r) for r in data["runs"][:1] if r["traffic"]]
    picture = Picture(
        panels,
        title,
        f"The rows of {run['name']} in {len(run['layouts'])} layouts; a weight "
        "that is taken for another layout's; then grouped heads, and what the "
        "kernels move.",
        f"Taken for ({target}), {len(wrong)} of the {len(run['tags'])} rows of "
        f"a ({source}) weight are read as something else; nothing fails, and "
        f"the output moves by {pair['change']:.0%} of its size.",
        map_verdicts(data),
        _table(run),
    )
    return LiveFigure(picture, with_questions(data), "packing_map")


def _columns_panel(run: dict[str, Any]) -> Panel:
    """Return one column per layout, one row joined by a line."""
    triples = {
        layout: [tuple(run["tags"][row]) for row in rows]
        for layout, rows in run["layouts"].items()
    }
    sizes = {"p": 3, "h": run["H"], "d": run["D"]}
    panel = layout_packing(triples, sizes, (1, 0, 0))
    marks = [_lower(mark) for mark in panel.marks]
    name = run["name"]
    return Panel.around([heading(0, 8, name), *marks], f"{name}: {panel.alt}")


def _lower(mark: Mark) -> Mark:
    """Move a mark down by a heading's height."""
    if isinstance(mark, Stroke):
        lines = tuple(
            tuple((x, y + _HEAD) for x, y in line) for line in mark.lines
        )
        return replace(mark, lines=lines)
    return replace(mark, y=mark.y + _HEAD)


def _misread_panel(
    data: dict[str, Any], run: dict[str, Any], source: str, target: str
) -> Panel:
    """Return the packed rows in memory order, and what each is read as."""
    E = data["E"]
    wrong = set(misread_rows(run, source, target))
    name = f"({source}) taken for ({target})"
    marks: list[Mark] = [
        heading(0, 8, name),
        note(0, 28, "what a row holds, and below ≠ what it is read as"),
    ]
    for row, there in enumerate(run["layouts"][source]):
        line, column = divmod(row, E)
        x, y = _LEFT + column * _CELL, 46 + line * _ROW
        if column == 0:
            marks.append(
                Label(_LEFT - 5, y + _ROW / 2, str(row), 10, "end", MUTED)
            )
        fill = ROLE_COLORS[ROLES[run["tags"][there][0]]]
        marks += cell(x, y, _CELL, _ROW, fill)
        lines = [tag_text(run["tags"][there])]
        if row in wrong:
            read = run["tags"][run["layouts"][target][row]]
            lines.append(f"≠{tag_text(read)}")
        for place, text in enumerate(lines):
            middle = y + _ROW / 2 + 14 * (place - (len(lines) - 1) / 2)
            marks.append(
                Label(
                    x + _CELL / 2, middle, text, 10 - place,
                    color=ink_on(fill), on=fill, bold=place == 0,
                )
            )  # fmt: skip
    bottom = 46 + -(-len(run["tags"]) // E) * _ROW
    marks.append(
        note(
            0, bottom + 16, f"{len(wrong)} of {len(run['tags'])} rows are read"
        )
    )
    marks.append(note(0, bottom + 34, "as something else; no shape changes"))
    return Panel.around(
        marks,
        f"{name}: {len(wrong)} of {len(run['tags'])} rows are read as "
        "something else.",
    )


def _kernels_panel(run: dict[str, Any]) -> Panel:
    """Return what the kernels that split the projections move."""
    traffic = run["traffic"]
    marks: list[Mark] = [heading(0, 8, f"Splitting: {run['name']}")]
    lines = [
        (
            "launches, separate → fused",
            " → ".join(map(str, traffic["launches"])),
        ),
        ("bytes read and written", " → ".join(map(str, traffic["bytes"]))),
        *(
            (f"32-byte sectors read, ({layout})", str(sectors))
            for layout, sectors in traffic["sectors"].items()
        ),
    ]
    for line, (what, number) in enumerate(lines):
        y = 34 + 20 * line
        marks.append(Label(0, y, what, 12, "start"))
        marks.append(Label(296, y, number, 12, "end"))
    return Panel.around(
        marks, "; ".join(f"{what}: {number}" for what, number in lines) + "."
    )


def _table(run: dict[str, Any]) -> Table:
    """Return what stands in every row of every layout."""
    names = [tag_text(tag) for tag in run["tags"]]
    return Table(
        f"Every row of {run['name']}: role, head, channel",
        ("row", *(f"({layout})" for layout in run["layouts"])),
        tuple(
            (str(row), *(names[tag] for tag in tags))
            for row, tags in enumerate(
                zip(*run["layouts"].values(), strict=True)
            )
        ),
    )
