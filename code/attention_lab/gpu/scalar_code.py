"""The text of scalar expressions, for the interpreter.

Whole numbers are Python's, float64 is Python's float, float32 and float16
are NumPy scalars. Conversions are written out where Numba would make them.
"""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

from attention_lab.gpu.primitive_code import PrimitiveEmitter
from attention_lab.gpu.sites import row_major
from attention_lab.gpu.values import (
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    Group,
    Nothing,
    Number,
    integer_range,
)
from attention_lab.gpu.whole_code import SYMBOLS, WholeEmitter

# Whole numbers up to this size are exact in a float of so many bits.
EXACT = {16: 2**11, 32: 2**24, 64: 2**53}


class ScalarEmitter(PrimitiveEmitter, WholeEmitter):
    """Writes scalar expressions; a dialect adds the memory.

    Parameters
    ----------
    recorded : whether every access is to be written to the log
    block : sizes of a block
    """

    def __init__(self, recorded, block):
        super().__init__(recorded)
        self.block_sizes = block
        self.constants = {}

    def code(self, node):
        """Return the text of an expression in its own type."""
        return getattr(self, f"of_{type(node).__name__}")(node)

    def fitting(self, node, known):
        """Return the text of an expression, converted to `known`."""
        if isinstance(known, Number):
            return self.as_type(node, known.dtype)
        return self.code(node)

    def as_type(self, node, dtype):
        """Return the text of an expression, converted to `dtype`."""
        return self.convert(self.code(node), node.known, dtype)

    def convert(self, text, known, dtype):
        """Return the text of a conversion."""
        if known.dtype == dtype:
            return text
        if dtype == BOOL:
            return f"({text} != 0)"
        if dtype == FLOAT64:
            return f"float({text})"
        if dtype == FLOAT32:
            if known.dtype == FLOAT16:
                return f"__float32({text})"
            if max(-known.low, known.high) > EXACT[64] and not known.is_float:
                return f"__single({text})"
            return f"({text} * __one)"
        if dtype == FLOAT16:
            return f"__float16({text})"
        if known.is_float:
            return self.truncated(text, known.dtype, dtype)
        least, most = integer_range(dtype)
        low, high = known.low, known.high
        if known.dtype == BOOL:
            text = f"int({text})"
        if least <= low and high <= most:
            return text
        if known.dtype.kind == dtype.kind == "i" and dtype.itemsize == 8:
            return text
        return self.kept(text, dtype)

    @staticmethod
    def truncated(text, source, dtype):
        """Return the text of a float that becomes a whole number."""
        return f"__{dtype.name}_of{8 * source.itemsize}({text})"

    # -- leaves ---------------------------------------------------------

    def of_Constant(self, node):
        value = node.value
        if isinstance(node.known, Group):
            items = [
                self.literal(item, known)
                for item, known in zip(value, node.known.items, strict=True)
            ]
            return "(" + ", ".join(items) + ",)"
        if isinstance(node.known, Nothing):
            return repr(value)
        return self.literal(value, node.known)

    def literal(self, value, known):
        """Return the text of a constant number."""
        if known.dtype == BOOL:
            return repr(bool(value))
        if not known.is_float:
            return repr(int(value))
        if known.dtype == FLOAT64 and abs(value) < float("inf"):
            return repr(float(value))
        key = f"__c{len(self.constants)}"
        for old, held in self.constants.items():
            if type(held) is type(value) and repr(held) == repr(value):
                return old
        self.constants[key] = value
        return key

    def of_Name(self, node):
        return node.id

    def of_Literal(self, node):
        return node.text

    def of_Tuple(self, node):
        return "(" + ", ".join(self.code(item) for item in node.elts) + ",)"

    def of_Attribute(self, node):
        array, codes = self.view(node.value)
        sizes = [self.size(array, k, codes) for k in array.free]
        if node.attr == "shape":
            return "(" + ", ".join(sizes) + ",)"
        if node.attr == "size":
            return "(" + " * ".join(sizes) + ")"
        if node.attr == "ndim":
            return str(len(sizes))
        width = array.dtype.itemsize
        if node.attr == "itemsize":
            return str(width)
        if node.attr == "nbytes":
            return "(" + " * ".join([*sizes, str(width)]) + ")"
        return "(" + ", ".join(self.strides(array)) + ",)"

    @staticmethod
    def strides(array):
        """Return the distances between neighbours along each axis, in bytes."""
        if array.space == "global":
            return [f"{array.name}.strides[{k}]" for k in array.free]
        steps = row_major([size or 0 for size in array.shape])
        return [str(steps[k] * array.dtype.itemsize) for k in array.free]

    # -- operators ------------------------------------------------------

    def of_BinOp(self, node):
        if isinstance(node.known, Group):
            return f"({self.code(node.left)} + {self.code(node.right)})"
        if node.known.is_float:
            symbol = SYMBOLS[type(node.op)]
            return self.float_operation(node, symbol, node.known.dtype)
        return self.whole_operation(node)

    def of_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            return f"(not {self.code(node.operand)})"
        if not node.known.is_float:
            return self.whole_unary(node)
        sign = "-" if isinstance(node.op, ast.USub) else "+"
        return f"({sign}{self.code(node.operand)})"

    def float_operation(self, node, symbol, dtype):
        """Return the text of an operation on floats."""
        if isinstance(node.op, ast.Pow):
            a = self.as_type(node.left, dtype)
            bits = 64 if dtype == FLOAT64 else 32
            if node.right.known.is_float:
                b = self.as_type(node.right, dtype)
                return f"__pow{bits}({a}, {b})"
            return f"__power{bits}({a}, {self.count(node.right)})"
        a, b = self.as_type(node.left, dtype), self.as_type(node.right, dtype)
        if dtype != FLOAT64 or symbol in "+-*":
            return f"({a} {symbol} {b})"
        if symbol == "/":
            divisor = node.right
            if isinstance(divisor, ast.Constant) and divisor.value != 0:
                return f"({a} / {b})"
            return f"__divide({a}, {b})"
        helper = "__floor_divide" if symbol == "//" else "__modulo"
        return f"{helper}({a}, {b})"

    def of_Compare(self, node):
        operands = [node.left, *node.comparators]
        floats = [o.known.dtype for o in operands if o.known.is_float]
        # Where Python would compare exactly, or in float32, Numba compares
        # in float64; that matters for large whole numbers only.
        exact = EXACT[8 * min((f.itemsize for f in floats), default=8)]
        large = floats and any(
            max(-o.known.low, o.known.high) > exact
            for o in operands
            if not o.known.is_float
        )
        texts = [
            self.as_type(o, FLOAT64)
            if large or (FLOAT64 in floats and o.known.is_float)
            else self.code(o)
            for o in operands
        ]
        made = texts[0]
        for op, text in zip(node.ops, texts[1:], strict=True):
            made += f" {SYMBOLS[type(op)]} {text}"
        return f"({made})"

    def of_BoolOp(self, node):
        word = " and " if isinstance(node.op, ast.And) else " or "
        parts = [self.fitting(part, node.known) for part in node.kept]
        if not parts:
            return repr(isinstance(node.op, ast.And))
        return "(" + word.join(parts) + ")"

    def of_IfExp(self, node):
        if node.decided is not None:
            return self.fitting(
                node.body if node.decided else node.orelse, node.known
            )
        yes = self.fitting(node.body, node.known)
        no = self.fitting(node.orelse, node.known)
        return f"({yes} if {self.code(node.test)} else {no})"
