"""Reduce a kernel to the small language of `ir`, statement by statement."""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

from attention_lab.gpu import ir
from attention_lab.gpu.errors import UnsupportedConstruct
from attention_lab.gpu.flatten_expressions import ExpressionFlattener
from attention_lab.gpu.frames import Frame, contains_return, count_returns
from attention_lab.gpu.kernel_source import KernelSource
from attention_lab.gpu.loops import LoopFlattener


class Flattener(LoopFlattener, ExpressionFlattener):
    """Turns one kernel into a list of simple statements.

    Parameters
    ----------
    function : the plain Python function of the kernel
    """

    def __init__(self, function):
        super().__init__()
        self.source = KernelSource(function)
        definition = self.source.definition
        self.parameters = plain_parameters(definition)
        self.labels = {}  # what the reader calls the names of inlined code
        self.frame = Frame(self.source, definition)
        self.body = self.block(definition.body)

    # -- statements -----------------------------------------------------

    def block(self, statements):
        """Flatten statements; each brings its preparations before it."""
        outer = self.prelude
        self.prelude = []
        for statement in statements:
            method = getattr(self, f"do_{type(statement).__name__}", None)
            if method is None:
                raise self.unsupported(
                    f"a `{keyword(statement)}` statement", statement
                )
            method(statement)
        done, self.prelude = self.prelude, outer
        return done

    def do_Pass(self, node):
        pass

    def do_Break(self, node):
        self.prelude.append(node)

    def do_Continue(self, node):
        self.do_Break(node)

    def do_Assert(self, node):
        said = f"`{ast.unparse(node.test)}` is not true here"
        if isinstance(node.msg, ast.Constant):
            said += f" ({node.msg.value})"
        made = ast.If(
            test=self.negated(self.expression(node.test)),
            body=[self.stopped(said, node)],
            orelse=[],
        )
        self.prelude.append(ir.placed(made, node.place))

    def do_Raise(self, node):
        what = "" if node.exc is None else f" {ast.unparse(node.exc)}"
        self.prelude.append(self.stopped(f"it raises{what}", node))

    @staticmethod
    def stopped(said, node):
        """Return a statement that stops the thread with an error."""
        made = ir.primitive("stopped", [], node.place, said)
        return ir.placed(ast.Expr(value=made), node.place)

    def do_FunctionDef(self, node):
        if node.decorator_list:
            raise self.unsupported("a decorated function in a kernel", node)
        if node.name in self.frame.functions:
            raise self.unsupported(
                f"a second function with the name `{node.name}`",
                node,
                "Give each a name of its own.",
            )
        defaults = [self.saved(d) for d in self.operands(node.args.defaults)]
        for default in defaults:
            default.flattened = True
        self.frame.functions[node.name] = ir.LocalFunction(
            node, self.frame, defaults
        )

    def named_lambda(self, target, node):
        """Define ``name = lambda ...`` as the function that it is."""
        answer = ir.placed(ast.Return(value=node.body), node.place)
        made = ast.FunctionDef(
            name=target.id, args=node.args, body=[answer], decorator_list=[]
        )
        self.do_FunctionDef(ir.placed(made, node.place))

    def do_Expr(self, node):
        if isinstance(node.value, ast.Constant):
            return  # a docstring, or `...`
        value = self.expression(node.value)
        if not isinstance(value, (ast.Constant, ast.Name)):
            self.prelude.append(ir.placed(ast.Expr(value=value), node.place))

    def do_AnnAssign(self, node):
        if node.value is None:
            return  # a declaration without a value says nothing to Numba
        self.store(node.target, self.expression(node.value))

    def do_Assign(self, node):
        first = node.targets[0]
        if isinstance(node.value, ast.Lambda) and isinstance(first, ast.Name):
            self.named_lambda(first, node.value)
            return
        pair = (ast.Tuple, ast.List)
        if (
            len(node.targets) == 1
            and isinstance(first, pair)
            and isinstance(node.value, pair)
            and len(first.elts) == len(node.value.elts)
        ):
            values = self.operands(node.value.elts)
            if len(values) > 1:
                values = [self.saved(value) for value in values]
            for target, value in zip(first.elts, values, strict=True):
                self.store(target, value)
            return
        value = self.expression(node.value)
        if len(node.targets) > 1 or isinstance(first, pair):
            value = self.saved(value)
        for target in node.targets:
            self.store(target, value)

    def do_AugAssign(self, node):
        target = node.target
        if isinstance(target, ast.Name):
            load = ir.name(target.id, target.place)
            left, right = self.operands([load, node.value])
            self.store(target, self.binary(left, node.op, right, node))
            return
        if not isinstance(target, ast.Subscript):
            raise self.unsupported("this target of an assignment", node)
        base, index = self.subscript_parts(target, keep=True)
        load = ir.element(base, index, target, ast.Load())
        before = len(self.prelude)
        right = self.expression(node.value)
        if len(self.prelude) > before:
            load = self.saved_at(before, load)
        self.prelude.append(
            assignment(
                ir.element(base, index, target, ast.Store()),
                self.binary(load, node.op, right, node),
                node.place,
            )
        )

    def store(self, target, value):
        """Emit ``target = value``."""
        place = target.place
        if isinstance(target, ast.Name):
            identifier = self.frame.variable(target.id)
            if isinstance(value, ir.Primitive):
                value.label = target.id
            self.prelude.append(ir.assign(identifier, value, place))
        elif isinstance(target, (ast.Tuple, ast.List)):
            whole = self.saved(value)
            for position, part in enumerate(target.elts):
                index = ir.constant(position, place)
                item = ir.element(whole, index, target, ast.Load())
                item.unpacks = len(target.elts)
                self.store(part, item)
        elif isinstance(target, ast.Subscript):
            before = len(self.prelude)
            base, index = self.subscript_parts(target)
            if len(self.prelude) > before:
                value = self.saved_at(before, value)
            self.prelude.append(
                assignment(
                    ir.element(base, index, target, ast.Store()),
                    value,
                    place,
                )
            )
        else:
            raise self.unsupported(
                f"assigning to a `{keyword(target)}`", target
            )

    def do_If(self, node):
        test = self.expression(node.test)
        if isinstance(test, ast.Constant):
            taken = node.body if test.value else node.orelse
            self.prelude.extend(self.block(taken))
            return
        made = ast.If(
            test=test,
            body=self.block(node.body),
            orelse=self.block(node.orelse),
        )
        self.prelude.append(ir.placed(made, node.place))

    # -- functions ------------------------------------------------------

    def do_Return(self, node):
        frame = self.frame
        if frame.result is None:
            value = node.value
            if value is not None and not (
                isinstance(value, ast.Constant) and value.value is None
            ):
                raise self.unsupported(
                    "a kernel that returns a value",
                    node,
                    "Kernels return nothing; store into an array.",
                )
            self.prelude.append(ir.placed(ast.Return(value=None), node.place))
            return
        value = (
            ir.constant(None, node.place)
            if node.value is None
            else self.expression(node.value)
        )
        self.prelude.append(ir.assign(frame.result, value, node.place))
        if frame.returns_at_end:
            return
        if frame.loops:
            frame.leaves_loop = True
            self.prelude.append(
                ir.assign(frame.done, ir.constant(True, node.place), node.place)
            )
        self.prelude.append(ir.placed(ast.Break(), node.place))

    def inline(self, frame, arguments, place):
        """Put a function's body here and return its result."""
        if any(
            frame.definition.place == f.definition.place for f in self.calls
        ):
            raise UnsupportedConstruct(
                f"`{frame.definition.name}` calls itself",
                place,
                "Write the recursion as a loop.",
            )
        frame.labels = self.labels
        if frame.result is not None:
            called = f"{frame.definition.name}(...)"
            self.labels[frame.result] = called
        for parameter, value in arguments:
            self.prelude.append(
                ir.assign(frame.variable(parameter), value, place)
            )
        outer, self.frame = self.frame, frame
        self.calls.append(frame)
        body = frame.definition.body
        returns = contains_return(frame.definition)
        frame.returns_at_end = count_returns(
            frame.definition
        ) == 1 and isinstance(body[-1], ast.Return)
        nothing = ir.constant(None, place)
        if not returns or frame.returns_at_end:
            self.prelude.extend(self.block(body))
        else:
            self.prelude.append(
                ir.assign(frame.done, ir.constant(False, place), place)
            )
            once = ir.Once(body=self.block(body))
            self.prelude.append(ir.placed(once, place))
        self.calls.pop()
        self.frame = outer
        return ir.name(frame.result, place) if returns else nothing


def plain_parameters(definition):
    """Return the names of a function's parameters; refuse ``*args``."""
    arguments = definition.args
    if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
        raise UnsupportedConstruct(
            "`*args`, `**kwargs` and keyword-only parameters",
            definition.place,
            "Name every parameter.",
        )
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args)]


def assignment(target, value, place):
    """Make an assignment to any target."""
    target.place = place
    return ir.placed(ast.Assign(targets=[target], value=value), place)


def keyword(node):
    """Return the word a reader knows for a kind of syntax."""
    return {
        "AsyncFor": "async for",
        "ClassDef": "class",
        "Delete": "del",
        "ImportFrom": "import",
        "NamedExpr": ":=",
        "ListComp": "list comprehension",
        "GeneratorExp": "generator expression",
        "JoinedStr": "f-string",
    }.get(type(node).__name__, type(node).__name__.lower())
