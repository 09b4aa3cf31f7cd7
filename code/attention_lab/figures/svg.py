"""Marks in, inline SVG out: matplotlib draws, this file tidies.

Black sentinels become `currentColor`, so one copy suits both themes. Nothing
that could clash with another picture on the page is left: no ids, no styles
that reach outside, no fonts by name.
"""

import html
import io
import re
from collections.abc import Sequence
from xml.etree import ElementTree

import matplotlib
import matplotlib.backends.backend_svg  # else the first picture waits for it
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path
from matplotlib.transforms import Affine2D

from attention_lab.figures.marks import Box, Label, Mark, Stroke
from attention_lab.figures.palette import FAINT, INK, MUTED, OPACITY

SANS = "system-ui, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
MONO = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace"

# No figure uses these near-blacks, so they can stand for the page's ink.
_SENTINELS = {INK: "#010203", MUTED: "#010204", FAINT: "#010205"}
_INKS = {sentinel: ink for ink, sentinel in _SENTINELS.items()}
_BASELINE = 0.36  # of the font size, from the middle of a digit to its foot


def render_svg(
    width: float, height: float, marks: Sequence[Mark], label: str
) -> str:
    """Draw marks as one `<svg role="img">` of `width` by `height` pixels.

    Parameters
    ----------
    width, height : size in CSS pixels at which the text has its true size.
    marks : drawn in order, later ones on top.
    label : what a screen reader says.

    Returns
    -------
    Markup without ids, scripts, links or fixed ink; the same for the same
    input.
    """
    root = ElementTree.fromstring(_draw(width, height, marks))
    body = "".join(
        _tidy(element) for element in root.iter() if _name(element) in _KEPT
    )
    size = f"{_number(width)} {_number(height)}"
    return (
        f'<svg role="img" aria-label="{html.escape(label)}" '
        f'xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" '
        f'width="{_number(width)}" height="{_number(height)}" '
        f'font-family="{SANS}" fill="none" '
        f'style="max-width:100%;height:auto">{body}</svg>'
    )


def _draw(width: float, height: float, marks: Sequence[Mark]) -> str:
    """Let matplotlib write the marks as SVG; one unit is one CSS pixel."""
    style = {"svg.fonttype": "none", "svg.hashsalt": "attention_lab"}
    with matplotlib.rc_context(style):
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        figure.patch.set_visible(False)
        down = Affine2D().scale(1, -1).translate(0, height)
        for mark in marks:
            if isinstance(mark, Label):
                _add_label(figure, mark, width, height)
            else:
                figure.add_artist(_artist(mark, down))
        sheet = io.StringIO()
        figure.savefig(
            sheet, format="svg", transparent=True, metadata={"Date": None}
        )
    return sheet.getvalue()


def _artist(mark: Box | Stroke, down: object) -> object:
    """Return the matplotlib artist of a box or a stroke."""
    if isinstance(mark, Box):
        return Rectangle(
            (mark.x, mark.y),
            mark.width,
            mark.height,
            facecolor=_paint(mark.fill),
            edgecolor=_paint(mark.edge),
            linewidth=mark.edge_width,
            transform=down,
        )
    points = [point for line in mark.lines for point in line]
    codes = [
        Path.LINETO if place else Path.MOVETO
        for line in mark.lines
        for place in range(len(line))
    ]
    return PathPatch(
        Path(points, codes),
        facecolor="none",
        edgecolor=_paint(mark.color),
        linewidth=mark.width,
        linestyle=(0, mark.dash) if mark.dash else "solid",
        capstyle="butt",
        transform=down,
    )


def _add_label(figure: object, mark: Label, width: float, height: float):
    """Put one line of text on the figure."""
    figure.text(
        mark.x / width,
        1 - (mark.y + _BASELINE * mark.size) / height,
        _printable(mark.text),
        ha={"start": "left", "middle": "center", "end": "right"}[mark.anchor],
        va="baseline",
        fontsize=mark.size,
        fontweight="bold" if mark.bold else "normal",
        family="DejaVu Sans Mono" if mark.mono else "DejaVu Sans",
        color=_paint(mark.color),
        parse_math=False,
    )


def _paint(color: str | None) -> str:
    """Return the colour matplotlib gets; ink is replaced afterwards."""
    return "none" if color is None else _SENTINELS.get(color, color)


def _printable(text: str) -> str:
    """Drop what XML cannot hold."""
    return "".join(c for c in text if c.isprintable())


_KEPT = {"path", "text"}


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _tidy(element: ElementTree.Element) -> str:
    """Write one path or text again, with presentation attributes only."""
    style = _style(element)
    if _name(element) == "path":
        if style.get("fill", "") == "none" and "stroke" not in style:
            return ""
        return f'<path d="{_outline(element.get("d", ""))}"{_ink(style)}/>'
    place = f'x="{_coordinate(element, "x")}" y="{_coordinate(element, "y")}"'
    anchor = style.get("text-anchor", "start")
    spare = "" if anchor == "start" else f' text-anchor="{anchor}"'
    if "Mono" in style.get("font-family", style.get("font", "")):
        spare += f' font-family="{MONO}"'
    if style.get("font-weight") == "700":
        spare += ' font-weight="700"'
    size = _number(float(style["font-size"].removesuffix("px")))
    text = html.escape(element.text or "")
    return f'<text {place} font-size="{size}"{spare}{_ink(style)}>{text}</text>'


def _style(element: ElementTree.Element) -> dict[str, str]:
    """Read matplotlib's `style` attribute."""
    pairs = (
        part.split(":", 1)
        for part in element.get("style", "").split(";")
        if ":" in part
    )
    return {name.strip(): value.strip() for name, value in pairs}


def _ink(style: dict[str, str]) -> str:
    """Return fill and stroke, with the sentinels as the page's text colour."""
    # The root says fill="none"; SVG itself would fill with black.
    fill = style.get("fill", "#000000")
    painted = "" if fill == "none" else _paint_attribute("fill", fill)
    stroke = style.get("stroke", "none")
    if stroke != "none":
        painted += _paint_attribute("stroke", stroke)
        width = _number(float(style.get("stroke-width", "1")))
        painted += "" if width == "1" else f' stroke-width="{width}"'
    if "stroke-dasharray" in style:
        painted += f' stroke-dasharray="{style["stroke-dasharray"]}"'
    return painted


def _paint_attribute(kind: str, color: str) -> str:
    ink = _INKS.get(color)
    if ink is None:
        return f' {kind}="{html.escape(color)}"'
    faded = OPACITY[ink]
    return f' {kind}="currentColor"' + (
        "" if faded == 1 else f' {kind}-opacity="{faded}"'
    )


def _outline(path: str) -> str:
    """Write path data on one line, to a hundredth of a pixel."""
    flat = " ".join(path.split())
    return re.sub(r"-?\d+\.?\d*", lambda m: _number(float(m[0])), flat)


def _coordinate(element: ElementTree.Element, axis: str) -> str:
    return _number(float(element.get(axis, "0")))


def _number(value: float) -> str:
    """Write a number to a hundredth, without needless zeros or a minus 0."""
    return f"{round(value, 2) + 0.0:.2f}".rstrip("0").rstrip(".")
