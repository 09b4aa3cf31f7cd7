"""Kernel lens: what each thread of a recorded kernel does to memory.

The static layer shows two threads side by side, from barrier to barrier, and
the dearest request of each version. The interactive layer walks through every
request of every version.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from attention_lab.figures.data import as_text, check_size
from attention_lab.figures.lens_panels import (
    cost_text,
    dearest,
    request_panel,
    strip_panel,
)
from attention_lab.figures.live import LiveFigure
from attention_lab.figures.picture import (
    MAX_PANEL_WIDTH,
    Panel,
    Picture,
    Table,
    Verdict,
)
from attention_lab.figures.recorded import (
    check_threads,
    cost_of,
    index_text,
    read_recording,
    steps_of,
    unrolled,
    who,
)

SCHEMA = "kernel_lens.v1"
MOST_VERSIONS, MOST_THREADS, MOST_REQUESTS = 5, 128, 1500


def draw_kernel_lens(
    recordings: Any,
    *,
    planted: Iterable[str] = (),
    block: int | None = None,
    title: str = "Every access of a kernel",
) -> LiveFigure:
    """Draw who touches what: threads, warp requests, sectors, banks, barriers.

    Parameters
    ----------
    recordings : a recording, or several as {name: recording}, from
        `attention_lab.gpu.record`; also those of your own kernels.
    planted : the names of versions that were broken on purpose. Their verdict
        holds if the recorder found a hazard.
    block : keep the requests of this block only, where there are too many.
    title : heading of the figure.

    Returns
    -------
    A `LiveFigure`. Its verdicts: no hazard (or the planted one), traffic as
    the formula says if the recording has one (`Recording.against`), and the
    requests drawn are those the recorder counted.

    Raises
    ------
    ShapeMismatch
        If the columns of a recording have different lengths.
    ValueError
        If there is no recording, one has another schema, holds no access or
        cannot be drawn; names the place and the sizes.
    """
    if not isinstance(recordings, Mapping) or "schema" in recordings:
        name = getattr(recordings, "kernel", None) or "kernel"
        if isinstance(recordings, Mapping):
            name = recordings.get("kernel", name)
        recordings = {name: recordings}
    if not recordings:
        raise ValueError("recordings is empty: there is nothing to draw")
    check_size("recordings", "versions", len(recordings), MOST_VERSIONS)
    planted = [planted] if isinstance(planted, str) else list(planted)
    for name in planted:
        if name not in recordings:
            raise ValueError(
                f"planted names {name!r}, but there are {', '.join(recordings)}"
            )
    versions, told = [], []
    for name, recording in recordings.items():
        as_text("the name of a recording", name)
        data = read_recording(f"recordings[{name!r}]", recording, "request")
        check_threads(f"recordings[{name!r}]", data, MOST_THREADS)
        _keep_block(name, data, block)
        verdicts = _verdicts(data, name in planted, block is None)
        told += verdicts
        versions.append(
            {
                "name": name,
                "recording": data,
                "verdicts": [verdict.as_data() for verdict in verdicts],
            }
        )
    state = {"schema": SCHEMA, "versions": versions}
    picture = Picture(
        _panels(versions),
        title,
        "For each version of the kernel: what two threads do between the "
        "barriers, and the request that costs most.",
        _finding(versions),
        _together(told),
        _table(versions),
    )
    return LiveFigure(picture, state, "kernel_lens")


def _keep_block(name: str, data: dict, block: int | None) -> None:
    """Drop the requests of other blocks; refuse what is still too much."""
    events = data["events"]
    rows = list(zip(*events["data"], strict=True))
    if block is not None:
        rows = [row for row in rows if row[0] == block]
        if not rows:
            raise ValueError(
                f"recordings[{name!r}]: block {block} touches no memory; the "
                f"grid has {math.prod(data['grid'])} blocks"
            )
        events = {**events, "data": [list(c) for c in zip(*rows, strict=True)]}
        data["events"] = events
    if len(rows) > MOST_REQUESTS:
        blocks = len(set(events["data"][0]))
        raise ValueError(
            f"recordings[{name!r}] has {len(rows)} warp requests in {blocks} "
            f"blocks; at most {MOST_REQUESTS} can be drawn. Keep one block "
            "(block=0), or record smaller arrays"
        )


def costs(data: dict) -> list[tuple[dict, dict, int]]:
    """Return (step, memory, cost) of every request."""
    found = []
    for step in steps_of(data):
        memory = data["memory"][data["sites"][step["site"]]["memory"]]
        found.append((step, memory, cost_of(memory, step)))
    return found


def _finding(versions: list[dict]) -> str:
    """Say what the dearest request of each version costs."""
    parts = []
    for version in versions:
        step, _, memory, cost = dearest(version["recording"])
        lanes = len(unrolled(step["threads"]))
        parts.append(
            f"in “{version['name']}” {lanes} lanes of {memory['label']} need "
            f"{cost_text(memory, cost)}"
        )
    return f"The request that costs most: {'; '.join(parts)}."


def _panels(versions: list[dict]) -> list[Panel]:
    """Return two panels per version, equally wide so that pairs stay pairs."""
    panels = [
        draw(version["name"], version["recording"])
        for version in versions
        for draw in (strip_panel, request_panel)
    ]
    return [replace(panel, width=MAX_PANEL_WIDTH) for panel in panels]


def _verdicts(data: dict, planted: bool, is_whole: bool) -> list[Verdict]:
    """Return what was checked on one version."""
    source = f"recorded, threads {data['order']}"
    hazards = data["hazards"]
    said = ", ".join(dict.fromkeys(h["kind"] for h in hazards)) or "none found"
    lines = [
        str(n) for n in dict.fromkeys(hazards[0]["lines"] if hazards else ())
    ]
    if lines:
        said += f", line{'s' if len(lines) > 1 else ''} {' and '.join(lines)}"
    verdicts = [
        Verdict(
            "planted mistake" if planted else "races, bounds, barriers",
            bool(hazards) == planted,
            said,
            "must be found" if planted else "none allowed",
            source,
        )
    ]
    if data["formula"]:
        moved = sum(
            row["reads"] + row["writes"]
            for row in data["traffic"]["arrays"]
            if row["space"] == "global"
        )
        formula = sum(map(sum, data["formula"].values()))
        verdicts.append(
            Verdict(
                "reads and writes",
                data["verdict"]["traffic_equals_formula"],
                str(moved) if moved == formula else f"{moved}, not {formula}",
                "the formula, array by array",
                source,
            )
        )
    if is_whole:
        drawn, counted = counted_cost(data), traffic_cost(data)
        said = " and ".join(
            f"{many} {unit}"
            for many, unit in zip(drawn, ("sectors", "passes"), strict=True)
            if many
        )
        verdicts.append(
            Verdict(
                "drawn requests",
                drawn == counted,
                said if drawn == counted else f"{said}, not {counted}",
                "as the recorder counted",
                source,
            )
        )
    return verdicts


def _together(verdicts: list[Verdict]) -> list[Verdict]:
    """Return one verdict per label; it holds where all of them do."""
    by_label: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        by_label.setdefault(verdict.label, []).append(verdict)
    return [
        replace(
            group[0],
            passed=all(verdict.passed for verdict in group),
            value="; ".join(dict.fromkeys(v.value for v in group)),
        )
        for group in by_label.values()
    ]


def counted_cost(data: dict) -> tuple[int, int]:
    """Return the sectors and the passes of all requests that are drawn."""
    found = costs(data)
    sectors = sum(c for _, m, c in found if m["space"] == "global")
    return sectors, sum(c for _, m, c in found if m["space"] == "shared")


def traffic_cost(data: dict) -> tuple[int, int]:
    """Return the sectors and the passes that the recorder counted."""
    rows = data["traffic"]["arrays"]
    shared = [row for row in rows if row["space"] == "shared"]
    return sum(row["sectors"] for row in rows), sum(
        row["requests"] + row["bank_conflicts"] for row in shared
    )


def _table(versions: list[dict]) -> Table:
    """Return the accesses per line, one row per site."""
    rows = []
    for version in versions:
        data = version["recording"]
        by_site: dict[int, list] = {}
        for step, memory, cost in costs(data):
            by_site.setdefault(step["site"], []).append((step, memory, cost))
        for number, found in by_site.items():
            site = data["sites"][number]
            step, memory, _ = found[0]
            first = unrolled(step["elements"])[0]
            thread = who(unrolled(step["threads"])[0], data["block"])
            rows.append(
                (
                    version["name"],
                    str(site["line"]),
                    site["text"],
                    f"{site['kind']} {memory['label']}",
                    f"thread {thread}: {index_text(memory, first)}",
                    str(len(found)),
                    str(sum(cost for *_, cost in found)),
                )
            )
    return Table(
        "Every line that touches memory",
        ("version", "line", "source", "access", "first", "requests",
         "sectors or passes"),
        tuple(rows),
    )  # fmt: skip
