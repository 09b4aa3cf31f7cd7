"""Reduce calls: Numba's device functions, Python's, and the user's own."""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast
import types

import numpy as np

from attention_lab.gpu import ir
from attention_lab.gpu.arguments import KINDS
from attention_lab.gpu.call_tables import (
    BUILTINS,
    MANY,
    MATH,
    NOT_CALLED,
    NUMPY,
    ONE,
    TAKES,
)
from attention_lab.gpu.device_names import (
    BLOCK_BARRIERS,
    WARP_OPERATIONS,
    device_path,
    dtype_of,
    named_dtype,
)
from attention_lab.gpu.errors import KernelError, UnsupportedConstruct
from attention_lab.gpu.frames import Frame
from attention_lab.gpu.kernel_source import (
    KernelSource,
    mark_places,
    python_function,
)


class CallFlattener:
    """The part of the flattener that looks at calls."""

    def see_Call(self, node):
        if any(isinstance(a, ast.Starred) for a in node.args) or any(
            keyword.arg is None for keyword in node.keywords
        ):
            raise self.unsupported("`*` or `**` in a call", node)
        function = self.expression(node.func)
        if isinstance(function, ir.Primitive) and not function.args:
            raise UnsupportedConstruct(
                f"`cuda.{function.op}` is not a function",
                node.place,
                f"Write cuda.{function.op} without parentheses.",
            )
        if not isinstance(function, ast.Constant):
            raise self.unsupported(f"calling `{ast.unparse(node.func)}`", node)
        called = function.value
        path = device_path(called)
        if path is not None:
            return self.device_call(path, node)
        if isinstance(called, ir.LocalFunction):
            return self.user_call(
                called.definition,
                called.frame.source,
                called.frame,
                called.defaults,
                node,
            )
        if self.is_device_function(called):
            source = KernelSource(python_function(called))
            defaults = [
                ir.constant(value, node.place)
                for value in source.function.__defaults__ or ()
            ]
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
        self.check_count(ast.unparse(node.func), op, node.args, node)
        arguments = self.operands(node.args)
        if op in ("divmod", "pow", "sum", "min", "max", "float"):
            composed = self.composed(op, arguments, node)
            if composed is not None:
                return composed
        made = ir.primitive(op, arguments, node.place, detail)
        if op == "print":
            # A statement of its own, and worth nothing afterwards.
            self.prelude.append(ir.placed(ast.Expr(value=made), node.place))
            return ir.constant(None, node.place)
        return made

    @staticmethod
    def check_count(name, op, given, node, takes=None):
        """Refuse a call with too few or too many arguments."""
        least, most = takes or TAKES.get(op, ONE)
        if least <= len(given) <= most:
            return
        wanted = str(least) if least == most else f"{least} to {most}"
        if most == MANY:
            wanted = f"at least {least}"
        raise UnsupportedConstruct(
            f"`{name}` takes {wanted} argument{'s' * (wanted != '1')}, and "
            f"{len(given)} {'was' if len(given) == 1 else 'were'} given",
            node.place,
        )

    def composed(self, op, arguments, node):
        """Return a call that operators can express, or None."""
        if op == "pow":
            return self.binary(arguments[0], ast.Pow(), arguments[1], node)
        if op == "divmod":
            a, b = (self.saved(value) for value in arguments)
            parts = [
                self.binary(a, ast.FloorDiv(), b, node),
                self.binary(a, ast.Mod(), b, node),
            ]
            made = ast.Tuple(elts=parts, ctx=ast.Load())
            return ir.placed(made, node.place)
        if op == "float":
            return self.float_of_text(arguments[0], node)
        items = self.items_of(arguments[0])
        if op == "sum":
            if items is None:
                raise self.unsupported(
                    f"`{ast.unparse(node)}`",
                    node,
                    "Add the elements in a loop.",
                )
            total = [*arguments[1:], ir.constant(0, node.place)][0]
            for item in items:
                total = self.binary(total, ast.Add(), item, node)
            return total
        if len(arguments) > 1 or not items:
            return None
        if len(items) == 1:
            return items[0]
        return ir.primitive(op, items, node.place)

    @staticmethod
    def items_of(node):
        """Return the items of a tuple that is written out, or None."""
        if isinstance(node, ast.Tuple):
            return node.elts
        if isinstance(node, ast.Constant) and isinstance(node.value, tuple):
            return [ir.constant(item, node.place) for item in node.value]
        return None

    @staticmethod
    def float_of_text(argument, node):
        """Return ``float("inf")`` and the like as a constant, or None."""
        text = argument.value if isinstance(argument, ast.Constant) else None
        if not isinstance(text, str):
            return None
        try:
            return ir.constant(float(text), node.place)
        except ValueError:
            raise UnsupportedConstruct(
                f"`{ast.unparse(node)}` is not a number", node.place
            ) from None

    def device_call(self, path, node):
        """Reduce a call of something in ``cuda``."""
        if path in ("shared.array", "local.array"):
            return self.allocation(path, node)
        names = {
            "syncwarp": ["mask"],
            "grid": ["ndim"],
            "gridsize": ["ndim"],
        }.get(path, [])
        arguments = list(node.args)
        for keyword in node.keywords:
            if keyword.arg not in names:
                raise self.unsupported(
                    f"the argument `{keyword.arg}` of cuda.{path}", node
                )
            arguments.append(keyword.value)
        if path.startswith("atomic."):
            return self.atomic(path, arguments, node)
        if path in NOT_CALLED:
            raise UnsupportedConstruct(
                f"`cuda.{path}` is not a function", node.place, NOT_CALLED[path]
            )
        self.check_count(f"cuda.{path}", path, arguments, node)
        if path == "nanosleep":
            return ir.constant(None, node.place)  # time does not pass here
        if path == "cbrt":
            path = "math.cbrt"
        if path.startswith("threadfence"):
            reach = "threadfence" if path == "threadfence_system" else path
            return ir.primitive("threadfence", [], node.place, reach)
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
        count = 4 if op == "cas" else 3
        self.check_count(f"cuda.{path}", op, arguments, node, (count, count))
        if op == "compare_and_swap":
            # compare_and_swap(array, old, value) works on element 0.
            arguments.insert(1, ast.copy_location(ast.Constant(0), node))
            arguments[1].place = node.place
            op = "cas"
        made = ir.primitive("atomic", self.operands(arguments), node.place, op)
        made.column = node.column
        return made

    def allocation(self, path, node):
        """Reduce ``cuda.shared.array(shape, dtype)``."""
        given = dict(zip(("shape", "dtype"), node.args, strict=False))
        given.update({k.arg: k.value for k in node.keywords})
        given.pop("alignment", None)
        if set(given) != {"shape", "dtype"} or len(node.args) > 2:
            raise UnsupportedConstruct(
                f"`cuda.{path}` needs a shape and a dtype",
                node.place,
                f"Write cuda.{path}(32, float32) or "
                f"cuda.{path}((8, 8), float32).",
            )
        sizes = self.constant_value(given["shape"])
        dtype = self.expression(given["dtype"])
        sizes = sizes if isinstance(sizes, tuple) else (sizes,)
        # A shared array of size 0 is the dynamic one; nothing else is empty.
        dynamic = path == "shared.array" and sizes == (0,)
        if not sizes or not all(
            isinstance(size, (int, np.integer)) and (size > 0 or dynamic)
            for size in sizes
        ):
            raise self.unsupported(
                f"the shape `{ast.unparse(given['shape'])}` of a "
                f"{path.split('.')[0]} array",
                node,
                "A GPU needs its size when it compiles: use a constant from "
                "the module or from the function around the kernel.",
            )
        kind = dtype.value if isinstance(dtype, ast.Constant) else None
        kind = named_dtype(kind) if isinstance(kind, str) else dtype_of(kind)
        if not isinstance(kind, np.dtype) or kind.char not in KINDS:
            raise UnsupportedConstruct(
                f"`{ast.unparse(given['dtype'])}` is not the type of an "
                "array's elements",
                node.place,
                "Use float32, int32 and so on, from numba, or np.float32.",
            )
        made = ir.primitive(path, [], node.place)
        # One line of source is one piece of memory, however often inlined.
        made.detail = (
            tuple(int(size) for size in sizes),
            kind,
            (node.place.file, node.lineno, node.col_offset),
        )
        return made

    def constant_value(self, node):
        """Return the value of an expression that Numba takes as a constant.

        Those are constants, and variables that are set once, to a constant;
        None for all else. Arithmetic counts between literals only.
        """
        if isinstance(node, ast.Tuple):
            return tuple(self.constant_value(part) for part in node.elts)
        if isinstance(node, ast.Name):
            value = self.frame.only_value(node.id)
            if value is not None:
                return self.constant_value(value)
        if isinstance(node, ast.BinOp):
            return folded(node)
        found = self.expression(node)
        return found.value if isinstance(found, ast.Constant) else None

    def user_call(self, definition, source, outer, defaults, node):
        """Put the body of a called function in the place of the call."""
        if outer is not None and not hasattr(definition, "place"):
            mark_places(definition, source.file, source.name, 1, source.text)
        from_definition = definition.args
        parameters = [
            a.arg for a in (*from_definition.posonlyargs, *from_definition.args)
        ]
        if from_definition.kwarg or from_definition.kwonlyargs:
            raise self.unsupported(
                f"`{definition.name}`: `**` or a parameter that is given by "
                "name only, in a device function,",
                node,
            )
        rest = node.args[len(parameters) :] if from_definition.vararg else []
        given = dict(zip(parameters, node.args, strict=False))
        for keyword in node.keywords:
            given[keyword.arg] = keyword.value
        first_default = len(parameters) - len(defaults)
        for parameter, value in zip(
            parameters[first_default:], defaults, strict=True
        ):
            given.setdefault(parameter, value)
        named = {keyword.arg for keyword in node.keywords}
        if (
            len(node.args) - len(rest) > len(parameters)
            or set(given) != set(parameters)
            or named & set(parameters[: len(node.args)])
        ):
            raise UnsupportedConstruct(
                "the arguments do not fit "
                f"`{definition.name}({', '.join(parameters)})`",
                node.place,
            )
        if from_definition.vararg:
            parameters.append(from_definition.vararg.arg)
            packed = ast.Tuple(elts=rest, ctx=ast.Load())
            given[parameters[-1]] = ir.placed(packed, node.place)
        values = self.operands([given[p] for p in parameters])
        self.counter += 1
        frame = Frame(source, definition, outer=outer, number=self.counter)
        return self.inline(
            frame, list(zip(parameters, values, strict=True)), node.place
        )


def folded(node):
    """Return what Python makes of arithmetic between literals, or None."""
    if any(
        not isinstance(part, (ast.Constant, ast.BinOp, ast.operator))
        for part in ast.walk(node)
    ):
        return None
    expression = ast.Expression(body=node)
    try:
        return eval(compile(expression, "<constant>", "eval"), {})
    except ArithmeticError:
        return None
