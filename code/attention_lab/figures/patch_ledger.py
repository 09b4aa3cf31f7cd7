"""Patch ledger: whom a patch of a digit looks at, and what it gets for it.

The static layer shows one query: its weights on the digit, the same weights as
a sum of values, the trained model, and a mistake. The interactive layer lets a
reader choose among all recorded runs.
"""

from typing import Any

import numpy as np

from attention_lab.figures.attention_map import layout_attention, layout_query
from attention_lab.figures.data import check_index
from attention_lab.figures.digits import cell_text, error_text, weight_text
from attention_lab.figures.live import LiveFigure
from attention_lab.figures.marks import Label, Mark, Stroke
from attention_lab.figures.palette import (
    MUTED,
    value_color,
    weight_color,
)
from attention_lab.figures.parts import axis_name, cell, heading
from attention_lab.figures.patch_ledger_data import PATCHES, UNITS, read_ledger
from attention_lab.figures.picture import Panel, Picture, Table, Verdict

_WEIGHT, _NAME, _CHANNEL, _ROW, _TOP = 18, 56, 98, 18, 48


def draw_patch_ledger(
    recording: Any,
    *,
    query: int = 6,
    title: str = "Whom a patch looks at, and what it gets",
) -> LiveFigure:
    """Draw recorded attention on a digit: as weights, and as a sum of values.

    Parameters
    ----------
    recording : what `record_patch_ledger` of `attention_lab.steps.patch_ledger`
        returns (schema "patch_ledger.v1"). The first run is the picture's.
    query : the patch whose row is drawn.
    title : heading of the figure.

    Returns
    -------
    A `LiveFigure`: all rows of weights are held against a sum of 1, the outputs
    against the reference, and shuffled patches against the shuffled outputs;
    the softmax over the wrong axis must be farther off than a right one may be.

    Raises
    ------
    ShapeMismatch
        If a list has not as many numbers as there are patches and channels.
    ValueError
        If the recording has another schema, is empty, holds NaN, or is too
        large to draw, or there is no such patch; names the place and the sizes.
    """
    data = read_ledger(recording)
    query = check_index("query", query, "L", PATCHES)
    run = data["runs"][0]
    source = data["sources"][run["source"]]
    image = _image(data, source)
    weights_S = _weights(run, query)
    out_D = _rows(run["out"], source["D"])[query]
    others = _others(data, run, query)
    panels = [
        layout_query(image, 4, query),
        layout_attention(image, weights_S, query, None),
        layout_ledger(source, weights_S, out_D, query),
    ]
    for name, other in others:
        row = _weights(other, query)
        panels.append(layout_attention(image, row, query, None, name))
    picture = Picture(
        panels,
        title,
        f"The digit {data['digits'][source['digit']]['label']} in {PATCHES} "
        f"patches, the weights of patch {query}, and the sum of values that "
        "they make.",
        _finding(weights_S, query, others),
        _verdicts(data),
        _table(data, run, source, query),
    )
    return LiveFigure(picture, data, "patch_ledger")


def layout_ledger(
    source: dict[str, Any],
    weights_S: np.ndarray,
    out_D: np.ndarray,
    query: int,
) -> Panel:
    """Return weight times value, patch by patch, and the output below."""
    D = source["D"]
    side = min(30, 200 // D)
    values_SD = _rows(source["values"], D)
    scale = float(np.abs(values_SD).max()) or 1.0
    largest = float(weights_S.max()) or 1.0
    marks: list[Mark] = [heading(0, 8, "its output: weights · values")]
    marks += axis_name(_CHANNEL, 32, "D", D)[0]
    order = np.argsort(-weights_S, kind="stable")
    for place, patch in enumerate(order.tolist()):
        y = _TOP + place * _ROW
        weight = float(weights_S[patch])
        if place:
            marks.append(Label(8, y + _ROW / 2, "+", 12, color=MUTED))
        marks += cell(
            _WEIGHT, y, 34, _ROW, weight_color(weight / largest),
            weight_text(weight),
        )  # fmt: skip
        marks.append(
            Label(_NAME, y + _ROW / 2, f"· v{patch}", 12, anchor="start")
        )
        marks += _channels(values_SD[patch], y, side, scale)
    bottom = _TOP + PATCHES * _ROW + 5
    marks.append(
        Stroke((((0, bottom), (_CHANNEL + D * side, bottom)),), width=1.4)
    )
    marks.append(
        Label(
            _CHANNEL - 6, bottom + 15, f"output {query} =", 12, "end", bold=True
        )
    )
    marks += _channels(out_D, bottom + 6, side, scale)
    listed = ", ".join(
        f"{weight_text(float(weights_S[p]))} times value {p}"
        for p in order.tolist()
    )
    return Panel.around(
        marks, f"Output of patch {query} as a sum, largest first: {listed}."
    )


def _channels(
    numbers_D: np.ndarray, y: float, side: float, scale: float
) -> list[Mark]:
    marks: list[Mark] = []
    for d, number in enumerate(numbers_D.tolist()):
        marks += cell(
            _CHANNEL + d * side, y, side, _ROW, value_color(number / scale),
            cell_text(number), size=10,
        )  # fmt: skip
    return marks


def _image(data: dict[str, Any], source: dict[str, Any]) -> np.ndarray:
    pixels = data["digits"][source["digit"]]["pixels"]
    return np.array(pixels, float).reshape(8, 8)


def _weights(run: dict[str, Any], query: int) -> np.ndarray:
    """Return one query's weights."""
    units = np.array(run["weights"][query * PATCHES :][:PATCHES], float)
    return units / UNITS["weights"]


def _rows(numbers: list[int], D: int) -> np.ndarray:
    """Return values or outputs, one row per patch."""
    return np.array(numbers, float).reshape(PATCHES, D) / UNITS["values"]


def _others(
    data: dict[str, Any], run: dict[str, Any], query: int
) -> list[tuple[str, dict[str, Any]]]:
    """Return named runs of the same digit: trained heads, and the mistake."""
    digit = data["sources"][run["source"]]["digit"]
    heads, wrong = [], []
    for other in data["runs"]:
        source = data["sources"][other["source"]]
        if source["digit"] != digit or other["temperature"] != 1:
            continue
        if other["axis"] == "S" and source["kind"] == "trained":
            heads.append((f"trained model, head {source['head']}", other))
        elif other["axis"] == "L" and other["source"] == run["source"]:
            total = other["sums"][query] / UNITS["weights"]
            wrong.append((f"wrong axis: sum {total:.2f}", other))
    return heads + wrong


def _finding(
    weights_S: np.ndarray,
    query: int,
    others: list[tuple[str, dict[str, Any]]],
) -> str:
    order = np.argsort(-weights_S, kind="stable")
    most = [f"{weights_S[p]:.2f}·v{p}" for p in order[:3]]
    rest = 1 - float(weights_S[order[:3]].sum())
    says = (
        f"The output of patch {query} is {' + '.join(most)} and {rest:.2f} of "
        f"{PATCHES - 3} others"
    )
    heads = [(n, _weights(r, query)) for n, r in others if r["axis"] == "S"]
    if not heads:
        return f"{says}."
    name, row = max(heads, key=lambda head: head[1].max())
    return (
        f"{says}; in the {name} gives {row.max():.2f} to patch "
        f"{int(row.argmax())} alone."
    )


def _verdicts(data: dict[str, Any]) -> list[Verdict]:
    """Return what was checked on all runs, right and wrong."""
    rights = [run for run in data["runs"] if run["axis"] == "S"]
    wrongs = [run for run in data["runs"] if run["axis"] == "L"]
    source = f"{data['dtype']} runs, seed {data['seed']}"
    verdicts = [
        _worst(label, check, rights, source)
        for label, check in (
            ("every row of weights sums to 1", "sum"),
            ("outputs against the reference", "output"),
            ("shuffled patches give the shuffled outputs", "shuffle"),
        )
    ]
    if wrongs:
        least = min(wrongs, key=lambda run: run["sum_error"])
        verdicts.append(
            Verdict(
                "mistake “softmax over the wrong axis” shows, "
                f"{len(wrongs)} runs",
                all(run["sum_error"] > run["sum_bound"] for run in wrongs),
                f"a row's sum off by at least {error_text(least['sum_error'])}",
                f"> {error_text(least['sum_bound'])}",
                source,
            )
        )
    return verdicts


def _worst(
    label: str, check: str, runs: list[dict[str, Any]], source: str
) -> Verdict:
    """Return the verdict of the run that uses most of its bound."""

    def used(run: dict[str, Any]) -> float:
        return run[f"{check}_error"] / run[f"{check}_bound"]

    worst = max(runs, key=used)
    return Verdict(
        f"{label}, {len(runs)} runs",
        all(used(run) <= 1 for run in runs),
        f"at worst off by {error_text(worst[f'{check}_error'])}",
        f"≤ {error_text(worst[f'{check}_bound'])}",
        source,
    )


def _table(
    data: dict[str, Any],
    run: dict[str, Any],
    source: dict[str, Any],
    query: int,
) -> Table:
    """Return the query's weights and all values as text."""
    D = source["D"]
    values = _rows(source["values"], D)
    rows = [
        (str(patch), f"{weight:.3f}", _listed(values[patch]))
        for patch, weight in enumerate(_weights(run, query).tolist())
    ]
    rows.append(("output", "", _listed(_rows(run["out"], D)[query])))
    label = data["digits"][source["digit"]]["label"]
    return Table(
        f"The numbers of patch {query} of the {label}",
        ("patch", "weight", "value"),
        tuple(rows),
    )


def _listed(numbers: np.ndarray) -> str:
    return "  ".join(f"{x:.2f}".replace("-", "−") for x in numbers.tolist())
