"""Checks by property: what must not change when something else does.

Most compare bits: an output that does not depend on a token cannot change in
any bit when that token changes, because the same numbers are added in the same
order.
"""

import numpy as np
import torch

from attention_lab.verify.module.bench import (
    Bench,
    Finding,
    NotTested,
    by_design,
    smallest,
)
from attention_lab.verify.module.values import Result, needed
from attention_lab.verify.module.weights import output_is_identity

Inputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def half_the_digits(expected: np.ndarray, dtype: str) -> float:
    """Return the room for rounding where no derived bound is at hand.

    Half of the digits must agree. Rounding touches the last few, a mistake
    touches the first.
    """
    eps = {"float64": 2.0**-52, "float32": 2.0**-23}[dtype]
    return float(np.sqrt(eps) * np.abs(expected).max(initial=0.0))


def changed(inputs: Inputs, which: str, b: int, token: int) -> Inputs:
    """Return inputs in which one token of one sample is another one.

    `which` is "all" (queries, keys and values share it), "query" or "key"
    (keys and values).
    """
    copies = {id(x): x.clone() for x in inputs}
    new = [copies[id(x)] for x in inputs]
    parts = {"all": new, "query": new[:1], "key": new[1:]}[which]
    for x in {id(part): part for part in parts}.values():
        x[b, token] = x[b, token].flip(-1) + 0.5
    return tuple(new)


def rows_that_change(before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """Return (B, L): True where any bit of a token's output changed."""
    same = (before == after) | (np.isnan(before) & np.isnan(after))
    return ~same.all(axis=-1)


def influence(
    bench: Bench,
    inputs: Inputs,
    mask: torch.Tensor | None = None,
    is_causal: bool = False,
    padding: torch.Tensor | None = None,
    sample: int = 0,
) -> np.ndarray:
    """Return (L, S): True where token s changes the output of token l.

    Only within a sample; one is looked at.
    """
    which = "all" if bench.drawn.style == "self" else "key"

    def run(tokens: Inputs) -> np.ndarray:
        return bench.run(tokens, mask, is_causal, padding=padding)

    before = run(inputs)
    S = inputs[1].shape[1]
    seen = np.zeros((inputs[0].shape[1], S), bool)
    for s in range(S):
        after = run(changed(inputs, which, sample, s))
        seen[:, s] = rows_that_change(before, after)[sample]
    return seen


def view(bench: Bench, L: int, S: int) -> np.ndarray:
    """Return (L, S): whom a token may see where no mask is given.

    Everyone, or in a causal module no later one; a module that is meant to
    have a window has the one that it shows.
    """
    if not bench.has_positions:
        return np.tri(L, S, dtype=bool) | (not bench.is_causal)
    own = influence(bench, bench.inputs(1, L, S))
    return own | (np.eye(L, S, dtype=bool) & (bench.drawn.style == "self"))


def batch_independence(bench: Bench) -> Result:
    """Change every token of one sample; the others must keep their bits."""

    def test(B: int, L: int, S: int) -> Finding | None:
        if B < 2:
            raise NotTested("one sample alone")
        inputs = bench.inputs(B, L, S)
        before = bench.run(inputs)
        other = inputs
        for token in range(inputs[1].shape[1]):
            other = changed(other, "all", B - 1, token)
        moved = rows_that_change(before, bench.run(other))[: B - 1]
        if not moved.any():
            return None
        b, row = map(int, np.argwhere(moved)[0])
        mistake, also = bench.mistake
        return Finding(
            f"Changing sample {B - 1} changes token {row} of sample {b}.",
            {"sample": b, "token": row},
            mistake=mistake or _across_the_batch(bench),
            also=also,
        )

    return smallest(bench, test)


def _across_the_batch(bench: Bench) -> str | None:
    """Recognise a batch taken for the sequence by who changes whom.

    Token l of one sample then changes token l of every sample, and no other.
    """
    B, L, _ = bench.sizes
    inputs = bench.inputs(B, L, L)
    before = bench.run(inputs)
    expected = np.zeros((B, L), bool)
    for row in range(L):
        after = bench.run(changed(inputs, "all", 0, row))
        expected[:] = np.arange(L) == row
        if (rows_that_change(before, after) != expected).any():
            return None
    return "batch-sequence-swap"


def find_causality(bench: Bench) -> None:
    """Find out whether the module always hides later tokens.

    It is then taken for a causal one from here on, also if it is off by one.
    """
    B, L, _ = bench.sizes
    seen = influence(bench, bench.inputs(B, L, L))
    bench.is_causal = _looks_causal(seen)
    if bench.is_causal:
        bench.notes.append("It is always causal: later tokens are hidden.")


def every_token_is_seen(bench: Bench) -> Result:
    """Change one token; every output must change, but for a causal past."""

    def test(B: int, L: int, S: int) -> Finding | None:
        seen = influence(bench, bench.inputs(B, L, S))
        wanted = view(bench, L, S)
        if bench.has_positions:
            # Whom else it sees is its own business.
            wanted = np.eye(L, S, dtype=bool)
        missed = np.argwhere(~seen & wanted)
        if not len(missed):
            return None
        row, token = map(int, missed[0])
        mistake, also = bench.mistake
        if (seen == np.tri(L, S, dtype=bool).T).all():
            mistake = "causal-transposed"
        return Finding(
            f"Token {row} does not see token {token}: changing token {token} "
            f"leaves the output of token {row} as it was."
            + ("" if mistake else by_design()),
            {"token": row, "key": token},
            mistake=mistake,
            also=also,
        )

    return smallest(bench, test)


def _looks_causal(seen: np.ndarray) -> bool:
    """Say whether a query sees all that came before, and no distant future.

    How far it sees must depend on the distance alone: so it does in causal
    modules, also in those that are off by one, but not where heads or samples
    are mixed up.
    """
    L = len(seen)
    reach = [np.diagonal(seen, k) for k in range(L)]
    is_even = all(len(set(line.tolist())) == 1 for line in reach)
    sees_the_past = bool(seen[np.tri(L, dtype=bool)].all())
    return is_even and sees_the_past and not seen[0, L - 1]


def permutation_equivariance(bench: Bench) -> Result:
    """Permute the tokens; the outputs must be permuted, nothing else."""
    if bench.is_causal:
        raise NotTested("a causal module depends on the order of its tokens")
    if bench.has_positions:
        raise NotTested("it has positions of its own, as positions='own' says")
    own = bench.drawn.has_keys_of_their_own
    dtype = str(bench.drawn.dtype).removeprefix("torch.")

    def test(B: int, L: int, S: int) -> Finding | None:
        if L < 2:
            raise NotTested("one token alone")
        query, key, value = bench.inputs(B, L, S)
        order = torch.arange(L).roll(1)
        straight = bench.run((query, key, value))
        if own:
            moved = (query, key[:, order], value[:, order])
            expected = straight
        else:
            moved = (query[:, order],) * 3
            expected = straight[:, order.numpy()]
        gap = np.abs(bench.run(moved) - expected)
        if gap.max() <= half_the_digits(expected, dtype):
            return None
        b, row, channel = map(int, np.unravel_index(gap.argmax(), gap.shape))
        what = "the keys and values" if own else "the tokens"
        mistake, also = bench.mistake
        return Finding(
            f"Permuting {what} changes the output of token {row} by "
            f"{gap.max():.3g}, more than a permutation."
            + ("" if mistake else by_design()),
            {"sample": b, "token": row, "channel": channel},
            mistake=mistake,
            also=also,
        )

    return smallest(bench, test)


def query_independence(bench: Bench) -> Result:
    """Change one query; the outputs of the others must keep their bits."""
    if not bench.drawn.has_keys_of_their_own:
        raise NotTested("in self-attention a query is a key as well")

    def test(B: int, L: int, S: int) -> Finding | None:
        if L < 2:
            raise NotTested("one query alone")
        inputs = bench.inputs(B, L, S)
        before = bench.run(inputs)
        for token in range(L):
            after = bench.run(changed(inputs, "query", 0, token))
            moved = rows_that_change(before, after)
            moved[0, token] = False
            if moved.any():
                b, row = map(int, np.argwhere(moved)[0])
                mistake, also = bench.mistake
                return Finding(
                    f"Changing query {token} changes the output of query "
                    f"{row}{f' of sample {b}' if b else ''}.",
                    {"sample": b, "token": row, "changed": token},
                    mistake=mistake,
                    also=also,
                )
        return None

    return smallest(bench, test)


def head_independence(bench: Bench) -> Result:
    """Change one head's value projection: only its channels may change.

    The merged heads are seen with the output projection set to the identity.
    """
    found = needed(bench)
    if bench.H == 1:
        raise NotTested("there is one head")
    if found.out is None:
        raise NotTested("no output projection was recognised")
    if len(set(found.out.weight.shape)) > 1:
        raise NotTested("the output projection is not square")
    if found.is_shared:
        raise NotTested("one layer makes queries, keys and values")
    if not all(x.can_be_set for x in (found.out, *found.value_layers)):
        raise NotTested("its weights are computed from others")
    packing = bench.packing or bench.read_as or next(found.packings())
    D = found.inner // bench.H

    def merged(B: int, L: int, S: int, h: int | None) -> np.ndarray:
        with output_is_identity(found), torch.no_grad():
            if h is not None:
                for layer, rows in found.value_rows(h, packing):
                    axis = layer.axis(packing.flipped)
                    picked = layer.weight.movedim(axis, 0)
                    picked[rows] = picked[rows].flip(-1) + 0.25
            return bench.run(bench.inputs(B, L, S))

    def test(B: int, L: int, S: int) -> Finding | None:
        before = merged(B, L, S, None)
        for h in range(bench.H):
            moved = before != merged(B, L, S, h)
            own = np.zeros(moved.shape[-1], bool)
            own[h * D : (h + 1) * D] = True
            leaks = np.argwhere(moved & ~own)
            silent = np.argwhere(~moved.any(axis=-1))
            mistake, also = bench.mistake
            if len(leaks):
                b, row, channel = map(int, leaks[0])
                return Finding(
                    f"Changing the values of head {h} changes channel "
                    f"{channel} of token {row} before the output projection; "
                    f"that channel belongs to head {channel // D}.",
                    {"sample": b, "token": row, "channel": channel, "head": h},
                    mistake=mistake,
                    also=also,
                )
            if len(silent):
                b, row = map(int, silent[0])
                return Finding(
                    f"Changing the values of head {h} leaves token {row} as "
                    "it was.",
                    {"sample": b, "token": row, "head": h},
                    mistake=mistake,
                    also=also,
                )
        return None

    return smallest(bench, test)
