"""The flow as text: one operation per line."""

from typing import Any

from attention_lab.shape_flow.steps import Step, Value

_HEAD = ("", "operation", "from", "axes", "shape", "strides", "memory", "line")


def as_table(flow: Any) -> str:
    """Return the flow as a table, followed by what could not be followed."""
    lines = [f"shape flow of {flow.title}"]
    if flow.problem:
        return "\n".join([*lines, flow.problem])
    rows = [_HEAD]
    rows += [_row("", v.name, "", v, "input", "") for v in flow.inputs]
    for step in flow.steps:
        rows.append(_step_row(step))
    # The source line may be long or missing: it is not padded.
    widths = [max(len(r[i]) for r in rows) for i in range(len(_HEAD) - 1)]
    for row in rows:
        cells = [c.ljust(w) for c, w in zip(row, widths, strict=False)]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    marks = list(dict.fromkeys([*_question_marks(flow), *flow.notes]))
    marks += [n for step in flow.steps for n in _numbered(step)]
    if marks:
        lines += ["", *marks]
    return "\n".join(lines)


def _row(
    number: str, what: str, source: str, value: Value, memory: str, line: str
) -> tuple[str, ...]:
    return (
        number,
        what,
        source,
        value.axes,
        _tuple(value.shape),
        _tuple(value.strides),
        memory,
        line,
    )


def _step_row(step: Step) -> tuple[str, ...]:
    line = "" if step.source is None else str(step.source)
    sources = short_sources(step)
    if not step.outputs:
        return (str(step.number), step.call, sources, "", "", "", "", line)
    value = step.outputs[0]
    row = _row(
        str(step.number), step.call, sources, value, memory_words(value), line
    )
    same = all(
        (v.shape, v.strides, v.letters)
        == (value.shape, value.strides, value.letters)
        for v in step.outputs
    )
    if len(step.outputs) > 1:
        count = f"{len(step.outputs)} × "
        row = (*row[:3], count + row[3], *row[4:])
        if not same:
            shapes = ", ".join(_tuple(v.shape) for v in step.outputs)
            row = (*row[:4], shapes, "differ", *row[6:])
    return row


def memory_words(value: Value) -> str:
    """Say whether a result is a view and of what.

    Examples
    --------
    >>> value = Value("step 2", 2, (), (), 0, "", (), memory="view", of="x")
    >>> memory_words(value)
    'view of x'
    """
    if value.memory in ("view", "same") and value.of:
        word = "view of" if value.memory == "view" else "is"
        return f"{word} {value.of}"
    return value.memory


def short_sources(step: Step) -> str:
    """Name what a step works on, without the word "step".

    Examples
    --------
    >>> x = Value("step 2", 2, (), (), 0, "", ())
    >>> short_sources(Step(3, "neg", "neg", "computes", (x,), (x,), None))
    '2'
    """
    names = [v.name.removeprefix("step ") for v in step.inputs]
    shown = [n for n in names if n != "a constant"] or names[:1]
    return ", ".join(dict.fromkeys(shown))


def _tuple(numbers: tuple[int, ...]) -> str:
    return "(" + ", ".join(map(str, numbers)) + ")"


def _question_marks(flow: Any) -> list[str]:
    """Explain every "?", once per step and axis."""
    found = []
    for value in flow.values():
        by_reason: dict[str, list[int]] = {}
        for axis, why in value.why.items():
            if axis < len(value.letters) and value.letters[axis] == "?":
                by_reason.setdefault(why, []).append(axis)
        for why, axes in by_reason.items():
            which = "axis" if len(axes) == 1 else "axes"
            listed = ", ".join(map(str, axes))
            found.append(f"? {value.name}, {which} {listed}: {why}")
    return found


def _numbered(step: Step) -> list[str]:
    return [f"! step {step.number}: {note}" for note in step.notes]
