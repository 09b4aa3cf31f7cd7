"""Break a kernel in every small way: one change of its syntax tree each."""

import ast
import copy
import inspect
import textwrap
from dataclasses import dataclass
from typing import Any

OPERATORS = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Sub,
}
COMPARISONS = {ast.Lt: ast.LtE, ast.Gt: ast.GtE, ast.Eq: ast.NotEq}
CALLS = {"max": "min", "min": "max"}


@dataclass(frozen=True)
class Mutant:
    """A kernel with one change, and the line before and after."""

    kernel: Any
    about: str

    def __str__(self):
        return self.about


def mutants(kernel, folder):
    """Return every mutant of a kernel; their sources are kept in `folder`."""
    function = kernel.py_func
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    definition = tree.body[0]
    definition.decorator_list = []
    del definition.body[0]  # the docstring
    made = []
    for place, node in enumerate(ast.walk(tree)):
        for change in changes(node):
            other = copy.deepcopy(tree)
            changed = list(ast.walk(other))[place]
            change(changed)
            ast.fix_missing_locations(other)
            made.append(_mutant(function, tree, other, folder, len(made)))
    return made


def changes(node):
    """Yield functions that change a copy of this node in place."""
    if isinstance(node, ast.BinOp | ast.AugAssign):
        other = OPERATORS.get(type(node.op))
        if other:
            yield lambda n: setattr(n, "op", other())
    if isinstance(node, ast.Compare):
        other = COMPARISONS[type(node.ops[0])]
        yield lambda n: setattr(n, "ops", [other()])
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield lambda n: setattr(n, "value", n.value + 1)
    if isinstance(node, ast.If):
        yield lambda n: setattr(n, "test", ast.Constant(True))
    if isinstance(node, ast.Name) and node.id in CALLS:
        yield lambda n: setattr(n, "id", CALLS[n.id])
    if isinstance(node, ast.Attribute) and node.attr == "threadIdx":
        yield lambda n: setattr(n, "attr", "blockIdx")
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
        yield lambda n: n.slice.elts.reverse()
    if hasattr(node, "body") and isinstance(node.body, list):
        for k, statement in enumerate(node.body):
            if _can_go(statement):
                yield lambda n, k=k: n.body.__setitem__(k, ast.Pass())


def _can_go(statement):
    """Say whether a statement can be left out and the rest still compiles."""
    if isinstance(statement, ast.AugAssign | ast.Expr):
        return True
    return isinstance(statement, ast.Assign) and isinstance(
        statement.targets[0], ast.Subscript
    )


def _mutant(function, before, after, folder, number):
    text = ast.unparse(after) + "\n"
    path = folder / f"{function.__name__}_{number}.py"
    path.write_text(text, "utf-8")
    namespace = dict(function.__globals__)
    exec(compile(text, str(path), "exec"), namespace)
    old, new = ast.unparse(before).splitlines(), text.splitlines()
    line = next(
        (k for k, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)
    )
    about = f"{function.__name__}, line {line}: {old[line].strip()}"
    return Mutant(
        namespace[function.__name__], f"{about} -> {new[line].strip()}"
    )
