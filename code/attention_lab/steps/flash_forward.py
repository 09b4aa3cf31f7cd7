"""Can attention be computed tile by tile, without ever storing the scores?

Cut the queries into tiles of TILE_L rows and the keys into tiles of TILE_S.
For one tile of queries, visit the tiles of keys one after the other and keep
the running softmax of `online_softmax`. Only one tile of scores exists at a
time; on a GPU it and the keys and values it needs fit in shared memory.

Source: Dao et al. 2022, "FlashAttention", section 3.1, algorithm 1, with the
loops in the order of Dao 2023, "FlashAttention-2", section 3.1 (queries
outside). Memory: B·H·L numbers beside the output, no scores.
Letters: B batch, H heads, L queries, S keys, D head width; the papers' Br and
Bc are TILE_L and TILE_S here.
"""

import functools
import math
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attention_lab.axes import check_tile
from attention_lab.contract import check_attention_call, check_tensors
from attention_lab.gpu import cuda
from attention_lab.steps import scaled_dot_product
from attention_lab.steps.flash_launch import (
    FlashResult,
    empty_result,
    run_flash,
)
from attention_lab.steps.launch import (
    MAX_SHARED_BYTES,
    check_tile_budget,
    read_operands,
)
from attention_lab.steps.online_softmax import (
    expand_mask,
    finish,
    finite,
    make_store_row,
    start,
    update,
)
from attention_lab.steps.scaled_dot_product import (
    HALF_PRECISIONS,
    make_add_bias,
    masked,
    share_heads,
)

DEFAULT_TILE = 16


class TileStep(NamedTuple):
    """One visited tile, as the loop saw it; rows are this tile's queries.

    tile_row, tile_col : which tile of queries and of keys.
    scores : the tile's masked scores (B, H, rows, keys).
    rescale : what the row's earlier sums were multiplied with.
    row_max, row_sum, acc : the running softmax after this tile.
    """

    tile_row: int
    tile_col: int
    scores: Tensor
    rescale: Tensor
    row_max: Tensor
    row_sum: Tensor
    acc: Tensor


# -- PyTorch ---------------------------------------------------------------


def flash_forward(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H_kv S D"],
    value: Float[Tensor, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    TILE_L: int = DEFAULT_TILE,
    TILE_S: int = DEFAULT_TILE,
    trace: list[TileStep] | None = None,
) -> FlashResult:
    """Attend tile by tile; return the output and the log-sum-exp.

    Parameters
    ----------
    TILE_L, TILE_S : rows and keys of a tile. They need not divide L and S:
        the last tiles are smaller.
    trace : a list to which every visited tile is appended.

    Other arguments and errors: `attention_lab.contract.check_attention_call`;
    a tile size below 1 is a ValueError.

    Notes
    -----
    With `is_causal` the tiles in which no query may see a key are not visited.

    Examples
    --------
    >>> q, k = torch.ones(1, 1, 1, 2), torch.ones(1, 1, 2, 2)
    >>> v = torch.tensor([[[[0.0], [4.0]]]])
    >>> flash_forward(q, k, v, TILE_S=1).out_BHLD.item()
    2.0
    """
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    TILE_L = check_tile("TILE_L", TILE_L)
    TILE_S = check_tile("TILE_S", TILE_S)
    check_tensors(query=query, key=key, value=value)
    if call.is_empty:  # no tile to visit; the gradients are zeros
        options = (attn_mask, is_causal, scale, enable_gqa)
        out = scaled_dot_product.attention(query, key, value, *options)
        work = torch.float32 if query.dtype in HALF_PRECISIONS else query.dtype
        shape = (call.B, call.H, call.L)
        return FlashResult(out, out.new_full(shape, -math.inf, dtype=work))
    dtype = query.dtype
    if dtype in HALF_PRECISIONS:
        query, key, value = query.float(), key.float(), value.float()
    key = share_heads(key, call.group)
    value = share_heads(value, call.group)
    mask = expand_mask(attn_mask, call, query)
    query = query * call.scale

    outs, lses = [], []
    for row in range(0, call.L, TILE_L):
        rows = slice(row, row + TILE_L)
        out, lse = walk_over_keys(
            query[:, :, rows],
            key,
            value,
            None if mask is None else mask[..., rows, :],
            row,
            TILE_L,
            TILE_S,
            is_causal,
            trace,
        )
        outs.append(out)
        lses.append(lse)
    return FlashResult(torch.cat(outs, dim=2).to(dtype), torch.cat(lses, dim=2))


def walk_over_keys(
    q_tile: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    row: int,
    TILE_L: int,
    TILE_S: int,
    is_causal: bool,
    trace: list[TileStep] | None,
) -> tuple[Tensor, Tensor]:
    """Visit the tiles of keys for one tile of queries; return out and lse."""
    state = start(q_tile, value.shape[-1])
    visible = key.shape[2]
    if is_causal:  # no query of this tile sees a later key
        visible = min(visible, row + q_tile.shape[2])
    for s in range(0, visible, TILE_S):
        keys = slice(s, s + TILE_S)
        scores = q_tile @ key[:, :, keys].mT
        mask_tile = None if mask is None else mask[..., keys]
        scores = masked(scores, mask_tile, is_causal, row, s)
        before, state = state, update(state, scores, value[:, :, keys])
        if trace is not None:
            rescale = torch.exp(before.row_max - finite(state.row_max))
            place = (row // TILE_L, s // TILE_S)
            trace.append(TileStep(*place, scores, rescale, *state))
    return finish(state)


def attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H_kv S D"],
    value: Float[Tensor, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    TILE_L: int = DEFAULT_TILE,
    TILE_S: int = DEFAULT_TILE,
) -> Float[Tensor, "B H L D_v"]:
    """Return the output of `flash_forward` alone."""
    options = (attn_mask, is_causal, scale, enable_gqa)
    tiles = {"TILE_L": TILE_L, "TILE_S": TILE_S}
    return flash_forward(query, key, value, *options, **tiles).out_BHLD


# -- CUDA kernel -----------------------------------------------------------


@cuda.jit(device=True)
def load_tile(tile, x_BHSD, b, h_kv, s0):
    """All threads of a block copy the rows from s0 on into shared memory.

    Thread t takes elements t, t + threads, …: neighbours read neighbours.
    Rows past the end of x are not touched, and no one reads them later.
    """
    rows, width = tile.shape
    for i in range(cuda.threadIdx.x, rows * width, cuda.blockDim.x):
        s, d = i // width, i % width
        if s0 + s < x_BHSD.shape[2]:
            tile[s, d] = x_BHSD[b, h_kv, s0 + s, d]


@functools.cache
def make_attend_tile(D: int, D_v: int, real: Any, has_bias: bool) -> Any:
    """Build the device function that takes one tile into a running softmax."""
    add_bias = make_add_bias(has_bias)

    @cuda.jit(device=True)
    def attend_tile(
        acc, row_max, row_sum, q, k_tile, v_tile, bias, b, h, row, s0, s_end
    ):
        """One thread takes a tile into its row; returns maximum and sum."""
        for s in range(s_end - s0):
            dot = real(0.0)
            for d in range(D):
                dot += q[d] * k_tile[s, d]
            score = add_bias(dot, bias, b, h, row, s0 + s)
            if score != real(-math.inf):
                new_max = max(row_max, score)
                rescale = math.exp(row_max - new_max)
                weight = math.exp(score - new_max)
                row_max, row_sum = new_max, row_sum * rescale + weight
                for d in range(D_v):
                    acc[d] = acc[d] * rescale + weight * v_tile[s, d]
        return row_max, row_sum

    return attend_tile


@functools.cache
def make_flash_kernel(
    D: int,
    D_v: int,
    TILE_L: int,
    TILE_S: int,
    real: Any,
    has_bias: bool,
    is_causal: bool,
) -> Any:
    """Build the kernel for two widths, two tile sizes and one kind of mask."""
    attend_tile = make_attend_tile(D, D_v, real, has_bias)
    store_row = make_store_row(real)

    @cuda.jit
    def flash_kernel(
        out_BHLD, lse_BHL, q_BHLD, k_BHSD, v_BHSD, bias_BHLS, scale, group
    ):
        """One thread per query; one block per TILE_L queries of one head."""
        k_tile = cuda.shared.array((TILE_S, D), real)
        v_tile = cuda.shared.array((TILE_S, D_v), real)
        q = cuda.local.array(D, real)
        acc = cuda.local.array(D_v, real)
        row = cuda.blockIdx.x * TILE_L + cuda.threadIdx.x
        _, H, L = lse_BHL.shape
        b, h = cuda.blockIdx.y // H, cuda.blockIdx.y % H
        for d in range(D):
            q[d] = q_BHLD[b, h, row, d] * scale if row < L else real(0.0)
        for d in range(D_v):
            acc[d] = real(0.0)
        row_max, row_sum = real(-math.inf), real(0.0)
        visible = k_BHSD.shape[2]
        if is_causal:  # no row of this block sees a later key
            visible = min(visible, L, (cuda.blockIdx.x + 1) * TILE_L)

        for s0 in range(0, visible, TILE_S):
            # 1. Load: every thread brings its share of both tiles.
            load_tile(k_tile, k_BHSD, b, h // group, s0)
            load_tile(v_tile, v_BHSD, b, h // group, s0)
            cuda.syncthreads()  # both tiles are complete before anyone reads

            # 2. Compute: rows that do not exist see no key.
            s_end = min(visible, s0 + TILE_S) if row < L else s0
            if is_causal:
                s_end = min(s_end, row + 1)
            row_max, row_sum = attend_tile(
                acc, row_max, row_sum, q, k_tile, v_tile,
                bias_BHLS, b, h, row, s0, s_end,
            )  # fmt: skip
            cuda.syncthreads()  # nobody overwrites a tile still being read

        # 3. Store
        if row < L:
            store_row(out_BHLD, lse_BHL, acc, row_max, row_sum, b, h, row)

    return flash_kernel


# -- Launch ----------------------------------------------------------------


def flash_forward_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    TILE_L: int = DEFAULT_TILE,
    TILE_S: int | None = None,
) -> FlashResult:
    """Run `flash_forward` as one kernel.

    NumPy arrays or torch tensors in, the same kind out; gradients are not
    tracked.

    Parameters
    ----------
    TILE_L : queries per tile, and threads in a block.
    TILE_S : keys per tile; None takes 16, or fewer if 16 do not fit.

    Raises
    ------
    ValueError
        If TILE_L exceeds 1024 threads, or the tiles of keys and values exceed
        48 KiB of shared memory; names the sizes.
    """
    ops = read_operands(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    call = ops.call
    key_bytes = (call.D + call.D_v) * ops.dtype.itemsize
    if TILE_S is None:
        TILE_S = min(DEFAULT_TILE, max(1, MAX_SHARED_BYTES // key_bytes))
    check_tile_budget(TILE_L, TILE_S, key_bytes)
    if call.is_empty:
        return empty_result(ops)
    kernel = make_flash_kernel(
        call.D,
        call.D_v,
        TILE_L,
        TILE_S,
        ops.real,
        ops.has_bias,
        ops.is_causal,
    )
    return run_flash(ops, kernel, TILE_L, TILE_L)


def attention_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    TILE_L: int = DEFAULT_TILE,
    TILE_S: int | None = None,
) -> Float[Any, "B H L D_v"]:
    """Return the output of `flash_forward_cuda` alone."""
    options = (attn_mask, is_causal, scale, enable_gqa)
    tiles = {"TILE_L": TILE_L, "TILE_S": TILE_S}
    return flash_forward_cuda(query, key, value, *options, **tiles).out_BHLD
