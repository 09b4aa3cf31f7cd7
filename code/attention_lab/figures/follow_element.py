"""Follow the element: where one number goes when heads are split and merged.

The static layer sets two chains side by side, a right one and a wrong one. The
interactive layer steps through every recorded chain with one element in hand.
"""

from collections.abc import Mapping
from typing import Any

from attention_lab.figures.follow_data import (
    misplaced,
    read_follow,
    strides_right,
)
from attention_lab.figures.follow_panels import layout_chain
from attention_lab.figures.follow_stage import stage_of
from attention_lab.figures.live import LiveFigure
from attention_lab.figures.picture import Picture, Table, Verdict


def draw_follow_element(
    recording: Any, *, title: str = "Follow one element of Q"
) -> LiveFigure:
    """Draw recorded chains: two side by side, and a stage to walk through all.

    Parameters
    ----------
    recording : what `record_chains` or `trace_chains` of
        `attention_lab.steps.follow_element` returns (schema
        "follow_element.v1"). The picture shows the first chain and the wrong
        one that stands beside it, or else the first two.
    title : heading of the figure.

    Returns
    -------
    A `LiveFigure`: right chains are held against the reference element by
    element, wrong ones must miss it, the strides must lead to the elements,
    and views and elements are compared with a run without the recorder.

    Raises
    ------
    ShapeMismatch
        If a tensor has not as many elements as its shape.
    ValueError
        If the recording has another schema, is empty, or is too large to
        draw; names the place and the sizes.
    """
    data = read_follow(recording)
    chains = data["chains"]
    beside = [chain for chain in chains if chain["instead"] == 0]
    drawn = [chains[0], *(beside or chains[1:])[:1]]
    picture = Picture(
        [
            layout_chain(chain, data["inputs"][chain["input"]])
            for chain in drawn
        ],
        title,
        f"{' and '.join(chain['name'] for chain in drawn)}: the memory, the "
        "steps, and the result with the origin of every element.",
        _finding(chains),
        _verdicts(data),
        _table(chains),
    )
    stage = stage_of(data, [_of_one(chain) for chain in chains])
    return LiveFigure(picture, stage, "follow_element")


def most_misplaced(chain: Mapping[str, Any]) -> tuple[int, int]:
    """Return the misplaced elements of a chain's worst step, and of how many.

    Examples
    --------
    >>> step = {"codes": [0, 2, 1], "wanted": [0, 1, 2]}
    >>> most_misplaced({"steps": [step]})
    (2, 3)
    """
    worst = max(chain["steps"], key=misplaced)
    return misplaced(worst), len(worst["codes"])


def _share(part: int, whole: int) -> str:
    return f"{part} of {whole} misplaced ({part / whole:.1%})"


def _finding(chains: list[dict[str, Any]]) -> str:
    """Say how much the first wrong chain misplaces, here and at other sizes."""
    wrong = next((c for c in chains if most_misplaced(c)[0]), None)
    if wrong is None:
        return (
            f"In {_count(len(chains), 'chain')} every element ends where the "
            "reference split has it."
        )
    part, whole = most_misplaced(wrong)
    more = [
        f"{run['misplaced'] / run['total']:.1%} at L {run['L']}, H "
        f"{run['H']}, D {run['D']}"
        for run in wrong["larger"]
    ]
    also = f"; the share is {' and '.join(more)}" if more else ""
    return (
        f"“{wrong['name']}” has the right shape, and {part} of {whole} "
        f"elements ({part / whole:.1%}) are not where the reference split has "
        f"them{also}."
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _verdicts(data: Mapping[str, Any]) -> list[Verdict]:
    """Return what was checked on all chains, right and wrong."""
    chains = data["chains"]
    source = f"position-coded {data['dtype']}"
    rights = [most_misplaced(c) for c in chains if c["instead"] is None]
    found = []
    if rights:
        wrong, total = (sum(part) for part in zip(*rights, strict=True))
        found.append(
            Verdict(
                f"{_count(len(rights), 'chain')} against a split by slices",
                wrong == 0,
                _share(wrong, total),
                "exact",
                source,
            )
        )
    for chain in chains:
        if chain["instead"] is not None:
            part, whole = most_misplaced(chain)
            found.append(
                Verdict(
                    f"mistake “{chain['name']}” shows",
                    part > 0,
                    _share(part, whole),
                    "> 0",
                    source,
                )
            )
    counts = [strides_right(chain) for chain in chains]
    right, total = (sum(part) for part in zip(*counts, strict=True))
    plain = "run without the recorder"
    return [
        *found,
        Verdict(
            "strides lead to every element",
            right == total,
            f"{right} of {total}",
            "exact",
            "Σ index · stride in the memory",
        ),
        _of_chains(
            "elements and misplaced ones are those of PyTorch",
            [
                c["run"]["agrees"]
                and misplaced(c["steps"][-1]) == c["run"]["misplaced"]
                for c in chains
            ],
            plain,
        ),
        _of_chains(
            "view or copy as by data_ptr",
            [is_view(c) == c["run"]["is_view"] for c in chains],
            plain,
        ),
    ]


def _of_one(chain: Mapping[str, Any]) -> list[Verdict]:
    """Return what was checked on one chain, for its strip."""
    part, whole = most_misplaced(chain)
    last, run = misplaced(chain["steps"][-1]), chain["run"]
    right, total = strides_right(chain)
    return [
        Verdict(
            "elements against a split by slices",
            part == 0,
            _share(part, whole),
            "exact",
            "position-coded",
        ),
        Verdict(
            "misplaced in the result, by origin and by PyTorch",
            last == run["misplaced"] and run["agrees"],
            f"{last} and {run['misplaced']}",
            "equal",
            "run without the recorder",
        ),
        Verdict(
            "strides lead to every element",
            right == total,
            f"{right} of {total}",
            "exact",
            "Σ index · stride",
        ),
        Verdict(
            "the result lies in the memory of x",
            is_view(chain) == run["is_view"],
            "yes, a view" if is_view(chain) else "no, a copy",
            f"data_ptr says {'yes' if run['is_view'] else 'no'}",
            "run without the recorder",
        ),
    ]


def is_view(chain: Mapping[str, Any]) -> bool:
    """Whether the result lies in the memory of the input."""
    steps = chain["steps"]
    return steps[-1]["memory"] == steps[0]["memory"]


def _of_chains(label: str, held: list[bool], source: str) -> Verdict:
    value = f"{sum(held)} of {_count(len(held), 'chain')}"
    return Verdict(label, all(held), value, "exact", source)


def _table(chains: list[dict[str, Any]]) -> Table:
    """Return every chain, one per line."""
    rows = []
    for chain in chains:
        calls = ", ".join(step["call"] for step in chain["steps"][1:])
        result = chain["steps"][-1]
        shares = [most_misplaced(chain)] + [
            (run["misplaced"], run["total"]) for run in chain["larger"]
        ]
        rows.append(
            (
                chain["name"],
                calls,
                str(tuple(result["shape"])),
                str(tuple(result["strides"])),
                "view" if is_view(chain) else "copy",
                "  ".join(f"{part} of {whole}" for part, whole in shares),
            )
        )
    head = ("chain", "steps", "shape", "strides", "memory", "misplaced")
    return Table("All chains", head, tuple(rows))
