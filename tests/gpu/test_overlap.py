"""Two arguments that share memory are judged as one memory."""

import re

import numpy as np
import pytest

from attention_lab.gpu import cuda, record

float32 = np.float32


@cuda.jit
def copies(out, x):
    i = cuda.grid(1)
    if i < x.shape[0]:
        out[i] = x[i]


@cuda.jit
def copies_later(out, x):
    t = cuda.threadIdx.x
    value = x[t]
    cuda.syncthreads()
    out[t] = value


@cuda.jit
def fills_both(left, right):
    i = cuda.grid(1)
    left[2 * i] = float32(1.0)
    right[2 * i] = float32(2.0)


@cuda.jit
def fills_the_left(left, right):
    left[cuda.grid(1)] = float32(1.0)


def kinds(*args, kernel=copies, grid=1, block=8, **more):
    return record(kernel, grid, block, *args, **more).kinds


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_a_race_between_overlapping_views_names_both(engine):
    if engine == "compiled":
        pytest.importorskip("numba", reason="the compiled engine is Numba's")
    x = np.arange(9, dtype=float32)
    recording = record(copies, 1, 8, x[1:], x[:-1], engine=engine)
    (hazard,) = recording.hazards
    assert hazard.kind == "race"
    assert "out[" in hazard.sentence
    assert "x[" in hazard.sentence
    assert "which is the same memory" in hazard.sentence
    (out,) = re.findall(r"out\[(\d+)\]", hazard.sentence)
    (other,) = re.findall(r"x\[(\d+)\]", hazard.sentence)
    assert int(out) + 1 == int(other)


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
def test_a_barrier_between_makes_overlapping_views_fine(order):
    x = np.arange(9, dtype=float32)
    assert kinds(x[1:], x[:-1], kernel=copies_later, order=order) == ()
    np.testing.assert_array_equal(x, [0, *range(8)])


def test_two_names_of_one_array_are_both_named():
    x = np.arange(8, dtype=float32)

    def crossed(out, x):
        i = cuda.grid(1)
        out[i] = x[(i + 1) % 8]

    (hazard,) = record(crossed, 1, 8, x, x).hazards
    assert "out[" in hazard.sentence
    assert "x[" in hazard.sentence


def test_views_side_by_side_are_kept_apart():
    x = np.arange(16, dtype=float32)
    assert kinds(x[:8], x[8:]) == ()
    assert kinds(x[::2], x[1::2]) == ()
    square = x.reshape(4, 4)
    assert kinds(square[:, 0], square[:, 1], block=4) == ()


def test_views_of_other_strides_and_types_are_compared_by_address():
    x = np.arange(16, dtype=float32)
    assert kinds(x[::2], x[8:]) == ("race",)
    assert kinds(x[:8], x[15:7:-1]) == ()  # backwards, and apart
    assert kinds(x[:8], x[7::-1]) == ("race",)
    halves = x.view(np.int16)
    assert kinds(x[:8], halves[15:23]) == ("race",)
    assert kinds(x[:8], halves[16:24]) == ()


def test_an_array_that_overlaps_itself_is_seen():
    windows = np.lib.stride_tricks.as_strided(
        np.zeros(9, float32), (8, 2), (4, 4)
    )

    def fills(out):
        i = cuda.grid(1)
        out[i, 0] = float32(1.0)
        out[i, 1] = float32(1.0)

    assert kinds(windows, kernel=fills) == ("race",)


def test_outputs_that_overlap_are_written_together():
    x = np.zeros(9, float32)
    # The even elements through one name, the odd ones through the other.
    assert kinds(x[:-1], x[1:], kernel=fills_both, block=4) == (
        "unwritten-output",
    )
    assert x[8] == 0
    x = np.zeros(8, float32)
    assert kinds(x[:7], x[1:], kernel=fills_both, block=4) == ()


def test_an_argument_that_is_not_used_asks_for_nothing():
    x = np.zeros(8, float32)
    assert kinds(x, x, kernel=fills_the_left) == ()
    assert kinds(x[:4], x, kernel=fills_the_left, block=4) == ()


def test_sectors_are_counted_from_the_start_of_the_shared_memory():
    x = np.zeros(33, float32)
    traffic = record(copies_later, 1, 32, x[1:], x[:-1]).traffic
    assert traffic["x"].sectors == 4
    assert traffic["out"].sectors == 5
