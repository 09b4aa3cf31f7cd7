"""Reduce calls: Numba's device functions, Python's, and the user's own."""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast
import math
import types

import numpy as np

from attention_lab.gpu import ir
from attention_lab.gpu.device_names import (
    BLOCK_BARRIERS,
    WARP_OPERATIONS,
    device_path,
    dtype_of,
)
from attention_lab.gpu.errors import KernelError
from attention_lab.gpu.frames import Frame
from attention_lab.gpu.kernel_source import (
    KernelSource,
    mark_places,
    python_function,
)

BUILTINS = {
    range: "range",
    min: "min",
    max: "max",
    abs: "abs",
    len: "len",
    int: "int",
    float: "float",
    bool: "bool",
    round: "round",
    pow: "pow",
    print: "print",
}
MATH = {
    getattr(math, name): f"math.{name}"
    for name in [
        "acos",
        "acosh",
        "asin",
        "asinh",
        "atan",
        "atan2",
        "atanh",
        "ceil",
        "copysign",
        "cos",
        "cosh",
        "erf",
        "erfc",
        "exp",
        "exp2",
        "expm1",
        "fabs",
        "floor",
        "fmod",
        "gamma",
        "hypot",
        "isfinite",
        "isinf",
        "isnan",
        "lgamma",
        "log",
        "log10",
        "log1p",
        "log2",
        "pow",
        "radians",
        "degrees",
        "sin",
        "sinh",
        "sqrt",
        "tan",
        "tanh",
        "trunc",
    ]
}
NUMPY = {
    np.exp: "math.exp",
    np.exp2: "math.exp2",
    np.log: "math.log",
    np.log2: "math.log2",
    np.sqrt: "math.sqrt",
    np.sin: "math.sin",
    np.cos: "math.cos",
    np.tanh: "math.tanh",
    np.abs: "abs",
    np.fabs: "math.fabs",
}
TAKES = {
    "syncthreads": (0, 0),
    "syncthreads_count": (1, 1),
    "syncthreads_and": (1, 1),
    "syncthreads_or": (1, 1),
    "syncwarp": (0, 1),
    "shfl_sync": (3, 3),
    "shfl_up_sync": (3, 3),
    "shfl_down_sync": (3, 3),
    "shfl_xor_sync": (3, 3),
    "ballot_sync": (2, 2),
    "all_sync": (2, 2),
    "any_sync": (2, 2),
    "fma": (3, 3),
    "selp": (3, 3),
}


class CallFlattener:
    """The part of the flattener that looks at calls."""

    def see_Call(self, node):
        if any(isinstance(a, ast.Starred) for a in node.args) or any(
            keyword.arg is None for keyword in node.keywords
        ):
            raise self.unsupported("`*` or `**` in a call", node)
        function = self.expression(node.func)
        if not isinstance(function, ast.Constant):
            raise self.unsupported(f"calling `{ast.unparse(node.func)}`", node)
        called = function.value
        path = device_path(called)
        if path is not None:
            return self.device_call(path, node)
        if isinstance(called, ir.LocalFunction):
            return self.user_call(
                called.definition, called.frame.source, called.frame, (), node
            )
        if self.is_device_function(called):
            source = KernelSource(python_function(called))
            defaults = source.function.__defaults__ or ()
            return self.user_call(
                source.definition, source, None, defaults, node
            )
        dtype = dtype_of(called)
        if dtype is not None and not (
            isinstance(called, type) and called in BUILTINS
        ):
            return self.simple_call("cast", node, dtype)
        try:
            op = BUILTINS.get(called) or MATH.get(called) or NUMPY.get(called)
        except TypeError:
            op = None
        if op is not None:
            return self.simple_call(op, node)
        if isinstance(called, types.FunctionType):
            raise self.unsupported(
                f"calling `{ast.unparse(node.func)}`, a plain Python function,",
                node,
                "Decorate it with @cuda.jit(device=True).",
            )
        raise self.unsupported(f"calling `{ast.unparse(node.func)}`", node)

    @staticmethod
    def is_device_function(called):
        """Say whether a call goes to the body of another function."""
        if isinstance(called, types.FunctionType):
            return False
        try:
            python_function(called)
        except KernelError:
            return False
        return True

    def simple_call(self, op, node, detail=None):
        """Reduce a call that becomes one expression."""
        if node.keywords:
            raise self.unsupported(
                f"a keyword argument of `{ast.unparse(node.func)}`", node
            )
        arguments = self.operands(node.args)
        made = ir.primitive(op, arguments, node.place, detail)
        if op == "print":
            # A statement of its own, and worth nothing afterwards.
            self.prelude.append(ir.placed(ast.Expr(value=made), node.place))
            return ir.constant(None, node.place)
        return made

    def device_call(self, path, node):
        """Reduce a call of something in ``cuda``."""
        if path in ("shared.array", "local.array"):
            return self.allocation(path, node)
        names = {"syncwarp": ["mask"]}.get(path, [])
        arguments = list(node.args)
        for keyword in node.keywords:
            if keyword.arg not in names:
                raise self.unsupported(
                    f"the argument `{keyword.arg}` of cuda.{path}", node
                )
            arguments.append(keyword.value)
        if path in TAKES:
            least, most = TAKES[path]
            if not least <= len(arguments) <= most:
                raise self.unsupported(
                    f"cuda.{path} with {len(arguments)} arguments", node
                )
        if path.startswith("threadfence"):
            reach = "threadfence" if path == "threadfence_system" else path
            return ir.primitive("threadfence", [], node.place, reach)
        if path.startswith("atomic."):
            return self.atomic(path, arguments, node)
        made = ir.primitive(path, self.operands(arguments), node.place)
        if path not in BLOCK_BARRIERS and path not in WARP_OPERATIONS:
            return made
        made.detail = ast.unparse(node)
        if path in ("syncthreads", "syncwarp"):
            self.prelude.append(ir.placed(ast.Expr(value=made), node.place))
            return ir.constant(None, node.place)
        identifier = self.temporary()
        self.prelude.append(ir.assign(identifier, made, node.place))
        return ir.name(identifier, node.place)

    def atomic(self, path, arguments, node):
        """Reduce ``cuda.atomic.op(array, index, ...)``."""
        op = path.removeprefix("atomic.")
        if op == "compare_and_swap":
            # compare_and_swap(array, old, value) works on element 0.
            arguments.insert(1, ast.copy_location(ast.Constant(0), node))
            arguments[1].place = node.place
            op = "cas"
        expected = 4 if op == "cas" else 3
        if len(arguments) != expected:
            raise self.unsupported(
                f"cuda.{path} with {len(arguments)} arguments", node
            )
        made = ir.primitive("atomic", self.operands(arguments), node.place, op)
        made.column = node.column
        return made

    def allocation(self, path, node):
        """Reduce ``cuda.shared.array(shape, dtype)``."""
        given = dict(zip(("shape", "dtype"), node.args, strict=False))
        given.update({k.arg: k.value for k in node.keywords})
        given.pop("alignment", None)
        if set(given) != {"shape", "dtype"}:
            raise self.unsupported(
                f"cuda.{path} without a shape and a dtype", node
            )
        shape = self.expression(given["shape"])
        dtype = self.expression(given["dtype"])
        sizes = shape.value if isinstance(shape, ast.Constant) else None
        sizes = sizes if isinstance(sizes, tuple) else (sizes,)
        if not all(
            isinstance(size, (int, np.integer)) and size >= 0 for size in sizes
        ):
            raise self.unsupported(
                f"the shape `{ast.unparse(given['shape'])}` of a "
                f"{path.split('.')[0]} array",
                node,
                "A GPU needs its size when it compiles: use a constant from "
                "the module or from the function around the kernel.",
            )
        kind = dtype_of(dtype.value) if isinstance(dtype, ast.Constant) else 0
        if not isinstance(kind, np.dtype):
            raise self.unsupported(
                f"the dtype `{ast.unparse(given['dtype'])}`", node
            )
        made = ir.primitive(path, [], node.place)
        # One line of source is one piece of memory, however often inlined.
        made.detail = (
            tuple(int(size) for size in sizes),
            kind,
            (node.place.file, node.lineno, node.col_offset),
        )
        return made

    def user_call(self, definition, source, outer, defaults, node):
        """Put the body of a called function in the place of the call."""
        if outer is not None and not hasattr(definition, "place"):
            mark_places(definition, source.file, source.name, 1, source.text)
        from_definition = definition.args
        parameters = [
            a.arg for a in (*from_definition.posonlyargs, *from_definition.args)
        ]
        if from_definition.vararg or from_definition.kwarg:
            raise self.unsupported("`*args` in a device function", node)
        given = dict(zip(parameters, node.args, strict=False))
        for keyword in node.keywords:
            given[keyword.arg] = keyword.value
        first_default = len(parameters) - len(defaults)
        for parameter, value in zip(
            parameters[first_default:], defaults, strict=True
        ):
            given.setdefault(parameter, ir.constant(value, node.place))
        if len(node.args) > len(parameters) or set(given) != set(parameters):
            raise self.unsupported(
                f"this call of `{definition.name}({', '.join(parameters)})`: "
                "its arguments do not fit and that",
                node,
            )
        values = self.operands([given[p] for p in parameters])
        self.counter += 1
        frame = Frame(source, definition, outer=outer, number=self.counter)
        return self.inline(
            frame, list(zip(parameters, values, strict=True)), node.place
        )
