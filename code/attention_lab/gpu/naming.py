"""Say which thread and which block, as a kernel counts them."""

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Names:
    """The names of the threads and blocks of one launch.

    Inside the recorder both have one number, x running fastest. Where the
    launch has several axes, a reader is told the indices along each.

    Attributes
    ----------
    grid, block : the launch, three sizes each
    """

    grid: tuple = (1, 1, 1)
    block: tuple = (1, 1, 1)

    def thread(self, number):
        """Return such as "thread 3" or "thread (3, 0)".

        Examples
        --------
        >>> Names(block=(4, 2, 1)).thread(5)
        'thread (1, 1)'
        """
        return f"thread {indices(number, self.block)}"

    def block_of(self, number):
        """Return such as "block 3" or "block (3, 0)"."""
        return f"block {indices(number, self.grid)}"

    def both(self, thread, block):
        """Return such as "thread 3 of block 0"."""
        return f"{self.thread(thread)} of {self.block_of(block)}"


def indices(number, sizes):
    """Return a number, or the indices along the axes that are in use.

    A thread past the end of its block has a number only.
    """
    axes = max(k + 1 for k in range(3) if k == 0 or sizes[k] > 1)
    if axes == 1 or number >= math.prod(sizes):
        return number
    x, y, _ = sizes
    return (number % x, number // x % y, number // (x * y))[:axes]
