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
from attention_lab.gpu.sites import SITE_BITS, Site, Stop, Writer
from attention_lab.gpu.values import (
    Array,
    Nothing,
    Span,
)
from attention_lab.gpu.view_code import ViewEmitter


class Emitter(ViewEmitter):
    """What both dialects share: statements, views, and where events are.

    Parameters
    ----------
    recorded : whether every access is to be written to the log
    """

    def __init__(self, recorded):
        self.recorded = recorded
        self.out = Writer()
        self.sites = []
        self.stops = [None]  # numbered from 1: 0 means "finished"
        self.faults = []
        self.counter = 0

    @property
    def waits(self):
        """Whether the kernel has a barrier, and so is a generator."""
        return len(self.stops) > 1

    # -- registers ------------------------------------------------------

    def site(self, node, array, kind):
        """Return the number of a place that touches memory."""
        made = Site(node.place, array.name, array.label, array.space, kind)
        if made in self.sites:
            return self.sites.index(made)
        if len(self.sites) == 1 << SITE_BITS:
            raise UnsupportedConstruct(
                f"a kernel with more than {1 << SITE_BITS} places that touch "
                "memory",
                node.place,
                "Call its functions in loops, not by hand.",
            )
        self.sites.append(made)
        return len(self.sites) - 1

    def stop(self, node, dtype=None):
        """Return the number of a place that waits."""
        self.stops.append(Stop(node.place, node.op, dtype))
        return len(self.stops) - 1

    def fault(self, node):
        """Return the number of a place where a thread may stop."""
        self.faults.append((node.place, getattr(node, "detail", None)))
        return len(self.faults) - 1

    def fresh(self):
        """Return the name of a new helper variable."""
        self.counter += 1
        return f"__k{self.counter}"

    # -- statements -----------------------------------------------------

    def sequence(self, statements):
        """Write statements, up to one after which nothing can follow."""
        for statement in statements:
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
            return
        elif isinstance(value, ir.Primitive) and value.op == "stopped":
            number = self.fault(value)
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
        codes = [self.kept(code, place) for code in codes]
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

    def kept(self, code, place):
        """Return the code of an index that is written once, used often."""
        if code is None:
            return None
        if isinstance(code, tuple):
            return tuple(self.kept(part, place) for part in code)
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

    def loop_body(self, node):
        """Write the body of a loop, with a mark for the log if it needs one."""
        self.out.depth += 1
        if self.recorded and getattr(node, "parts_inside", False):
            self.tick(node.place)
        self.out.depth -= 1
        self.block(node.body)

    def do_While(self, node):
        self.out.line(f"while {self.code(node.test)}:", node.place)
        self.loop_body(node)
        if node.orelse:
            self.out.line("else:", node.place)
            self.block(node.orelse)

    def do_For(self, node):
        if isinstance(node.iter, ir.Primitive):
            limits = ", ".join(self.code(a) for a in node.iter.args)
            iterated = f"range({limits})"
        else:
            iterated = self.iterated(node.iter, node.target.known)
        self.out.line(f"for {node.target.id} in {iterated}:", node.place)
        self.loop_body(node)
        if node.orelse:
            self.out.line("else:", node.place)
            self.block(node.orelse)

    def iterated(self, node, known):
        """Return the code of a tuple whose items become one type."""
        items = [self.fitting(item, known) for item in node.elts]
        return "(" + ", ".join(items) + ",)"

    def do_Once(self, node):
        self.out.line("while True:", node.place)
        self.block([*node.body, ir.placed(ast.Break(), node.place)])

    def do_Break(self, node):
        self.out.line("break", node.place)

    def do_Continue(self, node):
        self.out.line("continue", node.place)

    def do_Return(self, node):
        self.out.line("return", node.place)

    # -- left to the dialects -------------------------------------------

    def code(self, node):
        """Return the text of an expression."""
        raise NotImplementedError

    def fitting(self, node, known):
        """Return the text of an expression, converted to a variable's type."""
        raise NotImplementedError

    def store(self, target, value, place):
        """Write an assignment to an array element."""
        raise NotImplementedError

    def store_at(self, array, codes, text, target, place):
        """Write the store of a value that has the array's type already."""
        raise NotImplementedError

    def exchange(self, node):
        """Write a barrier; return the text of its result."""
        raise NotImplementedError

    def tick(self, place):
        """Write a mark to the log."""
        raise NotImplementedError

    def allocate(self, node, place):
        """Write what makes a new local array."""
        raise NotImplementedError
