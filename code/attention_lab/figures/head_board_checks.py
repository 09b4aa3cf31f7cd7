"""What a head board claims of its runs, and what it asks before."""

from typing import Any

from attention_lab.figures.digits import error_text
from attention_lab.figures.picture import Verdict

Run = dict[str, Any]


def fewest_and_most(data: dict[str, Any]) -> tuple[Run, Run]:
    """Return the runs with fewest and most heads, each with its own keys."""
    plain = _plain_runs(data)
    heads = [run["H"] for run in plain]
    return (
        plain[heads.index(min(heads))],
        plain[heads.index(max(heads))],
    )


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


def with_questions(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data with each run's verdicts, and questions with answers.

    A question is `id`, `text`, `options` and the place of the `answer`.
    """
    few, many = fewest_and_most(data)
    grows = [many[key] > few[key] for key in ("parameters", "flops")]
    cost = {
        "id": "cost",
        "runs": [data["runs"].index(run) for run in (few, many)],
        "text": f"Take {many['H']} heads instead of {few['H']}; the model "
        "stays as wide. What grows: its parameters, the FLOPs of its matrix "
        "products?",
        "options": ["neither", "parameters", "FLOPs", "both"],
        "answer": grows[0] + 2 * grows[1],
    }
    runs = [
        {
            **run,
            **{
                name: [
                    v.as_data()
                    for v in _verdicts({**data, "runs": [run]}, error)
                ]
                for name, error in (
                    ("checks", "error"),
                    ("wrong_checks", "wrong_error"),
                )
            },
            "off": [
                {**part, **_questions(data, run, head)}
                for head, part in enumerate(run["off"])
            ],
        }
        for run in data["runs"]
    ]
    return {**data, "cost": cost, "runs": runs}


def _questions(data: dict[str, Any], run: Run, head: int) -> dict[str, Any]:
    """Ask how far a head reaches, merged right and without the permute."""
    L, E = data["L"], data["E"]
    many = len(changed_places(run, head))
    sizes = sorted({run["D"], L * run["D"], L * E, many})
    asked = {
        "question": {
            "id": f"off/{run['name']}/{head}",
            "text": f"Set the rows of W_q of head {head} to 0. How many of the "
            f"{L * E} numbers of the output change?",
            "options": [str(size) for size in sizes],
            "answer": sizes.index(many),
        }
    }
    places = changed_places(run, head, "wrong_")
    tokens = len({place // E for place in places})
    if run["H"] > 1 and tokens:
        asked["wrong_question"] = {
            "id": f"merge/{run['name']}/{head}",
            "text": f"With head {head} off, all {L} tokens change. Merge "
            "without the permute: in how many tokens do the changed numbers "
            "stand then?",
            "options": [str(many) for many in range(1, L + 1)],
            "answer": tokens - 1,
        }
    return asked


def _plain_runs(data: dict[str, Any]) -> list[Run]:
    """Return the runs in which every head has its own keys, or all runs."""
    return [run for run in data["runs"] if run["G"] == run["H"]] or data["runs"]


def board_verdicts(data: dict[str, Any]) -> list[Verdict]:
    """Return what was checked on all runs, right and wrong."""
    verdicts = _verdicts(data, "error")
    spread = {run["parameters"]: run["H"] for run in _plain_runs(data)}
    verdicts.append(
        Verdict(
            "parameters do not depend on the number of heads",
            len(spread) == 1,
            ", ".join(map(str, sorted(spread))),
            "exact",
            "counted for "
            f"{', '.join(str(run['H']) for run in _plain_runs(data))} heads",
        )
    )
    split = [run for run in data["runs"] if run["H"] > 1]
    if split:
        least = min(split, key=lambda run: run["wrong_error"] / run["bound"])
        verdicts.append(
            Verdict(
                "mistake “merge without permute” shows",
                least["wrong_error"] > least["bound"],
                f"off by at least {error_text(least['wrong_error'])}",
                f"> {error_text(least['bound'])}",
                f"{len(split)} runs with several heads, {_source(data)}",
            )
        )
    return verdicts


def _verdicts(data: dict[str, Any], error: str) -> list[Verdict]:
    """Return what was checked on each of the runs; the worst one speaks."""
    runs = data["runs"]
    source = _source(data)
    if len(runs) > 1:
        source = f"{len(runs)} runs, {source}"
    off = [part for run in runs for part in run["off"]]
    outside = max(part["outside"] for part in off)
    whole = max(run["whole_error"] for run in runs)
    ratios = [run["loop_flops"] / run["flops"] for run in runs]
    furthest = max(ratios, key=lambda ratio: abs(ratio - 1))
    return [
        _worst("output against the reference", runs, error, "bound", source),
        _worst("output, loop − all at once", runs, "loop_error",
               "loop_bound", source),
        Verdict(
            "q, k, v of whole numbers, loop − all at once", whole == 0,
            f"off by {error_text(whole)}", "exactly 0", source,
        ),
        Verdict(
            "FLOPs, loop ÷ all at once", furthest == 1, f"{furthest:.4f}",
            "exact", f"PyTorch's FLOP counter, {source}",
        ),
        Verdict(
            "a head off changes its own columns only",
            outside == 0 and all(part["inside"] > 0 for part in off),
            f"others by {error_text(outside)}", "exactly 0",
            f"{len(off)} times one head off, {source}",
        ),
    ]  # fmt: skip


def _worst(
    name: str, runs: list[Run], error: str, bound: str, source: str
) -> Verdict:
    """Return the verdict of the run that uses most of its bound."""
    worst = max(runs, key=lambda run: run[error] / run[bound])
    return Verdict(
        name,
        worst[error] <= worst[bound],
        f"off by {error_text(worst[error])}",
        f"≤ {error_text(worst[bound])}",
        source,
    )


def _source(data: dict[str, Any]) -> str:
    return f"{data['dtype']}, seed {data['seed']}"
