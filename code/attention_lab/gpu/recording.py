"""A recording: what one launch did, as data, as JSON, and to read."""

import json
from dataclasses import asdict, dataclass, field, replace

import numpy as np

from attention_lab.gpu.events import Events
from attention_lab.gpu.traffic import Traffic
from attention_lab.gpu.walk import (
    LINE_COLUMNS,
    REQUEST_COLUMNS,
    by_line,
    by_request,
)

SCHEMA = "recording.v1"
# With more accesses than this, JSON holds them by tile unless told otherwise.
MOST_SINGLE_ACCESSES = 20_000
_WALKS = {
    "request": (REQUEST_COLUMNS, by_request),
    "line": (LINE_COLUMNS, by_line),
}


@dataclass(frozen=True)
class Recording:
    """What one launch of a kernel did to memory.

    Attributes
    ----------
    kernel : its name
    source_sha256 : of its source text
    grid, block : the launch
    shared_bytes : dynamic shared memory of each block
    order, seed : in which order threads took their turns
    engine : "python" or "compiled"
    events : every access, or None if no GPU would start the launch
    traffic : the accesses, counted by array
    hazards : what makes the kernel wrong
    notes : what is worth knowing, never a failure
    formula : the traffic expected, {array: (reads, writes)}, or None
    """

    kernel: str
    source_sha256: str
    grid: tuple
    block: tuple
    shared_bytes: int
    order: str
    seed: int
    engine: str
    events: Events | None
    traffic: Traffic
    hazards: tuple = ()
    notes: tuple = ()
    formula: dict | None = field(default=None)

    @property
    def is_clean(self):
        """Whether no hazard was found."""
        return not self.hazards

    @property
    def kinds(self):
        """The kinds of the hazards, each once."""
        return tuple(dict.fromkeys(h.kind for h in self.hazards))

    @property
    def matches_formula(self):
        """Whether the global traffic is the formula's; None without one."""
        if self.formula is None:
            return None
        zero = dict.fromkeys(self.formula, (0, 0))
        return {**zero, **self.traffic.counts()} == self.formula

    def against(self, formula):
        """Return the recording together with the traffic it should have.

        Parameters
        ----------
        formula : {array: (reads, writes)}, elements of global memory
        """
        return replace(self, formula={k: tuple(v) for k, v in formula.items()})

    def __str__(self):
        """Return the recording as a page of text."""
        lines = [
            f"{self.kernel}: grid {self.grid}, block {self.block}, "
            f"{0 if self.events is None else len(self.events)} accesses, "
            f"threads {self.order}"
        ]
        for row in self.traffic:
            extra = ""
            if row.space == "global":
                extra = f", {row.sectors_per_request:.1f} sectors/request"
            elif row.space == "shared":
                extra = f", worst bank conflict {row.worst_bank_conflict}"
            atomics = f", {row.atomics} atomics" if row.atomics else ""
            lines.append(
                f"  {row.space:6} {row.array}: {row.reads} reads, "
                f"{row.writes} writes{atomics}{extra}"
            )
        if self.formula is not None:
            equal = "equals" if self.matches_formula else "DIFFERS FROM"
            lines.append(f"  global traffic {equal} the formula")
        lines += [f"  hazard {hazard}" for hazard in self.hazards]
        if not self.hazards:
            lines.append("  no hazard found in this run")
        lines += [f"  note {note}" for note in self.notes]
        return "\n".join(lines)

    def to_data(self, granularity="auto"):
        """Return the recording as dictionaries, lists and numbers.

        Parameters
        ----------
        granularity : "access" keeps every access; "tile" keeps, for each
            block, stretch between barriers and site, the number of
            accesses and the box of indices; "request" puts the accesses of
            a warp together, and "line" those of a block to one line, both
            in the order of the program (see `walk`); "auto" decides by size,
            between the first two

        Notes
        -----
        Schema ``recording.v1``. ``memory`` and ``sites`` are tables;
        ``sites[i].memory`` and the events refer to them by position. A
        site is one access as it is written: its ``column`` is that in its
        ``text``, from 1.
        A function that is called twice has its sites twice.
        ``events.columns`` names the columns of ``events.data``, which is a
        list of columns, not of rows: it compresses better. At granularity
        "access" these are site, element (row-major; −1 outside), thread,
        block, epoch; at "tile" block, epoch, site, count, threads, and
        ``low`` and ``high`` (lists of indices, inclusive).
        """
        data = {
            "schema": SCHEMA,
            "kernel": self.kernel,
            "source_sha256": self.source_sha256,
            "grid": list(self.grid),
            "block": list(self.block),
            "shared_bytes": self.shared_bytes,
            "order": self.order,
            "seed": self.seed,
            "engine": self.engine,
            "traffic": self.traffic.as_data(),
            "hazards": [asdict(hazard) for hazard in self.hazards],
            "notes": [asdict(note) for note in self.notes],
            "formula": self.formula,
            "verdict": {
                "clean": self.is_clean,
                "traffic_equals_formula": self.matches_formula,
            },
        }
        if self.events is not None:
            data.update(_tables(self.events))
            data["events"] = _events_data(self.events, granularity)
        return data

    def to_json(self, granularity="auto"):
        """Return `to_data` as one line of JSON.

        Parameters
        ----------
        granularity : see `to_data`
        """
        return json.dumps(
            self.to_data(granularity), separators=(",", ":"), default=_plain
        )


def _plain(value):
    """Turn a NumPy number into a Python one, for JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} does not belong in a recording")


def _tables(events):
    """Return the memory and the sites as tables."""
    names = list(events.memory)
    return {
        "memory": [
            {
                "label": m.label,
                "space": m.space,
                "shape": list(m.shape),
                "dtype": str(m.dtype),
            }
            for m in events.memory.values()
        ],
        "sites": [
            {
                "memory": names.index(s.name),
                "kind": s.kind,
                "function": s.place.function,
                "line": s.place.line,
                "column": s.column,
                "text": s.place.text,
            }
            for s in events.sites
        ],
    }


def _events_data(events, granularity):
    """Return the accesses one by one, or by tile."""
    if granularity in _WALKS:
        columns, table = _WALKS[granularity]
        return {
            "granularity": granularity,
            "columns": list(columns),
            "data": table(events),
        }
    if granularity not in ("auto", "access", "tile"):
        raise ValueError(
            f"granularity is {granularity!r}; it can be 'auto', 'access', "
            "'tile', 'request' or 'line'"
        )
    small = len(events) <= MOST_SINGLE_ACCESSES
    if granularity == "access" or (granularity == "auto" and small):
        columns = ("site", "element", "thread", "block", "epoch")
        return {
            "granularity": "access",
            "columns": list(columns),
            "data": [getattr(events, name).tolist() for name in columns],
        }
    return {
        "granularity": "tile",
        "columns": [
            "block",
            "epoch",
            "site",
            "count",
            "threads",
            "low",
            "high",
        ],
        "data": _by_tile(events),
    }


def _by_tile(events):
    """Return one row per block, epoch and site, as columns."""
    inside = np.flatnonzero(events.element >= 0)
    order = inside[
        np.lexsort(
            (events.site[inside], events.epoch[inside], events.block[inside])
        )
    ]
    columns = [[] for _ in range(7)]
    if not len(order):
        return columns
    keys = [events.block[order], events.epoch[order], events.site[order]]
    change = np.zeros(len(order), bool)
    change[0] = True
    for key in keys:
        change[1:] |= key[1:] != key[:-1]
    starts = np.flatnonzero(change)
    for start, end in zip(starts, [*starts[1:], len(order)], strict=True):
        rows = order[start:end]
        site = int(events.site[rows[0]])
        shape = events.memory[events.sites[site].name].shape
        indices = np.unravel_index(events.element[rows], shape)
        values = (
            int(events.block[rows[0]]),
            int(events.epoch[rows[0]]),
            site,
            len(rows),
            len(np.unique(events.thread[rows])),
            [int(i.min()) for i in indices],
            [int(i.max()) for i in indices],
        )
        for column, value in zip(columns, values, strict=True):
            column.append(value)
    return columns
