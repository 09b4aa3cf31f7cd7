"""Right and wrong answers to the exercises of "Shapes are views"."""

import numpy as np
import pytest
import torch
from einops import rearrange

from attention_lab.exercises import shapes_are_views as exercises
from marking import assert_fails, assert_passes, each, in_order


def strides_by_product(shape):
    return tuple(
        int(np.prod(shape[i + 1 :], dtype=int)) for i in range(len(shape))
    )


def strides_by_numpy(shape):
    return np.empty(shape, np.int8).strides


def strides_by_loop(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step *= size
    return strides


def strides_forget(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step = size
    return tuple(strides)


def strides_add(shape):
    strides, step = [], 1
    for size in reversed(shape):
        strides.insert(0, step)
        step = step + size
    return tuple(strides)


def strides_of_columns(shape):
    strides, step = [], 1
    for size in shape:
        strides.append(step)
        step *= size
    return tuple(strides)


def patches_by_permute(image, patch):
    rows, cols = image.shape[0] // patch, image.shape[1] // patch
    split = image.view(rows, patch, cols, patch)
    return split.permute(0, 2, 1, 3).reshape(-1, patch**2)


def patches_by_einops(image, patch):
    return rearrange(image, "(r p) (c q) -> (r c) (p q)", p=patch, q=patch)


def patches_by_unfold(image, patch):
    pieces = image.unfold(0, patch, patch).unfold(1, patch, patch)
    return pieces.reshape(-1, patch * patch)


def patches_by_numpy(image, patch):
    rows, cols = image.shape[0] // patch, image.shape[1] // patch
    split = image.numpy().reshape(rows, patch, cols, patch)
    return split.swapaxes(1, 2).reshape(rows * cols, -1)


def patches_by_reshape(image, patch):
    return image.reshape(-1, patch * patch)


def patches_turned(image, patch):
    return rearrange(image, "(r p) (c q) -> (r c) (q p)", p=patch, q=patch)


def patches_by_columns(image, patch):
    return rearrange(image, "(r p) (c q) -> (c r) (p q)", p=patch, q=patch)


def patches_not_joined(image, patch):
    return rearrange(image, "(r p) (c q) -> (r c) p q", p=patch, q=patch)


def patches_of_two(image, patch):
    return patches_by_permute(image, 2)


def sectors_by_set(stride):
    return len({lane * stride // 8 for lane in range(32)})


def sectors_by_formula(stride):
    return 31 * stride // 8 + 1 if stride < 8 else 32


def sectors_by_numpy(stride):
    return np.unique(np.arange(32) * stride // 8).size


def sectors_without_cap(stride):
    return 4 * stride if stride else 1


def sectors_never_shared(stride):
    return 4 * min(stride, 8)


def sectors_of_numbers(stride):
    return len({lane * stride // 32 for lane in range(32)})


RIGHT = {
    "strides": [strides_by_product, strides_by_numpy, strides_by_loop],
    "copies": [{2, 4, 6}, [6, 4, 2], (2.0, 4, np.int64(6))],
    "patches": [
        patches_by_permute,
        patches_by_einops,
        patches_by_unfold,
        patches_by_numpy,
    ],
    "sectors": [sectors_by_set, sectors_by_formula, sectors_by_numpy],
    "kernel": [
        in_order(exercises.kernel),
        in_order(
            exercises.kernel,
            "H, L, D = out_HLD.shape",
            "n = cuda.grid(1)",
            "if n < H * L * D:",
            "d, rest = n % D, n // D",
            "row, h = rest % L, rest // L",
            "element = x_LHD[row, h, d]",
            "out_HLD[h, row, d] = element",
        ),
        in_order(
            exercises.kernel,
            "n = cuda.grid(1)",
            "H, L, D = out_HLD.shape",
            "if n < H * L * D:",
            "d, rest = n % D, n // D",
            "row, h = rest % H, rest // H",  # not needed, and not used
            "row, h = rest % L, rest // L",
            "element = x_LHD[row, h, d]",
            "out_HLD[h, row, d] = element",
        ),
    ],
}
WRONG = {
    "strides": [
        (strides_forget, "strides", "only the size of the next axis"),
        (strides_add, "strides", "Sizes are added"),
        (strides_of_columns, "strides", "The first axis moves"),
        (list, "strides", "shape=(3,)"),
        (4, "strides", "Answer with a function"),
    ],
    "copies": [
        ({1, 2, 4, 6}, "view or copy", "alone it never copies"),
        ({2, 3, 4, 6}, "view or copy", "need not copy"),
        ({2, 4, 5, 6}, "view or copy", "A slice leaves gaps"),
        ({2, 4}, "view or copy", "`contiguous` copies unless"),
        ({6}, "view or copy", "2 of the six verdicts are wrong"),
        ({4, 6}, "view or copy", "1 of the six verdicts is wrong"),
        ({2, 4, 6, 7}, "view or copy", "the numbers 1 to 6"),
        ("246", "view or copy", "Answer with a set"),
        (3, "view or copy", "Answer with a set"),
    ],
    "patches": [
        (patches_by_reshape, "patches", "keeps the order of memory"),
        (patches_turned, "patches", "stand column by column"),
        (patches_by_columns, "patches", "counted down the columns"),
        (patches_not_joined, "patches", "shape (1, 2, 2), but (1, 4)"),
        (patches_of_two, "patches", "patches"),
    ],
    "sectors": [
        (sectors_without_cap, "sectors", "never needs more than 32"),
        (sectors_never_shared, "sectors", "one and the same place"),
        (sectors_of_numbers, "sectors", "32 bytes, not 32 numbers"),
        (lambda stride: 4, "sectors", "stride = 0"),
    ],
    "kernel": [
        (
            in_order(
                exercises.kernel,
                "n = cuda.grid(1)",
                "H, L, D = out_HLD.shape",
                "if n < H * L * D:",
                "d, rest = n % D, n // D",
                "row, h = rest % H, rest // H",
                "element = x_LHD[row, h, d]",
                "out_HLD[h, row, d] = element",
            ),
            "no hazard",
            "reads x_LHD[1, 0, 0]",
        ),
        (
            in_order(
                exercises.kernel,
                "n = cuda.grid(1)",
                "H, L, D = out_HLD.shape",
                "if n < H * L * D:",
                "d, rest = n % D, n // D",
                "row, h = rest % L, rest // L",
                "element = x_LHD[h, row, d]",
                "out_HLD[h, row, d] = element",
            ),
            "no hazard",
            "x_LHD",
        ),
        (
            in_order(
                exercises.kernel,
                "n = cuda.grid(1)",
                "if n < H * L * D:",
                "H, L, D = out_HLD.shape",
            ),
            "is Python",
            "Python says",
        ),
        ("A A", "letters", "A is there twice"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.parametrize(("name", "number", "wrong"), each(WRONG))
def test_wrong_answer_is_named(name, number, wrong):
    answer, check, words = wrong
    assert_fails(getattr(exercises, name).check(answer), check, words)


@pytest.mark.parametrize("name", RIGHT)
def test_blank_answer_is_neither_right_nor_wrong(name):
    feedback = getattr(exercises, name).check(None)
    assert feedback.blank
    assert not feedback.passed


def test_the_six_results_are_what_the_page_says():
    x = torch.zeros(2, 3, 4, 5)
    shapes = [tuple(r.shape) for r in exercises.results_of_six(x).values()]
    assert shapes == [
        (2, 4, 3, 5),
        (2, 4, 15),
        (3, 2, 20),
        (8, 5),
        (6, 5),
        (3, 2, 4, 5),
    ]


def test_the_hint_grows_and_is_no_solution():
    exercises.copies.check({2, 4, 6})  # forget what failed before
    first, second = (
        exercises.copies.check({1})["view or copy"] for _ in range(2)
    )
    assert first.hint != second.hint
    for check in (first, second):
        assert "2, 4, 6" not in check.message
