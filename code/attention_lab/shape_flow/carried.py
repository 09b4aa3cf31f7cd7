"""What is known of a computed tensor: letters and parents, by the labels."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from attention_lab.shape_flow.constants import all_constant, is_constant
from attention_lab.shape_flow.factors import size_letter
from attention_lab.shape_flow.labels import Rule
from attention_lab.shape_flow.letters import Letters
from attention_lab.shape_flow.memory import Root
from attention_lab.shape_flow.steps import Value


def computed(
    rule: Rule,
    place: int,
    shape: Sequence[int],
    snapshots: dict[int, Any],
    values: dict[int, Value],
    roots: Sequence[Root],
    sizes: dict[str, int],
) -> tuple[dict[str, Any], Tensor | None]:
    """Return the facts of a result's root, and the codes that it is heir of.

    Parameters
    ----------
    rule, place : of the step, and which of its results.
    shape : of the result.
    snapshots, values : by id of the tensor: the operands' codes before the
        step, and what is known about them.
    roots, sizes : of the trace.
    """
    labels = rule.results[place]
    letters, why = carried_letters(rule, labels, shape, values, roots, sizes)
    parents, reason = [], ""
    for number, (operand, theirs) in enumerate(rule.operands):
        codes = snapshots.get(id(operand))
        if codes is None:
            reason = values[id(operand)].reason or "its operand is too large"
            continue
        exact = codes[0].numpy()
        if number in rule.repeats:
            axis, times = rule.repeats[number]
            exact = exact.repeat(times, axis)
        parents.append((exact, theirs))
    is_made = not all_constant(roots, [codes for codes, _ in parents])
    made = "computed" if is_made else "constant"
    line = None
    if rule.keeps is not None:
        kept = snapshots.get(id(rule.operands[rule.keeps][0]))
        line = None if kept is None else kept[1]
    facts = {
        "kind": "opaque" if reason else made,
        "letters": letters,
        "why": why,
        "parents": tuple(parents),
        "labels": labels,
        "reason": reason,
    }
    return facts, line


def carried_letters(
    rule: Rule,
    labels: tuple,
    shape: Sequence[int],
    values: dict[int, Value],
    roots: Sequence[Root],
    sizes: dict[str, int],
) -> Letters:
    """Return a letter per axis of a result, and why an axis has none.

    Parameters
    ----------
    rule, labels : of the step, and of this result's axes.
    shape : of the result.
    values : by id of the tensor, what is known about the operands.
    roots, sizes : of the trace.
    """
    letters: list[str] = []
    why: dict[int, str] = {}
    for axis, label in enumerate(labels):
        plain = label[1] if isinstance(label, tuple) else label
        seen, reason, weights = [], "", True
        for operand, theirs in rule.operands:
            value = values[id(operand)]
            for at, mine in enumerate(theirs):
                mine = mine[1] if isinstance(mine, tuple) else mine
                if mine == plain:
                    seen.append(value.letters[at])
                    if not is_constant(roots, value):
                        weights = False
                        reason = reason or value.why.get(at, "")
        named = [x for x in seen if x not in ("?", "1")]
        if named:
            letter = named[0]
        elif shape[axis] == 1:
            letter = "1"
        elif rule.contracts and weights:
            letter, reason = size_letter(shape[axis], sizes)
            if letter != "?" and letter in letters:
                letter, reason = "?", f"a second axis as long as {letter}"
        else:
            letter = "?"
            reason = reason or "made from sizes, not from an input"
        if letter == "L" and "L" in letters and "S" not in letters:
            letter = "S"  # the second operand's positions: its keys
        letters.append(letter)
        if letter == "?":
            why[axis] = reason or "nothing says which axis it is"
    return tuple(letters), why
