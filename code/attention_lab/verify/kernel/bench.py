"""The bench a kernel is tested on: every run is recorded on fresh copies."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_lab.gpu import record
from attention_lab.verify.kernel.bounds import rounding_bounds
from attention_lab.verify.kernel.case import BadCase, Launch, in_words
from attention_lab.verify.kernel.strong_inputs import Change

ORDERS = ("ascending", "descending", "shuffled")
#: Hazards of a block whose threads wait for each other for ever.
STUCK = ("divergent-barrier", "warp-divergent-shuffle")
_BITS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


@dataclass(frozen=True)
class Prepared:
    """A kernel at some sizes: what goes in, and what must come out.

    Attributes
    ----------
    kernel : the kernel for these sizes.
    launch : its launch, with the arrays as the caller gave them.
    names : the kernel's parameters, in order.
    given : what the reference gets: the inputs, floating arrays in float64.
    expected : its outputs.
    bounds : the largest allowed error of each output.
    """

    sizes: dict[str, Any]
    kernel: Any
    launch: Launch
    names: tuple[str, ...]
    given: tuple[Any, ...]
    expected: tuple[np.ndarray, ...]
    bounds: tuple[float, ...]

    @property
    def output_names(self) -> tuple[str, ...]:
        """Return the names of the output parameters."""
        return self.names[: self.launch.outputs]


@dataclass(frozen=True)
class Run:
    """One recorded run.

    Attributes
    ----------
    recording : from `attention_lab.gpu.record`.
    outputs : the outputs after the run.
    missing : for each output, True where nothing was written.
    changed : names of the inputs that the kernel wrote to.
    """

    recording: Any
    outputs: tuple[np.ndarray, ...]
    missing: tuple[np.ndarray, ...]
    changed: tuple[str, ...]

    @property
    def was_refused(self) -> bool:
        """Whether no GPU would start this launch."""
        return self.recording.events is None

    @property
    def is_stuck(self) -> bool:
        """Whether threads waited for each other in vain."""
        return any(kind in STUCK for kind in self.recording.kinds)


class Bench:
    """A kernel, its launch and its reference; remembers every run.

    Parameters
    ----------
    kernel, launch, reference, error_bound : as in `verify_kernel`.
    """

    def __init__(
        self,
        kernel: Any,
        launch: Callable[..., Launch],
        reference: Callable[..., Any],
        error_bound: Callable[..., Any] | None = None,
    ) -> None:
        self.kernel = kernel
        self.launch = launch
        self.reference = reference
        self.error_bound = error_bound
        self._prepared: dict[Any, Prepared] = {}
        self._runs: dict[Any, Run] = {}

    def prepare(
        self, sizes: dict[str, Any], change: Change | None = None
    ) -> Prepared:
        """Return the kernel at some sizes, its floating inputs changed.

        Raises
        ------
        BadCase
            If the launch or the reference raises, or gives something else.
        """
        key = (tuple(sizes.items()), change)
        if key not in self._prepared:
            self._prepared[key] = self._prepare(sizes, change)
        return self._prepared[key]

    def _prepare(
        self, sizes: dict[str, Any], change: Change | None
    ) -> Prepared:
        launch = self._launch(sizes)
        if change is not None:
            changed = change.applied(launch.args, launch.outputs)
            launch = launch._replace(args=changed)
        kernel = self._kernel(sizes)
        names = _parameters(kernel, launch)
        first = 0 if launch.accumulates else launch.outputs
        given = tuple(exact(arg) for arg in launch.args[first:])
        expected = self._expected(given, launch, sizes)
        bounds = self._bounds(given, expected, launch)
        return Prepared(sizes, kernel, launch, names, given, expected, bounds)

    def _launch(self, sizes: dict[str, Any]) -> Launch:
        try:
            launch = self.launch(**sizes)
        except Exception as error:
            raise BadCase(
                f"launch({in_words(sizes)}) raised {_said(error)}"
            ) from error
        if not isinstance(launch, Launch):
            raise BadCase(
                "launch must return a Launch(grid, block, args), not "
                f"{type(launch).__name__}"
            )
        outputs = launch.args[: launch.outputs]
        if not outputs or not all(isinstance(a, np.ndarray) for a in outputs):
            raise BadCase(
                f"the first {launch.outputs} of the arguments must be NumPy "
                "arrays: the outputs come first"
            )
        copies = tuple(
            np.array(a) if isinstance(a, np.ndarray) else a for a in launch.args
        )
        return launch._replace(args=copies)

    def _kernel(self, sizes: dict[str, Any]) -> Any:
        if not is_factory(self.kernel):
            return self.kernel
        try:
            return self.kernel(sizes)
        except Exception as error:
            raise BadCase(
                f"making the kernel for {in_words(sizes)} raised {_said(error)}"
            ) from error

    def _expected(
        self, given: tuple[Any, ...], launch: Launch, sizes: dict[str, Any]
    ) -> tuple[np.ndarray, ...]:
        try:
            with np.errstate(all="ignore"):  # a mask may make 0/0 on the way
                expected = as_outputs(self.reference(*map(_copy, given)))
        except Exception as error:
            raise BadCase(
                f"reference raised {_said(error)} at {in_words(sizes)}"
            ) from error
        shapes = [a.shape for a in launch.args[: launch.outputs]]
        if [e.shape for e in expected] != shapes:
            raise BadCase(
                f"reference gives shapes {[e.shape for e in expected]}, but "
                f"the launch has outputs of shapes {shapes}"
            )
        return expected

    def _bounds(
        self,
        given: tuple[Any, ...],
        expected: tuple[np.ndarray, ...],
        launch: Launch,
    ) -> tuple[float, ...]:
        outputs = launch.args[: launch.outputs]
        if self.error_bound is None:
            return rounding_bounds(
                self.reference, given, expected, [a.dtype for a in outputs]
            )
        try:
            first = 0 if launch.accumulates else launch.outputs
            bounds = self.error_bound(*map(_copy, launch.args[first:]))
        except Exception as error:
            raise BadCase(f"error_bound raised {_said(error)}") from error
        many = bounds if isinstance(bounds, tuple) else (bounds,) * len(outputs)
        if len(many) != len(outputs) or not all(0 <= b < np.inf for b in many):
            raise BadCase(
                "error_bound must give one finite number of at least 0 per "
                f"output, not {bounds!r}"
            )
        return tuple(float(b) for b in many)

    def run(
        self,
        sizes: dict[str, Any],
        order: str = "ascending",
        change: Change | None = None,
    ) -> Run:
        """Record one run at some sizes, in one thread order.

        Raises
        ------
        BadCase
            If the kernel cannot be run at all.
        """
        key = (tuple(sizes.items()), order, change)
        if key not in self._runs:
            self._runs[key] = self.launch_once(
                self.prepare(sizes, change), order
            )
        return self._runs[key]

    def launch_once(
        self, case: Prepared, order: str = "ascending", grid: Any = None
    ) -> Run:
        """Record a run on fresh copies, on another grid if one is given."""
        launch = case.launch
        args = [_copy(arg) for arg in launch.args]
        blanks = [_blank(a) for a in args[: launch.outputs]]
        if not launch.accumulates:
            for array, blank in zip(args, blanks, strict=False):
                array[...] = blank
        try:
            recording = record(
                case.kernel,
                launch.grid if grid is None else grid,
                launch.block,
                *args,
                shared_bytes=launch.shared_bytes,
                order=order,
                seed=7,
            )
        except Exception as error:
            raise BadCase(_said(error, case.names)) from error
        outputs = tuple(args[: launch.outputs])
        missing = tuple(
            _untouched(array, blank) & (not launch.accumulates)
            for array, blank in zip(outputs, blanks, strict=True)
        )
        changed = tuple(
            case.names[k]
            for k in range(launch.outputs, len(args))
            if isinstance(args[k], np.ndarray)
            and args[k].tobytes() != launch.args[k].tobytes()
        )
        return Run(recording, outputs, missing, changed)


def is_factory(kernel: Any) -> bool:
    """Say whether this makes kernels: its only parameter is called sizes."""
    return inspect.isfunction(kernel) and [
        *inspect.signature(kernel).parameters
    ] == ["sizes"]


def python_function(kernel: Any) -> Any:
    """Return the plain function in a kernel of the recorder or of Numba."""
    for attribute in ("py_func", "fn"):
        inner = getattr(kernel, attribute, None)
        if inspect.isfunction(inner):
            return inner
    return kernel


def as_outputs(result: Any) -> tuple[np.ndarray, ...]:
    """Return one array or several as a tuple of NumPy arrays."""
    many = result if isinstance(result, tuple | list) else (result,)
    return tuple(np.asarray(one) for one in many)


def exact(argument: Any) -> Any:
    """Return what a reference gets for an argument: float64 where floating."""
    if isinstance(argument, np.ndarray):
        return (
            argument.astype(float) if argument.dtype.kind == "f" else argument
        )
    if isinstance(argument, np.generic):
        return argument.item()
    return argument


def _parameters(kernel: Any, launch: Launch) -> tuple[str, ...]:
    function = python_function(kernel)
    if not inspect.isfunction(function):
        raise BadCase(
            f"{kernel!r} is not a kernel: pass a function decorated with "
            "@cuda.jit"
        )
    names = tuple(inspect.signature(function).parameters)
    if len(names) != len(launch.args):
        raise BadCase(
            f"`{function.__name__}` takes {len(names)} arguments "
            f"({', '.join(names)}), but the launch has {len(launch.args)}"
        )
    return names


def _copy(argument: Any) -> Any:
    if isinstance(argument, np.ndarray):
        return np.array(argument, copy=True)
    return argument


def _blank(array: np.ndarray) -> Any:
    """Return what an output holds before a run.

    A NaN that no arithmetic makes, so that a NaN which the kernel computed is
    not taken for a missing store; for integers a number that is unlikely.
    """
    if array.dtype.kind == "f":
        bits = np.array([np.nan], array.dtype).view(_BITS[array.itemsize])
        return (bits + 0x5A).view(array.dtype)[0]
    if array.dtype.kind == "b":
        return False
    return np.iinfo(array.dtype).max // 3 * 2 + 1


def _untouched(array: np.ndarray, blank: Any) -> np.ndarray:
    if array.dtype.kind == "b":  # both values are possible results
        return np.zeros(array.shape, bool)
    if array.dtype.kind == "f":
        view = _BITS[array.itemsize]
        whole = np.ascontiguousarray(array)
        return whole.view(view) == np.array([blank], array.dtype).view(view)[0]
    return array == blank


def _said(error: Exception, names: tuple[str, ...] = ()) -> str:
    """Return an error as a learner reads it."""
    from attention_lab.gpu.errors import KernelError

    text = " ".join(str(error).split())[:400] or "no message"
    if isinstance(error, KernelError):
        return text
    return f"{type(error).__name__}: {text}"
