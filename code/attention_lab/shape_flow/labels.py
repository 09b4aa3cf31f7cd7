"""Labels of a computing step's axes: what the rules are written in.

One rule serves two ends. Operands and results get labels, one per axis: an
axis of the result carries the letter of the operand's axis with its label, and
an element of the result can depend on those elements of an operand that agree
with it in all shared labels. An operand's axis whose label the result has not
is gone through as a whole: summed, contracted, or normalised over.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor


@dataclass(frozen=True)
class Rule:
    """Labels of operands and results.

    Attributes
    ----------
    operands : (tensor, labels) of everything the result is computed from.
    results : labels of each result, in order.
    keeps : which operand's elements the result's elements are heirs of, or
        None if they have no place in common.
    contracts : whether axes of two operands are summed against each other.
    repeats : operand's place → (axis, times): each element along this axis
        stands for that many neighbours, as a key head for its group.
    """

    operands: tuple[tuple[Tensor, tuple], ...]
    results: tuple[tuple, ...]
    keeps: int | None = None
    contracts: bool = False
    repeats: dict[int, tuple[int, int]] = field(default_factory=dict)


_fresh = itertools.count()


def new_label() -> str:
    """Return a label that nothing else has."""
    return f"#{next(_fresh)}"


def tensors_in(*things: Any) -> list[Tensor]:
    """Return the tensors among arguments, in order, lists opened."""
    found = []
    for thing in things:
        if isinstance(thing, Tensor):
            found.append(thing)
        elif isinstance(thing, (list, tuple)):
            found += tensors_in(*thing)
        elif isinstance(thing, dict):
            found += tensors_in(*thing.values())
    return found


def aligned(shape: Sequence[int], labels: tuple, full: Sequence[int]) -> tuple:
    """Label an operand that broadcasts from the right against a result."""
    skipped = len(full) - len(shape)
    return tuple(
        labels[skipped + axis] if size == full[skipped + axis] else new_label()
        for axis, size in enumerate(shape)
    )


def argument(args: tuple, kwargs: dict, place: int, *names: str) -> Any:
    """Return an argument by one of its names or its place, or None."""
    for name in names:
        if name in kwargs:
            return kwargs[name]
    return args[place] if len(args) > place else None


def subject(args: tuple, kwargs: dict) -> Tensor:
    """Return the tensor that a call works on."""
    return args[0] if args else kwargs["input"]
