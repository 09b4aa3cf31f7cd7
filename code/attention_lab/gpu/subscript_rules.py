"""Numba's typing rules for elements, slices and items of tuples."""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast
from dataclasses import replace

from attention_lab.gpu.values import (
    BOOL,
    INT64,
    Array,
    At,
    Choice,
    Group,
    Number,
    Span,
    describe,
    exactly,
    join,
    number,
)


class SubscriptRules:
    """The part of the inference that looks at ``base[index]``."""

    def see_Subscript(self, node):
        base = self.see(node.value)
        if isinstance(base, Group):
            return self.item(base, node)
        if isinstance(base, Choice):
            return self.over(base, lambda one: self.indexed(one, node))
        return self.indexed(base, node)

    def indexed(self, base, node):
        """Return what is known about a subscript of one value."""
        if not isinstance(base, Array):
            many = getattr(node, "unpacks", None)
            raise self.refuse(
                f"indexing {describe(base)}"
                if many is None
                else f"unpacking {describe(base)} into {many} names",
                node,
            )
        parts = index_parts(node, self.see)
        free = base.free
        if len(parts) > len(free):
            raise self.refuse(
                f"{len(parts)} indices for `{base.label}`, which has "
                f"{len(free)} axes",
                node,
            )
        axes = list(base.axes)
        for axis, part in zip(free, parts, strict=False):
            view = axes[axis]
            if isinstance(part, ast.Slice):
                axes[axis] = self.cut(base, axis, part)
                continue
            index = part if isinstance(part, Number) else self.integer(part)
            if index.is_float:
                raise self.refuse("a floating-point number as an index", node)
            if index.dtype == BOOL:
                raise self.refuse(
                    "a bool as an index", node, "Write int(...) around it."
                )
            if isinstance(view, Span):
                index = Number(
                    INT64,
                    view.start.low + index.low,
                    view.start.high + index.high,
                    view.start.varies or index.varies,
                )
            axes[axis] = At(index)
        array = replace(base, axes=tuple(axes))
        if array.free:
            return array
        varies = base.space == "local" or any(
            axis.index.varies for axis in array.axes
        )
        return number(base.dtype, varies)

    def item(self, group, node):
        """Return one item of a tuple."""
        count = getattr(node, "unpacks", None)
        if count is not None and count != len(group.items):
            raise self.refuse(
                f"unpacking {len(group.items)} values into {count} names", node
            )
        if isinstance(node.slice, ast.Slice):
            return self.part_of_tuple(group, node)
        if isinstance(node.slice, ast.Tuple):
            raise self.refuse(
                f"{len(node.slice.elts)} indices for a tuple", node
            )
        position = self.integer(node.slice)
        if position.low != position.high:
            return self.any_item(group, position, node)
        count = len(group.items)
        if not -count <= position.low < count:
            raise self.refuse(
                f"this tuple has {count} items, numbered from 0, and no "
                f"item {int(position.low)}",
                node,
            )
        return group.items[int(position.low)]

    def any_item(self, group, position, node):
        """Return one item of a tuple, known only when the kernel runs."""
        items = group.items
        if len({kind_of(item) for item in items} - {None}) != 1:
            raise self.refuse(
                "a tuple whose items differ in type, indexed by something "
                "that is not constant",
                node,
            )
        result = items[0]
        for item in items[1:]:
            result = join(result, item)
        if isinstance(result, Number) and position.varies:
            result = replace(result, varies=True)
        return result

    def part_of_tuple(self, group, node):
        """Return the tuple that a slice with constant edges selects."""
        edges = []
        for edge in (node.slice.lower, node.slice.upper):
            known = None if edge is None else self.integer(edge)
            if known is not None and known.low != known.high:
                raise self.refuse(
                    "a tuple cut by something that is not constant", node
                )
            edges.append(known and int(known.low))
        return Group(group.items[slice(*edges)])

    def cut(self, array, axis, part):
        """Return the view of an axis that a slice makes."""
        view = array.axes[axis]
        edges = [
            exactly(0) if part.lower is None else self.integer(part.lower),
            self.size(array, axis)
            if part.upper is None
            else self.integer(part.upper),
        ]
        start, stop = edges
        if part.lower is None and part.upper is None:
            return view
        size = self.size(array, axis)
        low = max(start.low, 0) if start.low >= 0 else 0
        first = number(
            INT64, start.varies, low, min(max(start.high, low), size.high)
        )
        longest = max(0, min(stop.high, size.high) - first.low)
        shortest = 0
        if start.low >= 0 and stop.low >= 0:
            shortest = max(0, min(stop.low, size.low) - first.high)
        length = number(INT64, start.varies or stop.varies, shortest, longest)
        if isinstance(view, Span):
            first = number(
                INT64,
                first.varies or view.start.varies,
                view.start.low + first.low,
                view.start.high + first.high,
            )
        return Span(first, length)


def kind_of(value):
    """Return the type of a number or of a tuple of numbers, or None."""
    if isinstance(value, Number):
        return value.dtype
    if isinstance(value, Group):
        kinds = tuple(kind_of(item) for item in value.items)
        return None if None in kinds else kinds
    return None


def index_parts(node, see):
    """Return the parts of an index: numbers, slices, nodes.

    A variable that holds a tuple counts as its items.
    """
    index = node.slice
    if isinstance(index, ast.Tuple):
        return list(index.elts)
    if isinstance(index, ast.Slice):
        return [index]
    known = see(index)
    if isinstance(known, Group):
        return list(known.items)
    return [index]
