"""Mutants: right modules in which one thing was changed by a script."""

import ast
import copy
import inspect
import itertools
import re
from collections.abc import Iterator

import correct_modules

#: The classes whose `forward` is changed.
SUBJECTS = (
    "TimmStyle",
    "NanoGptStyle",
    "Head",
    "LoopOverHeads",
    "EinopsStyle",
    "AnnotatedStyle",
    "ValuesFirst",
    "SdpaWrapper",
    "BareMatrices",
    "Gpt2Style",
)
OTHER_OPERATOR = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
OTHER_NAME = {
    "q": "k",
    "k": "v",
    "v": "q",
    "query": "key",
    "key": "value",
    "value": "query",
    "queries": "keys",
    "keys": "values",
    "values": "keys",
    "context": "x",
}
OTHER_LAYER = {
    "q_proj": "k_proj",
    "k_proj": "v_proj",
    "v_proj": "q_proj",
    "W_q": "W_k",
    "W_k": "W_v",
    "W_v": "W_q",
    "w_q": "w_k",
    "w_k": "w_v",
    "w_v": "w_q",
}


def mutants() -> Iterator[tuple[str, str, str]]:
    """Yield (class, what was changed, source of the module with the change)."""
    source = inspect.getsource(correct_modules)
    tree = ast.parse(source)
    for kind in tree.body:
        if not isinstance(kind, ast.ClassDef) or kind.name not in SUBJECTS:
            continue
        forward = next(
            part
            for part in kind.body
            if isinstance(part, ast.FunctionDef) and part.name == "forward"
        )
        for number, node in enumerate(ast.walk(forward)):
            for changed in _changes(node):
                line = getattr(node, "lineno", forward.lineno)
                what = f"{ast.unparse(node)} -> {ast.unparse(changed)}"
                place = f"line {line - kind.lineno}: {what}"
                yield kind.name, place, _with(tree, kind, number, changed)


def _with(tree: ast.Module, kind: ast.ClassDef, number: int, new) -> str:
    """Return the source with the numbered node of `forward` replaced."""
    twin = copy.deepcopy(tree)
    name = kind.name
    kind = next(part for part in twin.body if getattr(part, "name", "") == name)
    forward = next(
        part for part in kind.body if getattr(part, "name", "") == "forward"
    )
    old = list(ast.walk(forward))[number]

    class Replace(ast.NodeTransformer):
        def visit(self, node):
            return new if node is old else self.generic_visit(node)

    Replace().visit(forward)
    return ast.unparse(ast.fix_missing_locations(twin))


def _changes(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in a node's place."""
    match node:
        case ast.BinOp(op=ast.MatMult()):
            yield ast.BinOp(node.right, node.op, node.left)
        case ast.BinOp() if type(node.op) in OTHER_OPERATOR:
            yield ast.BinOp(
                node.left, OTHER_OPERATOR[type(node.op)](), node.right
            )
        case ast.UnaryOp(op=ast.USub() | ast.Invert()):
            yield node.operand
        case ast.Compare(ops=[op]) if type(op) in OTHER_OPERATOR:
            new = copy.deepcopy(node)
            new.ops = [OTHER_OPERATOR[type(op)]()]
            yield new
        case ast.IfExp():
            yield ast.IfExp(node.test, node.orelse, node.body)
        case ast.Name(id=name, ctx=ast.Load()) if name in OTHER_NAME:
            yield ast.Name(OTHER_NAME[name], ast.Load())
        case ast.Attribute(attr=name) if name in OTHER_LAYER:
            yield ast.Attribute(node.value, OTHER_LAYER[name], ast.Load())
        case ast.Call(func=ast.Attribute(attr="transpose", value=inner)):
            yield inner
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
            yield ast.Constant(value - 1)
        case ast.Constant(value=float(value)) if value:
            yield ast.Constant(2 * value)
            yield ast.Constant(-value)
        case ast.Constant(value=str(text)) if "->" in text:
            yield from map(ast.Constant, _patterns(text))


def _patterns(text: str) -> Iterator[str]:
    """Yield einops and einsum patterns in which two letters changed places."""
    left, right = text.split("->")
    for side in (left, right):
        letters = list(re.finditer(r"[a-z]", side))
        for one, two in itertools.pairwise(letters):
            new = list(side)
            new[one.start()], new[two.start()] = two[0], one[0]
            new = "".join(new)
            yield f"{new}->{right}" if side is left else f"{left}->{new}"
