"""Right attention functions with one operation changed, made by a rule.

`mutants(count)` yields them in a fixed order. A mutant differs from its source
in one place of its syntax tree: an operator, a constant, a name, an argument,
a condition, a call. Some do the same as their source all the same.
"""

import ast
import inspect
import linecache
import textwrap
from collections.abc import Callable, Iterator
from typing import NamedTuple

import mutate_sources

BINARY = {
    ast.Add: (ast.Sub,),
    ast.Sub: (ast.Add,),
    ast.Mult: (ast.Div, ast.Add),
    ast.Div: (ast.Mult,),
    ast.FloorDiv: (ast.Mult,),
    ast.Pow: (ast.Mult,),
    ast.BitAnd: (ast.BitOr,),
}
COMPARISONS = {
    ast.Eq: (ast.NotEq,),
    ast.Gt: (ast.GtE, ast.Lt),
    ast.LtE: (ast.Lt, ast.GtE),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
}
#: One of these names may stand for another of its family.
NAMES = (
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("L", "S"),
    ("D", "D_v"),
    ("H", "H_kv"),
    ("row_max", "new_max"),
    ("row_sum", "acc"),
    ("weights", "scores"),
)
METHODS = {
    "all": "any",
    "amax": "amin",
    "exp": "exp2",
    "max": "min",
    "maximum": "minimum",
    "repeat": "tile",
    "sqrt": "square",
    "sum": "mean",
    "tril": "triu",
    "triu": "tril",
    "zeros": "ones",
}
#: Methods whose call may be forgotten: x.method(…) becomes x.
FORGOTTEN = {
    "astype",
    "expand",
    "float",
    "masked_fill",
    "repeat_interleave",
    "reshape",
    "to",
    "transpose",
    "tril",
    "triu",
}
#: Calls that mean the same with their arguments in another order.
SYMMETRIC = {"maximum", "promote_types", "swapaxes", "transpose"}
#: Wrong axes and sizes to try in the place of a whole number.
STEPS = (1, -1)


class Mutant(NamedTuple):
    """What was changed, the whole text, and the function that it defines."""

    label: str
    source: str
    function: Callable


def mutants(count: int | None = None) -> Iterator[Mutant]:
    """Yield distinct mutants of all sources; `count` takes some, evenly.

    Every mutant compiles. The order is the same on every call.
    """
    every = [mutant for source in SOURCES for mutant in _texts(source)]
    if count is not None:
        every = [every[i * len(every) // count] for i in range(count)]
    for number, (label, text, name) in enumerate(every):
        yield Mutant(label, text, _load(text, name, f"<mutant {number}>"))


SOURCES = mutate_sources.SOURCES


def _texts(source: Callable) -> list[tuple[str, str, str]]:
    """Return label, text and name of every mutant of one function."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(source)))
    seen = {ast.unparse(tree)}
    found = []
    for parent, name, index in _places(tree.body[0]):
        node = _get(parent, name, index)
        for new in _changes(node):
            _put(parent, name, index, new)
            text = ast.unparse(ast.fix_missing_locations(tree))
            _put(parent, name, index, node)
            if text in seen:
                continue
            seen.add(text)
            change = f"{_one_line(node)} → {_one_line(new)}"
            place = f"line {node.lineno}:{node.col_offset}"
            label = f"{source.__name__}, {place}: {change}"
            found.append((label, text, source.__name__))
    return found


def _one_line(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 76 else f"{text[:75]}…"


def _places(function: ast.FunctionDef) -> list[tuple[ast.AST, str, int | None]]:
    """Return where each node of the body hangs: parent, field, index."""
    places: list[tuple[ast.AST, str, int | None]] = []
    todo: list[tuple[ast.AST, str]] = [(function, "body")]
    while todo:
        parent, name = todo.pop(0)
        child = getattr(parent, name)
        many = isinstance(child, list)
        for index, node in enumerate(child if many else [child]):
            if isinstance(node, ast.AST):
                places.append((parent, name, index if many else None))
                todo += [(node, field) for field in node._fields]
    return places


def _get(parent: ast.AST, name: str, index: int | None) -> ast.AST:
    child = getattr(parent, name)
    return child if index is None else child[index]


def _put(parent: ast.AST, name: str, index: int | None, node: ast.AST) -> None:
    if index is None:
        setattr(parent, name, node)
    else:
        getattr(parent, name)[index] = node


def _load(text: str, name: str, file: str) -> Callable:
    """Run the text in the sources' namespace; its lines can be inspected."""
    linecache.cache[file] = (len(text), None, text.splitlines(True), file)
    scope = dict(vars(mutate_sources), __name__="mutant")
    exec(compile(text, file, "exec"), scope)
    return scope[name]


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in a node's place."""
    if isinstance(node, ast.BinOp):
        yield from _binary(node)
    elif isinstance(node, ast.Compare):
        for kind in COMPARISONS.get(type(node.ops[0]), ()):
            yield ast.Compare(node.left, [kind()], node.comparators)
    elif isinstance(node, ast.BoolOp):
        yield from node.values
    elif isinstance(node, ast.UnaryOp):
        yield node.operand
    elif isinstance(node, ast.Constant):
        yield from map(ast.Constant, _constants(node.value))
    elif isinstance(node, ast.Name):
        yield from _names(node)
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.If):
        yield from _branches(node)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(node.test, node.orelse, node.body)
        yield node.body
        yield node.orelse
    elif isinstance(node, ast.Slice):
        yield from _slices(node)
    elif isinstance(node, ast.Tuple) and _is_ordered(node):
        yield from _swapped(node)
    elif isinstance(node, ast.Assign) and _is_update(node):
        yield ast.Pass()


def _binary(node: ast.BinOp) -> Iterator[ast.AST]:
    for kind in BINARY.get(type(node.op), ()):
        yield ast.BinOp(node.left, kind(), node.right)
    if isinstance(node.op, ast.MatMult | ast.Sub | ast.Div | ast.FloorDiv):
        yield ast.BinOp(node.right, node.op, node.left)
    yield node.left
    yield node.right


def _constants(value: object) -> Iterator[object]:
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + step for step in STEPS)
    elif isinstance(value, float):
        yield value + 1.0
        if value:
            yield -value
    elif isinstance(value, str) and "->" in value:
        inputs, output = value.split("->")
        first, second = inputs.split(",")
        yield f"{second},{first}->{output}"
        yield f"{inputs}->{output[:-2]}{output[-1]}{output[-2]}"
        yield f"{inputs}->{output[0]}{output[2]}{output[1]}{output[3:]}"


def _names(node: ast.Name) -> Iterator[ast.AST]:
    if isinstance(node.ctx, ast.Load):
        for family in NAMES:
            if node.id in family:
                others = (name for name in family if name != node.id)
                yield from (ast.Name(name, ast.Load()) for name in others)


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    function = node.func
    if isinstance(function, ast.Attribute):
        if function.attr in FORGOTTEN:
            yield function.value
        if function.attr in METHODS:
            other = ast.Attribute(
                function.value, METHODS[function.attr], ast.Load()
            )
            yield ast.Call(other, node.args, node.keywords)
    is_symmetric = getattr(function, "attr", "") in SYMMETRIC
    for i in range(0 if is_symmetric else len(node.args) - 1):
        args = list(node.args)
        args[i], args[i + 1] = args[i + 1], args[i]
        yield ast.Call(function, args, node.keywords)
    for keyword in node.keywords:
        rest = [k for k in node.keywords if k is not keyword]
        yield ast.Call(function, node.args, rest)


def _branches(node: ast.If) -> Iterator[ast.AST]:
    yield ast.If(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    yield ast.If(node.test, [ast.Pass()], node.orelse)
    if node.orelse:
        yield ast.If(node.test, node.body, [])
        yield ast.If(node.test, node.orelse, node.body)


def _slices(node: ast.Slice) -> Iterator[ast.AST]:
    if node.lower is not None:
        yield ast.Slice(None, node.upper, node.step)
    if node.upper is not None:
        yield ast.Slice(node.lower, None, node.step)


def _is_ordered(node: ast.Tuple) -> bool:
    """Whether the order matters: not in a target, nor where only `in` asks."""
    is_dtypes = all(isinstance(elt, ast.Attribute) for elt in node.elts)
    return isinstance(node.ctx, ast.Load) and not is_dtypes


def _swapped(node: ast.Tuple) -> Iterator[ast.AST]:
    for i in range(len(node.elts) - 1):
        elts = list(node.elts)
        elts[i], elts[i + 1] = elts[i + 1], elts[i]
        yield ast.Tuple(elts, ast.Load())


def _is_update(node: ast.Assign) -> bool:
    """Whether a name gets a value made from its own: x = f(x)."""
    names = {n.id for n in ast.walk(node.targets[0]) if isinstance(n, ast.Name)}
    used = {n.id for n in ast.walk(node.value) if isinstance(n, ast.Name)}
    return bool(names & used)
