"""How much memory a kernel touches: measured, and by formula.

`measure` counts the accesses of a recording. The formulas below count the
same accesses on paper, for the naive and the flash forward pass; a kernel
is right when the two agree exactly.
"""

from dataclasses import asdict, dataclass

import numpy as np

from attention_lab.gpu.warp_requests import warp_requests


@dataclass(frozen=True)
class ArrayTraffic:
    """What was done to one piece of memory.

    Attributes
    ----------
    array, space : which memory
    reads, writes, atomics : how many elements, repeats counted
    bytes_read, bytes_written : the same in bytes; an atomic does both
    requests : warp requests
    sectors : 32-byte sectors of all requests; global memory only
    bank_conflicts : passes beyond the first of all requests; shared only
    worst_bank_conflict : passes of the worst request; 1 is none
    most_per_thread : accesses of the busiest thread
    """

    array: str
    space: str
    reads: int = 0
    writes: int = 0
    atomics: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    requests: int = 0
    sectors: int = 0
    bank_conflicts: int = 0
    worst_bank_conflict: int = 0
    most_per_thread: int = 0

    @property
    def sectors_per_request(self):
        """Mean sectors of a request: 4 is ideal for 32 lanes of float32."""
        return self.sectors / self.requests if self.requests else 0.0


class Traffic:
    """The traffic of a recording, by array.

    Parameters
    ----------
    rows : one `ArrayTraffic` per piece of memory that was touched
    most_per_thread : accesses of the busiest thread, by space
    """

    def __init__(self, rows, most_per_thread):
        self.rows = tuple(rows)
        self.most_per_thread = dict(most_per_thread)

    def __getitem__(self, array):
        """Return the row of an array, by name."""
        for row in self.rows:
            if row.array == array:
                return row
        return ArrayTraffic(array, "global")

    def __iter__(self):
        """Iterate over the rows."""
        return iter(self.rows)

    def total(self, field, space="global"):
        """Return the sum of one field over a memory space."""
        return sum(getattr(r, field) for r in self.rows if r.space == space)

    def counts(self, space="global"):
        """Return {array: (reads, writes)}: what the formulas give."""
        return {
            r.array: (r.reads, r.writes) for r in self.rows if r.space == space
        }

    def as_data(self):
        """Return the traffic as lists and numbers."""
        return {
            "arrays": [asdict(row) for row in self.rows],
            "most_per_thread": self.most_per_thread,
        }


def measure(events):
    """Count the accesses of a recording.

    Parameters
    ----------
    events : the accesses

    Returns
    -------
    A `Traffic`, and the warp requests by name of the memory.
    """
    requests = {}
    together = {}
    for name, part in events.parts.items():
        memory = events.memory[name]
        if memory.space != "local":
            requests[name] = warp_requests(part, memory)
        # A function that is called twice has its local arrays twice.
        together.setdefault((memory.label, memory.space), []).append(name)
    rows = [
        _row(label, space, names, events, requests)
        for (label, space), names in together.items()
    ]
    spaces = {space: [] for space in ("global", "shared", "local")}
    for name, part in events.parts.items():
        spaces[events.memory[name].space].append(part)
    busiest = {space: _busiest(parts) for space, parts in spaces.items()}
    return Traffic(rows, busiest), requests


def _row(label, space, names, events, requests):
    """Count what was done to the memory of one name."""
    counts = np.zeros(3, np.int64)
    moved = np.zeros(3, np.int64)
    for name in names:
        kinds = events.parts[name].of_sites(_kind)
        many = np.bincount(kinds, minlength=3)
        counts += many
        moved += many * events.memory[name].itemsize
    costs = [requests[name].cost for name in names if name in requests]
    cost = np.concatenate(costs) if costs else np.empty(0, np.int64)
    is_shared = space == "shared" and len(cost)
    reads, atomics, writes = map(int, counts)
    return ArrayTraffic(
        label,
        space,
        reads,
        writes,
        atomics,
        bytes_read=int(moved[0] + moved[1]),
        bytes_written=int(moved[2] + moved[1]),
        requests=len(cost),
        sectors=int(cost.sum()) if space == "global" else 0,
        bank_conflicts=int((cost - 1).sum()) if is_shared else 0,
        worst_bank_conflict=int(cost.max()) if is_shared else 0,
        most_per_thread=_busiest([events.parts[name] for name in names]),
    )


def _kind(site):
    """Return 0 for a load, 1 for an atomic operation, 2 for a store."""
    return {"read": 0, "write": 2}.get(site.kind, 1)


def _busiest(parts):
    """Return the accesses of the busiest thread in some events."""
    if not parts:
        return 0
    threads = max(int(part.thread.max()) for part in parts) + 1
    blocks = max(int(part.block.max()) for part in parts) + 1
    total = np.zeros(threads * blocks, np.int64)
    for part in parts:
        who = part.block.astype(np.int64) * threads + part.thread
        total += np.bincount(who, minlength=len(total))
    return int(total.max())


def visible_keys(L, S, causal):
    """Return how many (query, key) pairs a mask leaves.

    Without a mask every query sees every key: L·S. With PyTorch's causal
    mask query l sees the keys 0 … l, of which there are min(l + 1, S);
    the sum over l is n(n + 1)/2 + (L − n)·S with n = min(L, S).

    Examples
    --------
    >>> visible_keys(3, 5, causal=True)  # 1 + 2 + 3
    6
    >>> visible_keys(4, 2, causal=True)  # 1 + 2 + 2 + 2
    7
    """
    if not causal:
        return L * S
    n = min(L, S)
    return n * (n + 1) // 2 + (L - n) * S


def naive_forward_traffic(L, S, D, B=1, H=1, causal=False):
    """Count the elements that the three naive kernels move.

    Scores, one thread per score: reads D of the query and D of the key if
    the mask shows the key, and writes one score either way (−∞ where it
    does not). With P = visible_keys(L, S) pairs in each of B·H heads:

        query  P·D reads · key  P·D reads · scores  L·S writes

    Softmax, one thread per row: one pass for the maximum, one for the sum
    and one that writes the weights:

        scores  3·L·S reads · weights  L·S writes

    Weighted sum, one thread per output element: reads a whole row of
    weights and a whole column of values, writes one element:

        weights  L·S·D reads · value  L·S·D reads · output  L·D writes

    Returns
    -------
    For each kernel, {array: (reads, writes)}.

    Examples
    --------
    >>> naive_forward_traffic(L=2, S=3, D=4)["scores"]["query"]
    (24, 0)
    """
    heads = B * H
    pairs = heads * visible_keys(L, S, causal)
    square = heads * L * S
    return {
        "scores": {
            "query": (pairs * D, 0),
            "key": (pairs * D, 0),
            "scores": (0, square),
        },
        "softmax": {"scores": (3 * square, 0), "weights": (0, square)},
        "weighted_sum": {
            "weights": (square * D, 0),
            "value": (square * D, 0),
            "output": (0, heads * L * D),
        },
    }


def key_rows_loaded(L, S, TILE_L, TILE_S, causal=False):
    """Count the rows of K that all blocks of one head load.

    One block handles TILE_L queries and walks over the keys in tiles of
    TILE_S; it loads whole tiles, cut at S. Without a mask each of the
    ⌈L/TILE_L⌉ blocks loads all S rows. With a causal mask the block of
    queries up to l (exclusive) needs the keys before min(l, S) and so
    loads the tiles that cover them: min(S, ⌈min(l, S)/TILE_S⌉·TILE_S).

    Examples
    --------
    >>> key_rows_loaded(L=8, S=8, TILE_L=4, TILE_S=4)
    16
    >>> key_rows_loaded(L=8, S=8, TILE_L=4, TILE_S=4, causal=True)
    12
    """
    rows = 0
    for first in range(0, L, TILE_L):
        last = min(first + TILE_L, L)
        needed = min(last, S) if causal else S
        rows += min(S, -(-needed // TILE_S) * TILE_S)
    return rows


def flash_forward_traffic(
    L, S, D, TILE_L, TILE_S, B=1, H=1, causal=False, D_v=None
):
    """Count the elements that a flash kernel moves to and from memory.

    One block per TILE_L queries of one head. The query is read once and
    kept: L·D. Each block brings its tiles of K and V into shared memory
    once, R = key_rows_loaded(…) rows per head: R·D and R·D_v reads. The
    output (L·D_v) and its log-sum-exp (L) are written once. The L·S scores
    never leave the block, which is the point. How the threads of a block
    share the work changes nothing here: the formula holds for every rung.
    D_v is D unless it is given.

    With grouped queries (H query heads share H_kv key heads) every query
    head still loads its own tiles, so the counts do not depend on H_kv.

    Returns
    -------
    {array: (reads, writes)}.

    Examples
    --------
    >>> flash_forward_traffic(L=64, S=64, D=16, TILE_L=16, TILE_S=16)["key"]
    (4096, 0)
    """
    heads = B * H
    D_v = D if D_v is None else D_v
    rows = heads * key_rows_loaded(L, S, TILE_L, TILE_S, causal)
    return {
        "query": (heads * L * D, 0),
        "key": (rows * D, 0),
        "value": (rows * D_v, 0),
        "output": (0, heads * L * D_v),
        "log_sum_exp": (0, heads * L),
    }


def flash_skipped_traffic(L, S, D, TILE_L, TILE_S, B=1, H=1, D_v=None):
    """Count the reads that a causal flash kernel saves by skipping tiles.

    A tile of keys that lies in the future of all queries of a block is not
    loaded. With L = S = n·TILE and square tiles, block i of n skips the
    n − 1 − i tiles behind its diagonal one: n(n − 1)/2 of n² in all.

    Returns
    -------
    {array: reads}

    Examples
    --------
    >>> flash_skipped_traffic(L=8, S=8, D=3, TILE_L=2, TILE_S=2)["key"]
    36
    >>> 6 * 2 * 3  # of 16 tiles 6, with 2 keys of 3 numbers each
    36
    """
    heads = B * H
    rows = heads * (
        key_rows_loaded(L, S, TILE_L, TILE_S)
        - key_rows_loaded(L, S, TILE_L, TILE_S, causal=True)
    )
    return {"key": rows * D, "value": rows * (D if D_v is None else D_v)}
