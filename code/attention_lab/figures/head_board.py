"""Head board: rows of the weights, heads, turns of a loop, columns of output.

The static layer follows one head through the projection, the merge and a
merge that forgets to permute, and compares numbers of heads. The interactive
layer does so for every recorded number of heads, with any head switched off.
"""

from typing import Any

from attention_lab.figures.digits import decimal_text
from attention_lab.figures.head_board_checks import (
    board_verdicts,
    changed_places,
    fewest_and_most,
    with_questions,
)
from attention_lab.figures.head_board_data import read_head_board
from attention_lab.figures.live import LiveFigure
from attention_lab.figures.marks import Box, Label, Mark, Stroke
from attention_lab.figures.palette import AXIS_COLORS, MUTED
from attention_lab.figures.parts import axis_name, cell, hatch, heading, note
from attention_lab.figures.picture import Panel, Picture, Table

_LEFT, _ROW, _CELL, _TOP = 26, 24, 33, 66
_OWN, _OTHER = AXIS_COLORS["H"], "#ffffff"
_COSTS = (
    ("heads", 40), ("key heads", 102), ("parameters", 172), ("FLOPs", 220),
    ("scores", 270),
)  # fmt: skip


def draw_head_board(
    recording: Any, *, title: str = "One head, from its rows to its columns"
) -> LiveFigure:
    """Draw recorded runs with several numbers of heads on the same weights.

    Parameters
    ----------
    recording : what `attention_lab.steps.head_board.record_head_board`
        returns (schema "head_board.v1"). The static picture follows head 1 of
        the first run.
    title : heading of the figure.

    Returns
    -------
    A `LiveFigure`: the loop over heads is held against all heads at once, in
    numbers and in FLOPs; a head switched off may change its own columns only;
    and the merge without the permute must be farther off than a right one may.

    Raises
    ------
    ShapeMismatch
        If H·D is not E, or a list has not as many numbers as its array.
    ValueError
        If the recording has another schema, is empty, holds NaN, or is too
        large to draw; names the place and the sizes.
    """
    data = read_head_board(recording)
    run = data["runs"][0]
    head = min(1, run["H"] - 1)
    rows = _span(run["rows_q"][head])
    first, most = fewest_and_most(data)
    right, wrong = (
        _merged_panel(data, run, head, is_right) for is_right in (True, False)
    )
    shared = next((r for r in data["runs"] if 1 < r["G"] < r["H"]), None)
    picture = Picture(
        [
            _rows_panel(run, head),
            right,
            wrong,
            *([_rows_panel(shared, head)] if shared else []),
            _costs_panel(data),
        ],
        title,
        f"Head {head} of {run['H']}: its rows of the weights, its columns of "
        "the output, where a wrong merge puts it; then what numbers of heads "
        "cost.",
        f"Head {head} is rows {rows} of W_q, turn {head} of the loop and "
        f"columns {rows} of the output. From {first['H']} to "
        f"{most['H']} heads: "
        + ", ".join(
            f"{first[key]} → {most[key]} {name}"
            for name, key in (
                ("parameters", "parameters"),
                ("FLOPs", "flops"),
                ("scores", "scores"),
            )
        )
        + ".",
        board_verdicts(data),
        _table(data, run, head),
    )
    return LiveFigure(picture, with_questions(data), "head_board")


def _span(places: list[int]) -> str:
    """Name a run of rows: "2–3", or "2" alone."""
    first, last = min(places), max(places)
    return str(first) if first == last else f"{first}–{last}"


def _rows_panel(run: dict[str, Any], head: int) -> Panel:
    """Return the rows of the three weights, a block for each head."""
    H, G, D = run["H"], run["G"], run["D"]
    name = f"{run['name']}: head {head} reads"
    marks: list[Mark] = [heading(0, 8, name)]
    told = []
    for column, (weight, rows) in enumerate(
        (
            ("W_q", run["rows_q"]),
            ("W_k", run["rows_kv"]),
            ("W_v", run["rows_kv"]),
        )
    ):
        x = _LEFT + column * 90
        span = f"rows {_span(rows[head])}"
        told.append(f"{weight} {span}")
        marks.append(Label(x, 30, weight, 12, "start", bold=True))
        marks.append(note(x, 48, span))
        for block in sorted(set(map(tuple, rows))):
            owners = [h for h, own in enumerate(rows) if tuple(own) == block]
            fill = _OWN if head in owners else _OTHER
            word = "head" if len(owners) == 1 else "heads"
            marks += cell(
                x, _TOP + block[0] * _ROW, 80, len(block) * _ROW, fill,
                f"{word} {_span(owners)}", bold=head in owners,
            )  # fmt: skip
        unused = (H - (G if column else H)) * D * _ROW
        if unused:
            y = _TOP + H * D * _ROW - unused
            marks.append(hatch(x, y, 80, unused))
            marks.append(Box(x, y, 80, unused, edge_width=0.6))
    marks += [
        Label(_LEFT - 6, _TOP + (row + 0.5) * _ROW, str(row), 10, "end", MUTED)
        for row in range(H * D)
    ]
    if G < H:
        marks.append(
            note(_LEFT, _TOP + H * D * _ROW + 16, "hatched: not there")
        )
    return Panel.around(marks, f"{name} {', '.join(told)}.")


def _merged_panel(
    data: dict[str, Any], run: dict[str, Any], head: int, is_right: bool
) -> Panel:
    """Return the merged output, each number with its head and its token."""
    L, E = data["L"], data["E"]
    prefix = "" if is_right else "wrong_"
    changed = changed_places(run, head, prefix)
    name = (
        f"Merged: head {head} is columns {_span(run['rows_q'][head])}"
        if is_right
        else f"Merged without permute: head {head} leaks"
    )
    told = (
        f"Rows {_span(run['rows_q'][head])} of W_q set to 0: {len(changed)} of "
        f"{L * E} change,",
        f"in columns {_list(place % E for place in changed)} of "
        f"tokens {_list(place // E for place in changed)}.",
    )
    marks: list[Mark] = [heading(0, 8, name)]
    marks += axis_name(_LEFT, 30, "L", L, noun="down: tokens")[0]
    marks += axis_name(_LEFT + 130, 30, "E", E, noun="columns")[0]
    for column in range(E):
        x = _LEFT + (column + 0.5) * _CELL
        marks.append(Label(x, 54, str(column), 10, color=MUTED))
    made = zip(run[f"{prefix}heads"], run[f"{prefix}tokens"], strict=True)
    for place, (own, whence) in enumerate(made):
        token, column = divmod(place, E)
        x, y = _LEFT + column * _CELL, _TOP + token * _ROW
        if column == 0:
            marks.append(
                Label(_LEFT - 6, y + _ROW / 2, str(token), 10, "end", MUTED)
            )
        fill = _OWN if own == head else _OTHER
        marks += cell(x, y, _CELL, _ROW, fill, f"{own}·{whence}")
    bottom = _TOP + L * _ROW
    marks.append(note(_LEFT, bottom + 16, "1·3: made by head 1 for token 3"))
    marks += [
        note(_LEFT, bottom + 38 + 18 * line, text)
        for line, text in enumerate(told)
    ]
    return Panel.around(marks, f"{name}. {' '.join(told)}")


def _list(places: Any) -> str:
    """Name some places: "1, 2", or "0–4" where they follow each other."""
    found = sorted(set(places))
    if len(found) > 2 and found[-1] - found[0] == len(found) - 1:
        return _span(found)
    return ", ".join(map(str, found))


def _costs_panel(data: dict[str, Any]) -> Panel:
    """Return what each number of heads costs."""
    marks: list[Mark] = [heading(0, 8, "What the heads cost")]
    marks += [note(x, 30, name, anchor="end") for name, x in _COSTS]
    runs = sorted(data["runs"], key=lambda run: (run["G"] < run["H"], run["H"]))
    y = 50.0
    for number, run in enumerate(runs):
        if number and run["G"] < run["H"] and runs[number - 1]["H"] > run["H"]:
            marks.append(Stroke((((0, y - 5), (272, y - 5)),), MUTED, 0.8))
            y += 8
        for key, (_, x) in zip(
            ("H", "G", "parameters", "flops", "scores"), _COSTS, strict=True
        ):
            marks.append(Label(x, y, str(run[key]), 12, "end"))
        y += 18
    marks.append(note(0, y + 8, "FLOPs: PyTorch's counter, matrix products"))
    marks.append(note(0, y + 26, "scores: all numbers of all score matrices"))
    return Panel.around(
        marks,
        "; ".join(
            f"{run['name']}: {run['parameters']} parameters, {run['flops']} "
            f"FLOPs, {run['scores']} scores"
            for run in runs
        )
        + ".",
    )


def _table(data: dict[str, Any], run: dict[str, Any], head: int) -> Table:
    """Return every number of the output, right, off and merged wrongly."""
    rows = []
    for place, own in enumerate(run["heads"]):
        token, column = divmod(place, data["E"])
        numbers = (
            run["out"], run["off"][head]["out"], run["wrong_out"],
            run["off"][head]["wrong_out"],
        )  # fmt: skip
        rows.append(
            (
                *map(str, (token, column, own)),
                *(decimal_text(x[place], 4) for x in numbers),
            )
        )
    return Table(
        f"All numbers of the output of {run['name']}",
        (
            "token", "column", "head", "output", f"head {head} off",
            "without permute", f"without permute, head {head} off",
        ),
        tuple(rows),
    )  # fmt: skip
