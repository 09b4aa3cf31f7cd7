"""What has no room in its type becomes what a GPU makes of it.

Expected values are PTX's: ``cvt`` stops at the ends of a type and turns NaN
into 0, or into 1 << (width - 1) where a float64 or 64 bits take part; there
is no conversion to 8 bits, so those go through 16; ``shl.b64`` and its like
take the low 32 bits of the count, and clamp it.
"""

import math

import numpy as np
import pytest

from attention_lab.gpu import cuda, record
from attention_lab.gpu.launch import launch

ENGINES = ["python", "compiled"]
WHOLE = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
MAX = 2**63 - 1
MIN = -(2**63)
inf, nan = np.inf, np.nan


@cuda.jit
def convert(a, b, c, d, e, f, g, h, x):
    i = cuda.grid(1)
    a[i] = x[i]
    b[i] = x[i]
    c[i] = x[i]
    d[i] = x[i]
    e[i] = x[i]
    f[i] = x[i]
    g[i] = x[i]
    h[i] = x[i]


X = [-2.9, 300.7, -70000.0, 1e30, -inf, nan]
# i1: 300 is 1 * 256 + 44; 32767 and -32768 keep their low bytes, -1 and 0.
FROM_FLOAT64 = {
    "i1": [-2, 44, 0, -1, 0, 0],
    "i2": [-2, 300, -(2**15), 2**15 - 1, -(2**15), -(2**15)],
    "i4": [-2, 300, -70000, 2**31 - 1, -(2**31), -(2**31)],
    "i8": [-2, 300, -70000, MAX, MIN, MIN],
    "u1": [0, 44, 0, 255, 0, 0],
    "u2": [0, 300, 0, 2**16 - 1, 0, 2**15],
    "u4": [0, 300, 0, 2**32 - 1, 0, 2**31],
    "u8": [0, 300, 0, 2**64 - 1, 0, 2**63],
}
# A NaN of float32 gives 0 up to 32 bits.
FROM_FLOAT32 = {
    name: [*row[:-1], row[-1] if name[1] == "8" else 0]
    for name, row in FROM_FLOAT64.items()
}
# Numba asks float16 for the nearest whole number, and for 8 bits directly:
# -2.9, 300.7 (300.75 as float16), -70000 (-inf), 1e30 (inf), -inf, NaN.
FROM_FLOAT16 = {
    "i1": [-3, 127, -128, 127, -128, 0],
    "i2": [-3, 301, -(2**15), 2**15 - 1, -(2**15), 0],
    "i4": [-3, 301, -(2**31), 2**31 - 1, -(2**31), 0],
    "i8": [-3, 301, MIN, MAX, MIN, MIN],
    "u1": [0, 255, 0, 255, 0, 0],
    "u2": [0, 301, 0, 2**16 - 1, 0, 0],
    "u4": [0, 301, 0, 2**32 - 1, 0, 0],
    "u8": [0, 301, 0, 2**64 - 1, 0, 2**63],
}


@pytest.mark.parametrize(
    ("dtype", "expected", "engine"),
    [
        ("f8", FROM_FLOAT64, "python"),
        ("f8", FROM_FLOAT64, "compiled"),
        ("f4", FROM_FLOAT32, "python"),
        ("f4", FROM_FLOAT32, "compiled"),
        ("f2", FROM_FLOAT16, "python"),
    ],
)
def test_a_float_stops_at_the_ends_of_a_whole_type(dtype, expected, engine):
    outputs = [np.zeros(len(X), name) for name in WHOLE]
    with np.errstate(over="ignore"):
        x = np.array(X).astype(dtype)
    launch(convert, (1, 1, 1), (len(X), 1, 1), (*outputs, x), engine=engine)
    made = dict(zip(WHOLE, map(np.ndarray.tolist, outputs), strict=True))
    assert made == expected


@cuda.jit
def whole_edges(out, lost, i, x):
    out[0] = int(1e30)
    out[1] = int(x[0])
    out[2] = i[0] << i[1]
    out[3] = i[0] >> i[1]
    out[4] = i[0] << i[2]
    out[5] = i[0] << i[3]
    out[6] = i[4] // i[2]
    out[7] = i[4] % i[2]
    out[8] = abs(i[4])
    out[9] = -i[4]
    out[10] = i[0] ** (i[1] & 127)
    out[11] = i[4] - 1
    out[12] = i[0] << 70
    out[13] = abs(i[4] - i[3])
    lost[0] = i[5]
    lost[1] = i[5] == x[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_whole_numbers_at_their_edges(engine):
    out, lost = np.zeros(14, np.int64), np.zeros(2, np.float32)
    big = 2**62 + 2**38 + 1
    i = np.array([-5, 70, -1, 2**32 + 1, MIN, big], np.int64)
    x = np.array([-1e19, 2.0**62 + 2.0**38])
    launch(whole_edges, (1, 1, 1), (1, 1, 1), (out, lost, i, x), engine=engine)
    assert out.tolist() == [
        *(MAX, MIN),
        *(0, -1),  # all bits are out, or only the sign is left
        *(0, -10),  # the low 32 bits of -1 are 2**32 - 1, of 2**32 + 1 are 1
        *(0, 0),  # Numba gives 0 where the quotient has no room
        *(MIN, MIN),
        (5**70 + 2**63) % 2**64 - 2**63,
        *(MAX, 0),
        MAX - 2**32,  # -2**63 - (2**32 + 1) wraps to 2**63 - 2**32 - 1
    ]
    # Rounded once: through float64 it would be a tie, and go down.
    assert lost.tolist() == [float(np.int64(big).astype(np.float32)), 1.0]
    assert lost[0] == 2.0**62 + 2.0**39


def test_a_shift_beyond_the_type_is_noted():
    args = np.zeros(14, np.int64), np.zeros(2, np.float32)
    i, x = np.array([1, 2, 3, 4, 5, 6]), np.zeros(2)
    notes = record(whole_edges, 1, 1, *args, i, x).notes
    assert [n.kind for n in notes] == ["undefined-shift"]
    assert "out[12]" in notes[0].sentence


@cuda.jit
def poles(out, x):
    i = cuda.grid(1)
    out[i] = math.gamma(x[i])


@pytest.mark.parametrize("engine", ENGINES)
def test_gamma_has_its_poles(engine):
    out = np.zeros(4)
    record(poles, 1, 4, out, np.array([0.0, -0.0, -1.0, 200.0]), engine=engine)
    np.testing.assert_array_equal(out, [inf, -inf, nan, inf])


@cuda.jit
def halves(out, x):
    i = cuda.grid(1)
    out[i] = x[i]


def test_a_float16_overflows_to_infinity():
    x = np.array([1e300, -7e4, 65519.0, 65520.0, 1e-9])
    out = np.zeros(5, np.float16)
    record(halves, 1, 5, out, x)
    assert out.tolist() == [inf, -inf, 65504.0, inf, 0.0]
    record(halves, 1, 5, out, np.array([2**63 - 1, -70000, 5, 65519, 65520]))
    assert out.tolist() == [inf, -inf, 5.0, 65504.0, inf]


@cuda.jit
def shared_sums(out):
    s = cuda.shared.array(2, np.int32)
    if cuda.threadIdx.x == 0:
        s[0] = 2**31 - 1
        s[1] = -(2**31)
    cuda.syncthreads()
    cuda.atomic.add(s, 0, 1)
    cuda.atomic.sub(s, 1, 1)
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[0] = s[0]
        out[1] = s[1]


@pytest.mark.parametrize("engine", ENGINES)
def test_atomic_sums_wrap_in_shared_memory_too(engine):
    out = np.zeros(2, np.int64)
    record(shared_sums, 1, 2, out, engine=engine)
    assert out.tolist() == [-(2**31) + 1, 2**31 - 2]
