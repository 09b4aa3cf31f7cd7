"""What do large scores, and masks, do to a softmax and to its gradients?

Two kinds of runs, as data for the figure "saturation". The first multiplies
queries and keys of growing width D, with and without the factor 1/√D, and
looks at the scores, the weights and a gradient. The second forbids keys, also
with the wrong polarity and with a row that sees none, and asks what the plain
softmax formula makes of it, forward and backward.

Sources: Vaswani et al. 2017, "Attention Is All You Need", section 3.2.1, note
4; pytorch/pytorch#41508 (NaN gradients of masked rows).
Letters: B batch, H heads, L queries, S keys, D head width.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from attention_lab import examples, masks
from attention_lab.axes import ShapeMismatch
from attention_lab.error_bound import error_bound, rounding
from attention_lab.reference import attention_reference
from attention_lab.steps import scaled_dot_product as step

SCHEMA = "saturation.v1"
DECIMALS = 4
WIDTHS = (1, 4, 16, 64, 256, 1024)
#: Sizes of the first kind of runs: rows, keys and the values' width.
L, S, D_V = 64, 64, 16
#: Bars of the histogram, and where it ends.
BINS, END = 24, 48
#: How many of a row's weights are kept: the largest.
KEPT = 16
#: Sizes of the masks, and which row is made empty.
MASK_L, MASK_S, MASK_D, EMPTY = 5, 7, 11, 2
MASKS = {
    "none": lambda: np.ones((MASK_L, MASK_S), bool),
    "causal, upper left": lambda: masks.causal(MASK_L, MASK_S),
    "causal, lower right": lambda: masks.causal(
        MASK_L, MASK_S, align="lower_right"
    ),
    "padding, 4 keys are real": lambda: np.tile(
        masks.padding([4], MASK_S)[0, 0], (MASK_L, 1)
    ),
    "window of 2": lambda: masks.window(MASK_L, MASK_S, width=2),
}


def record_saturation(
    widths: Sequence[int] = WIDTHS,
    kinds: Mapping[str, Any] | None = None,
    *,
    seed: int = 0,
) -> dict[str, Any]:
    """Run every width and every mask; return what came out.

    Parameters
    ----------
    widths : head widths D, each run with the factor 1/√D and without.
    kinds : by name, boolean masks of 5 queries × 7 keys, True = may attend;
        one with fewer axes broadcasts from the right. None takes five.
    seed : of the normal queries, keys and values; one head.

    Returns
    -------
    Plain dictionaries, lists and numbers, ready for JSON:

    schema, seed, dtype, L, S, end : "saturation.v1", how it was made, and where
        the histogram ends; scores beyond are in its outer bars
    even : the entropy of S even weights, ln S
    widths : D of each column
    runs : [scaled, raw], each one entry per width: `std` of the scores;
        `ratio`, std ÷ √D without the factor and std with it; `tolerance`, four
        standard errors of that ratio; `counts` of the histogram; `weights`, the
        largest of the first row, in order; mean `entropy` of the rows;
        `gradient`, the mean norm of a row's gradient of Σ out · g with respect
        to the scores, g normal
    mask_sizes : [L, S, D] of the masks
    masks : for each kind, polarity and empty row one entry: `name`, `flipped`,
        `empty`, `keep` (L·S of 0 and 1), then for "ours" and "plain" the
        `weights` (L·S), and `grads` (S), the norms of the gradients of the
        values when the loss reads row 0 alone; null stands for NaN. Also
        `output_error` and `sdpa_error` against the float64 reference,
        `output_bound`, and `grad_error` of ours against PyTorch's with
        `grad_bound`.

    Numbers are rounded to 4 decimals; errors, bounds, ratios and tolerances
    are not.

    Raises
    ------
    ShapeMismatch
        If a mask has other sizes than L = 5 and S = 7.
    ValueError
        If there is no width, one below 1, no mask, or one that is not boolean.
    """
    if not widths:
        raise ValueError("widths is empty: there is nothing to run")
    for D in widths:
        if D < 1:
            raise ValueError(f"widths: D must be at least 1, not {D}")
    kinds = (
        {name: make() for name, make in MASKS.items()}
        if kinds is None
        else {name: _read_mask(name, keep) for name, keep in kinds.items()}
    )
    if not kinds:
        raise ValueError("kinds is empty: there is no mask to run")
    inputs = [
        examples.example_qkv(1, 1, L, S, D, D_V, seed=seed) for D in widths
    ]
    return {
        "schema": SCHEMA,
        "seed": seed,
        "dtype": "float32",
        "L": L,
        "S": S,
        "end": END,
        "even": round(math.log(S), DECIMALS),
        "widths": list(widths),
        "runs": [
            [_run(qkv, is_scaled, seed) for qkv in inputs]
            for is_scaled in (True, False)
        ],
        "mask_sizes": [MASK_L, MASK_S, MASK_D],
        "masks": [
            _masked(name, keep_LS, is_flipped, is_empty, seed)
            for name, keep_LS in kinds.items()
            for is_flipped in (False, True)
            for is_empty in (False, True)
        ],
    }


def _run(
    qkv: tuple[np.ndarray, ...], is_scaled: bool, seed: int
) -> dict[str, Any]:
    """Multiply, take the softmax, and send a gradient back."""
    q, k, v = (torch.from_numpy(x) for x in qkv)
    D = q.shape[-1]
    scores = q @ k.mT * (D**-0.5 if is_scaled else 1.0)
    scores.requires_grad_()
    weights = step.softmax(scores)
    g = torch.randn(v.shape, generator=torch.Generator().manual_seed(seed))
    (step.mix_values(weights, v) * g).sum().backward()
    std = scores.std().item()
    counts, _ = np.histogram(
        scores.detach().clamp(-END, END - 1e-3).numpy(),
        bins=BINS,
        range=(-END, END),
    )
    row = weights[0, 0, 0].detach().sort(descending=True).values[:KEPT]
    return {
        "std": round(std, DECIMALS),
        "ratio": std / (1.0 if is_scaled else math.sqrt(D)),
        "tolerance": 4 * standard_error(D),
        "counts": counts.tolist(),
        "weights": _numbers(row),
        "entropy": round(
            torch.special.entr(weights).sum(-1).mean().item(), DECIMALS
        ),
        "gradient": round(scores.grad.norm(dim=-1).mean().item(), DECIMALS),
    }


def standard_error(D: int) -> float:
    """Return the standard error of std ÷ √D over L·S dot products of width D.

    A product q·k has variance D, and its square the variance 2D² + 6D. Two
    products that share a query or a key have squares with covariance 2D. The
    mean of L·S squares therefore has the relative variance

        (2 + 6/D) / (L·S)  +  (2/D) · (1/L + 1/S)

    and the standard deviation half its root, to first order.

    Examples
    --------
    >>> round(standard_error(256), 4)
    0.0136
    """
    variance = (2 + 6 / D) / (L * S) + (2 / D) * (1 / L + 1 / S)
    return math.sqrt(variance) / 2


def _read_mask(name: str, keep: Any) -> np.ndarray:
    """Return a mask with one row per query, or refuse it."""
    keep = np.asarray(keep)
    if keep.dtype != bool:
        raise ValueError(
            f"kinds[{name!r}] must be a boolean mask, True = may attend, not "
            f"{keep.dtype}"
        )
    try:
        return np.broadcast_to(keep, (1, 1, MASK_L, MASK_S))[0, 0]
    except ValueError:
        raise ShapeMismatch(
            f"kinds[{name!r}] has shape {keep.shape}, which does not broadcast "
            f"to axis L of size {MASK_L} and axis S of size {MASK_S}"
        ) from None


def _masked(
    name: str, keep_LS: np.ndarray, is_flipped: bool, is_empty: bool, seed: int
) -> dict[str, Any]:
    """Attend under a mask with our softmax, the plain one, and PyTorch's."""
    keep = torch.from_numpy(keep_LS.copy())
    if is_empty:
        keep[EMPTY] = False
    if is_flipped:
        keep = ~keep
    arrays = examples.example_qkv(1, 1, MASK_L, MASK_S, MASK_D, seed=seed)
    q, k, v = (torch.from_numpy(x) for x in arrays)
    scores = (q @ k.mT * MASK_D**-0.5).masked_fill(~keep, -math.inf)
    ours = step.attention_weights(q, k, v, keep)
    plain = torch.softmax(scores, -1)
    out = step.attention(q, k, v, keep).double().numpy()
    theirs = scaled_dot_product_attention(q, k, v, keep).double().numpy()
    exact = attention_reference(*arrays, keep.numpy()).out_BHLD
    our_grad = _gradient(lambda x: step.attention(q, k, x, keep), v)
    their_grad = _gradient(
        lambda x: scaled_dot_product_attention(q, k, x, keep), v
    )
    plain_grad = _gradient(lambda x: plain @ x, v)
    return {
        "name": name,
        "flipped": is_flipped,
        "empty": is_empty,
        "keep": keep.int().flatten().tolist(),
        "ours": _half(ours, our_grad),
        "plain": _half(plain, plain_grad),
        "output_error": float(np.abs(out - exact).max()),
        "sdpa_error": float(np.abs(theirs - exact).max()),
        "output_bound": error_bound(*arrays, keep.numpy()),
        "grad_error": (our_grad - their_grad).abs().max().item(),
        "grad_bound": rounding(their_grad.numpy()),
    }


def _gradient(attend: Any, v: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the values when the loss reads row 0 alone."""
    x = v.clone().requires_grad_()
    attend(x)[0, 0, 0].sum().backward()
    return x.grad


def _half(weights: torch.Tensor, grad: torch.Tensor) -> dict[str, Any]:
    return {
        "weights": _numbers(weights),
        "grads": _numbers(grad[0, 0].norm(dim=-1)),
    }


def _numbers(x: torch.Tensor) -> list[float | None]:
    """Return rounded numbers; None stands for NaN."""
    return [
        None if math.isnan(number) else round(number, DECIMALS)
        for number in x.detach().flatten().tolist()
    ]
