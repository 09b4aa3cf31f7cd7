"""Did an answer compute attention itself, or hand it on to PyTorch?"""

from collections.abc import Callable
from typing import Any

from torch.nn.functional import (
    multi_head_attention_forward,
    scaled_dot_product_attention,
)
from torch.overrides import TorchFunctionMode

from attention_lab.verify.report import Check

LIBRARY = (scaled_dot_product_attention, multi_head_attention_forward)


class _Watch(TorchFunctionMode):
    """Count the calls of PyTorch's own attention."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        self.calls += function in LIBRARY
        return function(*args, **(kwargs or {}))


def own_work(name: str, run: Callable[[], Any]) -> Check:
    """Check that a run does not call PyTorch's attention.

    Examples
    --------
    >>> import torch
    >>> q = torch.ones(1, 1, 1, 1)
    >>> own_work("own", lambda: scaled_dot_product_attention(q, q, q)).what
    "It calls PyTorch's attention once; the task is to write it."
    >>> own_work("own", lambda: q @ q.mT).passed
    True
    """
    with _Watch() as watch:
        run()
    times = "once" if watch.calls == 1 else f"{watch.calls} times"
    return Check(
        name,
        watch.calls == 0,
        f"It calls PyTorch's attention {times}; the task is to write it."
        if watch.calls
        else "",
    )
