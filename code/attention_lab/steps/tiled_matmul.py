"""How often must a matrix product read its inputs?

    out[l, s] = Σ over d of a[l, d] · b[d, s]

Five kernels for one product, each with one change: neighbouring threads read
neighbours; a block shares a tile; a thread keeps a column of outputs, then a
patch of them, in registers. What each change saves: `matmul_ladder`.

Source: Boehm 2022, "How to Optimize a CUDA Matmul Kernel for cuBLAS-like
Performance", kernels 1 to 6; tiles: Kirk & Hwu, "Programming Massively
Parallel Processors", section 5.3. Memory: nothing beside the output.
Letters: L rows, S columns, D the summed axis: scores are q_LD times k_DS.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Float
from torch import Tensor

from attention_lab.axes import check_tile, shape_checked
from attention_lab.gpu import cuda, to_device
from attention_lab.steps.launch import (
    GRID_LIMIT_YZ,
    blank,
    cdiv,
    kernel_dtype,
    same_kind,
    to_real,
)
from attention_lab.steps.matmul_tile import Tile, check_factors, check_fits

# -- PyTorch ---------------------------------------------------------------


@shape_checked
def matmul(
    a_LD: Float[Tensor, "L D"],
    b_DS: Float[Tensor, "D S"],
    TILE_L: int = 16,
    TILE_S: int = 16,
    TILE_D: int = 16,
) -> Float[Tensor, "L S"]:
    """Multiply tile by tile: every tile of the output is a sum of products.

    Raises
    ------
    ShapeMismatch
        If a and b disagree about D.
    ValueError
        If a tile size is below 1.

    Examples
    --------
    >>> import torch
    >>> matmul(torch.ones(2, 3), torch.ones(3, 1), TILE_D=2).tolist()
    [[3.0], [3.0]]
    """
    tiles = {"TILE_L": TILE_L, "TILE_S": TILE_S, "TILE_D": TILE_D}
    for name, size in tiles.items():
        check_tile(name, size)
    out_LS = a_LD.new_zeros(a_LD.shape[0], b_DS.shape[1])
    for row in range(0, out_LS.shape[0], TILE_L):
        for s in range(0, out_LS.shape[1], TILE_S):
            rows, columns = slice(row, row + TILE_L), slice(s, s + TILE_S)
            for d in range(0, a_LD.shape[1], TILE_D):
                part = slice(d, d + TILE_D)
                out_LS[rows, columns] += a_LD[rows, part] @ b_DS[part, columns]
    return out_LS


# -- CUDA kernels ----------------------------------------------------------


@functools.cache
def make_naive_kernel(real: Any, tile: Tile) -> Any:
    """Build the kernel whose neighbouring threads read distant memory."""

    @cuda.jit
    def naive_kernel(out_LS, a_LD, b_DS):
        """One thread per output; neighbouring threads take different rows."""
        row, s = cuda.grid(2)
        L, S = out_LS.shape
        if row < L and s < S:
            # 1. Load and 2. Compute
            total = real(0.0)
            for d in range(a_LD.shape[1]):
                total += a_LD[row, d] * b_DS[d, s]

            # 3. Store
            out_LS[row, s] = total

    return naive_kernel


@functools.cache
def make_coalesced_kernel(real: Any, tile: Tile) -> Any:
    """Build the naive kernel with x and y of the grid exchanged."""

    @cuda.jit
    def coalesced_kernel(out_LS, a_LD, b_DS):
        """One thread per output; neighbouring threads take one row."""
        s, row = cuda.grid(2)
        L, S = out_LS.shape
        if row < L and s < S:
            # 1. Load and 2. Compute
            total = real(0.0)
            for d in range(a_LD.shape[1]):
                total += a_LD[row, d] * b_DS[d, s]

            # 3. Store
            out_LS[row, s] = total

    return coalesced_kernel


@functools.cache
def make_load_tile(real: Any, is_turned: bool) -> Any:
    """Build the device function that brings a tile into shared memory."""

    @cuda.jit(device=True)
    def load_tile(tile, x, row0, column0, rows, columns):
        """All threads of a block copy; what lies outside x counts as 0.

        Thread t takes elements t, t + threads, …: neighbours read neighbours.
        """
        t = cuda.threadIdx.y * cuda.blockDim.x + cuda.threadIdx.x
        threads = cuda.blockDim.x * cuda.blockDim.y
        for e in range(t, rows * columns, threads):
            i, j = e // columns, e % columns
            value = real(0.0)
            if row0 + i < x.shape[0] and column0 + j < x.shape[1]:
                value = x[row0 + i, column0 + j]
            if is_turned:
                tile[j, i] = value
            else:
                tile[i, j] = value

    return load_tile


@functools.cache
def make_shared_tile_kernel(real: Any, tile: Tile) -> Any:
    """Build the kernel whose blocks share tiles of both inputs."""
    TILE_L, TILE_S, TILE_D = tile[:3]
    load_tile = make_load_tile(real, False)

    @cuda.jit
    def shared_tile_kernel(out_LS, a_LD, b_DS):
        """One thread per output; a block computes TILE_L × TILE_S of them."""
        a_tile = cuda.shared.array((TILE_L, TILE_D), real)
        b_tile = cuda.shared.array((TILE_D, TILE_S), real)
        row0, s0 = cuda.blockIdx.y * TILE_L, cuda.blockIdx.x * TILE_S
        tl, ts = cuda.threadIdx.y, cuda.threadIdx.x
        total = real(0.0)
        for d0 in range(0, a_LD.shape[1], TILE_D):
            # 1. Load
            load_tile(a_tile, a_LD, row0, d0, TILE_L, TILE_D)
            load_tile(b_tile, b_DS, d0, s0, TILE_D, TILE_S)
            cuda.syncthreads()  # both tiles are complete before anyone reads

            # 2. Compute
            for d in range(TILE_D):
                total += a_tile[tl, d] * b_tile[d, ts]
            cuda.syncthreads()  # nobody overwrites a tile still being read

        # 3. Store
        if row0 + tl < out_LS.shape[0] and s0 + ts < out_LS.shape[1]:
            out_LS[row0 + tl, s0 + ts] = total

    return shared_tile_kernel


@functools.cache
def make_register_1d_kernel(real: Any, tile: Tile) -> Any:
    """Build the kernel whose threads keep PATCH_L outputs of a column."""
    TILE_L, TILE_S, TILE_D, PATCH_L = tile[:4]
    load_tile = make_load_tile(real, False)

    @cuda.jit
    def register_1d_kernel(out_LS, a_LD, b_DS):
        """One thread per PATCH_L rows of a column; it reads b once for all."""
        a_tile = cuda.shared.array((TILE_L, TILE_D), real)
        b_tile = cuda.shared.array((TILE_D, TILE_S), real)
        acc = cuda.local.array(PATCH_L, real)
        row0, s0 = cuda.blockIdx.y * TILE_L, cuda.blockIdx.x * TILE_S
        tl, ts = cuda.threadIdx.y * PATCH_L, cuda.threadIdx.x
        for i in range(PATCH_L):
            acc[i] = real(0.0)
        for d0 in range(0, a_LD.shape[1], TILE_D):
            # 1. Load
            load_tile(a_tile, a_LD, row0, d0, TILE_L, TILE_D)
            load_tile(b_tile, b_DS, d0, s0, TILE_D, TILE_S)
            cuda.syncthreads()  # both tiles are complete before anyone reads

            # 2. Compute
            for d in range(TILE_D):
                b = b_tile[d, ts]
                for i in range(PATCH_L):
                    acc[i] += a_tile[tl + i, d] * b
            cuda.syncthreads()  # nobody overwrites a tile still being read

        # 3. Store
        for i in range(PATCH_L):
            row = row0 + tl + i
            if row < out_LS.shape[0] and s0 + ts < out_LS.shape[1]:
                out_LS[row, s0 + ts] = acc[i]

    return register_1d_kernel


@functools.cache
def make_register_2d_kernel(real: Any, tile: Tile) -> Any:
    """Build the kernel whose threads keep a patch of outputs."""
    TILE_L, TILE_S, TILE_D, PATCH_L, PATCH_S, PAD = tile
    # PAD spreads the stores into a_tile over the banks. b_tile has it for the
    # compiler: with a power of two as its width, no load of b is fused.
    WIDTH_L, WIDTH_S = TILE_L + PAD, TILE_S + PAD
    load_tile = make_load_tile(real, False)
    load_turned = make_load_tile(real, True)

    @cuda.jit
    def register_2d_kernel(out_LS, a_LD, b_DS):
        """One thread per patch; all it reads of a tile's d lies in a row."""
        a_tile = cuda.shared.array((TILE_D, WIDTH_L), real)
        b_tile = cuda.shared.array((TILE_D, WIDTH_S), real)
        a_patch = cuda.local.array(PATCH_L, real)
        b_patch = cuda.local.array(PATCH_S, real)
        acc = cuda.local.array((PATCH_L, PATCH_S), real)
        row0, s0 = cuda.blockIdx.y * TILE_L, cuda.blockIdx.x * TILE_S
        tl, ts = cuda.threadIdx.y * PATCH_L, cuda.threadIdx.x * PATCH_S
        for i in range(PATCH_L):
            for j in range(PATCH_S):
                acc[i, j] = real(0.0)
        for d0 in range(0, a_LD.shape[1], TILE_D):
            # 1. Load: a is turned, so that rows of a lie side by side.
            load_turned(a_tile, a_LD, row0, d0, TILE_L, TILE_D)
            load_tile(b_tile, b_DS, d0, s0, TILE_D, TILE_S)
            cuda.syncthreads()  # both tiles are complete before anyone reads

            # 2. Compute
            for d in range(TILE_D):
                for i in range(PATCH_L):
                    a_patch[i] = a_tile[d, tl + i]
                for j in range(PATCH_S):
                    b_patch[j] = b_tile[d, ts + j]
                for i in range(PATCH_L):
                    for j in range(PATCH_S):
                        acc[i, j] += a_patch[i] * b_patch[j]
            cuda.syncthreads()  # nobody overwrites a tile still being read

        # 3. Store
        for i in range(PATCH_L):
            for j in range(PATCH_S):
                row, s = row0 + tl + i, s0 + ts + j
                if row < out_LS.shape[0] and s < out_LS.shape[1]:
                    out_LS[row, s] = acc[i, j]

    return register_2d_kernel


# -- Launch ----------------------------------------------------------------


class Rung(NamedTuple):
    """One kernel of the ladder.

    make_kernel : builds it for a dtype and a tile.
    tile : its usual tile.
    is_shared : whether a block keeps tiles of both inputs.
    is_turned : whether x of the grid runs over rows instead of columns.
    """

    make_kernel: Callable[[Any, Tile], Any]
    tile: Tile
    is_shared: bool = True
    is_turned: bool = False

    def launch(self, L: int, S: int, tile: Tile) -> tuple[Any, Any]:
        """Return the grid and the block for an output of L rows, S columns.

        Raises
        ------
        ValueError
            If CUDA's grid is too small; names the axis.
        """
        axes = [
            ("S", cdiv(S, tile.TILE_S), tile.TILE_S // tile.PATCH_S),
            ("L", cdiv(L, tile.TILE_L), tile.TILE_L // tile.PATCH_L),
        ]
        if self.is_turned:
            axes.reverse()
        axis, blocks, _ = axes[1]
        if blocks > GRID_LIMIT_YZ:
            raise ValueError(
                f"axis {axis} needs {blocks} blocks, but CUDA allows "
                f"{GRID_LIMIT_YZ} in this direction of the grid; split the "
                "input"
            )
        return tuple(a[1] for a in axes), tuple(a[2] for a in axes)


#: The ladder, from the first kernel to the fastest.
RUNGS = {
    "naive": Rung(make_naive_kernel, Tile(32, 8), False, is_turned=True),
    "coalesced": Rung(make_coalesced_kernel, Tile(8, 32), False),
    "shared_tile": Rung(make_shared_tile_kernel, Tile(16, 16, 16)),
    "register_1d": Rung(make_register_1d_kernel, Tile(64, 64, 8, 8)),
    "register_2d": Rung(make_register_2d_kernel, Tile(128, 128, 8, 8, 8, 4)),
}


def choose_rung(rung: str, tile: Tile | None, itemsize: int) -> Tile:
    """Return the tile with which a rung runs: the given one, or its own.

    Raises
    ------
    ValueError
        For an unknown rung, or a tile that `check_fits` refuses.
    """
    if rung not in RUNGS:
        raise ValueError(
            f"rung must be one of {', '.join(RUNGS)}, not {rung!r}"
        )
    tile = RUNGS[rung].tile if tile is None else Tile(*tile)
    check_fits(tile, itemsize, RUNGS[rung].is_shared)
    return tile


def matmul_cuda(
    a: Float[Any, "L D"],
    b: Float[Any, "D S"],
    rung: str = "register_2d",
    tile: Tile | None = None,
) -> Float[Any, "L S"]:
    """Multiply with one kernel of the ladder.

    NumPy arrays or torch tensors in, the same kind out; gradients are not
    tracked. Half precisions compute in float32. Errors: `check_factors`,
    `choose_rung`.

    Parameters
    ----------
    rung : a key of `RUNGS`.
    tile : its tile; None takes the rung's own.
    """
    L, S, D = check_factors(a, b)
    real = kernel_dtype("a", a)
    out_LS = blank((L, S), real)
    tile = choose_rung(rung, tile, out_LS.itemsize)
    grid, block = RUNGS[rung].launch(L, S, tile)
    if 0 in (L, S, D):
        out_LS[:] = 0
        return same_kind(out_LS, a)
    out = to_device(out_LS)
    factors = (to_device(to_real(x, real)) for x in (a, b))
    RUNGS[rung].make_kernel(real, tile)[grid, block](out, *factors)
    return same_kind(out.copy_to_host(), a)
