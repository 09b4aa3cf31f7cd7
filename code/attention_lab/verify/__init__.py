"""The verifier: checks of a page, and batteries for other people's code.

Read the modules in this order:

1. `checks`: what a page calls, on one array at a time.
2. `report`, `known_mistakes` and `hints`: what a verification says. `museum`
   has the texts and the code of every known mistake, one room per kind; `cards`
   shows them on a page.
3. `isolation`: runs foreign code so that it can neither hang nor crash its
   caller.
4. `attention` (`verify_attention`), `module` (`verify_module`) and `kernel`
   (`verify_kernel`): one battery each.
5. `command_line`: ``attention-lab verify FILE.py:NAME``.
"""

import importlib
from typing import Any

from attention_lab.verify.attention.battery import verify_attention
from attention_lab.verify.checks import check_number, check_same_as, check_shape
from attention_lab.verify.report import Report

__all__ = [
    "KernelCase",
    "Launch",
    "Report",
    "check_number",
    "check_same_as",
    "check_shape",
    "verify_attention",
    "verify_kernel",
    "verify_module",
]

#: Names that are imported when they are first used: their modules load torch,
#: or ask whether there is a GPU.
_LATER = {
    "KernelCase": "kernel.case",
    "Launch": "kernel.case",
    "verify_kernel": "kernel.battery",
    "verify_module": "module.battery",
}


def __getattr__(name: str) -> Any:
    """Import a name of `_LATER` on first use."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"attention_lab.verify.{_LATER[name]}")
    return getattr(module, name)
