"""Take a function or a module out of a file."""

import difflib
import importlib
import importlib.util
import inspect
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from attention_lab.verify.isolation.words import (
    raised_in_words,
    ran_out_of_memory,
)

#: What people call a model's width, its number of heads, the width of a head.
WIDTH_NAMES = (
    "embed_dim",
    "dim",
    "d_model",
    "n_embd",
    "emb_dim",
    "embedding_dim",
    "embed_size",
    "emb_size",
    "hidden_size",
    "hidden_dim",
    "model_dim",
)
HEADS_NAMES = (
    "num_heads",
    "n_heads",
    "nhead",
    "n_head",
    "heads",
    "nheads",
    "num_head",
    "num_attention_heads",
    "h",
)
HEAD_WIDTH_NAMES = ("head_dim", "dim_head", "d_head", "head_size", "d_k", "d_v")
#: Set only where a class insists on them.
OTHER_WIDTH_NAMES = ("d_in", "d_out", "in_dim", "out_dim", "input_dim")
LENGTH_NAMES = (
    "context_length",
    "block_size",
    "max_seq_len",
    "max_len",
    "seq_len",
)
DROPOUT_NAMES = (
    "dropout",
    "drop_rate",
    "dropout_rate",
    "attn_pdrop",
    "resid_pdrop",
)
BIAS_NAMES = ("bias", "qkv_bias")
CONFIG_NAMES = ("config", "cfg", "conf", "args", "hparams", "params")
LENGTH = 128  # longer than any sequence of the battery


class CannotVerify(Exception):  # noqa: N818 - said to a learner
    """There is nothing to verify; says in a sentence why."""


def split_target(target: str) -> tuple[Path, str]:
    """Split ``FILE.py:NAME`` into the file's absolute path and the name.

    Raises
    ------
    CannotVerify
        If it is not of that form, or there is no such file.
    """
    file, colon, name = target.rpartition(":")
    names_one = all(part.isidentifier() for part in name.split("."))
    if not colon or not file or not names_one:
        raise CannotVerify(
            "say what to verify as FILE.py:NAME, such as attention.py:attend, "
            f"not {target!r}"
        )
    path = Path(file).expanduser().absolute()
    if path.suffix == ".ipynb":
        raise CannotVerify(
            f"{path.name} is a notebook: call verify_attention({name}) in it, "
            "or save the cell as a .py file"
        )
    if path.is_dir():
        raise CannotVerify(f"{file} is a folder: name a .py file in it")
    if path.suffix != ".py":
        raise CannotVerify(f"{file} must be a Python file, its name end in .py")
    if not path.exists():
        raise CannotVerify(f"there is no file {file}")
    return path, name


def load(path: Path, name: str) -> Any:
    """Import a file as Python would run it, and return what `name` is in it.

    Its folder can be imported from, as for a script; if the folder is a
    package, relative imports work too. ``Class.method`` is a name as well.

    Raises
    ------
    CannotVerify
        If the file cannot be imported, has no such name, or the name is
        nothing that can be called.
    MemoryError
        If there is no memory left while it is imported (PyTorch raises a
        RuntimeError then).
    """
    module = _import_file(path)
    value: Any = module
    for part in name.split("."):
        try:
            value = getattr(value, part)
        except AttributeError:
            raise CannotVerify(
                f"{path.name} has no {name}{_did_you_mean(module, name)}"
            ) from None
    if not callable(value):
        raise CannotVerify(
            f"{name} in {path.name} is of type {type(value).__name__}, which "
            "cannot be called"
        )
    return value


def build_module(value: Any, embed_dim: int, num_heads: int) -> Any:
    """Return an `nn.Module`: `value` itself, or what that class builds.

    A class, or a function that builds a module, is called with the width and
    the number of heads under the names that its arguments have; with one
    object that has all usual names, if its only argument is a config; else
    with the two, in this order.

    Raises
    ------
    CannotVerify
        If that does not work, or gives no `nn.Module`; says what was tried.
    """
    import torch  # only modules need it

    if isinstance(value, torch.nn.Module):
        return value
    name = getattr(value, "__name__", type(value).__name__)
    args, kwargs = _arguments(value, embed_dim, num_heads)
    shown = [repr(arg) for arg in args]
    shown += [f"{key}={arg!r}" for key, arg in kwargs.items()]
    tried = f"{name}({', '.join(shown)})"
    try:
        module = value(*args, **kwargs)
    except (Exception, SystemExit) as error:
        raise CannotVerify(
            f"{name} could not be built. Tried {tried}. "
            f"{raised_in_words(error)}. Build it in your file and name the "
            "object instead"
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise CannotVerify(
            f"{tried} is of type {type(module).__name__}, not an nn.Module"
        )
    return module


class Config(dict):
    """A config with every usual name, read as ``.n_embd`` or ``["n_embd"]``."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(
                f"a config for every class has no {name!r}"
            ) from None

    def __repr__(self) -> str:
        return "<a config with the usual names>"


def _import_file(path: Path) -> ModuleType:
    folder = path.parent
    sys.path.insert(0, str(folder))
    package = _package_of(folder)
    if package:
        root = folder.parents[package.count(".")]
        sys.path.insert(1, str(root))
        name = f"{package}.{path.stem}"
    else:
        # A name that no other module has, whatever the file is called.
        name = f"verified_file_{path.stem}"
    try:
        if package:
            return importlib.import_module(name)
        spec = importlib.util.spec_from_file_location(name, path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module  # dataclasses and pickle look there
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(name, None)
        if ran_out_of_memory(error):
            raise  # who set the limit knows the words for it
        raise CannotVerify(_why_not_imported(path, error)) from error
    return module


def _package_of(folder: Path) -> str:
    """Return the dotted name of a folder that is a package, or ""."""
    parts = []
    while (folder / "__init__.py").exists() and folder.name.isidentifier():
        parts.insert(0, folder.name)
        folder = folder.parent
    return ".".join(parts)


def _why_not_imported(path: Path, error: BaseException) -> str:
    what = f"{path.name} could not be imported"
    if isinstance(error, SyntaxError):
        file = Path(error.filename or path).name
        code = f": {error.text.strip()}" if error.text else ""
        return f"{what}: line {error.lineno} of {file}: {error.msg}{code}"
    if isinstance(error, SystemExit):
        return (
            f"{what}. {raised_in_words(error)}. Put what is to run only as a "
            'script under if __name__ == "__main__"'
        )
    return f"{what}. {raised_in_words(error)}"


def _did_you_mean(module: ModuleType, name: str) -> str:
    names = [
        key
        for key, value in vars(module).items()
        if callable(value)
        and not key.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    ]
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f"; it defines {', '.join(names)}" if names else ""


def _arguments(
    build: Any, embed_dim: int, num_heads: int
) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the named arguments to build a module with."""
    try:
        parameters = list(inspect.signature(build).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    required = {
        p.name
        for p in parameters
        if p.default is p.empty
        and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    main = {
        **dict.fromkeys(WIDTH_NAMES, embed_dim),
        **dict.fromkeys(HEADS_NAMES, num_heads),
    }
    others = {
        **dict.fromkeys(OTHER_WIDTH_NAMES, embed_dim),
        **dict.fromkeys(HEAD_WIDTH_NAMES, embed_dim // num_heads),
        **dict.fromkeys(LENGTH_NAMES, LENGTH),
        **dict.fromkeys(DROPOUT_NAMES, 0.0),
        **dict.fromkeys(BIAS_NAMES, True),
    }
    if len(required) == 1 and required <= set(CONFIG_NAMES):
        return [Config({**others, **main})], {}
    named = {p.name: main[p.name] for p in parameters if p.name in main}
    named |= {name: others[name] for name in required if name in others}
    if named and required <= set(named):
        order = [p.name for p in parameters if p.name in named]
        return [], {name: named[name] for name in order}
    return [embed_dim, num_heads], {}
