"""What a GPU check writes down: readings, sections, targets.

A reading has a number, or a sentence that says why there is none; never both
missing. A task makes one reading. A section is a list of tasks with a time
budget: a task whose turn comes too late is left out, and the section says so.
"""

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

NO_GPU = "not measured: no GPU"
OUT_OF_TIME = "not measured: the section's time was over"
#: Of the time that is left, what a task may spend on repeats; the rest is for
#: compiling and warming up.
FOR_REPEATS = 0.5


@dataclass(frozen=True)
class Reading:
    """One number with its unit, or the reason why there is none.

    Parameters
    ----------
    value : None if nothing was measured; `note` then says why.
    details : further numbers of the same measurement, by name.
    is_wrong : whether a result was wrong, or a task broke off.

    Raises
    ------
    ValueError
        If there is neither a number nor a reason, or a number is not finite.
    """

    name: str
    value: float | None
    unit: str
    note: str = ""
    details: dict[str, float] = field(default_factory=dict)
    is_wrong: bool = False

    def __post_init__(self) -> None:
        """Refuse a reading that says nothing."""
        if self.value is None and not self.note:
            raise ValueError(f"{self.name}: no number, and no reason why")
        if self.value is None and self.details:
            raise ValueError(f"{self.name}: details of nothing")
        for number in (self.value, *self.details.values()):
            if number is not None and not math.isfinite(number):
                raise ValueError(f"{self.name}: {number} is no reading")

    def line(self) -> str:
        """Write the reading as one line of a table."""
        number = "" if self.value is None else f"{self.value:.4g} {self.unit}"
        shown = [f"{key} {x:.3g}" for key, x in self.details.items()]
        verdict = ["WRONG"] if self.is_wrong else []
        note = [self.note] if self.note else []
        rest = "; ".join(verdict + note + shown)
        return f"  {self.name:44} {number:>16}  {rest}".rstrip()


class Task(NamedTuple):
    """One reading to be made.

    measure : (seconds for repeats) -> reading.
    needs_gpu : whether it means nothing anywhere else.
    """

    name: str
    unit: str
    measure: Callable[[float], Reading]
    needs_gpu: bool = True


@dataclass
class Section:
    """Tasks that belong together, their time, and what came of them."""

    name: str
    budget_s: float
    tasks: list[Task]
    seconds: float = 0.0
    readings: list[Reading] = field(default_factory=list)

    def run(self, why_no_gpu: str, deadline: float) -> None:
        """Make every reading that can be made before the time is over.

        Parameters
        ----------
        why_no_gpu : what to note for tasks that need one; "" if there is one.
        deadline : on the clock `time.monotonic`; ends the section early.
        """
        began = time.monotonic()
        end = min(began + self.budget_s, deadline)
        for index, task in enumerate(self.tasks):
            left = end - time.monotonic()
            share = FOR_REPEATS * left / (len(self.tasks) - index)
            if task.needs_gpu and why_no_gpu:
                made = Reading(task.name, None, task.unit, why_no_gpu)
            elif left <= 0:
                made = Reading(task.name, None, task.unit, OUT_OF_TIME)
            else:
                made = attempt(task, share)
            self.readings.append(made)
        self.seconds = time.monotonic() - began

    @property
    def left_out(self) -> list[str]:
        """Name the readings for which there was no time."""
        return [r.name for r in self.readings if r.note == OUT_OF_TIME]

    def find(self, name: str) -> Reading | None:
        """Return the reading of that name, if the section has it."""
        return next((r for r in self.readings if r.name == name), None)

    def table(self) -> str:
        """Write the section as text."""
        head = f"{self.name} ({self.seconds:.1f} of {self.budget_s:g} s)"
        lines = [head, *(reading.line() for reading in self.readings)]
        if self.left_out:
            lines.append(f"  left out: {', '.join(self.left_out)}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """Return the section for the JSON file."""
        return {
            "budget_s": self.budget_s,
            "seconds": self.seconds,
            "left_out": self.left_out,
            "readings": [asdict(reading) for reading in self.readings],
        }


def attempt(task: Task, seconds: float) -> Reading:
    """Run a task; whatever breaks it is a reading too, marked as wrong."""
    try:
        return task.measure(seconds)
    except Exception as error:  # a compiler, a driver, a full memory
        lines = str(error).strip().splitlines() or [""]
        what = f"{type(error).__name__}: {lines[0][:160]}"
        note = f"not measured: {what}"
        return Reading(task.name, None, task.unit, note, is_wrong=True)


class Target(NamedTuple):
    """What a detail of a reading should reach."""

    name: str
    least: float
    section: str
    reading: str
    detail: str


def judge(target: Target, sections: list[Section]) -> dict[str, Any]:
    """Compare a target with what was measured: reached, missed, or neither."""
    found = next(
        (s.find(target.reading) for s in sections if s.name == target.section),
        None,
    )
    value, verdict = None, "not measured: there is no such reading"
    if found is not None:
        value = found.details.get(target.detail)
        verdict = found.note or "not measured: the reading has no such detail"
    if value is not None:
        verdict = "reached" if value >= target.least else "missed"
    return {**target._asdict(), "value": value, "verdict": verdict}
