"""What a recording remarks on without calling it wrong."""

from dataclasses import dataclass

import numpy as np

# Below this, the worst case costs little and a note would only distract.
FEWEST_LANES = 8
WORTH_MENTIONING = 2.0


@dataclass(frozen=True)
class Note:
    """A remark: the kernel may be slow, or hard to get right.

    Attributes
    ----------
    kind : one word, such as "strided-access"
    line : the source line
    sentence : what was seen and what to do
    """

    kind: str
    line: int
    sentence: str

    def __str__(self):
        """Return the kind and the sentence."""
        return f"{self.kind}: {self.sentence}"


def source_notes(lowered):
    """Return the notes that need no run, only the source."""
    return [
        Note(kind, place.line, sentence)
        for (kind, place), sentence in lowered.notes.items()
    ]


def overlap_notes(pairs):
    """Return a note for every pair of arguments that share memory in part."""
    return [
        Note(
            "overlapping-arguments",
            0,
            f"the arguments `{one}` and `{other}` overlap without being the "
            "same array: a store to one may change the other. Traffic is "
            "counted under each name.",
        )
        for one, other in pairs
    ]


def access_notes(events, requests):
    """Return a note per line whose warps use memory badly.

    Parameters
    ----------
    events : the accesses
    requests : the warp requests, by name of the memory
    """
    notes = []
    for name, made in requests.items():
        memory = events.memory[name]
        lines = events.line_of_site[made.site]
        for number in np.unique(lines):
            mine = lines == number
            lanes = made.lanes[mine].mean()
            if lanes < FEWEST_LANES:
                continue
            cost, least = made.cost[mine].mean(), made.least[mine].mean()
            if cost < WORTH_MENTIONING * least:
                continue
            notes.append(
                _note(events.sites[number], memory, lanes, cost, least)
            )
    return notes


def _note(site, memory, lanes, cost, least):
    """Say how badly one line uses memory."""
    if memory.space == "global":
        return Note(
            "strided-access",
            site.place.line,
            f"{site.place}: a warp's {lanes:.0f} lanes touch {cost:.1f} "
            f"sectors of 32 bytes of `{memory.label}` at once, where "
            f"neighbours would need {least:.1f}. Let threadIdx.x run along "
            "the last axis.",
        )
    return Note(
        "bank-conflict",
        site.place.line,
        f"{site.place}: a warp's {lanes:.0f} lanes need {cost:.1f} passes "
        f"over the banks of `{memory.label}`, where 1 would do. Make the "
        "last axis one element longer than the tile.",
    )
