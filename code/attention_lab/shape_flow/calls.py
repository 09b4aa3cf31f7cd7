"""What a recorded call is named, how it reads, and where it stands."""

import linecache
import sys
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import torch
from torch import Tensor


def words(text: str) -> frozenset[str]:
    """Return the words of a text.

    Examples
    --------
    >>> sorted(words("view permute"))
    ['permute', 'view']
    """
    return frozenset(text.split())


#: Steps that only move elements: run again on the codes of their operands.
MOVES = words(
    """
    view view_as reshape reshape_as permute transpose swapaxes swapdims movedim
    moveaxis t adjoint T mT H squeeze unsqueeze flatten ravel unflatten expand
    expand_as broadcast_to broadcast_tensors repeat repeat_interleave tile
    contiguous clone detach chunk tensor_split split split_with_sizes unbind
    narrow select getitem index_select gather take take_along_dim masked_select
    cat concat concatenate stack column_stack hstack vstack dstack roll flip
    fliplr flipud rot90 unfold as_strided diagonal meshgrid atleast_1d
    atleast_2d atleast_3d setitem copy_ index_copy_ data alias hsplit vsplit
    squeeze_ unsqueeze_ transpose_ swapaxes_ t_ detach_ identity pad
    select_scatter slice_scatter diagonal_scatter
    index_copy index_put index_put_ scatter scatter_ masked_scatter
    masked_scatter_ index_fill index_fill_
    """
)
#: Steps that keep every element in its place and change its type or device.
CASTS = words(
    """
    to float double half bfloat16 int long short bool type type_as cpu cuda
    requires_grad_ is_shared pin_memory float_ real
    """
)
#: Steps that leave torch: what is done there is not seen.
EXITS = frozenset({"numpy", "__array__", "tolist", "item", "array"})
#: Python's own names for the same: float(x), int(x), x as an index.
NUMBERS = words("float int index complex")
#: Steps that may bring such numbers back.
FROM_NUMBERS = words(
    """
    from_numpy tensor as_tensor asarray new_tensor scalar_tensor frombuffer
    full full_like new_full fill
    """
)

_SYMBOLS = {"truediv": "div", "rtruediv": "div", "itruediv": "div_"}
_ROOT = str(Path(__file__).parent)
_TORCH = str(Path(torch.__file__).parent)
_PLUMBING = (
    "jaxtyping",
    "beartype",
    "einops",
    "functools.py",
    "contextlib.py",
    "typing.py",
)


def name_of(function: Any) -> str:
    """Return the Python-level name: "permute", "linear", "getitem".

    Examples
    --------
    >>> name_of(torch.Tensor.__rsub__), name_of(torch.Tensor.T.__get__)
    ('rsub', 'T')
    """
    name = getattr(function, "__name__", type(function).__name__)
    if name in ("__get__", "__set__"):
        owner = getattr(function, "__self__", None)
        inner = getattr(owner, "__name__", "property")
        return inner if name == "__get__" else f"set {inner}"
    if name.startswith("__") and name.endswith("__") and name not in EXITS:
        name = name.strip("_")
        if name in _SYMBOLS:
            return _SYMBOLS[name]
        if name in ("getitem", "setitem"):
            return name
        in_place = name[:1] == "i" and hasattr(Tensor, f"__{name[1:]}__")
        if in_place and name != "invert":
            return name[1:] + "_"
        if name[:1] == "r" and name not in ("round", "rsub", "rmatmul"):
            return name[1:] if hasattr(Tensor, f"__{name[1:]}__") else name
        return name
    if name.startswith("_") and hasattr(torch, name.strip("_")):
        return name.strip("_")
    return name


def call_text(name: str, args: tuple, kwargs: dict) -> str:
    """Return how the call reads, without its tensors.

    Examples
    --------
    >>> x = torch.zeros(2, 3)
    >>> call_text("permute", (x, (1, 0)), {})
    'permute(1, 0)'
    >>> call_text("getitem", (x, (slice(None), slice(0, 2))), {})
    '[:, 0:2]'
    """
    if name in ("getitem", "setitem"):
        keys = args[1] if isinstance(args[1], tuple) else (args[1],)
        inside = ", ".join(_key(key) for key in keys)
        return f"[{inside}]" + (" = …" if name == "setitem" else "")
    rest = args[1:] if args and _has_tensor(args[0]) else args
    one = len(rest) == 1 and isinstance(rest[0], (tuple, list))
    if one and not kwargs and not _has_tensor(rest[0]):
        rest = tuple(rest[0])
    words = [_plain(a) for a in rest if not _has_tensor(a) and a is not None]
    words += [
        f"{key}={_plain(value)}"
        for key, value in kwargs.items()
        if not _has_tensor(value)
        and value is not None
        and value is not False
        and key != "_stacklevel"
    ]
    return f"{name}({', '.join(words)})" if words else name


def _has_tensor(thing: Any) -> bool:
    if isinstance(thing, (list, tuple)):
        return any(_has_tensor(part) for part in thing)
    return isinstance(thing, Tensor)


def _plain(thing: Any) -> str:
    if isinstance(thing, float):
        return f"{thing:.4g}"
    if isinstance(thing, (str, int, tuple, list, type(None))):
        return repr(thing)
    return str(thing).removeprefix("torch.")[:40]


def _key(key: Any) -> str:
    if isinstance(key, slice):
        ends = ["" if e is None else str(e) for e in (key.start, key.stop)]
        step = "" if key.step is None else f":{key.step}"
        return ":".join(ends) + step
    if key is Ellipsis:
        return "…"
    return "tensor" if isinstance(key, Tensor) else str(key)


@dataclass(frozen=True)
class Line:
    """A line of source code."""

    file: str
    number: int
    text: str

    def __str__(self) -> str:
        return f"{Path(self.file).name}:{self.number}"


def source_line(stop: FrameType | None) -> Line | None:
    """Return the line that made the running call.

    The innermost line of code that is neither torch's nor plumbing; torch's
    own innermost line where there is none, as inside nn.MultiheadAttention.

    Parameters
    ----------
    stop : the frame that called the traced function; not looked beyond.
    """
    fallback = None
    frame = sys._getframe(1)
    while frame is not None and frame is not stop:
        code = frame.f_code
        if not _is_ours(code.co_filename):
            if not _is_library(code.co_filename):
                return _line(frame)
            fallback = fallback or (
                frame if _is_torch_line(code.co_filename) else None
            )
        frame = frame.f_back
    return _line(fallback) if fallback else None


def _is_torch_line(file: str) -> bool:
    return file.startswith(_TORCH) and not file.endswith("overrides.py")


def _is_ours(file: str) -> bool:
    return str(Path(file).parent) == _ROOT


def _is_library(file: str) -> bool:
    parts = Path(file).parts
    return (
        file.startswith((_TORCH, "<frozen", "<@beartype"))
        or any(word in parts for word in _PLUMBING)
        or (parts[-2:-1] == ("attention_lab",) and parts[-1] == "axes.py")
    )


def _line(frame: FrameType) -> Line:
    file, number = frame.f_code.co_filename, frame.f_lineno
    return Line(file, number, linecache.getline(file, number).strip())


def einops_call(stop: FrameType | None) -> tuple[FrameType, str, str] | None:
    """Return (frame, name, text) of the einops call that is running, if any."""
    frame, found = sys._getframe(1), None
    while frame is not None and frame is not stop:
        if _is_einops(frame.f_code):
            found = frame  # the outermost: rearrange is built on reduce
        elif found is not None and "einops" not in frame.f_code.co_filename:
            break
        frame = frame.f_back
    if found is None:
        return None
    return (found, *_einops_words(found))


_EINOPS = frozenset({"rearrange", "reduce", "repeat", "einsum", "forward"})


def _is_einops(code: CodeType) -> bool:
    folder, file = ("", *Path(code.co_filename).parts)[-2:]
    here = (folder, file) == ("einops", "einops.py") or folder == "layers"
    return here and "einops" in code.co_filename and code.co_name in _EINOPS


def _einops_words(frame: FrameType) -> tuple[str, str]:
    """Read pattern and sizes from the call's own variables."""
    code, local = frame.f_code, frame.f_locals
    name, pattern = code.co_name, local.get("pattern")
    sizes = local.get("axes_lengths") or {}
    if name == "forward":
        layer = local.get("self")
        name = type(layer).__name__.lower()
        pattern = getattr(layer, "pattern", pattern)
        sizes = getattr(layer, "axes_lengths", {}) or {}
    if name == "einsum":
        given = local.get("tensors_and_pattern", ())
        pattern = given[-1] if given else pattern
    words = [repr(pattern)] + [f"{k}={v}" for k, v in dict(sizes).items()]
    return name, f"{name}({', '.join(words)})"


def opened(function: Any) -> FunctionType | None:
    """Return a copy of torch's own Python function that can be looked into.

    Such functions hand themselves over as one step; the copy does not, so the
    steps inside are seen. None for anything else.
    """
    if not isinstance(function, FunctionType):
        return None
    if not function.__module__.startswith("torch.") or not any(
        name.startswith("has_torch_function")
        for name in function.__code__.co_names
    ):
        return None
    known = {
        name: _never
        for name in function.__globals__
        if name.startswith("has_torch_function")
    }
    if not known:
        return None
    copy = FunctionType(
        function.__code__,
        {**function.__globals__, **known},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def _never(*_: Any) -> bool:
    return False
