"""The data of a packing map: checked, judged, and turned into questions.

The script in `interactive/packing_map.js` checks the lists again, because a
live kernel may hand it other data.
"""

import math
from typing import Any

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_array,
    as_number,
    as_sequence,
    as_text,
    as_whole,
    check_size,
    read_field,
    read_runs,
)
from attention_lab.figures.digits import error_text
from attention_lab.figures.picture import Verdict

SCHEMA = "packing_map.v1"
#: What a screen of 320 px shows legibly.
MOST_CHANNELS, MOST_ROWS = 8, 24
ROLES = "qkv"

Run = dict[str, Any]


def read_packing_map(recording: Any) -> dict[str, Any]:
    """Return a recording of `steps.qkv_map`, or refuse it.

    Raises
    ------
    ShapeMismatch
        If H·D is not E, or a layout has not (H + 2·G)·D rows.
    ValueError
        If the schema is another one, there is no run, a number is missing or
        NaN, a layout misses a row, two layouts have no pair, or an axis is too
        long to draw.
    """
    runs = read_runs(recording, SCHEMA)
    E = as_whole("recording.E", read_field(recording, "E", "recording"))
    check_size("recording", "E", E, MOST_CHANNELS)
    for number, run in enumerate(runs):
        _check_run(run, E, f"recording.runs[{number}]")
    return dict(recording)


def _check_run(run: Any, E: int, place: str) -> None:
    """Refuse a run in which a row or a number is missing."""
    as_text(f"{place}.name", read_field(run, "name", place))
    H, G, D = (
        as_whole(f"{place}.{axis}", read_field(run, axis, place), least=1)
        for axis in "HGD"
    )
    if H * D != E or H % G:
        raise ShapeMismatch(
            f"{place}: H = {H} heads of D = {D}, with G = {G} key heads, do "
            f"not fill axis E, which has size {E}"
        )
    tags = as_array(
        f"{place}.tags", read_field(run, "tags", place), axes=("rows", "p h d")
    )
    size = (H + 2 * G) * D
    if tags.shape != (size, 3):
        raise ShapeMismatch(
            f"{place}.tags has shape {tags.shape}, but (H + 2·G)·D = {size} "
            "rows need a role, a head and a channel each"
        )
    check_size(place, "rows", size, MOST_ROWS)
    layouts = read_field(run, "layouts", place)
    for layout in layouts:
        rows = as_array(
            f"{place}.layouts[{layout!r}]", layouts[layout], axes=("rows",)
        )
        if sorted(rows.tolist()) != list(range(size)):
            raise ShapeMismatch(
                f"{place}.layouts[{layout!r}] must hold each of the {size} "
                f"rows once, but has {len(set(rows.tolist()))} of them in "
                f"{len(rows)} places"
            )
    pairs = as_sequence(
        f"{place}.pairs", read_field(run, "pairs", place), "a list"
    )
    found = [_check_pair(pair, f"{place}.pairs") for pair in pairs]
    wanted = [(a, b) for a in layouts for b in layouts if a != b]
    if found != wanted or not wanted:
        raise ValueError(
            f"{place}.pairs must hold {wanted or 'two layouts'} in this "
            f"order, not {found}"
        )
    traffic = read_field(run, "traffic", place)
    if traffic is not None:
        where = f"{place}.traffic"
        for name in ("launches", "bytes"):
            for count in as_sequence(
                f"{where}.{name}", read_field(traffic, name, where), "a pair", 2
            ):
                as_whole(f"{where}.{name}", count, least=1)
        for name, least in (("formula", 1), ("hazards", 0)):
            count = read_field(traffic, name, where)
            as_whole(f"{where}.{name}", count, least=least)
        for layout in layouts:
            sectors = read_field(traffic["sectors"], layout, where)
            as_whole(f"{where}.sectors", sectors, least=1)


def _check_pair(pair: Any, place: str) -> tuple[str, str]:
    """Refuse a pair of layouts without its numbers; return their names."""
    for name in ("round_trip", "error", "wrong_error", "change"):
        as_number(f"{place}.{name}", read_field(pair, name, place), least=0)
    bound = read_field(pair, "bound", place)
    as_number(f"{place}.bound", bound, least=math.ulp(0.0))
    return tuple(
        as_text(f"{place}.{name}", read_field(pair, name, place))
        for name in ("source", "target")
    )


def tag_text(tag: list[int]) -> str:
    """Name a row: "k1·0" is channel 0 of key head 1.

    Examples
    --------
    >>> tag_text([1, 1, 0])
    'k1·0'
    """
    role, head, channel = tag
    return f"{ROLES[role]}{head}·{channel}"


def misread_rows(run: Run, source: str, target: str) -> list[int]:
    """Return which rows hold something else than the target says."""
    pairs = zip(run["layouts"][source], run["layouts"][target], strict=True)
    return [row for row, (there, read) in enumerate(pairs) if there != read]


def with_questions(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data with the texts that the script shows.

    Each run gets `names`, the rows as text; each pair its verdicts, after a
    conversion as `checks` and without as `wrong_checks`, and a `question`.
    """
    runs = []
    for run in data["runs"]:
        alone = {**data, "runs": [run]}
        pairs = [
            {
                **pair,
                **{
                    name: [
                        verdict.as_data()
                        for verdict in (
                            *_pair_verdicts([pair], error, _source(data)),
                            *_traffic_verdicts(alone),
                        )
                    ]
                    for name, error in (
                        ("checks", "error"),
                        ("wrong_checks", "wrong_error"),
                    )
                },
                "question": _question(run, pair),
            }
            for pair in run["pairs"]
        ]
        names = [tag_text(tag) for tag in run["tags"]]
        runs.append({**run, "names": names, "pairs": pairs})
    return {**data, "runs": runs}


def _question(run: Run, pair: dict[str, Any]) -> dict[str, Any]:
    """Ask how many rows are misread when none is moved."""
    source, target = pair["source"], pair["target"]
    size = len(run["tags"])
    wrong = len(misread_rows(run, source, target))
    options = sorted({0, size // 2, wrong, size})
    return {
        "id": f"{run['name']}/{source}/{target}",
        "text": f"Take a weight in ({source}) for one in ({target}), and move "
        f"nothing: the shapes agree. How many of its {size} rows are read as "
        "something else?",
        "options": [str(option) for option in options],
        "answer": options.index(wrong),
    }


def map_verdicts(data: dict[str, Any]) -> list[Verdict]:
    """Return what was checked on all pairs of layouts of all runs."""
    pairs = [
        (run, pair, len(misread_rows(run, pair["source"], pair["target"])))
        for run in data["runs"]
        for pair in run["pairs"]
    ]
    verdicts = _pair_verdicts(
        [pair for _, pair, _ in pairs],
        "error",
        f"{len(pairs)} conversions, {_source(data)}",
    )
    wrong = [pair for _, pair, many in pairs if many]
    if wrong:
        least = min(wrong, key=lambda pair: pair["wrong_error"] / pair["bound"])
        verdicts.append(
            Verdict(
                "mistake “take one layout for another” shows",
                least["wrong_error"] > least["bound"],
                f"output off by at least {error_text(least['wrong_error'])}",
                f"> {error_text(least['bound'])}",
                f"{len(wrong)} pairs whose rows differ, {_source(data)}",
            )
        )
    return [*verdicts, *_traffic_verdicts(data)]


def _pair_verdicts(
    pairs: list[dict[str, Any]], error: str, source: str
) -> list[Verdict]:
    """Judge conversions: the weights there and back, and the output."""
    trip = max(pair["round_trip"] for pair in pairs)
    worst = max(pairs, key=lambda pair: pair[error] / pair["bound"])
    return [
        Verdict(
            "weights there and back", trip == 0,
            f"off by {error_text(trip)}", "exactly 0", source,
        ),
        Verdict(
            "output, before and after", worst[error] <= worst["bound"],
            f"off by {error_text(worst[error])}",
            f"≤ {error_text(worst['bound'])}", source,
        ),
    ]  # fmt: skip


def _traffic_verdicts(data: dict[str, Any]) -> list[Verdict]:
    """Judge the recorded kernels that split the projections."""
    counted = [run["traffic"] for run in data["runs"] if run["traffic"]]
    if not counted:
        return []
    three, one = counted[0]["launches"]
    return [
        Verdict(
            f"bytes of {three} launches and of {one}, measured ÷ formula",
            all(set(t["bytes"]) == {t["formula"]} for t in counted)
            and not any(t["hazards"] for t in counted),
            " and ".join(
                f"{moved / counted[0]['formula']:.4f}"
                for moved in counted[0]["bytes"]
            ),
            f"exact, {counted[0]['formula']} bytes",
            "recorded kernels that split, float32",
        )
    ]


def _source(data: dict[str, Any]) -> str:
    return f"{data['dtype']}, seed {data['seed']}"
