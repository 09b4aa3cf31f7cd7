"""The sizes of a matrix product on a GPU, and which of them are refused."""

from typing import Any, NamedTuple

from attention_lab.axes import check_axes, check_size, check_tile
from attention_lab.contract import dtype_name
from attention_lab.steps.launch import MAX_SHARED_BYTES, MAX_THREADS


class Tile(NamedTuple):
    """What a block computes, and what one of its threads does.

    TILE_L, TILE_S : rows and columns of outputs per block.
    TILE_D : how much of the summed axis a block holds at a time.
    PATCH_L, PATCH_S : rows and columns of outputs per thread.
    PAD : unused elements after each row of both tiles, in the last rung; a
        multiple of 4 keeps every row on a 16-byte boundary.
    """

    TILE_L: int
    TILE_S: int
    TILE_D: int = 1
    PATCH_L: int = 1
    PATCH_S: int = 1
    PAD: int = 0


def check_fits(tile: Tile, itemsize: int, is_shared: bool) -> None:
    """Refuse a tile that no GPU can launch.

    Parameters
    ----------
    itemsize : bytes of one element.
    is_shared : whether the block keeps tiles of both inputs.

    Raises
    ------
    ValueError
        If a size is below 1, a patch does not divide its tile, or the block
        needs more than 1024 threads or 48 KiB of shared memory.
    """
    for name, size in tile._asdict().items():
        check_tile(name, size + 1 if name == "PAD" else size)
    for axis in "LS":
        size = getattr(tile, f"TILE_{axis}")
        patch = getattr(tile, f"PATCH_{axis}")
        if size % patch:
            raise ValueError(
                f"PATCH_{axis} = {patch} does not divide TILE_{axis} = {size}"
            )
    patch = tile.PATCH_L * tile.PATCH_S
    threads = tile.TILE_L * tile.TILE_S // patch
    if threads > MAX_THREADS:
        raise ValueError(
            f"a tile of {tile.TILE_L} × {tile.TILE_S} outputs, {patch} per "
            f"thread, needs {threads} threads, but CUDA allows {MAX_THREADS}"
        )
    width = tile.TILE_L + tile.TILE_S + 2 * tile.PAD
    shared = tile.TILE_D * width * itemsize
    if is_shared and shared > MAX_SHARED_BYTES:
        raise ValueError(
            f"TILE_D = {tile.TILE_D} needs {shared} bytes of shared memory, "
            f"but a block has {MAX_SHARED_BYTES}"
        )


def check_factors(a: Any, b: Any) -> tuple[int, int, int]:
    """Return L, S and D of a product, or refuse it.

    Raises
    ------
    ShapeMismatch
        If a factor has not two axes, or they disagree about D.
    ValueError
        If their dtypes or libraries differ.
    """
    check_axes("a", a, "LD")
    check_axes("b", b, "DS")
    check_size("b", "D", b.shape[0], "a", a.shape[1])
    for what, of_a, of_b in (
        ("dtype", dtype_name(a), dtype_name(b)),
        ("type", type(a).__name__, type(b).__name__),
    ):
        if of_a != of_b:
            raise ValueError(f"b has {what} {of_b}, but a has {of_a}")
    return a.shape[0], b.shape[1], a.shape[1]
