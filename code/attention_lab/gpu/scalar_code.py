"""The text of scalar expressions, for the interpreter.

Whole numbers are Python's, float64 is Python's float, float32 and float16
are NumPy scalars. Conversions are written out where Numba would make them.
"""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

from attention_lab.gpu import bounds
from attention_lab.gpu.emission import Emitter
from attention_lab.gpu.primitive_code import PrimitiveEmitter
from attention_lab.gpu.sites import row_major
from attention_lab.gpu.values import (
    BOOL,
    FLOAT16,
    FLOAT32,
    FLOAT64,
    INT64,
    UINT64,
    Group,
    Nothing,
    Number,
    integer_range,
)

SYMBOLS = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


class ScalarEmitter(PrimitiveEmitter, Emitter):
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
            return f"({text} * __one)"
        if dtype == FLOAT16:
            return f"__float16({text})"
        least, most = integer_range(dtype)
        low, high = known.low, known.high
        if known.is_float:
            text, low, high = f"__whole({text})", -(2**63), 2**63
        elif known.dtype == BOOL:
            text = f"int({text})"
        if least <= low and high <= most:
            return text
        if least == 0:
            return f"({text} & {most:#x})"
        if dtype.itemsize == 8:
            # Only a uint64 above the middle can be outside.
            return text if known.dtype.kind == "i" else f"__wrap64({text})"
        return f"(({text} + {-least:#x} & {most - least:#x}) - {-least:#x})"

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
        left, right = node.left.known, node.right.known
        symbol = SYMBOLS[type(node.op)]
        dtype = node.known.dtype
        if node.known.is_float:
            return self.float_operation(node, symbol, dtype)
        a, b = self.count(node.left), self.count(node.right)
        if dtype == INT64:
            a, b = self.signed(a, left), self.signed(b, right)
        if dtype == BOOL:
            return f"({a} {symbol} {b})"
        text = f"({a} {symbol} {b})"
        if isinstance(node.op, ast.Pow) and (
            right.low < 0 or not isinstance(node.right, ast.Constant)
        ):
            return f"__power_whole({a}, {b}{self.fault_argument(node)})"
        low, high = bounds.combine(
            node.op, (left.low, left.high), (right.low, right.high)
        )
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)) and (
            right.low <= 0 <= right.high
        ):
            helper = "__divide_whole" if symbol == "//" else "__modulo_whole"
            text = f"{helper}({a}, {b}{self.fault_argument(node)})"
        if dtype == UINT64:
            fits = low >= 0 and high < 2**64
            return text if fits else self.kept_unsigned(text)
        grows = (ast.Add, ast.Sub, ast.Mult, ast.LShift, ast.Pow)
        if isinstance(node.op, grows) and not (
            low >= -(2**63) and high < 2**63
        ):
            return self.kept_signed(text)
        return text

    def fault_argument(self, node):
        """Return what tells a helper its place: tracebacks do that here."""
        return ""

    def kept_unsigned(self, text, dtype=UINT64):
        """Return the text of the low bits of a number."""
        return f"({text} & {integer_range(dtype)[1]:#x})"

    def kept_signed(self, text):
        """Return the text of a number wrapped to 64 bits."""
        return f"__wrap64({text})"

    def count(self, node):
        """Return the text of a whole number that is safe to calculate with."""
        text = self.code(node)
        return f"int({text})" if node.known.dtype == BOOL else text

    def signed(self, text, known):
        """Return the text of a uint64 that meets a signed number."""
        if known.dtype == UINT64 and known.high >= 2**63:
            return self.kept_signed(text)
        return text

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

    def of_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            return f"(not {self.code(node.operand)})"
        text = self.count(node.operand)
        if isinstance(node.op, ast.UAdd):
            return text
        made = f"(~{text})" if isinstance(node.op, ast.Invert) else f"(-{text})"
        if not node.known.is_float and node.known.dtype == UINT64:
            # Numba calculates in the operand's own width before it widens.
            return self.kept_unsigned(made, node.operand.known.dtype)
        return made

    def of_Compare(self, node):
        operands = [node.left, *node.comparators]
        doubles = any(o.known.dtype == FLOAT64 for o in operands)
        texts = [
            self.as_type(o, FLOAT64)
            if doubles and o.known.is_float
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
