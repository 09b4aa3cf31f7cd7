"""The small language that kernels are reduced to before they run.

It is Python's own syntax tree with three additions and many absences:
no calls of the user's functions (they are inlined), no warp operation or
barrier inside an expression (each is a statement of its own), no names
from outside (they are constants by then).
"""

import ast


class Primitive(ast.expr):
    """An operation that the machine below Python provides.

    Attributes
    ----------
    op : its name, such as ``"grid"``, ``"math.exp"`` or ``"syncthreads"``
    args : its arguments, expressions of this language
    detail : anything else that is fixed before the launch
    """

    _fields = ("args",)


class Once(ast.stmt):
    """Statements that run once, and that ``break`` may leave early.

    An inlined function with several ``return`` becomes one of these.
    """

    _fields = ("body",)


class LocalFunction:
    """A function defined inside a kernel.

    Attributes
    ----------
    definition : its ``def`` statement
    frame : the frame it was made in
    defaults : the values of its last parameters, kept when it was made
    """

    def __init__(self, definition, frame, defaults):
        self.definition = definition
        self.frame = frame
        self.defaults = defaults


def primitive(op, args, place, detail=None):
    """Make a `Primitive`."""
    node = Primitive(args=list(args))
    node.op = op
    node.detail = detail
    node.place = place
    return node


def constant(value, place):
    """Make a constant of any Python value."""
    node = ast.Constant(value=value)
    node.place = place
    return node


def name(identifier, place, store=False):
    """Make a variable."""
    node = ast.Name(id=identifier, ctx=ast.Store() if store else ast.Load())
    node.place = place
    return node


def assign(identifier, value, place):
    """Make ``identifier = value``."""
    node = ast.Assign(targets=[name(identifier, place, True)], value=value)
    node.place = place
    return node


def placed(node, place):
    """Give a new node its place, and return it."""
    node.place = place
    return node


def element(base, index, source, context):
    """Make ``base[index]``, which stands where `source` stood."""
    node = ast.Subscript(value=base, slice=index, ctx=context)
    node.place = source.place
    node.column = source.column
    return node


def stops(node):
    """Say whether a statement stops the thread, as ``raise`` does."""
    value = getattr(node, "value", None)
    return isinstance(value, Primitive) and value.op == "stopped"
