"""Arithmetic on bounds of integers: what an index can possibly be.

The bounds decide where a check of an index may be left out, so they may be
too wide but never too narrow.
"""

import ast
import math

INFINITE = (-math.inf, math.inf)


def combine(op, a, b):
    """Return the bounds of ``x op y`` for x in `a` and y in `b`.

    Parameters
    ----------
    op : an operator node of Python's syntax tree
    a, b : (low, high)
    """
    method = _RULES.get(type(op))
    return method(a, b) if method else INFINITE


def negate(a, limits):
    """Return the bounds of ``-x``, calculated in a type with these limits.

    The least number is its own negative, and an unsigned one wraps.
    """
    return (-a[1], -a[0]) if a[0] > limits[0] else limits


def _add(a, b):
    return a[0] + b[0], a[1] + b[1]


def _subtract(a, b):
    return a[0] - b[1], a[1] - b[0]


def _product(x, y):
    # Zero times anything is zero here: infinity only means "unknown".
    return 0 if x == 0 or y == 0 else x * y


def _multiply(a, b):
    ends = [_product(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _floor_divide(a, b):
    if b[0] < 1:
        return INFINITE
    ends = [_quotient(x, y) for x in a for y in b]
    return min(ends), max(ends)


def _quotient(x, y):
    if math.isinf(x):
        return x
    if math.isinf(y):
        return -1 if x < 0 else 0
    return x // y


def _modulo(a, b):
    if b[0] < 1:
        return INFINITE
    if a[0] >= 0 and a[1] < b[0]:
        return a
    if a[0] >= 0:
        return 0, min(a[1], b[1] - 1)
    return 0, b[1] - 1


def _and(a, b):
    if a[0] >= 0 and b[0] >= 0:
        return 0, min(a[1], b[1])
    for one in (a, b):
        if one[0] >= 0:
            return 0, one[1]
    return INFINITE


def _or(a, b):
    if a[0] < 0 or b[0] < 0:
        return INFINITE
    top = max(a[1], b[1])
    if math.isinf(top):
        return 0, math.inf
    return 0, 2 ** int(top).bit_length() - 1


def _left(a, b):
    if b[0] < 0 or b[1] > 62:
        return INFINITE
    return _multiply(a, (2 ** b[0], 2 ** b[1]))


def _right(a, b):
    if b[0] < 0 or b[1] > 62:
        return INFINITE
    return _floor_divide(a, (2 ** b[0], 2 ** b[1]))


_RULES = {
    ast.Add: _add,
    ast.Sub: _subtract,
    ast.Mult: _multiply,
    ast.FloorDiv: _floor_divide,
    ast.Mod: _modulo,
    ast.BitAnd: _and,
    ast.BitOr: _or,
    ast.BitXor: _or,
    ast.LShift: _left,
    ast.RShift: _right,
}
