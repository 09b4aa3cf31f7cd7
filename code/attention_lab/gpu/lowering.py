"""Turn a kernel into Python text that an engine can run, once per shape.

    source -> flatten -> webs -> inference -> a dialect -> text

Each step is a module; this one puts them in order and keeps the results.
"""

import itertools
import linecache
import math
import weakref
from dataclasses import dataclass

import numpy as np

from attention_lab.gpu.choices import resolve_choices, which_of
from attention_lab.gpu.endless import Loop
from attention_lab.gpu.errors import UnsupportedConstruct, WrongArgument
from attention_lab.gpu.flatten import Flattener
from attention_lab.gpu.inference import Inference
from attention_lab.gpu.kernel_source import python_function
from attention_lab.gpu.limits import most_trips
from attention_lab.gpu.python_dialect import PythonEmitter
from attention_lab.gpu.sites import Site, Stop
from attention_lab.gpu.values import (
    FLOAT64,
    Array,
    Whole,
    number,
)
from attention_lab.gpu.webs import split_variables


@dataclass(frozen=True)
class Lowered:
    """A kernel as an engine runs it.

    Attributes
    ----------
    name : of the kernel
    sha256 : of the kernel's source text
    text : the lowered Python
    filename : under which tracebacks find that text
    origins : the place in the user's source of each lowered line
    parameters : names, in order
    arrays : those that are arrays
    shared : the shared arrays
    local : the local arrays
    sites : every place that touches memory
    ticking : for each loop that writes ticks, the one around it, or -1
    stops : every place that waits; number 0 means "finished"
    loops : every `while` loop, with its limit
    faults : (place, variable or reason) by the number that a thread reports
    labels : what the reader calls a variable, by its name in the text
    notes : what was noticed while typing, by (kind, place)
    constants : values that the text refers to by name
    code : the compiled text
    axes : how many axes each piece of memory has
    machine : what the compiled engine has made of it so far
    """

    name: str
    sha256: str
    text: str
    filename: str
    origins: tuple
    parameters: tuple
    arrays: tuple
    shared: tuple
    local: tuple
    sites: tuple[Site, ...]
    ticking: tuple[int, ...]
    stops: tuple[Stop, ...]
    loops: tuple[Loop, ...]
    faults: tuple
    labels: dict
    notes: dict
    constants: dict
    code: object
    axes: dict
    machine: dict

    @property
    def waits(self):
        """Whether the kernel has barriers."""
        return len(self.stops) > 1

    @property
    def shared_bytes(self):
        """The static shared memory of one block."""
        return sum(
            math.prod(a.shape) * a.dtype.itemsize
            for a in self.shared
            if a.shape[0] is not None
        )


_CACHE = weakref.WeakKeyDictionary()
_NUMBERS = itertools.count(1)


def known_arguments(parameters, arguments):
    """Return what is known about each argument from its type alone."""
    known = {}
    for name, argument in zip(parameters, arguments, strict=True):
        if isinstance(argument, np.ndarray):
            if argument.ndim == 0:
                raise WrongArgument(
                    f"the argument `{name}` is an array without axes: pass "
                    "a number, array.item(), or an array of one element, "
                    "array.reshape(1)"
                )
            known[name] = Array(
                name,
                name,
                "global",
                argument.dtype,
                (None,) * argument.ndim,
                (Whole(),) * argument.ndim,
            )
        else:
            why = ""
            if argument.dtype == FLOAT64:
                why = f"the argument `{name}`, which is a float64"
            known[name] = number(argument.dtype, why=why)
    return known


def lower(kernel, arguments, block, recorded=False, emitter=None):
    """Return the lowered form of a kernel for these argument types.

    Parameters
    ----------
    kernel : a decorated kernel or a plain function
    arguments : NumPy arrays and scalars
    block : sizes of a block, three of them
    recorded : whether every access is written to a log
    emitter : the dialect; Python's unless given
    """
    function = python_function(kernel)
    emitter = emitter or PythonEmitter
    signature = tuple((a.dtype, a.ndim) for a in arguments)
    limits = most_trips(emitter.engine, recorded)
    key = (signature, block, recorded, emitter, limits)
    made = _CACHE.setdefault(function, {})
    if key not in made:
        made[key] = _lower(function, arguments, block, recorded, emitter)
    return made[key]


def _lower(function, arguments, block, recorded, emitter_class):
    """Do the work of `lower`."""
    flat = Flattener(function)
    parameters = flat.parameters
    if len(arguments) != len(parameters):
        raise WrongArgument(
            f"`{flat.source.name}` takes {len(parameters)} arguments "
            f"({', '.join(parameters)}), and {len(arguments)} were given"
        )
    old_names, unset = split_variables(flat.body, parameters)
    known = known_arguments(parameters, arguments)
    inference = Inference(flat.body, known, block)
    if inference.must_resolve:
        flat.body = resolve_choices(
            flat.body,
            inference.variables,
            parameters,
            flat.source.definition.place,
        )
        inference = Inference(flat.body, known, block)
        for name in list(old_names):
            old_names[which_of(name)] = old_names[name]
        unset |= {which_of(name) for name in unset}
    emitter = emitter_class(recorded, block)
    emitter.unset = unset
    own = inference.allocations.values()
    labels = {new: flat.labels.get(old, old) for new, old in old_names.items()}
    labels.update((array.name, array.label) for array in own)
    shared = tuple(a for a in own if a.space == "shared")
    refuse_two_dynamic(shared, inference)
    text = emitter.program(flat.body, parameters, known, shared)
    filename = f"<lowered {flat.source.name} {next(_NUMBERS)}>"
    linecache.cache[filename] = (
        len(text),
        None,
        text.splitlines(keepends=True),
        filename,
    )
    notes = dict(inference.notes)
    notes.update(allocation_notes(inference))
    return Lowered(
        name=flat.source.name,
        sha256=flat.source.sha256,
        text=text,
        filename=filename,
        origins=tuple(emitter.out.origins),
        parameters=tuple(parameters),
        arrays=tuple(p for p in parameters if isinstance(known[p], Array)),
        shared=shared,
        local=tuple(a for a in own if a.space == "local"),
        sites=tuple(emitter.sites),
        ticking=tuple(emitter.ticking),
        stops=tuple(emitter.stops),
        loops=tuple(emitter.loops),
        faults=tuple(emitter.faults),
        labels=labels,
        notes=notes,
        constants=emitter.constants,
        code=compile(text, filename, "exec"),
        axes={
            array.name: len(array.shape)
            for array in (*known.values(), *own)
            if isinstance(array, Array)
        },
        machine={},
    )


def refuse_two_dynamic(shared, inference):
    """Refuse two dynamic shared arrays: on a GPU they are one memory."""
    dynamic = [array for array in shared if array.shape[0] is None]
    if len(dynamic) > 1:
        raise UnsupportedConstruct(
            f"`{dynamic[0].label}` and `{dynamic[1].label}` are two dynamic "
            "shared arrays, and on a GPU both begin at the same address",
            inference.allocation_places[dynamic[1].name],
            "Make one array and cut it with slices.",
        )


def allocation_notes(inference):
    """Return a note for every line that makes two shared arrays."""
    notes = {}
    seen = {}
    for array in inference.allocations.values():
        if array.space != "shared":
            continue
        place = inference.allocation_places[array.name]
        first = seen.setdefault(place, array.label)
        if first != array.label:
            notes["shared-arrays-on-one-line", place] = (
                f"{place}: two shared arrays are made on one line. A GPU "
                "keeps them apart, but Numba's simulator gives both the same "
                "memory: write one per line."
            )
    return notes
