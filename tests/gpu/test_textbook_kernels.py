"""Correct kernels compute the right thing and raise no alarm."""

import numpy as np
import pytest
from textbook_cases import cases

from attention_lab.gpu import record
from attention_lab.gpu.launch import launch
from attention_lab.gpu.limits import three_sizes


def names():
    return [str(case) for case in cases()]


def fresh(number):
    return cases()[number]


def close(actual, expected):
    # Sums of at most 150 float32 terms of size about 1 to 30.
    np.testing.assert_allclose(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
@pytest.mark.parametrize("number", range(len(cases())), ids=names())
def test_textbook_kernel_is_recorded_clean_and_right(number, order):
    case = fresh(number)
    recording = record(
        case.kernel,
        case.grid,
        case.block,
        *case.args,
        shared_bytes=case.shared_bytes,
        order=order,
        seed=3,
    )
    assert recording.hazards == (), str(recording)
    close(case.args[0], case.expected)


@pytest.mark.parametrize("number", range(len(cases())), ids=names())
def test_plain_launch_gives_the_same_bits_as_the_recording(number):
    plain, recorded = fresh(number), fresh(number)
    launch(
        plain.kernel,
        three_sizes(plain.grid, "grid"),
        three_sizes(plain.block, "block"),
        plain.args,
        plain.shared_bytes,
    )
    record(
        recorded.kernel,
        recorded.grid,
        recorded.block,
        *recorded.args,
        shared_bytes=recorded.shared_bytes,
    )
    np.testing.assert_array_equal(plain.args[0], recorded.args[0])
    close(plain.args[0], plain.expected)
