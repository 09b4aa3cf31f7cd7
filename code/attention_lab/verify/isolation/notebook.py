"""Cut a copy of a notebook's process off from the notebook."""

import sys
from typing import Any


def leave_the_notebook() -> None:
    """Let nothing that is displayed, printed or asked for reach the notebook.

    The copy has the notebook's sockets, and messages of two processes in one
    socket break it. There is nothing to do outside a notebook.
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    kernel = getattr(shell, "kernel", None)
    if kernel is None:
        return
    speakers = [
        kernel,
        getattr(shell, "display_pub", None),
        getattr(shell, "displayhook", None),
    ]
    for speaker in speakers:
        session = getattr(speaker, "session", None)
        if session is not None:
            session.send = _say_nothing
    kernel._allow_stdin = False  # so that input() raises instead of waiting


def _say_nothing(*args: Any, **kwargs: Any) -> None:
    return None
