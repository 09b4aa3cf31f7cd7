"""An exercise: it checks an answer, says what is wrong, and never raises."""

import html
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from attention_lab.exercises.blank import is_blank
from attention_lab.source import plain_function
from attention_lab.verify.hints import with_growing_hints
from attention_lab.verify.isolation.isolated import Progress, isolated_report
from attention_lab.verify.report import Check, Report

KIND = "exercise"
#: How the verifier's note begins where it could not copy the process. It is
#: said once per report there; a page with five exercises would repeat it.
RAN_HERE = "It ran inside this process"


class Feedback(Report):
    """What an exercise says about one answer; shows in a notebook.

    A report without any check means that there is no answer yet: then `blank`
    is true and `passed` is not.
    """

    @property
    def blank(self) -> bool:
        """Whether nothing has been answered yet."""
        return not self.checks

    def headline(self) -> str:
        """Return the one line that says how it went."""
        if self.blank:
            return f"{self.subject}: not answered yet"
        return super().headline()

    def _repr_html_(self) -> str:
        """Show a report; a blank one is neither right nor wrong."""
        if not self.blank:
            return super()._repr_html_()
        line = html.escape(self.headline())
        return (
            f'<section class="verify-report verify-blank"><p>{line}</p>'
            "</section>"
        )


class Exercise:
    """One exercise of a chapter.

    Parameters
    ----------
    id : the chapter's stem and the exercise's name: "multi_head.split".
    examine : called with an answer that is not blank; returns a `Report`, or
        its checks. What it raises becomes a failed check.
    hints : name of a check -> (hint, bigger hint), for a failure that is no
        known mistake of the museum. The second failure in a row of the same
        check gets the bigger one. No hint is the solution.
    seconds : limit of time for one answer.

    Notes
    -----
    An answer that can be called is checked in a copy of the process
    (`isolated_report`): it may loop for ever, exit or crash, and the page goes
    on. The copy takes about a tenth of a second. A limit inside the process
    would be cheaper, but could not stop compiled code. Other answers are data
    and are checked in place.

    Examples
    --------
    >>> def examine(answer):
    ...     return [Check("the sum", answer == 4, "It is not the sum.")]
    >>> two_and_two = Exercise("start.two_and_two", examine)
    >>> two_and_two.check(None)
    start.two_and_two: not answered yet
    >>> two_and_two.check(4).passed
    True
    """

    def __init__(
        self,
        id: str,
        examine: Callable[[Any], Report | Iterable[Check]],
        *,
        hints: Mapping[str, tuple[str, str]] | None = None,
        seconds: float = 20.0,
    ) -> None:
        self.id = id
        self.examine = examine
        self.hints = dict(hints or {})
        self.seconds = seconds

    def __repr__(self) -> str:
        return f"Exercise {self.id}"

    def check(self, answer: Any = None) -> Feedback:
        """Check an answer; blank ones are neither right nor wrong."""
        if _safely(is_blank, answer):
            return Feedback(self.id, KIND, ())
        report = isolated_report(
            lambda progress: self._examined(answer, progress),
            subject=self.id,
            kind=KIND,
            seconds=self.seconds,
            isolate=_safely(_can_be_called, answer),
        )
        report = with_growing_hints(report, self.id, self.hints)
        notes = [n for n in report.notes if not n.startswith(RAN_HERE)]
        return Feedback(
            self.id, KIND, report.checks, report.not_tested, tuple(notes)
        )

    def _examined(self, answer: Any, progress: Progress) -> Report:
        progress.starts("the answer can be used")
        found = self.examine(answer)
        if not isinstance(found, Report):
            found = Report(self.id, KIND, tuple(found))
        if not found.checks:
            raise AssertionError(f"{self.id}: no check looked at the answer")
        return replace(found, subject=self.id, kind=KIND)


def _safely(question: Callable[[Any], bool], answer: Any) -> bool:
    """Ask about an answer; of one that cannot even be looked at, say no."""
    try:
        return question(answer)
    except Exception:
        return False


def _can_be_called(answer: Any) -> bool:
    if isinstance(answer, list | tuple):
        return any(map(_can_be_called, answer))
    return callable(answer) or callable(plain_function(answer))
