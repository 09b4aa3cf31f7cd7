"""A plot with two axes, as marks: what figures with curves share.

`interactive/plot.js` draws the same in a page.
"""

import math
from dataclasses import dataclass

from attention_lab.figures.marks import Box, Label, Mark, Point, Stroke
from attention_lab.figures.palette import CELL_EDGE, FAINT, INK, MUTED


@dataclass(frozen=True)
class Axis:
    """From where to where, with which ticks.

    Parameters
    ----------
    low, high : the ends.
    name : what is measured, with its unit.
    ticks : value and text of each tick.
    is_log : whether equal steps are equal factors.

    Raises
    ------
    ValueError
        If the ends are not in order, or a logarithmic axis reaches 0.
    """

    low: float
    high: float
    name: str
    ticks: tuple[tuple[float, str], ...]
    is_log: bool = False

    def __post_init__(self) -> None:
        """Refuse what has no places."""
        if not self.low < self.high or (self.is_log and self.low <= 0):
            raise ValueError(
                f"axis {self.name!r} cannot go from {self.low} to {self.high}"
            )

    def place(self, value: float) -> float:
        """Return where a value lies: 0 at the low end, 1 at the high end.

        Values beyond an end lie on it.

        Examples
        --------
        >>> round(decades("FLOP per byte", -1, 3).place(10), 3)
        0.5
        """
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.is_log:
            low, high, value = map(math.log, (low, high, value))
        return (value - low) / (high - low)


def decades(name: str, first: int, last: int) -> Axis:
    """Return a logarithmic axis with a tick at every power of ten."""
    powers = range(first, last + 1)
    ticks = tuple((10.0**power, power_text(power)) for power in powers)
    return Axis(10.0**first, 10.0**last, name, ticks, is_log=True)


def power_text(power: int) -> str:
    """Write a power of ten.

    Examples
    --------
    >>> [power_text(n) for n in (-2, -1, 0, 3, 5)]
    ['0.01', '0.1', '1', '1000', '10⁵']
    """
    if -3 <= power <= 3:
        return f"{10.0**power:g}"
    return "10" + str(power).translate(
        str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    )


@dataclass(frozen=True)
class Plot:
    """Two axes on a rectangle whose upper left corner is (x, y)."""

    x: float
    y: float
    width: float
    height: float
    across: Axis
    up: Axis

    def point(self, across: float, up: float) -> Point:
        """Return the place of a pair of values."""
        return (
            self.x + self.width * self.across.place(across),
            self.y + self.height * (1 - self.up.place(up)),
        )

    def line(
        self,
        points: list[tuple[float, float]],
        *,
        color: str = INK,
        width: float = 1.5,
        dash: tuple[float, float] | None = None,
    ) -> Stroke:
        """Return a line through pairs of values."""
        places = tuple(self.point(*pair) for pair in points)
        return Stroke((places,), color=color, width=width, dash=dash)

    def dot(
        self, across: float, up: float, *, size: float = 7, fill: str
    ) -> Box:
        """Return a small square on a pair of values."""
        x, y = self.point(across, up)
        half = size / 2
        return Box(x - half, y - half, size, size, fill=fill, edge=CELL_EDGE)

    def frame(self, below: float = 0) -> list[Mark]:
        """Return the axes with ticks and names; `below` moves the lower one."""
        left, bottom = self.x, self.y + self.height
        foot = bottom + below
        lines = [
            ((left, self.y), (left, bottom)),
            ((left, foot), (left + self.width, foot)),
        ]
        marks: list[Mark] = []
        for value, text in self.across.ticks:
            x, _ = self.point(value, self.up.low)
            lines.append(((x, foot), (x, foot + 4)))
            marks.append(Label(x, foot + 12, text, 11, color=MUTED))
        for value, text in self.up.ticks:
            _, y = self.point(self.across.low, value)
            lines.append(((left - 4, y), (left, y)))
            marks.append(Label(left - 6, y, text, 11, "end", MUTED))
        end = left + self.width
        return [
            Stroke(tuple(lines), color=FAINT),
            *marks,
            Label(end, foot + 28, self.across.name, 11, "end"),
            Label(left - 4, self.y - 14, self.up.name, 11, "start"),
        ]
