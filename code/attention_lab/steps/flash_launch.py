"""What the flash kernels share: their result, tile sizes, the launch."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Float

from attention_lab.axes import check_tile
from attention_lab.steps.launch import (
    MAX_SHARED_BYTES,
    MAX_THREADS,
    Operands,
    cdiv,
    check_grid,
)

#: Larger tiles need more registers than they save in loads.
LARGEST_TILE = 64
EVERY_LANE = 0xFFFFFFFF
#: exp(x) = 2^(x · log2 e), and a GPU has an instruction for powers of two.
LOG2E = math.log2(math.e)


def padded(width: int, multiple: int) -> int:
    """Round a width up to a multiple.

    Examples
    --------
    >>> padded(17, 16)
    32
    """
    return cdiv(width, multiple) * multiple


class FlashResult(NamedTuple):
    """Output (B, H, L, D_v) and log-sum-exp of the scores (B, H, L).

    For half-precision input the log-sum-exp is float32.
    """

    out_BHLD: Float[Any, "B H L D_v"]
    lse_BHL: Float[Any, "B H L"]


class TileRules(NamedTuple):
    """Which tiles a kernel can work with.

    unit_L, unit_S : TILE_L and TILE_S must be multiples of these.
    least_L : the smallest TILE_L that fills a warp.
    threads_per_unit : threads that share unit_L queries.
    shared_bytes : (TILE_L, TILE_S) -> shared memory of a block.
    """

    unit_L: int
    unit_S: int
    least_L: int
    threads_per_unit: int
    shared_bytes: Callable[[int, int], int]

    def choose(self, L: int, S: int) -> tuple[int, int]:
        """Return the largest tiles that fit and that L and S fill."""
        TILE_L = TILE_S = LARGEST_TILE
        while self.least_L < TILE_L and TILE_L // 2 >= L:
            TILE_L //= 2
        while self.unit_S < TILE_S and TILE_S // 2 >= S:
            TILE_S //= 2
        while self.shared_bytes(TILE_L, TILE_S) > MAX_SHARED_BYTES:
            if self.unit_S < TILE_S and TILE_S >= TILE_L:
                TILE_S //= 2
            elif self.least_L < TILE_L:
                TILE_L //= 2
            else:
                break  # `check` says so
        return TILE_L, TILE_S

    def check(self, TILE_L: int, TILE_S: int) -> None:
        """Refuse tiles that the threads cannot share, or that do not fit.

        Raises
        ------
        ValueError
            If a tile size is no multiple, the block would have too many
            threads, or its tiles exceed the static shared memory.
        """
        for name, size, unit in (
            ("TILE_L", TILE_L, self.unit_L),
            ("TILE_S", TILE_S, self.unit_S),
        ):
            check_tile(name, size)
            if size % unit:
                raise ValueError(
                    f"{name} = {size} is not a multiple of {unit}, which "
                    "threads share"
                )
        threads = TILE_L // self.unit_L * self.threads_per_unit
        if threads > MAX_THREADS:
            raise ValueError(
                f"TILE_L = {TILE_L} needs {threads} threads in a block, but "
                f"CUDA allows {MAX_THREADS}"
            )
        needed = self.shared_bytes(TILE_L, TILE_S)
        if needed > MAX_SHARED_BYTES:
            raise ValueError(
                f"tiles of TILE_L = {TILE_L} queries and TILE_S = {TILE_S} "
                f"keys of these widths D and D_v need {needed} bytes of "
                f"shared memory, but a block has {MAX_SHARED_BYTES}"
            )

    def settle(
        self, L: int, S: int, TILE_L: int | None, TILE_S: int | None
    ) -> tuple[int, int]:
        """Return the caller's tiles, or those of `choose`, checked."""
        best_L, best_S = self.choose(L, S)
        TILE_L = best_L if TILE_L is None else TILE_L
        TILE_S = best_S if TILE_S is None else TILE_S
        self.check(TILE_L, TILE_S)
        return TILE_L, TILE_S


def empty_result(ops: Operands) -> FlashResult:
    """Return the result of a call in which no query sees a key."""
    call = ops.call
    return FlashResult(
        ops.zeros(call.B, call.H, call.L, call.D_v),
        ops.minus_infinity(call.B, call.H, call.L),
    )


def run_flash(
    ops: Operands, kernel: Any, TILE_L: int, block: int | tuple[int, int]
) -> FlashResult:
    """Launch a flash kernel: one block per TILE_L queries of a head."""
    call = ops.call
    out_BHLD = ops.empty_out()
    lse_BHL = ops.empty(call.B, call.H, call.L)
    kernel[(cdiv(call.L, TILE_L), check_grid(call.B * call.H)), block](
        out_BHLD,
        lse_BHL,
        ops.q,
        ops.k,
        ops.v,
        ops.bias,
        ops.dtype.type(call.scale),
        call.group,
    )
    return FlashResult(ops.result(out_BHLD), ops.log_result(lse_BHL))
