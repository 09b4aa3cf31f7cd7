"""Where each exhibit is wrong; everywhere else it must be right.

So an exhibit has one mistake: any second one would show in another situation.
"""

from situations import BACKWARD, SITUATIONS


def _all_masks(is_bool: bool) -> tuple[str, ...]:
    masks = {
        name: situation.options["attn_mask"]
        for name, situation in SITUATIONS.items()
        if "attn_mask" in situation.options
    }
    return tuple(
        name
        for name, mask in masks.items()
        if (str(mask.dtype) == "torch.bool") == is_bool
        and name != "mask of True"
    )


BOOLEAN = _all_masks(True)
NUMBERS = _all_masks(False)
CROSS = tuple(
    name
    for name, situation in SITUATIONS.items()
    if "cross_attention" in situation.needs
)
LONG = (
    "long (40, 70)",
    "long (40, 40)",
    "long (40, 64)",
    "causal (40, 40)",
    "long, mask",
    "long, first tile hidden",
    "long, a number per row",
    "bfloat16, long",
)
CAUSAL = ("causal (5, 5)", "causal (5, 7)", "causal (7, 5)", "causal (40, 40)")
HALF = (
    "float16",
    "bfloat16",
    "float16, mask",
    "bfloat16, long",
    "float16, large",
)
GROUPS = ("1 of 6 heads", "2 of 6 heads", "3 of 6 heads")
EMPTY = ("empty row", "empty row, numbers")
UNSEEN = ("no keys", "no queries")
NOT_DEFAULT = ("scale", "float16, large")
TWO_KEYS_BACKWARD = tuple(x for x in BACKWARD if x != "one key")


def only(*names: str) -> frozenset[str]:
    """Return the situations in which an exhibit is wrong."""
    unknown = set(names) - set(SITUATIONS)
    if unknown:
        raise KeyError(f"no situation {unknown}")
    return frozenset(names)


def all_but(*names: str) -> frozenset[str]:
    """Return all situations without those in which an exhibit is right."""
    return frozenset(SITUATIONS) - only(*names)


#: Exhibit -> the situations in which its output is wrong.
WRONG_OUTPUT = {
    "mask-polarity": only(*BOOLEAN, "mask of True"),
    "mask-ignored": only(
        *BOOLEAN, "numbers", "finite numbers", "empty row, numbers"
    ),
    "additive-mask-as-bool": only(
        "numbers",
        "finite numbers",
        "long, a number per row",
        "empty row, numbers",
    ),
    "bool-mask-added": only(*BOOLEAN),
    "mask-after-softmax": only(*BOOLEAN),
    "mask-multiplies-scores": only(*BOOLEAN),
    "weak-sentinel": only(
        "mask (L, S)",
        "mask (1, S)",
        "mask (B, 1, L, S)",
        "mask (1, H, L, S)",
        "mask (B, H, L, S)",
        "mask (B, 1, 1, S)",
        "square, padding",
        "square, mask (L, S)",
        "square, B = H",
        "long, mask",
        "long, first tile hidden",
        "empty row",
    ),
    "sentinel-in-half": only("float16, mask"),
    "fully-masked-row-nan": only(*EMPTY),
    "fully-masked-row-uniform": only(*EMPTY),
    "mask-transposed": only(*BOOLEAN, *NUMBERS, "mask of True"),
    "mask-on-queries": only(
        "mask (1, S)", "mask (B, 1, 1, S)", "square, padding"
    ),
    "mask-rank": only(
        "mask (B, 1, L, S)",
        "mask (B, 1, 1, S)",
        "square, padding",
        "square, B = H",
        "finite numbers",
    ),
    "mask-repeat-order": only(
        "mask (B, 1, L, S)",
        "mask (1, H, L, S)",
        "mask (B, H, L, S)",
        "mask (B, 1, 1, S)",
        "square, padding",
        "square, B = H",
        "finite numbers",
    ),
    "mask-first-sample-for-all": only(
        "mask (B, 1, L, S)",
        "mask (B, H, L, S)",
        "mask (B, 1, 1, S)",
        "square, padding",
        "square, B = H",
        "finite numbers",
    ),
    "mask-first-head-for-all": only("mask (1, H, L, S)", "mask (B, H, L, S)"),
    "causal-ignored": only(*CAUSAL),
    "causal-transposed": only(*CAUSAL),
    "causal-lower-right": only("causal (5, 7)", "causal (7, 5)"),
    "causal-off-by-one-future": only(*CAUSAL),
    "causal-off-by-one-self": only(*CAUSAL),
    "causal-needs-square": only("causal (5, 7)", "causal (7, 5)"),
    "scale-missing": all_but(*NOT_DEFAULT, *UNSEEN, "one key"),
    "scale-twice": all_but(*UNSEEN, "one key"),
    "scale-model-width": all_but(*NOT_DEFAULT, *UNSEEN, "one key", "one head"),
    "scale-num-heads": all_but(*NOT_DEFAULT, *UNSEEN, "one key"),
    "scale-key-length": all_but(*NOT_DEFAULT, *UNSEEN, "one key"),
    "scale-multiplied": all_but(*NOT_DEFAULT, *UNSEEN, "one key"),
    "scale-argument-ignored": only(*NOT_DEFAULT),
    "scale-after-softmax": all_but(*UNSEEN),
    "scale-in-place": all_but(*HALF, "no queries"),
    "softmax-over-queries": all_but(*UNSEEN, "one key"),
    "softmax-over-heads": all_but(*UNSEEN, "one key"),
    "no-max-subtraction": only("very low scores", "rows of unlike size"),
    "constant-subtracted": only("very low scores", "rows of unlike size"),
    "global-max-subtracted": only("very low scores", "rows of unlike size"),
    "float16-overflow": only("float16, large"),
    "softmax-in-half": only("bfloat16, long"),
    "base-two": all_but(*UNSEEN, "one key"),
    "weights-not-normalised": all_but(*UNSEEN, "one key"),
    "dropout-always-on": all_but(*UNSEEN),
    "keys-used-as-values": all_but(*UNSEEN),
    "value-width-assumed": only("value width"),
    "heads-unfolded-in-wrong-order": all_but(
        *LONG,
        *UNSEEN,
        "one key",
        "one sample",
        "one head",
        "causal (5, 5)",
        "causal (5, 7)",
        "causal (7, 5)",
    ),
    "heads-viewed-not-transposed": all_but(*UNSEEN, "one key", "one head"),
    "attention-across-heads": all_but("one key"),
    "attention-across-batch": all_but("one key"),
    "weights-averaged-over-heads": all_but(*UNSEEN, "one key", "one head"),
    "gqa-tiled": only("2 of 6 heads", "3 of 6 heads"),
    "gqa-wrong-axis": only(*GROUPS),
    "gqa-first-head-only": only("2 of 6 heads", "3 of 6 heads"),
    "gqa-mean-of-heads": only("2 of 6 heads", "3 of 6 heads"),
    "gqa-group-size-swapped": only(*GROUPS),
    "gqa-not-supported": only("2 of 6 heads", "3 of 6 heads"),
    "query-length-for-keys": only(*CROSS, "value width"),
    "noncontiguous-view": only("strided"),
    "online-sum-not-rescaled": only(*LONG),
    "online-acc-not-rescaled": only(*LONG),
    "online-neither-rescaled": only(*LONG),
    "online-inverse-rescale": only(*LONG),
    "online-initial-max-zero": only("very low scores"),
    "online-first-tile-masked-nan": only("long, first tile hidden"),
    "online-every-tile-masked": only(*EMPTY, "no keys"),
    "online-tail-dropped": only(
        "long (40, 70)",
        "long (40, 40)",
        "causal (40, 40)",
        "long, mask",
        "long, first tile hidden",
        "long, a number per row",
        "bfloat16, long",
    ),
    "online-tail-unmasked": all_but(
        *UNSEEN,
        "large scores",
        "long (40, 64)",
        "causal (5, 5)",
        "causal (5, 7)",
        "causal (40, 40)",
        "bfloat16, long",
        "float16, large",
    ),
    "online-padding-width": all_but(
        *LONG,
        *NOT_DEFAULT,
        *UNSEEN,
        "one key",
        "width 4",
        "causal (5, 5)",
        "causal (5, 7)",
        "causal (7, 5)",
    ),
    "online-last-tile-max-only": only(*LONG),
    "online-divided-every-tile": only(*LONG),
    "split-merge-averaged": only("long (40, 70)", "bfloat16, long"),
    "online-causal-tile-skipped-wrongly": only("causal (40, 40)"),
    "online-causal-not-offset": only("causal (40, 40)"),
    "online-mask-not-offset": only("long, mask", "long, first tile hidden"),
}

#: Exhibit -> the situations in which its output is right, its gradients not.
WRONG_GRADIENTS = {
    "fully-masked-row-gradient-nan": only(*EMPTY),
    "weights-not-normalised": only("one key"),
    "online-first-tile-masked-nan": only(*EMPTY),
    "backward-ds-without-d": only(*BACKWARD),
    "backward-d-over-queries": only(*TWO_KEYS_BACKWARD),
    "backward-scale-lost": only(*TWO_KEYS_BACKWARD),
    "backward-dk-transposed": only(*TWO_KEYS_BACKWARD),
    "backward-causal-ignored": only("causal (5, 5)"),
    "backward-gqa-not-summed": only("2 of 6 heads"),
    "backward-dv-uses-scores": only(*BACKWARD),
    "backward-mask-gradient-nan": only(*EMPTY),
    "backward-recompute-with-wrong-lse": only(*TWO_KEYS_BACKWARD),
    "backward-detached": only(*BACKWARD),
}
