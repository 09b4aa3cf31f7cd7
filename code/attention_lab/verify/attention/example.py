"""Shrink a failing case, and say in words what differs on it."""

from dataclasses import dataclass, replace

import numpy as np

from attention_lab.axes import ShapeMismatch
from attention_lab.verify.attention.case import (
    Case,
    arguments,
    right_answer,
    sees_nothing,
)
from attention_lab.verify.attention.comparison import fits
from attention_lab.verify.attention.subject import Outcome, Subject
from attention_lab.verify.report import Counterexample

#: Sizes that are tried, smallest first: all small ones, and what lies around
#: the usual tiles.
TRIED = (*range(1, 9), 12, 16, 17, 24, 32, 33, 48, 64, 65, 96, 128, 129, 256)
#: Arrays up to this many numbers are written into a counter-example.
SMALL = 64


@dataclass(frozen=True)
class Difference:
    """What differs on a case: a sentence, the element, both values."""

    what: str
    where: dict[str, int]
    got: float | str | None = None
    expected: float | None = None


def shrink(subject: Subject, case: Case) -> Case:
    """Return the smallest case of the same recipe that fails the same way.

    One axis after another is made as small as it can be; axes of equal size
    (queries and keys, the heads, the widths) stay equal.
    """
    kind = _kind(subject.run(case))
    for axes in _tied_axes(case):
        now = getattr(case.sizes, axes[0])
        for size in (size for size in TRIED if size < now):
            smaller = case
            for axis in axes:
                smaller = smaller.smaller(axis, size)
            if _fails_alike(subject, smaller, kind):
                case = smaller
                break
    return case


def _tied_axes(case: Case) -> list[tuple[str, ...]]:
    n = case.sizes
    heads = [("H", "H_kv")] if n.H_kv == n.H else []
    lengths = [("L", "S")] if n.L == n.S else [("L",), ("S",)]
    widths = [("D", "D_v")] if n.D_v == n.D else [("D",), ("D_v",)]
    return [("B",), *heads, *lengths, *widths]


def _kind(outcome: Outcome) -> tuple[str, bool]:
    out = outcome.out_BHLD
    return outcome.kind, out is not None and bool(np.isfinite(out).all())


def _fails_alike(subject: Subject, case: Case, kind: tuple[str, bool]) -> bool:
    try:
        right_answer(case)
    except (ShapeMismatch, ValueError):  # these sizes mean something else
        return False
    outcome = subject.run(case)
    return not fits(outcome, case) and _kind(outcome) == kind


def counterexample(case: Case, difference: Difference) -> Counterexample:
    """Write a case and what differs on it into a report."""
    arrays = {
        name: array.tolist()
        for name, array in arguments(case).items()
        if array is not None and array.size <= SMALL
    }
    options = {
        name: case.mask if name == "attn_mask" else value
        for name, value in case.options().items()
    }
    if case.dtype != "float32":
        options["dtype"] = case.dtype
    letters = case.sizes._asdict()
    if case.sizes.H_kv == case.sizes.H:
        del letters["H_kv"]
    if case.sizes.D_v == case.sizes.D:
        del letters["D_v"]
    return Counterexample(
        sizes=letters,
        options=options,
        inputs=arrays,
        where=difference.where,
        got=difference.got,
        expected=difference.expected,
    )


def describe(subject: Subject, case: Case) -> Difference:
    """Say what differs on a failing case, by weights where they can be seen."""
    outcome = subject.run(case)
    if outcome.out_BHLD is None or outcome.kind:
        n = case.sizes
        lengths = f"with L = {n.L} and S = {n.S}, " if n.L != n.S else ""
        return Difference(f"{lengths}{outcome.problem}.", {})
    return _in_weights(subject, case) or _in_output(case, outcome.out_BHLD)


def _in_output(case: Case, out: np.ndarray) -> Difference:
    right = right_answer(case).out_BHLD
    b, h, row, channel = _worst(out, right)
    got, expected = float(out[b, h, row, channel]), right[b, h, row, channel]
    word = "token" if case.sizes.L == case.sizes.S else "query"
    shown, wanted = written_apart(got, expected)
    place = f"sample {b}, head {h}, {word} {row}, channel {channel}"
    why = ""
    if sees_nothing(case)[b, h, row]:
        why = f" because {word} {row} may see no key"
    return Difference(
        f"the output of {place} is {shown}; it should be {wanted}{why}.",
        {"sample": b, "head": h, word: row, "channel": channel},
        got,
        float(expected),
    )


def _in_weights(subject: Subject, case: Case) -> Difference | None:
    """Let the values be the identity, so that the output is the weights."""
    n = case.sizes
    if n.S == 0 or n.L == 0:
        return None
    square = replace(
        case, values="identity", sizes=n._replace(D_v=n.S), hidden="ordinary"
    )
    probes = [square, square.smaller("D", n.S)]
    if case.hidden == "huge":
        probes = [replace(probe, hidden="huge") for probe in probes]
    for probe in probes:
        outcome = subject.run_again(probe)
        if outcome.out_BHLD is not None and not fits(outcome, probe):
            return _weights_in_words(probe, outcome.out_BHLD)
    return None


def _weights_in_words(case: Case, weights: np.ndarray) -> Difference | None:
    if not np.isfinite(weights).all():
        return None
    right = right_answer(case)
    query, key = ("token", "token")
    if case.sizes.L != case.sizes.S:
        query, key = "query", "key"
    rule = "is_causal" if case.is_causal else "the mask"
    limit = right.bound
    hidden = (right.out_BHLD == 0) & ~sees_nothing(case)[..., None]
    leak = np.where(hidden, np.abs(weights), 0.0)
    miss = (right.out_BHLD > limit) & (np.abs(weights) <= right.bound)
    if leak.max() > limit and (case.is_causal or case.mask):
        at = np.unravel_index(leak.argmax(), leak.shape)
        b, h, row, column = (int(i) for i in at)
        what = (
            f"{query} {row} sees {key} {column} (weight "
            f"{weights[at]:.3g}) although {rule} forbids it"
        )
    elif miss.any() and (case.is_causal or case.mask):
        at = np.unravel_index(
            np.where(miss, right.out_BHLD, 0).argmax(), miss.shape
        )
        b, h, row, column = (int(i) for i in at)
        what = (
            f"{query} {row} does not see {key} {column} although {rule} "
            f"allows it (weight {right.out_BHLD[at]:.3g} expected)"
        )
    else:
        at = _worst(weights, right.out_BHLD)
        b, h, row, column = at
        total = weights[b, h, row].sum()
        wanted = right.out_BHLD[b, h, row].sum()
        got, wanted_here = written_apart(weights[at], right.out_BHLD[at])
        what = (
            f"{query} {row} gives {key} {column} the weight {got}; it should "
            f"be {wanted_here}"
        )
        if abs(total - wanted) > limit * case.sizes.S:
            what += f", and its weights add up to {total:.3g}"
        if sees_nothing(case)[b, h, row]:
            what += f", because {query} {row} may see no key"
    head = f" in head {h}" if case.sizes.H > 1 else ""
    sample = f" of sample {b}" if case.sizes.B > 1 else ""
    return Difference(
        f"{what}{head}{sample}.",
        {"sample": b, "head": h, query: row}
        | {"key" if key == "key" else "sees": column},
        float(weights[at]),
        float(right.out_BHLD[at]),
    )


def written_apart(got: float, expected: float) -> tuple[str, str]:
    """Write two numbers with as many digits as it takes to differ."""
    for digits in range(3, 17):
        texts = f"{got:.{digits}g}", f"{expected:.{digits}g}"
        if texts[0] != texts[1]:
            break
    return texts


def _worst(actual: np.ndarray, right: np.ndarray) -> tuple[int, ...]:
    with np.errstate(invalid="ignore"):
        difference = np.abs(actual - right)
    difference = np.where(np.isnan(difference), np.inf, difference)
    at = np.unravel_index(difference.argmax(), difference.shape)
    return tuple(int(i) for i in at)
