"""Which slips in the way back go wrong, and in which of the three gradients?

Six loops that really run, each with one part of `flash_backward` changed.
Everything else is its own; with no slip at all the loop gives exactly its
numbers. The output of the forward pass is right in all of them, so only the
gradients can tell.

Source: the slips are those of the museum (`attention_lab.verify.museum`), in
the same order: for dK, Dao-AILab/flash-attention#373; for the mask, close to
Dao-AILab/flash-attention#2101; the others are derived from Dao 2023,
"FlashAttention-2", section 3.1.2.
Letters: B batch, H heads, L queries, S keys, D head width.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attention_lab.axes import check_tile
from attention_lab.contract import check_attention_call, check_tensors
from attention_lab.steps.flash_backward import (
    FlashGradients,
    GradientStep,
    check_backward,
)
from attention_lab.steps.scaled_dot_product import masked


def shift_by_lse(
    lse: Tensor, query: Tensor, key: Tensor, is_causal: bool
) -> Tensor:
    """Return what turns a score into a weight: the row's log-sum-exp.

    A row that sees no key gets +∞, which makes its weights 0.
    """
    return lse.masked_fill(lse == -math.inf, math.inf)


def shift_by_max(
    lse: Tensor, query: Tensor, key: Tensor, is_causal: bool
) -> Tensor:
    """Return the row's largest score in place of its log-sum-exp."""
    row_max = masked(query @ key.mT, None, is_causal).amax(-1)
    return row_max.masked_fill(row_max == -math.inf, math.inf)


def hide_nothing(
    scores: Tensor, attn_mask: None, is_causal: bool, row: int, s: int
) -> Tensor:
    """Leave the scores of a tile as they are, also in the future."""
    return scores


def center(weights: Tensor, d_weights: Tensor, row_dot: Tensor) -> Tensor:
    """Return the gradient of the scores: what the softmax lets through."""
    return weights * (d_weights - row_dot)


def center_not(weights: Tensor, d_weights: Tensor, row_dot: Tensor) -> Tensor:
    """Go back through the softmax as if its rows need not sum to 1."""
    return weights * d_weights


def turned(d_scores: Tensor) -> Tensor:
    """Let every key meet the queries of the tile."""
    return d_scores.mT


def not_turned(d_scores: Tensor) -> Tensor:
    """Let every query meet the keys of the tile, as for dQ."""
    return d_scores


def take_weights(weights: Tensor, scores: Tensor) -> Tensor:
    """Return what multiplied the values on the way forward."""
    return weights


def take_scores(weights: Tensor, scores: Tensor) -> Tensor:
    """Return the scores in place of the weights."""
    return scores.masked_fill(scores == -math.inf, 0.0)


class BackwardSlip(NamedTuple):
    """One way to write the loop; the defaults are the right one.

    name : in a few words, for a list.
    says : what goes wrong, in one sentence.
    shift, hide, center, for_keys, for_values, has_scale : the parts of the
        loop, one of them wrong.
    """

    name: str
    says: str
    shift: Callable[..., Tensor] = shift_by_lse
    hide: Callable[..., Tensor] = masked
    center: Callable[..., Tensor] = center
    for_keys: Callable[..., Tensor] = turned
    for_values: Callable[..., Tensor] = take_weights
    has_scale: bool = True


#: The loop without a slip: it must agree with `flash_backward` exactly.
NO_BACKWARD_SLIP = BackwardSlip("right loop", "Nothing is changed.")

#: The six slips, by the name that a recording gives them.
BACKWARD_SLIPS = {
    "row_dot_lost": BackwardSlip(
        "dS without D",
        "dS = P ∘ dP forgets that the weights of a row sum to 1: dQ and dK "
        "are wrong, dV does not need dS.",
        center=center_not,
    ),
    "scale_lost": BackwardSlip(
        "scale lost",
        "The scores were scaled, their gradients are not: dQ and dK are too "
        "large by √D, and everything before them is right.",
        has_scale=False,
    ),
    "dk_transposed": BackwardSlip(
        "dK without the transpose",
        "dK takes dS as it lies, rows for columns. In square tiles no shape "
        "complains, and dQ and dV are right.",
        for_keys=not_turned,
    ),
    "causal_ignored": BackwardSlip(
        "causal mask ignored",
        "The weights are computed again without the mask: on the diagonal "
        "keys of the future get weights too, and gradients.",
        hide=hide_nothing,
    ),
    "scores_for_weights": BackwardSlip(
        "dV from scores",
        "dV mixes the gradients with the scores in place of the weights; dQ "
        "and dK are right.",
        for_values=take_scores,
    ),
    "max_for_lse": BackwardSlip(
        "maximum for log-sum-exp",
        "exp(score − max) is not divided by the row's sum: the weights of a "
        "row sum to more than 1, and all three gradients are wrong.",
        shift=shift_by_max,
    ),
}


def flash_backward_with_slip(
    slip: BackwardSlip,
    out_grad: Float[Tensor, "B H L D_v"],
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D_v"],
    out: Float[Tensor, "B H L D_v"],
    lse: Float[Tensor, "B H L"],
    is_causal: bool = False,
    *,
    TILE_L: int,
    TILE_S: int,
    trace: list[GradientStep] | None = None,
) -> FlashGradients:
    """Run the loop of `flash_backward` with one slip; return what it returns.

    Parameters
    ----------
    slip : one of `BACKWARD_SLIPS`, or `NO_BACKWARD_SLIP`.
    out, lse : what `flash_forward` returned for the same arguments.
    trace : a list to which every visited tile is appended.

    Raises
    ------
    ValueError
        If a tile size is below 1, or a tile that is not square meets the slip
        that needs the transpose; other errors: `flash_backward`.

    Examples
    --------
    One query, one key: the weight is 1, so nothing can change it, and dK is 0.

    >>> x = torch.ones(1, 1, 1, 1)
    >>> inputs = dict(out=x, lse=torch.ones(1, 1, 1), TILE_L=1, TILE_S=1)
    >>> for slip in (NO_BACKWARD_SLIP, BACKWARD_SLIPS["row_dot_lost"]):
    ...     flash_backward_with_slip(slip, x, x, x, x, **inputs)[1].item()
    0.0
    1.0
    """
    call = check_attention_call(query, key, value, is_causal=is_causal)
    check_tensors(query=query, key=key, value=value)
    check_backward(call, query, out_grad, out, lse)
    check_tensors(out_grad=out_grad, out=out, lse=lse)
    TILE_L = check_tile("TILE_L", TILE_L)
    TILE_S = check_tile("TILE_S", TILE_S)
    _check_square(slip, call.L, call.S, TILE_L, TILE_S)
    scaled = query * call.scale
    row_dot_BHL1 = (out_grad * out).sum(-1, keepdim=True)
    shift_BHL1 = slip.shift(lse, scaled, key, is_causal)[..., None]
    dq, dk, dv = (torch.zeros_like(x) for x in (query, key, value))
    for s in range(0, call.S, TILE_S):
        keys = slice(s, s + TILE_S)
        start = s // TILE_L * TILE_L if is_causal else 0
        for row in range(start, call.L, TILE_L):
            rows = slice(row, row + TILE_L)
            scores = scaled[:, :, rows] @ key[:, :, keys].mT
            scores = slip.hide(scores, None, is_causal, row, s)
            weights = torch.exp(scores - shift_BHL1[:, :, rows])
            d_weights = out_grad[:, :, rows] @ value[:, :, keys].mT
            row_dot = row_dot_BHL1[:, :, rows]
            d_scores = slip.center(weights, d_weights, row_dot)
            q_tile = (scaled if slip.has_scale else query)[:, :, rows]
            mixed = slip.for_values(weights, scores)
            dq[:, :, rows] += d_scores @ key[:, :, keys]
            dk[:, :, keys] += slip.for_keys(d_scores) @ q_tile
            dv[:, :, keys] += mixed.mT @ out_grad[:, :, rows]
            if trace is not None:
                place = (row // TILE_L, s // TILE_S)
                tile = (scores, weights, d_weights, d_scores)
                sums = (dq[:, :, rows], dk[:, :, keys], dv[:, :, keys])
                copies = (x.clone() for x in sums)
                trace.append(GradientStep(*place, *tile, *copies))
    return FlashGradients(dq * call.scale if slip.has_scale else dq, dk, dv)


def _check_square(
    slip: BackwardSlip, L: int, S: int, TILE_L: int, TILE_S: int
) -> None:
    """Refuse tiles in which a missing transpose stops the loop by itself."""
    if slip.for_keys is turned:
        return
    if TILE_L != TILE_S or L % TILE_L or S % TILE_S:
        raise ValueError(
            f"the slip {slip.name!r} runs only in square tiles that divide L "
            f"and S: L = {L}, S = {S}, TILE_L = {TILE_L}, TILE_S = {TILE_S}"
        )
