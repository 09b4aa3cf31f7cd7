"""The right parts that exhibits share, so that each shows one mistake only."""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor

HALF_PRECISIONS = (torch.float16, torch.bfloat16)
TILE = 16


def usual_care(
    function: Callable | None = None,
    *,
    float32: bool = True,
    heads: bool = True,
    one_mask: bool = True,
) -> Callable:
    """Do around an attention function what every good one does first.

    float32 : compute half precisions in float32 and round the result once.
    heads : with `enable_gqa`, give each query head its own key and value head.
    one_mask : refuse `attn_mask` together with `is_causal`.
    """
    if function is None:
        return functools.partial(
            usual_care, float32=float32, heads=heads, one_mask=one_mask
        )
    signature = inspect.signature(function)

    @functools.wraps(function)
    def call(*args, **kwargs):
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        dtype = given["q"].dtype
        if one_mask and given.get("is_causal"):
            refuse_two_masks(given.get("attn_mask"))
        if heads and given.get("enable_gqa"):
            H = given["q"].shape[1]
            given["k"] = share_heads(given["k"], H)
            given["v"] = share_heads(given["v"], H)
        if float32 and dtype in HALF_PRECISIONS:
            given.update((name, given[name].float()) for name in "qkv")
        return function(*bound.args, **bound.kwargs).to(dtype)

    return call


def refuse_two_masks(attn_mask: Tensor | None) -> None:
    """Raise ValueError where a causal call brings a mask as well."""
    if attn_mask is not None:
        raise ValueError("pass attn_mask or is_causal, not both")


def share_heads(x: Tensor, H: int) -> Tensor:
    """Repeat each key head for the neighbouring query heads that read it."""
    return x.repeat_interleave(H // x.shape[1], dim=1)


def scale_of(q: Tensor, scale: float | None) -> float:
    """Return the given scale, or 1/√D."""
    return q.shape[-1] ** -0.5 if scale is None else scale


def scaled_scores(q: Tensor, k: Tensor, scale: float | None = None) -> Tensor:
    """Return the scaled scores (B, H, L, S)."""
    return (q * scale_of(q, scale)) @ k.mT


def is_bool(attn_mask: Tensor | None) -> bool:
    """Whether there is a mask and it is boolean."""
    return attn_mask is not None and attn_mask.dtype == torch.bool


def causal_keep(scores: Tensor, first_row: int = 0, first_key: int = 0):
    """Return (L, S), True where a query may see a key of the past or itself."""
    rows = first_row + torch.arange(scores.shape[-2])
    keys = first_key + torch.arange(scores.shape[-1])
    return keys <= rows[:, None]


def masked(
    scores: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    first_row: int = 0,
    first_key: int = 0,
) -> Tensor:
    """Set the scores of forbidden keys to −∞; add a floating mask.

    `first_row` and `first_key` say where a tile of scores begins.
    """
    if is_causal:
        keep = causal_keep(scores, first_row, first_key)
        scores = scores.masked_fill(~keep, -torch.inf)
    if is_bool(attn_mask):
        return scores.masked_fill(~attn_mask, -torch.inf)
    if attn_mask is not None:
        return scores + attn_mask.to(scores.dtype)
    return scores


def finite(row_max: Tensor) -> Tensor:
    """Replace −∞ by 0, so that −∞ − row_max is −∞ and never NaN."""
    return row_max.masked_fill(row_max == -torch.inf, 0.0)


def softmax(scores: Tensor, dim: int = -1) -> Tensor:
    """Return weights that sum to 1, or to 0 where every score is −∞."""
    if scores.numel() == 0:
        return scores
    largest = finite(scores.detach().amax(dim, keepdim=True))
    weights = torch.exp(scores - largest)
    return weights / safe_sum(weights.sum(dim, keepdim=True))


def safe_sum(row_sum: Tensor) -> Tensor:
    """Replace 0 by 1, to divide by."""
    return row_sum.masked_fill(row_sum == 0.0, 1.0)


def columns(attn_mask: Tensor | None, keys: slice) -> Tensor | None:
    """Return the part of a mask that belongs to some keys."""
    if attn_mask is None or attn_mask.shape[-1] == 1:
        return attn_mask
    return attn_mask[..., keys]


class Row(NamedTuple):
    """The running softmax of every row (the papers' m, l, O)."""

    row_max: Tensor
    row_sum: Tensor
    acc: Tensor


def start(q: Tensor, v: Tensor) -> Row:
    """Return the state before the first key."""
    rows = q.shape[:-1]
    return Row(
        q.new_full((*rows, 1), -torch.inf),
        q.new_zeros(*rows, 1),
        q.new_zeros(*rows, v.shape[-1]),
    )


def tiles(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    tile: int = TILE,
) -> Iterator[tuple[Tensor, Tensor]]:
    """Walk over the keys: yield a tile of masked scores and its values."""
    for s in range(0, k.shape[2], tile):
        keys = slice(s, s + tile)
        scores = scaled_scores(q, k[:, :, keys], scale)
        mask = columns(attn_mask, keys)
        yield masked(scores, mask, is_causal, 0, s), v[:, :, keys]


def take_in(state: Row, scores: Tensor, v: Tensor) -> Row:
    """Take a tile into the running softmax."""
    row_max = torch.maximum(state.row_max, scores.amax(-1, keepdim=True))
    rescale = torch.exp(state.row_max - finite(row_max))
    weights = torch.exp(scores - finite(row_max))
    return Row(
        row_max,
        state.row_sum * rescale + weights.sum(-1, keepdim=True),
        state.acc * rescale + weights @ v,
    )


def finish(state: Row) -> Tensor:
    """Divide once; a row that saw no key gives 0."""
    return state.acc / safe_sum(state.row_sum)


class Saved(NamedTuple):
    """What the forward pass leaves for a hand-written backward pass.

    `lse` is the log-sum-exp of a row of scores, 0 for a row without keys.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    scores: Tensor
    weights: Tensor
    row_max: Tensor
    lse: Tensor
    scale: float


class _WithBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, attn_mask, is_causal, scale, backward):
        scale = scale_of(q, scale)
        scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
        weights = softmax(scores)
        row_max = q.new_zeros(*q.shape[:-1], 1)
        if scores.numel():
            row_max = finite(scores.amax(-1, keepdim=True))
        row_sum = torch.exp(scores - row_max).sum(-1, keepdim=True)
        lse = row_max + torch.log(safe_sum(row_sum))
        ctx.save_for_backward(q, k, v, scores, weights, row_max, lse)
        ctx.scale, ctx.backward_pass = scale, backward
        return weights @ v

    @staticmethod
    def backward(ctx, dout):
        saved = Saved(*ctx.saved_tensors, ctx.scale)
        return *ctx.backward_pass(saved, dout), None, None, None, None


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    backward: Callable[[Saved, Tensor], tuple[Tensor, Tensor, Tensor]],
) -> Tensor:
    """Attend rightly forwards; backwards, do as `backward(saved, dout)` says.

    It returns the gradients of q, k and v.
    """
    return _WithBackward.apply(q, k, v, attn_mask, is_causal, scale, backward)
