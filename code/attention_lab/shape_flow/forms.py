"""The arrangements that count as right, beside the one that was asked for."""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_lab.shape_flow.pattern import Pattern


@dataclass(frozen=True)
class Form:
    """An accepted way to hold the rearranged elements."""

    words: str
    codes: np.ndarray


def forms_of(
    pattern: Pattern, expected: np.ndarray, merge: bool
) -> Iterator[Form]:
    """Return the right arrangement, and others that say the same.

    A split may have its last two axes swapped (keys, transposed for the
    product), batch and heads merged (for bmm), or be cut along P or H. A
    merge may have batch and tokens swapped or merged.
    """
    names = pattern.right
    if merge:
        yield Form(pattern.target, expected)
        if expected.ndim == 3:
            batch, token, width = names
            swapped = expected.swapaxes(0, 1)
            size = expected.shape[2]
            yield Form(f"{token} {batch} {width}", swapped)
            yield Form(f"({batch} {token}) {width}", expected.reshape(-1, size))
            yield Form(f"({token} {batch}) {width}", swapped.reshape(-1, size))
        return
    cut = [axis for axis, name in enumerate(names) if name in ("p", "h")]
    for count in range(len(cut) + 1):
        for axes in itertools.combinations(cut, count):
            ranges = [range(expected.shape[axis]) for axis in axes]
            for places in itertools.product(*ranges):
                index: list[Any] = [slice(None)] * expected.ndim
                for axis, place in zip(axes, places, strict=True):
                    index[axis] = place
                left = [n for a, n in enumerate(names) if a not in axes]
                at = "".join(
                    f", {names[a]} = {p}"
                    for a, p in zip(axes, places, strict=True)
                )
                yield from _turns(left, expected[tuple(index)], at)


def _turns(names: list[str], codes: np.ndarray, at: str) -> Iterator[Form]:
    """Return a piece of a split in its accepted orders of axes."""
    if codes.ndim < 2:
        return
    *lead, row, column = names
    for order, turned in (
        ([row, column], codes),
        ([column, row], codes.swapaxes(-1, -2)),
    ):
        yield Form(" ".join([*lead, *order]) + at, turned)
        if len(lead) == 2:
            merged = turned.reshape(-1, *turned.shape[2:])
            words = f"({' '.join(lead)}) {' '.join(order)}"
            yield Form(words + at, merged)


def turned_order(
    pattern: Pattern, expected: np.ndarray, line: np.ndarray
) -> str | None:
    """Return the order of axes in which these are the right elements."""
    pieces = [(pattern.right, expected)]
    if "p" in pattern.right:
        axis = pattern.right.index("p")
        left = [n for n in pattern.right if n != "p"]
        pieces += [
            (left, np.take(expected, p, axis))
            for p in range(expected.shape[axis])
        ]
    for names, codes in pieces:
        if sorted(codes.shape) != sorted(line.shape):
            continue
        for order in itertools.permutations(range(codes.ndim)):
            turned = codes.transpose(order)
            if turned.shape == line.shape and (turned == line).all():
                return " ".join(names[i] for i in order)
    return None
