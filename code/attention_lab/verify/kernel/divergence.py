"""Tell from a kernel's source why some threads never come to a barrier.

Two lines can keep a thread away: a `return` before the barrier, or a condition
or a loop around it. Either does so only if it depends on which thread asks. So
the names that depend on that are collected first: what is computed from the
thread's index, and what is assigned under a condition that is.
"""

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

#: Words of CUDA whose values differ from thread to thread.
DIFFER = {"threadIdx", "grid", "laneid", "local", "atomic", "activemask"}
BARRIERS = (
    "syncthreads",
    "syncthreads_and",
    "syncthreads_count",
    "syncthreads_or",
)


def why_divergent(
    function: Callable[..., Any], barrier_line: int, touched: list[int]
) -> str | None:
    """Return the id of the mistake, or None where the source does not say.

    Parameters
    ----------
    function : the kernel's Python function.
    barrier_line : where some threads wait.
    touched : the lines at which the thread that does not come used memory.
    """
    source, first = inspect.getsourcelines(function)
    tree = ast.parse(textwrap.dedent("".join(source)))
    ast.increment_lineno(tree, first - 1)
    kernel = _Source(tree)
    barriers = [
        node
        for node in kernel.nodes(ast.Call)
        if node.lineno == barrier_line and _word(node.func) in BARRIERS
    ]
    exits = list(kernel.nodes(ast.Return))
    if not barriers:  # it stands in a function that the kernel calls
        return None if exits else "barrier-under-condition"
    (barrier, *_) = barriers
    exits = [
        node
        for node in exits
        if (node.lineno < barrier_line or kernel.share_a_loop(node, barrier))
        and kernel.differs_around(node)
    ]
    is_guarded = kernel.differs_around(barrier)
    if exits and is_guarded:
        last = max(node.lineno for node in exits)
        if any(last < line for line in touched) and last < barrier_line:
            return "barrier-under-condition"  # it did not return
        return None
    if exits:
        return "early-return-before-barrier"
    return "barrier-under-condition" if is_guarded else None


class _Source:
    """A kernel's syntax tree, and which of its names differ by thread."""

    def __init__(self, tree: ast.AST) -> None:
        self.tree = tree
        self.parents = {
            child: node
            for node in ast.walk(tree)
            for child in ast.iter_child_nodes(node)
        }
        self.names: set[str] = set()
        before = -1
        while len(self.names) > before:
            before = len(self.names)
            for targets, value, node in self._assignments():
                if self.differs(value) or self.differs_around(node):
                    self.names |= {
                        name.id
                        for target in targets
                        for name in ast.walk(target)
                        if isinstance(name, ast.Name)
                        and isinstance(name.ctx, ast.Store)
                    }

    def nodes(self, *kinds: type) -> Iterator[Any]:
        """Give all nodes of some kinds."""
        return (n for n in ast.walk(self.tree) if isinstance(n, kinds))

    def _assignments(self) -> Iterator[tuple[list[ast.expr], ast.expr, Any]]:
        for node in self.nodes(ast.Assign):
            yield node.targets, node.value, node
        for node in self.nodes(ast.AugAssign, ast.AnnAssign, ast.NamedExpr):
            if node.value is not None:
                yield [node.target], node.value, node
        for node in self.nodes(ast.For):
            yield [node.target], node.iter, node

    def differs(self, expression: ast.expr) -> bool:
        """Whether an expression may differ from thread to thread."""
        return any(
            _word(node) in DIFFER
            or (_word(node) or "").startswith("shfl")
            or (isinstance(node, ast.Name) and node.id in self.names)
            for node in ast.walk(expression)
        )

    def differs_around(self, node: ast.AST) -> bool:
        """Whether a condition or a loop around a node differs by thread."""
        while node in self.parents:
            node, inner = self.parents[node], node
            if isinstance(node, ast.If | ast.While) and inner is not node.test:
                if self.differs(node.test):
                    return True
            elif isinstance(node, ast.For) and self.differs(node.iter):
                return True
            if isinstance(node, ast.While | ast.For) and any(
                self.differs(test) for test in self._tests_of_jumps(node)
            ):
                return True
        return False

    def _tests_of_jumps(self, loop: ast.AST) -> list[ast.expr]:
        """Return the conditions inside a loop that cut trips short."""
        return [
            node.test
            for node in ast.walk(loop)
            if isinstance(node, ast.If)
            and any(
                isinstance(inner, ast.Break | ast.Continue)
                for inner in ast.walk(node)
            )
        ]

    def share_a_loop(self, one: ast.AST, other: ast.AST) -> bool:
        """Whether two nodes stand in one loop."""
        return any(
            one in nodes and other in nodes
            for loop in self.nodes(ast.For, ast.While)
            for nodes in [set(ast.walk(loop))]
        )


def _word(node: ast.AST) -> str | None:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None
