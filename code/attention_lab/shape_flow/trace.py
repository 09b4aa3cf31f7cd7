"""`trace_shapes`: run a torch callable once, and write down every step."""

import inspect
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import keystr, tree_flatten, tree_flatten_with_path

from attention_lab.axes import AXES, ShapeMismatch, axis_letters
from attention_lab.shape_flow.births import Births
from attention_lab.shape_flow.book import Book
from attention_lab.shape_flow.flow import ShapeFlow
from attention_lab.shape_flow.labels import tensors_in
from attention_lab.shape_flow.recorder import Recorder
from attention_lab.shape_flow.steps import SAME

_NAMES_OF_LETTERS = ", ".join(AXES)


def trace_shapes(
    function: Callable,
    /,
    *args: Any,
    letters: dict[str | int, str | int] | None = None,
    **kwargs: Any,
) -> ShapeFlow:
    """Run `function(*args, **kwargs)` once and record each of its steps.

    The function is not edited and not run twice; it gets its own arguments
    and its own results. What the recorder cannot follow is said in the flow.

    Parameters
    ----------
    function : any torch callable: a function, a module, a method, a lambda.
    *args, **kwargs : its arguments.
    letters : axis letters of arguments, by name or by position, such as
        `{"x": "BLE"}` or `{0: "BLE"}`, and sizes, such as `{"H": 3}`. An
        argument whose name ends in its axes, as `x_BLE`, needs none.

    Returns
    -------
    The flow of the path that was taken for these inputs.

    Raises
    ------
    ShapeMismatch
        If letters do not fit a tensor, or one letter has two sizes.
    ValueError
        If `function` cannot be called, or `letters` names nothing known.
    Exception
        Whatever the function itself raises, with a note of the step where.

    Examples
    --------
    >>> def split(x):
    ...     return x.view(1, 2, 2, 3).transpose(1, 2)
    >>> x = torch.arange(12.0).reshape(1, 2, 6)
    >>> flow = trace_shapes(split, x, letters={"x": "BLE", "H": 2})
    >>> [step.outputs[0].axes for step in flow.steps]
    ['B L H D', 'B H L D']
    >>> flow.contents(2, H=1, L=0)
    'head 1 of token 0 holds columns 3…5 of token 0'
    """
    if not callable(function):
        raise ValueError(f"function must be callable, not {function!r}")
    title = _title(function)
    problem = _cannot_follow(function, args, kwargs)
    if problem:
        return ShapeFlow(title, problem=problem)
    named = _named_arguments(function, args, kwargs)
    given, sizes = _read_letters(letters or {}, named)
    flow = ShapeFlow(title, sizes=sizes)
    births = Births()
    book = Book(sizes, dict(_parameter_names(function)), births.saw)
    book.notes += _not_followed(named)
    for names, tensor in _tensors_by_name(named):
        told = _told(names, given)
        letters_of = _letters_of(names[0], tensor, told)
        value = book.add_input(tensor, SAME.join(names), letters_of)
        flow.inputs = (*flow.inputs, value)
    _check_sizes(flow, sizes)
    recorder = Recorder(book, sys._getframe())
    with births:
        result = _run(function, args, kwargs, recorder)
    flow.steps = tuple(recorder.steps)
    _take_results(flow, book, result)
    flow.roots = tuple(book.memory.roots)
    flow.notes = (*recorder.notes, *dict.fromkeys(book.notes))
    return flow


def _run(
    function: Callable, args: tuple, kwargs: dict, recorder: Recorder
) -> Any:
    """Call the function; say at which step it failed, if it fails."""
    try:
        with recorder:
            return function(*args, **kwargs)
    except Exception as error:
        steps = recorder.steps
        last = f"step {len(steps)}, {steps[-1].call}" if steps else "the call"
        error.add_note(f"shape flow: it was raised after {last}")
        raise
    finally:
        recorder.finish()


def _take_results(flow: ShapeFlow, book: Book, result: Any) -> None:
    """Find the returned tensors among those that were seen."""
    leaves, _ = tree_flatten(result)
    outputs = []
    for leaf in leaves:
        if not isinstance(leaf, Tensor):
            continue
        was_seen = book.has_seen(leaf)
        value = book.look(leaf)
        if not was_seen and value.reason:
            book.notes.append(
                "a returned tensor was made outside of the torch calls "
                "that are seen: cannot follow it"
            )
        outputs.append(value)
    flow.outputs = tuple(outputs)
    if not outputs:
        book.notes.append(
            f"the function returned no tensor but {type(result).__name__}"
        )


def _title(function: Any) -> str:
    name = getattr(function, "__qualname__", None)
    if not isinstance(function, (types.FunctionType, types.MethodType)):
        name = getattr(function, "__name__", None)
    return (name or type(function).__name__).rpartition("<locals>.")[2]


def _named_arguments(
    function: Callable, args: tuple, kwargs: dict
) -> list[tuple[str, Any]]:
    """Return (name, value) of every argument."""
    target = function.forward if isinstance(function, nn.Module) else function
    try:
        bound = inspect.signature(target).bind(*args, **kwargs)
    except (TypeError, ValueError):  # built in, or called wrongly: it will say
        by_place = [(f"argument {i}", a) for i, a in enumerate(args)]
        return by_place + list(kwargs.items())
    named = []
    parameters = bound.signature.parameters
    for name, value in bound.arguments.items():
        kind = parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            named += [(f"{name}[{i}]", v) for i, v in enumerate(value)]
        elif kind is inspect.Parameter.VAR_KEYWORD:
            named += list(value.items())
        else:
            named.append((name, value))
    return named


def _tensors_by_name(
    named: list[tuple[str, Any]],
) -> list[tuple[list[str], Tensor]]:
    """Return every tensor once, with all its names.

    One in a list or a dict is named by its place: "x[1]", "x['key']".
    """
    found: dict[int, tuple[list[str], Tensor]] = {}
    for name, value in named:
        for path, leaf in tree_flatten_with_path(value)[0]:
            if isinstance(leaf, Tensor):
                names, _ = found.setdefault(id(leaf), ([], leaf))
                names.append(name + keystr(path))
    return list(found.values())


def _not_followed(named: list[tuple[str, Any]]) -> list[str]:
    """Say which arguments hold numbers that count as constants."""
    notes = []
    for name, value in named:
        for path, leaf in tree_flatten_with_path(value)[0]:
            what = type(leaf).__name__
            place = name + keystr(path)
            if isinstance(leaf, np.ndarray):
                notes.append(f"{place} is an {what}: it counts as a constant")
            elif not isinstance(leaf, (Tensor, nn.Module)) and tensors_in(
                list(getattr(leaf, "__dict__", {}).values())
            ):
                notes.append(
                    f"{place} is a {what}, which is not looked into: its "
                    "tensors count as constants"
                )
    return notes


def _told(names: list[str], given: dict[str, str]) -> str:
    """Return the letters of a tensor, whichever of its names has them.

    L and S are no contradiction: queries and keys of self-attention are the
    same tokens.
    """
    first, *others = [name for name in names if name in given] or [names[0]]
    for other in others:
        one, two = (
            given[name].replace(" ", "").replace("S", "L")
            for name in (first, other)
        )
        if one != two:
            raise ShapeMismatch(
                f"letters: {first} and {other} are one tensor, so it cannot "
                f"have the axes {given[first]} and {given[other]}"
            )
    if first in given:
        return given[first]
    return next(filter(None, map(axis_letters, names)), "")


def _read_letters(
    letters: dict, named: list[tuple[str, Any]]
) -> tuple[dict[str, str], dict[str, int]]:
    """Sort `letters` into axes of arguments and sizes of letters."""
    known = [name for names, _ in _tensors_by_name(named) for name in names]
    every = [name for name, _ in named]
    given, sizes = {}, {}
    for key, told in letters.items():
        if isinstance(told, int) and not isinstance(told, bool):
            if key not in AXES or told < 1:
                raise ValueError(
                    f"letters: {key!r}: {told!r} is no size of an axis; the "
                    f"axes are {_NAMES_OF_LETTERS}"
                )
            sizes[key] = told
            continue
        if isinstance(key, int) and not isinstance(key, bool):
            if not -len(every) <= key < len(every):
                raise ValueError(
                    f"letters: there is no argument {key}; the call has "
                    f"{len(every)}"
                )
            key = every[key]
        if not isinstance(told, str):
            raise ValueError(f"letters: {key!r} must be text, not {told!r}")
        if key not in known:
            raise ValueError(
                f"letters: {key!r} is no tensor argument; those are "
                f"{', '.join(known) or 'none'}"
            )
        given[key] = told
    return given, sizes


def _letters_of(name: str, tensor: Tensor, told: str) -> tuple[str, ...]:
    """Check the letters of one argument."""
    told = told.replace(" ", "")
    if tensor.is_nested:  # it has no shape to hold letters against
        return ()
    if not told:
        return tuple("1" if s == 1 else "?" for s in tensor.shape)
    unknown = [letter for letter in told if letter not in (*AXES, "?", "1")]
    if unknown:
        raise ValueError(
            f"letters: {name}: {unknown[0]!r} is no axis; the axes are "
            f"{_NAMES_OF_LETTERS}, and ? for any other"
        )
    if len(told) != tensor.ndim:
        raise ShapeMismatch(
            f"{name} has {tensor.ndim} axes {tuple(tensor.shape)}, but its "
            f"letters are {' '.join(told)}"
        )
    return tuple(told)


def _check_sizes(flow: ShapeFlow, sizes: dict[str, int]) -> None:
    """Give each letter its one size, and derive D = E / H."""
    said = dict.fromkeys(sizes, "letters")
    for value in flow.inputs:
        for letter, size in zip(value.letters, value.shape, strict=True):
            if letter in ("?", "1"):
                continue
            if sizes.setdefault(letter, size) != size:
                raise ShapeMismatch(
                    f"{value.name}: axis {letter} has size {size}, but "
                    f"{said[letter]} has {letter} = {sizes[letter]}"
                )
            said.setdefault(letter, value.name)
    E, H, D = (sizes.get(letter) for letter in "EHD")
    if E and H and E % H:
        raise ShapeMismatch(
            f"letters: axis E has size {E}, which H = {H} does not divide"
        )
    if E and H:
        if sizes.setdefault("D", E // H) != E // H:
            raise ShapeMismatch(
                f"letters: axis D has size {D}, but E / H = {E}/{H} = {E // H}"
            )
    elif H and D:
        sizes["E"] = H * D
    elif E and D and E % D == 0:
        sizes["H"] = E // D


def _layers(function: Any) -> Iterator[Any]:
    """Return a callable, and what lies below partial and wraps."""
    yield function
    while not isinstance(function, nn.Module):
        inner = getattr(function, "func", None)  # functools.partial
        inner = inner or getattr(function, "__wrapped__", None)
        if inner is None:
            return
        function = inner
        yield function


def _modules_of(function: Any) -> Iterator[tuple[str, nn.Module]]:
    """Return the modules that a callable can be seen to use."""
    *_, function = _layers(function)
    if isinstance(function, nn.Module):
        yield "", function
        return
    owner = getattr(function, "__self__", None)
    if isinstance(owner, nn.Module):
        yield "", owner
    if not isinstance(function, types.FunctionType):
        return
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=True):
        try:
            content = cell.cell_contents
        except ValueError:  # not yet filled
            continue
        if isinstance(content, nn.Module):
            yield f"{name}.", content
    for name in function.__code__.co_names:
        content = function.__globals__.get(name)
        if isinstance(content, nn.Module):
            yield f"{name}.", content


def _parameter_names(function: Any) -> Iterator[tuple[int, str]]:
    for prefix, module in _modules_of(function):
        for name, tensor in (
            *module.named_parameters(),
            *module.named_buffers(),
        ):
            yield id(tensor), prefix + name


def _cannot_follow(function: Any, args: tuple, kwargs: dict) -> str:
    """Say why nothing would be seen, or ""."""
    if any(_is_compiled(layer) for layer in _layers(function)):
        return (
            "cannot follow: it is compiled, and its steps run outside of "
            "Python. Trace the function as it was before torch.compile or "
            "torch.jit"
        )
    for prefix, module in _modules_of(function):
        for name, part in module.named_modules():
            if _is_compiled(part):
                return (
                    f"cannot follow: the part {prefix + name or 'itself'} is "
                    "compiled, and its steps run outside of Python. Trace "
                    "the module as it was before torch.compile or torch.jit"
                )
    if not tensors_in(list(tree_flatten((args, kwargs))[0])):
        kinds = sorted({type(a).__name__ for a in (*args, *kwargs.values())})
        numpy = "ndarray" in kinds
        return (
            "cannot follow: no argument is a torch tensor"
            + (f" but {', '.join(kinds)}" if kinds else "")
            + (". NumPy's steps are not seen; pass torch tensors to a torch "
               "function" if numpy else "")
        )  # fmt: skip
    return ""


def _is_compiled(thing: Any) -> bool:
    if isinstance(thing, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return True
    return type(thing).__name__ == "OptimizedModule" or hasattr(
        thing, "_torchdynamo_orig_callable"
    )
