"""Find the loops that wait for another thread, or for nothing at all.

Here a thread runs until its next barrier before another gets a turn, and
the blocks run one after the other. So ``while flag[0] == 0: pass`` would
hang. A `while` loop is understood to be endless when no trip can differ
from the one before. That is decided from the source, as follows.

- What ends the loop is its condition, and every condition around a
  ``break``, ``continue`` or ``return`` in it. Add whatever the variables in
  them are computed from.
- None of these variables may carry something from trip to trip that it
  itself helped to compute, as ``n`` does in ``n += 1``.
- If memory is read for it, the loop may not change that memory. Operations
  that change nothing when repeated are allowed: ``atomic.add(a, i, 0)``, and
  cas, exch, max and min with the same value on every trip.

Such a loop is given up after `ENOUGH` trips: by then every variable has its
last value. If it also waits for other threads, these may still change its
condition, so it may go on until `limits.most_waits`; and any other loop
until `limits.most_trips`.
"""

import ast
from dataclasses import dataclass

from attention_lab.gpu import ir
from attention_lab.gpu.device_names import BLOCK_BARRIERS, WARP_OPERATIONS
from attention_lab.gpu.kernel_source import Place
from attention_lab.gpu.limits import TRIPS_VARIABLE
from attention_lab.gpu.values import Array

ENOUGH = 1 << 10
REPEATABLE = ("cas", "exch", "max", "min")
WAITS = (*BLOCK_BARRIERS, *WARP_OPERATIONS)
LEAVES = (ast.Break, ast.Continue, ast.Return)
LOOPS = (ast.While, ast.For)


class Endless(Exception):  # noqa: N818 - a signal, not an error
    """Raised by a kernel, with the number of the loop."""


@dataclass(frozen=True)
class Loop:
    """A `while` loop, and after how many trips it is given up.

    Attributes
    ----------
    place : its line
    reads : names of the arrays that its end depends on
    is_endless : whether no trip can differ from the one before
    most_trips : the limit
    """

    place: Place
    reads: tuple
    is_endless: bool
    most_trips: int


def judged(node, most_trips, most_waits):
    """Return the `Loop` of an annotated ``while`` statement.

    Parameters
    ----------
    node : the statement
    most_trips : the limit of a loop that may well end
    most_waits : the limit of one that only other threads can end
    """
    loop = _Analysis(node)
    if not loop.is_endless():
        return Loop(node.place, (), False, most_trips)
    reads = tuple(sorted({array.label for array in loop.reads.values()}))
    if loop.waits and (reads or loop.asks_others):
        return Loop(node.place, reads, False, most_waits)
    return Loop(node.place, reads, True, ENOUGH)


def sentence(loop, who):
    """Return what to say about a loop that was given up.

    Parameters
    ----------
    loop : the `Loop`
    who : the thread and its block, in words
    """
    start = f"{loop.place}: {who} "
    if loop.reads:
        arrays = " and ".join(f"`{name}`" for name in loop.reads)
        text = (
            f"{start}waits in this loop for another thread to change "
            f"{arrays}, but no other thread gets a turn: here the threads of "
            "a block take turns only at barriers, and the blocks run one "
            "after the other. On a GPU such a spin ends only if the thread "
            "it waits for is resident and gets to run, and else deadlocks: "
            "wait with cuda.syncthreads() inside a block, and with a second "
            "launch for other blocks."
        )
    elif loop.is_endless:
        return (
            f"{start}never leaves this loop: nothing in it changes what "
            "would end it. A GPU would run it for ever."
        )
    else:
        text = (
            f"{start}made {loop.most_trips} trips of this loop and is given "
            "up. Does anything in it bring its end nearer?"
        )
    if not loop.is_endless:
        text += (
            f" If it only needs longer, set the environment variable "
            f"{TRIPS_VARIABLE} to a larger number of trips."
        )
    return text


class _Analysis:
    """What one loop does, and what its end depends on."""

    def __init__(self, node):
        self.node = node
        self.needs = {}  # variable -> what its value is computed from
        self.carried = set()  # variables that a trip may read from the last
        self.ends = []  # expressions that decide whether the loop ends
        self.changes = []  # (array, node): stores and atomic operations
        self.waits = False
        self.reads = {}
        self.asks_others = False
        self.look_at(node.test)
        self.ends.append(node.test)
        self.walk(node.body, [])
        self.find_carried(node.test, set())
        self.follow(node.body, set())

    # -- what is computed from what -------------------------------------

    def walk(self, statements, around):
        """Collect what the statements do, under the conditions `around`."""
        for node in statements:
            if isinstance(node, LEAVES):
                continue
            for expression in expressions_of(node):
                self.look_at(expression)
            if isinstance(node, ast.Assign):
                self.assign(node, around)
            tests = conditions_of(node)
            if isinstance(node, ast.For):
                self.need(node.target.id, [*tests, *around])
            if isinstance(node, ast.While) or any(
                leaves(inner) for inner in ast.walk(node)
            ):
                self.ends.extend(tests)
            for body in bodies_of(node):
                self.walk(body, [*around, *tests])

    def assign(self, node, around):
        """Note an assignment."""
        target = node.targets[0]
        if isinstance(target, ast.Name):
            self.need(target.id, [node.value, *around])
        else:
            array = target.value.known
            self.changes.append((array, None))

    def need(self, name, expressions):
        """Note what a variable is computed from."""
        self.needs.setdefault(name, []).extend(expressions)

    def look_at(self, expression):
        """Note the atomic operations and the waits in an expression."""
        for node in ast.walk(expression):
            if isinstance(node, ir.Primitive):
                self.waits |= node.op in WAITS
                if node.op == "atomic" and not adds_nothing(node):
                    self.changes.append((node.args[0].known, node))

    # -- what a trip takes over from the one before ---------------------

    def find_carried(self, expression, surely):
        """Note the variables that may be read before the trip sets them."""
        for node in ast.walk(expression):
            if isinstance(node, ast.Name) and node.id not in surely:
                self.carried.add(node.id)

    def follow(self, statements, surely):
        """Return which variables are surely set after the statements.

        None if the statements never get to their end.
        """
        for node in statements:
            if leaves(node):
                return None
            for expression in expressions_of(node):
                self.find_carried(expression, surely)
            if isinstance(node, ast.If):
                ways = [
                    self.follow(body, set(surely)) for body in bodies_of(node)
                ]
                ways = [way for way in ways if way is not None]
                if not ways:
                    return None
                surely = set.intersection(*ways)
                continue
            if isinstance(node, ast.For):
                inside = {*surely, node.target.id}
                self.follow(node.body, inside)
                self.follow(node.orelse, set(surely))
                continue
            for body in bodies_of(node):
                self.follow(body, set(surely))
            if isinstance(node, ast.Assign):
                target = node.targets[0]
                if isinstance(target, ast.Name):
                    surely = {*surely, target.id}
        return surely

    # -- the verdict ----------------------------------------------------

    def is_endless(self):
        """Say whether no trip can differ from the one before."""
        names = self.closure(self.ends)
        if any(
            name in self.carried and name in self.closure(self.needs[name])
            for name in names
            if name in self.needs
        ):
            return False
        return all(self.is_repeatable(*change) for change in self.changes)

    def closure(self, expressions):
        """Return all variables that the expressions are computed from.

        Keeps the arrays whose elements they read in `reads`.
        """
        found = set()
        pending = list(expressions)
        while pending:
            for node in ast.walk(pending.pop()):
                if isinstance(node, ast.Name) and node.id not in found:
                    found.add(node.id)
                    pending.extend(self.needs.get(node.id, ()))
                self.note_read(node)
        return found

    def note_read(self, node):
        """Keep the array of which an expression reads an element."""
        if isinstance(node, ast.Subscript):
            array = node.value.known
            if isinstance(array, Array) and not isinstance(node.known, Array):
                self.reads[array.name] = array
        elif isinstance(node, ir.Primitive):
            if node.op == "atomic":
                array = node.args[0].known
                self.reads[array.name] = array
            self.asks_others |= node.op in WAITS

    def is_repeatable(self, array, operation):
        """Say whether a store cannot change what the end depends on."""
        spaces = {known.space for known in self.reads.values()}
        # Two arguments may be the same memory.
        if array.name not in self.reads and not (
            array.space == "global" and "global" in spaces
        ):
            return True
        if operation is None or operation.detail not in REPEATABLE:
            return False
        # The memory it reads is not allowed to decide what is stored.
        before, self.reads = self.reads, {}
        names = self.closure(operation.args[1:])
        reads, self.reads = self.reads, before
        moves = any(
            name in self.carried and name in self.closure(self.needs[name])
            for name in names
            if name in self.needs
        )
        return not reads and not moves


def adds_nothing(node):
    """Say whether an atomic operation is only a way to read."""
    value = node.args[-1]
    if isinstance(value, ast.Constant):
        return node.detail in ("add", "sub") and value.value == 0
    known = value.known
    return (
        node.detail in ("add", "sub")
        and not known.is_float
        and known.low == known.high == 0
    )


def leaves(node):
    """Say whether nothing follows a statement in its trip."""
    return isinstance(node, LEAVES) or ir.stops(node)


def conditions_of(node):
    """Return what decides whether the inner statements run."""
    if isinstance(node, (ast.If, ast.While)):
        return [node.test]
    return [node.iter] if isinstance(node, ast.For) else []


def expressions_of(node):
    """Return the expressions of a statement, without those inside it."""
    if isinstance(node, ast.Assign):
        target = node.targets[0]
        if isinstance(target, ast.Name):
            return [node.value]
        return [node.value, target.value, target.slice]
    if isinstance(node, ast.Expr):
        return [node.value]
    return conditions_of(node)


def bodies_of(node):
    """Return the lists of statements inside a statement."""
    if isinstance(node, (ast.If, *LOOPS)):
        return [node.body, node.orelse]
    return [node.body] if isinstance(node, ir.Once) else []
