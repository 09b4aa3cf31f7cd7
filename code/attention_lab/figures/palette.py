"""Colours: one meaning each, the same in every figure and in both themes.

Text and lines take the page's own text colour (`INK`). Only chips and cells
have a fixed colour, and what is written on them is black or white, whichever
is easier to read: at worst 4.58 : 1. A colour never stands alone; a letter, a
number or a hatch says the same.
"""

import math

INK = "ink"  # the page's text colour
MUTED = "muted"  # the same, a little lighter: secondary text
FAINT = "faint"  # hairlines and hatches, never text

#: The line around a cell: seen on every fill, in both themes.
CELL_EDGE = "#6b7280"

#: Where cells lie on a sheet of their own: the sheet, and lines across it.
PAPER, PAPER_INK = "#ffffff", "#1f2328"

#: How much of the page's text colour each kind of ink keeps.
OPACITY = {INK: 1.0, MUTED: 0.75, FAINT: 0.45}

#: The seven axes. All are dark enough for white letters.
AXIS_COLORS = {
    "B": "#5b6573",
    "L": "#1f6fb5",
    "S": "#b0530a",
    "H": "#8250c4",
    "D": "#0c7c7c",
    "E": "#75680a",
    "P": "#85604a",
}

#: Query, key and value; the first two look like the axes they live on.
ROLE_COLORS = {
    "q": AXIS_COLORS["L"],
    "k": AXIS_COLORS["S"],
    "v": "#b83280",
}

#: What happened to a cell.
STATE_COLORS = {
    "right": "#1a7f37",
    "wrong": "#c92a2a",
    "kept": "#bcd7ef",
    "written": "#3d5a80",
    "skipped": "#d9dce1",
}

# Ends and middles of the ramps as (lightness, chroma, hue) in OKLCH, whose
# lightness is even to the eye (Ottosson 2020).
_WEIGHT = ((0.975, 0.025, 90.0), (0.80, 0.145, 75.0), (0.36, 0.085, 55.0))
_NEGATIVE = ((0.965, 0.0, 262.0), (0.79, 0.075, 262.0), (0.46, 0.11, 262.0))
_POSITIVE = ((0.965, 0.0, 75.0), (0.83, 0.120, 75.0), (0.56, 0.12, 62.0))
_TOKEN = ((0.955, 0.022, 250.0), (0.72, 0.11, 250.0), (0.40, 0.115, 255.0))
_PIXEL = ((0.965, 0.006, 90.0), (0.66, 0.006, 90.0), (0.25, 0.006, 90.0))


def luminance(color: str) -> float:
    """Return the relative luminance of `#rrggbb` (WCAG 2.2).

    Examples
    --------
    >>> luminance("#ffffff")
    1.0
    """
    channels = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4
        for c in channels
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two `#rrggbb` colours, from 1 to 21.

    Examples
    --------
    >>> contrast("#000000", "#ffffff")
    21.0
    """
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def ink_on(fill: str) -> str:
    """Return black or white, whichever is easier to read on `fill`.

    Examples
    --------
    >>> ink_on("#1f6fb5")
    '#ffffff'
    """
    return max("#ffffff", "#000000", key=lambda ink: contrast(ink, fill))


def blend(over: str, under: str, opacity: float) -> str:
    """Return the colour seen when `over` covers `under` with `opacity`.

    Examples
    --------
    >>> blend("#000000", "#ffffff", 0.2)
    '#cccccc'
    """
    mixed = [
        round(
            opacity * int(over[i : i + 2], 16)
            + (1 - opacity) * int(under[i : i + 2], 16)
        )
        for i in (1, 3, 5)
    ]
    return "#" + "".join(f"{channel:02x}" for channel in mixed)


def weight_color(weight: float) -> str:
    """Return the colour of a weight in [0, 1]: cream to dark amber.

    Examples
    --------
    >>> luminance(weight_color(0.2)) > luminance(weight_color(0.3))
    True
    """
    return _ramp(_WEIGHT, weight)


def value_color(value: float) -> str:
    """Return the colour of a value in [-1, 1]: blue, paper, amber.

    Examples
    --------
    >>> value_color(0.0) == value_color(-0.0)
    True
    """
    return _ramp(_NEGATIVE if value < 0 else _POSITIVE, abs(value))


def token_color(token: int, count: int) -> str:
    """Return the shade of one of `count` tokens: the first is the lightest.

    Examples
    --------
    >>> token_color(0, 5) != token_color(1, 5)
    True
    """
    return _ramp(_TOKEN, token / (count - 1) if count > 1 else 0.0)


def pixel_color(level: float) -> str:
    """Return the grey of a pixel in [0, 1]: 0 is paper, 1 is ink.

    Examples
    --------
    >>> luminance(pixel_color(0.0)) > luminance(pixel_color(1.0))
    True
    """
    return _ramp(_PIXEL, level)


def _ramp(anchors: tuple, position: float) -> str:
    """Read a ramp of evenly spaced OKLCH anchors at `position` in [0, 1]."""
    place = min(max(position, 0.0), 1.0) * (len(anchors) - 1)
    left = min(int(place), len(anchors) - 2)
    part = place - left
    pairs = zip(anchors[left], anchors[left + 1], strict=True)
    return _oklch_to_hex(*(a + part * (b - a) for a, b in pairs))


def _oklch_to_hex(lightness: float, chroma: float, hue: float) -> str:
    """Convert OKLCH to sRGB, as https://bottosson.github.io/posts/oklab."""
    a = chroma * math.cos(math.radians(hue))
    b = chroma * math.sin(math.radians(hue))
    long = (lightness + 0.3963377774 * a + 0.2158037573 * b) ** 3
    medium = (lightness - 0.1055613458 * a - 0.0638541728 * b) ** 3
    short = (lightness - 0.0894841775 * a - 1.2914855480 * b) ** 3
    linear = (
        4.0767416621 * long - 3.3077115913 * medium + 0.2309699292 * short,
        -1.2684380046 * long + 2.6097574011 * medium - 0.3413193965 * short,
        -0.0041960863 * long - 0.7034186147 * medium + 1.7076147010 * short,
    )
    return "#" + "".join(f"{_encode(channel):02x}" for channel in linear)


def _encode(channel: float) -> int:
    """Return one linear channel as an sRGB byte."""
    channel = min(max(channel, 0.0), 1.0)
    if channel <= 0.0031308:
        return round(255 * 12.92 * channel)
    return round(255 * (1.055 * channel ** (1 / 2.4) - 0.055))
