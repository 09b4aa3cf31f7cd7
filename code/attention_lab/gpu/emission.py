"""Write the lowered kernel as Python text, whichever engine will run it.

A kernel with barriers becomes a generator: it stops at every barrier with
``yield`` and the number of that barrier. Everything that depends on how an
engine keeps its arrays is left to the dialects.
"""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

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
    UnprovenPart,
    Writer,
    stop_text,
)
from attention_lab.gpu.values import (
    Array,
    Nothing,
    Span,
)
from attention_lab.gpu.view_code import ViewEmitter


class Emitter(LoopEmitter, ViewEmitter):
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

    def fault(self, detail=""):
        """Return the number by which a thread says that it failed here.

        Parameters
        ----------
        detail : the variable that has no value, or why the kernel stops
        """
        fault = (self.place, detail)
        if fault not in self.faults:
            self.faults.append(fault)
        return self.faults.index(fault)

    def fresh(self):
        """Return the name of a new helper variable."""
        self.counter += 1
        return f"__k{self.counter}"

    def note_set(self, name, place):
        """Write down that a variable now has a value, if that may matter."""
        if name in self.unset:
            self.out.line(f"{name}__set = True", place)

    # -- statements -----------------------------------------------------

    def sequence(self, statements):
        """Write statements, up to one after which nothing can follow."""
        for statement in statements:
            self.place = statement.place
            getattr(self, f"do_{type(statement).__name__}")(statement)
            if getattr(statement, "ends_here", False):
                break

    def block(self, statements):
        """Write statements one level deeper."""
        self.out.depth += 1
        before = len(self.out.lines)
        self.sequence(statements)
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
        elif ir.stops(node):
            number = self.fault(value.detail)
            self.out.line(f"raise AssertionError({number})", node.place)
        else:
            self.out.line(self.code(value), node.place)

    def do_Assign(self, node):
        target, value = node.targets[0], node.value
        if isinstance(target, ast.Subscript):
            if isinstance(target.known, Array):
                self.fill(target, value, node.place)
            else:
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
            elif isinstance(target.known.axes[k], Span):
                size = self.full_size(target.known, k)
                self.out.line(f"{stem} = 0", place)
                self.out.line(f"{stem}n = {size}", place)

    def fill(self, target, value, place):
        """Write ``part[...] = number``: a loop over every axis that is left."""
        array, codes = self.view(target)
        number = self.fresh()
        self.out.line(f"{number} = {self.as_type(value, array.dtype)}", place)
        depth = self.out.depth
        codes = [self.written_once(code, place) for code in codes]
        for axis in array.free:
            counter = self.fresh()
            size = self.size(array, axis, codes)
            self.out.line(f"for {counter} in range({size}):", place)
            self.out.depth += 1
            codes[axis] = (
                counter
                if codes[axis] is None
                else f"({codes[axis][0]} + {counter})"
            )
        self.store_at(array, codes, number, target, place)
        self.out.depth = depth

    def written_once(self, code, place):
        """Return the code of an index that is used more than once."""
        if code is None:
            return None
        if isinstance(code, tuple):
            return tuple(self.written_once(part, place) for part in code)
        if isinstance(code, UnprovenPart):
            # The check stays beside the access that it belongs to.
            return self.part_index(
                *(self.written_once(part, place) for part in code.parts)
            )
        name = self.fresh()
        self.out.line(f"{name} = {code}", place)
        return type(code)(name)

    def do_If(self, node):
        if node.decided is not None:
            self.sequence(node.body if node.decided else node.orelse)
            return
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

    def store_at(self, array, codes, text, target, place):
        """Write the store of a value that has the array's type already."""
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
