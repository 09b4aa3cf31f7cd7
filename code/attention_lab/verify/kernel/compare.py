"""Compare a kernel's outputs with what must come out, and say what differs."""

from typing import Any, NamedTuple

import numpy as np

from attention_lab.axes import axis_letters
from attention_lab.verify.kernel.bench import Prepared, Run
from attention_lab.verify.kernel.case import in_words
from attention_lab.verify.report import Counterexample

#: Inputs with more numbers than this are left out of a counter-example.
MOST_NUMBERS = 64


class Difference(NamedTuple):
    """The element that differs most, in one output."""

    output: int
    where: tuple[int, ...]
    got: Any
    expected: Any
    bound: float
    count: int
    of: int


def largest_difference(
    outputs: tuple[np.ndarray, ...],
    expected: tuple[np.ndarray, ...],
    bounds: tuple[float, ...],
    missing: tuple[np.ndarray, ...],
    equal_nan: bool = False,
) -> Difference | None:
    """Return the worst element beyond its bound, or None.

    NaN never equals anything unless `equal_nan`; elements that were never
    written are another check's business.
    """
    triples = zip(outputs, expected, bounds, missing, strict=True)
    for k, (got, want, bound, absent) in enumerate(triples):
        distance = distances(got, want, equal_nan)
        distance[absent] = 0.0
        wrong = ~(distance <= bound)
        if wrong.any():
            where = np.unravel_index(int(distance.argmax()), distance.shape)
            return Difference(
                k,
                tuple(int(i) for i in where),
                got[where].item(),
                want[where].item(),
                bound,
                int(wrong.sum()),
                wrong.size,
            )
    return None


def distances(
    got: np.ndarray, want: np.ndarray, equal_nan: bool = False
) -> np.ndarray:
    """Return |got − want|, ∞ where either is NaN and 0 where they are equal."""
    equal = np.asarray(got == want)
    a, b = got.astype(float), want.astype(float)
    if equal_nan:
        equal = equal | (np.isnan(a) & np.isnan(b))
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(a - b)
    distance = np.where(np.isnan(distance), np.inf, distance)
    # Unequal integers may be equal as float64.
    distance = np.maximum(distance, np.nextafter(0.0, 1.0))
    return np.where(equal, 0.0, distance)


def element(case: Prepared, output: int, where: tuple[int, ...]) -> str:
    """Write an element the way a reader finds it: out_LD at L = 1, D = 0."""
    name = case.names[output]
    letters = axis_letters(name)
    if len(letters) == len(where):
        return f"`{name}` at {in_words(dict(zip(letters, where, strict=True)))}"
    inside = ", ".join(map(str, where))
    return f"`{name}[{inside}]`"


def counterexample(
    case: Prepared, difference: Difference | None = None
) -> Counterexample:
    """Return the smallest example: sizes, and small inputs as lists."""
    inputs = {}
    for name, arg in zip(case.names, case.launch.args, strict=True):
        if name in case.output_names and not case.launch.accumulates:
            continue
        if isinstance(arg, np.ndarray):
            if arg.size <= MOST_NUMBERS:
                inputs[name] = arg.tolist()
        else:
            inputs[name] = arg.item() if isinstance(arg, np.generic) else arg
    where: dict[str, int] = {}
    if difference is not None:
        letters = axis_letters(case.names[difference.output])
        if len(letters) != len(difference.where):
            letters = [f"axis {k}" for k in range(len(difference.where))]
        where = dict(zip(letters, difference.where, strict=True))
    return Counterexample(
        sizes=dict(case.sizes),
        options={"grid": case.launch.grid, "block": case.launch.block},
        inputs=inputs,
        where=where,
        got=None if difference is None else difference.got,
        expected=None if difference is None else difference.expected,
    )


def compare(
    case: Prepared, run: Run, equal_nan: bool = False
) -> Difference | None:
    """Return how a run differs most from the reference, or None."""
    return largest_difference(
        run.outputs, case.expected, case.bounds, run.missing, equal_nan
    )
