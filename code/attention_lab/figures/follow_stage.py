"""What the script of "follow the element" shows: words, places, verdicts.

Everything is read from the recording; the script only looks it up.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from attention_lab.figures.follow_data import (
    MOST_COLUMNS,
    memories,
    misplaced,
    places_of,
)
from attention_lab.figures.palette import ink_on, token_color
from attention_lab.figures.picture import Verdict

#: Places of the memory that the script keeps together in a line.
GROUP = 6
#: Keeps a number with the letter before it, where a line is broken.
NBSP = "\N{NO-BREAK SPACE}"


def stage_of(
    data: Mapping[str, Any], verdicts: Sequence[Sequence[Verdict]]
) -> dict[str, Any]:
    """Return the recording with the words of its stage.

    Parameters
    ----------
    data : a recording that `read_follow` has accepted.
    verdicts : of each chain.

    Returns
    -------
    The recording, with `shades`, the style of each token's elements, and in
    each chain:

    beside : place of the chain that stands beside it, or None
    verdicts : as the script's strip takes them
    steps : with `kind`: view or copy; `axes`: letters, sizes and strides;
        `rows`, `columns`: heads of the grid; in its reading order `where`,
        `labels`, `kinds`: coordinates, name and style of each element;
        `strip`: the memory, six elements per group; and by element, `sums`:
        its stride arithmetic; `told`: a sentence; `belongs`: its place in
        the reading order where the reference has it, if elsewhere;
        `changes` since the step before: 0 nothing, 1 coordinates, 2 memory,
        3 both. In `axes` and `sums` a single letter is the chip of an axis.
    """
    chains = [
        {
            **chain,
            "beside": _beside(data["chains"], number),
            "says": _says(chain),
            "verdicts": [_verdict(v) for v in verdicts[number]],
            "steps": _steps(chain, data["inputs"][chain["input"]]["names"]),
        }
        for number, chain in enumerate(data["chains"])
    ]
    shades = {name: _shades(part) for name, part in data["inputs"].items()}
    return {**data, "shades": shades, "chains": chains}


def _beside(chains: Sequence[Mapping[str, Any]], number: int) -> int | None:
    """Return the right chain of a wrong one, or the first wrong of a right."""
    right = chains[number]["instead"]
    if right is not None:
        return right
    wrongs = [n for n, c in enumerate(chains) if c["instead"] == number]
    return wrongs[0] if wrongs else None


def _says(chain: Mapping[str, Any]) -> str:
    """Say what is wrong with a chain, and how much it is at other sizes."""
    more = [
        f"At L {run['L']}, H {run['H']}, D {run['D']} its result has "
        f"{run['misplaced']} of {run['total']} elements misplaced "
        f"({run['misplaced'] / run['total']:.1%})."
        for run in chain["larger"]
        if run["misplaced"]
    ]
    return " ".join([chain["says"], *more])


def _verdict(verdict: Verdict) -> dict[str, Any]:
    return {
        "label": verdict.label,
        "passed": bool(verdict.passed),
        "value": verdict.value,
        "held": f"{verdict.tolerance}; {verdict.provenance}",
    }


def _shades(part: Mapping[str, Any]) -> list[str]:
    """Return the style of each token's elements, as in the static picture."""
    count = max(part["tokens"]) + 1
    fills = [token_color(token, count) for token in range(count)]
    return [f"background:{fill};color:{ink_on(fill)}" for fill in fills]


def _steps(
    chain: Mapping[str, Any], names: Sequence[str]
) -> list[dict[str, Any]]:
    known = memories(chain)
    steps: list[dict[str, Any]] = []
    for step in chain["steps"]:
        before = steps[-1] if steps else None
        places = list(places_of(step))
        where = [_where(step, index) for index, _ in places]
        memory = known[step["memory"]]
        kind = "the input: axis, size (+stride)"
        if before is not None:
            is_copy = step["memory"] != before["memory"]
            kind = "a copy: new memory" if is_copy else "a view: same memory"
        at = {code: n for n, code in enumerate(step["codes"])}
        steps.append(
            {
                **step,
                "kind": kind,
                "axes": _axes(step),
                **_grid(step, places, where, names),
                "where": where,
                "strip": _grouped([memory[place] for place in sorted(memory)]),
                "sums": [
                    _sum(step, name, *places[at[code]])
                    if code in at
                    else [f"{name} is not in this part"]
                    for code, name in enumerate(names)
                ],
                "belongs": [
                    _elsewhere(step, at.get(code), code)
                    for code in range(len(names))
                ],
                "told": [
                    _told(step, kind, where, at, code, name)
                    for code, name in enumerate(names)
                ],
                "changes": [
                    _changes(before, step, where, code)
                    for code in range(len(names))
                    if before is not None
                ],
            }
        )
    return steps


def _grouped(codes: list[int]) -> list[list[int]]:
    return [codes[n : n + GROUP] for n in range(0, len(codes), GROUP)]


def _where(step: Mapping[str, Any], index: Sequence[int]) -> str:
    """Name a place by the axes that are longer than 1: "H 1, L 2, D 0"."""
    axes = zip(step["letters"], index, step["shape"], strict=True)
    named = [f"{letter} {i}" for letter, i, size in axes if size > 1]
    return ", ".join(named)


def _elsewhere(
    step: Mapping[str, Any], here: int | None, code: int
) -> int | None:
    """Return where the reference has an element, if not where it is."""
    if step["wanted"] is None:
        return None
    right = step["wanted"].index(code)
    return None if right == here else right


def _grid(
    step: Mapping[str, Any],
    places: Sequence[tuple[list[int], int]],
    where: Sequence[str],
    names: Sequence[str],
) -> dict[str, Any]:
    """Return the grid of a tensor in reading order; a long axis is folded."""
    width = step["shape"][-1]
    columns = max(n for n in range(1, MOST_COLUMNS + 1) if width % n == 0)
    last = step["letters"][-1] if "·" not in step["letters"][-1] else ""
    rows = []
    for index, _ in places[::columns]:
        axes = zip(step["letters"], index[:-1], step["shape"], strict=False)
        parts = [f"{letter}{i}" for letter, i, size in axes if size > 1]
        if columns < width:
            parts.append(f"{last}{index[-1]}+")
        rows.append(" ".join(parts))
    folds = width // columns
    deep = folds if folds > 1 else [1, *step["shape"]][-2]
    mark = last if columns == width else ""
    kinds, labels = [], []
    for n, code in enumerate(step["codes"]):
        is_off = step["wanted"] is not None and step["wanted"][n] != code
        row = n // columns
        is_first = row and row % deep == 0 and len(step["shape"]) > 1
        kinds.append(
            "attn-seen"
            + is_off * " attn-off"
            + (" attn-block" if is_first else "")
        )
        labels.append(
            f"{where[n]}: {names[code]}" + is_off * ", belongs elsewhere"
        )
    return {
        "rows": rows,
        "columns": [f"{mark}{n}" for n in range(columns)],
        "kinds": kinds,
        "labels": labels,
    }


def _axes(step: Mapping[str, Any]) -> list[str]:
    """Return letter, size and stride of each axis: "L", "4 (+6)", …"""
    axes = zip(step["letters"], step["shape"], step["strides"], strict=True)
    parts: list[str] = []
    for letter, size, stride in axes:
        parts += [*letter.split("·"), f"{NBSP}{size}{NBSP}(+{stride}) "]
    return parts


def _sum(
    step: Mapping[str, Any], name: str, index: Sequence[int], place: int
) -> list[str]:
    """Return the stride arithmetic with a letter before each term."""
    terms = sum_of(step, index, place).split(" + ")
    sizes = zip(step["letters"], step["shape"], strict=True)
    letters = [letter for letter, size in sizes if size > 1]
    if step["offset"]:
        letters.insert(0, "")
    parts = [f"Element {name} is at "]
    for letter, term in zip(letters, terms, strict=True):
        parts += [*filter(None, letter.split("·")), f"{NBSP}{term} + "]
    parts[-1] = parts[-1].removesuffix(" + ")
    return parts


def sum_of(step: Mapping[str, Any], index: Sequence[int], place: int) -> str:
    """Write the stride arithmetic of one element out.

    Examples
    --------
    >>> step = {"strides": [12, 3, 1], "shape": [1, 4, 3], "offset": 0}
    >>> sum_of(step, [0, 2, 1], 7)
    '2·3 + 1·1 = place 7'
    """
    axes = zip(index, step["strides"], step["shape"], strict=True)
    terms = [f"{i}·{stride}" for i, stride, size in axes if size > 1]
    first = [str(step["offset"])] if step["offset"] else []
    return f"{' + '.join(first + terms)} = place {place}"


def _changes(
    before: Mapping[str, Any],
    step: Mapping[str, Any],
    where: Sequence[str],
    code: int,
) -> int:
    """Return 1 for other coordinates, 2 for other memory, 3 for both."""
    old = dict(zip(before["codes"], before["where"], strict=True)).get(code)
    new = dict(zip(step["codes"], where, strict=True)).get(code)
    return (old != new) + 2 * (before["memory"] != step["memory"])


def _told(
    step: Mapping[str, Any],
    kind: str,
    where: Sequence[str],
    at: Mapping[int, int],
    code: int,
    name: str,
) -> str:
    """Say where an element is, and whether it belongs there."""
    start = f"{step['call']}, {kind}:"
    if code not in at:
        return f"{start} {name} is not in this part."
    here = at[code]
    told = f"{start} {name} is at {where[here]}."
    if step["wanted"] is None:
        return told
    right = step["wanted"].index(code)
    wrong = misplaced(step)
    end = "there too" if right == here else f"at {where[right]}"
    return (
        f"{told} The reference has it {end}. {wrong or 'No'} of "
        f"{len(step['codes'])} elements are misplaced."
    )
