"""What the kernel battery is given: a launch, and an exhibit of the museum."""

from collections.abc import Callable
from typing import Any, NamedTuple


class Launch(NamedTuple):
    """One launch of a kernel at some sizes, and the arrays it works on.

    Attributes
    ----------
    grid, block : as in ``kernel[grid, block]``: an integer or up to three.
    args : the kernel's arguments, NumPy arrays and numbers; outputs first.
    shared_bytes : dynamic shared memory of each block.
    outputs : how many of the arguments are outputs.
    accumulates : the kernel adds to its outputs, so that they keep the values
        given here; otherwise they are filled with NaN before every run.
    """

    grid: Any
    block: Any
    args: tuple[Any, ...]
    shared_bytes: int = 0
    outputs: int = 1
    accumulates: bool = False


class KernelCase(NamedTuple):
    """A kernel with all that `verify_kernel` needs: an exhibit's form.

    Attributes
    ----------
    kernel, launch, reference : the first three arguments of `verify_kernel`.
    options : its other arguments, by name.
    """

    kernel: Any
    launch: Callable[..., Launch]
    reference: Callable[..., Any]
    options: dict[str, Any]


class BadCase(Exception):  # noqa: N818 - said to a learner
    """A kernel cannot be tested at some sizes; says why in one sentence."""


def in_words(sizes: dict[str, Any]) -> str:
    """Write sizes as a sentence does: L = 5, S = 7."""
    return ", ".join(f"{axis} = {n}" for axis, n in sizes.items()) or "once"
