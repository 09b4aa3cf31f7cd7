"""Name a module's mistake: find the wrong module whose values it has."""

import itertools
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_lab.verify.module import wrong_module
from attention_lab.verify.module.bench import Bench, right_answer
from attention_lab.verify.module.weights import Packing
from attention_lab.verify.module.wrong_module import ModuleCall

#: Processor time for one search: wide modules have too many pairs to try.
SECONDS = 5.0
#: A model explains an output if it is this many times nearer than the right
#: answer. Rounding is about a million times smaller than a mistake.
NEARER = 1000

OPTIONS: dict[str, tuple[str, ...]] = {
    "split": ("view", "d h", "view, D before L"),
    "merge": (
        "view",
        "d h",
        "channels before tokens",
        "heads before batch",
        "mean",
    ),
    "attends": ("batch", "heads"),
    "scale": (
        "model width",
        "number of heads",
        "none",
        "twice",
        "multiplied",
        "negative",
        "number of keys",
        "number of queries",
    ),
    "softmax": ("queries", "heads", "batch", "none"),
    "out": ("missing", "twice"),
    "transposed": ("q", "k", "v", "o", "qk", "qkv", "qkvo"),
    "no_bias": ("o", "qkv", "qkvo", "q", "k", "v"),
    "roles": tuple(
        order
        for order in map("".join, itertools.product("qkv", repeat=3))
        if order != "qkv"
    ),
}
MASK_OPTIONS = (
    "inverted",
    "dropped",
    "transposed",
    "after softmax",
    "after softmax, renormalised",
    "added as numbers",
    "multiplied",
    "weak",
    "replaced by -10",
    "one later",
    "one earlier",
)

#: (switch, option) -> card; "" stands for every other option.
CARDS = {
    ("split", "view"): "split-by-view",
    ("split", "view, D before L"): "split-by-view",
    ("split", "d h"): "split-d-h-order",
    ("merge", "view"): "merge-without-permute",
    ("merge", "d h"): "merge-wrong-order",
    ("merge", "channels before tokens"): "merge-wrong-order",
    ("merge", "heads before batch"): "merge-heads-before-batch",
    ("attends", "batch"): "batch-sequence-swap",
    ("attends", "heads"): "attention-across-heads",
    ("scale", "model width"): "scale-by-model-width",
    ("scale", "number of heads"): "scale-by-num-heads",
    ("scale", "none"): "scale-missing",
    ("scale", "twice"): "scale-twice",
    ("scale", "multiplied"): "scale-multiplied",
    ("scale", "number of keys"): "scale-key-length",
    ("softmax", "queries"): "softmax-over-queries",
    ("softmax", "heads"): "softmax-over-heads",
    ("out", "missing"): "missing-output-projection",
    ("transposed", ""): "transposed-weights",
    ("roles", "qkk"): "keys-used-as-values",
    ("heads", "qkk"): "keys-used-as-values",
    ("mask", "inverted"): "module-mask-polarity",
    ("mask", "dropped"): "mask-ignored",
    ("mask", "transposed"): "mask-transposed",
    ("mask", "after softmax"): "mask-after-softmax",
    ("mask", "multiplied"): "mask-multiplies-scores",
    ("mask", "weak"): "weak-sentinel",
    ("mask", "replaced by -10"): "weak-sentinel",
    ("mask", "added as numbers"): "bool-mask-added",
}

WORDS = {
    "split": "splits the heads by '{}'",
    "merge": "merges the heads by '{}'",
    "attends": "attends over the axis '{}'",
    "scale": "scales by '{}'",
    "softmax": "takes the softmax over '{}'",
    "out": "has its output projection '{}'",
    "transposed": "reads the weights of '{}' transposed",
    "no_bias": "leaves out the bias of '{}'",
    "heads": "mixes the heads of '{}' as q, k and v",
    "roles": "takes the projections '{}' for q, k and v",
    "mask": "has its mask '{}'",
}


@dataclass(frozen=True)
class Diagnosis:
    """The switches of the wrong module that gives the same values."""

    switches: dict[str, str]
    packing: Packing | None = None

    @property
    def cards(self) -> list[str]:
        """Return the ids of the museum's cards for these switches."""
        ids = []
        for switch, option in self.switches.items():
            card = CARDS.get((switch, option)) or CARDS.get((switch, ""))
            if card:
                ids.append(card)
        return ids

    @property
    def mistake(self) -> tuple[str | None, str | None]:
        """Return the card and, if two are needed, the second one."""
        return (*self.cards, None, None)[:2]

    @property
    def words(self) -> str:
        """Say which wrong module it equals."""
        what = [WORDS[s].format(option) for s, option in self.switches.items()]
        return f"The values are those of a module that {' and '.join(what)}."


def diagnose(
    bench: Bench, got: np.ndarray, call: ModuleCall
) -> Diagnosis | None:
    """Return what explains an output, the simplest first; None if nothing.

    One switch in every layout, then two switches in the usual one, as far as
    `SECONDS` reach.
    """
    found = bench.projections
    if found is None or not np.isfinite(got).all():
        return None
    usual = bench.packing or next(found.packings())
    exact = right_answer(found.read(usual), call)
    limit = float(np.abs(got - exact).max()) / NEARER
    layouts = [p for p in found.packings() if p.order == "qkv" and p != usual]
    ladder = [
        *((usual, switches) for switches in _singles(call)),
        *((p, switches) for p in layouts for switches in _singles(call)),
        *((usual, switches) for switches in _pairs(call)),
    ]
    weights = {p: found.read(p) for p in (usual, *layouts)}
    start = time.process_time()
    for packing, switches in ladder:
        if time.process_time() - start > SECONDS:
            return None
        try:
            with np.errstate(all="ignore"):
                model, _ = wrong_module.compute(
                    weights[packing], call, **switches
                )
        except ValueError:
            continue  # these sizes do not allow it
        if model.shape == got.shape and np.abs(model - got).max() <= limit:
            return Diagnosis(switches, packing)
    return None


def _options(call: ModuleCall) -> dict[str, tuple[str, ...]]:
    options = dict(OPTIONS)
    if call.query.shape != call.key.shape or (call.query != call.key).any():
        # With one input it is the same as taking other projections.
        options["heads"] = OPTIONS["roles"]
    if call.keep is not None:
        options["mask"] = MASK_OPTIONS
    return options


def _singles(call: ModuleCall) -> Iterator[dict[str, Any]]:
    for switch, options in _options(call).items():
        for option in options:
            yield {switch: option}


def _pairs(call: ModuleCall) -> Iterator[dict[str, Any]]:
    options = _options(call)
    for one, two in itertools.combinations(options, 2):
        for first, second in itertools.product(options[one], options[two]):
            yield {one: first, two: second}
