"""The tracer's book of tensors: who is who, with which letters and codes."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attention_lab.shape_flow.carried import computed
from attention_lab.shape_flow.labels import Rule
from attention_lab.shape_flow.letters import letters_of
from attention_lab.shape_flow.memory import (
    MOST_ELEMENTS,
    Memory,
    Untraceable,
    storage_key,
)
from attention_lab.shape_flow.steps import SAME, Value


class Book:
    """Keeps every tensor that was seen alive, and what is known about it."""

    def __init__(
        self,
        sizes: dict[str, int],
        names: dict[int, str],
        was_made: Callable[[Tensor], bool],
    ) -> None:
        self.memory = Memory()
        self.left = ""  # where numbers left torch, so that they may come back
        self.arrays_left = False  # then any new face may hold them
        self._was_made = was_made
        self.sizes = sizes
        self.notes: list[str] = []
        self._names = names  # of parameters and buffers, by id
        self._pages: dict[int, tuple[Tensor, Value, tuple]] = {}
        self._lost: dict[int, tuple[Tensor, str]] = {}

    # -- reading ------------------------------------------------------------

    def knows(self, tensor: Tensor) -> bool:
        """Whether the tensor's memory is shadowed."""
        return self.memory.knows(tensor)

    def shares(self, one: Tensor, other: Tensor) -> bool:
        """Whether two tensors lie in one storage."""
        return storage_key(one) == storage_key(other)

    def owner(self, tensor: Tensor) -> str:
        """Return the name of a tensor that lies in the same storage."""
        for other, value, _ in self._pages.values():
            if other is not tensor and self._same_storage(other, tensor):
                return value.name
        return ""

    def _same_storage(self, one: Tensor, other: Tensor) -> bool:
        try:
            return self.shares(one, other)
        except Exception:  # a tensor without a storage shares none
            return False

    def lost(self, tensor: Tensor) -> str:
        """Why this tensor cannot be followed, or ""."""
        return self._lost.get(id(tensor), (None, ""))[1]

    def look(self, tensor: Tensor) -> Value:
        """Return what is known about a tensor; a new face is a constant."""
        page = self._pages.get(id(tensor))
        if page is not None and page[2] == self._state(tensor):
            return page[1]
        if self.lost(tensor):
            return self._unfollowed(tensor, "a tensor", None, self.lost(tensor))
        if page is not None:
            return self.enter(
                tensor,
                name=page[1].name,
                step=page[1].step,
                memory=page[1].memory,
                of=page[1].of,
            )
        name = self._names.get(id(tensor), "a constant")
        try:
            if not self.knows(tensor):
                unseen = self._unseen(tensor)
                if unseen:
                    return self._add_unseen(tensor, unseen)
                self._add_constant(tensor, name)
                return self.enter(tensor, name=name, memory="constant")
            owner = self.owner(tensor)
            return self.enter(tensor, name=owner, memory="view", of=owner)
        except Untraceable as error:
            return self.lose(tensor, name, None, str(error))
        except Exception as error:
            return self.lose(tensor, name, None, _sentence(error))

    def snapshot(self, tensor: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return copies of the codes, before a call may overwrite them."""
        if self.lost(tensor):
            return None
        try:
            if tensor.numel() > MOST_ELEMENTS:
                return None
            if not self.memory.agrees(tensor):
                self._mistrust(tensor)
            exact, line = self.memory.both(tensor)
            return exact.clone(), line.clone()
        except Exception:  # said by look()
            return None

    def _mistrust(self, tensor: Tensor) -> None:
        """Start anew from memory that was changed behind torch's back."""
        reason = (
            "its memory was changed by something that is not a torch call, "
            "such as NumPy"
        )
        value = self._pages[id(tensor)][1]
        note = f"{value.name}: {reason}"
        if note not in self.notes:
            self.notes.append(note)
        self.memory.add_root(
            tensor,
            name=value.name,
            kind="opaque",
            step=value.step,
            letters=value.letters,
            why=value.why,
            reason=reason,
        )

    # -- writing ------------------------------------------------------------

    def add_input(
        self, tensor: Tensor, name: str, letters: Sequence[str]
    ) -> Value:
        """Enter an argument of the traced function."""
        if SAME in name:
            *some, last = name.split(SAME)
            self.notes.append(f"{', '.join(some)} and {last} are one tensor")
        why = {
            axis: "no letters were given for it"
            for axis, letter in enumerate(letters)
            if letter == "?"
        }
        try:
            owner = self.owner(tensor) if self.knows(tensor) else ""
            if owner:
                self.notes.append(
                    f"{name} shares memory with {owner}: what both hold is "
                    f"followed as {owner}"
                )
            self.memory.add_root(
                tensor,
                only_new=bool(owner),
                name=name,
                kind="input",
                step=None,
                letters=tuple(letters),
                why=why,
            )
            if self.memory.repeats(tensor):
                self.notes.append(
                    f"{name} has places that share one number in memory: they "
                    "are not told apart"
                )
            return self.enter(
                tensor, name=name, memory="input", letters=(letters, why)
            )
        except Untraceable as error:
            return self.lose(tensor, name, None, str(error))
        except Exception as error:
            return self.lose(tensor, name, None, _sentence(error))

    def _unseen(self, tensor: Tensor) -> str:
        """Say why a new face may be no constant, or ""."""
        if self._was_made(tensor):
            return (
                "it was made by code that is not seen, such as vmap, the "
                "backward pass or an autograd Function"
            )
        if self.arrays_left and id(tensor) not in self._names:
            return f"it may hold numbers that left torch {self.left}"
        return ""

    def _add_unseen(self, tensor: Tensor, reason: str) -> Value:
        name = "an unseen tensor"
        note = f"{name} of shape {_shape(tensor)}: {reason}"
        if note not in self.notes:
            self.notes.append(note)
        self.memory.add_root(
            tensor,
            name=name,
            kind="opaque",
            step=None,
            letters=("?",) * tensor.ndim,
            why=dict.fromkeys(range(tensor.ndim), reason),
            reason=reason,
        )
        return self.enter(tensor, name=name, memory="new")

    def _add_constant(self, tensor: Tensor, name: str) -> None:
        self.memory.add_root(
            tensor,
            name=name,
            kind="constant",
            step=None,
            letters=tuple("1" if s == 1 else "?" for s in tensor.shape),
            why={
                axis: "a constant has no letters"
                for axis, size in enumerate(tensor.shape)
                if size != 1
            },
        )

    def add_results(
        self,
        label: str,
        number: int,
        rule: Rule | None,
        fresh: list[Tensor],
        targets: list[Tensor],
        snapshots: dict[int, Any],
        values: dict[int, Value],
        unseen: str = "",
    ) -> list[str]:
        """Make the results of a computing step roots of their own.

        `unseen` is why their elements cannot be followed, known or not.
        """
        notes = []
        for place, tensor in enumerate(targets):
            if not any(tensor is t for t in fresh):
                continue
            if rule is None or unseen:
                name = label.split(" (")[0]
                why = unseen or f"{name} is not a step that we know"
                facts = {
                    "kind": "opaque",
                    "letters": ("?",) * tensor.ndim,
                    "why": dict.fromkeys(range(tensor.ndim), why),
                    "reason": why,
                }
                line = None
                if why not in notes:
                    notes.append(f"cannot follow: {why}")
            else:
                facts, line = computed(
                    rule, place, tensor.shape, snapshots, values,
                    self.memory.roots, self.sizes,
                )  # fmt: skip
            self.memory.add_root(
                tensor, line=line, name=label, step=number, **facts
            )
        return list(dict.fromkeys(notes))

    def enter(
        self,
        tensor: Tensor,
        *,
        name: str,
        step: int | None = None,
        memory: str,
        of: str = "",
        letters: tuple | None = None,
    ) -> Value:
        """Write down what a tensor is now.

        `letters` are those it had before it was written into: its axes stay.
        """
        if _shape(tensor) and tensor.numel() > MOST_ELEMENTS:
            why = f"it has {tensor.numel()} elements, more than we follow"
            return self.lose(tensor, name, step, why, memory=memory, of=of)
        if self.lost(tensor):
            return self._unfollowed(tensor, name, step, self.lost(tensor))
        exact, line = (c.clone().numpy() for c in self.memory.both(tensor))
        read, why = letters or self._read_letters(exact)
        value = Value(
            name,
            step,
            tuple(tensor.shape),
            tuple(tensor.stride()),
            tensor.storage_offset(),
            str(tensor.dtype).removeprefix("torch."),
            read,
            why,
            memory,
            of,
            exact,
            line,
        )
        self._pages[id(tensor)] = (tensor, value, self._state(tensor))
        return value

    def _read_letters(self, codes: np.ndarray) -> tuple:
        for root in reversed(self.memory.roots):
            # The very tensor that a step computed: its letters are known,
            # also those of axes of size 1.
            if (
                root.shape == codes.shape
                and root.size
                and (codes.flat[0] == root.offset)
            ):
                whole = np.arange(root.size).reshape(root.shape) + root.offset
                if (codes == whole).all():
                    return root.letters, root.why
        return letters_of(codes, self.memory.roots, self.sizes)

    def lose(
        self,
        tensor: Tensor,
        name: str,
        step: int | None,
        why: str,
        memory: str = "new",
        of: str = "",
    ) -> Value:
        """Write down that a tensor cannot be followed."""
        self._lost[id(tensor)] = (tensor, why)
        return self._unfollowed(tensor, name, step, why, memory, of)

    def _unfollowed(
        self,
        tensor: Tensor,
        name: str,
        step: int | None,
        why: str,
        memory: str = "new",
        of: str = "",
    ) -> Value:
        shape = _shape(tensor)
        try:
            strided = tensor.layout == torch.strided
            strides = tuple(tensor.stride()) if strided else ()
        except RuntimeError:
            strides = ()
        value = Value(
            name,
            step,
            shape,
            strides,
            0,
            str(tensor.dtype).removeprefix("torch."),
            ("?",) * len(shape),
            dict.fromkeys(range(len(shape)), why),
            memory,
            of,
            reason=why,
        )
        self._pages[id(tensor)] = (tensor, value, self._state(tensor))
        return value

    def replace(self, old: Value, new: Value) -> None:
        """Put a better description of the same tensor into the book."""
        for key, (tensor, value, state) in self._pages.items():
            if value is old:
                self._pages[key] = (tensor, new, state)

    def has_seen(self, tensor: Tensor) -> bool:
        """Whether this very tensor went in or came out of a step."""
        return id(tensor) in self._pages

    def _state(self, tensor: Tensor) -> tuple:
        """Return what has to be the same for an entry to be still true."""
        try:
            strides = tuple(tensor.stride())
            writes = self.memory.writes(tensor) if self.knows(tensor) else 0
        except Exception:
            strides, writes = (), 0
        return _shape(tensor), strides, writes, *_address(tensor)


def _address(tensor: Tensor) -> tuple:
    """Return which memory a tensor lies in, and where: `data` can be set."""
    try:
        return storage_key(tensor), tensor.storage_offset()
    except Exception:  # a tensor without a storage has no other one either
        return ()


def _shape(tensor: Tensor) -> tuple[int, ...]:
    try:
        return tuple(tensor.shape)
    except RuntimeError:  # a nested tensor has none
        return ()


def _sentence(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]
