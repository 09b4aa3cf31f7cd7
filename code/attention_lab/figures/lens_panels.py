"""The two panels of a kernel lens: a strip of phases, and one request."""

from typing import Any

from attention_lab.figures.marks import Label, Mark, Stroke, shorten
from attention_lab.figures.palette import (
    MUTED,
    STATE_COLORS,
)
from attention_lab.figures.parts import cell, empty_grid, heading, note
from attention_lab.figures.picture import Panel
from attention_lab.figures.recorded import (
    BANKS,
    SECTOR_BYTES,
    WORD_BYTES,
    cost_of,
    index_text,
    steps_of,
    unrolled,
    who,
)

_WIDTH = 296
_X = (144, 220)  # where the indices of the two threads start
_WORDS = SECTOR_BYTES // WORD_BYTES
MOST_LINES = 24  # of one strip


def strip_panel(name: str, data: dict) -> Panel:
    """Draw what two threads of a block do, line by line, barrier by barrier.

    The first and the last thread; the two of a hazard where there is one.
    """
    block = _block(data)
    steps = [step for step in steps_of(data) if step["block"] == block]
    chosen = _two_threads(data, steps)
    marked = {line for hazard in data["hazards"] for line in hazard["lines"]}
    marks: list[Mark] = [
        heading(0, 8, shorten(name, 13, _WIDTH - 4, bold=True)),
        note(0, 34, f"block {who(block, data['grid'])}"),
    ]
    for k, thread in enumerate(chosen):
        text = f"thread {who(thread, data['block'])}".replace(", ", ",")
        marks.append(Label(_X[k], 34, text, 10, "start", bold=True))
    y, said, phases = 46.0, [], sorted({step["epoch"] for step in steps})
    for phase in phases:
        if phase != phases[0]:
            marks += _barrier(y + 9)
            said.append("Barrier.")
            y += 18
        for site, indices in phase_lines(data, steps, phase, chosen):
            marks += _entry(y + 9, data, site, site["line"] in marked)
            for k, index in enumerate(indices):
                thread = who(chosen[k], data["block"])
                told = " … ".join(index) or ": nothing"
                said.append(
                    f"Line {site['line']}, thread {thread}: {site['kind']} "
                    f"{_label(data, site)}{told}."
                )
                for n, text in enumerate(index or ("–",)):
                    text = text.replace(" ", "")
                    text = shorten(
                        ("… " if n else "") + text, 10, 74, mono=True
                    )
                    marks.append(
                        Label(
                            _X[k], y + 9 + n * 14, text, 10, "start", mono=True
                        )
                    )
            y += 4 + 14 * max(1, *map(len, indices))
    return Panel.around(marks, " ".join(said))


def phase_lines(
    data: dict, steps: list[dict], phase: int, threads: list[int]
) -> list[tuple[dict, list[tuple[str, ...]]]]:
    """Return each site of a phase, with the first and last index per thread."""
    found: dict[int, list[list[int]]] = {}
    for step in steps:
        lanes = unrolled(step["threads"])
        if step["epoch"] != phase or not {*threads} & {*lanes}:
            continue
        rows = found.setdefault(step["site"], [[] for _ in threads])
        elements = unrolled(step["elements"])
        for row, thread in zip(rows, threads, strict=True):
            if thread in lanes:
                row.append(elements[lanes.index(thread)])
    lines = []
    for number, rows in list(found.items())[:MOST_LINES]:
        site = data["sites"][number]
        memory = data["memory"][site["memory"]]
        ends = [dict.fromkeys((row[0], row[-1])) if row else () for row in rows]
        texts = [tuple(index_text(memory, n) for n in end) for end in ends]
        lines.append((site, texts))
    return lines


def dearest(data: dict) -> tuple[dict, dict, dict, int]:
    """Return the request farthest above its least cost.

    With its site, its memory and its cost. The least is one pass, or the
    sectors that as many neighbours of 4 bytes fill.
    """
    found = []
    for step in steps_of(data):
        site = data["sites"][step["site"]]
        memory = data["memory"][site["memory"]]
        found.append((step, site, memory, cost_of(memory, step)))

    def excess(request: tuple) -> float:
        step, _, memory, cost = request
        lanes = len(unrolled(step["threads"]))
        least = max(1, lanes / _WORDS) if memory["space"] == "global" else 1
        return cost / least

    return max(found, key=excess)


def cost_text(memory: dict, cost: int) -> str:
    """Say what a request costs: "4 sectors", "1 pass"."""
    if memory["space"] == "global":
        return f"{cost} sector{'' if cost == 1 else 's'}"
    return f"{cost} pass{'' if cost == 1 else 'es'}"


def request_panel(name: str, data: dict) -> Panel:
    """Draw the request that costs most: who asks for which sector or bank."""
    step, site, memory, cost = dearest(data)
    threads, addresses = unrolled(step["threads"]), unrolled(step["addresses"])
    is_global = memory["space"] == "global"
    lanes = f"{len(threads)} lane{'s' if len(threads) > 1 else ''}"
    title = f"Line {site['line']}: {cost_text(memory, cost)} for {lanes}"
    source = shorten(site["text"], 11, 290, mono=True)
    marks: list[Mark] = [
        heading(0, 8, shorten(title, 13, 290, bold=True)),
        Label(0, 28, source, 11, "start", MUTED, mono=True),
    ]
    if is_global:
        marks += [
            note(0, 48, "row: a sector of 32 bytes; number: the thread"),
            *_sectors(threads, addresses),
        ]
        what = f"{cost} rows of 8 squares, one row per sector touched"
    else:
        marks += [
            note(0, 48, "square: a bank; number: words asked from it"),
            *_banks(addresses),
        ]
        what = f"32 banks; the busiest serves {cost} words one after the other"
    return Panel.around(
        marks,
        f"{name}, line {site['line']}, {site['text']}: {lanes} {site['kind']} "
        f"{memory['label']}; {what}.",
    )


def _sectors(threads: list[int], addresses: list[int]) -> list[Mark]:
    """Draw one row per sector that is touched."""
    first = min(addresses) // SECTOR_BYTES
    rows: dict[int, dict[int, list[int]]] = {}
    for thread, address in zip(threads, addresses, strict=True):
        words = rows.setdefault(address // SECTOR_BYTES - first, {})
        words.setdefault(address % SECTOR_BYTES // WORD_BYTES, []).append(
            thread
        )
    height = 16 if len(rows) <= 16 else 12
    marks: list[Mark] = [empty_grid(44, 60, _WORDS, len(rows), 30, height)]
    for n, (sector, words) in enumerate(sorted(rows.items())):
        y = 60 + n * height
        middle = y + height / 2
        marks.append(Label(38, middle, str(sector), 9.5, "end", MUTED))
        for word, lanes in words.items():
            text = str(lanes[0]) if len(lanes) == 1 else f"{len(lanes)}×"
            fill = STATE_COLORS["kept"]
            x = 44 + word * 30
            marks += cell(x, y, 30, height, fill, text, size=9.5)
    return marks


def _banks(addresses: list[int]) -> list[Mark]:
    """Draw the 32 banks, with the number of words asked from each."""
    words = {address // WORD_BYTES for address in addresses}
    asked = [word % BANKS for word in words]
    marks: list[Mark] = [empty_grid(44, 60, 8, BANKS // 8, 30, 20)]
    for bank in range(BANKS):
        x, y = 44 + bank % 8 * 30, 60 + bank // 8 * 20
        many = asked.count(bank)
        if bank % 8 == 0:
            marks.append(Label(38, y + 10, str(bank), 10, "end", MUTED))
        if many:
            fill = STATE_COLORS["wrong" if many > 1 else "kept"]
            marks += cell(x, y, 30, 20, fill, str(many), size=11)
    return marks


def _entry(middle: float, data: dict, site: dict, is_bad: bool) -> list[Mark]:
    """Return a line number and what happens there; a hazard's is on red."""
    verb = site["kind"] if site["kind"] in ("read", "write") else "update"
    text = shorten(f"{verb} {_label(data, site)}", 10.5, _X[0] - 36)
    marks: list[Mark] = [Label(32, middle, text, 10.5, "start")]
    if is_bad:
        wrong = STATE_COLORS["wrong"]
        return marks + cell(
            0, middle - 8, 28, 16, wrong, f"{site['line']}", size=10
        )
    return [*marks, Label(26, middle, str(site["line"]), 10, "end", MUTED)]


def _label(data: dict, site: dict) -> str:
    return data["memory"][site["memory"]]["label"]


def _two_threads(data: dict, steps: list[dict]) -> list[int]:
    threads = sorted({t for step in steps for t in unrolled(step["threads"])})
    for hazard in data["hazards"]:
        pair = sorted({*hazard["threads"]})
        is_here = {*hazard["blocks"]} == {steps[0]["block"]}
        if is_here and len(pair) == 2 and {*pair} <= {*threads}:
            return pair
    return sorted({threads[0], threads[-1]})


def _barrier(y: float) -> list[Mark]:
    """Return the line that all threads wait at."""
    return [
        Stroke((((0.0, y), (110.0, y)), ((186.0, y), (_WIDTH - 4.0, y))),
               width=2),
        Label(_WIDTH / 2, y, "barrier", 11, color=MUTED),
    ]  # fmt: skip


def _block(data: dict) -> int:
    """Return the block to draw: that of the first hazard, or the first."""
    blocks = data["events"]["data"][0]
    named: list[Any] = [b for h in data["hazards"] for b in h["blocks"]]
    return next((b for b in named if b in blocks), min(blocks))
