"""Notes say what is worth knowing, and only where it is true."""

import math

import numpy as np
import pytest

from attention_lab.gpu import cuda, record

float32, float64 = np.float32, np.float64


@cuda.jit
def halves(out, x):
    i = cuda.grid(1)
    out[i] = x[i] / 2 + math.sqrt(x[i]) * 0.5


@cuda.jit
def mean_of_counts(out, x):
    i = cuda.grid(1)
    total = 0.0
    for k in range(x.shape[0]):
        total += x[k]
    out[i] = max(total / x.shape[0], 1)


@cuda.jit
def constant_of_a_module(out, x):
    i = cuda.grid(1)
    out[i] = x[i] * math.pi


@cuda.jit
def narrows_on_the_way(out, x):
    i = cuda.grid(1)
    small = float32(x[i])
    out[i] = small * 0.5


@cuda.jit
def keeps_a_narrow_tile(out, x):
    s = cuda.shared.array(4, float32)
    i = cuda.threadIdx.x
    s[i] = x[i]
    out[i] = s[i] * 0.5


KERNELS = [halves, mean_of_counts, constant_of_a_module]


def float64_notes(kernel, out_type, x_type):
    out, x = np.zeros(4, out_type), np.arange(1, 5).astype(x_type)
    notes = record(kernel, 1, 4, out, x).notes
    return [note for note in notes if note.kind == "accidental-float64"]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("x_type", [float64, np.int32, np.int64])
def test_float64_is_no_accident_where_there_is_no_float32(kernel, x_type):
    assert float64_notes(kernel, float64, x_type) == []
    assert float64_notes(kernel, np.int64, x_type) == []


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.__name__)
def test_float64_is_an_accident_beside_float32(kernel):
    assert float64_notes(kernel, float32, float32)


@pytest.mark.parametrize("kernel", [narrows_on_the_way, keeps_a_narrow_tile])
def test_float32_inside_the_kernel_counts_too(kernel):
    assert float64_notes(kernel, float64, float64)
