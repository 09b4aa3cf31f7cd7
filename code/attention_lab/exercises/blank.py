"""Is an answer still blank?

On a page the reader's function has gaps, written ``...``; a variable is
`None`. Both are no answer yet: neither right nor wrong.
"""

import ast
import inspect
import textwrap
from typing import Any

from attention_lab.source import plain_function


def is_blank(answer: Any) -> bool:
    """Say whether an answer has not been given, or not yet completely.

    Blank are `None`, ``...``, text without letters and numbers, a collection
    with something blank in it, and a function, kernel or class whose source
    has a gap: ``...`` anywhere but in a subscript, where it means axes.

    Examples
    --------
    >>> is_blank(None), is_blank(0), is_blank((2, ...))
    (True, False, True)
    """
    if answer is None or answer is ...:
        return True
    if isinstance(answer, str):
        return not any(letter.isalnum() for letter in answer)
    if isinstance(answer, dict):
        answer = list(answer.values())
    if isinstance(answer, list | tuple):
        return any(map(is_blank, answer))
    return has_gap(answer)


def has_gap(function: Any) -> bool:
    """Say whether the source of a function, kernel or class has a gap.

    False where there is no source, as for a function written in C.
    """
    function = plain_function(function)
    if not (inspect.isfunction(function) or inspect.isclass(function)):
        return False
    try:
        text = textwrap.dedent(inspect.getsource(function))
        tree = ast.parse(text.strip())
    except (OSError, TypeError, SyntaxError):
        # A lambda's source is the line it stands in, which may be no statement.
        return False
    if getattr(function, "__name__", "") == "<lambda>":
        found = [n for n in ast.walk(tree) if isinstance(n, ast.Lambda)]
        return bool(found) and all(map(_gap_in, found))
    return _gap_in(tree)


def _gap_in(tree: ast.AST) -> bool:
    axes: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            inside = node.slice
            axes.add(id(inside))
            axes |= set(map(id, getattr(inside, "elts", ())))
    return any(
        isinstance(node, ast.Constant)
        and node.value is ...
        and id(node) not in axes
        for node in ast.walk(tree)
    )
