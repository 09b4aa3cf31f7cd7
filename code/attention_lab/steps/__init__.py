"""The steps of the book, one module per chapter.

Every module has the same parts in the same order: the question, the readable
PyTorch version, the CUDA kernels, the functions that launch them.
`flash_attention` is where they end: an operation of PyTorch.
"""

import importlib
from typing import Any

__all__ = ["flash_attention"]

#: Names that are imported when they are first used: their modules load torch,
#: and ask whether there is a GPU.
_LATER = {"flash_attention": "flash_autograd"}


def __getattr__(name: str) -> Any:
    """Import a name of `_LATER` on first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"attention_lab.steps.{_LATER[name]}")
    return getattr(module, name)
