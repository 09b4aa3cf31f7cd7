"""The three marks every figure is made of, as plain data.

A layout is a list of marks in pixels, y downwards. It is computed before
anything is drawn, so a test can read positions, labels and colours as numbers.
"""

from dataclasses import dataclass

from attention_lab.figures.palette import INK

Point = tuple[float, float]


@dataclass(frozen=True)
class Box:
    """A rectangle, filled or not."""

    x: float
    y: float
    width: float
    height: float
    fill: str | None = None
    edge: str | None = INK
    edge_width: float = 1.0

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom edge."""
        return (self.x, self.y, self.x + self.width, self.y + self.height)


@dataclass(frozen=True)
class Stroke:
    """One or more lines, drawn in one go."""

    lines: tuple[tuple[Point, ...], ...]
    color: str = INK
    width: float = 1.0
    dash: tuple[float, float] | None = None

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom edge."""
        xs = [x for line in self.lines for x, _ in line]
        ys = [y for line in self.lines for _, y in line]
        return (min(xs), min(ys), max(xs), max(ys))


@dataclass(frozen=True)
class Label:
    """One line of text; (x, y) is its anchor, halfway up the digits.

    `on` is the fill behind the text, if there is one.
    """

    x: float
    y: float
    text: str
    size: float = 12.0
    anchor: str = "middle"
    color: str = INK
    mono: bool = False
    bold: bool = False
    on: str | None = None

    @property
    def bounds(self) -> tuple[float, float, float, float]:
        """Left, top, right and bottom edge, estimated for a wide font."""
        width = text_width(self.text, self.size, mono=self.mono, bold=self.bold)
        left = (
            self.x
            - {"start": 0.0, "middle": 0.5, "end": 1.0}[self.anchor] * width
        )
        half = 0.42 * self.size
        return (left, self.y - half, left + width, self.y + half)


Mark = Box | Stroke | Label

# Widths in units of the font size; all other characters count as 0.63.
_EMS = {
    **dict.fromkeys(" .,:;'!|ijlIft()[]·⋮", 0.36),
    **dict.fromkeys("<>=+−×≤≥±~√", 0.84),
    **dict.fromkeys("mwMW—…→∞%", 1.0),
}


def text_width(
    text: str, size: float, *, mono: bool = False, bold: bool = False
) -> float:
    """Estimate how wide `text` is in pixels, on the generous side.

    The reader's system font decides; a wide one (DejaVu Sans) is assumed.

    Examples
    --------
    >>> text_width("1234", 10, mono=True)
    24.4
    """
    if mono:
        return 0.61 * size * len(text)
    return sum(_EMS.get(c, 0.63) for c in text) * size * (1.08 if bold else 1.0)


def shorten(text: str, size: float, width: float, **style: bool) -> str:
    """Cut `text` to `width` pixels, with an ellipsis where it was cut.

    Examples
    --------
    >>> shorten("attention", 10, 40, mono=True)
    'atten…'
    """
    if text_width(text, size, **style) <= width:
        return text
    while text and text_width(text + "…", size, **style) > width:
        text = text[:-1]
    return text + "…"
