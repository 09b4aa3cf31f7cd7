"""Write the lowered kernel as Python text, whichever engine will run it.

A kernel with barriers becomes a generator: it stops at every barrier with
``yield`` and the number of that barrier. Everything that depends on how an
engine keeps its arrays is left to the dialects.
"""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast
from dataclasses import replace

from attention_lab.gpu import ir
from attention_lab.gpu.device_names import BLOCK_BARRIERS, WARP_OPERATIONS
from attention_lab.gpu.errors import UnsupportedConstruct
from attention_lab.gpu.loop_code import LoopEmitter, is_divergent_barrier
from attention_lab.gpu.sites import (
    FENCES,
    SITE_BITS,
    STOP_BITS,
    Site,
    Stop,
    Unproven,
    Writer,
    stop_text,
)
from attention_lab.gpu.values import (
    Array,
    At,
    Group,
    Nothing,
    Span,
    Whole,
    exactly,
)


class Emitter(LoopEmitter):
    """What both dialects share: statements, views, and where events are.

    Parameters
    ----------
    recorded : whether every access is to be written to the log
    """

    def __init__(self, recorded):
        super().__init__()
        self.recorded = recorded
        self.out = Writer()
        self.sites = []
        self.site_numbers = {}
        self.stops = [None]  # numbered from 1: 0 means "finished"
        self.faults = []
        self.unset = frozenset()
        self.place = None
        self.counter = 0

    @property
    def waits(self):
        """Whether the kernel has a barrier, and so is a generator."""
        return len(self.stops) > 1

    # -- registers ------------------------------------------------------

    def site(self, node, array, kind):
        """Return the number of a place that touches memory."""
        key = id(node), kind
        if key in self.site_numbers:
            return self.site_numbers[key]
        if len(self.sites) == 1 << SITE_BITS:
            raise UnsupportedConstruct(
                f"a kernel with more than {1 << SITE_BITS} places that touch "
                "memory",
                node.place,
                "Call its functions in loops, not by hand.",
            )
        base = node.value if isinstance(node, ast.Subscript) else node.args[0]
        axes = tuple(type(axis).__name__.lower() for axis in base.known.axes)
        number = self.site_numbers[key] = len(self.sites)
        self.sites.append(
            Site(
                node.place,
                array.name,
                array.label,
                array.space,
                kind,
                getattr(base, "said", ""),
                axes if set(axes) != {"whole"} else (),
                node.column,
                self.ticks_around,
            )
        )
        return number

    def stop(self, node, dtype=None):
        """Return the text of what a thread yields at a place that waits."""
        trips = self.trips if is_divergent_barrier(node) else []
        loops = tuple(place for _, place in trips)
        number = self.new_stop(Stop(node.place, node.op, dtype, loops))
        return stop_text(number, [variable for variable, _ in trips])

    def new_stop(self, stop):
        """Return the number of a new stop."""
        if len(self.stops) == 1 << STOP_BITS:
            raise UnsupportedConstruct(
                f"a kernel with more than {1 << STOP_BITS} places that wait",
                stop.place,
                "Call its functions in loops, not by hand.",
            )
        self.stops.append(stop)
        return len(self.stops) - 1

    def fresh(self):
        """Return the name of a new helper variable."""
        self.counter += 1
        return f"__k{self.counter}"

    # -- views of arrays ------------------------------------------------

    def size(self, array, axis, codes):
        """Return the code for the length of one axis of a view."""
        if isinstance(array.axes[axis], Span):
            return codes[axis][1]
        return self.full_size(array, axis)

    def full_size(self, array, axis):
        """Return the code for the length of one axis of the memory."""
        if array.shape[axis] is not None:
            return str(array.shape[axis])
        return f"{array.name}__n{axis}"

    def view(self, node):
        """Return an array value and the code for each axis it has changed.

        The code is None for an untouched axis, text for a fixed index, and
        a pair of texts (start, length) for a part.
        """
        known = node.known
        if isinstance(node, ast.Name):
            codes = []
            for k, axis in enumerate(known.axes):
                stem = f"{node.id}__{k}"
                names = {Whole: (), At: (stem,), Span: (stem, stem + "n")}
                parts = names[type(axis)]
                if getattr(node, "may_be_unset", False):
                    parts = tuple(self.if_set(node, part) for part in parts)
                codes.append(parts if len(parts) > 1 else (*parts, None)[0])
            return known, codes
        if isinstance(node, ast.Subscript):
            return self.sliced(node)
        return known, [None] * len(known.axes)

    def sliced(self, node):
        """Return the view that a subscript makes."""
        array, codes = self.view(node.value)
        codes = list(codes)
        axes = list(array.axes)
        for axis, (part, text, index) in zip(
            array.free, self.parts(node), strict=False
        ):
            size = self.size(array, axis, codes)
            size_known = (
                axes[axis].length
                if isinstance(axes[axis], Span)
                else exactly(array.shape[axis])
                if array.shape[axis] is not None
                else None
            )
            if isinstance(part, ast.Slice):
                if part.lower is None and part.upper is None:
                    continue
                codes[axis] = self.part_of_axis(codes[axis], part, size)
                axes[axis] = (
                    node.known.axes[axis]
                    if isinstance(node.known, Array)
                    else axes[axis]
                )
                continue
            if index.low == index.high < 0:
                # Numba counts a negative index from the end, on a GPU too.
                back = -int(index.low)
                text = f"({size} - {back} if {size} >= {back} else -{back})"
                if size_known is not None:
                    index = replace(
                        index,
                        low=size_known.low - back,
                        high=size_known.high - back,
                    )
            inside = (
                size_known is not None
                and index.low >= 0
                and index.high < size_known.low
            )
            codes[axis] = self.index_on(axes[axis], codes[axis], text, inside)
            axes[axis] = At(index)
        if getattr(node.value, "may_be_unset", False):
            self.guard_whole(node.value, codes)
        known = node.known
        if not isinstance(known, Array):
            known = Array(
                array.name,
                array.label,
                array.space,
                array.dtype,
                array.shape,
                tuple(axes),
            )
        return known, codes

    def guard_whole(self, node, codes):
        """Let the first index fail if the name stands for no array yet."""
        if all(isinstance(axis, Whole) for axis in node.known.axes):
            first = next(k for k, code in enumerate(codes) if code is not None)
            code = codes[first]
            if isinstance(code, tuple):
                codes[first] = (self.if_set(node, code[0]), code[1])
            else:
                codes[first] = type(code)(self.if_set(node, code))

    def note_set(self, name, place):
        """Write down that a variable now has a value, if that may matter."""
        if name in self.unset:
            self.out.line(f"{name}__set = True", place)

    def item(self, node):
        """Return the text of one item of a tuple."""
        base = node.value
        if isinstance(base, ast.Attribute) and isinstance(
            node.slice, ast.Constant
        ):
            array, codes = self.view(base.value)
            axis = array.free[node.slice.value]
            return self.size(array, axis, codes)
        return f"{self.code(base)}[{self.code(node.slice)}]"

    def parts(self, node):
        """Yield (node, code, known) for every part of an index."""
        index = node.slice
        if isinstance(index, ast.Tuple):
            parts = index.elts
        elif isinstance(index, ast.Slice):
            parts = [index]
        elif isinstance(index.known, Group):
            whole = self.code(index)
            for k, item in enumerate(index.known.items):
                yield index, f"{whole}[{k}]", item
            return
        else:
            parts = [index]
        for part in parts:
            if isinstance(part, ast.Slice):
                yield part, None, None
            else:
                yield part, self.code(part), part.known

    def index_on(self, axis, code, text, inside):
        """Return the code of an index into an axis, perhaps a part of one."""
        if not isinstance(axis, Span):
            return text if inside else Unproven(text)
        start, length = code
        if inside:
            return f"({start} + {text})"
        return Unproven(self.span(text, start, length))

    def part_of_axis(self, code, part, size):
        """Return (start, length) of the part that a slice selects."""
        lower = "0" if part.lower is None else self.code(part.lower)
        upper = size if part.upper is None else self.code(part.upper)
        start = f"__edge({lower}, {size})"
        length = f"__length({lower}, {upper}, {size})"
        if code is not None:
            start = f"({code[0]} + {start})"
        return start, length

    # -- statements -----------------------------------------------------

    def block(self, statements):
        """Write statements one level deeper."""
        self.out.depth += 1
        before = len(self.out.lines)
        for statement in statements:
            self.place = statement.place
            getattr(self, f"do_{type(statement).__name__}")(statement)
        if len(self.out.lines) == before:
            self.out.line("pass")
        self.out.depth -= 1

    def do_Expr(self, node):
        value = node.value
        if isinstance(value, ir.Primitive) and (
            value.op in BLOCK_BARRIERS or value.op in WARP_OPERATIONS
        ):
            self.exchange(value)
        elif isinstance(value, ir.Primitive) and value.op == "threadfence":
            if self.recorded:
                self.mark(FENCES[value.detail], node.place)
        else:
            self.out.line(self.code(value), node.place)

    def do_Assign(self, node):
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Subscript):
            self.store(target, value, node.place)
            return
        if isinstance(value, ir.Primitive):
            if value.op in BLOCK_BARRIERS or value.op in WARP_OPERATIONS:
                result = self.exchange(value)
                self.out.line(f"{target.id} = {result}", node.place)
                return
            if value.op.endswith(".array"):
                self.note_set(target.id, node.place)
                self.allocate(value, node.place)
                return
        if isinstance(target.known, Array):
            self.name_view(target, value, node.place)
        elif isinstance(target.known, Nothing):
            self.out.line(f"{target.id} = None", node.place)
        else:
            self.out.line(
                f"{target.id} = {self.fitting(value, target.known)}",
                node.place,
            )

    def name_view(self, target, value, place):
        """Keep what a view depends on in variables of its own."""
        self.note_set(target.id, place)
        _, codes = self.view(value)
        for k, code in enumerate(codes):
            stem = f"{target.id}__{k}"
            if isinstance(code, tuple):
                self.out.line(f"{stem} = {code[0]}", place)
                self.out.line(f"{stem}n = {code[1]}", place)
            elif code is not None:
                self.out.line(f"{stem} = {code}", place)

    def do_If(self, node):
        self.out.line(f"if {self.code(node.test)}:", node.place)
        self.block(node.body)
        if node.orelse:
            self.out.line("else:", node.place)
            self.block(node.orelse)

    # -- left to the dialects -------------------------------------------

    def code(self, node):
        """Return the text of an expression."""
        raise NotImplementedError

    def fitting(self, node, known):
        """Return the text of an expression, converted to a variable's type."""
        raise NotImplementedError

    def span(self, text, start, length):
        """Return the text of an index into a part of an axis, checked."""
        if self.recorded:
            return f"__span({text}, {start}, {length})"
        return f"__span_at({text}, {start}, {length}{self.blame()})"

    def blame(self, variable=""):
        """Return the argument that lets machine code say where it failed."""
        return ""

    def if_set(self, node, text):
        """Return the text of a value that needs the variable `node`."""
        return f"({node.id}__set, {text})[1]"

    def store(self, target, value, place):
        """Write an assignment to an array element."""
        raise NotImplementedError

    def exchange(self, node):
        """Write a barrier; return the text of its result."""
        raise NotImplementedError

    def mark(self, code, place):
        """Write a mark to the log."""
        raise NotImplementedError

    def allocate(self, node, place):
        """Write what makes a new local array."""
        raise NotImplementedError
