"""What every figure returns: panels, a finding, and a verdict that can fail.

A `Picture` shows itself in a notebook and on a page as self-contained HTML: no
script, no style sheet, no network. Without HTML it prints as text.
"""

import functools
import html
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attention_lab.figures.data import as_number, as_sequence, as_text
from attention_lab.figures.marks import Mark
from attention_lab.figures.palette import STATE_COLORS
from attention_lab.figures.svg import render_svg

#: Panels never shrink on a phone that is 320 px wide.
MAX_PANEL_WIDTH = 300


@dataclass(frozen=True)
class Panel:
    """One small drawing: its size in pixels, its marks, its description.

    Raises
    ------
    ValueError
        If the panel is wider than `MAX_PANEL_WIDTH`, empty, or undescribed,
        or `marks` holds something else.
    """

    width: float
    height: float
    marks: tuple[Mark, ...]
    alt: str

    def __post_init__(self) -> None:
        """Refuse what a phone or a screen reader could not show."""
        for name in ("width", "height"):
            as_number(name, getattr(self, name), least=0)
        if not 0 < self.width <= MAX_PANEL_WIDTH:
            raise ValueError(
                f"width: a panel is at most {MAX_PANEL_WIDTH} px wide, "
                f"not {self.width}"
            )
        if not check_parts("marks", self.marks, Mark, "a tuple of marks"):
            raise ValueError("marks: a panel must show something")
        as_text("alt", self.alt)

    @classmethod
    def around(cls, marks: Sequence[Mark], alt: str) -> "Panel":
        """Return the smallest panel that holds marks placed at x, y ≥ 0."""
        bounds = [mark.bounds for mark in marks]
        return cls(
            math.ceil(max((b[2] for b in bounds), default=0) + 2),
            math.ceil(max((b[3] for b in bounds), default=0) + 2),
            tuple(marks),
            alt,
        )


@dataclass(frozen=True)
class Verdict:
    """One checked statement about the data of a picture.

    Parameters
    ----------
    label : what was checked.
    passed : whether it holds.
    value : the number found, as text.
    tolerance : what it was held against, or "exact".
    provenance : where the number comes from.

    Raises
    ------
    ValueError
        If `passed` is no bool, or a text is missing.

    Examples
    --------
    >>> print(Verdict("rows sum to 1", True, "off by 6e-08", "≤ 1e-06", "run"))
    ✓ rows sum to 1: off by 6e-08 (≤ 1e-06; run)
    """

    label: str
    passed: bool
    value: str
    tolerance: str
    provenance: str

    def __post_init__(self) -> None:
        """Refuse a verdict that does not say what was checked, and where."""
        for name in ("label", "value", "tolerance", "provenance"):
            as_text(name, getattr(self, name))
        if not isinstance(self.passed, (bool, np.bool_)):
            raise ValueError(
                f"passed must be True or False, not {self.passed!r}"
            )

    def as_data(self) -> dict[str, Any]:
        """Return the verdict as a script shows it, see `base.js`."""
        return {
            "label": self.label,
            "passed": bool(self.passed),
            "value": self.value,
            "held": f"{self.tolerance}; {self.provenance}",
        }

    def __str__(self) -> str:
        sign = "✓" if self.passed else "✗"
        return (
            f"{sign} {self.label}: {self.value} "
            f"({self.tolerance}; {self.provenance})"
        )


@dataclass(frozen=True)
class Table:
    """The numbers behind a picture, for those who read rather than look.

    Raises
    ------
    ValueError
        If a part is no text, or a row has not one cell per column.
    """

    summary: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Refuse what would not be a table."""
        as_text("summary", self.summary)
        size = len(check_parts("head", self.head, str, "a tuple of texts"))
        what = f"a tuple of {size} texts"
        rows = as_sequence("rows", self.rows, "a tuple of rows")
        for place, row in enumerate(rows):
            check_parts(f"rows[{place}]", row, str, what, size)


@dataclass(frozen=True)
class Picture:
    """Panels with a title, one finding and at least one verdict.

    Parameters
    ----------
    panels : drawn side by side where there is room, else below each other.
    title : what the picture is about.
    alt : what a screen reader hears before the panels.
    finding : one sentence that says what to see.
    verdicts : what was checked on the data drawn.
    table : the same numbers as text, folded away.

    Raises
    ------
    ValueError
        If there is no panel, no verdict, or no text where text is needed, or
        a panel, a verdict or the table is something else.
    """

    panels: Sequence[Panel]
    title: str
    alt: str
    finding: str
    verdicts: Sequence[Verdict]
    table: Table | None = None
    _drawn: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        """Check the parts and draw at once, so that errors show at once."""
        if not check_parts("panels", self.panels, Panel, "a list of panels"):
            raise ValueError("panels: a picture needs at least one panel")
        if not check_verdicts("verdicts", self.verdicts):
            raise ValueError(
                "verdicts: a picture must say what was checked on its data"
            )
        for name in ("title", "alt", "finding"):
            as_text(name, getattr(self, name))
        if self.table is not None and not isinstance(self.table, Table):
            raise ValueError(
                f"table must be a Table or None, not {self.table!r}"
            )
        svgs = [
            _panel_svg(p.width, p.height, tuple(p.marks), p.alt)
            for p in self.panels
        ]
        object.__setattr__(self, "_drawn", "".join(svgs))

    @property
    def drawn(self) -> str:
        """The panels as SVG, one after the other."""
        return self._drawn

    @property
    def passed(self) -> bool:
        """Whether every verdict holds."""
        return all(verdict.passed for verdict in self.verdicts)

    def __repr__(self) -> str:
        lines = [self.title, self.finding, *map(str, self.verdicts)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the picture as one `<figure>` that needs nothing else."""
        title, alt = html.escape(self.title), html.escape(self.alt)
        verdicts = "".join(verdict_html(v) for v in self.verdicts)
        return (
            f'<figure class="attn-figure" aria-label="{title}" '
            'style="margin:1em 0;text-align:left;break-inside:avoid">'
            f'<p class="attn-title" style="margin:0 0 .75em;font-weight:600">'
            f"{title}</p>"
            f'<div class="attn-panels" role="group" aria-label="{alt}" '
            'style="display:flex;flex-wrap:wrap;gap:20px 36px;'
            f'align-items:flex-start">{self._drawn}</div>'
            '<figcaption class="attn-caption" style="margin:.9em 0 0;'
            'text-align:left;font-size:1em;color:inherit">'
            '<p class="attn-finding" style="margin:0 0 .5em">'
            f"{html.escape(self.finding)}</p>"
            f"{verdicts}{table_html(self.table)}</figcaption></figure>"
        )


@functools.lru_cache(maxsize=64)
def _panel_svg(
    width: float, height: float, marks: tuple[Mark, ...], alt: str
) -> str:
    """Draw a panel, or return what was drawn for the same marks before."""
    return render_svg(width, height, marks, alt)


def check_parts(
    name: str, parts: Any, kind: Any, what: str, size: int | None = None
) -> list[Any]:
    """Return the parts as a list, or refuse what is not all of one kind.

    Raises
    ------
    ValueError
        If `parts` is no list or tuple, has not `size` parts where that is
        fixed, or a part is not of the kind; names the argument, the place
        and the type found.
    """
    listed = as_sequence(name, parts, what, size)
    for place, part in enumerate(listed):
        if not isinstance(part, kind):
            raise ValueError(
                f"{name} must be {what}, but {name}[{place}] is of type "
                f"{type(part).__name__}"
            )
    return listed


def check_verdicts(name: str, verdicts: Any) -> list[Verdict]:
    """Return the verdicts as a list, or refuse what is none.

    Raises
    ------
    ValueError
        If `verdicts` is no list or tuple of verdicts.
    """
    return check_parts(name, verdicts, Verdict, "a list of verdicts")


def verdict_html(verdict: Verdict) -> str:
    """Return one line of the verdict strip."""
    kind, sign, word = (
        ("ok", "✓", "holds") if verdict.passed else ("bad", "✗", "fails")
    )
    color = STATE_COLORS["right" if verdict.passed else "wrong"]
    chip = (
        "display:inline-block;min-width:1.5em;text-align:center;"
        f"font-weight:700;border-radius:3px;background:{color};color:#fff;"
        "print-color-adjust:exact;-webkit-print-color-adjust:exact"
    )
    return (
        '<p class="attn-verdict" style="margin:.25em 0;font-size:.9em">'
        f'<span class="{kind}" role="img" aria-label="{word}" '
        f'style="{chip}">{sign}</span> '
        f"{html.escape(verdict.label)}: "
        f"<strong>{html.escape(verdict.value)}</strong> "
        f"({html.escape(verdict.tolerance)}; "
        f"{html.escape(verdict.provenance)})</p>"
    )


def table_html(table: Table | None) -> str:
    """Return the folded table of numbers, or nothing."""
    if table is None:
        return ""
    head = "".join(
        f'<th scope="col">{html.escape(cell)}</th>' for cell in table.head
    )
    rows = "".join(
        "<tr>"
        + "".join(f"<td>{html.escape(cell)}</td>" for cell in row)
        + "</tr>"
        for row in table.rows
    )
    return (
        '<details class="attn-table" style="margin:.5em 0 0;font-size:.9em">'
        f"<summary>{html.escape(table.summary)}</summary>"
        '<div style="overflow-x:auto" tabindex="0" role="group" '
        f'aria-label="{html.escape(table.summary)}">'
        '<table style="font-variant-numeric:tabular-nums">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
        "</div></details>"
    )
