"""How do several query heads share one key head?

    q_BHLD --name the groups--> B H_kv g L D     k_BHSD stays as it is
    scores = q kᵀ / √D, each key head read once for its g query heads

Query head h reads key head h // g. Nothing is repeated: the query heads of a
group become one more axis, and a kernel reads each key once for all of them.

Sources: Shazeer 2019, "Fast Transformer Decoding", section 3 (one key head);
Ainslie et al. 2023, "GQA", section 2.2 (groups). Memory: B·H·L·S scores.
Letters: B batch, H query heads, H_kv key heads, L queries, S keys, D head
width.
"""

import functools
import math
from typing import Any

from einops import einsum, rearrange
from jaxtyping import Float
from torch import Tensor

from attention_lab.contract import check_attention_call, check_tensors
from attention_lab.gpu import cuda
from attention_lab.steps.launch import cdiv, check_grid, read_operands
from attention_lab.steps.scaled_dot_product import (
    HALF_PRECISIONS,
    THREADS_L,
    THREADS_ROW,
    THREADS_X,
    make_add_bias,
    make_softmax_kernel,
    masked,
    softmax,
)

# -- PyTorch ---------------------------------------------------------------


def attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H_kv S D"],
    value: Float[Tensor, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    first_row: int = 0,
) -> Float[Tensor, "B H L D_v"]:
    """Attend without repeating a key: the query heads get a group axis.

    Parameters
    ----------
    first_row : position of the first query among the keys; query l then sees
        the keys 0 … first_row + l. 0 is PyTorch's `is_causal`, S − L aligns
        the diagonal at the lower right.

    Other arguments and errors: `attention_lab.contract.check_attention_call`; a
    `first_row` that is negative, not whole, or without `is_causal` is a
    ValueError.

    Examples
    --------
    >>> import torch
    >>> q, k = torch.zeros(1, 2, 1, 1), torch.zeros(1, 1, 3, 1)
    >>> v = torch.tensor([0.0, 2.0, 7.0]).reshape(1, 1, 3, 1)
    >>> options = {"is_causal": True, "enable_gqa": True}
    >>> attention(q, k, v, **options, first_row=1).flatten().tolist()
    [1.0, 1.0]
    """
    call = check_attention_call(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    check_tensors(query=query, key=key, value=value)
    check_first_row(first_row, is_causal)
    dtype, g = query.dtype, call.group
    if dtype in HALF_PRECISIONS:
        query, key, value = query.float(), key.float(), value.float()
    q = rearrange(query * call.scale, "b (h g) l d -> b h g l d", g=g)
    scores = einsum(q, key, "b h g l d, b h s d -> b h g l s")
    scores_BHLS = rearrange(scores, "b h g l s -> b (h g) l s")
    weights_BHLS = softmax(masked(scores_BHLS, attn_mask, is_causal, first_row))
    weights = rearrange(weights_BHLS, "b (h g) l s -> b h g l s", g=g)
    out = einsum(weights, value, "b h g l s, b h s d -> b h g l d")
    return rearrange(out, "b h g l d -> b (h g) l d").to(dtype)


def check_first_row(first_row: int, is_causal: bool) -> int:
    """Return the position of the first query, or refuse one without meaning.

    Raises
    ------
    ValueError
        If it is negative or not whole, or nothing is causal.
    """
    is_whole = isinstance(first_row, int) and not isinstance(first_row, bool)
    if not is_whole or first_row < 0:
        raise ValueError(
            f"first_row must be a whole number of at least 0, not {first_row!r}"
        )
    if first_row and not is_causal:
        raise ValueError(
            f"first_row = {first_row} moves the causal diagonal, but is_causal "
            "is False"
        )
    return first_row


# -- CUDA kernels ----------------------------------------------------------


@functools.cache
def make_grouped_scores_kernel(
    group: int, real: Any, has_bias: bool, is_causal: bool
) -> Any:
    """Build the kernel for one size of group, dtype and kind of mask."""
    add_bias = make_add_bias(has_bias)

    @cuda.jit
    def grouped_scores_kernel(
        scores_BHLS, q_BHLD, k_BHSD, bias_BHLS, scale, first_row
    ):
        """One thread per key, row and key head makes `group` scores."""
        dots = cuda.local.array(group, real)
        s, row, bh = cuda.grid(3)
        B, H_kv, S, D = k_BHSD.shape
        L = q_BHLD.shape[2]
        if s < S and row < L and bh < B * H_kv:
            # 1. Load: which key head, and the first query head that reads it.
            b, h_kv = bh // H_kv, bh % H_kv
            h = h_kv * group
            visible = first_row + row + 1 if is_causal else S
            for g in range(group):
                dots[g] = real(0.0) if s < visible else real(-math.inf)

            # 2. Compute: a key's number is read once for the whole group.
            if s < visible:
                for d in range(D):
                    k = k_BHSD[b, h_kv, s, d]
                    for g in range(group):
                        dots[g] += q_BHLD[b, h + g, row, d] * scale * k

            # 3. Store
            for g in range(group):
                score = add_bias(dots[g], bias_BHLS, b, h + g, row, s)
                scores_BHLS[b, h + g, row, s] = score

    return grouped_scores_kernel


@functools.cache
def make_grouped_sum_kernel(group: int, real: Any) -> Any:
    """Build the kernel for one size of group and dtype."""

    @cuda.jit
    def grouped_sum_kernel(out_BHLD, weights_BHLS, v_BHSD):
        """One thread per channel, row and key head makes `group` outputs."""
        totals = cuda.local.array(group, real)
        d, row, bh = cuda.grid(3)
        B, H_kv, S, D = v_BHSD.shape
        L = out_BHLD.shape[2]
        if d < D and row < L and bh < B * H_kv:
            # 1. Load: which value head, and the first query head that reads it.
            b, h_kv = bh // H_kv, bh % H_kv
            h = h_kv * group
            for g in range(group):
                totals[g] = real(0.0)

            # 2. Compute: a value's number is read once for the whole group.
            for s in range(S):
                v = v_BHSD[b, h_kv, s, d]
                for g in range(group):
                    totals[g] += weights_BHLS[b, h + g, row, s] * v

            # 3. Store
            for g in range(group):
                out_BHLD[b, h + g, row, d] = totals[g]

    return grouped_sum_kernel


# -- Launch ----------------------------------------------------------------


def attention_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    first_row: int = 0,
) -> Float[Any, "B H L D_v"]:
    """Run attention as three kernels that read a key once per group.

    NumPy arrays or torch tensors in, the same kind out; gradients are not
    tracked. Arguments, errors and result as `attention`.
    """
    ops = read_operands(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )
    check_first_row(first_row, is_causal)
    call = ops.call
    if call.is_empty:
        return ops.zeros(call.B, call.H, call.L, call.D_v)
    heads = check_grid(call.B * call.H, call.L, THREADS_L)
    scores_BHLS = ops.empty(call.B, call.H, call.L, call.S)
    weights_BHLS = ops.empty(call.B, call.H, call.L, call.S)
    out_BHLD = ops.empty(call.B, call.H, call.L, call.D_v)

    block = (THREADS_X, THREADS_L, 1)
    rows, key_heads = cdiv(call.L, THREADS_L), call.B * call.H_kv
    kind = (call.group, ops.real, ops.has_bias, ops.is_causal)
    make_grouped_scores_kernel(*kind)[
        (cdiv(call.S, THREADS_X), rows, key_heads), block
    ](
        scores_BHLS,
        ops.q,
        ops.k,
        ops.bias,
        ops.dtype.type(call.scale),
        first_row,
    )
    make_softmax_kernel(ops.real)[
        (cdiv(call.L, THREADS_ROW), heads), (THREADS_ROW, 1)
    ](weights_BHLS, scores_BHLS)
    make_grouped_sum_kernel(call.group, ops.real)[
        (cdiv(call.D_v, THREADS_X), rows, key_heads), block
    ](out_BHLD, weights_BHLS, ops.v)
    return ops.result(out_BHLD)


def grouped_traffic(
    L: int,
    S: int,
    D: int,
    B: int = 1,
    H: int = 1,
    H_kv: int = 1,
    first_row: int | None = None,
) -> dict[str, dict[str, tuple[int, int]]]:
    """Count the elements that the two grouped kernels move.

    Let P be the pairs of a query and a key that the mask shows: L·S, or, with
    `first_row` for a causal mask, the sum of min(S, first_row + l + 1) over
    the queries l. A thread reads D numbers of its key once, and D of a query
    for each head of the group:

        key  B·H_kv·P·D reads · query  B·H·P·D reads · scores  B·H·L·S writes

    The weighted sum masks nothing; each value is read once per group:

        value  B·H_kv·L·S·D reads · weights  B·H·L·S·D reads · output  B·H·L·D

    Returns
    -------
    For each kernel, {array: (reads, writes)}.

    Examples
    --------
    >>> grouped_traffic(L=1, S=5, D=3, H=4, H_kv=2)["scores"]["key"]
    (30, 0)
    >>> grouped_traffic(2, 5, 1, H=1, first_row=3)["scores"]["key"]  # 4 + 5
    (9, 0)
    """
    pairs = L * S
    if first_row is not None:
        pairs = sum(min(S, first_row + row + 1) for row in range(L))
    square = L * S
    return {
        "scores": {
            "key": (B * H_kv * pairs * D, 0),
            "query": (B * H * pairs * D, 0),
            "scores": (0, B * H * square),
        },
        "weighted_sum": {
            "value": (B * H_kv * square * D, 0),
            "weights": (B * H * square * D, 0),
            "output": (0, B * H * L * D),
        },
    }
