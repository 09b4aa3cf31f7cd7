"""Take a kernel apart into lines, and put lines together to a kernel again."""

import ast
import inspect
import io
import linecache
import re
import textwrap
import tokenize
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from attention_lab.gpu.kernel_source import closure_values
from attention_lab.source import plain_function

INDENT = "    "
#: The sub-goals of a kernel, by the phase that its comments number.
SUB_GOALS = {
    "": "who am I",
    "Load": "bring in",
    "Compute": "compute",
    "Store": "put back",
}
_PHASE = re.compile(r"#\s*\d\.\s*(Load|Compute|Store)")
_LAYOUT = (tokenize.NL, tokenize.INDENT, tokenize.DEDENT, tokenize.COMMENT)


@dataclass(frozen=True)
class Line:
    """One statement, or the head of one, with how deep it is indented.

    `level` counts from the kernel's body, which is 0. `goal` is the sub-goal
    that it serves in the kernel it comes from.
    """

    code: str
    level: int
    goal: str = ""

    def __str__(self) -> str:
        return f"{INDENT * (self.level + 1)}{self.code}"


def line_from_text(text: str) -> Line:
    """Read a line as it stands in a kernel's body: four spaces are a level.

    Examples
    --------
    >>> line_from_text("    cuda.syncthreads()").level
    1
    """
    code = text.strip()
    return Line(code, (len(text) - len(text.lstrip())) // len(INDENT))


def head_of(kernel: Any) -> str:
    """Return the ``def`` of a kernel in one line, without decorators."""
    definition = _definition(kernel)
    definition.decorator_list, definition.body = [], [ast.Pass()]
    return ast.unparse(definition).splitlines()[0]


def lines_of(kernel: Any) -> list[Line]:
    """Return the lines of a kernel's body, comments and docstring left out.

    A statement that goes over several lines becomes one line.
    """
    text = _text(kernel)
    definition = _definition(kernel)
    body = definition.body[ast.get_docstring(definition) is not None :]
    if not body:
        return []
    first = body[0].lineno
    found = []
    parts: list[str] = []
    depth, goal = 0, ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        depth += token.type == tokenize.INDENT
        depth -= token.type == tokenize.DEDENT
        phase = _PHASE.match(token.string)
        if token.type == tokenize.COMMENT and phase:
            goal = phase[1]
        if token.start[0] < first or token.type in _LAYOUT:
            continue
        if token.type == tokenize.NEWLINE:
            code = _joined(parts)
            found.append(Line(code, depth - 1, SUB_GOALS[goal]))
            parts = []
        elif token.type != tokenize.ENDMARKER:
            gap = _gap(token, text.splitlines()) if parts else ""
            parts.append(gap + token.string)
    return found


def kernel_from_lines(
    kernel: Any, lines: Sequence[Line], name: str
) -> Callable[..., None]:
    """Return a function like a kernel, with another body.

    The names outside mean what they mean in the kernel. The source is known
    to `inspect`, so that the recorder can read it; line 1 is the ``def``.

    Parameters
    ----------
    name : what stands for the file in messages.

    Raises
    ------
    SyntaxError
        If the lines are no Python in this order.
    """
    original = plain_function(kernel)
    text = "\n".join([head_of(kernel), *map(str, lines)]) + "\n"
    place = f"<{name}>"
    namespace = {**original.__globals__, **closure_values(original)}
    exec(compile(text, place, "exec"), namespace)
    linecache.cache[place] = (len(text), None, text.splitlines(True), place)
    return namespace[original.__name__]


def _text(kernel: Any) -> str:
    return textwrap.dedent(inspect.getsource(plain_function(kernel)))


def _definition(kernel: Any) -> ast.FunctionDef:
    definition = ast.parse(_text(kernel)).body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise ValueError(
            f"{definition!r} is no kernel: its lines cannot be taken"
        )
    return definition


def _gap(token: tokenize.TokenInfo, rows: list[str]) -> str:
    """Return the spaces before a token; one for a break inside brackets."""
    row, column = token.start
    before = rows[row - 1][:column]
    if not before.strip():
        return " "
    return before[len(before.rstrip()) :]


def _joined(parts: list[str]) -> str:
    code = "".join(parts)
    code = re.sub(r"([(\[]) +", r"\1", code)
    return re.sub(r",? +([)\]])", r"\1", code)
