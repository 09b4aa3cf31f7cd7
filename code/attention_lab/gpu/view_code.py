"""The text of views: what is left of an array after subscripts."""

import ast
from dataclasses import replace

from attention_lab.gpu.sites import Unproven, UnprovenPart
from attention_lab.gpu.values import Array, At, Group, Span, Whole, exactly


class ViewEmitter:
    """The part of an emitter that writes views and parts of tuples."""

    def size(self, array, axis, codes):
        """Return the code for the length of one axis of a view."""
        if isinstance(array.axes[axis], Span):
            return codes[axis][1]
        return self.full_size(array, axis)

    def full_size(self, array, axis):
        """Return the code for the length of one axis of the memory."""
        if array.shape[axis] is not None:
            return str(array.shape[axis])
        return f"{array.name}__n{axis}"

    def view(self, node):
        """Return an array value and the code for each axis it has changed.

        The code is None for an untouched axis, text for a fixed index, and
        a pair of texts (start, length) for a part.
        """
        known = node.known
        if isinstance(node, ast.Name):
            codes = []
            for k, axis in enumerate(known.axes):
                stem = f"{node.id}__{k}"
                names = {Whole: (), At: (stem,), Span: (stem, stem + "n")}
                parts = names[type(axis)]
                if getattr(node, "may_be_unset", False):
                    parts = tuple(self.if_set(node, part) for part in parts)
                codes.append(parts if len(parts) > 1 else (*parts, None)[0])
            return known, codes
        if isinstance(node, ast.Subscript):
            return self.sliced(node)
        return known, [None] * len(known.axes)

    def sliced(self, node):
        """Return the view that a subscript makes."""
        array, codes = self.view(node.value)
        codes = list(codes)
        axes = list(array.axes)
        for axis, (part, text, index) in zip(
            array.free, self.parts(node), strict=False
        ):
            size = self.size(array, axis, codes)
            size_known = (
                axes[axis].length
                if isinstance(axes[axis], Span)
                else exactly(array.shape[axis])
                if array.shape[axis] is not None
                else None
            )
            if isinstance(part, ast.Slice):
                if part.lower is None and part.upper is None:
                    continue
                codes[axis] = self.part_of_axis(codes[axis], part, size)
                axes[axis] = (
                    node.known.axes[axis]
                    if isinstance(node.known, Array)
                    else axes[axis]
                )
                continue
            if index.low == index.high < 0:
                # Numba counts a negative index from the end, on a GPU too.
                back = -int(index.low)
                text = f"({size} - {back} if {size} >= {back} else -{back})"
                if size_known is not None:
                    index = replace(
                        index,
                        low=size_known.low - back,
                        high=size_known.high - back,
                    )
            inside = (
                size_known is not None
                and index.low >= 0
                and index.high < size_known.low
            )
            codes[axis] = self.index_on(axes[axis], codes[axis], text, inside)
            axes[axis] = At(index)
        if getattr(node.value, "may_be_unset", False):
            self.guard_whole(node.value, codes)
        known = node.known
        if not isinstance(known, Array):
            known = Array(
                array.name,
                array.label,
                array.space,
                array.dtype,
                array.shape,
                tuple(axes),
            )
        return known, codes

    def guard_whole(self, node, codes):
        """Let the first index fail if the name stands for no array yet."""
        if all(isinstance(axis, Whole) for axis in node.known.axes):
            first = next(k for k, code in enumerate(codes) if code is not None)
            code = codes[first]
            if isinstance(code, tuple):
                codes[first] = (self.if_set(node, code[0]), code[1])
            else:
                codes[first] = type(code)(self.if_set(node, code))

    def item(self, node):
        """Return the text of one item of a tuple."""
        base = node.value
        if isinstance(node.slice, ast.Slice):
            first, last = (
                "" if edge is None else self.code(edge)
                for edge in (node.slice.lower, node.slice.upper)
            )
            return f"{self.code(base)}[{first}:{last}]"
        if (
            isinstance(base, ast.Attribute)
            and base.attr == "shape"
            and isinstance(node.slice, ast.Constant)
        ):
            array, codes = self.view(base.value)
            axis = array.free[node.slice.value]
            return self.size(array, axis, codes)
        return f"{self.code(base)}[{self.code(node.slice)}]"

    def parts(self, node):
        """Yield (node, code, known) for every part of an index."""
        index = node.slice
        if isinstance(index, ast.Tuple):
            parts = index.elts
        elif isinstance(index, ast.Slice):
            parts = [index]
        elif isinstance(index.known, Group):
            whole = self.code(index)
            for k, item in enumerate(index.known.items):
                yield index, f"{whole}[{k}]", item
            return
        else:
            parts = [index]
        for part in parts:
            if isinstance(part, ast.Slice):
                yield part, None, None
            else:
                yield part, self.code(part), part.known

    def index_on(self, axis, code, text, inside):
        """Return the code of an index into an axis, perhaps a part of one."""
        if not isinstance(axis, Span):
            return text if inside else Unproven(text)
        start, length = code
        if inside:
            return f"({start} + {text})"
        return self.part_index(text, start, length)

    def part_index(self, text, start, length):
        """Return the code of an index that may miss a part of an axis."""
        made = UnprovenPart(self.span(text, start, length))
        made.parts = (text, start, length)
        return made

    def part_of_axis(self, code, part, size):
        """Return (start, length) of the part that a slice selects."""
        lower = "0" if part.lower is None else self.code(part.lower)
        upper = size if part.upper is None else self.code(part.upper)
        start = f"__edge({lower}, {size})"
        length = f"__length({lower}, {upper}, {size})"
        if code is not None:
            start = f"({code[0]} + {start})"
        return start, length
