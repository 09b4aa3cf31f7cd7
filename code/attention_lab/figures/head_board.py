"""Head board: rows of the weights, heads, turns of a loop, columns of output.

The static layer follows one head through the projection, the merge and a
merge that forgets to permute, and compares numbers of heads. The interactive
layer does so for every recorded number of heads, with any head switched off.
"""

from typing import Any

from attention_lab.figures.digits import decimal_text, error_text
from attention_lab.figures.head_board_data import read_head_board
from attention_lab.figures.live import LiveFigure
from attention_lab.figures.marks import Box, Label, Mark, Stroke
from attention_lab.figures.palette import AXIS_COLORS, MUTED
from attention_lab.figures.parts import axis_name, cell, hatch, heading, note
from attention_lab.figures.picture import Panel, Picture, Table, Verdict

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
    first, most = (pick(_plain_runs(data), key=_heads) for pick in (min, max))
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
        f"Head {head} is rows {rows} of W_q, turn {head} of the loop, and "
        f"columns {rows} of the output. {most['H']} heads instead of "
        f"{first['H']}: {most['parameters']} instead of {first['parameters']} "
        f"parameters, {most['flops']} instead of {first['flops']} FLOPs, "
        f"{most['scores']} instead of {first['scores']} scores.",
        _verdicts(data),
        _table(data, run, head),
    )
    return LiveFigure(picture, data, "head_board")


def _heads(run: dict[str, Any]) -> int:
    return run["H"]


def _plain_runs(data: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the runs in which every head has its own keys, or all runs."""
    return [r for r in data["runs"] if r["G"] == r["H"]] or data["runs"]


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
    origin = run[f"{prefix}origin"]
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
    for place, element in enumerate(origin):
        token, column = divmod(place, E)
        own, whence = _head_and_token(run, L, element)
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


def changed_places(
    run: dict[str, Any], head: int, prefix: str = ""
) -> list[int]:
    """Return where the output changes with a head switched off."""
    whole, off = run[f"{prefix}out"], run["off"][head][f"{prefix}out"]
    return [
        place
        for place, (one, other) in enumerate(zip(whole, off, strict=True))
        if one != other
    ]


def _head_and_token(
    run: dict[str, Any], L: int, element: int
) -> tuple[int, int]:
    """Read a place of (H, L, D), counted in memory order."""
    return element // (L * run["D"]), element // run["D"] % L


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


def _verdicts(data: dict[str, Any]) -> list[Verdict]:
    """Return what was checked on all runs."""
    runs = data["runs"]
    plain = _plain_runs(data)
    source = f"{data['dtype']}, seed {data['seed']}"
    off = [part for run in runs for part in run["off"]]
    split = [run for run in runs if run["H"] > 1]
    outside = max(part["outside"] for part in off)
    equal = sum(run["flops"] == run["loop_flops"] for run in runs)
    whole = max(run["whole_error"] for run in runs)
    spread = {run["parameters"] for run in plain}
    verdicts = [
        _worst("output, loop − all at once", runs, "loop_error", "loop_bound",
               source),
        Verdict(
            "q, k, v of whole numbers, loop − all at once", whole == 0,
            f"off by {error_text(whole)}", "exactly 0",
            f"{len(runs)} runs, {source}",
        ),
        _worst("output against the reference", runs, "error", "bound", source),
        Verdict(
            "FLOPs, loop ÷ all at once", equal == len(runs),
            f"{runs[0]['loop_flops'] / runs[0]['flops']:.4f}",
            f"exact; {equal} of {len(runs)} runs", "PyTorch's FLOP counter",
        ),
        Verdict(
            "parameters do not depend on the number of heads",
            len(spread) == 1, ", ".join(map(str, sorted(spread))), "exact",
            f"counted for {', '.join(str(run['H']) for run in plain)} heads",
        ),
        Verdict(
            "a head off changes its own columns only",
            outside == 0 and all(part["inside"] > 0 for part in off),
            f"elsewhere by {error_text(outside)}", "exactly 0",
            f"{len(off)} heads off, {source}",
        ),
    ]  # fmt: skip
    if split:
        least = min(split, key=lambda run: run["wrong_error"] / run["bound"])
        verdicts.append(
            Verdict(
                "mistake “merge without permute” shows",
                least["wrong_error"] > least["bound"],
                f"off by at least {error_text(least['wrong_error'])}",
                f"> {error_text(least['bound'])}",
                f"{len(split)} runs with more than one head, {source}",
            )
        )
    return verdicts


def _worst(
    name: str,
    runs: list[dict[str, Any]],
    error: str,
    bound: str,
    source: str,
) -> Verdict:
    """Return the verdict of the run that uses most of its bound."""
    worst = max(runs, key=lambda run: run[error] / run[bound])
    return Verdict(
        name,
        worst[error] <= worst[bound],
        f"at worst off by {error_text(worst[error])}",
        f"≤ {error_text(worst[bound])}",
        f"{len(runs)} runs, {source}",
    )


def _table(data: dict[str, Any], run: dict[str, Any], head: int) -> Table:
    """Return every number of the output, right, off and merged wrongly."""
    rows = []
    for place, element in enumerate(run["origin"]):
        token, column = divmod(place, data["E"])
        own, _ = _head_and_token(run, data["L"], element)
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
