"""A Parsons problem: the lines of a kernel, to put in order.

The kernel that a reader puts together is recorded and compared with the
reference. So every order that works is right, and of one that does not the
reader hears what the recorder found: a syntax error, a hazard, a wrong value.

Two choices. The sub-goals are given, because given labels help more than labels
that a reader has to find (Morrison, Margulieux, Ericson and Guzdial 2016,
"Subgoals Help Students Solve Parsons Problems"). The indentation is given with
each line, so that the answer is a row of letters; where a line belongs is the
question, and a wrong place still shows as a syntax error or a wrong value.
"""

import html
import random
import re
import string
import zlib
from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

from attention_lab.exercises.exercise import Exercise
from attention_lab.exercises.kernels import examine_kernel
from attention_lab.exercises.lines import (
    Line,
    head_of,
    kernel_from_lines,
    line_from_text,
    lines_of,
)
from attention_lab.verify.report import Check, Report

#: What helps where the lines are no Python.
NO_PYTHON = (
    "A deeper level begins after a line that ends with a colon, only there.",
    "Sort the lines by level first: which line opens which level?",
)
_CELL = "text-align: left; vertical-align: top; padding: 0.1em 0.8em 0.1em 0"


class Parsons(Exercise):
    """Lines of a kernel to put in order; shows them with letters.

    Parameters
    ----------
    id : as for an `Exercise`.
    kernel : a kernel that works.
    launch, reference : as for `verify_kernel`.
    given : how many of its first lines stay where they are.
    distractors : lines that are not needed, as text; four spaces at the start
        are one level inside the kernel's body.
    hints : as for an `Exercise`; for "letters", "is Python" and the checks of
        `verify_kernel`.
    **options : of `verify_kernel`: sizes, error_bound, wrong_answers.

    Raises
    ------
    ValueError
        If there are fewer than 2 lines to order, or more than 26.

    Examples
    --------
    >>> import numpy as np
    >>> from attention_lab.gpu import cuda
    >>> from attention_lab.verify import Launch
    >>> @cuda.jit
    ... def double(out, x):
    ...     i = cuda.grid(1)
    ...     if i < out.size:
    ...         out[i] = x[i] + x[i]
    >>> def launch(n):
    ...     x = np.arange(n, dtype=np.float32)
    ...     return Launch(-(-n // 4), 4, (np.empty_like(x), x))
    >>> lines = Parsons("start.double", double, launch, lambda x: 2 * x)
    >>> lines.check("A B C").passed, lines.check("B C A").passed
    (False, True)
    """

    def __init__(
        self,
        id: str,
        kernel: Any,
        launch: Callable[..., Any],
        reference: Callable[..., Any],
        *,
        given: int = 0,
        distractors: Iterable[str] = (),
        hints: dict[str, tuple[str, str]] | None = None,
        **options: Any,
    ) -> None:
        hints = {"is Python": NO_PYTHON, **(hints or {})}
        super().__init__(id, self._examine, hints=hints)
        self.kernel = kernel
        self.launch, self.reference = launch, reference
        self.options = options
        lines = lines_of(kernel)
        self.given, self.ordered = lines[:given], lines[given:]
        extra = [line_from_text(text) for text in distractors]
        self.has_distractors = bool(extra)
        count = len(self.ordered) + len(extra)
        if not 2 <= count <= len(string.ascii_uppercase):
            raise ValueError(
                f"{id}: 2 to 26 lines can be put in order, not {count}"
            )
        self.lines = dict(
            zip(
                string.ascii_uppercase,
                shuffled([*self.ordered, *extra], id),
                strict=False,
            )
        )

    @property
    def goals(self) -> list[tuple[str, int]]:
        """Return the sub-goals in order, and how many lines each has."""
        groups = groupby(self.ordered, key=lambda line: line.goal)
        return [(goal, len(list(lines))) for goal, lines in groups]

    def _examine(self, answer: Any) -> Report | list[Check]:
        letters, problem = read_letters(answer, self.lines)
        if problem:
            return [Check("letters", False, problem)]
        chosen = [self.lines[letter] for letter in letters]
        name = f"your order of {self.id}"
        try:
            kernel = kernel_from_lines(
                self.kernel, [*self.given, *chosen], name
            )
        except SyntaxError as error:
            return [Check("is Python", False, self._explain(error, letters))]
        return examine_kernel(
            kernel, self.launch, self.reference, **self.options
        )

    def _explain(self, error: SyntaxError, letters: Sequence[str]) -> str:
        """Say which letter Python stumbles over."""
        position = (error.lineno or 2) - 2 - len(self.given)
        place = ""
        if 0 <= position < len(letters):
            letter = letters[position]
            place = f"At {letter}, `{self.lines[letter].code}`: "
        return f"{place}Python says “{error.msg}”."

    def _intro(self) -> list[str]:
        goals = ", ".join(
            f"{goal} ({count} {'line' if count == 1 else 'lines'})"
            for goal, count in self.goals
        )
        intro = [
            "Put these lines in order, as letters. The level says how deep a "
            "line is indented; you need not indent anything.",
            f"One order that works has: {goals}.",
        ]
        if self.has_distractors:
            intro.append("Not every line is needed.")
        return intro

    @property
    def frame(self) -> str:
        """Return the part of the kernel that is given."""
        head = f"@cuda.jit\n{head_of(self.kernel)}"
        return "\n".join([head, *map(str, self.given), "    # your lines"])

    def __repr__(self) -> str:
        rows = [
            f"{letter}  level {line.level}  {'    ' * line.level}{line.code}"
            for letter, line in self.lines.items()
        ]
        return "\n".join([*self._intro(), "", self.frame, "", *rows])

    def _repr_html_(self) -> str:
        """Show the lines as a table, which needs no style of the site."""
        write = html.escape
        rows = "".join(
            f'<tr><th scope="row" style="{_CELL}">{letter}</th>'
            f'<td style="{_CELL}">{line.level}</td>'
            f'<td style="{_CELL}"><code style="white-space: pre">'
            f"{write('    ' * line.level + line.code)}</code></td></tr>"
            for letter, line in self.lines.items()
        )
        heads = "".join(
            f'<th scope="col" style="{_CELL}">{head}</th>'
            for head in ("Letter", "Level", "Line")
        )
        intro = "".join(f"<p>{write(text)}</p>" for text in self._intro())
        return (
            f'<section class="parsons">{intro}'
            f'<pre tabindex="0"><code>{write(self.frame)}</code></pre>'
            '<div style="overflow-x: auto" tabindex="0" role="region" '
            f'aria-label="Lines of {write(self.id)}"><table>'
            f"<thead><tr>{heads}</tr></thead><tbody>{rows}</tbody>"
            "</table></div></section>"
        )


def shuffled(lines: Sequence[Line], id: str) -> list[Line]:
    """Return the lines in an order that is the same in every run.

    It is not the order that they are given in.

    Raises
    ------
    ValueError
        If all lines are alike: there is nothing to order.
    """
    own = [line.code for line in lines]
    if len(set(own)) == 1:
        raise ValueError(f"{id}: all lines are alike, {own[0]!r}")
    seed = zlib.crc32(id.encode())
    made = list(lines)
    while [line.code for line in made] == own:
        made = random.Random(seed).sample(list(lines), len(lines))
        seed += 1
    return made


def read_letters(answer: Any, lines: dict[str, Line]) -> tuple[list[str], str]:
    """Return the letters of an answer, and what is wrong with them.

    Examples
    --------
    >>> lines = {"A": Line("x = 1", 0), "B": Line("y = 1", 0)}
    >>> read_letters("b, a", lines)
    (['B', 'A'], '')
    >>> read_letters("A A", lines)[1]
    'A is there twice; every line can be used once.'
    """
    if isinstance(answer, list | tuple):
        answer = " ".join(map(str, answer))
    if not isinstance(answer, str):
        return [], f"Answer with letters, such as 'B A', not {answer!r}."
    letters = re.findall(r"\w", answer.upper())
    for letter in letters:
        if letter not in lines:
            return [], f"There is no line {letter}: A to {max(lines)} are."
        if letters.count(letter) > 1:
            return (
                [],
                f"{letter} is there twice; every line can be used once.",
            )
    return letters, ""
