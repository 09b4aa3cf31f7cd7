"""Can many blocks share the keys of one query?

One query and many keys, as when a model writes text word by word: a block per
query would leave most of a GPU idle. So the keys are cut into shares. A first
kernel attends within each share and keeps the state (maximum, sum,
accumulator); a second one merges the states. Merging is associative and
commutative, so neither the cut nor the order matters.

Source: Dao et al. 2023, "Flash-Decoding for long-context inference"; merging:
Milakov & Gimelshein 2018, "Online normalizer calculation for softmax",
section 3.1. Memory: D_v + 2 numbers per query and share, no scores.
Letters: B batch, H heads, L queries, S keys, D head width.
"""

import functools
import math
from typing import Any

from jaxtyping import Float
from torch import Tensor

from attention_lab.axes import check_tile
from attention_lab.contract import (
    check_attention_call,
    check_tensors,
)
from attention_lab.gpu.traffic import visible_keys
from attention_lab.steps import scaled_dot_product
from attention_lab.steps.flash_launch import FlashResult, empty_result
from attention_lab.steps.launch import (
    GRID_LIMIT_YZ,
    cdiv,
    check_grid,
    read_operands,
)
from attention_lab.steps.online_softmax import (
    RunningSoftmax,
    expand_mask,
    finish,
    merge,
    start,
    update,
)
from attention_lab.steps.scaled_dot_product import (
    HALF_PRECISIONS,
    masked,
    share_heads,
)
from attention_lab.steps.split_keys_kernels import (
    LANES,
    WARP,
    make_merge_kernel,
    make_split_kernel,
)

KEYS_PER_SHARE = 64  # unless the caller says into how many shares to cut


def check_shares(shares: int | None, S: int) -> int:
    """Return into how many shares S keys are cut, at most one key each.

    Raises
    ------
    ValueError
        If `shares` is not a whole number of at least 1, or more than a grid
        allows.

    Examples
    --------
    >>> check_shares(None, 1000), check_shares(8, 5)
    (16, 5)
    """
    if shares is None:
        shares = min(cdiv(max(S, 1), KEYS_PER_SHARE), GRID_LIMIT_YZ)
    shares = min(check_tile("shares", shares), max(S, 1))
    if shares > GRID_LIMIT_YZ:
        raise ValueError(
            f"shares = {shares} needs as many blocks, but CUDA allows "
            f"{GRID_LIMIT_YZ} in this direction of the grid"
        )
    return shares


# -- PyTorch ---------------------------------------------------------------


def states_of_shares(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D_v"],
    mask: Any,
    is_causal: bool,
    shares: int,
) -> list[RunningSoftmax]:
    """Attend within each share of the keys; return one state per share.

    The query is scaled already; the mask has four axes or is None.
    """
    size = cdiv(key.shape[2], shares)
    states = []
    for s in range(0, key.shape[2], size):
        keys = slice(s, s + size)
        scores = query @ key[:, :, keys].mT
        mask_share = None if mask is None else mask[..., keys]
        scores = masked(scores, mask_share, is_causal, first_key=s)
        state = start(query, value.shape[-1])
        states.append(update(state, scores, value[:, :, keys]))
    return states


def split_forward(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H_kv S D"],
    value: Float[Tensor, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    shares: int | None = None,
) -> FlashResult:
    """Attend share by share, merge; return the output and the log-sum-exp.

    Parameters
    ----------
    shares : into how many shares the keys are cut; None takes 64 keys each.

    Other arguments and errors: `attention_lab.contract.check_attention_call`,
    `check_shares`.

    Examples
    --------
    >>> import torch
    >>> q, k = torch.ones(1, 1, 1, 2), torch.ones(1, 1, 2, 2)
    >>> v = torch.tensor([[[[0.0], [4.0]]]])
    >>> split_forward(q, k, v, shares=2).out_BHLD.item()
    2.0
    """
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    shares = check_shares(shares, call.S)
    check_tensors(query=query, key=key, value=value)
    dtype = query.dtype
    work = query.float() if dtype in HALF_PRECISIONS else query
    if call.is_empty:  # nothing to split; the gradients are zeros
        options = (attn_mask, is_causal, scale, enable_gqa)
        out = scaled_dot_product.attention(query, key, value, *options)
        return FlashResult(out, work.new_full(query.shape[:3], -math.inf))
    key, value = (
        share_heads(x.to(work.dtype), call.group) for x in (key, value)
    )
    mask = expand_mask(attn_mask, call, work)
    states = states_of_shares(
        work * call.scale, key, value, mask, is_causal, shares
    )
    out, lse = finish(functools.reduce(merge, states))
    return FlashResult(out.to(dtype), lse)


def attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H_kv S D"],
    value: Float[Tensor, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    shares: int | None = None,
) -> Float[Tensor, "B H L D_v"]:
    """Return the output of `split_forward` alone."""
    options = (attn_mask, is_causal, scale, enable_gqa)
    return split_forward(query, key, value, *options, shares=shares).out_BHLD


# -- Launch ----------------------------------------------------------------


def split_forward_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    shares: int | None = None,
) -> FlashResult:
    """Run `split_forward` as two kernels: attend within shares, then merge.

    NumPy arrays or torch tensors in, the same kind out; gradients are not
    tracked. Arguments and errors as `split_forward`.
    """
    ops = read_operands(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    call = ops.call
    shares = check_shares(shares, call.S)
    if call.is_empty:
        return empty_result(ops)
    heads = check_grid(call.B * call.H)
    rows = (call.B, call.H, call.L)
    # The axes of the states: share, B, H, L and, for accs, D.
    maxima, sums = ops.empty(shares, *rows), ops.empty(shares, *rows)
    accs = ops.empty(shares, *rows, call.D_v)
    out_BHLD, lse_BHL = ops.empty(*rows, call.D_v), ops.empty(*rows)
    make_split_kernel(call.D, call.D_v, ops.real, ops.has_bias, ops.is_causal)[
        (call.L, shares, heads), (WARP, 1, 1)
    ](
        *(maxima, sums, accs, ops.q, ops.k, ops.v, ops.bias),
        ops.dtype.type(call.scale),
        call.group,
    )
    make_merge_kernel(ops.real)[(call.L, heads), (WARP, 1)](
        out_BHLD, lse_BHL, maxima, sums, accs
    )
    return FlashResult(ops.result(out_BHLD), ops.log_result(lse_BHL))


def attention_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    shares: int | None = None,
) -> Float[Any, "B H L D_v"]:
    """Return the output of `split_forward_cuda` alone."""
    options = (attn_mask, is_causal, scale, enable_gqa)
    return split_forward_cuda(
        query, key, value, *options, shares=shares
    ).out_BHLD


def split_forward_traffic(
    L: int,
    S: int,
    D: int,
    shares: int,
    B: int = 1,
    H: int = 1,
    causal: bool = False,
) -> dict[str, dict[str, tuple[int, int]]]:
    """Count the elements that both kernels move.

    With P = visible_keys(L, S) per head and N shares. Split: the four groups
    of lanes of each warp read its query, 4·N·L·D in all, and one of them the
    key and value of every pair, P·D; a state of D + 2 numbers is written.
    Merge: the 32 lanes of a warp read all N maxima twice and all N sums, and
    for each of D channels N maxima and N numbers of the accumulators.

    Returns
    -------
    For each kernel, {array: (reads, writes)}.

    Examples
    --------
    >>> split_forward_traffic(L=1, S=8, D=4, shares=2)["split"]["key"]
    (32, 0)
    """
    rows = B * H * L
    pairs = B * H * visible_keys(L, S, causal)
    states = shares * rows
    return {
        "split": {
            "query": (WARP // LANES * states * D, 0),
            "key": (pairs * D, 0),
            "value": (pairs * D, 0),
            "maxima": (0, states),
            "sums": (0, states),
            "accs": (0, states * D),
        },
        "merge": {
            "maxima": (states * (2 * WARP + D), 0),
            "sums": (states * WARP, 0),
            "accs": (states * D, 0),
            "output": (0, rows * D),
            "log_sum_exp": (0, rows),
        },
    }
