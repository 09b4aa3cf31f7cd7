"""Numba's typing rules, expression by expression."""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast
import math
from itertools import pairwise

import numpy as np

from attention_lab.gpu import bounds, ir
from attention_lab.gpu.errors import UnsupportedConstruct
from attention_lab.gpu.primitive_rules import PrimitiveRules
from attention_lab.gpu.subscript_rules import SubscriptRules
from attention_lab.gpu.values import (
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT64,
    LONGEST,
    UINT16,
    UINT64,
    Array,
    Choice,
    Group,
    Number,
    Span,
    describe,
    exactly,
    integer_range,
    join,
    number,
    options_of,
)

SINGLE = (FLOAT16, FLOAT32)
BITWISE = (ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift)


class NotYetKnown(Exception):  # noqa: N818 - a signal, not an error
    """A variable has no value yet in this round over the statements."""

    def __init__(self, node):
        super().__init__(node.id)
        self.node = node


class ExpressionRules(SubscriptRules, PrimitiveRules):
    """The half of the inference that looks at expressions.

    Parameters
    ----------
    block : sizes of a block, which bound the thread indices
    """

    def __init__(self, block):
        self.block = block
        self.variables = {}
        self.widening = False
        self.annotating = False
        self.must_resolve = False
        self.notes = {}
        self.has_single = False
        self.allocations = {}
        self.allocation_places = {}
        self.partings = 0  # how often threads may go different ways so far

    def note(self, kind, place, sentence):
        """Keep one note per kind and line."""
        self.notes.setdefault((kind, place), sentence)

    def refuse(self, what, node, advice=""):
        """Make the error for something that is not handled."""
        return UnsupportedConstruct(what, node.place, advice)

    def see(self, node):
        """Return what is known about an expression."""
        value = getattr(self, f"see_{type(node).__name__}")(node)
        if self.annotating:
            node.known = value
            self.has_single |= getattr(value, "dtype", None) in SINGLE
        return value

    def scalar(self, node):
        """Return what is known about an expression that must be a number."""
        value = self.see(node)
        if not isinstance(value, Number):
            raise self.refuse(f"{describe(value)} where a number goes", node)
        return value

    def condition(self, node):
        """Return whether a condition varies between threads of a block."""
        value = self.see(node)
        if isinstance(value, Group):
            return False  # true unless it is empty, as in Python
        if not isinstance(value, Number):
            raise self.refuse(f"{describe(value)} where a number goes", node)
        return value.varies

    def decided(self, node):
        """Return the truth of ``x is None``, which types decide, or None.

        Numba leaves out the branch that is not taken; so do we.
        """
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.decided(node.operand)
            return None if inner is None else not inner
        if isinstance(node, ir.Primitive) and node.op == "is_none":
            self.must_resolve = True
            return self.see(node).low == 1
        return None

    def integer(self, node):
        """Return what is known about an expression that must be whole."""
        value = self.scalar(node)
        if value.is_float:
            what = "a floating-point number where a whole number goes"
            raise self.refuse(what, node, "Use // instead of /, or int(...).")
        return value

    @staticmethod
    def made(dtype, low, high, varies, why=""):
        """Make an integer, forgetting bounds that overflow its type."""
        known = number(dtype, varies)
        if math.isnan(low) or math.isnan(high):
            return known
        limits = (0, 2**64 - 1) if known.dtype == UINT64 else (-(2**63), 2**63)
        fits = limits[0] <= low and high < limits[1] + 1
        if not fits and not (math.isinf(low) or math.isinf(high)):
            return known
        if known.dtype.kind == "u" and low < 0:
            return known
        return Number(known.dtype, low, high, varies, why)

    # -- leaves ---------------------------------------------------------

    def see_Constant(self, node):
        return exactly(node.value)

    def see_Name(self, node):
        if node.id not in self.variables:
            # It is only set later in a loop: the next round will know it.
            raise NotYetKnown(node)
        return self.variables[node.id]

    def see_Tuple(self, node):
        items = tuple(self.see(item) for item in node.elts)
        for item in items:
            if isinstance(item, (Array, Choice)):
                raise self.refuse(
                    f"a tuple that holds {describe(item)}",
                    node,
                    "Give each array a name of its own.",
                )
        return Group(items)

    def over(self, value, rule):
        """Apply a rule to every array that a value may be."""
        result = None
        for option in options_of(value):
            result = join(result, rule(option))
        return result

    def see_Attribute(self, node):
        base = self.see(node.value)
        return self.over(base, lambda one: self.attribute(one, node))

    def attribute(self, base, node):
        """Return what is known about an attribute of one value."""
        if isinstance(base, Array):
            if node.attr == "shape":
                return Group(tuple(self.size(base, k) for k in base.free))
            if node.attr == "size":
                return number(INT64, low=0, high=LONGEST)
            if node.attr == "ndim":
                return exactly(len(base.free))
            if node.attr == "strides":
                return Group(tuple(number(INT64) for _ in base.free))
            if node.attr == "itemsize":
                return exactly(base.dtype.itemsize)
            if node.attr == "nbytes":
                return number(INT64, low=0, high=LONGEST * 8)
        raise self.refuse(f"`.{node.attr}` of {describe(base)}", node)

    @staticmethod
    def size(array, axis):
        """Return what is known about the length of one axis."""
        view = array.axes[axis]
        if isinstance(view, Span):
            return view.length
        if array.shape[axis] is not None:
            return exactly(array.shape[axis])
        return number(INT64, low=0, high=LONGEST)

    # -- operators ------------------------------------------------------

    def see_BinOp(self, node):
        if isinstance(node.op, ast.Add):
            both = [self.see(side) for side in (node.left, node.right)]
            if all(isinstance(side, Group) for side in both):
                return Group(both[0].items + both[1].items)
        left, right = self.scalar(node.left), self.scalar(node.right)
        varies = left.varies or right.varies
        dtype = binary_dtype(node.op, left, right)
        if dtype.kind == "f":
            if isinstance(node.op, BITWISE):
                raise self.refuse(
                    "a bit operation on floats",
                    node,
                    "Convert them with int(...) first.",
                )
            why = left.why or right.why
            if dtype == FLOAT64 and not why:
                given = left.dtype, right.dtype
                for one in (left, right):
                    if not one.is_float and FLOAT64 not in given:
                        why = f"the {one.dtype} operand"
            result = Number(dtype, varies=varies, why=why)
            self.check_promotion(node, left, right, result)
            return result
        self.check_shift(node, right)
        a, b = (left.low, left.high), (right.low, right.high)
        low, high = bounds.combine(node.op, a, b)
        if dtype == BOOL:
            return Number(BOOL, 0, 1, varies)
        return self.made(dtype, low, high, varies)

    def check_shift(self, node, count):
        """Note a shift that moves every bit out, or goes backwards."""
        shifts = isinstance(node.op, (ast.LShift, ast.RShift))
        if self.annotating and shifts and (count.low > 63 or count.high < 0):
            self.note(
                "undefined-shift",
                node.place,
                f"{node.place}: a shift of 64 bits goes from 0 to 63. A GPU "
                "may give anything beyond; here all bits move out. Shift less.",
            )

    def check_promotion(self, node, left, right, result):
        """Note where float32 meets a float64 that nobody asked for."""
        if not self.annotating or result.dtype != FLOAT64 or not result.why:
            return
        if left.dtype == FLOAT64 == right.dtype:
            return
        if not (left.is_float or right.is_float):
            return
        self.note(
            "accidental-float64",
            node.place,
            f"{node.place}: Numba computes this in float64, because of "
            f"{result.why}; most GPUs run that far slower than float32. "
            "Write float32(...) around it.",
        )

    def see_UnaryOp(self, node):
        operand = self.scalar(node.operand)
        if isinstance(node.op, ast.Not):
            return Number(BOOL, 0, 1, operand.varies)
        if operand.is_float and isinstance(node.op, ast.Invert):
            raise self.refuse(
                "a bit operation on floats",
                node,
                "Convert them with int(...) first.",
            )
        if operand.is_float:
            return Number(operand.dtype, varies=operand.varies, why=operand.why)
        if isinstance(node.op, ast.UAdd):
            return operand
        if isinstance(node.op, ast.Invert):
            if operand.dtype == BOOL:
                raise self.refuse("`~` of a bool", node, "Use `not`.")
            low, high = -operand.high - 1, -operand.low - 1
        else:
            own = INT64 if operand.dtype == BOOL else operand.dtype
            reach = operand.low, operand.high
            low, high = bounds.negate(reach, integer_range(own))
        dtype = UINT64 if operand.dtype.kind == "u" else INT64
        return self.made(dtype, low, high, operand.varies)

    def see_Compare(self, node):
        values = [self.scalar(v) for v in (node.left, *node.comparators)]
        for left, right in pairwise(values):
            common = Number(
                np.promote_types(left.dtype, right.dtype),
                why=left.why or right.why,
            )
            if left.is_float and right.is_float:
                self.check_promotion(node, left, right, common)
        return Number(BOOL, 0, 1, any(value.varies for value in values))

    def see_BoolOp(self, node):
        result = None
        is_and = isinstance(node.op, ast.And)
        node.kept = []
        for part in node.values:
            decided = self.decided(part)
            if decided is is_and:
                continue
            node.kept.append(part)
            result = join(result, self.scalar(part))
            if decided is not None:
                break
        if result is None:
            return exactly(is_and)
        self.partings += result.varies
        return result

    def see_IfExp(self, node):
        node.decided = self.decided(node.test)
        if node.decided is not None:
            return self.see(node.body if node.decided else node.orelse)
        varies = self.condition(node.test)
        self.partings += varies
        result = self.joined([node.body, node.orelse], node)
        self.must_resolve |= isinstance(result, (Array, Choice))
        if varies and isinstance(result, Number):
            result = Number(
                result.dtype, result.low, result.high, True, result.why
            )
        return result

    def joined(self, nodes, node):
        """Return what is known about a choice between expressions."""
        values = [self.see(part) for part in nodes]
        result = None
        try:
            for value in values:
                result = join(result, value)
        except TypeError as error:
            raise self.refuse(f"a choice between {error}", node) from None
        if isinstance(result, Number) and result.is_float:
            floats = [v for v in values if isinstance(v, Number)]
            for value in floats[1:]:
                self.check_promotion(node, floats[0], value, result)
        return result


def binary_dtype(op, left, right):
    """Return the dtype that Numba gives to ``left op right``."""
    a, b = left.dtype, right.dtype
    if "f" in (a.kind, b.kind):
        if isinstance(op, ast.Pow) and {a.kind, b.kind} != {"f"}:
            return a if a.kind == "f" else FLOAT64
        if {a, b} == {UINT16, FLOAT32}:
            return FLOAT64  # a quirk of Numba's rules for safe conversions
        return np.promote_types(a, b)
    if isinstance(op, ast.Div):
        return FLOAT64
    if isinstance(op, (ast.LShift, ast.RShift)):
        return UINT64 if a.kind == "u" else INT64
    bitwise = isinstance(op, (ast.BitAnd, ast.BitOr, ast.BitXor))
    if a == b == BOOL and bitwise:
        return BOOL
    return UINT64 if a.kind == b.kind == "u" else INT64
