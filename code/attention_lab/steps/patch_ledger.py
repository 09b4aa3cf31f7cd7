"""Where does an output of attention on a digit come from, patch by patch?

Runs one attention on the patches of digits: on the patches themselves, and in
the first block of the small vision model before and after its training, at
several temperatures, and once with the softmax over the wrong axis. Everything
is held against the float64 reference and returned as data for the figure "patch
ledger". Nothing in the data is computed in any other way.

Source: Vaswani et al. 2017, section 3.2.1; temperature: Hinton et al. 2015,
"Distilling the Knowledge in a Neural Network", section 2.
Letters: L query patches, S key patches, H heads, D channels of a head.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from attention_lab.error_bound import error_bound
from attention_lab.examples import digit_label, digit_patches, load_digit
from attention_lab.reference import attention_reference
from attention_lab.steps import vision
from attention_lab.steps.scaled_dot_product import (
    attention_weights,
    mix_values,
    softmax,
)

SCHEMA = "patch_ledger.v1"
#: One is so many units of a number as it is kept: a weight is shown with two
#: decimals and a value with one, and a page must stay small.
UNITS = {"weights": 1000, "values": 100}
#: The book's three, and an eight; the model never saw either.
DIGITS = (13, 8)
#: Scores are divided by the temperature before the softmax.
TEMPERATURES = (0.25, 1, 4)
GREYS = 16  # a pixel is a whole number from 0 to 16


class Source(NamedTuple):
    """What makes queries, keys and values of the tokens of one digit."""

    kind: str
    tokens: Tensor
    project: Callable[[Tensor], tuple[Tensor, ...]]
    scale: float | None
    temperatures: tuple[float, ...]
    runs_wrong: bool


def record_patch_ledger(
    digits: Sequence[int] = DIGITS,
    temperatures: Sequence[float] = TEMPERATURES,
    *,
    seed: int = 0,
) -> dict[str, Any]:
    """Run every attention on every digit; return the data.

    Parameters
    ----------
    digits : which of scikit-learn's digits, by their index. The first one runs
        at every temperature and in the untrained model too; the others run at
        temperature 1.
    temperatures : what scores are divided by; 1 must be among them.
    seed : of the untrained model's weights, and of the order in which the
        patches are shuffled.

    Returns
    -------
    Plain dictionaries, lists and numbers, ready for JSON:

    schema, seed, dtype : "patch_ledger.v1", and how it was made.
    units : {"weights": 1000, "values": 100}: weights are whole thousandths,
        values and outputs whole hundredths. Errors and bounds are not rounded.
    digits : for each its `index`, its `label` 0 … 9 and its 64 `pixels`, whole
        numbers from 0 to 16, row by row.
    sources : for each digit what asks and is asked: its `digit` (place in
        `digits`), `kind` ("patches", "trained", "untrained"), `head` (None for
        the patches themselves), `name` of all three, the width `D`, 16·D
        `values`, and `same`, the first two patches whose keys are equal, or
        None.
    runs : the place of its `source`, the `temperature`, the `axis` of the
        softmax ("S" is right, "L" is wrong), 16·16 `weights` and 16·D numbers
        `out`, query by query, the 16 `sums` of the weights, and

        sum_error, sum_bound : how far a row is from a sum of 1, and may be
        output_error, output_bound : distance to the float64 reference, and
            `error_bound`'s limit for this input
        shuffle_error, shuffle_bound : how far the outputs of shuffled patches
            are from the shuffled outputs, and may be

    Raises
    ------
    ValueError
        If there is no digit, or no temperature 1, or one is not above 0.
    """
    if not len(digits):
        raise ValueError("digits is empty: there is nothing to run")
    if 1 not in temperatures or min(temperatures) <= 0:
        raise ValueError(
            "temperatures must be above 0 and hold 1, not "
            f"{', '.join(map(str, temperatures))}"
        )
    trained, _ = vision.load_checkpoint()
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "seed": seed,
        "dtype": "float32",
        "units": UNITS,
        "digits": [_digit(index) for index in digits],
        "sources": [],
        "runs": [],
    }
    with vision.one_thread():  # the data do not depend on the number of cores
        for place, index in enumerate(digits):
            others = [t for t in temperatures if t != 1] if place == 0 else []
            for source in _sources(index, trained, (1, *others)):
                _record(data, place, source)
            if place == 0:
                random = _model("untrained", vision.untrained(seed), index)
                _record(data, place, random)
    return data


def _digit(index: int) -> dict[str, Any]:
    pixels = np.rint(load_digit(index) * GREYS).astype(int)
    return {
        "index": index,
        "label": digit_label(index),
        "pixels": pixels.ravel().tolist(),
    }


def _sources(
    index: int, trained: vision.TinyViT, temperatures: tuple[float, ...]
) -> Iterator[Source]:
    """Yield the patches themselves, then the first block of the model."""

    def as_they_are(x: Tensor) -> tuple[Tensor, ...]:
        return (x[:, None],) * 3

    patches_1LD = torch.from_numpy(digit_patches(index)[None])
    yield Source("patches", patches_1LD, as_they_are, 1.0, temperatures, True)
    yield _model("trained", trained, index, temperatures, True)


def _model(
    kind: str,
    model: vision.TinyViT,
    index: int,
    temperatures: tuple[float, ...] = (1,),
    runs_wrong: bool = False,
) -> Source:
    tokens_1LE = model.tokens(torch.from_numpy(load_digit(index)[None]))
    project = model.blocks[0].project
    return Source(kind, tokens_1LE, project, None, temperatures, runs_wrong)


@torch.no_grad()
def _record(data: dict[str, Any], digit: int, source: Source) -> None:
    """Add one source's heads and all their runs to the data."""
    q, k, v = source.project(source.tokens)
    order = torch.from_numpy(
        np.random.default_rng(data["seed"]).permutation(q.shape[2])
    )
    shuffled = source.project(source.tokens[:, order])
    inverse = order.argsort()
    H, D = q.shape[1], q.shape[3]
    first = len(data["sources"])
    for head in range(H):
        data["sources"].append(
            {
                "digit": digit,
                "kind": source.kind,
                "head": None if source.kind == "patches" else head,
                "name": _name(
                    data["digits"][digit]["label"], source.kind, head
                ),
                "D": D,
                "values": _numbers(v[0, head], "values"),
                "same": _same_keys(k[0, head]),
            }
        )
    unit = D**-0.5 if source.scale is None else source.scale
    ladder = [(t, "S") for t in source.temperatures]
    ladder += [(1, "L")] * source.runs_wrong
    truths = {t: _truth(q, k, v, unit / t) for t in source.temperatures}
    for temperature, axis in ladder:
        scale = unit / temperature
        exact, bound = truths[temperature]
        weights, out = _attend(q, k, v, scale, axis)
        again = _attend(*shuffled, scale, axis)[1][..., inverse, :]
        for head in range(H):
            sums = weights[0, head].double().sum(dim=-1)
            data["runs"].append(
                {
                    "source": first + head,
                    "temperature": temperature,
                    "axis": axis,
                    "weights": _numbers(weights[0, head], "weights"),
                    "sums": _numbers(sums, "weights"),
                    "out": _numbers(out[0, head], "values"),
                    "sum_error": _distance(sums, np.ones(len(sums))),
                    "sum_bound": len(sums) * torch.finfo(weights.dtype).eps,
                    "output_error": _distance(out[0, head], exact[0, head]),
                    "output_bound": bound,
                    "shuffle_error": _distance(again[0, head], out[0, head]),
                    # Either side may be off by one bound.
                    "shuffle_bound": 2 * bound,
                }
            )


def _truth(
    q: Tensor, k: Tensor, v: Tensor, scale: float
) -> tuple[np.ndarray, float]:
    """Return the reference of all heads, and how far a right run may be off."""
    heads = tuple(x.numpy() for x in (q, k, v))
    exact_BHLD = attention_reference(*heads, scale=scale).out_BHLD
    return exact_BHLD, error_bound(*heads, scale=scale)


def _name(label: int, kind: str, head: int) -> str:
    if kind == "patches":
        return f"{label}: the patches themselves"
    return f"{label}: {kind} model, head {head}"


def _attend(
    q: Tensor, k: Tensor, v: Tensor, scale: float, axis: str
) -> tuple[Tensor, Tensor]:
    """Return weights and output; axis "L" takes the softmax over queries."""
    if axis == "S":
        weights_BHLS = attention_weights(q, k, v, scale=scale)
    else:
        scores_BHSL = (k * scale) @ q.transpose(-2, -1)
        weights_BHLS = softmax(scores_BHSL).transpose(-2, -1)
    return weights_BHLS, mix_values(weights_BHLS, v)


def _same_keys(k_SD: Tensor) -> list[int] | None:
    """Return the first two keys that are equal, if there are two."""
    for a in range(len(k_SD)):
        for b in range(a + 1, len(k_SD)):
            if torch.equal(k_SD[a], k_SD[b]):
                return [a, b]
    return None


def _numbers(array: Tensor, kind: str) -> list[int]:
    """Return the numbers of an array in one list, in whole units."""
    units = np.asarray(array, np.float64).ravel() * UNITS[kind]
    return np.rint(units).astype(int).tolist()


def _distance(result: Tensor, exact: Any) -> float:
    """Return the largest difference of two arrays."""
    difference = result.double().numpy() - np.asarray(exact, np.float64)
    return float(np.abs(difference).max())
