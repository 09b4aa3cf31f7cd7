"""The checks of the battery for attention functions, in their order."""

from collections.abc import Callable
from dataclasses import dataclass

from attention_lab.verify.attention.case import MASKS, Case, sizes
from attention_lab.verify.attention.checks import (
    PLAIN,
    check_dtype,
    check_half,
    check_runs,
    check_shape,
    run_cases,
)
from attention_lab.verify.attention.gradients import (
    check_gradients,
    check_masked_row_gradients,
)
from attention_lab.verify.attention.properties import (
    check_apart,
    check_mask_and_causal,
    check_permutation,
    check_repeatable,
    check_unchanged,
)
from attention_lab.verify.attention.subject import Subject
from attention_lab.verify.report import Check


@dataclass(frozen=True)
class Kind:
    """One check: its name, what a function needs for it, and how it runs."""

    name: str
    needs: tuple[str, ...]
    run: Callable[[Subject, str], Check]
    cases: tuple[Case, ...] = ()


def _grid(*cases: Case) -> Callable[[Subject, str], Check]:
    def run(subject: Subject, name: str) -> Check:
        asked = [case for case in cases if _may_be_asked(subject, case)]
        return run_cases(subject, name, asked)

    return run


def _may_be_asked(subject: Subject, case: Case) -> bool:
    n = case.sizes
    return (n.L == n.S or subject.supports("cross_attention")) and (
        n.D_v == n.D or subject.supports("value_width")
    )


def _kind(name: str, *cases: Case, needs: tuple[str, ...] = ()) -> Kind:
    return Kind(name, needs, _grid(*cases), cases)


SELF = sizes(2, 3, 5, 5, 4)
CROSS = sizes(2, 3, 5, 7, 4)
#: Masks by what they hold; the other ones have checks of their own.
BOOLEAN = tuple(
    name
    for name in MASKS
    if not any(word in name for word in ("added", "empty", "rows", "causal"))
)
ADDED = tuple(
    name
    for name in MASKS
    if name.startswith("added")
    and not any(word in name for word in ("empty", "causal"))
)

KINDS: tuple[Kind, ...] = (
    Kind("runs", (), check_runs),
    Kind("shape", (), check_shape),
    Kind("dtype", (), check_dtype),
    Kind("repeatable", (), check_repeatable),
    _kind(
        "values",
        PLAIN,
        Case(sizes(1, 1, 1, 1, 1)),
        Case(SELF),
        Case(sizes(1, 2, 17, 17, 8)),
        Case(sizes(1, 3, 4, 4, 59)),
        # More than most tiles and blocks hold, along every axis.
        Case(sizes(6, 12, 3, 3, 4)),
        Case(sizes(1, 1, 5, 5, 136)),
    ),
    Kind("permutation", (), check_permutation),
    Kind("batch and heads apart", (), check_apart),
    _kind(
        "cross-attention",
        Case(CROSS),
        Case(sizes(1, 2, 7, 3, 5)),
        Case(sizes(3, 2, 1, 9, 4)),
        needs=("cross_attention",),
    ),
    _kind(
        "value width",
        Case(sizes(2, 3, 5, 5, 4, D_v=6)),
        Case(sizes(1, 2, 3, 3, 4, D_v=1)),
        needs=("value_width",),
    ),
    _kind(
        "scale",
        Case(SELF, scale=0.3),
        Case(sizes(1, 2, 3, 3, 5), scale=2.0),
        needs=("scale",),
    ),
    _kind(
        "large scores",
        Case(SELF, gain=100.0),
        Case(sizes(1, 2, 9, 9, 16), gain=100.0),
        Case(sizes(2, 3, 7, 7, 8), gain=1e4),
        # One key: its weight is 1, however low its score.
        Case(sizes(2, 3, 7, 1, 8), gain=100.0),
    ),
    _kind(
        "long sequences",
        Case(sizes(1, 2, 33, 33, 4), gain=3.0),
        Case(sizes(1, 1, 70, 70, 8), gain=3.0),
        Case(sizes(1, 1, 129, 129, 4), gain=3.0),
        Case(sizes(1, 1, 2, 520, 4), gain=3.0),
    ),
    _kind(
        "boolean mask",
        *(Case(SELF, mask=mask) for mask in BOOLEAN),
        Case(SELF, mask="padding (B, 1, 1, S)", hidden="huge"),
        Case(sizes(1, 2, 40, 40, 4), mask="left padding (B, 1, 1, S)"),
        Case(CROSS, mask="(L, S)"),
        Case(CROSS, mask="(B, H, L, S)"),
        needs=("attn_mask",),
    ),
    _kind(
        "float mask",
        *(Case(SELF, mask=mask) for mask in ADDED),
        needs=("attn_mask", "float_mask"),
    ),
    _kind(
        "fully masked row",
        Case(SELF, mask="last row empty (L, S)"),
        Case(sizes(1, 2, 33, 33, 4), mask="last row empty (L, S)"),
        Case(SELF, mask="whole rows (B, 1, L, 1)"),
        Case(sizes(1, 2, 19, 37, 4), mask="whole rows (B, 1, L, 1)"),
        needs=("attn_mask",),
    ),
    _kind(
        "causal",
        Case(SELF, is_causal=True),
        Case(sizes(1, 1, 1, 1, 3), is_causal=True),
        Case(sizes(1, 2, 70, 70, 4), is_causal=True),
        needs=("is_causal",),
    ),
    _kind(
        "causal, other lengths",
        Case(sizes(2, 3, 5, 7, 4), is_causal=True),
        Case(sizes(2, 3, 7, 5, 4), is_causal=True),
        needs=("is_causal", "cross_attention"),
    ),
    _kind(
        "causality",
        Case(SELF, is_causal=True, hidden="huge"),
        Case(sizes(1, 2, 17, 17, 4), is_causal=True, hidden="huge"),
        needs=("is_causal",),
    ),
    Kind("mask and causal", ("attn_mask", "is_causal"), check_mask_and_causal),
    _kind(
        "grouped heads",
        Case(sizes(2, 4, 5, 5, 3, H_kv=2)),
        Case(sizes(1, 6, 5, 5, 4, H_kv=2)),
        Case(sizes(1, 3, 5, 5, 4, H_kv=1)),
        needs=("enable_gqa",),
    ),
    Kind("half precision", ("half_precision",), check_half),
    _kind(
        "empty",
        Case(sizes(1, 2, 3, 0, 4)),
        Case(sizes(1, 2, 0, 3, 4)),
        needs=("cross_attention", "empty"),
    ),
    _kind(
        "strided input",
        Case(SELF, strided=True),
        Case(sizes(2, 3, 6, 6, 4), strided=True),
    ),
    Kind("inputs unchanged", (), check_unchanged),
    Kind("gradients", ("gradients",), check_gradients),
    Kind(
        "gradients of a masked row",
        ("gradients", "attn_mask"),
        check_masked_row_gradients,
    ),
)
