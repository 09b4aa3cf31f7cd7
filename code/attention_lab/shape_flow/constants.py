"""Which tensors no input has a part in: weights, masks, positions."""

from collections.abc import Sequence

import numpy as np

from attention_lab.shape_flow.memory import Root, roots_in
from attention_lab.shape_flow.steps import Value


def all_constant(roots: Sequence[Root], codes: Sequence[np.ndarray]) -> bool:
    """Whether no input has a part in any of these codes."""
    return all(
        root.kind == "constant"
        for part in codes
        for root in roots_in(list(roots), part.reshape(-1))
    )


def is_constant(roots: Sequence[Root], value: Value) -> bool:
    """Whether a value was made from no input at all."""
    if value.codes is None:
        return value.memory == "constant"
    return all_constant(roots, [value.codes])
