"""Data movement, followed exactly: the same call, made on the codes."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from attention_lab.shape_flow.calls import CASTS, words
from attention_lab.shape_flow.labels import argument, tensors_in
from attention_lab.shape_flow.memory import CONSTANT, Untraceable

# Of these only the first argument is moved; the others say where to.
_FIRST_ONLY = words(
    """
    getitem gather index_select take take_along_dim masked_select
    repeat_interleave select narrow
    """
)
#: Which arguments of these are moved; the others say where to.
_WRITES = {
    "index_copy": (0, 3),
    "index_put": (0, 2),
    "scatter": (0, 3),
    "masked_scatter": (0, 2),
    "index_fill": (0, 3),
}
_WRITTEN = words("input source src value values")
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
        try:
            made.append(function(*given[0], **given[1]))
        except (NotImplementedError, RuntimeError) as error:
            raise Untraceable(
                f"{name} does not work on whole numbers, by which elements are "
                "followed"
            ) from error
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
        one, other = (_whole(codes) for codes in (one, other))
        if one.shape != tensor.shape or one.dtype != torch.int64:
            raise Untraceable(
                f"run on element codes it gives {tuple(one.shape)}, not "
                f"{tuple(tensor.shape)}"
            )
        memory.write(tensor, one, other)


def moved_tensors(name: str, args: tuple, kwargs: dict) -> list[Tensor]:
    """Return the tensors whose elements move; others only say where to."""
    if name == "setitem":
        return tensors_in(args[0], args[2])
    if name in _FIRST_ONLY:
        return tensors_in(args[:1], kwargs.get("input"))
    places = _WRITES.get(name.rstrip("_"))
    if places is None:
        return tensors_in(args, kwargs)
    given = [args[n] for n in places if n < len(args)]
    return tensors_in(given, [kwargs.get(key) for key in _WRITTEN])


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
    if name == "pad":
        return _padded(swap, args, kwargs)
    if name.rstrip("_") in _WRITES:
        return _written(swap, here, name.rstrip("_"), args, kwargs)
    if name == "repeat_interleave" and len(args) + len(kwargs) < 2:
        raise Untraceable("it makes places out of numbers")
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
    return tree_map(swap, args), tree_map(swap, kwargs)


def _whole(codes: Tensor) -> Tensor:
    """Return codes that were padded as float64 as whole numbers again."""
    return codes.long() if codes.dtype == torch.float64 else codes


def _padded(swap: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Pad codes: with constants, or with what the mode takes from inside.

    As float64, in which codes are exact: torch reflects no whole numbers.
    """
    codes = swap(argument(args, kwargs, 0, "input"))
    mode = argument(args, kwargs, 2, "mode") or "constant"
    widths = argument(args, kwargs, 1, "pad")
    number = {"value": CONSTANT} if mode == "constant" else {}
    return (codes.double(), widths), {"mode": mode, **number}


def _written(
    swap: Callable, here: Callable, name: str, args: tuple, kwargs: dict
) -> tuple[tuple, dict]:
    """Write codes into codes, at places that stay as they are."""
    named = dict(kwargs)
    if named.pop("accumulate", False) or named.pop("reduce", None) or (
        name == "index_put" and len(args) > 3 and args[3]
    ):  # fmt: skip
        raise Untraceable("it adds to what is there, and does not move it")

    def moved(is_moved: bool, thing: Any) -> Any:
        if not is_moved:
            return tree_map(here, thing)
        return swap(thing) if isinstance(thing, Tensor) else CONSTANT

    return (
        tuple(moved(n in _WRITES[name], x) for n, x in enumerate(args)),
        {key: moved(key in _WRITTEN, x) for key, x in named.items()},
    )


def _tensors(result: Any) -> list[Tensor]:
    if isinstance(result, Tensor):
        return [result]
    return [t for t in result if isinstance(t, Tensor)]
