"""Marks that several figures share: chips, cells, hatches, axis names."""

from collections.abc import Iterable

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
    FAINT,
    MUTED,
    ink_on,
)

CHIP = 16.0

#: What one step along an axis is called in a picture.
AXIS_NOUNS = {
    "B": "batch",
    "L": "query",
    "S": "key",
    "H": "head",
    "D": "channel",
    "E": "width",
    "P": "qkv",
}


def chip(x: float, y: float, letter: str, color: str) -> list[Mark]:
    """Return a square with a letter; (x, y) is the middle of its left edge."""
    return [
        Box(x, y - CHIP / 2, CHIP, CHIP, fill=color, edge=None),
        Label(
            x + CHIP / 2,
            y,
            letter,
            11,
            bold=True,
            color=ink_on(color),
            on=color,
        ),
    ]


def axis_name(
    x: float, y: float, letter: str, size: int, *, noun: str | None = None
) -> tuple[list[Mark], float]:
    """Return "[L] query 5" starting at x, and where it ends."""
    return axis_text(x, y, letter, f"{noun or AXIS_NOUNS[letter]} {size}")


def axis_text(
    x: float, y: float, letter: str, text: str
) -> tuple[list[Mark], float]:
    """Return an axis chip and words after it, and where they end."""
    marks = chip(x, y, letter, AXIS_COLORS[letter])
    start = x + CHIP + 5
    marks.append(Label(start, y, text, 12, anchor="start"))
    return marks, start + text_width(text, 12)


def axis_name_upright(
    middle: float,
    y: float,
    letter: str,
    size: int,
    *,
    noun: str | None = None,
) -> list[Mark]:
    """Return chip, noun and size below each other, at most 38 px wide."""
    word = shorten(noun or AXIS_NOUNS[letter], 12, 38)
    return [
        *chip(middle - CHIP / 2, y - 19, letter, AXIS_COLORS[letter]),
        Label(middle, y, word, 12),
        Label(middle, y + 16, str(size), 12),
    ]


def cell(
    x: float,
    y: float,
    width: float,
    height: float,
    fill: str,
    text: str = "",
    *,
    size: float = 11,
    bold: bool = False,
    mono: bool = False,
) -> list[Mark]:
    """Return a filled cell with its text in black or white."""
    marks: list[Mark] = [
        Box(x, y, width, height, fill=fill, edge=CELL_EDGE, edge_width=0.6)
    ]
    if text:
        marks.append(
            Label(
                x + width / 2,
                y + height / 2,
                text,
                size,
                bold=bold,
                mono=mono,
                color=ink_on(fill),
                on=fill,
            )
        )
    return marks


def cell_font(texts: Iterable[str], width: float, largest: float = 11) -> float:
    """Return the font size at which all texts fit into cells, 0 for none.

    Examples
    --------
    >>> cell_font(["1", "−175"], 32), cell_font(["1", "−175"], 16)
    (11, 0)
    """
    longest = max(texts, key=lambda text: text_width(text, 1))
    for size in (largest, 10, 9):
        if text_width(longest, size) <= width - 1:
            return size
    return 0


def hatch(
    x: float,
    y: float,
    width: float,
    height: float,
    *,
    gap: float = 5,
    color: str = FAINT,
) -> Stroke:
    """Return diagonal lines that fill a rectangle, edge to edge."""
    lines = []
    offset = gap / 2
    while offset < width + height:
        # The line x' + y' = offset, cut at the rectangle's four sides.
        start = (x + min(offset, width), y + max(0.0, offset - width))
        end = (x + max(0.0, offset - height), y + min(offset, height))
        lines.append((start, end))
        offset += gap
    return Stroke(tuple(lines), color=color, width=0.8)


def empty_grid(
    x: float, y: float, columns: int, rows: int, width: float, height: float
) -> Stroke:
    """Return the lines of empty cells of one size."""
    right, bottom = x + columns * width, y + rows * height
    across = [y + n * height for n in range(rows + 1)]
    down = [x + n * width for n in range(columns + 1)]
    lines = [((x, place), (right, place)) for place in across]
    lines += [((place, y), (place, bottom)) for place in down]
    return Stroke(tuple(lines), color=FAINT, width=0.6)


def heading(x: float, y: float, text: str) -> Label:
    """Return a panel's name."""
    return Label(x, y, text, 13, anchor="start", bold=True)


def note(x: float, y: float, text: str, *, anchor: str = "start") -> Label:
    """Return secondary text."""
    return Label(x, y, text, 11, anchor=anchor, color=MUTED)


def key_span(first: int, count: int) -> str:
    """Name a run of keys.

    Examples
    --------
    >>> key_span(4, 4), key_span(16, 1)
    ('keys 4–7', 'key 16')
    """
    if count == 1:
        return f"key {first}"
    return f"keys {first}–{first + count - 1}"
