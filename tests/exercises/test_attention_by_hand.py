import numpy as np
import pytest
from einops import rearrange

from attention_lab import examples
from attention_lab.exercises import attention_by_hand as exercises
from marking import assert_fails, assert_passes, each


def patches_by_axes(image, patch):
    rows, columns = image.shape
    cut = image.reshape(rows // patch, patch, columns // patch, patch)
    return cut.transpose(0, 2, 1, 3).reshape(-1, patch * patch)


def patches_in_loops(image, patch):
    rows, columns = image.shape
    return np.stack(
        [
            image[r : r + patch, c : c + patch].ravel()
            for r in range(0, rows, patch)
            for c in range(0, columns, patch)
        ]
    )


def holds_for_all(attend, x_LD, order):
    return bool(np.abs(attend(x_LD[order]) - attend(x_LD)[order]).max() < 1e-9)


def holds_on_the_way_back(attend, x_LD, order):
    back = np.argsort(order)
    difference = attend(x_LD[order])[back] - attend(x_LD)
    return np.abs(difference).sum() < 1e-9


def holds_row_by_row(attend, x_LD, order):
    out, shuffled = attend(x_LD), attend(x_LD[order])
    return all(
        np.linalg.norm(shuffled[i] - out[order[i]]) < 1e-9
        for i in range(len(order))
    )


def nothing_changes(attend, x_LD, order):
    return bool(np.abs(attend(x_LD[order]) - attend(x_LD)).max() < 1e-9)


def holds_for_one_row(attend, x_LD, order):
    return bool(
        np.abs(attend(x_LD[order])[0] - attend(x_LD)[order[0]]).max() < 1e-9
    )


RIGHT = {
    "by_hand": [
        (0.125, 0.375, 0.5),
        (0.13, 0.38, 0.5),
        [1 / 8, 3 / 8, 4 / 8],
        np.array([1, 3, 4]) / 8,
    ],
    "patches": [patches_by_axes, patches_in_loops, examples.to_patches],
    "equivariance": [holds_for_all, holds_on_the_way_back, holds_row_by_row],
    "weighting": [
        (0.5, 0, 0, 0.5),
        [0, 0.5, 0.5, 0],
        np.array([0.4, 0.1, 0.1, 0.4]),
    ],
}
WRONG = {
    "by_hand": [
        ((1, 3, 4), "weights", "These are the exponentials."),
        ((1 / 3, 1 / 3, 1 / 3), "weights", "Equal weights"),
        ((0.2, 0.3, 0.5), "weights", "is expected"),
        ((0.5, 0.5), "weights", "has shape (2,), but (3,)"),
    ],
    "patches": [
        (
            lambda image, patch: image.reshape(-1, patch * patch),
            "pixels",
            "as they lie in memory",
        ),
        (
            lambda image, patch: rearrange(
                image, "(r p) (c q) -> (c r) (p q)", p=patch, q=patch
            ),
            "pixels",
            "top to bottom first",
        ),
        (lambda image, patch: image, "pixels", "has shape (4, 6), but (6, 4)"),
    ],
    "equivariance": [
        (lambda *_: True, "attention with positions", "is not equivariant"),
        (lambda *_: False, "attention", "is equivariant, and your test"),
        (nothing_changes, "attention", "your test says False"),
        (holds_for_one_row, "attention with a wrong last row", "says True"),
        (lambda *_: 1.0, "attention", "Return True or False, not float."),
    ],
    "weighting": [
        ((0.25, 0.25, 0.25, 0.25), "other weights", "hardly other weights"),
        ((1, 0, 0, 0), "the same output", "differs at D = 0: 0, but 1"),
        ((1, -0.5, -0.5, 1), "four weights", "are not negative"),
        ((0.5, 0.5), "four weights", "has shape (2,), but (4,)"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.parametrize(("name", "number", "wrong"), each(WRONG))
def test_wrong_answer_is_named(name, number, wrong):
    answer, check, words = wrong
    assert_fails(getattr(exercises, name).check(answer), check, words)
