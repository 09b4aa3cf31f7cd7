"""Numba's typing rules for calls: thread indices, mathematics, barriers."""

# Methods are named after the syntax and the operations that they handle.
# ruff: noqa: D102

import numpy as np

from attention_lab.gpu.device_names import (
    ATOMIC_DTYPES,
    AXES,
    BLOCK_BARRIERS,
    INDEX_NAMES,
)
from attention_lab.gpu.limits import MAX_GRID, WARP_SIZE
from attention_lab.gpu.values import (
    BOOL,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    UINT32,
    UINT64,
    Array,
    Choice,
    Group,
    Nothing,
    Number,
    Whole,
    describe,
    exactly,
    integer_range,
    number,
)

KEEPS_WHOLE = ("math.floor", "math.ceil", "math.trunc", "round")
TELLS = ("math.isnan", "math.isinf", "math.isfinite")
CONVERTS = {"int": INT64, "float": FLOAT64, "bool": BOOL}


class PrimitiveRules:
    """The part of the inference that looks at primitives."""

    def see_Primitive(self, node):
        op = node.op
        if op in BLOCK_BARRIERS:
            self.barrier(node)
            values = [self.scalar(a) for a in node.args]
            return self.agreement(op, values)
        if op in INDEX_NAMES:
            return self.index_name(op)
        if op.startswith("math."):
            return self.mathematics(op, node)
        rule = getattr(self, "see_" + op.replace(".", "_"), None)
        if rule is None:
            raise self.refuse(f"`{op}` is not handled here", node)
        return rule(node)

    def agreement(self, op, values):
        """Return what a barrier with a vote returns."""
        if op == "syncthreads":
            return Nothing()
        most = int(np.prod(self.block)) if op == "syncthreads_count" else 1
        return Number(INT32, 0, most, False)

    # -- where am I -----------------------------------------------------

    def index_name(self, op):
        """Return the bounds of ``threadIdx.x`` and its like."""
        base, axis = op.split(".")
        k = AXES.index(axis)
        if base == "blockDim":
            return Number(INT32, self.block[k], self.block[k])
        if base == "gridDim":
            return Number(INT32, 1, MAX_GRID[k])
        if base == "blockIdx":
            return Number(INT32, 0, MAX_GRID[k] - 1)
        return Number(INT32, 0, self.block[k] - 1, self.block[k] > 1)

    def see_grid(self, node):
        return self.per_axis(
            node,
            lambda k: Number(
                INT64, 0, MAX_GRID[k] * self.block[k] - 1, self.block[k] > 1
            ),
        )

    def see_gridsize(self, node):
        return self.per_axis(
            node, lambda k: Number(INT64, 1, MAX_GRID[k] * self.block[k])
        )

    def per_axis(self, node, make):
        """Return one value, or a tuple, as ``cuda.grid(n)`` does."""
        count = self.integer(node.args[0])
        if count.low != count.high or count.low not in (1, 2, 3):
            raise self.refuse("the number of axes must be 1, 2 or 3", node)
        node.detail = int(count.low)
        made = tuple(make(k) for k in range(node.detail))
        return made[0] if node.detail == 1 else Group(made)

    def see_laneid(self, node):
        return Number(INT32, 0, WARP_SIZE - 1, True)

    def see_lanemask_lt(self, node):
        return Number(UINT32, 0, 2**31 - 1, True)

    def see_warpsize(self, node):
        return Number(INT32, WARP_SIZE, WARP_SIZE)

    # -- memory ---------------------------------------------------------

    def see_shared_array(self, node):
        return self.allocated(node, "shared")

    def see_local_array(self, node):
        return self.allocated(node, "local")

    def allocated(self, node, space):
        """Return a new shared or local array."""
        shape, dtype, where = node.detail
        # Two calls of one device function use the same shared memory, but
        # every call has local arrays of its own.
        key = (space, where) if space == "shared" else (space, id(node))
        if key not in self.allocations:
            name = f"{space}_{len(self.allocations)}_"
            dynamic = space == "shared" and shape == (0,)
            self.allocations[key] = Array(
                name,
                getattr(node, "label", name),
                space,
                dtype,
                (None,) if dynamic else shape,
                (Whole(),) * len(shape),
            )
            self.allocation_places[name] = node.place
        return self.allocations[key]

    def see_atomic(self, node):
        array = self.see(node.args[0])
        return self.over(array, lambda one: self.atomic(one, node))

    def atomic(self, array, node):
        """Return the result of an atomic operation on one array."""
        if not isinstance(array, Array) or array.space == "local":
            raise self.refuse(
                "an atomic operation needs a global or shared array", node
            )
        index = self.see(node.args[1])
        if not isinstance(index, Group):
            self.integer(node.args[1])
        count = len(index.items) if isinstance(index, Group) else 1
        if count != len(array.free):
            raise self.refuse(
                f"an atomic operation on `{array.label}` needs "
                f"{len(array.free)} indices, not {count}",
                node,
            )
        op = node.detail
        able = ATOMIC_DTYPES[op]
        if array.dtype.name not in able:
            raise self.refuse(
                f"cuda.atomic.{op} on {array.dtype} elements",
                node,
                f"It works on {', '.join(able[:-1])} and {able[-1]}.",
            )
        for value in node.args[2:]:
            self.scalar(value)
        return number(array.dtype, True)

    def see_threadfence(self, node):
        self.note(
            "fence",
            node.place,
            f"{node.place}: a fence together with an atomic operation "
            "orders accesses of different threads. That order is taken as it "
            "came about in this run; another schedule is not tried.",
        )
        return Nothing()

    # -- lanes of a warp ------------------------------------------------

    def see_syncwarp(self, node):
        for argument in node.args:
            self.integer(argument)
        return Nothing()

    def shuffle(self, node):
        self.integer(node.args[0])
        value = self.scalar(node.args[1])
        self.integer(node.args[2])
        known = number(value.dtype, True)
        return Number(value.dtype, known.low, known.high, True, value.why)

    see_shfl_sync = shuffle
    see_shfl_up_sync = shuffle
    see_shfl_down_sync = shuffle
    see_shfl_xor_sync = shuffle

    def see_ballot_sync(self, node):
        self.integer(node.args[0])
        self.scalar(node.args[1])
        return Number(UINT32, 0, 2**32 - 1, True)

    def vote(self, node):
        self.integer(node.args[0])
        self.scalar(node.args[1])
        return Number(BOOL, 0, 1, True)

    see_all_sync = vote
    see_any_sync = vote

    # -- arithmetic -----------------------------------------------------

    def only_in_for(self, node):
        raise self.refuse(f"`{node.op}` outside the head of a `for`", node)

    see_range = only_in_for
    see_enumerate = only_in_for
    see_zip = only_in_for

    def see_is_none(self, node):
        value = self.see(node.args[0])
        return exactly(value == Nothing())

    def see_stopped(self, node):
        return Nothing()

    def see_len(self, node):
        value = self.see(node.args[0])
        if isinstance(value, Group):
            return exactly(len(value.items))
        if isinstance(value, (Array, Choice)):
            return self.over(value, lambda one: self.size(one, one.free[0]))
        if node.detail is not None:
            raise self.refuse(
                f"a `for` over `{node.detail}`, which is {describe(value)}",
                node,
                "Loop over range(...), an array or a tuple.",
            )
        raise self.refuse(f"`len` of {describe(value)}", node)

    def extreme(self, node):
        """Return the result of ``min`` or ``max``."""
        if len(node.args) < 2:
            raise self.refuse(f"`{node.op}` of one value", node)
        values = [self.scalar(a) for a in node.args]
        result = self.joined(node.args, node)
        if result.is_float:
            return result
        pick = min if node.op == "min" else max
        return Number(
            result.dtype,
            pick(v.low for v in values),
            pick(v.high for v in values),
            result.varies,
        )

    see_min = extreme
    see_max = extreme

    def see_abs(self, node):
        value = self.scalar(node.args[0])
        if value.is_float:
            return value
        least, most = integer_range(value.dtype)
        reach = min(max(abs(value.low), abs(value.high)), most)
        low = least if value.low <= least < 0 else 0
        return self.made(value.dtype, low, reach, value.varies)

    def converted(self, node):
        """Return the result of ``int``, ``float`` or ``bool``."""
        value = self.scalar(node.args[0])
        kinds = {"float": "f", "int": "iu", "bool": "b"}[node.op]
        if value.dtype.kind in kinds:
            return value  # Numba keeps the width: float(float32) is float32
        return self.cast_to(CONVERTS[node.op], value)

    see_int = converted
    see_float = converted
    see_bool = converted

    def see_cast(self, node):
        return self.cast_to(node.detail, self.scalar(node.args[0]))

    def cast_to(self, dtype, value):
        """Return a value after a conversion."""
        known = number(dtype, value.varies)
        if known.is_float or value.is_float:
            return known
        limits = number(dtype, low=None)
        if limits.low <= value.low and value.high <= limits.high:
            return Number(known.dtype, value.low, value.high, value.varies)
        return known

    def see_round(self, node):
        value = self.scalar(node.args[0])
        if len(node.args) == 2:
            self.integer(node.args[1])
            # Numba rounds a whole number to digits as a float64.
            return value if value.is_float else number(FLOAT64, value.varies)
        return number(INT64, value.varies)

    def see_print(self, node):
        for argument in node.args:
            value = self.see(argument)
            if isinstance(value, Array):
                raise self.refuse(
                    f"`print` of {describe(value)}",
                    node,
                    "Print its elements one by one.",
                )
        return Nothing()

    def see_fma(self, node):
        values = [self.scalar(a) for a in node.args]
        return self.widest(values)

    def see_selp(self, node):
        self.scalar(node.args[0])
        return self.joined(node.args[1:], node)

    def counted(self, node):
        """Return the count of ``popc`` or ``clz``, which keep the type."""
        value = self.integer(node.args[0])
        dtype = INT8 if value.dtype == BOOL else value.dtype
        return Number(dtype, 0, 8 * dtype.itemsize, value.varies)

    see_popc = counted
    see_clz = counted

    def see_ffs(self, node):
        value = self.integer(node.args[0])
        if value.dtype.itemsize < 4:
            raise self.refuse(
                f"Numba has no cuda.ffs for {value.dtype}, only for whole "
                "numbers of 32 and 64 bits",
                node,
                "Convert it with int32(...) first.",
            )
        return Number(UINT32, 0, 8 * value.dtype.itemsize, value.varies)

    def see_brev(self, node):
        value = self.integer(node.args[0])
        if value.dtype == UINT64:
            return number(UINT64, value.varies)
        if self.annotating and (value.low < -(2**31) or value.high >= 2**32):
            self.note(
                "half-reversed",
                node.place,
                f"{node.place}: Numba's cuda.brev takes the low 32 bits of an "
                "int64. Write cuda.brev(uint64(...)) to reverse all 64.",
            )
        return number(UINT32, value.varies)

    @staticmethod
    def widest(values):
        """Return a float wide enough for all values."""
        dtype = np.result_type(*(v.dtype for v in values))
        return Number(
            dtype if dtype.kind == "f" else FLOAT64,
            varies=any(v.varies for v in values),
            why=next((v.why for v in values if v.why), ""),
        )

    def mathematics(self, op, node):
        """Return the result of a function of ``math``."""
        values = [self.scalar(a) for a in node.args]
        varies = any(v.varies for v in values)
        if op in TELLS:
            return Number(BOOL, 0, 1, varies)
        if op in KEEPS_WHOLE:
            unsigned = values[0].dtype.kind == "u"
            return number(UINT64 if unsigned else INT64, varies)
        floats = [v for v in values if v.is_float]
        if len(floats) < len(values):
            # Numba takes a whole number as float64 here.
            return Number(
                FLOAT64, varies=varies, why="a whole number in a math function"
            )
        result = self.widest(values)
        for value in values[1:]:
            self.check_promotion(node, values[0], value, result)
        return result
