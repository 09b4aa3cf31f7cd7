"""Reduce loops: whatever a ``for`` goes over becomes counting."""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

from attention_lab.gpu import ir
from attention_lab.gpu.errors import UnsupportedConstruct
from attention_lab.gpu.flatten_expressions import as_tuple
from attention_lab.gpu.frames import contains_return


class LoopFlattener:
    """The part of the flattener that looks at loops."""

    def do_While(self, node):
        before = len(self.prelude)
        test = self.expression(node.test)
        preparation = self.prelude[before:]
        del self.prelude[before:]
        if preparation and node.orelse:
            raise self.unsupported(
                "a function call in the condition of `while ... else`", node
            )
        body = self.loop_body(node.body)
        if preparation:
            leave = ir.placed(
                ast.If(
                    test=self.negated(test),
                    body=[ir.placed(ast.Break(), node.place)],
                    orelse=[],
                ),
                node.place,
            )
            body = [*preparation, leave, *body]
            test = ir.constant(True, node.place)
        made = ast.While(test=test, body=body, orelse=self.block(node.orelse))
        self.prelude.append(ir.placed(made, node.place))
        self.leave_if_returned(node)

    def do_For(self, node):
        iterated = self.expression(as_tuple(node.iter))
        if isinstance(iterated, ast.Constant) and isinstance(
            iterated.value, tuple
        ):
            items = [ir.constant(item, node.place) for item in iterated.value]
            iterated = ir.placed(
                ast.Tuple(elts=items, ctx=ast.Load()), node.place
            )
        target = node.target
        directly = is_primitive(iterated, "range") or isinstance(
            iterated, ast.Tuple
        )
        if directly and isinstance(target, ast.Name):
            counter = self.frame.variable(target.id)
            item = None
        elif directly:
            counter = self.temporary()
            item = ir.name(counter, node.place)
        else:
            count, item_at = self.counted(iterated, node)
            iterated = ir.primitive("range", [count], node.place)
            counter = self.temporary()
            item = item_at(ir.name(counter, node.place))
        outer, self.prelude = self.prelude, []
        if item is not None:
            self.store_item(target, item)
        first, self.prelude = self.prelude, outer
        made = ast.For(
            target=ir.name(counter, target.place, True),
            iter=iterated,
            body=[*first, *self.loop_body(node.body)],
            orelse=self.block(node.orelse),
        )
        self.prelude.append(ir.placed(made, node.place))
        self.leave_if_returned(node)

    # -- what a loop goes over ------------------------------------------

    def counted(self, iterated, node):
        """Return the length of a sequence, and a function for its items.

        An item is a node, or a list of items for several variables.
        """
        if is_primitive(iterated, "range"):
            return self.counted_range(iterated, node)
        if is_primitive(iterated, "enumerate"):
            count, inner = self.counted(iterated.args[0], node)
            start = self.saved(
                iterated.args[1]
                if len(iterated.args) == 2
                else ir.constant(0, node.place)
            )
            return count, lambda k: [self.sum_of(start, k, node), inner(k)]
        if is_primitive(iterated, "zip"):
            parts = [self.counted(part, node) for part in iterated.args]
            counts = [count for count, _ in parts]
            shortest = (
                counts[0]
                if len(counts) == 1
                else ir.primitive("min", counts, node.place)
            )
            return shortest, lambda k: [item(k) for _, item in parts]
        text = ast.unparse(node.iter)
        if isinstance(iterated, ast.Constant) and not isinstance(
            iterated.value, tuple
        ):
            raise self.unsupported(
                f"a `for` over `{text}`",
                node,
                "Loop over range(...), an array or a tuple.",
            )
        whole = self.saved(iterated)
        count = ir.primitive("len", [whole], node.place, text)

        def item_at(k):
            return ir.element(whole, k, node.iter, ast.Load())

        return count, item_at

    def counted_range(self, iterated, node):
        """Return the length of a ``range`` and a function for its items."""
        place = node.place
        start, stop, step = ir.constant(0, place), None, ir.constant(1, place)
        values = [self.saved(value) for value in iterated.args]
        if len(values) == 1:
            (stop,) = values
        elif len(values) == 2:
            start, stop = values
        else:
            start, stop, step = values
        if not isinstance(step, ast.Constant) or not step.value:
            raise self.unsupported(
                "a `range` inside enumerate(...) or zip(...) whose step is "
                "not a constant",
                node,
                "Count in the loop itself.",
            )
        ends = (start, stop) if step.value > 0 else (stop, start)
        stride = abs(step.value)
        length = self.binary(ends[1], ast.Sub(), ends[0], node)
        if stride > 1:
            rounded = self.sum_of(length, ir.constant(stride - 1, place), node)
            length = self.binary(
                rounded, ast.FloorDiv(), ir.constant(stride, place), node
            )
        return length, lambda k: self.sum_of(
            start, self.binary(k, ast.Mult(), step, node), node
        )

    def sum_of(self, left, right, node):
        """Return ``left + right``."""
        return self.binary(left, ast.Add(), right, node)

    def store_item(self, target, item):
        """Give an item of a sequence to the variables of the loop."""
        if not isinstance(target, (ast.Name, ast.Tuple, ast.List)):
            raise self.unsupported(
                f"a `for` that counts in `{ast.unparse(target)}`",
                target,
                "Use a plain variable.",
            )
        if not isinstance(item, list):
            self.store(target, item)
        elif isinstance(target, ast.Name):
            self.store(target, self.tuple_of(item, target.place))
        elif len(target.elts) != len(item):
            raise UnsupportedConstruct(
                f"unpacking {len(item)} values into {len(target.elts)} names",
                target.place,
            )
        else:
            for part, one in zip(target.elts, item, strict=True):
                self.store_item(part, one)

    def tuple_of(self, item, place):
        """Return a nested list of nodes as a tuple."""
        if not isinstance(item, list):
            return item
        elements = [self.tuple_of(one, place) for one in item]
        return ir.placed(ast.Tuple(elts=elements, ctx=ast.Load()), place)

    def loop_body(self, statements):
        self.frame.loops += 1
        body = self.block(statements)
        self.frame.loops -= 1
        return body

    def leave_if_returned(self, node):
        """After a loop, leave further if a ``return`` left the loop."""
        frame = self.frame
        if frame.result is None or not contains_return(node):
            return
        self.prelude.append(
            ir.placed(
                ast.If(
                    test=ir.name(frame.done, node.place),
                    body=[ir.placed(ast.Break(), node.place)],
                    orelse=[],
                ),
                node.place,
            )
        )


def is_primitive(node, op):
    """Say whether a node is this operation."""
    return isinstance(node, ir.Primitive) and node.op == op
