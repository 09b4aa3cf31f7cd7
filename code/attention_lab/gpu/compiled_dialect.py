"""Write the same kernel for Numba's CPU compiler.

The text differs from the interpreter's where types are concerned: Numba
knows them, so conversions are spelled as calls of NumPy types, arrays keep
their axes, and nothing needs wrapping to 64 bits by hand.
"""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

from attention_lab.gpu import ir
from attention_lab.gpu.device_names import WARP_OPERATIONS
from attention_lab.gpu.errors import UnsupportedConstruct
from attention_lab.gpu.loop_code import holds
from attention_lab.gpu.python_dialect import (
    GRID,
    INDICES,
    Literal,
    element_of,
    unwritten,
)
from attention_lab.gpu.scalar_code import ScalarEmitter
from attention_lab.gpu.sites import SITE_BITS, Unproven, row_major
from attention_lab.gpu.values import (
    BOOL,
    FLOAT16,
    INT64,
    Array,
    Group,
    Nothing,
)

BOXES = (
    "__float_value",
    "__whole_value",
    "__operand",
    "__mask",
    "__float_result",
    "__whole_result",
)
LOG = ("__log",)


class CompiledEmitter(ScalarEmitter):
    """Writes a kernel that ``numba.njit`` can compile."""

    engine = "compiled"

    # -- scalars --------------------------------------------------------

    def convert(self, text, known, dtype):
        """Return the text of a conversion."""
        if known.dtype == dtype:
            return text
        if dtype == BOOL:
            return f"({text} != 0)"
        if known.is_float and dtype.kind in "iu":
            return self.truncated(text, known.dtype, dtype)
        return f"__{dtype.name}({text})"

    def literal(self, value, known):
        """Return the text of a constant number of the right type."""
        if known.dtype not in (BOOL, INT64) and not known.is_float:
            return f"__{known.dtype.name}({int(value)})"
        return super().literal(value, known)

    def kept(self, text, dtype):
        """Numba's numbers wrap by themselves, but for sums and products."""
        return text

    def overflowing(self, a, symbol, b):
        """Calculate unsigned: a signed overflow is undefined here too."""
        return f"__int64(__uint64({a}) {symbol} __uint64({b}))"

    def do_For(self, node):
        if isinstance(node.iter, ir.Primitive) and len(node.iter.args) == 3:
            step = node.iter.args[2]
            if step.known.low <= 0 <= step.known.high:
                text = f"__step({self.code(step)}{self.blame()})"
                node.iter.args[2] = Literal(text, step.known)
        super().do_For(node)

    def count(self, node):
        """Return the text of a whole number."""
        text = self.code(node)
        return f"__int64({text})" if node.known.dtype == BOOL else text

    def made(self, text, dtype):
        """Return the text of a number that a helper made, in its type."""
        return f"__{dtype.name}({text})"

    def of_Name(self, node):
        if not getattr(node, "may_be_unset", False):
            return node.id
        return self.if_set(node, node.id)

    def if_set(self, node, text):
        return f"__given({text}, {node.id}__set{self.blame(node.id)})"

    def blame(self, variable=""):
        return f", {self.fault(variable)}"

    # -- statements -----------------------------------------------------

    def do_Assign(self, node):
        super().do_Assign(node)
        target = node.targets[0]
        if isinstance(target, ast.Name) and not isinstance(target.known, Array):
            self.note_set(target.id, node.place)

    def begin_trip(self, node):
        if isinstance(node, ast.For):
            self.note_set(node.target.id, node.place)
        super().begin_trip(node)

    # -- memory ---------------------------------------------------------

    def refuse_half(self, array, node):
        """Refuse float16, which Numba cannot compute with on a CPU."""
        if array.dtype == FLOAT16:
            raise UnsupportedConstruct(
                f"the float16 array `{array.label}` in the compiled engine",
                node.place,
                'Use engine="python".',
            )

    def of_Subscript(self, node):
        if isinstance(node.value.known, Group):
            return self.item(node)
        array, codes = self.view(node)
        self.refuse_half(array, node)
        site = self.site(node, array, "read")
        if self.recorded and self.is_proven(array, codes):
            event = event_text(array, codes, site)
            element = f"{array.name}[{', '.join(codes)}]"
            return f"__seen({element}, {event}, __log)"
        if self.recorded:
            log = ", ".join((str(site), *LOG))
            return (
                f"__load{len(codes)}({array.name}, {', '.join(codes)}, {log})"
            )
        return f"{array.name}[{self.checked(array, codes)}]"

    @staticmethod
    def is_proven(array, codes):
        """Say whether an element is inside and its number is simple."""
        return array.space != "global" and not any(
            isinstance(code, Unproven) for code in codes
        )

    def checked(self, array, codes):
        """Return the text of an index, with a check where one is needed."""
        return ", ".join(
            f"__at({code}, {array.name}.shape[{k}]{self.blame()})"
            if isinstance(code, Unproven)
            else code
            for k, code in enumerate(codes)
        )

    def span(self, text, start, length):
        if self.recorded:
            return f"__span({text}, {start}, {length}, __log)"
        return super().span(text, start, length)

    def store(self, target, value, place):
        array, codes = self.view(target)
        self.refuse_half(array, target)
        text = self.as_type(value, array.dtype)
        self.store_at(array, codes, text, target, place)

    def store_at(self, array, codes, text, target, place):
        site = self.site(target, array, "write")
        if self.recorded and self.is_proven(array, codes):
            element = f"{array.name}[{', '.join(codes)}]"
            self.out.line(f"__v{site} = {text}", place)
            event = event_text(array, codes, site)
            self.out.line(f"__note({event}, __log)", place)
            self.out.line(f"{element} = __v{site}", place)
            return
        if self.recorded:
            log = ", ".join((str(site), *LOG))
            self.out.line(
                f"__store{len(codes)}({array.name}, {', '.join(codes)}, "
                f"{text}, {log})",
                place,
            )
            return
        self.out.line(
            f"{array.name}[{self.checked(array, codes)}] = {text}",
            place,
        )

    def of_atomic(self, node):
        array, codes = self.view(element_of(node))
        self.refuse_half(array, node)
        site = self.site(node, array, node.detail)
        values = [self.as_type(v, array.dtype) for v in node.args[2:]]
        call = f"{array.name}, ({', '.join(codes)},), {', '.join(values)}"
        if self.recorded:
            log = ", ".join((str(site), *LOG))
            return f"__logged_{node.detail}{len(codes)}({call}, {log})"
        sizes = [
            f"__at({code}, {array.name}.shape[{k}]{self.blame()})"
            for k, code in enumerate(codes)
        ]
        call = f"{array.name}, ({', '.join(sizes)},), {', '.join(values)}"
        return f"__{node.detail}({call})"

    def mark(self, code, place):
        self.out.line(f"__note({code}, __log)", place)

    def allocate(self, node, place):
        array = node.known
        if array.space != "local":
            return
        self.refuse_half(array, node)
        self.out.line(
            f"{array.name} = __np.empty({array.shape}, __{array.dtype.name})",
            place,
        )
        self.out.line(f"{array.name}[:] = {self.junk(array.dtype)}", place)

    def junk(self, dtype):
        """Return the text of what fills unwritten memory."""
        return "__np.nan" if dtype.kind == "f" else repr(unwritten(dtype))

    def exchange(self, node):
        dtype = None
        kind = "whole"
        if node.op.startswith("syncthreads_"):
            self.leave("whole", f"__int64({self.code(node.args[0])})", node)
        elif node.op != "syncthreads":
            mask = self.code(node.args[0]) if node.args else "0xFFFFFFFF"
            self.out.line(f"__mask[__thread] = {mask}", node.place)
            if len(node.args) > 1:
                dtype = node.args[1].known.dtype
                kind = "float" if dtype.kind == "f" else "whole"
                self.leave(kind, self.code(node.args[1]), node)
            if len(node.args) > 2:
                text = self.code(node.args[2])
                self.out.line(f"__operand[__thread] = {text}", node.place)
        self.out.line(f"yield {self.stop(node, dtype)}", node.place)
        result = getattr(node, "known", Nothing())
        text = f"__{kind}_result[__thread]"
        if isinstance(result, Nothing):
            return text
        if result.dtype == BOOL:
            return f"({text} != 0)"
        return f"__{result.dtype.name}({text})"

    def leave(self, kind, text, node):
        """Write a line that leaves a value for the other threads."""
        self.out.line(f"__{kind}_value[__thread] = {text}", node.place)

    # -- the whole function ---------------------------------------------

    def program(self, body, parameters, arguments, shared):
        """Return the text of the thread function, and of loops over it.

        Parameters
        ----------
        body : flattened and annotated statements
        parameters : names, in order
        arguments : what is known about each
        shared : the shared arrays
        """
        first = [*parameters, *(array.name for array in shared)]
        last = [*BOXES, *GRID, *(LOG if self.recorded else ())]
        everything = ", ".join([*first, *last, *INDICES])
        self.out.line(f"def thread({everything}):")
        self.out.depth += 1
        for name in parameters:
            if hasattr(arguments[name], "space"):
                for k in range(len(arguments[name].shape)):
                    self.out.line(f"{name}__n{k} = {name}.shape[{k}]")
                self.refuse_half_argument(arguments[name])
        for array in shared:
            if array.shape[0] is None:
                self.out.line(f"{array.name}__n0 = {array.name}.shape[0]")
        for name in sorted(self.unset):
            self.out.line(f"{name}__set = False")
        self.out.depth -= 1
        # A warp operation excuses the lanes that returned before it.
        self.tells_returns = holds(body, WARP_OPERATIONS)
        self.block(body)
        if not self.waits:
            self.write_loop([*first, *last], shared)
        return self.out.text()

    def refuse_half_argument(self, array):
        """Refuse a float16 argument before anything is compiled."""
        if array.dtype == FLOAT16:
            raise UnsupportedConstruct(
                f"the float16 array `{array.label}` in the compiled engine",
                "the arguments",
                'Use engine="python".',
            )

    def write_loop(self, names, shared):
        """Write the loop over blocks and threads that never wait."""
        x, y, _ = self.block_sizes
        given = ", ".join(names)
        out = self.out
        out.line(f"def loop({given}, __blocks, __turn, __ends, __now):")
        out.depth += 1
        out.line("__row = 0")
        out.line("for __block in __blocks:")
        out.depth += 1
        for array in shared:
            out.line(f"{array.name}[:] = {self.junk(array.dtype)}")
        out.line("__now[0] = __block")
        out.line("for __t in __turn:")
        out.depth += 1
        out.line("__now[1] = __t")
        out.line(
            f"thread({given}, __t % {x}, __t // {x} % {y}, "
            f"__t // {x * y}, __block % __gx, __block // __gx % __gy, "
            "__block // (__gx * __gy), __t)"
        )
        if self.recorded:
            out.line("__ends[__row] = __log[0]")
            out.line("__row += 1")
        out.depth -= 3


def event_text(array, codes, site):
    """Return the text of the event of an element that is inside."""
    terms = [
        code if step == 1 else f"{code} * {step}"
        for step, code in zip(row_major(array.shape), codes, strict=True)
    ]
    return f"({' + '.join(terms)}) << {SITE_BITS} | {site}"
