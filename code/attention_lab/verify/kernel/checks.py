"""The checks of a kernel's launch, its memory accesses and its values.

Each returns its `Check`, or a sentence that says why it was not done.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from attention_lab.verify.kernel.bench import (
    ORDERS,
    Bench,
    Prepared,
    Run,
)
from attention_lab.verify.kernel.case import BadCase, in_words
from attention_lab.verify.kernel.compare import (
    Difference,
    compare,
    counterexample,
    element,
    largest_difference,
)
from attention_lab.verify.kernel.hazard_names import name_hazard
from attention_lab.verify.kernel.sizes import shrink
from attention_lab.verify.kernel.strong_inputs import Change
from attention_lab.verify.kernel.value_names import WrongAnswers, name_values
from attention_lab.verify.report import Check

#: The refusals that have a card in the museum, under their own name.
REFUSALS = ("too-many-threads", "too-much-shared-memory")


@dataclass
class Work:
    """What the checks share: the bench, the sizes, and which of them ran."""

    bench: Bench
    sizes: list[dict[str, Any]]
    wrong_answers: WrongAnswers | None = None
    traffic: Callable[..., Any] | None = None
    budget: Callable[..., Any] | None = None
    ran: list[dict[str, Any]] = field(default_factory=list)
    ended: list[dict[str, Any]] = field(default_factory=list)

    def first(self, sizes: list[dict[str, Any]], find: Any) -> Any:
        """Return the smallest failing sizes and the problem there, or None."""
        for candidate in sizes:
            problem = find(candidate)
            if problem is not None:
                return shrink(candidate, problem, find)
        return None

    def sound(self, change: Change | None = None) -> list[tuple[Prepared, Run]]:
        """Return the runs without a hazard: their values mean something."""
        runs = [
            (
                self.bench.prepare(sizes, change),
                self.bench.run(sizes, change=change),
            )
            for sizes in self.ended
        ]
        return [
            (case, run)
            for case, run in runs
            if not set(run.recording.kinds) - {"unwritten-output"}
        ]


def check_runs(work: Work) -> Check:
    """Check that a GPU would accept every launch and the kernel itself."""
    name = "runs"
    problem = None
    for sizes in work.sizes:
        try:
            run = work.bench.run(sizes)
        except BadCase as bad:
            problem = problem or (sizes, str(bad), _construct(str(bad)))
            continue
        if run.was_refused:
            (hazard,) = run.recording.hazards
            mistake = hazard.kind if hazard.kind in REFUSALS else None
            problem = problem or (sizes, hazard.sentence, mistake)
            continue
        work.ran.append(sizes)
        if not run.is_stuck:
            work.ended.append(sizes)
    if problem is None:
        return Check(name, True)
    sizes, sentence, mistake = problem
    try:
        example = counterexample(work.bench.prepare(sizes))
    except BadCase:
        example = None
    what = f"At {in_words(sizes)}: {sentence}"
    return Check(name, False, what, example, mistake)


def _construct(sentence: str) -> str | None:
    """Name the two constructs that no GPU compiles, by the refusal's words."""
    if "dynamic shared arrays" in sentence:
        return "shared-arrays-aliased"
    if "constant" in sentence and "array" in sentence:
        return "shared-size-from-argument"
    return None


def check_hazards(work: Work) -> Check:
    """Check every run, in three thread orders, for what no GPU guarantees."""

    def find(sizes: dict[str, Any]) -> Any:
        for order in ORDERS:
            run = work.bench.run(sizes, order)
            for hazard in run.recording.hazards:
                if hazard.kind != "unwritten-output" and not run.was_refused:
                    return hazard, run
        return None

    found = work.first(work.ran, find)
    if found is None:
        return Check("no hazard", True)
    sizes, (hazard, run) = found
    case = work.bench.prepare(sizes)
    mistake = name_hazard(hazard, work.bench, case, run, work.ran)
    what = f"{hazard.kind}: {hazard.sentence}"
    return Check("no hazard", False, what, counterexample(case), mistake)


def check_written(work: Work) -> Check | str:
    """Check that every element of every output was stored to."""
    if not work.ended:
        return "no run came to its end"
    if work.bench.prepare(work.ended[0]).launch.accumulates:
        return "the kernel adds to its outputs"

    def find(sizes: dict[str, Any]) -> Any:
        run = work.bench.run(sizes)
        if run.was_refused or run.is_stuck:
            return None
        for k, absent in enumerate(run.missing):
            if absent.any():
                return k, absent
        names = work.bench.prepare(sizes).output_names
        for hazard in run.recording.hazards:
            if hazard.kind == "unwritten-output" and hazard.array in names:
                k = names.index(hazard.array)
                absent = np.zeros(run.outputs[k].shape, bool)
                absent[hazard.indices] = True
                return k, absent
        return None

    found = work.first(work.ended, find)
    if found is None:
        return Check("output written", True)
    sizes, (k, absent) = found
    case = work.bench.prepare(sizes)
    first = tuple(int(i) for i in np.argwhere(absent)[0])
    what = (
        f"{int(absent.sum())} of the {absent.size} elements of "
        f"`{case.names[k]}` were never written, the first is "
        f"{element(case, k, first)}."
    )
    return Check(
        "output written",
        False,
        what,
        counterexample(case),
        _why_unwritten(work.bench, case, k),
    )


def _why_unwritten(bench: Bench, case: Prepared, k: int) -> str | None:
    """Launch more blocks: if then all is written, the grid was too small."""
    grid = case.launch.grid
    grid = grid if isinstance(grid, tuple | list) else (grid,)
    try:
        run = bench.launch_once(case, grid=tuple(n + 1 for n in grid))
    except BadCase:
        return None
    if run.was_refused or run.is_stuck or run.missing[k].any():
        return None
    return "grid-too-small"


def check_inputs(work: Work) -> Check | str:
    """Check that the kernel leaves its inputs as they were."""
    if not work.ended:
        return "no run came to its end"

    def find(sizes: dict[str, Any]) -> Any:
        return work.bench.run(sizes).changed or None

    found = work.first(work.ended, find)
    if found is None:
        return Check("inputs unchanged", True)
    sizes, changed = found
    what = (
        f"The kernel changed its input `{changed[0]}`. Whoever launches it "
        "again, or uses that array afterwards, gets another result."
    )
    example = counterexample(work.bench.prepare(sizes))
    return Check("inputs unchanged", False, what, example)


def check_values(work: Work) -> Check | str:
    """Check the outputs against the reference."""
    if not work.ended:
        return "no run came to its end"

    def find(sizes: dict[str, Any]) -> Difference | None:
        case, run = work.bench.prepare(sizes), work.bench.run(sizes)
        if run.was_refused or run.is_stuck:
            return None
        return compare(case, run)

    found = work.first(work.ended, find)
    if found is None:
        return Check("values", True)
    sizes, difference = found
    case = work.bench.prepare(sizes)
    what, mistake = named(_differs(case, difference), work)
    return Check(
        "values", False, what, counterexample(case, difference), mistake
    )


def named(
    what: str, work: Work, changes: Iterable[Change | None] = (None,)
) -> tuple[str, str | None]:
    """Return the sentence with what the values tell, and the mistake's id.

    A mistake must explain the values with every one of `changes`.
    """
    runs = [pair for change in changes for pair in work.sound(change)]
    if not runs:
        return f"{what} That may follow from the hazard above.", None
    mistake, name = name_values(runs, work.wrong_answers)
    if name and mistake is None:
        what += f" These are the values of: {name}."
    return what, mistake


def _differs(case: Prepared, difference: Difference) -> str:
    place = element(case, difference.output, difference.where)
    return (
        f"{place} is {difference.got:.6g}, but {difference.expected:.6g} is "
        f"expected; allowed is {difference.bound:.2g}. "
        f"{difference.count} of {difference.of} elements differ by more."
    )


def check_orders(work: Work) -> Check | str:
    """Check that the order of the threads does not change the values.

    Each value may be as far from the exact one as its bound allows, so two of
    them may be twice that apart.
    """
    if not work.ended:
        return "no run came to its end"

    def find(sizes: dict[str, Any]) -> Any:
        case, first = work.bench.prepare(sizes), work.bench.run(sizes)
        twice = tuple(2 * bound for bound in case.bounds)
        for order in ORDERS[1:]:
            other = work.bench.run(sizes, order)
            if first.was_refused or first.is_stuck or other.is_stuck:
                return None
            difference = largest_difference(
                other.outputs,
                first.outputs,
                twice,
                first.missing,
                equal_nan=True,
            )
            if difference is not None:
                return order, difference
        return None

    found = work.first(work.ended, find)
    if found is None:
        return Check("order does not matter", True)
    sizes, (order, difference) = found
    case = work.bench.prepare(sizes)
    place = element(case, difference.output, difference.where)
    what = (
        f"{place} is {difference.expected:.6g} when the threads take their "
        f"turns in ascending order, and {difference.got:.6g} when the order "
        f"is {order}. A GPU promises no order."
    )
    example = counterexample(case, difference)
    return Check("order does not matter", False, what, example)
