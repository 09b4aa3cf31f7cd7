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
    values: Tensor | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape, dtype=np.int64))


class Untraceable(Exception):  # noqa: N818 - never leaves the package
    """Says why a tensor has no memory that can be shadowed."""


@dataclass
class _Block:
    """The shadow of one storage; `keep` stops its address being reused."""

    itemsize: int
    codes: tuple[Tensor, Tensor]  # as_strided counts from a storage's start
    keep: Any
    writes: int = 0


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

    def write(self, tensor: Tensor, exact: Tensor, line: Tensor) -> None:
        """Store codes beside a tensor's numbers."""
        block = self._block(tensor)
        places = torch.as_strided(
            torch.arange(len(block.codes[0]), device="cpu"),
            tensor.size(),
            tensor.stride(),
            tensor.storage_offset(),
        ).reshape(-1)
        block.writes += 1
        block.codes[_EXACT][places] = exact.reshape(-1)
        block.codes[_LINE][places] = line.reshape(-1)

    def touch(self, tensor: Tensor) -> None:
        """Say that codes were written through a view of the shadow."""
        self._block(tensor).writes += 1

    def writes(self, tensor: Tensor) -> int:
        """How often the codes of this storage were written."""
        return self._block(tensor).writes

    def add_root(
        self, tensor: Tensor, line: Tensor | None = None, **facts: Any
    ) -> Root:
        """Make a tensor a root: from here on its elements are themselves."""
        if tensor.numel() > MOST_ELEMENTS:
            raise Untraceable(
                f"it has {tensor.numel()} elements; at most {MOST_ELEMENTS} "
                "are followed"
            )
        root = Root(shape=tuple(tensor.shape), offset=self._next, **facts)
        root.values = _values(tensor)
        places = torch.arange(root.size, device="cpu")
        exact = places.reshape(root.shape) + root.offset
        self.write(tensor, exact, exact if line is None else line)
        self._next += root.size
        self.roots.append(root)
        return root

    def agrees(self, tensor: Tensor) -> bool:
        """Whether the numbers are those that their codes promise.

        Catches what changes memory behind torch's back, such as NumPy.
        """
        now = _values(tensor)
        if now is None:
            return True
        codes = self.codes(tensor).reshape(-1)
        for root in roots_in(self.roots, codes.numpy()):
            mine = (codes >= root.offset) & (codes < root.offset + root.size)
            if root.values is None:
                continue
            then = root.values[codes[mine] - root.offset].to(now.dtype)
            same = (now[mine] == then) | (
                (now[mine] != now[mine]) & (then != then)
            )
            if not bool(same.all()):
                return False
        return True

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
    if tensor.layout != torch.strided or tensor.is_quantized:
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
    return tensor.detach().reshape(-1).to("cpu", copy=True)
