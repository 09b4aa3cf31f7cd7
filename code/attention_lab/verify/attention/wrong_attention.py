"""What attention gives when one stage of it goes wrong.

Attention is a row of stages: which key head, the scale, the mask, the softmax,
the values. Every known mistake is another choice at one stage, so a model of it
is one switch. Comparing an output with these models names the mistake from the
numbers alone.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from attention_lab.verify.attention.case import Case, Sizes
from attention_lab.verify.attention.parts import Parts, parts_of
from attention_lab.verify.attention.wrong_masks import MASKS, right_mask


class Model(NamedTuple):
    """One mistake: its id, and what it chooses at the stages it changes."""

    mistake: str
    choices: dict[str, Any]


def wrong_output(case: Case, *models: Model) -> np.ndarray | None:
    """Compute attention with some stages gone wrong; (B, H, L, D_v) or None.

    None where a mistake cannot even run on these sizes.
    """
    choose = {
        stage: choice
        for model in models
        for stage, choice in model.choices.items()
    }
    try:
        with np.errstate(all="ignore"):
            return _attention(parts_of(case), choose)
    except ValueError:  # sizes that do not fit each other
        return None


def _attention(p: Parts, choose: dict[str, Any]) -> np.ndarray:
    heads = choose.get("heads", interleaved)
    key, value = heads(p.key, p.sizes), heads(p.value, p.sizes)
    query = p.query
    axes = choose.get("axes", _same)
    query, key, value = axes(query), axes(key), axes(value)
    scores = query @ key.swapaxes(-1, -2) * choose.get("scale", right_scale)(p)
    bias, after = choose.get("mask", right_mask)(p, scores)
    hidden = choose.get("causal", upper_left)(p.sizes.L, p.sizes.S)
    if p.case.is_causal and not (p.mask is not None and "drop" in choose):
        scores = np.where(hidden, -np.inf, scores)
    scores = scores + bias if bias is not None else scores
    softmax = choose.get("softmax", over_keys)
    weights = softmax(scores) if scores.size else scores
    is_empty = (scores == -np.inf).all(-1, keepdims=True)
    fill = choose.get("empty", nothing)(p.sizes)
    weights = np.where(is_empty, fill, weights)
    if after is not None:
        weights = weights * after
    weights = choose.get("weights", _same_weights)(weights, p)
    mixed = weights @ choose.get("values", _values)(p, value, key)
    if p.sizes.S == 0:
        mixed = mixed + 0 * fill  # no term was added: NaN shows here
    return choose.get("merge", _same_weights)(axes(mixed), p)


def _same(array: np.ndarray) -> np.ndarray:
    return array


def _same_weights(array: np.ndarray, p: Parts) -> np.ndarray:
    return array


def nothing(n: Sizes) -> float:
    """Give a row that sees no key the weights that it should have: none."""
    return 0.0


def _values(p: Parts, value: np.ndarray, key: np.ndarray) -> np.ndarray:
    return value


# --- Which key head a query head reads ---------------------------------------


def interleaved(array: np.ndarray, n: Sizes) -> np.ndarray:
    """Let query head h read key head h // group, as it should."""
    return np.repeat(array, n.H // max(n.H_kv, 1), axis=1)


def tiled(array: np.ndarray, n: Sizes) -> np.ndarray:
    """Let query head h read key head h mod H_kv."""
    return np.tile(array, (1, n.H // max(n.H_kv, 1), 1, 1))


def first_only(array: np.ndarray, n: Sizes) -> np.ndarray:
    """Let every query head read key head 0, where heads are shared at all."""
    if n.H_kv == n.H:
        return array
    return np.broadcast_to(array[:, :1], (n.B, n.H, *array.shape[2:]))


def mean_of_heads(array: np.ndarray, n: Sizes) -> np.ndarray:
    """Let every query head read the mean of the key heads."""
    if n.H_kv == n.H:
        return array
    mean = array.mean(1, keepdims=True)
    return np.broadcast_to(mean, (n.B, n.H, *array.shape[2:]))


# --- The factor on the scores ------------------------------------------------


def right_scale(p: Parts) -> float:
    """Return the given scale, or 1/√D."""
    return p.case.scale if p.case.scale is not None else p.sizes.D**-0.5


def _default_scale(of: Callable[[Sizes], float]) -> Callable[[Parts], float]:
    """Change only the default: a given scale is used as it is."""

    def scale(p: Parts) -> float:
        return of(p.sizes) if p.case.scale is None else p.case.scale

    return scale


# --- The causal triangle: True where a key is hidden -------------------------


def upper_left(L: int, S: int) -> np.ndarray:
    """Hide the keys after the query's own position."""
    return ~np.tri(L, S, dtype=bool)


# --- The softmax -------------------------------------------------------------


def over_keys(scores: np.ndarray) -> np.ndarray:
    """Turn every row into weights; rows that see nothing are mended later."""
    return _softmax(scores, -1)


def _softmax(scores: np.ndarray, axis: int) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


def _in_base_two(scores: np.ndarray) -> np.ndarray:
    return _softmax(scores * math.log(2), -1)


def _unnormalised(scores: np.ndarray) -> np.ndarray:
    return np.exp(scores - scores.max(-1, keepdims=True))


def _unnormalised_raw(scores: np.ndarray) -> np.ndarray:
    return np.exp(scores)


def _overflowing(offset: float) -> Callable[[np.ndarray], np.ndarray]:
    """Subtract a constant instead of the maximum, in float32."""

    def softmax(scores: np.ndarray) -> np.ndarray:
        weights = np.exp((scores - offset).astype(np.float32))
        total = weights.sum(-1, keepdims=True)
        return weights / np.where(total == 0, 1, total)

    return softmax


def _under_one_maximum(scores: np.ndarray) -> np.ndarray:
    """Subtract the largest of all scores, in float32."""
    weights = np.exp((scores - scores.max()).astype(np.float32))
    total = weights.sum(-1, keepdims=True)
    return weights / np.where(total == 0, 1, total)


# --- The weights, and the output's axes --------------------------------------


def _times_scale(weights: np.ndarray, p: Parts) -> np.ndarray:
    return weights * right_scale(p)


def _mean_over_heads(weights: np.ndarray, p: Parts) -> np.ndarray:
    return np.broadcast_to(weights.mean(1, keepdims=True), weights.shape)


def _viewed(out: np.ndarray, p: Parts) -> np.ndarray:
    """Lay the output out as (B, L, H, D_v) and read it as (B, H, L, D_v)."""
    return out.swapaxes(1, 2).reshape(out.shape)


def _unfolded(out: np.ndarray, p: Parts) -> np.ndarray:
    """Fold heads before samples, and unfold samples before heads."""
    return out.swapaxes(0, 1).reshape(out.shape)


def _repeated_along_keys(array: np.ndarray, n: Sizes) -> np.ndarray:
    longer = np.repeat(array, n.H // max(n.H_kv, 1), axis=2)
    return longer.reshape(n.B, n.H, *array.shape[2:])


def _power_of_two(D: int) -> int:
    return 1 << (D - 1).bit_length()


_SCALES: dict[str, Callable[[Sizes], float]] = {
    "scale-missing": lambda n: 1.0,
    "scale-twice": lambda n: 1.0 / n.D,
    "scale-model-width": lambda n: (n.H * n.D) ** -0.5,
    "scale-num-heads": lambda n: n.H**-0.5,
    "scale-key-length": lambda n: n.S**-0.5 if n.S else 1.0,
    "scale-query-length": lambda n: n.L**-0.5 if n.L else 1.0,
    "scale-value-width": lambda n: n.D_v**-0.5 if n.D_v else 1.0,
    "scale-multiplied": lambda n: n.D**0.5,
    "online-padding-width": lambda n: _power_of_two(n.D) ** -0.5,
}
_TRIANGLES: dict[str, Callable[[int, int], np.ndarray]] = {
    "causal-ignored": lambda L, S: np.zeros((L, S), bool),
    "causal-transposed": lambda L, S: np.tri(L, S, -1, dtype=bool),
    "causal-lower-right": lambda L, S: ~np.tri(L, S, S - L, dtype=bool),
    "causal-off-by-one-future": lambda L, S: ~np.tri(L, S, 1, dtype=bool),
    "causal-off-by-one-self": lambda L, S: ~np.tri(L, S, -1, dtype=bool),
}
_SOFTMAXES = {
    "softmax-over-queries": lambda scores: _softmax(scores, -2),
    "softmax-over-heads": lambda scores: _softmax(scores, 1),
    "base-two": _in_base_two,
    "no-max-subtraction": _overflowing(0.0),
    "global-max-subtracted": _under_one_maximum,
}
_HEADS = {
    "gqa-tiled": tiled,
    "gqa-first-head-only": first_only,
    "gqa-mean-of-heads": mean_of_heads,
    "gqa-wrong-axis": _repeated_along_keys,
}

#: Every model of a single mistake, the plainest first.
MODELS: tuple[Model, ...] = (
    Model("fully-masked-row-nan", {"empty": lambda n: math.nan if n.S else 0}),
    Model("online-every-tile-masked", {"empty": lambda n: math.nan}),
    Model("fully-masked-row-uniform", {"empty": lambda n: 1 / max(n.S, 1)}),
    *(
        Model(name, {"scale": _default_scale(of)})
        for name, of in _SCALES.items()
    ),
    Model("scale-argument-ignored", {"scale": lambda p: p.sizes.D**-0.5}),
    # Without the default's care: a factor too many whatever scale is given.
    Model("scale-twice", {"scale": lambda p: right_scale(p) * p.sizes.D**-0.5}),
    Model("scale-twice", {"scale": lambda p: right_scale(p) ** 2}),
    Model("scale-missing", {"scale": lambda p: 1.0}),
    Model(
        "scale-after-softmax",
        {"scale": lambda p: 1.0, "weights": _times_scale},
    ),
    *(Model(name, {"mask": mask}) for name, mask in MASKS),
    *(Model(name, {"causal": hide}) for name, hide in _TRIANGLES.items()),
    Model("causal-and-mask-one-ignored", {"drop": "causal"}),
    *(Model(name, {"softmax": f}) for name, f in _SOFTMAXES.items()),
    *(
        Model("constant-subtracted", {"softmax": _overflowing(offset)})
        for offset in (5.0, 10.0, 20.0, 50.0)
    ),
    Model("weights-not-normalised", {"softmax": _unnormalised}),
    Model("weights-not-normalised", {"softmax": _unnormalised_raw}),
    *(Model(name, {"heads": heads}) for name, heads in _HEADS.items()),
    Model("attention-across-heads", {"axes": lambda x: x.swapaxes(1, 2)}),
    Model("attention-across-batch", {"axes": lambda x: x.swapaxes(0, 2)}),
    Model("keys-used-as-values", {"values": lambda p, value, key: key}),
    Model("weights-averaged-over-heads", {"weights": _mean_over_heads}),
    Model("heads-viewed-not-transposed", {"merge": _viewed}),
    Model("heads-unfolded-in-wrong-order", {"merge": _unfolded}),
)
