"""Write loops: their trips are counted where that may matter.

Around a barrier the trips tell whether threads meet on the same one. In a
`while` loop they tell when to give it up.
"""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

from attention_lab.gpu import ir
from attention_lab.gpu.device_names import BLOCK_BARRIERS
from attention_lab.gpu.endless import judged
from attention_lab.gpu.limits import most_trips
from attention_lab.gpu.sites import TICK, Stop


class LoopEmitter:
    """The part of an emitter that writes loops and what leaves them.

    Attributes
    ----------
    engine : the engine that will run the text
    trips : (variable, place) of the loops with barriers around this place
    loops : every `while` loop, judged
    ticking : for each loop that writes ticks, the one around it, or -1
    ticks_around : the innermost loop with ticks around this place, or -1
    tells_returns : whether a thread says at which ``return`` it left
    """

    engine = ""

    def __init__(self):
        self.trips = []
        self.loops = []
        self.ticking = []
        self.ticks_around = -1
        self.tells_returns = False

    def loop(self, node, head):
        """Write a loop; count its trips if that may matter.

        It does if the loop may not end, or has a barrier that some threads
        may miss.
        """
        has_barrier = any(
            is_divergent_barrier(inner)
            for statement in node.body
            for inner in ast.walk(statement)
        )
        trip = None
        if has_barrier or isinstance(node, ast.While):
            trip = self.fresh()
            self.out.line(f"{trip} = 0", node.place)
        self.out.line(head, node.place)
        self.out.depth += 1
        if trip is not None:
            self.out.line(f"{trip} += 1", node.place)
        if isinstance(node, ast.While):
            self.limit(node, trip)
        outer = self.ticks_around
        self.begin_trip(node)
        self.out.depth -= 1
        if has_barrier:
            self.trips.append((trip, node.place))
        self.block(node.body)
        if has_barrier:
            self.trips.pop()
        self.ticks_around = outer

    def begin_trip(self, node):
        """Write what begins the body: a tick for the log if it needs one."""
        if self.recorded and getattr(node, "parts_inside", False):
            self.ticking.append(self.ticks_around)
            self.ticks_around = len(self.ticking) - 1
            self.mark(TICK + self.ticks_around, node.place)

    def limit(self, node, trip):
        """Write the check that gives up a loop that does not end."""
        limits = most_trips(self.engine, self.recorded)
        self.loops.append(judged(node, *limits))
        self.out.line(f"if {trip} == {self.loops[-1].most_trips}:", node.place)
        self.out.depth += 1
        self.out.line(f"raise __Endless({len(self.loops) - 1})", node.place)
        self.out.depth -= 1

    def do_While(self, node):
        self.loop(node, f"while {self.code(node.test)}:")
        if node.orelse:
            self.out.line("else:", node.place)
            self.block(node.orelse)

    def do_For(self, node):
        if isinstance(node.iter, ir.Primitive):
            limits = ", ".join(self.code(a) for a in node.iter.args)
            iterated = f"range({limits})"
        else:
            iterated = self.iterated(node.iter, node.target.known)
        self.loop(node, f"for {node.target.id} in {iterated}:")
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
        if self.tells_returns:
            number = self.new_stop(Stop(node.place, "return"))
            self.out.line(f"yield -{number}", node.place)
        self.out.line("return", node.place)


def is_divergent_barrier(node):
    """Say whether a node is a barrier that some threads may miss."""
    return (
        isinstance(node, ir.Primitive)
        and node.op in BLOCK_BARRIERS
        and node.is_divergent
    )


def holds(statements, operations):
    """Say whether one of the operations is somewhere in the statements."""
    return any(
        isinstance(node, ir.Primitive) and node.op in operations
        for statement in statements
        for node in ast.walk(statement)
    )
