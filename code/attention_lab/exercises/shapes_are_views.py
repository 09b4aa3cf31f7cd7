"""Checks of the exercises in the chapter "Shapes are views"."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from attention_lab.examples import position_coded
from attention_lab.exercises import answers
from attention_lab.exercises.exercise import Exercise
from attention_lab.exercises.parsons import Parsons
from attention_lab.gpu import cuda, record
from attention_lab.steps.launch import cdiv
from attention_lab.steps.permute import contiguous_strides
from attention_lab.verify import Launch
from attention_lab.verify.report import Check

WARP = 32
THREADS = 8  # of a block, in the kernel to put together


# -- strides ---------------------------------------------------------------


def _sizes_behind(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[1:], 1)


def _sums_behind(shape: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(1 + sum(shape[i + 1 :]) for i in range(len(shape)))


def _first_axis_fastest(shape: tuple[int, ...]) -> tuple[int, ...]:
    return contiguous_strides(shape[::-1])[::-1]


def _examine_strides(answer: Any) -> list[Check]:
    shapes = [(3,), (2, 3), (2, 3, 5), (7, 1, 2, 3)]
    return [
        answers.function(
            "strides",
            answer,
            [{"shape": shape} for shape in shapes],
            contiguous_strides,
            called="strides",
            wrong={
                "Each stride is only the size of the next axis; what lies "
                "behind that one is forgotten.": _sizes_behind,
                "Sizes are added where whole rows are passed.": _sums_behind,
                "The first axis moves to the neighbour, not the last.": (
                    _first_axis_fastest
                ),
            },
        )
    ]


strides = Exercise(
    "shapes_are_views.strides",
    _examine_strides,
    hints={
        "strides": (
            "How many places does one step along the first of (2, 3, 5) pass?",
            "When the loop has seen an axis, the next one outside passes "
            "everything seen so far. What does `step` have to become?",
        )
    },
)


# -- view or copy ----------------------------------------------------------


def results_of_six(x: torch.Tensor) -> dict[int, torch.Tensor]:
    """Return the six results of the exercise, by their number."""
    return {
        1: x.permute(0, 2, 1, 3),
        2: x.permute(0, 2, 1, 3).reshape(2, 4, 15),
        3: x.permute(1, 0, 2, 3).reshape(3, 2, 20),
        4: x[:, 1].reshape(8, 5),
        5: x[:, :, 1].reshape(6, 5),
        6: x.permute(1, 0, 2, 3).contiguous(),
    }


def numbers_that_copy() -> set[int]:
    """Return which of the six have memory of their own, by running them."""
    x = torch.tensor(position_coded(2, 3, 4, 5))
    memory = x.untyped_storage().data_ptr()
    return {
        number
        for number, result in results_of_six(x).items()
        if result.untyped_storage().data_ptr() != memory
    }


def _examine_copies(answer: Any) -> list[Check]:
    name = "view or copy"
    if isinstance(answer, str) or not isinstance(answer, Iterable):
        what = f"Answer with a set of numbers, such as {{2, 5}}, not {answer!r}"
        return [Check(name, False, f"{what}.")]
    given = set(answer)
    if not given <= set(range(1, 7)):
        return [Check(name, False, "The results have the numbers 1 to 6.")]
    right = numbers_that_copy()
    wrong = given ^ right
    if not wrong:
        return [Check(name, True)]
    count = f"{len(wrong)} of the six verdicts {_is(len(wrong))} wrong."
    return [Check(name, False, count, likely=_thought_behind(given, wrong))]


def _is(count: int) -> str:
    return "is" if count == 1 else "are"


def _thought_behind(given: set[int], wrong: set[int]) -> str:
    """Say what the reader seems to believe; each belief explains a verdict."""
    if 1 in wrong:
        return "`permute` changes strides; alone it never copies."
    if 6 in wrong:
        return "`contiguous` copies unless the order is already that of memory."
    if 3 in given and 3 in wrong:
        return (
            "A reshape after a permute need not copy: it depends on which axes "
            "it joins."
        )
    if given & wrong:
        return (
            "A slice leaves gaps in memory, but the strides of the joined axes "
            "may still fit."
        )
    return (
        "`reshape` copies where the joined axes have no stride in common. It "
        "does not say so."
    )


copies = Exercise(
    "shapes_are_views.copies",
    _examine_copies,
    hints={
        "view or copy": (
            "Write down the strides before each reshape, and look only at the "
            "axes that it joins.",
            "Two axes can be joined if the outer stride is the inner size "
            "times the inner stride. A slice with a number drops one size and "
            "its stride, and leaves the others alone.",
        )
    },
)


# -- patches ---------------------------------------------------------------


def cut_by_slices(image: torch.Tensor, patch: int) -> np.ndarray:
    """Return the patches of an image, sliced out one by one."""
    return np.stack(
        [
            image[i : i + patch, j : j + patch].reshape(-1).numpy()
            for i in range(0, image.shape[0], patch)
            for j in range(0, image.shape[1], patch)
        ]
    )


def _cut_by_reshape(image: torch.Tensor, patch: int) -> torch.Tensor:
    return image.reshape(-1, patch * patch)


def _cut_columns_first(image: torch.Tensor, patch: int) -> torch.Tensor:
    rows, cols = image.shape[0] // patch, image.shape[1] // patch
    split = image.reshape(rows, patch, cols, patch)
    return split.permute(2, 0, 1, 3).reshape(rows * cols, patch * patch)


def _cut_turned(image: torch.Tensor, patch: int) -> torch.Tensor:
    rows, cols = image.shape[0] // patch, image.shape[1] // patch
    split = image.reshape(rows, patch, cols, patch)
    return split.permute(0, 2, 3, 1).reshape(rows * cols, patch * patch)


def _cut_without_permute(image: torch.Tensor, patch: int) -> torch.Tensor:
    rows, cols = image.shape[0] // patch, image.shape[1] // patch
    split = image.reshape(rows, cols, patch, patch)
    return split.permute(0, 2, 1, 3).reshape(rows * cols, patch * patch)


def _examine_patches(answer: Any) -> list[Check]:
    sizes = [((2, 2), 2), ((2, 4), 2), ((4, 6), 2), ((6, 9), 3), ((8, 8), 2)]
    cases = [
        {"image": torch.tensor(position_coded(*shape)), "patch": patch}
        for shape, patch in sizes
    ]
    return [
        answers.function(
            "patches",
            answer,
            cases,
            cut_by_slices,
            called="patches",
            wrong={
                "A reshape alone keeps the order of memory: a piece is a part "
                "of one row.": _cut_by_reshape,
                "The patches are counted down the columns, not along the "
                "rows.": _cut_columns_first,
                "The pixels of each patch stand column by column.": _cut_turned,
                "The image's width is split into `cols` and `patch` only after "
                "its height is: name the axes in the order of memory.": (
                    _cut_without_permute
                ),
            },
        )
    ]


patches = Exercise(
    "shapes_are_views.patches",
    _examine_patches,
    hints={
        "patches": (
            "Which two axes does each side of the image split into, and in "
            "which order do the four stand in memory?",
            "First split both sides, then bring the two axes that count "
            "patches in front of the two that count pixels, then join.",
        )
    },
)


# -- sectors ---------------------------------------------------------------


@cuda.jit
def strided_read_kernel(out, x, stride):
    """One thread per lane of a warp; neighbours read `stride` places apart."""
    lane = cuda.threadIdx.x
    out[lane] = x[lane * stride]


def recorded_sectors(stride: int) -> float:
    """Return the sectors that a recorded warp reads, `stride` places apart."""
    x = np.zeros((WARP - 1) * stride + 1, np.float32)
    out = np.zeros(WARP, np.float32)
    recording = record(strided_read_kernel, 1, WARP, out, x, stride)
    return recording.traffic["x"].sectors_per_request


def _examine_sectors(answer: Any) -> list[Check]:
    return [
        answers.function(
            "sectors",
            answer,
            [{"stride": s} for s in (1, 0, 2, 3, 5, 7, 8, 9, 32, 100)],
            recorded_sectors,
            called="the number of sectors",
            wrong={
                "Threads that read one and the same place need one sector "
                "between them.": lambda stride: 4 * min(stride, 8),
                "A warp has 32 threads, so it never needs more than 32 "
                "sectors.": lambda stride: 4 * stride if stride else 1,
                "Neighbours share sectors while the stride is below 8.": (
                    lambda stride: 32 if stride else 1
                ),
                "A sector has 32 bytes, not 32 numbers.": (
                    lambda stride: len({i * stride // 32 for i in range(32)})
                ),
            },
        )
    ]


sectors = Exercise(
    "shapes_are_views.sectors",
    _examine_sectors,
    hints={
        "sectors": (
            "How many float32 numbers does a sector hold, and in which sector "
            "does place 19 lie?",
            "Write down the sector of each of the 32 places. Which sectors "
            "occur twice?",
        )
    },
)


# -- a kernel that permutes ------------------------------------------------


@cuda.jit
def heads_first_kernel(out_HLD, x_LHD):
    """One thread per place of out: it fetches the element of that place."""
    n = cuda.grid(1)
    H, L, D = out_HLD.shape
    if n < H * L * D:
        # 1. Load: take n apart, the last axis first.
        d, rest = n % D, n // D
        row, h = rest % L, rest // L
        element = x_LHD[row, h, d]

        # 3. Store
        out_HLD[h, row, d] = element


def _launch_heads_first(L: int, H: int, D: int) -> Launch:
    x_LHD = position_coded(L, H, D).astype(np.float32)
    out_HLD = np.zeros((H, L, D), np.float32)
    return Launch(cdiv(L * H * D, THREADS), THREADS, (out_HLD, x_LHD))


kernel = Parsons(
    "shapes_are_views.kernel",
    heads_first_kernel,
    _launch_heads_first,
    lambda x_LHD: x_LHD.transpose(1, 0, 2),
    distractors=(
        "    element = x_LHD[h, row, d]",
        "    row, h = rest % H, rest // H",
    ),
    sizes=(
        {"L": 1, "H": 1, "D": 1},
        {"L": 2, "H": 3, "D": 1},
        {"L": 5, "H": 3, "D": 2},
    ),
    hints={
        "is Python": (
            "A line that ends with a colon is followed by a deeper one.",
            "Every name needs a value before it is used, and the guard uses "
            "three sizes.",
        ),
        "no hazard": (
            "The letters at the end of a name say what belongs into the "
            "brackets, in that order.",
            "`row` counts up to L and `h` up to H. Which of the lines lets one "
            "of them grow too large?",
        ),
        "values": (
            "Which axis of the result moves when n grows by 1?",
            "n counts places of out_HLD. So its last axis is D, and before "
            "that comes L.",
        ),
    },
)
