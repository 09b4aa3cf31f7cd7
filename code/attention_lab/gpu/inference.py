"""Find the type that Numba would give to every value of a kernel.

Runs over the flattened statements until nothing new is learned, then once
more to write the results onto the nodes (attribute ``known``) and to take
notes. The rules are Numba's own, checked against Numba in the tests.
"""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

from attention_lab.gpu import ir
from attention_lab.gpu.device_names import BLOCK_BARRIERS
from attention_lab.gpu.errors import UnsupportedConstruct
from attention_lab.gpu.inference_rules import ExpressionRules, NotYetKnown
from attention_lab.gpu.values import (
    INT64,
    Array,
    Choice,
    Group,
    Number,
    describe,
    join,
    widen,
)

ROUNDS_BEFORE_WIDENING = 3
MOST_ROUNDS = 40


class Inference(ExpressionRules):
    """What is known about the values of one kernel for one shape of block.

    Parameters
    ----------
    body : flattened statements, with one variable per web
    arguments : what is known about each parameter, by name
    block : sizes of a block
    """

    def __init__(self, body, arguments, block):
        super().__init__(block)
        self.variables = dict(arguments)
        self.divergent = 0
        self.left_early = False
        self.left = 0
        self.loops = []
        self.run(body)

    def run(self, body):
        """Repeat until nothing changes, then annotate."""
        for round_number in range(MOST_ROUNDS):
            before = dict(self.variables), self.left
            self.widening = round_number >= ROUNDS_BEFORE_WIDENING
            self.pass_over(body)
            if (self.variables, self.left) == before:
                break
        self.annotating = True
        self.pass_over(body)
        if not self.has_single:
            # Nothing was made slower: float64 is all there is.
            self.notes = {
                key: sentence
                for key, sentence in self.notes.items()
                if key[0] != "accidental-float64"
            }

    def pass_over(self, body):
        """Go over all statements once."""
        self.divergent = 0
        self.left_early = False
        self.block_of(body)

    def block_of(self, statements):
        """Go over a list of statements."""
        for statement in statements:
            try:
                getattr(self, f"do_{type(statement).__name__}")(statement)
            except NotYetKnown as missing:
                if self.annotating:
                    raise UnsupportedConstruct(
                        f"`{missing.node.id}` never gets a value",
                        statement.place,
                    ) from None
            if getattr(statement, "ends_here", False):
                break  # Numba compiles nothing after `if None is None: return`

    # -- statements -----------------------------------------------------

    def set(self, name, value, place):
        """Learn one more value that a variable may have."""
        old = self.variables.get(name)
        if self.divergent and isinstance(value, Number):
            value = Number(value.dtype, value.low, value.high, True, value.why)
        try:
            new = join(old, value)
        except TypeError as error:
            raise UnsupportedConstruct(
                f"`{name}` may be {error}, so it has no single type",
                place,
                "Give each meaning a name of its own.",
            ) from None
        if old is not None and new != old and self.widening:
            new = widen(old, new)
        self.must_resolve |= isinstance(new, Choice)
        self.variables[name] = new

    def do_Assign(self, node):
        value = self.see(node.value)
        target = node.targets[0]
        if isinstance(target, ast.Name):
            self.set(target.id, value, node.place)
            if self.annotating:
                target.known = self.variables[target.id]
            return
        if isinstance(self.see(target.value), Group):
            raise UnsupportedConstruct(
                "assigning to an item of a tuple, which is constant",
                node.place,
                "Make a new tuple, or use cuda.local.array.",
            )
        element = self.see(target)
        if isinstance(element, (Array, Choice)) and not isinstance(
            value, Number
        ):
            raise UnsupportedConstruct(
                f"storing {describe(value)} in {describe(element)} at once",
                node.place,
                "Numba's CUDA target copies no arrays: loop over the elements.",
            )
        if not isinstance(value, Number):
            raise UnsupportedConstruct(
                f"storing {describe(value)} in an array element", node.place
            )

    def do_Expr(self, node):
        self.see(node.value)

    def do_If(self, node):
        node.decided = self.decided(node.test)
        if node.decided is not None:
            taken = node.body if node.decided else node.orelse
            self.block_of(taken)
            node.ends_here = bool(taken) and (
                isinstance(taken[-1], (ast.Return, ast.Break, ast.Continue))
                or getattr(taken[-1], "ends_here", False)
            )
            return
        varies = self.condition(node.test)
        self.partings += varies
        self.divergent += varies
        self.block_of(node.body)
        self.block_of(node.orelse)
        self.divergent -= varies

    def do_While(self, node):
        self.loop(node, self.condition(node.test))

    def do_For(self, node):
        varies = False
        if isinstance(node.iter, ir.Primitive):
            limits = [self.integer(a) for a in node.iter.args]
            varies = any(limit.varies for limit in limits)
            value = self.counter(limits, node.place)
            node.iter.known = Group(tuple(limits))
        else:
            value = None
            for item in self.see(node.iter).items:
                value = join(value, item)
        self.divergent += varies
        self.set(node.target.id, value, node.place)
        if self.annotating:
            node.target.known = self.variables[node.target.id]
        self.divergent -= varies
        self.loop(node, varies)

    def loop(self, node, varies):
        """Go over the body of a loop that some threads may leave early."""
        varies = varies or getattr(node, "left_by_some", False)
        self.loops.append(node)
        partings = self.partings
        self.divergent += varies
        self.block_of(node.body)
        self.divergent -= varies
        self.loops.pop()
        # Not all threads do the same on each trip.
        node.parts_inside = self.partings > partings
        self.partings += varies
        self.block_of(getattr(node, "orelse", []))

    def do_Once(self, node):
        self.loop(node, False)

    def do_Break(self, node):
        if self.divergent and not getattr(
            self.loops[-1], "left_by_some", False
        ):
            self.loops[-1].left_by_some = True
            self.left += 1

    def do_Continue(self, node):
        self.do_Break(node)

    def do_Return(self, node):
        if self.divergent:
            self.left_early = True

    # -- notes ----------------------------------------------------------

    def barrier(self, node):
        """Note a barrier that only some threads may reach."""
        if not self.annotating:
            return
        node.is_divergent = bool(self.divergent)
        if self.divergent:
            reason = "under a condition that differs between threads"
        elif self.left_early:
            reason = "after a `return` that only some threads take"
        else:
            return
        self.note(
            "conditional-barrier",
            node.place,
            f"{node.place}: this barrier stands {reason}. Every thread of "
            "the block must reach it: guard the loads and stores, not the "
            "barrier.",
        )

    def is_barrier(self, op):
        """Say whether an operation waits for the whole block."""
        return op in BLOCK_BARRIERS

    def counter(self, limits, place):
        """Return what is known about the variable of a ``range`` loop."""
        start, stop, step = 0, limits[-1], None
        zero = Number(INT64, 0, 0)
        if len(limits) == 1:
            start, stop = zero, limits[0]
        elif len(limits) == 2:
            start, stop = limits
        else:
            start, stop, step = limits
        if step is not None and step.low == step.high == 0:
            raise UnsupportedConstruct(
                "a `range` with a step of 0 never ends",
                place,
                "Use a step that is not 0.",
            )
        if step is None or step.low > 0:
            low, high = start.low, stop.high - 1
        elif step.high < 0:
            low, high = stop.low + 1, start.high
        else:
            low = min(start.low, stop.low)
            high = max(start.high, stop.high)
        unsigned = all(limit.dtype.kind == "u" for limit in limits)
        dtype = "u8" if unsigned else "i8"
        return self.made(
            dtype, low, max(low, high), any(n.varies for n in limits)
        )
