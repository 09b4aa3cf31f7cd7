"""Kernels on which the recorder once crashed or gave a wrong number."""

import numpy as np
import pytest

from attention_lab.gpu import cuda, record
from attention_lab.gpu.errors import KernelFault, UnsupportedConstruct

float32 = np.float32


@cuda.jit
def dynamic_shared(out, x):
    s = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[7 - t]


@cuda.jit
def all_outside(out):
    i = cuda.grid(1)
    out[i + 100] = float32(1.0)


@cuda.jit
def atomics_outside(counts):
    i = cuda.grid(1)
    cuda.atomic.add(counts, i + 10, 1)


@pytest.mark.parametrize("engine", ["python", "compiled"])
@pytest.mark.parametrize(
    ("kernel", "args"),
    [
        (dynamic_shared, (np.zeros(8, float32), np.ones(8, float32))),
        (all_outside, (np.zeros(4, float32),)),
        (all_outside, (np.zeros(0, float32),)),
        (atomics_outside, (np.zeros(4, np.int32),)),
    ],
)
def test_when_every_access_is_outside_it_is_said(kernel, args, engine):
    recording = record(kernel, 1, 8, *args, engine=engine)
    assert "out-of-bounds" in recording.kinds


@cuda.jit
def random_numbers(out, seed):
    s = seed[0]
    for _ in range(2):
        s = s * 6364136223846793005 + 1442695040888963407
    out[0] = s
    out[1] = s % 10
    out[2] = 1 if s < 0 else 0


@cuda.jit
def sums(out, x):
    out[0] = x[0] + x[0]
    out[1] = (x[0] + x[0]) // 3
    out[2] = -2 - x[0] - x[0]


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_int64_sums_wrap(engine):
    out = np.zeros(3, np.int64)
    record(random_numbers, 1, 1, out, np.zeros(1, np.int64), engine=engine)
    s = 0
    for _ in range(2):
        s = (s * 6364136223846793005 + 1442695040888963407) % 2**64
    s = s - 2**64 if s >= 2**63 else s
    assert out.tolist() == [s, s % 10, int(s < 0)]
    large = 2**62 + 5
    record(sums, 1, 1, out, np.array([large]), engine=engine)
    twice = 2 * large - 2**64
    assert out.tolist() == [twice, twice // 3, (-2 - 2 * large) + 2**64]


@cuda.jit
def bits_of_floats(out, x):
    out[0] = x[0] & 1


@cuda.jit
def shifted_float(out, x):
    out[0] = x[0] << 1


@cuda.jit
def inverted_float(out, x):
    out[0] = ~x[0]


@pytest.mark.parametrize(
    "kernel", [bits_of_floats, shifted_float, inverted_float]
)
def test_bit_operations_on_floats_are_refused(kernel):
    with pytest.raises(UnsupportedConstruct, match="a bit operation on floats"):
        record(kernel, 1, 1, np.zeros(1, float32), np.ones(1, float32))


@cuda.jit
def whole_power(out, n):
    out[0] = 1 ** n[0]


@cuda.jit
def powers_of(out, a, n):
    out[0] = a**n


def test_a_whole_number_to_a_negative_power_stays_whole_as_in_numba():
    out = np.zeros(1)
    record(whole_power, 1, 1, out, np.array([-2]))
    assert out[0] == 1
    for a, n, expected in ((2, -1, 0), (-1, -3, -1), (-1, -2, 1), (3, 4, 81)):
        record(powers_of, 1, 1, out, a, n)
        assert out[0] == expected
    with pytest.raises(KernelFault, match="by zero"):
        record(powers_of, 1, 1, out, 0, -1)
