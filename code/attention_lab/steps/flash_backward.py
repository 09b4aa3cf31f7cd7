"""How do gradients flow back without the weights ever having been stored?

The forward pass keeps one number per query, its log-sum-exp (lse). From it
every tile of weights P can be computed again, and with O the output and dO its
gradient:

    P  = exp(scale · Q Kᵀ + mask − lse)      dV = Pᵀ dO
    dP = dO Vᵀ                               dQ = scale · dS K
    dS = P ∘ (dP − D)                        dK = scale · dSᵀ Q

D is the row sum of P ∘ dP, which the softmax subtracts. It needs a whole row
of weights, unless one looks twice: P V is the output, so the row sum of P ∘ dP
is that of dO ∘ O, and that needs no weight at all. Here it is `row_dot`.

Source: Dao et al. 2022, "FlashAttention", section 3.1 and appendix B.2; Dao
2023, "FlashAttention-2", section 3.1.2, algorithm 2.
Memory: B·H·L numbers beside the gradients, and one tile of weights.
Letters: B batch, H heads, L queries, S keys, D head width.
"""

import math
from typing import Any, NamedTuple

import torch
from einops import reduce
from jaxtyping import Float
from torch import Tensor

from attention_lab.axes import check_axes, check_size, check_tile
from attention_lab.contract import (
    AttentionCall,
    check_attention_call,
    check_tensors,
    dtype_name,
)
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.steps.flash_backward_kernels import (
    WARP,
    choose_split,
    make_dkv_kernel,
    make_dq_kernel,
    make_row_dot_kernel,
    part_width,
)
from attention_lab.steps.launch import (
    MAX_SHARED_BYTES,
    MAX_THREADS,
    Operands,
    cdiv,
    check_grid,
    read_operands,
)
from attention_lab.steps.online_softmax import expand_mask
from attention_lab.steps.scaled_dot_product import (
    HALF_PRECISIONS,
    masked,
    share_heads,
)

DEFAULT_TILE = 16


class FlashGradients(NamedTuple):
    """Gradients of query, key and value, each of its argument's shape."""

    query_BHLD: Float[Tensor, "B H L D"]
    key_BHSD: Float[Tensor, "B H_kv S D"]
    value_BHSD: Float[Tensor, "B H_kv S D_v"]


class GradientStep(NamedTuple):
    """One visited tile, as the loop saw it: rows are queries, columns keys.

    tile_row, tile_col : which tile of queries and of keys.
    scores : scaled, −∞ where the mask hides them (B, H, rows, keys).
    weights : the recomputed weights P.
    d_weights, d_scores : their gradients dP and dS.
    query_sum : what the rows collected of dQ so far, without the scale
        (B, H, rows, D).
    key_grad, value_grad : what the keys collected of dK and dV so far
        (B, H, keys, D).
    """

    tile_row: int
    tile_col: int
    scores: Tensor
    weights: Tensor
    d_weights: Tensor
    d_scores: Tensor
    query_sum: Tensor
    key_grad: Tensor
    value_grad: Tensor


# -- PyTorch ---------------------------------------------------------------


def flash_backward(
    out_grad: Float[Tensor, "B H L D_v"],
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H_kv S D"],
    value: Float[Tensor, "B H_kv S D_v"],
    out: Float[Tensor, "B H L D_v"],
    lse: Float[Tensor, "B H L"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    TILE_L: int = DEFAULT_TILE,
    TILE_S: int = DEFAULT_TILE,
    trace: list[GradientStep] | None = None,
) -> FlashGradients:
    """Send the gradient of the output back, one tile of weights at a time.

    Parameters
    ----------
    out_grad : the gradient of a number with respect to the output.
    out, lse : what `flash_forward` returned for the same other arguments.
    TILE_L, TILE_S : rows and keys of a tile; they need not divide L and S.
    trace : a list to which every visited tile is appended.

    Other arguments and errors: `attention_lab.contract.check_attention_call`;
    an `out_grad`, `out` or `lse` of another shape is a ShapeMismatch, a tile
    size below 1 or another dtype a ValueError.

    Returns
    -------
    Gradients in the dtype of the query. A query that sees no key gets 0 and
    gives none; query heads that share a key head add their gradients there.

    Notes
    -----
    With `is_causal` the tiles in which no query may see a key are not visited.

    Examples
    --------
    One query, one key: its weight is 1 whatever the query is.

    >>> x = torch.ones(1, 1, 1, 1)
    >>> gradients = flash_backward(x, x, x, x, out=x, lse=torch.ones(1, 1, 1))
    >>> [gradient.item() for gradient in gradients]
    [0.0, 0.0, 1.0]
    """
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    TILE_L = check_tile("TILE_L", TILE_L)
    TILE_S = check_tile("TILE_S", TILE_S)
    check_tensors(query=query, key=key, value=value)
    check_backward(call, query, out_grad, out, lse)
    check_tensors(out_grad=out_grad, out=out, lse=lse)
    dtype = query.dtype
    if dtype in HALF_PRECISIONS:
        query, key, value = query.float(), key.float(), value.float()
        out_grad, out = out_grad.float(), out.float()
    key = share_heads(key, call.group)
    value = share_heads(value, call.group)
    mask = expand_mask(attn_mask, call, query)
    query = query * call.scale

    row_dot_BHL1 = (out_grad * out).sum(-1, keepdim=True)
    # A row that sees no key: exp(−∞ − ∞) is 0, exp(−∞ + ∞) is not a number.
    lse_BHL1 = lse.masked_fill(lse == -math.inf, math.inf)[..., None]
    dq, dk, dv = (torch.zeros_like(x) for x in (query, key, value))
    for s in range(0, call.S, TILE_S):
        keys = slice(s, s + TILE_S)
        start = s // TILE_L * TILE_L if is_causal else 0
        for row in range(start, call.L, TILE_L):
            rows = slice(row, row + TILE_L)
            q_tile, out_grad_tile = query[:, :, rows], out_grad[:, :, rows]
            scores = q_tile @ key[:, :, keys].mT
            mask_tile = None if mask is None else mask[..., rows, keys]
            scores = masked(scores, mask_tile, is_causal, row, s)

            weights = torch.exp(scores - lse_BHL1[:, :, rows])
            d_weights = out_grad_tile @ value[:, :, keys].mT
            d_scores = weights * (d_weights - row_dot_BHL1[:, :, rows])
            dq[:, :, rows] += d_scores @ key[:, :, keys]
            dk[:, :, keys] += d_scores.mT @ q_tile
            dv[:, :, keys] += weights.mT @ out_grad_tile
            if trace is not None:
                place = (row // TILE_L, s // TILE_S)
                tile = (scores, weights, d_weights, d_scores)
                sums = (dq[:, :, rows], dk[:, :, keys], dv[:, :, keys])
                copies = (x.clone() for x in sums)
                trace.append(GradientStep(*place, *tile, *copies))
    return FlashGradients(
        (dq * call.scale).to(dtype),
        add_up_heads(dk, call).to(dtype),
        add_up_heads(dv, call).to(dtype),
    )


def add_up_heads(
    x: Float[Tensor, "B H S D"], call: AttentionCall
) -> Float[Tensor, "B H_kv S D"]:
    """Add the gradients of the query heads that share a key head.

    Sharing copies a head to several readers, so its gradient is their sum.
    """
    if call.group == 1:
        return x
    return reduce(x, "b (h g) s d -> b h s d", "sum", g=call.group)


def check_backward(
    call: AttentionCall, query: Any, out_grad: Any, out: Any, lse: Any
) -> None:
    """Refuse results of the forward pass that belong to another call.

    Raises
    ------
    ShapeMismatch
        If a rank or size disagrees; names the argument, the axis, both sizes.
    ValueError
        If a dtype is not the query's; the log-sum-exp of a half precision is
        float32.
    """
    half = dtype_name(query) in ("float16", "bfloat16")
    for name, array in (("out_grad", out_grad), ("out", out), ("lse", lse)):
        letters = ("B", "H", "L") if name == "lse" else ("B", "H", "L", "D")
        check_axes(name, array, letters)
        sizes = (call.B, call.H, call.L, call.D_v)
        for letter, size, wanted in zip(
            letters, array.shape, sizes, strict=False
        ):
            owner = "value" if letter == "D" else "query"
            check_size(name, letter, size, owner, wanted)
        dtype = dtype_name(query)
        dtype = "float32" if half and name == "lse" else dtype
        if dtype_name(array) != dtype:
            raise ValueError(
                f"{name} has dtype {dtype_name(array)}, but a query of "
                f"{dtype_name(query)} needs {dtype}"
            )


# -- Launch ----------------------------------------------------------------


def flash_backward_cuda(
    out_grad: Float[Any, "B H L D_v"],
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    out: Float[Any, "B H L D_v"],
    lse: Float[Any, "B H L"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    TILE_L: int | None = None,
    TILE_S: int | None = None,
    SPLIT: int | None = None,
) -> FlashGradients:
    """Run `flash_backward` as three kernels: row dots, dQ, dK with dV.

    NumPy arrays or torch tensors in, the same kind out. Arguments and errors
    as `flash_backward`.

    Parameters
    ----------
    TILE_L, TILE_S : queries and keys of a tile; None takes 16, or fewer if 16
        do not fit.
    SPLIT : threads that share a row, a power of two up to 32. None takes
        enough that each holds 16 channels; on the recorder, which has no
        registers to run out of and exchanges slowly, it takes 1.

    Raises
    ------
    ValueError
        If the tiles exceed the threads or the shared memory of a block, or
        SPLIT is no such number; names the sizes.
    """
    options = (attn_mask, is_causal, scale, enable_gqa)
    call = check_attention_call(query, key, value, *options)
    check_backward(call, query, out_grad, out, lse)
    ops = read_operands(query, key, value, *options)
    dq_shape = (call.B, call.H, call.L, call.D)
    dk_shape = (call.B, call.H_kv, call.S, call.D)
    dv_shape = (call.B, call.H_kv, call.S, call.D_v)
    SPLIT = check_split(SPLIT, call)
    TILE_L, TILE_S = check_backward_tiles(TILE_L, TILE_S, SPLIT, ops)
    if call.is_empty:
        return FlashGradients(
            *(ops.zeros(*shape) for shape in (dq_shape, dk_shape, dv_shape))
        )
    out_grad, out, lse = (ops.place(x) for x in (out_grad, out, lse))
    row_dot = ops.empty(call.B, call.H, call.L)
    dq, dk, dv = (ops.empty(*shape) for shape in (dq_shape, dk_shape, dv_shape))

    by_query = (cdiv(call.L, TILE_L), check_grid(call.B * call.H))
    make_row_dot_kernel(TILE_L, SPLIT, ops.real)[by_query, TILE_L * SPLIT](
        row_dot, out_grad, out
    )
    kind = (
        call.D,
        call.D_v,
        TILE_L,
        TILE_S,
        SPLIT,
        ops.real,
        ops.has_bias,
        ops.is_causal,
    )
    inputs = (ops.q, ops.k, ops.v, out_grad, lse, row_dot, ops.bias)
    numbers = (ops.dtype.type(call.scale), call.group)
    make_dq_kernel(*kind)[by_query, TILE_L * SPLIT](dq, *inputs, *numbers)
    by_key = (cdiv(call.S, TILE_S), check_grid(call.B * call.H_kv))
    make_dkv_kernel(*kind)[by_key, TILE_S * SPLIT](dk, dv, *inputs, *numbers)
    return FlashGradients(ops.result(dq), ops.result(dk), ops.result(dv))


def check_split(SPLIT: int | None, call: AttentionCall) -> int:
    """Return how many threads share a row, or refuse what is no part of a warp.

    Raises
    ------
    ValueError
        If SPLIT is not a power of two from 1 to 32.
    """
    if SPLIT is None:
        return choose_split(call.D, call.D_v) if runs_on_gpu() else 1
    SPLIT = check_tile("SPLIT", SPLIT)
    if SPLIT > WARP or SPLIT & (SPLIT - 1):
        raise ValueError(
            f"SPLIT = {SPLIT} threads cannot share a row: it must be a power "
            f"of two up to {WARP}, the threads of a warp"
        )
    return SPLIT


def check_backward_tiles(
    TILE_L: int | None, TILE_S: int | None, SPLIT: int, ops: Operands
) -> tuple[int, int]:
    """Return the tile sizes, or refuse tiles that no GPU can launch.

    A tile is walked over in shared memory by one kernel and is a block of
    threads in the other.

    Raises
    ------
    ValueError
        If a size is below 1, or exceeds the threads or the shared memory of a
        block; names the sizes.
    """
    call = ops.call
    width = part_width(call.D, SPLIT) + part_width(call.D_v, SPLIT)
    # Beside q and dO a row brings its log-sum-exp and its row dot.
    row_bytes = (width * SPLIT + 2) * ops.dtype.itemsize
    fits = min(MAX_THREADS // SPLIT, MAX_SHARED_BYTES // row_bytes)
    sizes = []
    for name, size in (("TILE_L", TILE_L), ("TILE_S", TILE_S)):
        if size is None:
            size = min(DEFAULT_TILE, max(1, fits))
        size = check_tile(name, size)
        if size * SPLIT > MAX_THREADS:
            raise ValueError(
                f"{name} = {size} rows of {SPLIT} threads need "
                f"{size * SPLIT} threads in a block, but CUDA allows "
                f"{MAX_THREADS}"
            )
        if size * row_bytes > MAX_SHARED_BYTES:
            raise ValueError(
                f"{name} = {size} rows of D + D_v numbers, {row_bytes} bytes "
                f"each, need {size * row_bytes} bytes of shared memory, but a "
                f"block has {MAX_SHARED_BYTES}"
            )
        sizes.append(size)
    return sizes[0], sizes[1]
