"""The mask's stage: what is added before the softmax, what multiplies after.

Right is: −∞ where a boolean mask is False, and a floating mask as it is.
"""

from collections.abc import Callable

import numpy as np

from attention_lab.verify.attention.parts import Parts

Masked = tuple[np.ndarray | None, np.ndarray | None]


def right_mask(p: Parts, scores: np.ndarray) -> Masked:
    """Add −∞ where a boolean mask is False; add a floating mask as it is."""
    if p.mask is None:
        return None, None
    return _as_bias(p.mask), None


def _as_bias(mask: np.ndarray, low: float = -np.inf) -> np.ndarray:
    return np.where(mask, 0.0, low) if mask.dtype == bool else mask


def _keeping(
    change: Callable[[np.ndarray, Parts], np.ndarray],
) -> Callable[[Parts, np.ndarray], Masked]:
    """Use another mask instead, in the right way."""

    def mask(p: Parts, scores: np.ndarray) -> Masked:
        if p.mask is None:
            return None, None
        return _as_bias(change(p.mask, p)), None

    return mask


def _inverted(mask: np.ndarray, p: Parts) -> np.ndarray:
    return ~mask if mask.dtype == bool else mask


def _full(mask: np.ndarray, p: Parts) -> np.ndarray:
    n = p.sizes
    return np.broadcast_to(mask, (n.B, n.H, n.L, n.S))


def _transposed(mask: np.ndarray, p: Parts) -> np.ndarray:
    return mask.swapaxes(-1, -2) if mask.ndim > 1 else mask


def _of_first_sample(mask: np.ndarray, p: Parts) -> np.ndarray:
    return _full(mask, p)[:1]


def _of_first_head(mask: np.ndarray, p: Parts) -> np.ndarray:
    return _full(mask, p)[:, :1]


def _in_other_order(mask: np.ndarray, p: Parts) -> np.ndarray:
    """Fold samples and heads in one order, and the mask in the other."""
    n = p.sizes
    folded = _full(mask, p).swapaxes(0, 1).reshape(n.B * n.H, n.L, n.S)
    return folded.reshape(n.B, n.H, n.L, n.S)


def _mask_in_other_order(mask: np.ndarray, p: Parts) -> np.ndarray:
    """Fold the scores head by head, and the mask sample by sample."""
    n = p.sizes
    folded = _full(mask, p).reshape(n.H, n.B, n.L, n.S)
    return folded.swapaxes(0, 1)


def _samples_for_heads(mask: np.ndarray, p: Parts) -> np.ndarray:
    """Take a mask per sample for a mask per head."""
    return mask[:, 0] if mask.ndim == 4 and mask.shape[1] == 1 else mask


def _on_rows(mask: np.ndarray, p: Parts) -> np.ndarray:
    """Let a mask over keys hide queries instead."""
    if p.sizes.L != p.sizes.S or mask.shape[-2] != 1:
        return mask
    return mask.swapaxes(-1, -2)


def _nonzero_keeps(mask: np.ndarray, p: Parts) -> np.ndarray:
    return mask if mask.dtype == bool else mask != 0


def _nonzero_hides(mask: np.ndarray, p: Parts) -> np.ndarray:
    return mask if mask.dtype == bool else mask == 0


def _ignored(p: Parts, scores: np.ndarray) -> Masked:
    return None, None


def _dropped_if_causal(p: Parts, scores: np.ndarray) -> Masked:
    return (None, None) if p.case.is_causal else right_mask(p, scores)


def _true_adds_one(p: Parts, scores: np.ndarray) -> Masked:
    return (None if p.mask is None else p.mask * 1.0), None


def _after_softmax(p: Parts, scores: np.ndarray) -> Masked:
    if p.mask is None or p.mask.dtype != bool:
        return right_mask(p, scores)
    return None, p.mask


def _multiplies_scores(p: Parts, scores: np.ndarray) -> Masked:
    if p.mask is None or p.mask.dtype != bool:
        return right_mask(p, scores)
    return scores * p.mask - scores, None


def _weak(low: float) -> Callable[[Parts, np.ndarray], Masked]:
    def mask(p: Parts, scores: np.ndarray) -> Masked:
        return (None if p.mask is None else _as_bias(p.mask, low)), None

    return mask


def _weak_fill(low: float) -> Callable[[Parts, np.ndarray], Masked]:
    """Replace forbidden scores by a number instead of adding it."""

    def mask(p: Parts, scores: np.ndarray) -> Masked:
        if p.mask is None or p.mask.dtype != bool:
            return right_mask(p, scores)
        return np.where(p.mask, 0.0, low - scores), None

    return mask


_MASKS = {
    "mask-polarity": _keeping(_inverted),
    "mask-ignored": _ignored,
    "bool-mask-added": _true_adds_one,
    "mask-after-softmax": _after_softmax,
    "mask-multiplies-scores": _multiplies_scores,
    "mask-transposed": _keeping(_transposed),
    "mask-on-queries": _keeping(_on_rows),
    "mask-rank": _keeping(_samples_for_heads),
    "mask-first-sample-for-all": _keeping(_of_first_sample),
    "mask-first-head-for-all": _keeping(_of_first_head),
}
_SENTINELS = (1.0, 5.0, 10.0, 50.0, 100.0, 1000.0, 1e4, 1e5)

#: (mistake, what it does at this stage), the plainest first.
MASKS: tuple[tuple[str, Callable[[Parts, np.ndarray], Masked]], ...] = (
    *_MASKS.items(),
    ("mask-repeat-order", _keeping(_in_other_order)),
    ("mask-repeat-order", _keeping(_mask_in_other_order)),
    ("additive-mask-as-bool", _keeping(_nonzero_keeps)),
    ("additive-mask-as-bool", _keeping(_nonzero_hides)),
    *(
        ("weak-sentinel", weak(-size))
        for size in _SENTINELS
        for weak in (_weak, _weak_fill)
    ),
    ("causal-and-mask-one-ignored", _dropped_if_causal),
)
