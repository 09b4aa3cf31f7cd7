"""Checks for common kinds of answers: number, choice, array, function.

Each returns one `Check`. None of them shows the solution; of an array or a
function's result it shows one element, as the verifier does.
"""

import contextlib
import copy
import io
import math
import numbers
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from attention_lab.axes import ShapeMismatch, axis_letters
from attention_lab.verify.checks import WrongValues, as_numbers, check_same_as
from attention_lab.verify.isolation.words import raised_in_words
from attention_lab.verify.known_mistakes import known_mistakes
from attention_lab.verify.report import Check, Counterexample

HERE = Path(__file__).parent
#: A guess of a number that is no count is right within 1 %, as on the pages.
NEAR = 0.01
#: Arrays up to this many elements are written out in a counter-example.
SHOWN = 64

Case = Mapping[str, Any]


def number(
    name: str,
    answer: Any,
    expected: float,
    wrong: Mapping[float, str] | None = None,
) -> Check:
    """Check a number: a count exactly, another one within 1 %.

    Parameters
    ----------
    name : of the check, such as "the number of reads".
    expected : computed, never typed.
    wrong : a wrong number -> the sentence that names the thought behind it.

    Examples
    --------
    >>> number("the width", 3, 4).what
    '3 is too small.'
    >>> number("the width", 8, 4, {8: "That is the width of both."}).what
    'That is the width of both.'
    """
    value = _as_number(answer)
    if value is None:
        what = f"Answer with one number, such as 1.5, not {_short(answer)}."
        return Check(name, False, what)
    if _meets(value, expected):
        return Check(name, True)
    for other, sentence in (wrong or {}).items():
        if _meets(value, other):
            return Check(name, False, sentence)
    if value != value:
        return Check(name, False, "nan is not a number.")
    size = "large" if value > expected else "small"
    return Check(name, False, f"{value:g} is too {size}.")


def _as_number(answer: Any) -> float | None:
    """Return an answer as a number, also one from an array of one element."""
    if hasattr(answer, "item") and math.prod(getattr(answer, "shape", ())) == 1:
        answer = answer.item()
    is_real = isinstance(answer, numbers.Real) and not isinstance(answer, bool)
    return answer if is_real else None


def _meets(value: float, expected: float) -> bool:
    if isinstance(expected, numbers.Integral):
        return bool(value == expected)
    return math.isclose(value, expected, rel_tol=NEAR)


def choice(
    name: str, answer: Any, right: str, wrong: Mapping[str, str]
) -> Check:
    """Check which of several words was chosen.

    Parameters
    ----------
    right : the right word.
    wrong : each other word -> the sentence that says why it is not that.

    Examples
    --------
    >>> wrong = {"permute": "permute only changes strides."}
    >>> choice("what copies", " Permute", "contiguous", wrong).what
    'permute only changes strides.'
    """
    options = sorted([right, *wrong])
    given = " ".join(answer.split()).lower() if isinstance(answer, str) else ""
    for option in options:
        if given == option.lower():
            return Check(name, option == right, wrong.get(option, ""))
    listed = ", ".join(map(repr, options))
    what = f"Answer with one of {listed}, not {_short(answer)}."
    return Check(name, False, what)


def array(
    name: str,
    answer: Any,
    expected: Any,
    bound: float = 0.0,
    called: str = "result",
) -> Check:
    """Check an array, a list or a tuple of numbers against an array.

    Parameters
    ----------
    expected : an array, numbers, or a tuple of arrays: then as many are needed.
    bound : the largest allowed difference; from `attention_lab.error_bound`.
    called : what the sentence calls it; letters at the end, as in "out_BHLD",
        name its axes. For a tuple one name each, with ", " between them.

    Examples
    --------
    >>> array("the strides", (4, 2), (4, 1), called="strides").what
    'strides differs at index (1,): 2, but 1 is expected; allowed is 0, and \
1 of 2 elements differ by more'
    """
    if _is_several(expected):
        try:
            given = list(answer)
        except TypeError:
            given = []
        if len(given) != len(expected):
            what = f"Return {called}: {len(expected)} arrays, not {len(given)}."
            return Check(name, False, what)
        parts = zip(given, expected, called.split(", "), strict=True)
        checks = [array(name, *pair, bound, part) for *pair, part in parts]
        return next((c for c in checks if not c.passed), checks[0])
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            check_same_as(
                _as_array(called, answer),
                _as_array("expected", expected),
                bound,
                called,
            )
    except (ShapeMismatch, WrongValues, ValueError) as error:
        return Check(name, False, _without_place(str(error)))
    return Check(name, True)


def _is_several(expected: Any) -> bool:
    return isinstance(expected, tuple) and all(
        hasattr(one, "shape") for one in expected
    )


def _without_place(sentence: str) -> str:
    """Say of a single number what it is, and not where."""
    before, mark, after = sentence.partition(" differs at (): ")
    return f"{before} is {after.split(';')[0]}" if mark else sentence


def _as_array(name: str, value: Any) -> np.ndarray:
    if isinstance(value, list | tuple | numbers.Real):
        value = np.asarray(value)
    return as_numbers(name, value)


def function(
    name: str,
    answer: Any,
    cases: Sequence[Case],
    reference: Callable[..., Any],
    *,
    bound: Callable[..., float] | float = 0.0,
    called: str = "result",
    wrong: Mapping[str, Callable[..., Any]] | None = None,
    refuse: Callable[[Any], str | None] | None = None,
) -> Check:
    """Check what a function returns, on several inputs, smallest first.

    Parameters
    ----------
    answer : the reader's function; called with the values of a case in order.
    cases : mappings from the names of the arguments to their values. Letters
        at the end of a name, as in "x_BLE", name the axes.
    reference : called in the same way; returns the expected result.
    bound : the largest allowed error, or a function of a case that returns it.
    called : as in `array`.
    wrong : a mistake -> what it computes. The key is the id of a known mistake
        or a sentence. It is named if it explains the results of every case.
    refuse : called with a result; returns a sentence if it is of a kind that
        the comparison would not notice, such as another dtype, or None.

    Raises
    ------
    ValueError
        If a key of `wrong` is one word and the id of no known mistake.

    Examples
    --------
    >>> cases = [{"x_L": np.arange(3.0)}]
    >>> check = function(
    ...     "values", np.cumsum, cases, np.flip, wrong={"It adds.": np.cumsum}
    ... )
    >>> check.what.split(";")[0], check.likely
    ('result differs at index (2,): 3, but 0 is expected', 'It adds.')
    """
    for mistake in wrong or {}:
        if " " not in mistake and mistake not in known_mistakes():
            raise ValueError(f"wrong names {mistake!r}, which is not known")
    if not callable(answer):
        what = f"Answer with a function, not {_short(answer)}."
        return Check(name, False, what)
    results = []
    first = None
    for case in cases:
        result, sentence = _call(answer, case)
        if sentence is None:
            allowed = bound(*case.values()) if callable(bound) else bound
            expected = reference(*_fresh(case).values())
            check = array(name, result, expected, allowed, called)
            sentence = None if check.passed else check.what
            if check.passed and refuse is not None:
                sentence = refuse(result)
            results.append((case, result, allowed))
        if sentence is not None and first is None:
            first = Check(name, False, sentence, _counterexample(case))
    if first is None:
        return Check(name, True)
    complete = len(results) == len(cases)
    mistake = _explains(results, wrong or {}) if complete else None
    return _named(first, mistake)


def _call(answer: Callable[..., Any], case: Case) -> tuple[Any, str | None]:
    """Return a function's result, or a sentence that says why there is none."""
    given = _fresh(case)
    try:
        result = answer(*given.values())
    except Exception as error:
        return None, said(error)
    for name, value in case.items():
        if _has_changed(value, given[name]):
            return None, f"It changed its argument `{name}`."
    return result, None


def said(error: Exception) -> str:
    """Say what the reader's code raised and where, leaving out our lines."""
    trace = error.__traceback__
    while trace and Path(trace.tb_frame.f_code.co_filename).parent == HERE:
        trace = trace.tb_next
    return f"{raised_in_words(error.with_traceback(trace))}."


def _fresh(case: Case) -> dict[str, Any]:
    return {name: copy.deepcopy(value) for name, value in case.items()}


def _has_changed(before: Any, after: Any) -> bool:
    if not hasattr(before, "shape"):
        return False
    before, after = as_numbers("before", before), as_numbers("after", after)
    return before.shape != after.shape or before.tobytes() != after.tobytes()


def _explains(
    results: Sequence[tuple[Case, Any, float]],
    wrong: Mapping[str, Callable[..., Any]],
) -> str | None:
    """Return the mistake that gives these results in every case."""
    for mistake, model in wrong.items():
        if all(
            _is_same(result, model(*_fresh(case).values()), allowed)
            for case, result, allowed in results
        ):
            return mistake
    return None


def _is_same(result: Any, modelled: Any, bound: float) -> bool:
    """Say whether a model of a mistake gives this result, NaN included."""
    if _is_several(modelled):
        return all(
            _is_same(one, other, bound)
            for one, other in zip(result, modelled, strict=False)
        )
    try:
        one = _as_array("result", result).astype(float)
        other = _as_array("model", modelled).astype(float)
    except ValueError:
        return False
    if one.shape != other.shape:
        return False
    with np.errstate(invalid="ignore"):
        near = np.abs(one - other) <= bound
    same = (one == other) | (np.isnan(one) & np.isnan(other))
    return bool((near | same).all())


def _named(check: Check, mistake: str | None) -> Check:
    if mistake is None:
        return check
    if mistake in known_mistakes():
        return replace(check, mistake=mistake)
    return replace(check, likely=mistake)


def _sizes(case: Case) -> dict[str, int]:
    """Return the sizes of a case: of the axes of its arrays, and its counts."""
    sizes: dict[str, int] = {}
    for name, value in case.items():
        letters = axis_letters(name)
        shape = tuple(getattr(value, "shape", ()))
        if isinstance(value, int) and not isinstance(value, bool):
            sizes[name] = value
        elif len(letters) == len(shape):
            sizes |= dict(zip(letters, map(int, shape), strict=True))
    return sizes


def _counterexample(case: Case) -> Counterexample:
    inputs = {
        name: value.tolist()
        for name, value in case.items()
        if hasattr(value, "tolist") and math.prod(value.shape) <= SHOWN
    }
    sizes = _sizes(case)
    # As text: a report goes through JSON, which has no tuples.
    options = {
        name: value if isinstance(value, bool | str) else _short(value)
        for name, value in case.items()
        if not hasattr(value, "shape") and name not in sizes
    }
    return Counterexample(sizes=sizes, options=options, inputs=inputs)


def _short(answer: Any) -> str:
    """Write an answer in a few letters."""
    try:
        text = " ".join(repr(answer).split())
    except Exception:
        text = f"a {type(answer).__name__}"
    return f"{text[:60]}…" if len(text) > 60 else text
