"""Reduce expressions: names become constants, calls become primitives."""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

from attention_lab.gpu import ir
from attention_lab.gpu.call_tables import ADVICE
from attention_lab.gpu.calls import CallFlattener
from attention_lab.gpu.device_names import (
    INDEX_NAMES,
    DeviceName,
    device_path,
    is_cuda_module,
)
from attention_lab.gpu.errors import UnsupportedConstruct
from attention_lab.gpu.flatten_subscripts import (
    SubscriptFlattener,
    is_settled,
)


class ExpressionFlattener(SubscriptFlattener, CallFlattener):
    """The half of the flattener that looks at expressions.

    `prelude` collects the statements that must run before the one being
    flattened: inlined functions, barriers, exchanges between lanes.
    """

    def __init__(self):
        self.prelude = []
        self.calls = []
        self.counter = 0
        self.frame = None

    def unsupported(self, what, node, advice=""):
        """Make the error for something that is not handled."""
        return UnsupportedConstruct(
            f"{what} is not handled", node.place, advice
        )

    # -- temporaries and order of evaluation ----------------------------

    def temporary(self):
        """Return a variable name that nobody else uses."""
        self.counter += 1
        return f"t_{self.counter}_"

    def saved(self, value):
        """Put a value into a variable, unless it is as simple already."""
        if isinstance(value, ast.Constant):
            return value
        return self.saved_at(len(self.prelude), value)

    def saved_at(self, position, value):
        """Put a value into a variable at an earlier place."""
        identifier = self.temporary()
        self.prelude.insert(position, ir.assign(identifier, value, value.place))
        return ir.name(identifier, value.place)

    def operands(self, nodes):
        """Flatten expressions that are evaluated from left to right.

        When a later one needs statements of its own, the earlier ones are
        saved first: otherwise they would be evaluated after it.
        """
        results = []
        for node in nodes:
            before = len(self.prelude)
            result = self.expression(node)
            if len(self.prelude) > before:
                for k, earlier in enumerate(results):
                    if not is_settled(earlier):
                        results[k] = self.saved_at(before, earlier)
                        before += 1
            results.append(result)
        return results

    # -- expressions ----------------------------------------------------

    def expression(self, node):
        """Flatten one expression."""
        method = getattr(self, f"see_{type(node).__name__}", None)
        if method is None:
            kind = " (an f-string)" if isinstance(node, ast.JoinedStr) else ""
            raise self.unsupported(f"`{ast.unparse(node)}`{kind}", node)
        return method(node)

    def see_Constant(self, node):
        literal = hasattr(node, "lineno")
        simple = (bool, int, float, str, type(None))
        if literal and not isinstance(node.value, simple):
            raise self.unsupported(f"the constant {node.value!r}", node)
        return node

    def see_Name(self, node):
        if getattr(node, "flattened", False):
            return node
        return self.finished(self.frame.resolve(node.id, node.place))

    @staticmethod
    def finished(node):
        """Turn a name such as ``cuda.threadIdx.x`` into what it computes."""
        if isinstance(node, ast.Constant):
            path = device_path(node.value)
            if path in INDEX_NAMES or path in ("laneid", "warpsize"):
                return ir.primitive(path, [], node.place)
        return node

    def see_Primitive(self, node):
        return node

    def see_Attribute(self, node):
        base = self.expression(node.value)
        if not isinstance(base, ast.Constant):
            return ir.placed(
                ast.Attribute(value=base, attr=node.attr, ctx=ast.Load()),
                node.place,
            )
        path = device_path(base.value)
        if path is not None or is_cuda_module(base.value):
            full = node.attr if path is None else f"{path}.{node.attr}"
            try:
                value = DeviceName.named(full)
            except KeyError:
                value = getattr(base.value, node.attr, None)
                if path is not None or value is None:
                    raise self.unsupported(
                        f"`cuda.{full}`", node, ADVICE.get(full, "")
                    ) from None
            return self.finished(ir.constant(value, node.place))
        if not hasattr(base.value, node.attr):
            is_ours = type(base.value).__name__ == "CudaNamespace"
            advice = ADVICE.get(node.attr, "") if is_ours else ""
            raise self.unsupported(f"`{ast.unparse(node)}`", node, advice)
        return self.finished(
            ir.constant(getattr(base.value, node.attr), node.place)
        )

    def see_Tuple(self, node):
        parts = self.operands(node.elts)
        if all(isinstance(part, ast.Constant) for part in parts):
            return ir.constant(tuple(part.value for part in parts), node.place)
        return ir.placed(ast.Tuple(elts=parts, ctx=ast.Load()), node.place)

    def see_UnaryOp(self, node):
        operand = self.expression(node.operand)
        if (
            isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
            and isinstance(operand, ast.Constant)
            and type(operand.value) in (int, float)
        ):
            return ir.constant(-operand.value, node.place)
        if isinstance(node.op, ast.Not):
            if isinstance(operand, ast.Constant):
                return ir.constant(not operand.value, node.place)
            return self.negated(operand)
        return ir.placed(ast.UnaryOp(op=node.op, operand=operand), node.place)

    def negated(self, test):
        """Return ``not test``."""
        return ir.placed(ast.UnaryOp(op=ast.Not(), operand=test), test.place)

    def see_BinOp(self, node):
        left, right = self.operands([node.left, node.right])
        return self.binary(left, node.op, right, node)

    def binary(self, left, op, right, node):
        """Return ``left op right``."""
        if isinstance(op, ast.MatMult):
            raise self.unsupported("`@` between arrays", node)
        return ir.placed(ast.BinOp(left=left, op=op, right=right), node.place)

    def see_Compare(self, node):
        before = len(self.prelude)
        values = self.operands(
            [node.left, *(as_tuple(part) for part in node.comparators)]
        )
        if len(self.prelude) > before and len(values) > 2:
            raise self.unsupported(
                "a function call inside a chain of comparisons",
                node,
                "Call it on a line before.",
            )
        if any(isinstance(op, (ast.In, ast.NotIn)) for op in node.ops):
            return self.membership(values, node)
        if any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
            return self.identity(values, node)
        return ir.placed(
            ast.Compare(left=values[0], ops=node.ops, comparators=values[1:]),
            node.place,
        )

    def membership(self, values, node):
        """Reduce ``x in (a, b)`` to ``x == a or x == b``."""
        items = self.items_of(values[-1])
        if items is None or len(values) > 2:
            raise self.unsupported(
                f"`{ast.unparse(node)}`: `in` anything but a tuple that is "
                "written out or constant",
                node,
                "Compare in a loop.",
            )
        value = self.saved(values[0])
        tests = [
            ir.placed(
                ast.Compare(left=value, ops=[ast.Eq()], comparators=[item]),
                node.place,
            )
            for item in items
        ] or [ir.constant(False, node.place)]
        found = tests[0]
        if len(tests) > 1:
            found = ir.placed(ast.BoolOp(op=ast.Or(), values=tests), node.place)
        return found if isinstance(node.ops[0], ast.In) else self.negated(found)

    def identity(self, values, node):
        """Reduce ``x is None``; what x is, its type will tell."""
        others = [
            value
            for value in values
            if not (isinstance(value, ast.Constant) and value.value is None)
        ]
        if len(others) > 1 or len(values) > 2:
            raise self.unsupported(
                f"`{ast.unparse(node)}`: `is` between values",
                node,
                "Compare numbers with ==.",
            )
        wanted = isinstance(node.ops[0], ast.Is)
        if not others or isinstance(others[0], ast.Constant):
            return ir.constant((not others) == wanted, node.place)
        test = ir.primitive("is_none", others, node.place)
        return test if wanted else self.negated(test)

    def see_NamedExpr(self, node):
        self.store(node.target, self.expression(node.value))
        return ir.name(self.frame.variable(node.target.id), node.place)

    def see_BoolOp(self, node):
        is_and = isinstance(node.op, ast.And)
        kept = []
        identifier = None
        nested = []
        for part in node.values:
            outer, self.prelude = self.prelude, []
            value = self.expression(part)
            preparation, self.prelude = self.prelude, outer
            if preparation and not kept and identifier is None:
                self.prelude.extend(preparation)
                preparation = []
            if isinstance(value, ast.Constant) and not preparation:
                if bool(value.value) != is_and:
                    kept.append(value)
                    break
                continue  # `True and x` is x
            if preparation:
                # A later operand must run only if the earlier ones say so.
                sofar = joined(kept, node)
                if identifier is None:
                    identifier = self.temporary()
                    self.prelude.append(
                        ir.assign(identifier, sofar, node.place)
                    )
                    body = self.prelude
                else:
                    body = nested[-1]
                    body.append(ir.assign(identifier, sofar, node.place))
                test = ir.name(identifier, node.place)
                inner = list(preparation)
                body.append(
                    ir.placed(
                        ast.If(
                            test=test if is_and else self.negated(test),
                            body=inner,
                            orelse=[],
                        ),
                        node.place,
                    )
                )
                nested.append(inner)
                kept = [value]
            else:
                kept.append(value)
        if not kept and identifier is None:
            return ir.constant(is_and, node.place)
        value = joined(kept, node)
        if identifier is None:
            return value
        nested[-1].append(ir.assign(identifier, value, node.place))
        return ir.name(identifier, node.place)

    def see_IfExp(self, node):
        test = self.expression(node.test)
        if isinstance(test, ast.Constant):
            return self.expression(node.body if test.value else node.orelse)
        outer = self.prelude
        branches = []
        for part in (node.body, node.orelse):
            self.prelude = []
            branches.append((self.expression(part), self.prelude))
        self.prelude = outer
        (yes, before_yes), (no, before_no) = branches
        if not before_yes and not before_no:
            return ir.placed(
                ast.IfExp(test=test, body=yes, orelse=no), node.place
            )
        identifier = self.temporary()
        self.prelude.append(
            ir.placed(
                ast.If(
                    test=test,
                    body=[*before_yes, ir.assign(identifier, yes, node.place)],
                    orelse=[*before_no, ir.assign(identifier, no, node.place)],
                ),
                node.place,
            )
        )
        return ir.name(identifier, node.place)


def as_tuple(node):
    """Return a list that is written out as a tuple, and all else as it is."""
    if isinstance(node, ast.List):
        return ir.placed(ast.Tuple(elts=node.elts, ctx=ast.Load()), node.place)
    return node


def joined(values, node):
    """Return the values joined by the operator of a BoolOp."""
    if len(values) == 1:
        return values[0]
    return ir.placed(ast.BoolOp(op=node.op, values=values), node.place)
