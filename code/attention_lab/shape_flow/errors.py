"""What shape flow raises: wrong elements, or what it cannot follow."""

from attention_lab.axes import ShapeMismatch


class CannotFollow(RuntimeError):  # noqa: N818 - said as a sentence
    """The question cannot be answered from what was recorded, and why."""


class WrongElements(ShapeMismatch):
    """A step has the right shape and holds other elements than it should.

    Attributes
    ----------
    step : number of the first step that goes wrong.
    share : part of its elements that are misplaced, 0 … 1.
    pattern : the rearrangement that was wanted.
    element : index of one misplaced element in the step's result.
    found, expected : what that element is, and what belongs there.
    """

    def __init__(
        self,
        sentence: str,
        *,
        step: int,
        share: float,
        pattern: str,
        element: tuple[int, ...] = (),
        found: str = "",
        expected: str = "",
    ) -> None:
        super().__init__(sentence)
        self.step = step
        self.share = share
        self.pattern = pattern
        self.element = element
        self.found = found
        self.expected = expected
