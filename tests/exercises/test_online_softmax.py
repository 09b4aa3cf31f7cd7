import math

import numpy as np
import pytest
import torch

from attention_lab.exercises import online_softmax as exercises
from attention_lab.exercises.lines import lines_of
from marking import assert_fails, assert_passes, each, in_order

OWN = [line.code for line in lines_of(exercises.lse_kernel)[2:]]
SHRINK = "row_sum = row_sum * math.exp(row_max - new_max)"
ADD = "row_sum = row_sum + math.exp(score - new_max)"
GROW = "row_sum = row_sum * math.exp(new_max - row_max)"


def swapped(first, second):
    lines = list(OWN)
    i, j = lines.index(first), lines.index(second)
    lines[i], lines[j] = lines[j], lines[i]
    return in_order(exercises.one_pass, *lines)


def streams(factor, start=-math.inf):
    def stream(scores_S, value_SD):
        row_max, row_sum, acc_D = start, 0.0, 0.0
        for score, value_D in zip(scores_S, value_SD, strict=True):
            new_max = max(row_max, score.item())
            shrink = factor(row_max, new_max)
            weight = torch.exp(score - new_max)
            row_sum = row_sum * shrink + weight
            acc_D = acc_D * shrink + weight * value_D
            row_max = new_max
        return acc_D / row_sum

    return stream


def in_one_go(scores_S, value_SD):
    weights_S = (scores_S - scores_S.max()).exp()
    return weights_S @ value_SD / weights_S.sum()


def merge_by_difference(a, b):
    if a[0] < b[0]:
        a, b = b, a
    shrink = 0.0 if b[0] == -math.inf else math.exp(b[0] - a[0])
    return a[0], a[1] + shrink * b[1], a[2] + shrink * b[2]


def merge_by_numpy(a, b):
    (m, *sums), (n, *others) = a, b
    largest = max(m, n)
    finite = 0.0 if largest == -math.inf else largest
    one, other = np.exp(m - finite), np.exp(n - finite)
    sums = one * np.array(sums) + other * np.array(others)
    return np.array([largest, *sums])


def merge_by_cases(a, b):
    if a[1] == 0:
        return b
    if b[1] == 0:
        return a
    top = max(a[0], b[0])
    parts = [(math.exp(m - top), x, y) for m, x, y in (a, b)]
    return top, sum(f * x for f, x, _ in parts), sum(f * y for f, _, y in parts)


def merge_with_nan(a, b):
    top = max(a[0], b[0])
    one, other = np.exp(np.array([a[0], b[0]]) - top)
    return top, one * a[1] + other * b[1], one * a[2] + other * b[2]


def merge_sums_only(a, b):
    top, total, _ = merge_by_cases(a, b)
    return top, total, a[2] + b[2]


RIGHT = {
    "paper": [3, 3.0, 21 / 7],
    "rescale": [
        streams(lambda old, new: math.exp(old - new)),
        streams(lambda old, new: 1.0 if old == new else math.exp(old - new)),
        in_one_go,
    ],
    "one_pass": [
        in_order(exercises.one_pass),
        in_order(exercises.one_pass).lower().replace(" ", ","),
        swapped(ADD, "row_max = new_max"),
    ],
    "merge": [merge_by_difference, merge_by_numpy, merge_by_cases],
}
WRONG = {
    "paper": [
        (7 / 3, "the output", "This is the mean of the values"),
        (21, "the output", "it has still to be divided"),
        (2.9, "the output", "too small"),
    ],
    "rescale": [
        (streams(lambda old, new: 1.0), "output", "online-neither-rescaled"),
        (
            streams(lambda old, new: math.exp(min(new - old, 700.0))),
            "output",
            "differs at",
        ),
        (
            streams(lambda old, new: math.exp(old - new), start=0.0),
            "output",
            "online-initial-max-zero",
        ),
    ],
    "one_pass": [
        (swapped(SHRINK, ADD), "values", "is expected"),
        (
            in_order(
                exercises.one_pass,
                *[GROW if line == SHRINK else line for line in OWN],
            ),
            "values",
            "is expected",
        ),
        (
            in_order(
                exercises.one_pass, *[line for line in OWN if line != SHRINK]
            ),
            "values",
            "is expected",
        ),
    ],
    "merge": [
        (
            lambda a, b: (max(a[0], b[0]), a[1] + b[1], a[2] + b[2]),
            "the merged state",
            "each belongs to its own maximum",
        ),
        (merge_sums_only, "the merged state", "online-acc-not-rescaled"),
        (merge_with_nan, "the merged state", "two empty parts"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.filterwarnings("ignore:invalid value encountered")
@pytest.mark.parametrize(("name", "number", "wrong"), each(WRONG))
def test_wrong_answer_is_named(name, number, wrong):
    answer, check, words = wrong
    assert_fails(getattr(exercises, name).check(answer), check, words)
