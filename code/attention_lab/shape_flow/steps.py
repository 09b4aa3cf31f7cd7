"""What one recorded step is, as plain data without torch."""

from dataclasses import dataclass, field

import numpy as np

from attention_lab.shape_flow.calls import Line

#: Joins the names of a tensor that was passed as several arguments.
SAME = " = "


@dataclass(frozen=True, eq=False)
class Value:
    """One tensor at one moment of the trace.

    Attributes
    ----------
    name : "x", "step 3", "step 3[1]", "q_proj.weight", "a constant"; or
        "query = key", one tensor that was passed as two arguments.
    step : the step that made it, or None.
    shape, strides, offset : as torch says; strides count numbers.
    letters : one per axis; "?" where unknown, "1" for a nameless size of 1.
    why : axis → reason of a "?".
    memory : "input", "constant", "view", "copy", "new", "in place" or "same".
    of : whose memory a view shares.
    codes : where each element came from, exactly; None if not followed.
    line : the same, looking through steps that keep elements in place.
    reason : why it is not followed, or "".
    """

    name: str
    step: int | None
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    dtype: str
    letters: tuple[str, ...]
    why: dict[int, str] = field(default_factory=dict)
    memory: str = "new"
    of: str = ""
    codes: np.ndarray | None = field(default=None, repr=False)
    line: np.ndarray | None = field(default=None, repr=False)
    reason: str = ""

    @property
    def axes(self) -> str:
        """The letters as one text: "B H L D"."""
        return " ".join(self.letters) if self.letters else "scalar"


@dataclass(frozen=True, eq=False)
class Step:
    """One operation.

    Attributes
    ----------
    number : counted from 1.
    name : "permute", "linear", "rearrange".
    call : how it reads, without its tensors: "permute(0, 2, 1, 3)".
    kind : "moves" (elements only change places), "computes", "opaque"
        (what it does to elements is not known).
    inputs, outputs : tensors before and after.
    source : the line of code, or None if it was not found.
    contracts : whether it sums over an axis of two operands, as matmul does.
    notes : what could not be followed, and why.
    """

    number: int
    name: str
    call: str
    kind: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    source: Line | None
    contracts: bool = False
    notes: tuple[str, ...] = ()
