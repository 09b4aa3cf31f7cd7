"""Which slips in the flash loop go wrong, and how does each look tile by tile?

Five loops that really run, each with one line changed: what the block keeps is
not rescaled (two ways), the maximum starts at 0, and two ways to fill the last,
ragged tile. Everything else is `flash_forward`'s own; with no slip at all the
loop gives exactly its numbers.

Source: the slips are those of public code, named in the museum
(`attention_lab.verify.museum`): Dao-AILab/flash-attention#2082 starts a maximum
at 0, 66RING/tiny-flash-attention#12 forgets the ragged tile.
Letters: B batch, H heads, L queries, S keys, D head width.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from attention_lab.axes import check_tile
from attention_lab.contract import check_attention_call, check_tensors
from attention_lab.steps.flash_forward import TileStep
from attention_lab.steps.flash_launch import FlashResult
from attention_lab.steps.online_softmax import (
    RunningSoftmax,
    finish,
    finite,
    start,
    update,
)
from attention_lab.steps.scaled_dot_product import masked


def update_without_acc_rescale(
    state: RunningSoftmax, scores: Tensor, value: Tensor
) -> RunningSoftmax:
    """Take in a tile and rescale the sum, but not the mix of values."""
    right = update(state, scores, value)
    weights = torch.exp(scores - finite(right.row_max)[..., None])
    return right._replace(acc=state.acc + weights @ value)


def update_without_sum_rescale(
    state: RunningSoftmax, scores: Tensor, value: Tensor
) -> RunningSoftmax:
    """Take in a tile and rescale the mix of values, but not the sum."""
    right = update(state, scores, value)
    weights = torch.exp(scores - finite(right.row_max)[..., None])
    return right._replace(row_sum=state.row_sum + weights.sum(-1))


def start_with_max_zero(like: Tensor, D_v: int) -> RunningSoftmax:
    """Start with a maximum of 0, as with a sum of 0."""
    state = start(like, D_v)
    return state._replace(row_max=torch.zeros_like(state.row_max))


def load_exactly(before: Tensor | None, x: Tensor, s: int, TILE_S: int):
    """Load the rows that exist: the last tile may be shorter."""
    return x[:, :, s : s + TILE_S]


def load_zeros(before: Tensor | None, x: Tensor, s: int, TILE_S: int):
    """Load a whole tile; rows past the end are zeros, like real ones."""
    tile = x.new_zeros(*x.shape[:2], TILE_S, x.shape[3])
    rows = x[:, :, s : s + TILE_S]
    tile[:, :, : rows.shape[2]] = rows
    return tile


def load_over_the_tile_before(
    before: Tensor | None, x: Tensor, s: int, TILE_S: int
):
    """Load the rows that exist over the tile before, and use all of it."""
    tile = load_zeros(None, x, s, TILE_S) if before is None else before.clone()
    rows = x[:, :, s : s + TILE_S]
    tile[:, :, : rows.shape[2]] = rows
    return tile


class Slip(NamedTuple):
    """One way to write the loop; the defaults are the right one.

    name : in a few words, for a list.
    says : what goes wrong, in one sentence.
    begin, take_in, load : the three parts of the loop, one of them wrong.
    """

    name: str
    says: str
    begin: Callable[..., RunningSoftmax] = start
    take_in: Callable[..., RunningSoftmax] = update
    load: Callable[..., Tensor] = load_exactly


#: The loop without a slip: it must agree with `flash_forward` exactly.
NO_SLIP = Slip("right loop", "Nothing is changed.")

#: The five slips, by the name that a recording gives them.
SLIPS = {
    "acc_not_rescaled": Slip(
        "acc is not rescaled",
        "When the maximum grows, the sum shrinks by α and acc does not: "
        "earlier keys weigh too much in the output.",
        take_in=update_without_acc_rescale,
    ),
    "sum_not_rescaled": Slip(
        "sum is not rescaled",
        "When the maximum grows, acc shrinks by α and the sum does not: "
        "the output is divided by too much.",
        take_in=update_without_sum_rescale,
    ),
    "max_starts_at_zero": Slip(
        "max starts at 0",
        "All scores lie far below the maximum of 0, so every weight "
        "underflows: the sum stays 0 and the output is lost.",
        begin=start_with_max_zero,
    ),
    "tail_unmasked": Slip(
        "tail not masked",
        "The last tile is filled up with zeros, and their scores of 0 take "
        "part in the softmax as if these keys were real.",
        load=load_zeros,
    ),
    "stale_tile": Slip(
        "tail of the tile before",
        "The last tile has fewer keys; behind them lie keys of the tile "
        "before, which are counted a second time.",
        load=load_over_the_tile_before,
    ),
}


def flash_with_slip(
    slip: Slip,
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H S D"],
    value: Float[Tensor, "B H S D_v"],
    is_causal: bool = False,
    *,
    TILE_L: int,
    TILE_S: int,
    trace: list[TileStep] | None = None,
) -> FlashResult:
    """Run the flash loop with one slip; return what it returns.

    Parameters
    ----------
    slip : one of `SLIPS`, or `NO_SLIP`.
    trace : a list to which every visited tile is appended. Its α is the factor
        that belongs to the maxima, whether or not the loop applied it.

    Other arguments and errors: `attention_lab.contract.check_attention_call`;
    a tile size below 1 is a ValueError.

    Examples
    --------
    >>> q, k = torch.ones(1, 1, 1, 2), torch.ones(1, 1, 3, 2)
    >>> v = torch.ones(1, 1, 3, 1)
    >>> tiles = {"TILE_L": 1, "TILE_S": 2}
    >>> flash_with_slip(NO_SLIP, q, k, v, **tiles).out_BHLD.item()
    1.0
    >>> slip = SLIPS["tail_unmasked"]
    >>> 0 < flash_with_slip(slip, q, k, v, **tiles).out_BHLD.item() < 1
    True
    """
    call = check_attention_call(query, key, value, is_causal=is_causal)
    check_tensors(query=query, key=key, value=value)
    TILE_L = check_tile("TILE_L", TILE_L)
    TILE_S = check_tile("TILE_S", TILE_S)
    query = query * call.scale
    parts = []
    for row in range(0, call.L, TILE_L):
        q_tile = query[:, :, row : row + TILE_L]
        state = slip.begin(q_tile, value.shape[-1])
        visible = min(call.S, row + q_tile.shape[2]) if is_causal else call.S
        k_tile: Any = None
        v_tile: Any = None
        for s in range(0, visible, TILE_S):
            k_tile = slip.load(k_tile, key, s, TILE_S)
            v_tile = slip.load(v_tile, value, s, TILE_S)
            scores = masked(q_tile @ k_tile.mT, None, is_causal, row, s)
            before, state = state, slip.take_in(state, scores, v_tile)
            if trace is not None:
                rescale = torch.exp(before.row_max - finite(state.row_max))
                place = (row // TILE_L, s // TILE_S)
                trace.append(TileStep(*place, scores, rescale, *state))
        parts.append(finish(state))
    outs, lses = zip(*parts, strict=True)
    return FlashResult(torch.cat(outs, dim=2), torch.cat(lses, dim=2))
