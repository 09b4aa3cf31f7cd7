"""Reduce subscripts: elements, slices, items of constants."""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

from attention_lab.gpu import ir
from attention_lab.gpu.errors import UnsupportedConstruct


class SubscriptFlattener:
    """The part of the flattener that looks at ``base[index]``."""

    def see_Subscript(self, node):
        if getattr(node, "unpacks", None):
            return node
        base, index = self.subscript_parts(node)
        if isinstance(base, ast.Constant):
            if isinstance(index, ast.Constant):
                return self.constant_item(base, index, node)
            if isinstance(base.value, tuple):
                return ir.element(base, index, node, ast.Load())
            raise self.unsupported(
                f"`{ast.unparse(node)}`: indexing a constant that is not an "
                "argument",
                node,
                "Pass the array to the kernel.",
            )
        return ir.element(base, index, node, ast.Load())

    @staticmethod
    def constant_item(base, index, node):
        """Return one item of a constant."""
        try:
            return ir.constant(base.value[index.value], node.place)
        except (IndexError, KeyError):
            what = f"`{ast.unparse(node)}`: there is no such item"
        except TypeError:
            what = f"`{ast.unparse(node.value)}` cannot be indexed so"
        raise UnsupportedConstruct(what, node.place)

    def subscript_parts(self, node, keep=False):
        """Flatten the base and the index of ``base[index]``.

        With `keep`, the index is saved so that it can be used twice.
        """
        parts = (
            node.slice.elts
            if isinstance(node.slice, ast.Tuple)
            else [node.slice]
        )
        flat = [p for p in parts if not isinstance(p, ast.Slice)]
        for part in parts:
            if isinstance(part, ast.Slice):
                flat.extend(edge for edge in (part.lower, part.upper) if edge)
                if part.step is not None:
                    raise self.unsupported("a slice with a step", node)
        values = self.operands([node.value, *flat])
        base, values = values[0], values[1:]
        # The edge of a slice is needed twice, and must be read once.
        whole = sum(not isinstance(part, ast.Slice) for part in parts)
        values[whole:] = [
            v if is_settled(v) else self.saved(v) for v in values[whole:]
        ]
        if keep:
            values = [v if is_settled(v) else self.saved(v) for v in values]
        plain, edges = iter(values[:whole]), iter(values[whole:])
        made = []
        for part in parts:
            if isinstance(part, ast.Slice):
                lower = next(edges) if part.lower else None
                upper = next(edges) if part.upper else None
                made.append(
                    ir.placed(ast.Slice(lower=lower, upper=upper), node.place)
                )
            else:
                made.append(next(plain))
        if len(made) == 1 and not isinstance(node.slice, ast.Tuple):
            return base, made[0]
        return base, ir.placed(ast.Tuple(elts=made, ctx=ast.Load()), node.place)


def is_settled(node):
    """Say whether a value cannot change before it is used."""
    return isinstance(node, (ast.Constant, ast.Name))
