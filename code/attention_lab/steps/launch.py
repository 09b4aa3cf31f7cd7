"""What every launch shares: arrays in, arrays of the same kind out.

The kernels read float32 or float64 arrays in C order and one kind of mask:
numbers added to the scores. This module turns the caller's arrays into those
and the result back into the caller's kind.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import float32, float64
from numba.types import float16

from attention_lab.axes import check_tile
from attention_lab.contract import (
    DTYPES,
    AttentionCall,
    check_attention_call,
    dtype_name,
)
from attention_lab.gpu import to_device

#: The largest grid in its second and third direction, on every CUDA device.
GRID_LIMIT_YZ = 65_535
#: The most threads of a block, and its static shared memory.
MAX_THREADS = 1024
MAX_SHARED_BYTES = 48 * 1024


def cdiv(a: int, b: int) -> int:
    """Divide and round up: how many blocks of `b` cover `a`.

    Examples
    --------
    >>> cdiv(10, 4)
    3
    """
    return -(-a // b)


def check_grid(heads: int, rows: int = 1, rows_per_block: int = 1) -> int:
    """Return B·H as a grid size, or say that CUDA cannot launch that many.

    Raises
    ------
    ValueError
        If B·H, or the blocks along L, exceed the grid's limit.
    """
    for axes, blocks in (("B·H", heads), ("L", cdiv(rows, rows_per_block))):
        if blocks > GRID_LIMIT_YZ:
            raise ValueError(
                f"axis {axes} needs {blocks} blocks, but CUDA allows "
                f"{GRID_LIMIT_YZ} in this direction of the grid; split the "
                "input"
            )
    return heads


def check_tile_budget(TILE_L: int, TILE_S: int, key_bytes: int) -> None:
    """Refuse tiles that no GPU can launch.

    Parameters
    ----------
    key_bytes : bytes of one key and its value, D + D_v numbers.

    Raises
    ------
    ValueError
        If a tile size is below 1, TILE_L exceeds the threads of a block, or
        the tiles exceed the static shared memory of a block.
    """
    check_tile("TILE_L", TILE_L)
    check_tile("TILE_S", TILE_S)
    if TILE_L > MAX_THREADS:
        raise ValueError(
            f"TILE_L = {TILE_L} needs as many threads in a block, but CUDA "
            f"allows {MAX_THREADS}"
        )
    if TILE_S * key_bytes > MAX_SHARED_BYTES:
        raise ValueError(
            f"TILE_S = {TILE_S} keys and values of D + D_v numbers, "
            f"{key_bytes} bytes each, need {TILE_S * key_bytes} bytes of "
            f"shared memory, but a block has {MAX_SHARED_BYTES}"
        )


@dataclass(frozen=True)
class Operands:
    """The arrays of one attention call on the device, ready for a kernel.

    `bias` has four axes that are 1 or full; without a mask it is a single 0
    that no kernel reads, because `has_bias` is a compile-time constant.
    """

    call: AttentionCall
    q: Any
    k: Any
    v: Any
    bias: Any
    has_bias: bool
    is_causal: bool
    real: Any
    like: Any

    @property
    def dtype(self) -> np.dtype:
        """The NumPy dtype in which the kernel computes."""
        return np.dtype(self.real.name)

    def empty(self, *shape: int) -> Any:
        """Allocate a device array in which nothing is written yet (NaN)."""
        return to_device(blank(shape, self.real))

    def empty_out(self) -> Any:
        """Allocate the output, in the dtype in which the queries are stored."""
        call = self.call
        shape = (call.B, call.H, call.L, call.D_v)
        return to_device(np.full(shape, np.nan, self.q.dtype))

    def zeros(self, *shape: int) -> Any:
        """Give a result that no kernel has to compute, as the caller's kind."""
        return same_kind(np.zeros(shape, self.dtype), self.like)

    def minus_infinity(self, *shape: int) -> Any:
        """Give the log-sum-exp of rows that see no key."""
        lse = np.full(shape, -np.inf, self.dtype)
        return same_kind(lse, self.like, keep_dtype=True)

    def result(self, array: Any) -> Any:
        """Bring a kernel's output back as the caller's kind and dtype."""
        return same_kind(array.copy_to_host(), self.like)

    def log_result(self, array: Any) -> Any:
        """Bring a log-sum-exp back as the caller's kind.

        It keeps the dtype of the computation: a sum of scores that float32
        holds can exceed what float16 does.
        """
        return same_kind(array.copy_to_host(), self.like, keep_dtype=True)


def read_operands(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    keep_half: bool = False,
) -> Operands:
    """Check the call and bring its arrays to the device.

    Half precisions compute in float32, and become float32 here unless
    `keep_half` leaves float16 to the kernel. Arguments and errors:
    `attention_lab.contract.check_attention_call`.
    """
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    real = kernel_dtype("query", query)
    keep_half = keep_half and dtype_name(query) == "float16"
    stored = float16 if keep_half else real
    q, k, v = (to_device(to_real(x, stored)) for x in (query, key, value))
    return Operands(
        call=call,
        q=q,
        k=k,
        v=v,
        bias=to_device(additive_mask(attn_mask, real)),
        has_bias=attn_mask is not None,
        is_causal=is_causal,
        real=real,
        like=query,
    )


def kernel_dtype(name: str, array: Any) -> Any:
    """Return the numba type in which kernels compute on this array.

    Raises
    ------
    ValueError
        If its dtype is none of the contract's, or it holds no numbers.
    """
    dtype = dtype_name(array)
    if dtype not in DTYPES:
        raise ValueError(
            f"{name} has dtype {dtype}; kernels need one of {', '.join(DTYPES)}"
        )
    if getattr(array, "is_meta", False):
        raise ValueError(f"{name} is on device meta, which holds no numbers")
    return float64 if dtype == "float64" else float32


def blank(shape: tuple[int, ...], real: Any) -> np.ndarray:
    """Allocate a host array in which a missing store would show as NaN."""
    return np.full(shape, np.nan, real.name)


def to_real(array: Any, real: Any) -> np.ndarray:
    """Bring any floating array to the host as the kernel's dtype, in C order.

    Gradients are not tracked through a kernel: a tensor is detached.
    """
    if hasattr(array, "detach"):
        array = array.detach().resolve_neg().cpu()
        if dtype_name(array) == "bfloat16":
            array = array.float()
        array = array.numpy()
    return np.ascontiguousarray(array, dtype=real.name)


def additive_mask(attn_mask: Any, real: Any) -> np.ndarray:
    """Turn a mask into numbers to add, with four axes of size 1 or full."""
    if attn_mask is None:
        return np.zeros((1, 1, 1, 1), real.name)
    mask = to_real(attn_mask, real)
    if dtype_name(attn_mask) == "bool":
        mask = np.where(mask == 1, 0.0, -np.inf).astype(real.name)
    return mask.reshape((1,) * (4 - mask.ndim) + mask.shape)


def same_kind(array: np.ndarray, like: Any, keep_dtype: bool = False) -> Any:
    """Return a host array as the library, device and dtype of `like`."""
    if not hasattr(like, "detach"):
        return array if keep_dtype else array.astype(like.dtype)
    import torch  # only a caller with a tensor gets here

    tensor = torch.from_numpy(array).to(like.device)
    return tensor if keep_dtype else tensor.to(like.dtype)
