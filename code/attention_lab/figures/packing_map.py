"""Packing map: the rows of a fused projection, in several layouts.

The same 3·E rows may be stacked as `(p h d)`, `(h p d)` or `(h d p)`. All
three have the same shape, so only the origin of each row tells them apart.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import as_array, as_sequence, as_whole
from attention_lab.figures.marks import Label, Mark, Stroke
from attention_lab.figures.palette import INK, MUTED, ROLE_COLORS, ink_on
from attention_lab.figures.parts import cell, heading, note
from attention_lab.figures.picture import (
    MAX_PANEL_WIDTH,
    Panel,
    Picture,
    Table,
    Verdict,
    check_verdicts,
)

ROLES = "qkv"
MOST_ROWS = 48
_LEFT, _ROW, _GAP = 26, 18, 16
_COLUMNS_PER_PANEL = 3

Triple = tuple[int, int, int]


def draw_packing(
    rows_by_layout: Mapping[str, Any],
    *,
    verdicts: Sequence[Verdict],
    follow: Triple = (1, 0, 0),
) -> Picture:
    """Draw what each row of a fused q, k, v projection is, layout by layout.

    Parameters
    ----------
    rows_by_layout : an einops order such as `"p h d"`, and for each of the
        3·H·D rows its (p, h, d), read from position-coded weights.
    verdicts : what the caller checked, such as the round trip.
    follow : the (p, h, d) joined by a line through all layouts.

    Returns
    -------
    One column per layout. Of a wide head, d = 0, 1 and D − 1 are drawn.

    Raises
    ------
    ShapeMismatch
        If the layouts differ in size, or rows are not triples.
    ValueError
        If the layouts are no mapping, a layout misses a row or holds one
        twice, is not an order of p, h and d, `follow` is no row of it, or
        `verdicts` holds something else.

    Examples
    --------
    >>> import itertools
    >>> phd = list(itertools.product(range(3), range(2), range(2)))
    >>> hpd = sorted(phd, key=lambda row: (row[1], row[0], row[2]))
    >>> trip = Verdict("round trip", True, "0", "exact", "this run")
    >>> draw_packing({"p h d": phd, "h p d": hpd}, verdicts=[trip]).finding
    'k of head 0, channel 0 is row 4 in p h d, row 2 in h p d.'
    """
    if not isinstance(rows_by_layout, Mapping):
        raise ValueError(
            "rows_by_layout must be a mapping from layouts such as 'p h d' to "
            f"their rows, not {type(rows_by_layout).__name__}"
        )
    if not rows_by_layout:
        raise ValueError("rows_by_layout: pass at least one layout")
    rows, sizes = _check_rows(rows_by_layout)
    checked = check_verdicts("verdicts", verdicts)
    parts = as_sequence("follow", follow, "a triple (p, h, d)", 3)
    p, h, d = follow = tuple(as_whole("follow", part) for part in parts)
    if follow not in next(iter(rows.values())):
        raise ValueError(
            f"follow = {follow} is no (p, h, d) with "
            f"P = 3, H = {sizes['h']}, D = {sizes['d']}"
        )
    found = ", ".join(
        f"row {triples.index(follow)} in {name}"
        for name, triples in rows.items()
    )
    names = list(rows)
    groups = [
        names[i : i + _COLUMNS_PER_PANEL]
        for i in range(0, len(names), _COLUMNS_PER_PANEL)
    ]
    return Picture(
        [
            layout_packing({name: rows[name] for name in group}, sizes, follow)
            for group in groups
        ],
        "What each row of the fused projection is",
        "One column per layout: " + "; ".join(names) + ".",
        f"{ROLES[p]} of head {h}, channel {d} is {found}.",
        [_order_verdict(rows, sizes), *checked],
        _table(rows),
    )


def _check_rows(
    rows_by_layout: Mapping[str, Any],
) -> tuple[dict[str, list[Triple]], dict[str, int]]:
    """Return the triples of every layout, and the sizes of h and d."""
    rows: dict[str, list[Triple]] = {}
    sizes: dict[str, int] = {}
    for name, data in rows_by_layout.items():
        known = isinstance(name, str) and sorted(name.split()) == [
            "d",
            "h",
            "p",
        ]
        if not known:
            raise ValueError(
                f"rows_by_layout: layout {name!r} must be an order of p, h "
                "and d, such as 'p h d'"
            )
        array = as_array(
            f"rows_by_layout[{name!r}]", data, axes=("rows", "(p,h,d)")
        )
        if array.shape[1] != 3:
            raise ShapeMismatch(
                f"rows_by_layout[{name!r}]: each row is (p, h, d), but axis 1 "
                f"has size {array.shape[1]}"
            )
        if (array != np.floor(array)).any():
            raise ValueError(
                f"rows_by_layout[{name!r}] must hold whole numbers (p, h, d)"
            )
        array = array.astype(int)
        triples = [(int(p), int(h), int(d)) for p, h, d in array]
        own = dict(zip("phd", (array.max(axis=0) + 1).tolist(), strict=True))
        sizes = sizes or own
        if own != sizes:
            raise ShapeMismatch(
                f"rows_by_layout[{name!r}] has P, H, D = "
                f"{tuple(own.values())}, but the first layout has "
                f"{tuple(sizes.values())}"
            )
        if sizes["p"] != 3 or sorted(triples) != _all_rows("p h d", sizes):
            raise ValueError(
                f"rows_by_layout[{name!r}] must hold every (p, h, d) with "
                f"P = 3, H = {own['h']}, D = {own['d']} exactly once; it has "
                f"{len(triples)} rows"
            )
        rows[name] = triples
    return rows, sizes


def _all_rows(order: str, sizes: Mapping[str, int]) -> list[Triple]:
    """Return all (p, h, d), the last axis of `order` changing fastest."""
    outer, middle, inner = order.split()
    return [
        tuple({outer: a, middle: b, inner: c}[axis] for axis in "phd")
        for a in range(sizes[outer])
        for b in range(sizes[middle])
        for c in range(sizes[inner])
    ]


def _order_verdict(
    rows: Mapping[str, list[Triple]], sizes: Mapping[str, int]
) -> Verdict:
    """Hold every layout's rows against its name."""
    off = sum(
        found != wanted
        for name, triples in rows.items()
        for found, wanted in zip(triples, _all_rows(name, sizes), strict=True)
    )
    total = sum(len(triples) for triples in rows.values())
    return Verdict(
        "rows are in the order that the layout's name says",
        off == 0,
        f"{off} of {total} differ",
        "exact",
        "position-coded rows",
    )


def drawn_channels(D: int) -> list[int]:
    """Return which channels of a head are drawn: all up to four.

    Examples
    --------
    >>> drawn_channels(4), drawn_channels(11)
    ([0, 1, 2, 3], [0, 1, 10])
    """
    return list(range(D)) if D <= 4 else [0, 1, D - 1]


def layout_packing(
    rows: Mapping[str, list[Triple]], sizes: Mapping[str, int], follow: Triple
) -> Panel:
    """Return up to three columns of rows with one row joined across them."""
    channels = set(drawn_channels(sizes["d"]))
    drawn = 3 * sizes["h"] * len(channels)
    if drawn > MOST_ROWS:
        raise ValueError(
            f"rows_by_layout: axis H has size {sizes['h']}, which needs "
            f"{drawn} rows; at most {MOST_ROWS} can be drawn legibly"
        )
    pitch = (MAX_PANEL_WIDTH - 2) / _COLUMNS_PER_PANEL
    width = pitch - _LEFT - 4
    marks: list[Mark] = []
    ends: list[tuple[float, float]] = []
    for column, (name, triples) in enumerate(rows.items()):
        x = column * pitch + _LEFT
        marks.append(heading(x, 8, f"({name})"))
        marks.append(note(x, 26, "role h d"))
        y, skipped = 40.0, 0
        for place, (p, h, d) in enumerate(triples):
            if d not in channels:
                skipped += 1
                continue
            if skipped:
                marks.append(note(x, y + _GAP / 2, f"⋮ {skipped} rows"))
                y, skipped = y + _GAP, 0
            middle = y + _ROW / 2
            marks.append(
                Label(x - 5, middle, str(place), 10, anchor="end", color=MUTED)
            )
            fill = ROLE_COLORS[ROLES[p]]
            marks += cell(
                x, y, width, _ROW, fill, f"{ROLES[p]} {h} {d}", mono=True
            )
            if (p, h, d) == tuple(follow):
                ends.append((x, middle))
                marks.append(_frame(x, y, width, ink_on(fill)))
            y += _ROW
    for (x, y), (other_x, other_y) in pairwise(ends):
        line = ((x + width, y), (other_x - _LEFT + 4, other_y))
        marks.append(Stroke((line,), color=INK, width=1.6))
    p, h, d = follow
    return Panel.around(
        marks,
        f"{len(triples)} rows in {len(rows)} orders; {ROLES[p]} of head {h}, "
        f"channel {d} is joined by a line.",
    )


def _frame(x: float, y: float, width: float, color: str) -> Stroke:
    """Return a frame just inside a row."""
    left, top, right, bottom = x + 2, y + 2, x + width - 2, y + _ROW - 2
    corners = (
        (left, top),
        (right, top),
        (right, bottom),
        (left, bottom),
        (left, top),
    )
    return Stroke((corners,), color=color, width=1.6)


def _table(rows: Mapping[str, list[Triple]]) -> Table:
    names = tuple(rows)
    body = zip(*rows.values(), strict=True)
    return Table(
        "Every row as role, head, channel",
        ("row", *names),
        tuple(
            (str(place), *(f"{ROLES[p]} {h} {d}" for p, h, d in triples))
            for place, triples in enumerate(body)
        ),
    )
