"""The text of calls: thread indices, mathematics, functions of Python."""

# Methods are named after the operations that they handle.
# ruff: noqa: D102

from attention_lab.gpu.device_names import AXES, INDEX_NAMES
from attention_lab.gpu.values import FLOAT32, FLOAT64, Group, Number


class PrimitiveEmitter:
    """The part of an emitter that writes primitives."""

    def of_Primitive(self, node):
        op = node.op
        if op in INDEX_NAMES:
            return self.index_name(op)
        if op.startswith("math."):
            return self.mathematics(op.removeprefix("math."), node)
        return getattr(self, "of_" + op)(node)

    def index_name(self, op):
        """Return the text of ``threadIdx.x`` and its like."""
        base, axis = op.split(".")
        if base == "blockDim":
            return str(self.block_sizes[AXES.index(axis)])
        return f"__{base[0]}{axis}"

    def of_grid(self, node):
        texts = [
            f"(__b{axis} * {self.block_sizes[k]} + __t{axis})"
            for k, axis in enumerate(AXES[: node.detail])
        ]
        return texts[0] if node.detail == 1 else f"({', '.join(texts)})"

    def of_gridsize(self, node):
        texts = [
            f"(__g{axis} * {self.block_sizes[k]})"
            for k, axis in enumerate(AXES[: node.detail])
        ]
        return texts[0] if node.detail == 1 else f"({', '.join(texts)})"

    def of_laneid(self, node):
        return "(__thread % 32)"

    def of_lanemask_lt(self, node):
        return "((1 << __thread % 32) - 1)"

    def of_warpsize(self, node):
        return "32"

    def of_is_none(self, node):
        return repr(node.known.low == 1)

    def of_len(self, node):
        argument = node.args[0]
        if isinstance(argument.known, Group):
            return str(len(argument.known.items))
        array, codes = self.view(argument)
        return self.size(array, array.free[0], codes)

    def of_cast(self, node):
        return self.as_type(node.args[0], node.known.dtype)

    of_int = of_cast
    of_float = of_cast
    of_bool = of_cast

    def extreme(self, node, helper):
        """Return the text of ``min`` or ``max``."""
        texts = [self.fitting(a, node.known) for a in node.args]
        if not node.known.is_float:
            return f"{node.op}({', '.join(texts)})"
        made = texts[0]
        for text in texts[1:]:
            made = f"{helper}({made}, {text})"
        return made

    def of_max(self, node):
        return self.extreme(node, "__larger")

    def of_min(self, node):
        return self.extreme(node, "__smaller")

    def of_round(self, node):
        if len(node.args) == 2:
            number, digits = node.args
            text = self.as_type(number, FLOAT64)
            made = f"__round_to({text}, {self.count(digits)})"
            return self.convert(made, Number(FLOAT64), node.known.dtype)
        return f"__round({self.code(node.args[0])})"

    def of_fma(self, node):
        texts = [self.as_type(a, FLOAT64) for a in node.args]
        made = f"({texts[0]} * {texts[1]} + {texts[2]})"
        return self.convert(made, Number(FLOAT64), node.known.dtype)

    def of_selp(self, node):
        test, yes, no = node.args
        yes, no = self.fitting(yes, node.known), self.fitting(no, node.known)
        return f"({yes} if {self.code(test)} else {no})"

    def of_print(self, node):
        return f"print({', '.join(self.code(a) for a in node.args)})"

    def mathematics(self, name, node):
        """Return the text of a function of ``math``."""
        if name in ("floor", "ceil", "trunc") and not (
            node.args[0].known.is_float
        ):
            return self.as_type(node.args[0], node.known.dtype)
        if name in ("floor", "ceil", "trunc", "isnan", "isinf", "isfinite"):
            return f"__{name}({self.code(node.args[0])})"
        dtype = node.known.dtype
        # float16 has no functions of its own: Numba takes float32's.
        bits = 64 if dtype == FLOAT64 else 32
        work = FLOAT64 if dtype == FLOAT64 else FLOAT32
        texts = [self.as_type(a, work) for a in node.args]
        made = f"__{name}{bits}({', '.join(texts)})"
        return self.convert(made, Number(work), dtype)
