"""The names that mean something only inside a kernel, and how to spot them."""

import types

import numpy as np

from attention_lab.gpu.errors import WrongArgument

AXES = ("x", "y", "z")
INDEX_NAMES = tuple(
    f"{base}.{axis}"
    for base in ("threadIdx", "blockIdx", "blockDim", "gridDim")
    for axis in AXES
)
# Which elements Numba's atomic operations work on (its `cudadecl`).
WHOLE_ATOMICS = ("int32", "int64", "uint32", "uint64")
ATOMIC_DTYPES = {
    **dict.fromkeys(
        ("add", "sub", "max", "min", "nanmax", "nanmin"),
        (*WHOLE_ATOMICS, "float32", "float64"),
    ),
    **dict.fromkeys(
        ("and_", "or_", "xor", "exch", "cas", "compare_and_swap"),
        WHOLE_ATOMICS,
    ),
    **dict.fromkeys(("inc", "dec"), ("uint32", "uint64")),
}
ATOMICS = tuple(ATOMIC_DTYPES)
BLOCK_BARRIERS = (
    "syncthreads",
    "syncthreads_count",
    "syncthreads_and",
    "syncthreads_or",
)
WARP_OPERATIONS = (
    "syncwarp",
    "shfl_sync",
    "shfl_up_sync",
    "shfl_down_sync",
    "shfl_xor_sync",
    "ballot_sync",
    "all_sync",
    "any_sync",
)
FENCES = ("threadfence", "threadfence_block", "threadfence_system")
BIT_FUNCTIONS = ("popc", "clz", "ffs", "brev")

KNOWN = frozenset(
    (
        *INDEX_NAMES,
        *BLOCK_BARRIERS,
        *WARP_OPERATIONS,
        *FENCES,
        *BIT_FUNCTIONS,
        *(f"atomic.{name}" for name in ATOMICS),
        "threadIdx",
        "blockIdx",
        "blockDim",
        "gridDim",
        "grid",
        "gridsize",
        "laneid",
        "warpsize",
        "shared",
        "shared.array",
        "local",
        "local.array",
        "atomic",
        "fma",
        "selp",
        "cbrt",
        "lanemask_lt",
        "nanosleep",
    )
)

# Both Numba's own target and the separate numba-cuda packages.
NUMBA_CUDA_MODULES = ("numba.cuda", "numba_cuda", "numba_cuda_mlir")


class DeviceName:
    """A name such as ``cuda.syncthreads``: it works inside kernels only.

    Parameters
    ----------
    path : the dotted name after ``cuda.``
    """

    def __init__(self, path):
        self.path = path

    @classmethod
    def named(cls, path):
        """Return the name with this path; KeyError if there is none."""
        if path not in KNOWN:
            raise KeyError(path)
        return cls(path)

    def __getattr__(self, name):
        """Return the longer dotted name, if there is one."""
        try:
            return self.named(f"{self.path}.{name}")
        except KeyError:
            raise AttributeError(
                f"cuda.{self.path}.{name} does not exist here"
            ) from None

    def __call__(self, *args, **kwargs):
        """Refuse: there is no thread outside a kernel."""
        raise WrongArgument(
            f"cuda.{self.path} works inside a kernel only: call it from a "
            "function decorated with @cuda.jit and launched as "
            "kernel[grid, block](...)"
        )

    def _outside(self, *_):
        """Refuse to be a number: there is no thread outside a kernel."""
        raise WrongArgument(
            f"cuda.{self.path} has a value inside a kernel only: use it in a "
            "function decorated with @cuda.jit and launched as "
            "kernel[grid, block](...)"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _outside
    __floordiv__ = __rfloordiv__ = __truediv__ = __rtruediv__ = _outside
    __mod__ = __rmod__ = __lt__ = __le__ = __gt__ = __ge__ = _outside
    __lshift__ = __rshift__ = __and__ = __or__ = __xor__ = __neg__ = _outside
    __int__ = __float__ = __index__ = __getitem__ = __iter__ = _outside

    def __repr__(self):
        """Show the name as it is written."""
        return f"cuda.{self.path}"


def is_cuda_module(value):
    """Say whether `value` is numba's ``cuda`` (any of its packages)."""
    return isinstance(value, types.ModuleType) and (
        value.__name__ in NUMBA_CUDA_MODULES
        or (
            value.__name__.endswith(".cuda")
            and value.__name__.startswith("numba")
        )
    )


def device_path(value):
    """Return the dotted name after ``cuda.`` that `value` is, or None.

    Numba's own stubs are recognised by name, so that a kernel written
    with ``from numba import cuda`` or ``from numba.cuda import grid``
    needs no change.
    """
    if isinstance(value, DeviceName):
        return value.path
    module = getattr(value, "__module__", None) or ""
    if isinstance(module, str) and module.startswith(NUMBA_CUDA_MODULES):
        name = getattr(value, "__name__", type(value).__name__)
        return name if name in KNOWN else None
    return None


def dtype_of(value):
    """Return the NumPy dtype that a type object stands for, or None.

    Accepts NumPy's types, Python's ``float``, ``int`` and ``bool``, and
    Numba's types (by name: Numba itself is not imported).
    """
    if isinstance(value, np.dtype):
        return value
    if isinstance(value, type):
        if issubclass(value, np.generic):
            return np.dtype(value)
        if value in (float, int, bool):
            return np.dtype({float: "f8", int: "i8", bool: "?"}[value])
        return None
    if type(value).__module__.startswith("numba"):
        name = {"boolean": "bool"}.get(str(value), str(value))
        try:
            return np.dtype(name)
        except TypeError:
            return None
    return None


def named_dtype(name):
    """Return the NumPy dtype with this name, or None."""
    try:
        return np.dtype(name)
    except TypeError:
        return None
