"""The arrays of one call on their way through the stages of attention."""

from dataclasses import dataclass

import numpy as np

from attention_lab.verify.attention.case import Case, Sizes, arguments


@dataclass
class Parts:
    """The arrays of one call on their way through the stages."""

    case: Case
    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    mask: np.ndarray | None

    @property
    def sizes(self) -> Sizes:
        """Return the sizes of the call."""
        return self.case.sizes


def parts_of(case: Case) -> Parts:
    """Return a case's arrays, ready for the stages."""
    given = arguments(case)
    return Parts(
        case, given["query"], given["key"], given["value"], given["attn_mask"]
    )
