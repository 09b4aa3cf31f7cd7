"""Data movement, followed exactly: the same call, made on the codes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from attention_lab.shape_flow.calls import CASTS, words
from attention_lab.shape_flow.memory import CONSTANT, Untraceable

# Of these only the first argument is moved; the others say where to.
_FIRST_ONLY = words(
    """
    getitem gather index_select take take_along_dim masked_select
    repeat_interleave select narrow
    """
)
# These change the axes of the tensor itself and no number in memory.
_AXES_IN_PLACE = words("squeeze_ unsqueeze_ transpose_ swapaxes_ t_ detach_")


def run_on_codes(
    book: Any,
    name: str,
    function: Callable,
    args: tuple,
    kwargs: dict,
    new: list[Tensor],
    changed: list[Tensor],
    operands: list[Tensor],
) -> None:
    """Give copies the codes of what they copy.

    Views need nothing: they are views of the shadow as well.
    """
    if name in _AXES_IN_PLACE or not (new or changed):
        return
    memory = book.memory
    if name in CASTS:
        source = operands[0]
        for tensor in new:
            memory.write(tensor, *memory.both(source))
        return
    lost = [book.lost(t) for t in operands if book.lost(t)]
    if lost:
        raise Untraceable(lost[0])
    made = []
    for which in (0, 1):
        given = _on_codes(memory, name, args, kwargs, which)
        made.append(function(*given[0], **given[1]))
    for tensor in changed:
        memory.touch(tensor)
    if not new:
        return
    exact, line = (_tensors(result) for result in made)
    by_shape = list(zip(exact, line, strict=True))
    if len(by_shape) != len(new):
        # Some results are views and have their codes already.
        by_shape = by_shape[-len(new) :]
    for tensor, (one, other) in zip(new, by_shape, strict=True):
        if one.shape != tensor.shape or one.dtype != torch.int64:
            raise Untraceable(
                f"run on element codes it gives {tuple(one.shape)}, not "
                f"{tuple(tensor.shape)}"
            )
        memory.write(tensor, one, other)


def _on_codes(
    memory: Any, name: str, args: tuple, kwargs: dict, which: int
) -> tuple[tuple, dict]:
    """Replace every tensor that is moved by its codes."""

    def swap(thing: Any) -> Any:
        if isinstance(thing, Tensor):
            return memory.codes(thing, which)
        return thing

    def here(thing: Any) -> Any:
        if isinstance(thing, Tensor) and thing.device.type != "cpu":
            return thing.cpu()
        return thing

    kwargs = {
        key: value
        for key, value in kwargs.items()
        if key not in ("dtype", "device")
    }
    if name == "setitem":
        target, key, value = args
        number = swap(value) if isinstance(value, Tensor) else CONSTANT
        return (swap(target), tree_map(here, key), number), {}
    if name in _FIRST_ONLY:
        rest = tree_map(here, args[1:])
        named = {
            key: swap(value) if key == "input" else here(value)
            for key, value in kwargs.items()
        }
        first = (swap(args[0]),) if args else ()
        return (*first, *rest), named
    if name in ("index_copy_",):
        return (swap(args[0]), args[1], here(args[2]), swap(args[3])), {}
    return tree_map(swap, args), tree_map(swap, kwargs)


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for t in result if isinstance(t, Tensor)]
