"""What attention kernels give when one line of them is wrong: ready sets.

Each entry is mistake -> functions of the kernel's inputs. They compute in
float64, but `_exp` overflows and underflows where float32 does. A loop over
keys may rescale after every key or after every tile, so both are tried.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

Functions = tuple[Callable[..., Any], ...]
#: exp leaves the range of float32 beyond these.
OVERFLOWS, UNDERFLOWS = 88.73, -103.98


@dataclass(frozen=True)
class Loop:
    """How the loop over keys goes; the defaults are right.

    Attributes
    ----------
    step : keys taken in before the sums are rescaled once.
    sum_factor, acc_factor : what rescales the running sum and the
        accumulator: "right", "none", or "inverse".
    start : the maximum before the first key.
    subtracts_max : whether exp gets the score minus the maximum.
    empty : the output of a row whose sum is 0.
    """

    step: int = 1
    sum_factor: str = "right"
    acc_factor: str = "right"
    start: float = -math.inf
    subtracts_max: bool = True
    empty: float = 0.0


def attention_wrong_answers(
    TILE_S: int = 1,
    *,
    is_causal: bool = False,
    unpack: Callable[..., tuple] | None = None,
) -> dict[str, Functions]:
    """Return the mistakes of kernels that compute (output, log-sum-exp).

    A kernel with the output alone is compared with that alone.

    Parameters
    ----------
    TILE_S : keys per tile, 1 if there are no tiles.
    is_causal : whether the kernel hides later keys.
    unpack : called with the kernel's inputs, returns query, key, value and
        scale. By default the first three arrays and the first floating
        number, or 1/√D. Arrays are (…, L, D), (…, S, D), (…, S, D_v).
    """
    take = unpack or _query_key_value_scale
    loops = [Loop(step=step) for step in dict.fromkeys((1, TILE_S))]
    hide = _upper_left if is_causal else None

    def wrong(**change: Any) -> Functions:
        """Return one function per way of writing the mistake."""
        loop_change = change.pop("loop", {})
        change.setdefault("hide", hide)
        return tuple(
            partial(
                _attend,
                take,
                replace(loop, **loop_change, empty=empty),
                **change,
            )
            for loop in loops
            for empty in (0.0, math.nan)
        )

    made = {
        "kernel-acc-not-rescaled": wrong(loop={"acc_factor": "none"}),
        "online-sum-not-rescaled": wrong(loop={"sum_factor": "none"}),
        "online-neither-rescaled": wrong(
            loop={"acc_factor": "none", "sum_factor": "none"}
        ),
        "online-inverse-rescale": (
            *wrong(loop={"acc_factor": "inverse"}),
            *wrong(loop={"acc_factor": "inverse", "sum_factor": "inverse"}),
        ),
        "online-initial-max-zero": wrong(loop={"start": 0.0}),
        "no-max-subtraction": wrong(loop={"subtracts_max": False}),
        "online-tail-dropped": wrong(keys=partial(_without_tail, TILE_S)),
        "kernel-tail-unmasked": wrong(keys=partial(_zero_tail, TILE_S)),
        "kernel-stale-tile": wrong(keys=partial(_stale_tail, TILE_S)),
        "shared-arrays-aliased": wrong(keys=lambda k, v: (v, v)),
        "keys-used-as-values": wrong(keys=lambda k, v: (k, k)),
    }
    for name, scale in _SCALES.items():
        made[name] = wrong(scale=scale)
    if is_causal:
        for name, other in _TRIANGLES.items():
            made[name] = wrong(hide=other)
    return made


def log_sum_exp_wrong_answers(
    TILE_S: int = 1, *, unpack: Callable[..., Any] | None = None
) -> dict[str, Functions]:
    """Return the mistakes of kernels that compute the log-sum-exp of rows.

    Parameters
    ----------
    TILE_S : keys per tile, 1 if there are no tiles.
    unpack : called with the inputs, returns the scores (…, L, S). By default
        the product of the first two arrays times the first floating number,
        or 1/√D; a single array is taken for the scores.
    """
    return _of_scores(TILE_S, unpack or _default_scores, _log_sum_exp)


def softmax_wrong_answers(
    TILE_S: int = 1, *, unpack: Callable[..., Any] | None = None
) -> dict[str, Functions]:
    """Return the mistakes of kernels that compute softmax weights online.

    Parameters are those of `log_sum_exp_wrong_answers`.
    """
    return _of_scores(TILE_S, unpack or _default_scores, _weights)


def _of_scores(
    TILE_S: int, take: Callable[..., Any], finish: Callable[..., Any]
) -> dict[str, Functions]:
    def run(change: Callable[..., Any], loop: Loop, *inputs: Any) -> Any:
        scores = take(*inputs)
        return finish(scores, *_stream(change(scores), None, loop)[:2])

    def wrong(change: Callable[..., Any] = _same, **options: Any) -> Functions:
        steps = dict.fromkeys((1, TILE_S))
        return tuple(
            partial(run, change, Loop(step=step, **options)) for step in steps
        )

    return {
        "post-2-kernel": wrong(sum_factor="none"),
        "online-inverse-rescale": wrong(sum_factor="inverse"),
        "online-initial-max-zero": wrong(start=0.0),
        "no-max-subtraction": wrong(subtracts_max=False),
        "online-tail-dropped": wrong(
            lambda scores: scores[..., : scores.shape[-1] // TILE_S * TILE_S]
        ),
        "kernel-tail-unmasked": wrong(
            lambda scores: _padded(scores, TILE_S, -1)
        ),
    }


# -- the loop ---------------------------------------------------------------


def _attend(
    take: Callable[..., tuple],
    loop: Loop,
    *inputs: Any,
    hide: Callable[[int, int], np.ndarray] | None = None,
    keys: Callable[..., tuple] | None = None,
    scale: Callable[..., float] | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Compute attention with one thing changed; returns output and lse."""
    q, k, v, factor = take(*inputs)
    if scale is not None:
        factor = scale(q, k, v, factor)
    S = k.shape[-2]
    if k.ndim == 4 and k.shape[1] != q.shape[1]:
        group = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
    if keys is not None:
        k, v = keys(k, v)
    scores = q * factor @ k.swapaxes(-1, -2)
    if hide is not None:
        hidden = hide(q.shape[-2], S)[:, : scores.shape[-1]]
        scores[..., : hidden.shape[1]][..., hidden] = -np.inf
    row_max, row_sum, acc = _stream(scores, v, loop)
    out = np.where(
        row_sum[..., None] == 0, loop.empty, acc / row_sum[..., None]
    )
    return out, _log_sum_exp(scores, row_max, row_sum)


def _stream(
    scores: np.ndarray, value: np.ndarray | None, loop: Loop
) -> tuple[np.ndarray, np.ndarray, Any]:
    """Take the keys in, step by step; return maximum, sum, accumulator."""
    row_max = np.full(scores.shape[:-1], loop.start)
    row_sum = np.zeros(scores.shape[:-1])
    width = 0 if value is None else value.shape[-1]
    acc = np.zeros((*scores.shape[:-1], width))
    for s in range(0, scores.shape[-1], loop.step):
        part = scores[..., s : s + loop.step]
        # As in a kernel, a key that is hidden is skipped.
        new_max = np.fmax(row_max, part.max(-1))
        base = np.where(np.isinf(new_max), 0.0, new_max)
        if not loop.subtracts_max:
            base = np.zeros_like(base)
        weights = _exp(part - base[..., None])
        factor = _exp(row_max - base) if loop.subtracts_max else base + 1.0
        row_sum = row_sum * _factor(factor, loop.sum_factor) + weights.sum(-1)
        if value is not None:
            mixed = weights @ value[..., s : s + loop.step, :]
            acc = acc * _factor(factor, loop.acc_factor)[..., None] + mixed
        row_max = new_max
    if not loop.subtracts_max:
        row_max = np.zeros_like(row_max)
    return row_max, row_sum, acc


def _factor(factor: np.ndarray, kind: str) -> np.ndarray:
    if kind == "none":
        return np.ones_like(factor)
    if kind == "inverse":  # nothing has been summed while it is 0
        return np.where(factor == 0, 1.0, 1 / np.where(factor == 0, 1, factor))
    return factor


def _exp(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, float)
    result = np.exp(np.clip(x, UNDERFLOWS, OVERFLOWS))
    result = np.where(x > OVERFLOWS, np.inf, result)
    return np.where(x < UNDERFLOWS, 0.0, np.where(np.isnan(x), x, result))


def _log_sum_exp(
    scores: np.ndarray, row_max: np.ndarray, row_sum: np.ndarray
) -> np.ndarray:
    return row_max + np.log(row_sum)


def _weights(
    scores: np.ndarray, row_max: np.ndarray, row_sum: np.ndarray
) -> np.ndarray:
    return _exp(scores - row_max[..., None]) / row_sum[..., None]


# -- what is changed --------------------------------------------------------


def _same(scores: np.ndarray) -> np.ndarray:
    return scores


def _padded(array: np.ndarray, TILE_S: int, axis: int) -> np.ndarray:
    """Fill the last tile up with zeros."""
    sizes = [(0, 0)] * array.ndim
    sizes[axis] = (0, -array.shape[axis] % TILE_S)
    return np.pad(array, sizes)


def _zero_tail(TILE_S: int, k: np.ndarray, v: np.ndarray) -> tuple:
    return _padded(k, TILE_S, -2), _padded(v, TILE_S, -2)


def _without_tail(TILE_S: int, k: np.ndarray, v: np.ndarray) -> tuple:
    whole = k.shape[-2] // TILE_S * TILE_S
    return k[..., :whole, :], v[..., :whole, :]


def _stale_tail(TILE_S: int, k: np.ndarray, v: np.ndarray) -> tuple:
    """Let the last tile keep the rows of the one before, where it is short."""
    S = k.shape[-2]
    short = -S % TILE_S
    if short and TILE_S > S:
        raise ValueError("there is no tile before the first")
    rows = np.arange(S + short)
    rows = np.where(rows < S, rows, rows - TILE_S)
    return k[..., rows, :], v[..., rows, :]


def _upper_left(L: int, S: int) -> np.ndarray:
    return ~np.tri(L, S, dtype=bool)


_TRIANGLES = {
    "causal-ignored": lambda L, S: np.zeros((L, S), bool),
    "causal-transposed": lambda L, S: np.tri(L, S, -1, dtype=bool),
    "causal-off-by-one-future": lambda L, S: ~np.tri(L, S, 1, dtype=bool),
    "causal-off-by-one-self": lambda L, S: ~np.tri(L, S, -1, dtype=bool),
    "causal-lower-right": lambda L, S: ~np.tri(L, S, S - L, dtype=bool),
}
_SCALES = {
    "scale-missing": lambda q, k, v, scale: 1.0,
    "scale-twice": lambda q, k, v, scale: scale * scale,
    "scale-model-width": lambda q, k, v, scale: _model_width(q) ** -0.5,
    "scale-multiplied": lambda q, k, v, scale: 1.0 / scale,
    "scale-key-length": lambda q, k, v, scale: k.shape[-2] ** -0.5,
}


def _model_width(q: np.ndarray) -> int:
    heads = q.shape[1] if q.ndim == 4 else 1
    return heads * q.shape[-1]


# -- reading the kernel's inputs --------------------------------------------


def _query_key_value_scale(*inputs: Any) -> tuple:
    q, k, v = [x for x in inputs if isinstance(x, np.ndarray)][:3]
    return q, k, v, _given_scale(inputs, q)


def _given_scale(inputs: tuple, q: np.ndarray) -> float:
    numbers = [x for x in inputs if isinstance(x, float)]
    return numbers[0] if numbers else q.shape[-1] ** -0.5


def _default_scores(*inputs: Any) -> np.ndarray:
    arrays = [x for x in inputs if isinstance(x, np.ndarray)]
    if len(arrays) == 1:
        return arrays[0]
    q, k = arrays[:2]
    return q @ k.swapaxes(-1, -2) * _given_scale(inputs, q)
