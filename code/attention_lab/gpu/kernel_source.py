"""Find the source of a kernel and the values its names stand for."""

import ast
import builtins
import hashlib
import inspect
import textwrap
from dataclasses import dataclass
from pathlib import Path

from attention_lab.gpu.errors import (
    KernelError,
    UnsupportedConstruct,
    WrongArgument,
)


@dataclass(frozen=True)
class Place:
    """A line of source: what a message points at.

    Attributes
    ----------
    file : path of the source file, or the name of a notebook cell
    function : name of the function that the line belongs to
    line : line number in that file, counted from 1
    text : the line itself, without indentation
    """

    file: str
    function: str
    line: int
    text: str = ""

    def __str__(self):
        """Name the line the way a message does."""
        quoted = f" `{self.text}`" if self.text else ""
        return f"{self.function}, line {self.line}{quoted}"


class Missing:
    """A name that is neither in the closure, nor global, nor built in."""


def python_function(kernel):
    """Return the plain Python function inside a decorated kernel.

    Understands this package's kernels and those of every Numba: the CPU
    and CUDA dispatchers keep the function in ``py_func``, the simulator
    in ``fn``.
    """
    for attribute in ("py_func", "fn"):
        inner = getattr(kernel, attribute, None)
        if inspect.isfunction(inner):
            return inner
    if inspect.isfunction(kernel):
        return kernel
    raise WrongArgument(
        f"{kernel!r} is not a kernel: pass a function, or one decorated "
        "with @cuda.jit"
    )


def kernel_function(kernel):
    """Return the Python function inside a kernel that is to be launched.

    Raises
    ------
    WrongArgument
        If it is a device function, a launch, or no function at all.
    """
    launched = getattr(kernel, "kernel", getattr(kernel, "dispatcher", None))
    if launched is not None and not inspect.isfunction(kernel):
        name = getattr(launched, "__name__", "kernel")
        raise WrongArgument(
            f"this is `{name}` with its grid and block already: pass "
            f"`{name}` itself, and the grid and the block after it"
        )
    function = python_function(kernel)
    if is_device_only(kernel):
        raise WrongArgument(
            f"`{function.__name__}` is a device function: call it from a "
            "kernel, or decorate it with @cuda.jit to launch it"
        )
    return function


def is_device_only(kernel):
    """Say whether this came from ``cuda.jit(device=True)``."""
    options = getattr(kernel, "targetoptions", None)
    declared = getattr(kernel, "_device", False) is True
    return declared or bool(isinstance(options, dict) and options.get("device"))


class KernelSource:
    """One function, parsed, with every node knowing its place.

    Parameters
    ----------
    function : a plain Python function
    """

    def __init__(self, function):
        self.function = function
        self.name = function.__name__
        if self.name == "<lambda>":
            raise WrongArgument(
                "a lambda cannot be a kernel: write it as a function with "
                "`def`, and store results into an array"
            )
        try:
            self.file = inspect.getsourcefile(function) or "<unknown>"
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError) as error:
            raise KernelError(
                f"the source of `{self.name}` cannot be read. Define it in a "
                "file or a notebook cell, not with exec() or in a plain "
                "`python` prompt"
            ) from error
        self.text = textwrap.dedent("".join(lines))
        self.sha256 = hashlib.sha256(self.text.encode()).hexdigest()
        tree = parsed(self.text)
        if not isinstance(tree, ast.FunctionDef):
            raise WrongArgument(
                f"`{self.name}` is not defined by a `def` statement: write "
                "kernels as ordinary functions"
            )
        self.definition = tree
        mark_places(tree, self.file, self.name, first, self.text)
        self._closure = closure_values(function)

    def lookup(self, name):
        """Return what a name outside the function's own means, or Missing."""
        if name in self._closure:
            return self._closure[name]
        if name in self.function.__globals__:
            return self.function.__globals__[name]
        return getattr(builtins, name, Missing)


def parsed(text):
    """Return the first statement of a source text, or None."""
    try:
        return ast.parse(text).body[0]
    except SyntaxError:
        return None


def mark_places(tree, file, function, first_line, text):
    """Give every node of `tree` the attributes ``place`` and ``column``.

    The column counts from 1 in the place's text, which has no indentation.
    """
    lines = text.splitlines()
    short = Path(file).name if file.endswith(".py") else file
    made = {}
    line = 1
    for node in ast.walk(tree):
        line = getattr(node, "lineno", line)
        if line not in made:
            made[line] = Place(
                short, function, line + first_line - 1, lines[line - 1].strip()
            )
        node.place = made[line]
        indentation = len(lines[line - 1]) - len(lines[line - 1].lstrip())
        node.column = getattr(node, "col_offset", 0) - indentation + 1


def closure_values(function):
    """Return the values of the free variables of a function, by name."""
    values = {}
    for name, cell in zip(
        function.__code__.co_freevars, function.__closure__ or (), strict=True
    ):
        try:
            values[name] = cell.cell_contents
        except ValueError as error:
            raise UnsupportedConstruct(
                f"the variable `{name}` of the enclosing function has no "
                "value yet",
                Place("", function.__name__, function.__code__.co_firstlineno),
            ) from error
    return values
