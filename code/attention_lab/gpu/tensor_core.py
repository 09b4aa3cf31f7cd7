"""A product of small matrices by a whole warp: what a tensor core does.

`mma(c, a, b)` adds A @ B to C, where A is 16 × 16 and B 16 × 8 in float16 and
C is 16 × 8 in float32. No lane holds a matrix: each holds a *fragment*, some
elements in an order that the hardware prescribes. Of lane 4·g + t

    a[i]  is A[g + 8·(i // 2 % 2), 2·t + i % 2 + 8·(i // 4)]   i = 0 … 7
    b[i]  is B[2·t + i % 2 + 8·(i // 2), g]                    i = 0 … 3
    c[i]  is C[g + 8·(i // 2), 2·t + i % 2]                    i = 0 … 3

On a GPU this is one instruction (`mma_intrinsic`). Elsewhere it is
`mma_by_shuffles`: the lanes fetch the elements from those that hold them
according to this table. A kernel that fills a fragment in another order
therefore computes wrong numbers in both.

Source: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
"""

import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np

from attention_lab.gpu.door import cuda, runs_on_gpu, to_device

EVERY_LANE = 0xFFFFFFFF
#: What a GPU needs for `mma.sync` with float16 and float32 sums.
FIRST_CAPABILITY = (7, 5)


@cuda.jit(device=True)
def mma_by_shuffles(c, a, b):
    """Add A @ B to C; 32 lanes hold the fragments of the table above."""
    g, t = cuda.laneid // 4, cuda.laneid % 4
    for k in range(16):
        # Column k of A and row k of B are held by lanes 4·(…) + k % 8 // 2.
        holder, i = k % 8 // 2, k % 2 + k // 8 * 4
        j = k % 2 + k // 8 * 2
        upper = cuda.shfl_sync(EVERY_LANE, np.float32(a[i]), 4 * g + holder)
        lower = cuda.shfl_sync(EVERY_LANE, np.float32(a[i + 2]), 4 * g + holder)
        left = cuda.shfl_sync(EVERY_LANE, np.float32(b[j]), 8 * t + holder)
        right = cuda.shfl_sync(EVERY_LANE, np.float32(b[j]), 8 * t + 4 + holder)
        c[0] += upper * left
        c[1] += upper * right
        c[2] += lower * left
        c[3] += lower * right


if not runs_on_gpu():
    # What `compile_card` compiles in its place: (file, function that makes it).
    mma_by_shuffles.native = (
        str(Path(__file__).with_name("mma_intrinsic.py")),
        "make_mma",
    )


class Multiplier(NamedTuple):
    """A function `mma(c, a, b)` for kernels, and what carries it out."""

    mma: object
    on_tensor_cores: bool
    sentence: str


@functools.cache
def choose_mma():
    """Return the `mma` for kernels of this process, as a `Multiplier`.

    On a GPU the instruction is tried once, on numbers whose product is known.
    Where it does not compile or gives other numbers, the shuffles take its
    place: slower, with the same result.
    """
    if not runs_on_gpu():
        return Multiplier(
            mma_by_shuffles,
            False,
            "There are no tensor cores here: shuffles take their place.",
        )
    reason = why_not_here(cuda.get_current_device().compute_capability)
    if not reason:
        from attention_lab.gpu.mma_intrinsic import make_mma

        mma = make_mma()
        reason = trial(mma)
        if not reason:
            return Multiplier(mma, True, "Tensor cores multiply (mma.sync).")
    sentence = f"Shuffles multiply, not tensor cores: {reason}."
    return Multiplier(mma_by_shuffles, False, sentence)


def why_not_here(capability):
    """Say why a GPU has no such instruction, or return "".

    Examples
    --------
    >>> why_not_here((7, 0))
    'compute capability 7.0 is below 7.5'
    """
    if tuple(capability) >= FIRST_CAPABILITY:
        return ""
    major, minor = capability
    least = ".".join(map(str, FIRST_CAPABILITY))
    return f"compute capability {major}.{minor} is below {least}"


def trial(mma):
    """Multiply two matrices with `mma`; say what is wrong, or return ""."""
    # Small whole numbers: every order of adding them gives the same sums.
    a_MK = (np.arange(256).reshape(16, 16) * 7 % 11 - 5).astype(np.float16)
    b_KN = (np.arange(128).reshape(16, 8) * 5 % 13 - 6).astype(np.float16)
    out = to_device(np.full((16, 8), np.nan, np.float32))
    try:
        make_product_kernel(mma)[1, 32](out, to_device(a_MK), to_device(b_KN))
        made = out.copy_to_host()
    except Exception as error:  # whatever a compiler or a driver may raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return f"the instruction does not compile ({lines[0][:120]})"
    if (made == a_MK.astype(np.float32) @ b_KN.astype(np.float32)).all():
        return ""
    return "the instruction gives other numbers than the product"


def make_product_kernel(mma):
    """Build the kernel that multiplies one 16 × 16 by one 16 × 8 matrix."""
    half, real = np.float16, np.float32

    @cuda.jit
    def product_kernel(out, a_MK, b_KN):
        """One warp fills its fragments, multiplies, and stores C."""
        a = cuda.local.array(8, half)
        b = cuda.local.array(4, half)
        c = cuda.local.array(4, real)
        g, t = cuda.threadIdx.x // 4, cuda.threadIdx.x % 4

        # 1. Load: the table above.
        for i in range(8):
            a[i] = a_MK[g + 8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)]
        for i in range(4):
            b[i] = b_KN[2 * t + i % 2 + 8 * (i // 2), g]
            c[i] = real(0.0)

        # 2. Compute
        mma(c, a, b)

        # 3. Store
        for i in range(4):
            out[g + 8 * (i // 2), 2 * t + i % 2] = c[i]

    return product_kernel
