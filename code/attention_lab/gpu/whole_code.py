"""The text of operations on whole numbers, for the interpreter.

Python's never overflow and Numba's wrap: where the bounds do not prove that
a result fits its type, the text keeps its low bits.
"""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

from attention_lab.gpu import bounds
from attention_lab.gpu.emission import Emitter
from attention_lab.gpu.values import BOOL, INT64, UINT64, integer_range

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
DIVIDES = {"//": "__divide_whole", "%": "__modulo_whole"}
SHIFTS = {"<<": "__shift_left", ">>": "__shift_right"}


class WholeEmitter(Emitter):
    """Writes operations on whole numbers."""

    def whole_operation(self, node):
        """Return the text of an operation that gives a whole number."""
        left, right = node.left.known, node.right.known
        symbol = SYMBOLS[type(node.op)]
        dtype = node.known.dtype
        a, b = self.count(node.left), self.count(node.right)
        if dtype == INT64:
            a, b = self.signed(a, left), self.signed(b, right)
        if dtype == BOOL:
            return f"({a} {symbol} {b})"
        text = f"({a} {symbol} {b})"
        low, high = bounds.combine(
            node.op, (left.low, left.high), (right.low, right.high)
        )
        if isinstance(node.op, ast.Pow):
            return f"__power_{dtype.name}({a}, {b}{self.blame()})"
        if symbol in DIVIDES and right.low <= 0 and right.high >= -1:
            text = f"{DIVIDES[symbol]}({a}, {b}{self.blame()})"
        if symbol in SHIFTS and not 0 <= right.low <= right.high < 64:
            text = f"{SHIFTS[symbol]}({a}, {b})"
        if dtype == UINT64:
            fits = low >= 0 and high < 2**64
            return text if fits else self.kept(text, UINT64)
        if low >= -(2**63) and high < 2**63:
            return text
        if symbol in ("+", "-", "*"):
            return self.overflowing(a, symbol, b)
        return self.kept(text, INT64) if symbol == "<<" else text

    def overflowing(self, a, symbol, b):
        """Return the text of an int64 that may not fit, and then wraps.

        A GPU wraps too, unless Numba's compiler has made use of its
        promise that signed numbers never overflow.
        """
        return self.kept(f"({a} {symbol} {b})", INT64)

    def kept(self, text, dtype):
        """Return the text of a number that wraps to the width of a type."""
        least, most = integer_range(dtype)
        if least == 0:
            return f"({text} & {most:#x})"
        if dtype.itemsize == 8:
            return f"__wrap64({text})"
        return f"(({text} + {-least:#x} & {most - least:#x}) - {-least:#x})"

    def count(self, node):
        """Return the text of a whole number that is safe to calculate with."""
        text = self.code(node)
        return f"int({text})" if node.known.dtype == BOOL else text

    def signed(self, text, known):
        """Return the text of a uint64 that meets a signed number."""
        if known.dtype == UINT64 and known.high >= 2**63:
            return self.kept(text, INT64)
        return text

    def whole_unary(self, node):
        """Return the text of a sign or an inversion."""
        text = self.count(node.operand)
        if isinstance(node.op, ast.UAdd):
            return text
        known = node.operand.known
        if isinstance(node.op, ast.Invert):
            made, fits = f"(~{text})", known.dtype.kind == "i"
        else:
            made, fits = f"(-{text})", not reaches_least(known)
        # Numba calculates in the operand's own width before it widens.
        return made if fits else self.kept(made, known.dtype)

    def of_abs(self, node):
        known = node.args[0].known
        text = f"abs({self.count(node.args[0])})"
        if known.is_float or not reaches_least(known):
            return text
        return self.kept(text, known.dtype)

    def bits(self, node):
        """Return the text of a function on the bits of an operand."""
        known = node.args[0].known
        # A bool counts as an int8; brev reverses 32 bits unless it gives 64.
        size = node.known.dtype if node.op == "brev" else known.dtype
        text = f"__{node.op}({self.count(node.args[0])}, {8 * size.itemsize})"
        return self.made(text, node.known.dtype)

    def made(self, text, dtype):
        """Return the text of a number that a helper made, in its type."""
        return text

    of_popc = bits
    of_clz = bits
    of_ffs = bits
    of_brev = bits


def reaches_least(known):
    """Say whether the negative of a whole number may not fit its type."""
    if known.dtype.kind == "u":
        return known.high > 0
    return known.dtype != BOOL and known.low <= integer_range(known.dtype)[0]
