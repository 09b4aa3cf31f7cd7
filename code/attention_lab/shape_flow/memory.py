"""Shadow memory: beside every number in memory, where it came from.

Each storage that a traced tensor lives in gets a shadow of the same length. A
view of the tensor is the same view of the shadow, whatever function made it,
so views are followed by their strides and not by their names; a copy is
followed by running the same function on the shadows.

Two codes stand beside each number. The exact one is the element of the input
or of the computed tensor (its *root*) that the number is. The line one looks
through steps that keep every element in its place, such as a scale, a bias or
a norm: there, the result's element is the heir of the one it was made from.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

#: Codes of numbers that are no element of a root.
CONSTANT, UNKNOWN = -1, -2
#: Larger tensors are recorded by shape and stride only.
MOST_ELEMENTS = 1 << 21
_EXACT, _LINE = 0, 1


@dataclass(eq=False)
class Root:
    """A tensor whose elements are where others came from.

    Attributes
    ----------
    name : "x", "linear (step 1)", "a constant".
    kind : "input", "constant", "computed" or "opaque".
    step : the step that made it, or None.
    offset : the code of its first element.
    letters : one per axis; "?" where unknown.
    why : axis → reason of a "?".
    parents : (exact codes, labels) of what it was computed from.
    labels : of its own axes; an axis of a parent that is not among them was
        gone through as a whole.
    reason : why its elements cannot be followed further back, or "".
    """

    name: str
    kind: str
    step: int | None
    shape: tuple[int, ...]
    offset: int
    letters: tuple[str, ...]
    why: dict[int, str] = field(default_factory=dict)
    parents: tuple[tuple[np.ndarray, tuple], ...] = ()
    labels: tuple = ()
    reason: str = ""

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape, dtype=np.int64))


class Untraceable(Exception):  # noqa: N818 - never leaves the package
    """Says why a tensor has no memory that can be shadowed."""


@dataclass
class _Block:
    """The shadow of one storage; `keep` stops its address being reused.

    `values` are the numbers that its codes were written for.
    """

    itemsize: int
    codes: tuple[Tensor, Tensor]  # as_strided counts from a storage's start
    keep: Any
    writes: int = 0
    values: Tensor | None = None


class Memory:
    """All shadows and all roots of one trace."""

    def __init__(self) -> None:
        self.roots: list[Root] = []
        self._blocks: dict[tuple, _Block] = {}
        self._next = 0

    def knows(self, tensor: Tensor) -> bool:
        """Whether this tensor's storage has a shadow."""
        return storage_key(tensor) in self._blocks

    def codes(self, tensor: Tensor, which: int = _EXACT) -> Tensor:
        """Return the codes of a tensor, as a view of the shadow."""
        block = self._block(tensor)
        return torch.as_strided(
            block.codes[which],
            tensor.size(),
            tensor.stride(),
            tensor.storage_offset(),
        )

    def both(self, tensor: Tensor) -> tuple[Tensor, Tensor]:
        """Return the exact and the line codes."""
        return self.codes(tensor, _EXACT), self.codes(tensor, _LINE)

    def write(
        self,
        tensor: Tensor,
        exact: Tensor,
        line: Tensor,
        only_new: bool = False,
    ) -> None:
        """Store codes beside a tensor's numbers, or beside those without."""
        block = self._block(tensor)
        places = self._places(tensor)
        self.touch(tensor)
        if only_new:
            is_new = block.codes[_EXACT][places] == UNKNOWN
            places = places[is_new]
            exact, line = (c.reshape(-1)[is_new] for c in (exact, line))
        block.codes[_EXACT][places] = exact.reshape(-1)
        block.codes[_LINE][places] = line.reshape(-1)

    def repeats(self, tensor: Tensor) -> bool:
        """Whether two of a tensor's places are one number in memory."""
        places = self._places(tensor)
        return len(places.unique()) < len(places)

    def _places(self, tensor: Tensor) -> Tensor:
        """Return where in its storage each of a tensor's numbers stands."""
        block = self._block(tensor)
        return torch.as_strided(
            torch.arange(len(block.codes[0]), device="cpu"),
            tensor.size(),
            tensor.stride(),
            tensor.storage_offset(),
        ).reshape(-1)

    def touch(self, tensor: Tensor) -> None:
        """Say that the codes of a tensor are those of its numbers now."""
        block = self._block(tensor)
        block.writes += 1
        now = _values(tensor)
        if now is None:
            return
        if block.values is None:
            block.values = torch.zeros(len(block.codes[0]), dtype=now.dtype)
        if block.values.dtype == now.dtype:
            block.values[self._places(tensor)] = now

    def writes(self, tensor: Tensor) -> int:
        """How often the codes of this storage were written."""
        return self._block(tensor).writes

    def add_root(
        self,
        tensor: Tensor,
        line: Tensor | None = None,
        only_new: bool = False,
        **facts: Any,
    ) -> Root:
        """Make a tensor a root: from here on its elements are themselves.

        With `only_new` those that have a code already keep it.
        """
        if tensor.numel() > MOST_ELEMENTS:
            raise Untraceable(
                f"it has {tensor.numel()} elements; at most {MOST_ELEMENTS} "
                "are followed"
            )
        root = Root(shape=tuple(tensor.shape), offset=self._next, **facts)
        places = torch.arange(root.size, device="cpu")
        exact = places.reshape(root.shape) + root.offset
        codes = (exact, exact if line is None else line)
        self.write(tensor, *codes, only_new=only_new)
        self._next += root.size
        self.roots.append(root)
        return root

    def agrees(self, tensor: Tensor) -> bool:
        """Whether the numbers are those that their codes were written for.

        Catches what changes memory behind torch's back, such as NumPy.
        """
        now, then = _values(tensor), self._block(tensor).values
        if now is None or then is None or then.dtype != now.dtype:
            return True
        then = then[self._places(tensor)]
        same = (now == then) | ((now != now) & (then != then))
        known = self.codes(tensor).reshape(-1) != UNKNOWN
        return bool(same[known].all())

    def _block(self, tensor: Tensor) -> _Block:
        key = storage_key(tensor)
        block = self._blocks.get(key)
        if block is None:
            storage = tensor.untyped_storage()
            size = storage.nbytes() // tensor.element_size()
            if size > 8 * MOST_ELEMENTS:
                raise Untraceable(f"its storage holds {size} numbers")
            codes = torch.full(
                (size,), UNKNOWN, dtype=torch.int64, device="cpu"
            )
            block = _Block(
                tensor.element_size(), (codes, codes.clone()), storage
            )
            self._blocks[key] = block
        if block.itemsize != tensor.element_size():
            raise Untraceable(
                "its memory is read as another type, as view(dtype) and "
                "view_as_complex do"
            )
        return block


def storage_key(tensor: Tensor) -> tuple:
    """Return what two tensors share exactly if they share memory."""
    if tensor.is_nested:
        raise Untraceable("it is nested: its rows have different lengths")
    if tensor.is_quantized:
        raise Untraceable("it is quantized: its memory holds other numbers")
    if tensor.layout != torch.strided:
        raise Untraceable(f"it has no strides: its layout is {tensor.layout}")
    try:
        storage = tensor.untyped_storage()
        address = storage.data_ptr()
    except Exception as error:
        raise Untraceable(
            "it has no memory of its own to look at, as inside vmap and other "
            "transforms"
        ) from error
    if address:
        return ("address", str(tensor.device), address)
    return ("storage", storage._cdata)


def find_root(roots: list[Root], code: int) -> Root:
    """Return the root that a code ≥ 0 belongs to."""
    starts = [root.offset for root in roots]
    place = int(np.searchsorted(starts, code, side="right")) - 1
    while roots[place].size == 0:  # an empty root owns no code
        place -= 1
    return roots[place]


def roots_in(roots: list[Root], codes: np.ndarray) -> list[Root]:
    """Return the roots that codes belong to, each once, oldest first."""
    starts = np.array([r.offset for r in roots if r.size], dtype=np.int64)
    full = [r for r in roots if r.size]
    owned = codes[codes >= 0]
    places = np.unique(np.searchsorted(starts, owned, side="right") - 1)
    return [full[int(place)] for place in places]


def _values(tensor: Tensor) -> Tensor | None:
    """Return the numbers as a flat copy, or None where there are none."""
    if tensor.device.type == "meta" or tensor.numel() > MOST_ELEMENTS:
        return None
    if tensor.is_conj() or tensor.is_neg():
        return None  # memory holds the numbers before the sign was turned
    return tensor.detach().reshape(-1).to("cpu", copy=True)
