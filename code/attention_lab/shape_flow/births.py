"""Which memory was made while the traced function ran, by whomever.

The function mode sees the torch calls of Python code. What vmap, an autograd
Function or the backward pass make reaches it only when it is used, and must
then not be taken for a constant that was there before.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from attention_lab.shape_flow.labels import tensors_in
from attention_lab.shape_flow.memory import storage_key


class Births(TorchDispatchMode):
    """Keeps the storage of every tensor that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self._made: set[tuple] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        """Run the operation; a view of what was there before is no birth."""
        kwargs = kwargs or {}
        # Nothing in here is a call of the traced function.
        with torch._C.DisableTorchFunction():
            result = func(*args, **kwargs)
            before = {_key(tensor) for tensor in tensors_in(args, kwargs)}
            after = {_key(tensor) for tensor in tensors_in(result)}
            self._made |= after - before - {None}
        return result

    def saw(self, tensor: Tensor) -> bool:
        """Whether this tensor's memory was made while the mode was on."""
        return _key(tensor) in self._made


def _key(tensor: Tensor) -> tuple | None:
    try:
        return storage_key(tensor)
    except Exception:  # without a storage there is nothing to remember
        return None
