"""Do the weights of attention say why a model named a digit?

Two experiments. The same output can be mixed with other weights, because the
values of all patches are more numbers than an output has channels. And a patch
can be taken away: what that does to the logit is a fact about the model, and
can be held against the weight that the patch got.

Sources: Jain & Wallace 2019, "Attention is not Explanation", sections 4.1 and
4.2; Wiegreffe & Pinter 2019, "Attention is not not Explanation", section 3.
Letters: B batch, L query patches, S key patches, H heads, D head width.
"""

from typing import Any

import torch
from einops import repeat
from jaxtyping import Float
from torch import Tensor, inf
from torch.nn.functional import one_hot

from attention_lab.axes import check_axes
from attention_lab.examples import PATCH
from attention_lab.steps.scaled_dot_product import (
    attention_weights,
    mix_values,
)
from attention_lab.steps.vision import IMAGE, PATCHES, TinyViT

PER_SIDE = IMAGE // PATCH


def other_weights(
    weights_BHLS: Float[Tensor, "B H L S"], value: Float[Tensor, "B H S D"]
) -> Float[Tensor, "B H L S"]:
    """Return other weights that mix the values to the same output.

    A change of the weights that leaves the output and their sum alone lies in
    the null space of the values and a row of ones, D + 1 numbers per key. Of
    these changes the one that lowers the largest weight fastest is taken, until
    a weight is 0; that one stays 0, and so on, until nothing is left to change.
    With S ≤ D + 1 independent values there is no such change, and the weights
    come back.

    Raises
    ------
    ShapeMismatch
        If an array has not four axes.

    Examples
    --------
    Three values in a row: the middle one is the mean of the others.

    >>> weights_BHLS = torch.tensor([[[[0.2, 0.6, 0.2]]]])
    >>> value = torch.tensor([[[[0.0], [1.0], [2.0]]]])
    >>> other = other_weights(weights_BHLS, value).flatten().tolist()
    >>> [abs(round(weight, 6)) for weight in other]
    [0.5, 0.0, 0.5]
    """
    check_axes("weights_BHLS", weights_BHLS, "BHLS")
    check_axes("value", value, "BHSD")
    weights, v = weights_BHLS.double(), value.double()
    rows = torch.cat([v.mT, torch.ones_like(v[..., :1]).mT], dim=-2)
    S = weights.shape[-1]
    largest = one_hot(weights.argmax(-1), S).to(v.dtype)
    is_free = torch.ones_like(weights)
    # A direction shorter than this is what rounding leaves of none.
    tiny = torch.finfo(v.dtype).eps ** 0.5
    for _ in range(S):
        free_rows = rows[:, :, None] * is_free[..., None, :]
        start = largest * is_free
        kept = torch.linalg.pinv(free_rows) @ (free_rows @ start[..., None])
        change = (kept[..., 0] - start) * is_free
        fastest = -(change * largest).sum(-1, keepdim=True)
        if not (fastest > tiny).any():
            break
        falls = (change < 0) & (fastest > tiny)
        room = torch.where(falls, weights / -change.where(falls, -1.0), inf)
        step = room.amin(-1, keepdim=True)
        weights = weights + step.masked_fill(step == inf, 0.0) * change
        is_empty = falls & (room <= step)
        weights = weights.masked_fill(is_empty, 0.0)
        is_free = is_free.masked_fill(is_empty, 0.0)
    return weights.clamp(min=0).to(weights_BHLS.dtype)


def attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D"],
) -> Float[Tensor, "B H L D"]:
    """Attend with `other_weights` instead of the softmax's."""
    weights_BHLS = attention_weights(query, key, value)
    return mix_values(other_weights(weights_BHLS, value), value)


@torch.no_grad()
def weight_received(
    model: TinyViT, images: Float[Tensor, "B 8 8"], block: int = -1
) -> Float[Tensor, "B S"]:
    """Return how much weight each patch gets, averaged over heads and queries.

    Examples
    --------
    >>> shares_BS = weight_received(TinyViT(), torch.zeros(3, 8, 8))
    >>> shares_BS.shape, round(shares_BS[0].sum().item(), 4)
    (torch.Size([3, 16]), 1.0)
    """
    seen: list[Tensor] = []

    def watched(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights_BHLS = attention_weights(q, k, v)
        seen.append(weights_BHLS)
        return mix_values(weights_BHLS, v)

    before = [each.attention for each in model.blocks]
    try:
        model.use(watched)(images)
    finally:
        for each, attend in zip(model.blocks, before, strict=True):
            each.attention = attend
    return seen[block].mean(dim=(1, 2))


@torch.no_grad()
def fall_of_logit(
    model: TinyViT, images: Float[Tensor, "B 8 8"], fill: float = 0.0
) -> Float[Tensor, "B L"]:
    """Return how far the named digit's logit falls if a patch is painted over.

    Examples
    --------
    >>> fall_of_logit(TinyViT(), torch.zeros(3, 8, 8)).abs().max().item()
    0.0
    """
    whole = model(images)
    named = whole.argmax(dim=1)
    many = repeat(images, "b r c -> l b r c", l=PATCHES).clone()
    for patch in range(PATCHES):
        row, column = divmod(patch, PER_SIDE)
        rows = slice(row * PATCH, (row + 1) * PATCH)
        columns = slice(column * PATCH, (column + 1) * PATCH)
        many[patch, :, rows, columns] = fill
    falls = [
        (whole - model(painted)).gather(1, named[:, None]) for painted in many
    ]
    return torch.cat(falls, dim=1)


def rank_correlation(one: Any, other: Any) -> Float[Tensor, "B"]:
    """Return Spearman's correlation of each row; ties share their mean rank.

    A row of equal numbers has no order, and no correlation: NaN.

    Examples
    --------
    >>> ordered = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
    >>> found = rank_correlation(ordered, ordered.flip(1) ** 3).tolist()
    >>> [round(one, 6) for one in found]
    [-1.0, -1.0]
    """
    centred = []
    for x in (one, other):
        smaller = (x[:, None] < x[..., None]).sum(-1)
        equal = (x[:, None] == x[..., None]).sum(-1)
        ranks = smaller + (equal - 1) / 2
        centred.append(ranks - ranks.mean(dim=1, keepdim=True))
    a, b = centred
    return (a * b).sum(1) / (a.norm(dim=1) * b.norm(dim=1))
