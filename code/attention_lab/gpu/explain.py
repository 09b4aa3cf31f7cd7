"""Hazards, and the sentences that explain those of a stuck block."""

from dataclasses import dataclass


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


def explain_trouble(trouble, stops):
    """Return the hazard of a block whose threads wait for ever.

    Parameters
    ----------
    trouble : what the scheduler found
    stops : the table of the lowered kernel
    """
    thread, stop = trouble.waiting
    other, other_stop = trouble.other
    here = stops[stop]
    if trouble.detail:
        elsewhere = trouble.detail
    elif other_stop:
        elsewhere = f"waits at {stops[other_stop].place}"
    else:
        elsewhere = "has already finished the kernel"
    lines = [here.place.line]
    if other_stop:
        lines.append(stops[other_stop].place.line)
    if trouble.kind == "divergent-barrier":
        sentence = (
            f"{here.place}: in block {trouble.block} thread {thread} waits at "
            f"this barrier while thread {other} {elsewhere}. Every thread of "
            "the block must reach the same barrier: take it out of the "
            "condition, and guard the loads and stores instead."
        )
    elif other == thread:
        sentence = (
            f"{here.place}: in block {trouble.block} thread {thread} calls "
            f"{here.op}, and {elsewhere}. Name every lane that makes the call."
        )
    else:
        sentence = (
            f"{here.place}: in block {trouble.block} thread {thread} waits in "
            f"{here.op} for thread {other}, which its mask names, but thread "
            f"{other} {elsewhere}. Let all lanes of the mask make the call, "
            "or name only those that do."
        )
    return Hazard(
        trouble.kind,
        sentence,
        threads=(thread, other),
        blocks=(trouble.block,),
        lines=tuple(lines),
    )
