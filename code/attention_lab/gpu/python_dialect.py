"""Write the memory accesses of a kernel for the interpreter.

Shared and local arrays are flat Python lists, several times faster to
index than NumPy arrays; global arrays stay NumPy's. Where the bounds prove
an index inside, no check is written.
"""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import ast

import numpy as np

from attention_lab.gpu import ir
from attention_lab.gpu.device_names import WARP_OPERATIONS
from attention_lab.gpu.loop_code import holds
from attention_lab.gpu.scalar_code import ScalarEmitter
from attention_lab.gpu.sites import SITE_BITS, Unproven, row_major
from attention_lab.gpu.values import (
    BOOL,
    FLOAT16,
    FLOAT32,
    Group,
    Number,
)

GRID = ("__gx", "__gy", "__gz")
INDICES = ("__tx", "__ty", "__tz", "__bx", "__by", "__bz", "__thread")


class PythonEmitter(ScalarEmitter):
    """Writes a kernel as a Python generator or function."""

    engine = "python"

    def element(self, node):
        """Return (array, index texts, whether all are proven inside)."""
        array, codes = self.view(node)
        proven = not any(isinstance(code, Unproven) for code in codes)
        return array, codes, proven

    def flat(self, array, codes):
        """Return the text of the place of an element in a flat list."""
        terms = []
        for step, code, size in zip(
            row_major([n or 0 for n in array.shape]),
            codes,
            array.shape,
            strict=True,
        ):
            if isinstance(code, Unproven):
                code = f"__at({code}, {self.length_of(array, size)})"
            if code == "0":
                continue
            terms.append(code if step == 1 else f"{code} * {step}")
        return " + ".join(terms) or "0"

    @staticmethod
    def length_of(array, size):
        """Return the text of a length, also of dynamic shared memory."""
        return str(size) if size is not None else f"{array.name}__n0"

    # -- loads ----------------------------------------------------------

    def of_Subscript(self, node):
        if isinstance(node.value.known, Group):
            return self.item(node)
        array, codes, proven = self.element(node)
        if not self.recorded:
            return self.plain_load(array, codes)
        site = self.site(node, array, "read")
        if array.space != "global" and proven:
            place = self.fresh()
            return (
                f"(__log(({place} := {self.flat(array, codes)}) "
                f"<< {SITE_BITS} | {site}), {array.name}[{place}])[1]"
            )
        return self.checked("load", array, codes, site)

    def plain_load(self, array, codes):
        """Return the text of a load that nobody records."""
        if array.space != "global":
            return f"{array.name}[{self.flat(array, codes)}]"
        if array.dtype in (FLOAT32, FLOAT16):
            return f"{array.name}[{', '.join(codes)}]"
        return f"{array.name}.item({', '.join(codes)})"

    def checked(self, what, array, codes, *more):
        """Return the text of a recorded access with all its checks."""
        kind = "global" if array.space == "global" else "list"
        sizes = [
            self.full_size(array, axis) for axis in range(len(array.shape))
        ]
        many = len(codes)
        arguments = [array.name, *sizes, *codes, *map(str, more)]
        return f"__{kind}_{what}{many}({', '.join(arguments)})"

    # -- stores ---------------------------------------------------------

    def store(self, target, value, place):
        array, codes, proven = self.element(target)
        if self.updates(target, value) and array.space != "global" and proven:
            self.update(array, codes, target, value, place)
            return
        text = self.as_type(value, array.dtype)
        if array.dtype == BOOL:
            text = f"bool({text})"
        self.store_at(array, codes, text, target, place)

    def store_at(self, array, codes, text, target, place):
        proven = not any(isinstance(code, Unproven) for code in codes)
        site = self.site(target, array, "write")
        if self.recorded:
            if array.space != "global" and proven:
                where = self.fresh()
                # The value first: it may itself touch memory.
                self.out.line(f"__v = {text}", place)
                self.out.line(f"{where} = {self.flat(array, codes)}", place)
                self.out.line(f"__log({where} << {SITE_BITS} | {site})", place)
                self.out.line(f"{array.name}[{where}] = __v", place)
                return
            self.out.line(
                self.checked("store", array, codes, text, site), place
            )
        elif array.space == "global":
            self.out.line(f"{array.name}[{', '.join(codes)}] = {text}", place)
        else:
            self.out.line(
                f"{array.name}[{self.flat(array, codes)}] = {text}", place
            )

    @staticmethod
    def updates(target, value):
        """Say whether this is ``a[i] = a[i] op x``, written as ``op=``."""
        return (
            isinstance(value, ast.BinOp)
            and isinstance(value.left, ast.Subscript)
            and value.left.slice is target.slice
        )

    def update(self, array, codes, target, value, place):
        """Write an update that finds its element once."""
        where = self.fresh()
        self.out.line(f"{where} = {self.flat(array, codes)}", place)
        load = f"{array.name}[{where}]"
        if self.recorded:
            read = self.site(value.left, array, "read")
            load = f"(__log({where} << {SITE_BITS} | {read}), {load})[1]"
        loaded = Literal(load, value.left.known)
        made = ast.BinOp(left=loaded, op=value.op, right=value.right)
        made.known = value.known
        text = self.as_type(made, array.dtype)
        if self.recorded:
            write = self.site(target, array, "write")
            self.out.line(f"__v = {text}", place)
            self.out.line(f"__log({where} << {SITE_BITS} | {write})", place)
            text = "__v"
        self.out.line(f"{array.name}[{where}] = {text}", place)

    def of_atomic(self, node):
        array, codes = self.view(element_of(node))
        kind = "global" if array.space == "global" else "list"
        site = self.site(node, array, node.detail)
        sizes = [
            self.full_size(array, axis) for axis in range(len(array.shape))
        ]
        values = [self.as_type(v, array.dtype) for v in node.args[2:]]
        operation = node.detail
        if operation in ("add", "sub") and array.dtype.kind in "iu":
            operation += f"_{array.dtype.name}"
        return (
            f"__{kind}_atomic({array.name}, ({', '.join(sizes)},), "
            f"({', '.join(codes)},), __{operation}, ({', '.join(values)},), "
            f"{site})"
        )

    def mark(self, code, place):
        self.out.line(f"__log({code})", place)

    # -- local arrays and barriers --------------------------------------

    def allocate(self, node, place):
        array = node.known
        if array.space == "local":
            size = int(np.prod(array.shape))
            junk = self.literal(unwritten(array.dtype), Number(array.dtype))
            self.out.line(f"{array.name} = [{junk}] * {size}", place)

    def exchange(self, node):
        dtype = None
        if node.op in (
            "syncthreads_count",
            "syncthreads_and",
            "syncthreads_or",
        ):
            self.out.line(
                f"__value[__thread] = {self.code(node.args[0])}", node.place
            )
        elif node.op != "syncthreads":
            mask = self.code(node.args[0]) if node.args else "0xFFFFFFFF"
            self.out.line(f"__mask[__thread] = {mask}", node.place)
            if len(node.args) > 1:
                dtype = node.args[1].known.dtype
                self.out.line(
                    f"__value[__thread] = {self.code(node.args[1])}",
                    node.place,
                )
            if len(node.args) > 2:
                self.out.line(
                    f"__operand[__thread] = {self.code(node.args[2])}",
                    node.place,
                )
        self.out.line(f"yield {self.stop(node, dtype)}", node.place)
        return "__result[__thread]"

    # -- the whole function ---------------------------------------------

    def program(self, body, parameters, arguments, shared):
        """Return the text of a function that makes the thread function.

        Parameters
        ----------
        body : flattened and annotated statements
        parameters : names, in order
        arguments : what is known about each
        shared : the shared arrays
        """
        arrays = [p for p in parameters if hasattr(arguments[p], "space")]
        numbers = [p for p in parameters if p not in arrays]
        boxes = ["__log", "__value", "__operand", "__mask", "__result"]
        self.out.line(f"def build({', '.join([*arrays, *boxes, *GRID])}):")
        self.out.depth += 1
        for name in arrays:
            for k in range(len(arguments[name].shape)):
                self.out.line(f"{name}__n{k} = {name}.shape[{k}]")
        memory = []
        for array in shared:
            memory.append(array.name)
            if array.shape[0] is None:
                memory.append(f"{array.name}__n0")
        self.out.line(
            f"def thread({', '.join([*numbers, *memory, *INDICES])}):"
        )
        # A warp operation excuses the lanes that returned before it.
        self.tells_returns = holds(body, WARP_OPERATIONS)
        self.block(body)
        self.out.line("return thread")
        self.out.depth -= 1
        return self.out.text()


class Literal(ast.expr):
    """Text that is already written."""

    _fields = ()

    def __init__(self, text, known):
        super().__init__()
        self.text = text
        self.known = known


def element_of(node):
    """Return the array element that an atomic operation works on."""
    array, index = node.args[:2]
    made = ast.Subscript(value=array, slice=index, ctx=ast.Load())
    ir.placed(made, node.place).known = Number(array.known.dtype)
    return made


def unwritten(dtype):
    """Return what fills memory that nobody has written: NaN, or junk."""
    if dtype.kind == "f":
        return dtype.type(np.nan)
    if dtype == BOOL:
        return True
    return int(np.iinfo(dtype).max) - 85
