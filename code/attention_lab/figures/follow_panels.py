"""One chain as a panel: the memory, the steps, the result cell by cell."""

import math
from collections.abc import Mapping
from typing import Any

from attention_lab.figures.flow_box import colors_of
from attention_lab.figures.follow_data import memories, misplaced, places_of
from attention_lab.figures.follow_stage import sum_of
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
    ink_on,
    token_color,
)
from attention_lab.figures.parts import (
    CHIP,
    axis_text,
    cell,
    chip,
    heading,
    note,
)
from attention_lab.figures.picture import MAX_PANEL_WIDTH, Panel

_WIDTH = MAX_PANEL_WIDTH - 6
_PLACES = 24  # in a line of the memory strip
_LEFT, _ROW, _BETWEEN = 18, 25, 12


def layout_chain(chain: Mapping[str, Any], source: Mapping[str, Any]) -> Panel:
    """Return a chain with one element followed from step to step.

    Parameters
    ----------
    chain, source : a chain and its input, as `read_follow` returns them.
    """
    code = source["start"]
    name = source["names"][code]
    title = shorten(chain["name"], 13, _WIDTH, bold=True)
    marks: list[Mark] = [
        heading(0, 8, title),
        note(
            0, 28, f"followed: {name}, token {name.replace('·', ', channel ')}"
        ),
    ]
    y = 52.0
    known = memories(chain)
    shown = None
    for number, step in enumerate(chain["steps"]):
        is_copy = shown not in (None, step["memory"])
        if number:
            marks += _call(y, f"{number}  {step['call']}", shown, is_copy)
            y += 22
        if step["memory"] != shown:
            shown = step["memory"]
            strip, y = _strip(y, known[shown], source, code, is_copy)
            marks += strip
        if number:
            lines, y = _axes(y, step)
            marks += lines
            marks.append(_sum(y, step, code))
            y += 30
    grid, y = _result(y, chain["steps"][-1], source, code)
    marks += grid
    return Panel.around(marks, _describe(chain, name))


def _describe(chain: Mapping[str, Any], name: str) -> str:
    last = chain["steps"][-1]
    wrong, whole = misplaced(last), len(last["codes"])
    calls = ", then ".join(step["call"] for step in chain["steps"][1:])
    return (
        f"{chain['name']}: {calls}. Element {name} is followed. In the result "
        f"{wrong} of {whole} elements are misplaced."
    )


def _call(y: float, call: str, shown: int | None, is_copy: bool) -> list[Mark]:
    """Return the line of a step: what is called, and view or copy."""
    word = "copy" if is_copy else "view"
    room = _WIDTH - text_width(word, 12) - 8
    text = shorten(call, 12, room, mono=True, bold=True)
    return [
        Label(0, y, text, 12, anchor="start", mono=True, bold=True),
        Label(_WIDTH, y, word, 12, anchor="end"),
    ]


def _strip(
    y: float,
    memory: Mapping[int, int],
    source: Mapping[str, Any],
    code: int,
    is_new: bool,
) -> tuple[list[Mark], float]:
    """Return the memory as a strip; the followed element's place is told."""
    side, count = _WIDTH / _PLACES, max(source["tokens"]) + 1
    text = "new memory" if is_new else "memory"
    marks: list[Mark] = [note(0, y, f"{text}, a shade per token")]
    y += 12
    for place in sorted(memory):
        x = place % _PLACES * side
        top = y + place // _PLACES * 40
        fill = token_color(source["tokens"][memory[place]], count)
        marks += cell(x, top, side, 20, fill)
        middle = x + side / 2
        if memory[place] == code:
            marks.append(
                Box(x + 1, top + 1, side - 2, 18, None, ink_on(fill), 2.5)
            )
            marks.append(Label(middle, top + 29, str(place), 12, bold=True))
        elif place % 6 == 0 and memory.get(place + 1) != code:
            marks.append(Label(middle, top + 29, str(place), 10, color=MUTED))
    return marks, y + 40 * math.ceil(len(memory) / _PLACES) + 10


def _axes(y: float, step: Mapping[str, Any]) -> tuple[list[Mark], float]:
    """Return a chip, the size and the stride of every axis."""
    marks: list[Mark] = []
    x = 0.0
    axes = zip(step["letters"], step["shape"], step["strides"], strict=True)
    for letter, size, stride in axes:
        text = f"{size} (+{stride})"
        colors = list(zip(letter.split("·"), colors_of(letter), strict=True))
        width = (CHIP + 1) * len(colors) + 4 + text_width(text, 12)
        if x + width > _WIDTH:
            x, y = 0.0, y + 22
        for part, color in colors:
            marks += chip(x, y, part, color)
            x += CHIP + 1
        marks.append(Label(x + 4, y, text, 12, anchor="start"))
        x += 4 + text_width(text, 12) + 8
    return marks, y + 22


def _sum(y: float, step: Mapping[str, Any], code: int) -> Label:
    """Return the stride arithmetic of the followed element, written out."""
    text = "it is not in this part"
    for (index, place), here in zip(
        places_of(step), step["codes"], strict=True
    ):
        if here == code:
            text = sum_of(step, index, place)
    text = shorten(text, 12, _WIDTH, mono=True)
    return Label(0, y, text, 12, anchor="start", mono=True)


def _result(
    y: float, step: Mapping[str, Any], source: Mapping[str, Any], code: int
) -> tuple[list[Mark], float]:
    """Return the result, a block per head, its cells named by origin."""
    names, tokens = source["names"], source["tokens"]
    rows, columns = ([1, 1, *step["shape"]])[-2:]
    longest = max(text_width(name, 11) for name in names)
    room = math.floor((_WIDTH - _LEFT) / columns)
    width = min(math.ceil(longest) + 16, room)
    across = max(
        1, int((_WIDTH - _LEFT + _BETWEEN) // (columns * width + _BETWEEN))
    )
    wrong, total = misplaced(step), len(step["codes"])
    marks: list[Mark] = [
        note(0, y, "the result: token·channel of each element"),
        note(0, y + 17, "dashed and ✗: belongs elsewhere"),
    ]
    y += 40
    x = 0.0
    for letter, word in zip(
        step["letters"][-2:], ("rows", "columns"), strict=True
    ):
        if letter in AXIS_COLORS:
            named, end = axis_text(x, y, letter, word)
            marks += named
            x = end + 14
    y += 28
    blocks = total // (rows * columns)
    places = list(places_of(step))
    for block in range(blocks):
        line, column = divmod(block, across)
        x = _LEFT + column * (columns * width + _BETWEEN)
        top = y + line * (rows * _ROW + 30)
        index = places[block * rows * columns][0]
        lead = [
            f"{letter} {i}"
            for letter, i, size in zip(
                step["letters"][:-2], index[:-2], step["shape"][:-2],
                strict=True,
            )
            if size > 1
        ]  # fmt: skip
        marks.append(
            Label(x, top, " ".join(lead), 11, anchor="start", bold=True)
        )
        for row in range(rows):
            middle = top + 12 + row * _ROW + _ROW / 2
            if column == 0:
                marks.append(
                    Label(_LEFT - 8, middle, str(row), 10, color=MUTED)
                )
            for d in range(columns):
                n = (block * rows + row) * columns + d
                here = step["codes"][n]
                fill = token_color(tokens[here], max(tokens) + 1)
                marks += _cell(
                    x + d * width,
                    middle - _ROW / 2,
                    width,
                    fill,
                    names[here],
                    step["wanted"][n] != here,
                    here == code,
                )
    y += math.ceil(blocks / across) * (rows * _ROW + 30) + 2
    text = f"{total - wrong} of {total} elements in their place"
    marks.append(Label(0, y, text, 12, anchor="start", bold=True))
    return marks, y


def _cell(
    x: float,
    y: float,
    width: float,
    fill: str,
    name: str,
    is_wrong: bool,
    is_followed: bool,
) -> list[Mark]:
    """Draw one element; misplaced ones are dashed and crossed."""
    ink = ink_on(fill)
    marks: list[Mark] = [
        Box(x, y, width, _ROW, fill=fill, edge=CELL_EDGE, edge_width=0.6)
    ]
    left = x + width / 2 - (4 if is_wrong else 0)
    middle = y + _ROW / 2
    style = {"color": ink, "on": fill, "bold": is_followed}
    marks.append(Label(left, middle, name, 11, **style))
    if is_wrong:
        marks.append(Label(x + width - 6.5, middle, "✗", 9, color=ink, on=fill))
        a, b, c, d = x + 2, y + 2, x + width - 2, y + _ROW - 2
        frame = ((a, b), (c, b), (c, d), (a, d), (a, b))
        marks.append(Stroke((frame,), color=ink, width=0.9, dash=(2.5, 2.0)))
    if is_followed:
        marks.append(Box(x + 1, y + 1, width - 2, _ROW - 2, None, ink, 2.5))
    return marks
