"""Values of modules that have positions, a bias or a window of their own.

What such a module computes between two tokens is its own business. But rotary
positions turn a query and a key by the same angle where a token meets itself,
and a bias or a window adds a constant there. So these must still be right:
the score of a token with itself, up to that constant; and every output, which
is a mean of the values.

To see both, every key but one is made the zero vector, and all tokens but
that one are equal.

Letters: B batch, L queries, H heads, D head width, E model width.
"""

import math

import numpy as np
import torch

from attention_lab.verify.module.bench import Bench, Finding, NotTested
from attention_lab.verify.module.subject import (
    Subject,
    SubjectFailure,
    float64_by_default,
)
from attention_lab.verify.module.weights import Packing, recognise
from attention_lab.verify.module.wrong_module import Weights

CONTENTS = 4  # tokens that are tried at every place
#: Weights nearer to 0 or 1 than this say too little about their score.
EDGE = 1e-5
#: Relative room, far above rounding in float64 and far below a mistake.
ROOM = 1e-6


def own_scores(bench: Bench, packing: Packing, L: int) -> Finding | None:
    """Compare values, and scores of tokens with themselves.

    In float64, at one place after the other. Returns what is wrong.

    Raises
    ------
    NotTested
        If the module does not run in float64, no key can be made zero, or
        the tokens themselves get something added at every place.
    """
    weights = bench.projections.read(packing)
    query, key, value, plain = _tokens(bench, weights, L)
    out = _run(bench, query, key, value)
    if not _places_are_equal(bench, query, key, value):
        return _equal_values(bench, packing, weights, query, key, value)
    B, H = len(out), bench.H
    places = np.arange(B) % L
    v = _apply(value[np.arange(B), places], weights["v"]) - plain
    shares = np.zeros((B, L, H))
    for b in range(B):
        # out = W_o (v0 + P_h (v - v0)) + b_o, linear in the weights P_h.
        by_head = np.zeros((H, len(v[b])))
        for h, part in enumerate(np.split(np.arange(len(v[b])), H)):
            by_head[h, part] = v[b, part]
        columns = _output(by_head, weights) - _output(0 * by_head, weights)
        rest = out[b] - _output(plain[None], weights)
        shares[b] = np.linalg.lstsq(columns.T, rest.T, rcond=None)[0].T
        gap = np.abs(rest - shares[b] @ columns)
        if not gap.max() <= ROOM * max(np.abs(out[b]).max(), 1.0):
            row, channel = map(int, np.unravel_index(gap.argmax(), gap.shape))
            return Finding(
                "The output is no mean of the values: all tokens but token "
                f"{places[b]} are equal, and channel {channel} of token {row} "
                f"is off by {gap.max():.3g}.",
                {"token": row, "channel": channel},
            )
    return _judge_scores(bench, weights, query, key, shares, places)


def _tokens(
    bench: Bench, weights: Weights, L: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return queries, keys, values, and what the plain value projects to.

    One sample for each content and place; it stands there, and elsewhere is
    the token whose key is zero.
    """
    rng = np.random.default_rng(4)
    weight, bias = weights["k"]
    try:
        quiet = np.linalg.solve(weight, -bias)
    except np.linalg.LinAlgError:  # not square, or of lower rank
        quiet = np.linalg.lstsq(weight, -bias, rcond=None)[0]
    if np.abs(weight @ quiet + bias).max() > 1e-9 * (1 + np.abs(bias).max()):
        raise NotTested("no token has a key of zeros")
    B = CONTENTS * L
    rows, places = np.arange(B), np.arange(B) % L

    def filled(plain: np.ndarray) -> np.ndarray:
        tokens = np.broadcast_to(plain, (B, L, len(plain))).copy()
        contents = rng.standard_normal((CONTENTS, len(plain)))
        tokens[rows, places] = np.repeat(contents, L, axis=0)
        return tokens

    style = bench.drawn.style
    key = filled(quiet)
    query = key if style == "self" else filled(rng.standard_normal(bench.E))
    value = key
    if style == "cross":
        value = filled(rng.standard_normal(bench.widths[1]))
    elsewhere = value[0, -1] if L > 1 else quiet
    return query, key, value, _apply(elsewhere, weights["v"])


def _run(
    bench: Bench,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    twin: Subject | None = None,
) -> np.ndarray:
    """Return the output of a copy in float64."""
    twin = bench.drawn.copy() if twin is None else twin
    twin.module.double()
    inputs = tuple(map(torch.from_numpy, (query, key, value)))
    if twin.style == "self":
        inputs = inputs[:1] * 3
    try:
        with float64_by_default():
            return bench.run(inputs, subject=twin)
    except SubjectFailure as failure:
        raise NotTested(f"in float64 {failure}") from failure


def _places_are_equal(
    bench: Bench, query: np.ndarray, key: np.ndarray, value: np.ndarray
) -> bool:
    """Say whether equal tokens get equal outputs at every place.

    Equal values have one mean, whatever the weights are.
    """
    alike = tuple(
        np.broadcast_to(x[:1, :1], x[:1].shape).copy()
        for x in (query, key, value)
    )
    out = _run(bench, *alike)[0]
    moved = np.abs(out - out[:1]).max()
    return bool(moved <= ROOM * max(np.abs(out).max(), 1.0))


def _equal_values(
    bench: Bench,
    packing: Packing,
    weights: Weights,
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
) -> Finding:
    """Make every value the projection's bias: every output is that then.

    This holds too if positions are added to the tokens themselves, where no
    other value is known.
    """
    twin = bench.drawn.copy()
    found, _ = recognise(twin.module, bench.E, bench.H)
    biased = not (weights["v"][1] == 0).all()
    if not biased or not all(x.can_be_set for x in found.value_layers):
        raise NotTested("positions are added to the tokens themselves")
    with torch.no_grad():
        for h in range(bench.H):
            for layer, rows in found.value_rows(h, packing):
                axis = layer.axis(packing.flipped)
                layer.weight.movedim(axis, 0)[rows] = 0.0
    out = _run(bench, query, key, value, twin)
    gap = np.abs(out - _output(weights["v"][1], weights))
    if gap.max() <= ROOM * max(np.abs(out).max(), 1.0):
        raise NotTested(
            "positions are added to the tokens themselves, so that no value "
            "is known; its outputs are means of its values"
        )
    _, row, channel = map(int, np.unravel_index(gap.argmax(), gap.shape))
    return Finding(
        "The output is no mean of the values: with one and the same value for "
        f"every token, channel {channel} of token {row} is off by "
        f"{gap.max():.3g}.",
        {"token": row, "channel": channel},
    )


def _apply(x: np.ndarray, linear: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
    weight, bias = linear
    return x @ weight.T + bias


def _output(merged: np.ndarray, weights: Weights) -> np.ndarray:
    return _apply(merged, weights["o"]) if "o" in weights else merged


def _judge_scores(
    bench: Bench,
    weights: Weights,
    query: np.ndarray,
    key: np.ndarray,
    shares: np.ndarray,
    places: np.ndarray,
) -> Finding | None:
    """Compare how the score of a token with itself depends on the token."""
    B, L, H = shares.shape
    rows = np.arange(B)
    q = _apply(query[rows, places], weights["q"]).reshape(B, H, -1)
    k = _apply(key[rows, places], weights["k"]).reshape(B, H, -1)
    D = q.shape[-1]
    expected = ((q * k).sum(-1) / math.sqrt(D)).reshape(CONTENTS, L, H)
    own = shares[rows, places].reshape(CONTENTS, L, H)
    if (own < -ROOM).any() or (own > 1 + ROOM).any():
        return Finding("The weight of a token for itself is not in [0, 1].")
    clear = (own > EDGE) & (own < 1 - EDGE)
    inside = np.clip(own, EDGE, 1 - EDGE)
    got = np.log(inside / (1 - inside))
    # One content against the next: what the place adds drops out.
    both = clear[1:] & clear[:-1]
    if not both.any(axis=(0, 1)).all():
        raise NotTested("no weight of a token for itself is clear enough")
    steps, right = np.diff(got, axis=0), np.diff(expected, axis=0)
    gap = np.where(both, np.abs(steps - right), 0.0)
    if gap.max() <= ROOM * max(np.abs(right).max(), 1.0):
        return None
    _, place, head = map(int, np.unravel_index(gap.argmax(), gap.shape))
    where = np.unravel_index(gap.argmax(), gap.shape)
    return Finding(
        f"The score of token {place} with itself is wrong in head {head}: "
        f"from one token to another it changes by {steps[where]:.5g}, but "
        f"{right[where]:.5g} is right.",
        {"token": place, "head": head},
        float(steps[where]),
        float(right[where]),
        mistake=_scale_card(steps[both], right[both], H, D),
    )


def _scale_card(
    got: np.ndarray, right: np.ndarray, H: int, D: int
) -> str | None:
    """Name a wrong scale: every score is the right one times a constant."""
    factor = float((got * right).sum() / (right * right).sum())
    if np.abs(got - factor * right).max() > ROOM * np.abs(got).max():
        return None
    cards = {
        "scale-by-model-width": H**-0.5,
        "scale-by-num-heads": (D / H) ** 0.5,
        "scale-missing": D**0.5,
        "scale-twice": D**-0.5,
        "scale-multiplied": float(D),
    }
    named = [c for c, f in cards.items() if abs(f - factor) < 1e-4 * f]
    return named[0] if len(named) == 1 else None
