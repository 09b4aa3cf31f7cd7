"""Run the threads of one block, each to its next barrier, in a fixed order.

The order in which the threads take their turns is chosen, so a run can be
repeated exactly. Who has seen whose work is written down as it happens:
a block barrier begins a new epoch, and a warp operation advances the clocks
of the lanes that took part. The hazards are found from that afterwards.

What CUDA asks for, and what is called a hazard here:

- "`__syncthreads()` is allowed in conditional code but only if the
  conditional evaluates identically across the entire thread block" (CUDA
  C++ Programming Guide, Synchronization Functions). So the threads must
  stand at the same barrier, in the same call of a function, and on the same
  trip of every loop around it. Trips are counted per loop; the values of
  the loops' variables may differ.
- "All non-exited threads named in mask must execute the same intrinsic with
  the same mask, or the result is undefined" (the same, Warp Shuffle and
  Warp Vote Functions, ``__syncwarp``). The trip does not matter here: lanes
  that reach the call on different trips wait for each other. A lane has
  exited if it took a ``return`` that stands before the call, as in
  ``if i >= n: return``. A lane that ran past the call, to the end of the
  kernel or to a later ``return``, had not exited when the others needed it:
  whether a GPU sees it gone in time is luck, so this is a hazard. To read
  the value of a lane that has exited is one too (`warp.exchange`).
"""

from dataclasses import dataclass, field

from attention_lab.gpu import warp
from attention_lab.gpu.device_names import BLOCK_BARRIERS
from attention_lab.gpu.limits import WARP_SIZE
from attention_lab.gpu.python_dialect import unwritten
from attention_lab.gpu.sites import STOP_MASK, stop_number


class Boxes:
    """Where threads leave values for each other, one place per thread."""

    def __init__(self, threads):
        self.value = [None] * threads
        self.operand = [0] * threads
        self.mask = [warp.FULL_MASK] * threads
        self.result = [None] * threads

    def select(self, dtype):
        """Choose where values of this type are: all are in one place."""


@dataclass
class Trouble:
    """A wait that would never end, or end differently on every GPU.

    Attributes
    ----------
    kind : "divergent-barrier" or "warp-divergent-shuffle"
    block : number of the block
    waiting : (thread, where it stands) of one that waits, see `sites`
    other : the same of one that does not, or waits elsewhere
    detail : what the other did, in words
    """

    kind: str
    block: int
    waiting: tuple
    other: tuple
    detail: str = ""


@dataclass
class Segments:
    """Which thread ran when: one row per stretch between two stops."""

    block: list = field(default_factory=list)
    thread: list = field(default_factory=list)
    epoch: list = field(default_factory=list)
    clock: list = field(default_factory=list)
    end: list = field(default_factory=list)
    # Vector clocks of a warp's lanes; number 0 is the beginning.
    clocks: dict = field(default_factory=lambda: {(0,) * WARP_SIZE: 0})

    def number_of(self, clock):
        """Return the number of a vector clock."""
        return self.clocks.setdefault(clock, len(self.clocks))


class BlockRun:
    """The threads of one block while they run.

    Parameters
    ----------
    generators : one per thread
    order : thread numbers in the order of their turns
    stops : the table of the lowered kernel
    boxes : what the threads exchange
    block : number of the block
    segments, log_length : where and how far events were written, or None
    """

    def __init__(
        self, generators, order, stops, boxes, block, segments, log_length
    ):
        self.generators = generators
        self.order = order
        self.stops = stops
        self.boxes = boxes
        self.block = block
        self.segments = segments
        self.log_length = log_length
        self.epoch = 0
        self.at = [0] * len(generators)
        self.current = 0
        self.trouble = None
        self.strays = []
        self.clocks = [(0,) * WARP_SIZE] * len(generators)

    def run(self):
        """Run to the end; afterwards `trouble` says whether it got there."""
        runnable = self.order
        while runnable and self.trouble is None:
            self.advance(runnable)
            runnable = self.release()

    def advance(self, threads):
        """Let each thread run to its next stop."""
        generators, at, segments = self.generators, self.at, self.segments
        if segments is None:
            for thread in threads:
                self.current = thread
                at[thread] = next(generators[thread], 0)
            return
        for thread in threads:
            self.current = thread
            at[thread] = next(generators[thread], 0)
            segments.block.append(self.block)
            segments.thread.append(thread)
            segments.epoch.append(self.epoch)
            segments.clock.append(segments.number_of(self.clocks[thread]))
            segments.end.append(self.log_length())

    def release(self):
        """Return the threads that may go on, in order."""
        at = self.at
        first = at[0]
        if at.count(first) == len(at):
            if first <= 0:
                return []
            stop = first & STOP_MASK
            if self.stops[stop].op in BLOCK_BARRIERS:
                self.pass_barrier(stop)
                return self.order
        released = self.release_warps()
        if released:
            return [t for t in self.order if t in released]
        if max(at) <= 0:
            return []
        self.diagnose()
        return []

    def is_barrier(self, code):
        """Say whether a thread waits for its whole block."""
        return self.stops[stop_number(code)].op in BLOCK_BARRIERS

    def pass_barrier(self, stop):
        """Let the whole block pass, with the result of its vote."""
        op = self.stops[stop].op
        self.epoch += 1
        if self.segments is not None:
            self.clocks = [(0,) * WARP_SIZE] * len(self.at)
        if op == "syncthreads":
            return
        self.boxes.select(None)
        agree = sum(map(bool, self.boxes.value))
        result = {
            "syncthreads_count": agree,
            "syncthreads_and": int(agree == len(self.at)),
            "syncthreads_or": int(agree > 0),
        }[op]
        self.boxes.result[:] = [result] * len(self.at)

    # -- warps ----------------------------------------------------------

    def release_warps(self):
        """Complete every warp operation whose lanes have all arrived."""
        released = set()
        for first in range(0, len(self.at), WARP_SIZE):
            codes = self.at[first : first + WARP_SIZE]
            if self.is_whole(first, codes):
                self.complete(codes[0], first, range(len(codes)))
                released.update(range(first, first + len(codes)))
                continue
            waiting = {
                (code, int(self.boxes.mask[first + lane]) & warp.FULL_MASK)
                for lane, code in enumerate(codes)
                if code > 0 and not self.is_barrier(code)
            }
            for stop, mask in sorted(waiting):
                lanes = [
                    lane
                    for lane in warp.lanes_of(mask)
                    if lane < len(codes) and not has_exited(codes[lane], stop)
                ]
                arrived = [
                    lane
                    for lane, code in enumerate(codes)
                    if code == stop
                    and int(self.boxes.mask[first + lane]) & warp.FULL_MASK
                    == mask
                ]
                if arrived == lanes:
                    self.complete(stop, first, lanes)
                    released.update(first + lane for lane in lanes)
        return released

    def is_whole(self, first, codes):
        """Say whether all lanes wait at one operation that names them all.

        Most operations are of this kind: it saves looking at every lane.
        """
        code = codes[0]
        if code <= 0 or codes.count(code) < len(codes) or self.is_barrier(code):
            return False
        masks = self.boxes.mask[first : first + len(codes)]
        return all(int(m) & warp.FULL_MASK == warp.FULL_MASK for m in masks)

    def complete(self, stop, first, lanes):
        """Carry out one warp operation."""
        known = self.stops[stop]
        junk = 0 if known.dtype is None else unwritten(known.dtype)
        strays = []
        self.boxes.select(known.dtype)
        warp.exchange(known.op, first, lanes, self.boxes, junk, strays)
        for lane, source in strays:
            everyone = len(strays) == len(lanes)
            self.strays.append((stop, first + lane, first + source, everyone))
        if self.segments is None:
            return
        clocks = {self.clocks[first + lane] for lane in lanes}
        joined = [max(parts) for parts in zip(*clocks, strict=True)]
        for lane in lanes:
            joined[lane] += 1
        joined = tuple(joined)
        for lane in lanes:
            self.clocks[first + lane] = joined

    # -- when nobody can go on ------------------------------------------

    def diagnose(self):
        """Say why the threads wait for ever."""
        at = self.at
        for thread, stop in enumerate(at):
            if stop <= 0 or self.is_barrier(stop):
                continue
            first = thread - thread % WARP_SIZE
            mask = int(self.boxes.mask[thread]) & warp.FULL_MASK
            if not mask >> (thread - first) & 1:
                detail = "its mask does not name its own lane"
                self.blame("warp-divergent-shuffle", thread, thread, detail)
                return
            for lane in warp.lanes_of(mask):
                other = first + lane
                if other < len(at) and not (
                    at[other] == stop or has_exited(at[other], stop)
                ):
                    self.blame("warp-divergent-shuffle", thread, other)
                    return
            for other in range(first, min(first + WARP_SIZE, len(at))):
                if at[other] == stop and self.boxes.mask[other] != mask:
                    detail = "is at the same line with another mask"
                    self.blame("warp-divergent-shuffle", thread, other, detail)
                    return
        waiting = next(t for t in self.order if at[t] > 0)
        other = next(t for t in self.order if at[t] != at[waiting])
        self.blame("divergent-barrier", waiting, other)

    def blame(self, kind, waiting, other, detail=""):
        """Write down the trouble."""
        self.trouble = Trouble(
            kind,
            self.block,
            (waiting, self.at[waiting]),
            (other, self.at[other]),
            detail,
        )


def has_exited(code, stop):
    """Say whether a lane left the kernel before a warp operation.

    Parameters
    ----------
    code : where the lane stands
    stop : number of the operation; numbers rise through the source
    """
    return -stop < code < 0
