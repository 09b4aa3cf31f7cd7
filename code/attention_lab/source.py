"""Show the library's own code on a page, so that shown and tested are one."""

import inspect
import textwrap
from collections.abc import Callable
from typing import Any


def plain_function(function: Any) -> Callable:
    """Return the Python function inside a compiled kernel, or the function.

    numba keeps it as `py_func`; its simulator as `fn`.
    """
    for attribute in ("py_func", "fn"):
        inner = getattr(function, attribute, None)
        if inspect.isfunction(inner):
            return inner
    return inspect.unwrap(function)


class Source:
    """A function's source code; shows as highlighted Python in a notebook."""

    def __init__(self, function: Any) -> None:
        code = inspect.getsource(plain_function(function))
        self.code = textwrap.dedent(code).rstrip()

    def __repr__(self) -> str:
        return self.code

    def _repr_markdown_(self) -> str:
        return f"```python\n{self.code}\n```"


def show_source(function: Any) -> Source:
    """Return the source of a function, class or kernel for display.

    Examples
    --------
    >>> from attention_lab.axes import axis_letters
    >>> print(show_source(axis_letters))  # doctest: +ELLIPSIS
    def axis_letters(name: str) -> str:
        ...
    """
    return Source(function)
