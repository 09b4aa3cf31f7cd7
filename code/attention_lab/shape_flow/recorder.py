"""The function mode that sees every torch call, and what it writes down."""

from dataclasses import replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from attention_lab.shape_flow import calls
from attention_lab.shape_flow.book import Book
from attention_lab.shape_flow.constants import is_constant
from attention_lab.shape_flow.labels import Rule, tensors_in
from attention_lab.shape_flow.memory import Untraceable
from attention_lab.shape_flow.moves import moved_tensors, run_on_codes
from attention_lab.shape_flow.rules import RULES, find_rule
from attention_lab.shape_flow.steps import Step, Value


class _Group:
    """The einops call that is running: several torch calls, one step."""

    def __init__(self, frame: FrameType, name: str, text: str) -> None:
        self.frame, self.name, self.text = frame, name, text
        self.source = None
        self.steps: list[Step] = []


class Recorder(TorchFunctionMode):
    """Records each torch call that runs while it is active.

    The traced function gets its own results, untouched. Whatever goes wrong
    in here becomes a note of that step.
    """

    def __init__(self, book: Book, stop: FrameType) -> None:
        super().__init__()
        self.book, self.stop = book, stop
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self._group: _Group | None = None
        self._open: list[Any] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple = (), kwargs: Any = None
    ) -> Any:
        """Run the call, and write down what it did."""
        kwargs = kwargs or {}
        name = calls.name_of(func)
        if not _is_known(name):
            inside = calls.opened(func)
            if inside is not None and func not in self._open:
                return self._look_inside(func, inside, args, kwargs)
        operands = _unique(tensors_in(args, kwargs))
        before = self._before(name, operands)
        result = func(*args, **kwargs)
        try:
            with torch.no_grad(), torch.inference_mode(False):
                self._after(name, func, args, kwargs, operands, before, result)
        except Exception as error:  # the traced function must not notice
            self._give_up(name, args, kwargs, result, error)
        return result

    def _look_inside(
        self, func: Any, inside: Any, args: tuple, kwargs: dict
    ) -> Any:
        """Run torch's own Python function so that its steps are seen."""
        self._open.append(func)
        try:
            with self:
                return inside(*args, **kwargs)
        finally:
            self._open.pop()

    def finish(self) -> None:
        """Close what is open."""
        group, self._group = self._group, None
        if group is not None and group.steps:
            self.steps.append(_joined(group, len(self.steps) + 1, self.book))

    @property
    def number(self) -> int:
        """The number that the running step will have."""
        return len(self.steps) + 1

    def _before(self, name: str, operands: list[Tensor]) -> list[tuple]:
        """Note what a call in place would overwrite."""
        with torch.no_grad(), torch.inference_mode(False):
            return [
                (self.book.look(t), _version(t), self.book.snapshot(t))
                for t in operands
            ]

    def _after(
        self,
        name: str,
        func: Any,
        args: tuple,
        kwargs: dict,
        operands: list[Tensor],
        before: list[tuple],
        result: Any,
    ) -> None:
        results = _unique(tensors_in(result))
        by_name = name.endswith("_") or name == "setitem" or "out" in kwargs
        changed = [
            t
            for t, (_, version, _) in zip(operands, before, strict=True)
            if (_version(t) != version if version is not None else by_name)
        ]
        if not results and not changed:
            if name in (*calls.EXITS, *calls.NUMBERS):
                self._note_exit(name, [value for value, _, _ in before])
            return
        self._regroup()
        targets = results or changed
        untouched = {id(t) for t in operands} - {id(t) for t in changed}
        if all(id(t) in untouched for t in targets) and name in calls.CASTS:
            return  # nothing to convert, nothing happened
        values = [value for value, _, _ in before]
        pairs = zip(operands, before, strict=True)
        snapshots = {id(t): s for t, (_, _, s) in pairs}
        kinds = {
            id(t): self._memory(t, operands, untouched, name) for t in targets
        }
        chosen = self._note_choice(name, args, kwargs, operands, values)
        kind, rule, notes = self._write_codes(
            name, func, args, kwargs, targets, untouched, snapshots, values,
            operands,
        )  # fmt: skip
        axes = {
            id(t): (v.letters, v.why)
            for t, v in zip(operands, values, strict=True)
            if v.codes is not None
            and v.shape == tuple(t.shape)
            and kinds.get(id(t), ("",))[0] == "in place"
        }
        outputs = [
            self.book.enter(
                t,
                name=_output_name(self.number, place, len(targets)),
                step=self.number,
                memory=kinds[id(t)][0],
                of=kinds[id(t)][1],
                letters=axes.get(id(t)),
            )
            for place, t in enumerate(targets)
        ]
        self._keep(
            Step(
                self.number,
                name,
                calls.call_text(name, args, kwargs),
                kind,
                tuple(values),
                tuple(outputs),
                calls.source_line(self.stop),
                rule is not None and rule.contracts,
                (*notes, *chosen),
            )
        )

    def _write_codes(
        self, name, func, args, kwargs, targets, untouched, snapshots, values,
        operands,
    ) -> tuple[str, Rule | None, list[str]]:  # fmt: skip
        """Bring the shadow memory up to date; say what kind of step it was."""
        fresh = [t for t in targets if id(t) not in untouched]
        changed = [t for t in fresh if id(t) in snapshots]
        new = [t for t in fresh if id(t) not in snapshots]
        new = [t for t in new if not self.book.knows(t)]
        if name in calls.MOVES and any(
            t.dtype != operands[0].dtype and self.book.knows(t)
            for t in fresh
            if operands
        ):
            raise Untraceable("it reads the same memory as another type")
        if name in calls.CASTS or name in calls.MOVES:
            run_on_codes(
                self.book, name, func, args, kwargs, new, changed, operands
            )
            return "moves", None, []
        if not new and not changed:
            return "moves", None, []  # a view, whatever its name
        rule = find_rule(name, args, kwargs, targets)
        unseen = ""
        if self.book.left and name.rstrip("_") in calls.FROM_NUMBERS:
            unseen = f"it may hold numbers that left torch {self.book.left}"
        label = f"{name} (step {self.number})"
        notes = self.book.add_results(
            label, self.number, rule, new + changed, targets, snapshots,
            dict(zip(map(id, operands), values, strict=True)), unseen,
        )  # fmt: skip
        known = rule is not None and not unseen
        return ("computes" if known else "opaque"), rule, notes

    def _note_choice(
        self, name: str, args: tuple, kwargs: dict, operands: list, values: list
    ) -> list[str]:
        """Say where numbers of an input choose which elements are moved."""
        if name not in calls.MOVES:
            return []
        moved = {id(t) for t in moved_tensors(name, args, kwargs)}
        roots = self.book.memory.roots
        chosen = [
            value.name
            for t, value in zip(operands, values, strict=True)
            if id(t) not in moved and not is_constant(roots, value)
        ]
        if not chosen:
            return []
        return [
            f"{name}: which elements it takes depends on {', '.join(chosen)}; "
            "that choice is not followed, only where the elements go"
        ]

    def _memory(
        self, tensor: Tensor, operands: list, untouched: set, name: str
    ) -> tuple[str, str]:
        """Say whether a result is a view, by storage and not by name."""
        if id(tensor) in untouched:
            return "same", self.book.look(tensor).name
        if any(tensor is t for t in operands):
            moved = name.endswith("_") and name in calls.MOVES
            view = moved and name != "copy_" and name != "index_copy_"
            return ("view" if view else "in place"), self.book.look(tensor).name
        for other in operands:
            if self.book.shares(tensor, other):
                return "view", self.book.look(other).name
        if self.book.knows(tensor):
            return "view", self.book.owner(tensor)
        moves = name in calls.MOVES or name in calls.CASTS
        return ("copy" if moves else "new"), ""

    def _memory_if_seen(
        self, name: str, tensor: Tensor, operands: list[Tensor]
    ) -> tuple[str, str]:
        try:
            return self._memory(tensor, operands, set(), name)
        except Exception:  # without a storage there is nothing to compare
            return "?", ""

    def _regroup(self) -> None:
        """Open or close the step of an einops call."""
        found = calls.einops_call(self.stop)
        if found is None:
            self.finish()
        elif self._group is None or self._group.frame is not found[0]:
            self.finish()
            self._group = _Group(*found)
            self._group.source = calls.source_line(self.stop)

    def _keep(self, step: Step) -> None:
        (self.steps if self._group is None else self._group.steps).append(step)

    def _note_exit(self, name: str, values: list[Value]) -> None:
        """Say where numbers that depend on an input leave torch."""
        roots = self.book.memory.roots
        if all(is_constant(roots, value) for value in values):
            return
        where = calls.source_line(self.stop)
        at = f"at {where}" if where else "in the function"
        self.book.left = self.book.left or at
        self.book.arrays_left |= name in ("numpy", "__array__")
        note = f"{name}() leaves torch {at}: what is computed there is not seen"
        if note not in self.notes:
            self.notes.append(note)

    def _give_up(
        self, name: str, args: tuple, kwargs: dict, result: Any, error: Any
    ) -> None:
        """Record the shapes of a step whose elements cannot be followed."""
        why = (
            str(error)
            if isinstance(error, Untraceable)
            else f"{type(error).__name__}: {error}".splitlines()[0]
        )
        outputs = []
        operands = _unique(tensors_in(args, kwargs))
        targets = _unique(tensors_in(result))
        for place, tensor in enumerate(targets):
            label = _output_name(self.number, place, len(targets))
            memory, of = self._memory_if_seen(name, tensor, operands)
            outputs.append(
                self.book.lose(tensor, label, self.number, why, memory, of)
            )
        inputs = tuple(self.book.look(t) for t in operands)
        self._keep(
            Step(
                self.number,
                name,
                calls.call_text(name, args, kwargs),
                "opaque",
                inputs,
                tuple(outputs),
                calls.source_line(self.stop),
                notes=(f"cannot follow {name}: {why}",),
            )
        )


def _joined(group: _Group, number: int, book: Book) -> Step:
    """Make one step of the calls inside an einops call."""
    first, last = group.steps[0], group.steps[-1]
    made = {id(v) for step in group.steps for v in step.outputs}
    inputs: dict[int, Value] = {}
    for step in group.steps:
        for value in step.inputs:
            if id(value) not in made:
                inputs.setdefault(id(value), value)
    kinds = {step.kind for step in group.steps}
    kind = next(k for k in ("opaque", "computes", "moves") if k in kinds)
    made_here = kind == "moves"
    memories = {v.memory for s in group.steps for v in s.outputs}
    outputs = []
    for value in last.outputs:
        if "copy" in memories or "new" in memories:
            memory, of = ("copy" if made_here else "new"), ""
        else:
            memory = "view" if "view" in memories else value.memory
            of = first.inputs[0].name if first.inputs else ""
        better = replace(value, memory=memory, of=of)
        book.replace(value, better)
        outputs.append(better)
    return Step(
        number,
        group.name,
        group.text,
        kind,
        tuple(inputs.values()),
        tuple(outputs),
        group.source or first.source,
        any(step.contracts for step in group.steps),
        tuple(note for step in group.steps for note in step.notes),
    )


def _is_known(name: str) -> bool:
    return (
        name in calls.MOVES
        or name in calls.CASTS
        or name in calls.EXITS
        or name.rstrip("_") in RULES
    )


def _version(tensor: Tensor) -> int | None:
    try:
        return tensor._version
    except RuntimeError:  # inference tensors count no versions
        return None


def _unique(tensors: list[Tensor]) -> list[Tensor]:
    return list({id(t): t for t in tensors}.values())


def _output_name(number: int, place: int, count: int) -> str:
    return f"step {number}" + (f"[{place}]" if count > 1 else "")
