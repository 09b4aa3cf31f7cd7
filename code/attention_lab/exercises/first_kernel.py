"""Checks of the exercises in the chapter "Your first kernel"."""

import numbers
from typing import Any

import numpy as np
from numba import float32

from attention_lab.exercises import answers
from attention_lab.exercises.exercise import Exercise
from attention_lab.exercises.parsons import Parsons
from attention_lab.steps import first_kernel as step
from attention_lab.steps.launch import cdiv
from attention_lab.steps.pretend_gpu import PretendGPU
from attention_lab.verify import Launch, verify_kernel
from attention_lab.verify.report import Check

THREADS = 8


def _normal(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


# -- the guard -------------------------------------------------------------


def _launch_halve(L: int) -> Launch:
    return Launch(
        cdiv(L, THREADS), THREADS, (np.zeros(L, np.float32), _normal(L))
    )


def _examine_guard(answer: Any) -> tuple[Check, ...]:
    return verify_kernel(
        answer,
        _launch_halve,
        lambda x_L: x_L / 2,
        sizes=[{"L": L} for L in (1, 7, 8, 9, 19)],
        only=("no hazard", "output written", "values", "stays in float32"),
        isolate=False,
    ).checks


guard = Exercise(
    "first_kernel.guard",
    _examine_guard,
    hints={
        "no hazard": (
            "Which `i` does the last thread of the last block have?",
            "Places are counted from 0. For 13 numbers, which is the last "
            "place that exists?",
        ),
        "output written": (
            "Some thread that has a number leaves it alone. Which one?",
            "The guard is about the array's length, not about the block's.",
        ),
    },
)


# -- a row shared by a block -----------------------------------------------


def _launch_softmax(L: int, S: int) -> Launch:
    arrays = np.zeros((L, S), np.float32), _normal(L, S) * np.float32(9)
    return Launch(L, THREADS, arrays)


def _softmax(scores_LS: np.ndarray) -> np.ndarray:
    exps = np.exp(scores_LS - scores_LS.max(axis=1, keepdims=True))
    return exps / exps.sum(axis=1, keepdims=True)


softmax = Parsons(
    "first_kernel.softmax",
    step.make_softmax_kernel(float32, THREADS),
    _launch_softmax,
    _softmax,
    given=3,
    sizes=({"L": 1, "S": 1}, {"L": 2, "S": 7}, {"L": 2, "S": 19}),
    hints={
        "is Python": (
            "A line that ends with a colon is followed by a deeper one.",
            "Each `for` has one deeper line; the three do different things.",
        ),
        "values": (
            "The sum needs the maximum of the whole row, and the weights need "
            "the sum of the whole row. Who has it, and from when on?",
            "Each of the three loops needs its own start: `mine` begins again "
            "before the second one. Between two loops the threads meet.",
        ),
        "runs": (
            "A name is used before it has a value.",
            "`shift` and `divisor` come from what the tree returns.",
        ),
    },
)


# -- how often the two kernels read ----------------------------------------


def recorded_reads(L: int, S: int, D: int) -> int:
    """Return the reads from global memory that the recorder counts."""
    recordings = step.measure_scores(L, S, D), step.measure_softmax(L, S)
    return sum(recording.traffic.total("reads") for recording in recordings)


def _examine_reads(answer: Any) -> list[Check]:
    sizes = [(1, 1, 1), (2, 3, 5), (5, 7, 3), (3, 11, 2)]
    return [
        answers.function(
            "reads",
            answer,
            [dict(zip("LSD", size, strict=True)) for size in sizes],
            recorded_reads,
            called="the number of reads",
            wrong={
                "Each input is counted once. But the threads do not know of "
                "each other: every score reads its own row of q and of k.": (
                    lambda L, S, D: L * D + S * D + 3 * L * S
                ),
                "The softmax reads a score more often than once: for the "
                "maximum, for the sum, for the weight.": (
                    lambda L, S, D: 2 * L * S * D + L * S
                ),
                "Only q, or only k, is counted.": (
                    lambda L, S, D: L * S * D + 3 * L * S
                ),
                "The softmax is missing.": lambda L, S, D: 2 * L * S * D,
                "Writes are counted, too.": (
                    lambda L, S, D: 2 * L * S * D + 5 * L * S
                ),
            },
        )
    ]


reads = Exercise(
    "first_kernel.reads",
    _examine_reads,
    hints={
        "reads": (
            "Take one score: how many numbers does its thread read? Then one "
            "row of the softmax: how many times is it read?",
            "L·S threads run the loop over D, and the loop has two reads. The "
            "softmax has three loops over S for each of the L rows.",
        )
    },
)


# -- no float64 ------------------------------------------------------------


def _launch_mean(L: int, S: int) -> Launch:
    return Launch(
        cdiv(L, THREADS), THREADS, (np.zeros(L, np.float32), _normal(L, S))
    )


def _examine_narrow(answer: Any) -> tuple[Check, ...]:
    return verify_kernel(
        answer,
        _launch_mean,
        lambda x_LS: x_LS.mean(axis=1),
        sizes=[{"L": 1, "S": 1}, {"L": 7, "S": 3}, {"L": 9, "S": 11}],
        only=("no hazard", "values", "stays in float32", "compile card"),
        isolate=False,
    ).checks


narrow = Exercise(
    "first_kernel.narrow",
    _examine_narrow,
    hints={
        "values": (
            "The mean is the sum, divided by how many there are.",
            "`S` is a whole number. Which function makes a float32 of it?",
        )
    },
)


# -- a stopwatch -----------------------------------------------------------


def _examine_stopwatch(answer: Any) -> list[Check]:
    name = "the time of one run"
    for times in ((1000, 5, 800_000), (70, 20, 3_000)):
        gpu = PretendGPU(*times)
        found = answer(gpu.launch, gpu.synchronize, gpu.clock)
        if not isinstance(found, numbers.Real) or isinstance(found, bool):
            what = f"The function returned {found!r}, not a number."
            return [Check(name, False, what)]
        # A measured run may cost its own launch on top, and nothing else.
        if not gpu.kernel_us <= found <= gpu.kernel_us + gpu.launch_us:
            what = (
                f"The kernel takes {gpu.kernel_us} µs on this model, and the "
                f"stopwatch says {found:g}."
            )
            return [Check(name, False, what, likely=_diagnose(gpu.called))]
    return [Check(name, True)]


def _diagnose(called: list[str]) -> str:
    """Say what is wrong with the order in which a stopwatch made its calls."""
    if called.count("clock") < 2:
        return "A time is the difference of two readings of the clock."
    start = called.index("clock")
    end = len(called) - 1 - called[::-1].index("clock")
    before, timed = called[:start], called[start:end]
    if "launch" not in timed:
        return "Nothing was launched between the two readings."
    if "launch" not in before:
        return "The first launch was timed, and it compiles the kernel."
    if not _has_waited(before):
        return "The run to warm up was not over when the clock was started."
    if not _has_waited(timed):
        return "The clock was read while the GPU was still at work."
    return "The time of several runs is not that of one."


def _has_waited(called: list[str]) -> bool:
    """Say whether nothing was launched after the last wait."""
    work = [name for name in called if name != "clock"]
    return work[-1] == "synchronize"


stopwatch = Exercise(
    "first_kernel.stopwatch",
    _examine_stopwatch,
    hints={
        "the time of one run": (
            "When does `launch` return, and when is the work over?",
            "Three things have to be over before the clock starts: compiling, "
            "the launch that made it compile, and its work on the GPU.",
        )
    },
)
