"""The process that imports a file and verifies what is in it.

The command starts it, so that nothing that an import does can reach the
command: ``python -m attention_lab.verify.command_line.worker REQUEST``. It
answers in a file, a line of JSON per message, since what it prints may be the
file's own.
"""

import contextlib
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attention_lab.verify.command_line.load import (
    CannotVerify,
    build_module,
    load,
)
from attention_lab.verify.isolation.forked import limit_memory
from attention_lab.verify.isolation.processes import adopt_orphans
from attention_lab.verify.isolation.words import (
    out_of_memory_in_words,
    raised_in_words,
    ran_out_of_memory,
)
from attention_lab.verify.report import Report


@dataclass(frozen=True)
class Request:
    """What to verify, and where to answer."""

    path: str
    name: str
    answers: str
    seconds: float
    memory_bytes: int
    is_module: bool = False
    embed_dim: int = 0
    num_heads: int = 0
    supports: list[str] | None = None

    def to_json(self) -> str:
        """Return the request as an argument for the worker."""
        return json.dumps(asdict(self))


def main(argument: str) -> None:
    """Load and verify; answer "imports", "loaded", "report", or "cannot"."""
    request = Request(**json.loads(argument))
    # The file sees the arguments that it would see as a script.
    sys.argv = [request.path]
    with contextlib.suppress(ImportError):
        # The batteries use it where it is there. It counts as neither the
        # file's time nor its memory.
        import torch  # noqa: F401
    doing = "imported"
    try:
        adopt_orphans()
        limit_memory(request.memory_bytes)
        _answer(request, {"imports": True})
        value = _load(request)
        _answer(request, {"loaded": True})
        doing = "verified"
        _answer(request, {"report": _verify(request, value).to_json()})
    except CannotVerify as error:
        _answer(request, {"cannot": str(error)})
    except BaseException as error:
        what = raised_in_words(error)
        if ran_out_of_memory(error):
            what = out_of_memory_in_words(request.memory_bytes)
        file = Path(request.path).name
        _answer(request, {"cannot": f"{file} could not be {doing}. {what}"})


def _load(request: Request) -> Any:
    value = load(Path(request.path), request.name)
    if request.is_module:
        return build_module(value, request.embed_dim, request.num_heads)
    torch = sys.modules.get("torch")
    is_a = None
    if isinstance(value, type):
        is_a = "a class"
    elif torch is not None and isinstance(value, torch.nn.Module):
        is_a = "an nn.Module"
    if is_a:
        raise CannotVerify(
            f"{request.name} is {is_a}: add --module --embed-dim N "
            "--num-heads N, or name a function"
        )
    return value


def _verify(request: Request, value: Any) -> Report:
    # Imported late, after the file: a battery that is not needed costs time.
    if request.is_module:
        from attention_lab.verify.module.battery import verify_module

        return verify_module(
            value,
            request.embed_dim,
            request.num_heads,
            seconds=request.seconds,
        )
    from attention_lab.verify.attention.battery import verify_attention

    return verify_attention(
        value, supports=request.supports, seconds=request.seconds
    )


def _answer(request: Request, message: dict[str, Any]) -> None:
    with Path(request.answers).open("a", encoding="utf-8") as answers:
        answers.write(json.dumps(message) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
