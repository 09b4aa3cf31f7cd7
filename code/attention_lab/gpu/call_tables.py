"""Which functions kernels may call, and how many arguments each takes."""

import math

import numpy as np

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
    divmod: "divmod",
    sum: "sum",
    enumerate: "enumerate",
    zip: "zip",
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
    np.arcsin: "math.asin",
    np.arccos: "math.acos",
    np.arctan: "math.atan",
    np.arctan2: "math.atan2",
    np.sinh: "math.sinh",
    np.cosh: "math.cosh",
    np.tan: "math.tan",
    np.isnan: "math.isnan",
    np.isinf: "math.isinf",
    np.isfinite: "math.isfinite",
}
MANY = 255
# How many arguments each operation takes: at least, and at most.
TAKES = {
    "range": (1, 3),
    "min": (1, MANY),
    "max": (1, MANY),
    "round": (1, 2),
    "pow": (2, 2),
    "divmod": (2, 2),
    "sum": (1, 2),
    "enumerate": (1, 2),
    "zip": (1, MANY),
    "print": (0, MANY),
    "math.atan2": (2, 2),
    "math.copysign": (2, 2),
    "math.fmod": (2, 2),
    "math.hypot": (2, 2),
    "math.pow": (2, 2),
    "grid": (1, 1),
    "gridsize": (1, 1),
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
    "lanemask_lt": (0, 0),
    "threadfence": (0, 0),
    "threadfence_block": (0, 0),
    "threadfence_system": (0, 0),
}
# What to use instead of names that Numba has and the recorder has not.
ADVICE = {
    "libdevice": "Use math.exp(...) and the like.",
    "activemask": (
        "Which lanes run together is not defined: name them in a mask, or "
        "ask with cuda.ballot_sync(0xFFFFFFFF, condition)."
    ),
    "const": "Pass the array to the kernel.",
    "clock": "There is no time here: measure on a GPU.",
    "clock64": "There is no time here: measure on a GPU.",
}
NOT_CALLED = {
    "threadIdx": "Write cuda.threadIdx.x.",
    "blockIdx": "Write cuda.blockIdx.x.",
    "blockDim": "Write cuda.blockDim.x.",
    "gridDim": "Write cuda.gridDim.x.",
    "shared": "Write cuda.shared.array(shape, dtype).",
    "local": "Write cuda.local.array(shape, dtype).",
    "atomic": "Write cuda.atomic.add(array, index, value).",
}
# Every other operation, such as `abs` or `math.exp`, takes one.
ONE = (1, 1)
