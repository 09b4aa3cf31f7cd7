"""Hazards, and the sentences that explain those of a stuck block."""

import ast
from dataclasses import dataclass

from attention_lab.gpu.sites import stop_number, trips_of


@dataclass(frozen=True)
class Hazard:
    """Something that makes a kernel wrong, even when its result is right.

    Attributes
    ----------
    kind : one word, such as "race"
    sentence : what happened and what to do, in plain English
    array : name of the array, or ""
    indices : the element, or ()
    threads : the threads involved, one or two
    blocks : their blocks
    lines : their source lines
    count : how often this happened in the recording
    """

    kind: str
    sentence: str
    array: str = ""
    indices: tuple = ()
    threads: tuple = ()
    blocks: tuple = ()
    lines: tuple = ()
    count: int = 1

    def __str__(self):
        """Return the kind and the sentence."""
        return f"{self.kind}: {self.sentence}"


def explain_trouble(trouble, stops, names):
    """Return the hazard of a block whose threads wait for ever.

    Parameters
    ----------
    trouble : what the scheduler found
    stops : the table of the lowered kernel
    names : of the threads and blocks
    """
    thread, code = trouble.waiting
    other, other_code = trouble.other
    here, there = stops[stop_number(code)], stops[stop_number(other_code)]
    one, two = names.thread(thread), names.thread(other)
    start = f"{here.place}: in {names.block_of(trouble.block)} {one}"
    lines = [here.place.line]
    if other_code > 0:
        lines.append(there.place.line)
    if trouble.kind == "divergent-barrier":
        sentence = (
            f"{start} waits at this barrier "
            f"{_standing(trouble, here, there, two)}. Every thread of the "
            "block must reach the same barrier, on the same trip of the "
            "loops around it: take it out of the condition, and guard the "
            "loads and stores instead."
        )
    elif other == thread:
        sentence = (
            f"{start} calls {here.op}, and {trouble.detail}. Name every lane "
            "that makes the call."
        )
    else:
        elsewhere = trouble.detail or _elsewhere(other_code, here, there)
        sentence = (
            f"{start} waits in {here.op} for {two}, which its mask names, but "
            f"{two} {elsewhere}. Let all lanes of the mask make the call, "
            "or name only those that do."
        )
    return Hazard(
        trouble.kind,
        sentence,
        threads=(thread, other),
        blocks=(trouble.block,),
        lines=tuple(lines),
    )


def _standing(trouble, here, there, two):
    """Say where two threads stand that do not wait at the same barrier."""
    code, other_code = trouble.waiting[1], trouble.other[1]
    if here is not there:
        return f"while {two} {_elsewhere(other_code, here, there)}"
    for loop, trip, other_trip in zip(  # noqa: B007 - used after the loop
        here.loops,
        trips_of(code, here),
        trips_of(other_code, here),
        strict=True,
    ):
        if trip != other_trip:
            break
    return (
        f"on trip {trip} of the loop at line {loop.line} while {two} "
        f"waits at it on trip {other_trip}"
    )


def _elsewhere(code, here, there):
    """Say where the other thread is."""
    if code > 0 and here.place == there.place:
        return f"waits at it in another call of `{here.place.function}`"
    if code > 0:
        return f"waits at {there.place}"
    if code < 0:
        return f"has left the kernel at {there.place}"
    return "has already finished the kernel"


def atomic_advice(label, place):
    """Return what to write instead of an update by several threads.

    Parameters
    ----------
    label : name of the array
    place : the line that stores the new value
    """
    name = atomic_for(place.text)
    what = f"cuda.atomic.{name}({label}, ...)"
    if name is None:
        what = "an operation of cuda.atomic, such as add or max"
    return (
        "Both threads read this element, change it and write it back, so one "
        f"change is lost, and a barrier would not help: use {what} at line "
        f"{place.line}, or let one thread own each element"
    )


def atomic_for(text):
    """Return the atomic operation that does what a line does, or None.

    Examples
    --------
    >>> atomic_for("x[i] += v")
    'add'
    >>> atomic_for("x[i] = max(v, x[i])")
    'max'
    """
    try:
        (node,) = ast.parse(text).body
    except (SyntaxError, ValueError):
        return None
    signs = {ast.Add: "add", ast.Sub: "sub"}
    if isinstance(node, ast.AugAssign):
        return signs.get(type(node.op))
    if not isinstance(node, ast.Assign):
        return None
    target, value = ast.unparse(node.targets[0]), node.value
    if isinstance(value, ast.BinOp):
        operands = [value.left]
        operands += [value.right] if isinstance(value.op, ast.Add) else []
        name = signs.get(type(value.op))
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        operands, name = value.args, value.func.id
    else:
        return None
    named = any(ast.unparse(operand) == target for operand in operands)
    return name if named and name in ("add", "sub", "max", "min") else None
