"""How long the GPU works on something: CUDA events, medians, in turns.

Everything is called once first: that compiles it and is not counted. A second
call, by the clock, tells how many rounds fit into the time. In a round each
candidate runs once, between two events, so that all see the same machine.
Before each run a large buffer is overwritten: nothing the candidate reads is
in the caches then, and while the GPU is busy with it the host prepares the
launch, which therefore is not part of the time.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from numba import float32

from attention_lab.steps.matmul_tile import Tile
from attention_lab.steps.tiled_matmul import make_naive_kernel

LEAST_ROUNDS, MOST_ROUNDS = 5, 100
#: More than the caches of any GPU; overwriting it so often takes longer than
#: the launches of one candidate (0.4 ms at 5 TB/s).
BUFFER_BYTES, OVERWRITES = 2**29, 4
METHOD = (
    "CUDA events on torch's default stream; one call to compile and warm up, "
    f"then medians of {LEAST_ROUNDS} to {MOST_ROUNDS} rounds, as many as the "
    "time allows; in a round every candidate runs once, with cold caches, and "
    "without the time of its launch"
)


class Times(NamedTuple):
    """Medians in milliseconds by name, and of how many rounds."""

    ms: dict[str, float]
    rounds: int


def medians(runs: dict[str, Callable[[], Any]], seconds: float) -> Times:
    """Time all candidates in turns; needs a GPU and torch with CUDA."""
    import torch

    buffer = torch.empty(BUFFER_BYTES, dtype=torch.uint8, device="cuda")

    def prepare() -> None:
        for _ in range(OVERWRITES):
            buffer.zero_()

    for run in runs.values():
        run()
    torch.cuda.synchronize()
    began = time.monotonic()
    for run in runs.values():
        prepare()
        run()
    torch.cuda.synchronize()
    fit = int(seconds / max(time.monotonic() - began, 1e-6))
    rounds = min(max(fit, LEAST_ROUNDS), MOST_ROUNDS)

    def event() -> Any:
        made = torch.cuda.Event(enable_timing=True)
        made.record()
        return made

    pairs: dict[str, list[tuple[Any, Any]]] = {name: [] for name in runs}
    for _ in range(rounds):
        for name, run in runs.items():
            prepare()
            start = event()
            run()
            pairs[name].append((start, event()))
    torch.cuda.synchronize()
    found = {
        name: statistics.median(start.elapsed_time(end) for start, end in each)
        for name, each in pairs.items()
    }
    return Times(found, rounds)


class Launch(NamedTuple):
    """A kernel with its grid and block, and the arguments of one launch."""

    kernel: Any
    args: tuple[Any, ...]

    def again(self) -> None:
        """Launch the kernel once more, on the same arrays."""
        self.kernel(*self.args)


@contextmanager
def launches() -> Iterator[list[Launch]]:
    """Keep every launch in the block, so that it can be made again.

    What remains to be timed is the kernel: no check of the input, no output to
    allocate. Works with numba's kernels and with the recorder's.
    """
    kept: list[Launch] = []
    kind = type(make_naive_kernel(float32, Tile(32, 8)))
    configure = kind.__getitem__

    def keep(self: Any, sizes: Any) -> Callable[..., None]:
        kernel = configure(self, sizes)

        def call(*args: Any) -> None:
            kept.append(Launch(kernel, args))
            kernel(*args)

        return call

    kind.__getitem__ = keep
    try:
        yield kept
    finally:
        kind.__getitem__ = configure


def launches_of(call: Callable[[], Any]) -> list[Launch]:
    """Return the launches that a call makes."""
    with launches() as kept:
        call()
    return kept


def replay(kept: list[Launch]) -> Callable[[], None]:
    """Return a function that makes all launches again, in their order."""

    def run() -> None:
        for launch in kept:
            launch.again()

    return run
