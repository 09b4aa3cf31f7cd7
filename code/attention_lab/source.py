"""Show the library's own code on a page, so that shown and tested are one."""

import ast
import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def plain_function(function: Any) -> Callable:
    """Return the Python function inside a compiled kernel, or the function.

    The recorder and numba keep it as `py_func`, numba's simulator as `fn`.
    """
    for attribute in ("py_func", "fn"):
        inner = getattr(function, attribute, None)
        if inspect.isfunction(inner):
            return inner
    return inspect.unwrap(function)


class Source:
    """A function's source code; shows as highlighted Python in a notebook."""

    def __init__(self, function: Any, whole: bool = False) -> None:
        lines = inspect.getsource(plain_function(function))
        code = textwrap.dedent(lines).rstrip()
        self.code = code if whole else shorten_docstring(code)

    def __repr__(self) -> str:
        return self.code

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.code}\n```"


def shorten_docstring(code: str) -> str:
    """Keep the first line of a definition's docstring, and all of its code."""
    definition = ast.parse(code).body[0]
    docstring = ast.get_docstring(definition)
    if docstring is None or "\n" not in docstring:
        return code
    node = definition.body[0]
    lines = code.splitlines()
    first = " " * node.col_offset + f'"""{docstring.splitlines()[0]}"""'
    lines[node.lineno - 1 : node.end_lineno] = [first]
    return "\n".join(lines)


def show_source(function: Any, *, whole: bool = False) -> Source:
    """Return the source of a function, class or kernel for display.

    Parameters
    ----------
    function : a function, a class, or a kernel.
    whole : also show the docstring after its first line.

    Examples
    --------
    >>> from attention_lab.axes import axis_letters
    >>> print(show_source(axis_letters))  # doctest: +ELLIPSIS
    def axis_letters(name: str) -> str:
        ...
    """
    return Source(function, whole)
