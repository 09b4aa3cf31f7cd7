"""Ordinary Python that Numba accepts gives what Python gives.

Every case is a few lines of a kernel. Python itself runs them once, on
copies of the same arrays, and both engines must give the same.
"""

import linecache
import math  # noqa: F401 - the lines of kernels use it

import numpy as np
import pytest

from attention_lab.gpu import cuda, record
from attention_lab.gpu.engines import has_numba
from attention_lab.gpu.errors import KernelError, KernelFault
from attention_lab.gpu.launch import launch

float32 = np.float32
int32 = np.int32
TABLE = (3, 1, 4)
PAIRS = ((1, 2), (3, 4))
WIDTH = 3
PARAMETERS = "out, x, m, k, u, n, f"
ENGINES = ["python", *(["compiled"] if has_numba() else [])]
needs_numba = pytest.mark.skipif(
    not has_numba(), reason="machine code needs Numba"
)


@cuda.jit(device=True)
def total_of(first, *others):
    result = first
    for other in others:
        result += other
    return result


@cuda.jit(device=True)
def scaled(value, scale=None):
    if scale is None:
        return value
    return value * scale


@cuda.jit(device=True)
def masked(value, mask, i):
    if mask is None or mask[i] > 0:
        return value
    return float32(0.0)


@cuda.jit(device=True)
def fill(row, value):
    row[:] = value


def arguments():
    return [
        np.zeros(16),
        np.arange(1, 9, dtype=np.float32),
        np.arange(12, dtype=np.float32).reshape(3, 4) + 0.5,
        np.arange(1, 9, dtype=np.int32),
        np.ones(2, np.uint32),
        5,
        1.5,
    ]


CASES = [
    # loops over what there is
    "s = 0.0; for v in x: s += v; out[0] = s",
    "for v in x[2:5]: out[0] += v",
    "for row in m:@    for v in row:@        out[0] += v",
    "for v in m[1]: out[0] += v",
    "for i, v in enumerate(x): out[i] = i * v",
    "for i, v in enumerate(x[3:], 2): out[i] = v",
    "for i, v in enumerate(TABLE, n): out[i] = v",
    "for i, v in enumerate(range(7, 0, -2)): out[i] = v",
    "for i, row in enumerate(m): out[i] = row[2]",
    "for a, b in zip(x, k): out[0] += a * b",
    "for i, v in zip(range(2, 9, 3), x): out[i] = v",
    "for i, (a, b) in enumerate(zip(x, m[1])): out[i] = a - b",
    "for a, b, c in zip(x[1:3], k, TABLE): out[c] = a * b",
    "for pair in zip(x, k): out[0] += pair[0] * pair[1]",
    "for a, b in PAIRS: out[a] = b",
    "for i, j in ((0, 1), (2, 3)): out[i] = j",
    "for i in [1, 2, 4]: out[i] = i",
    "for size in m.shape: out[0] += size",
    "for i in range(2): out[i] = m.shape[i]",
    "for i in range(3): out[i] = TABLE[i]",
    "p = (1, 2, n); for i in range(3): out[i] = p[i]",
    "for i, v in enumerate(x):@    if v > 6:@        break@    if i == 2:@"
    "        continue@    out[i] = v@else:@    out[0] = 9",
    "for v in x:@    if v > 99:@        break@else:@    out[0] = 9",
    "for v in x[5:2]: out[0] = v",
    "i = 7; for v in x: i += 1; out[0] = i",
    "while n > 0:@    n -= 2@else:@    out[0] = n",
    # slices
    "out[2:5] = 3",
    "out[:] = f",
    "m[1] = 7; out[0] = m[1, 3] + m[2, 0]",
    "m[1, :] = 7; out[0] = m[1, 3] + m[0, 3]",
    "m[:, 1] = 7; out[0] = m[2, 1] + m[2, 2]",
    "m[0:2, 1:3] = f; for row in m: out[0] += row[1] + 10 * row[3]",
    "m[k[0], 1:] = n; out[0] = m[1, 1] + m[1, 0]",
    "k[1:3] = 2.9; out[0] = k[1] + k[3]",
    "out[9:99] = 1; out[3:1] = 8",
    "r = m[1]; r[1:3] = 0; out[0] = r[0] + r[1] + r[3]",
    "r = m[1, 1:]; r[1:] = 0; out[0] = r[0] + r[1] + m[1, 0]",
    "fill(m[2], n); out[0] = m[2, 1] + m[1, 1]",
    "a = cuda.local.array((2, 3), float32); a[:] = 2; a[1, 1:] = 3;"
    " out[0] = a[0, 0] + a[1, 0] + a[1, 1] + a[1, 2]",
    "out[0] = m[1][2] + m[2, :][1]; m[0][1] = 4; out[1] = m[0, 1]",
    # sizes
    "out[0] = len(x) + 10 * len(m) + len(TABLE) + len(m.shape)",
    "out[0] = m.size; out[1] = m.ndim; out[2] = m.itemsize; out[3] = m.nbytes",
    "out[0] = m.strides[0]; out[1] = m.strides[1]; out[2] = m[1].strides[0]",
    "out[0] = m.shape[0:1][0]; out[1] = m.shape[-1]",
    "p = (1, 2, n); q = p[1:] + (f,); out[0] = q[2]; out[1] = len(q)",
    # conditions
    "out[0] = 1 if n in (1, 5) else 2; out[1] = 1 if n in TABLE else 2",
    "out[0] = 1 if n not in (1, 5) else 2; out[1] = 1 if n in [5] else 2",
    "out[0] = 1 if n in () else 2",
    "out[0] = 1 if 0 < n <= 5 < 9 else 2",
    "if (q := n + 1) > 3: out[0] = q",
    "assert n > 3; assert n > 3, 'small'; out[0] = 1",
    "if n < 3: raise ValueError('small'); out[0] = 1",
    "y = None; out[0] = 1 if y is None else 2; out[1] = 1 if x is None else 2",
    "out[0] = scaled(f); out[1] = scaled(f, 2.0); out[2] = scaled(f, None)",
    "out[0] = masked(f, None, 0); out[1] = masked(f, m[0], 1)",
    "q: int; q = 3; out[0] = q; pass; ...",
    # functions
    "g = lambda v, w=2: v * w + n; out[0] = g(3); out[1] = g(3, 4)",
    "w0 = n; g = lambda v, w=w0: v * w; n = 7; out[0] = g(3)",
    "out[0] = total_of(n, 2); out[1] = total_of(n, 1, 2, 3)",
    # numbers
    "a, b = divmod(n, 3); out[0] = a; out[1] = b",
    "a, b = divmod(-n, 3); out[0] = a; out[1] = b",
    "a, b = divmod(-f, 0.4); out[0] = a; out[1] = b",
    "out[0] = pow(n, 2); out[1] = pow(f, 2.0); out[2] = f ** -2",
    "for d in range(5): out[d] = 2 ** d + n ** d",
    "out[0] = (-3) ** n",
    "out[0] = min((n, 2, 3)) + max(TABLE) + sum(TABLE) + sum((n, 2), 7)",
    "out[0] = max(n, 2, f) + min(n, f, 1)",
    "out[0] = float('inf'); out[1] = -float('inf'); out[2] = math.pi",
    "out[0] = round(f, 0); out[1] = round(1234.5, -2); out[2] = round(2.5)",
    "out[0] = -n // 2; out[1] = -n % 3; out[2] = n // -2; out[3] = n % -3",
    "out[0] = (n & 3) | (n ^ 2) | (n << 1) | (n >> 1); out[1] = ~n",
    "out[0] = bool(n) + int(f) + float(n) + int32(f) + np.float32(n)",
    "out[0] = np.arctan2(f, 2.0) + np.cosh(f) + np.isnan(f)",
    # arrays of a thread
    "N = 4; a = cuda.local.array(N, float32); a[3] = n; out[0] = a[3]",
    "a = cuda.local.array(2 * 3, 'int32'); a[5] = f; out[0] = a[5]",
    "N = WIDTH; a = cuda.local.array((N, 2), np.float64); a[:] = f;"
    " out[0] = a[2, 1]",
]


def body_of(lines):
    """Return the text of a body: ``; `` parts lines, ``@`` within a block."""
    parts = []
    for statement in lines.split("; "):
        parts += statement.split("@")
    return "".join(f"    {part}\n" for part in parts)


def function_of(lines, **names):
    """Return a function with these lines, and a source that can be read."""
    text = f"def kernel({PARAMETERS}):\n{body_of(lines)}"
    filename = f"<constructs {lines}>"
    linecache.cache[filename] = (
        len(text),
        None,
        text.splitlines(keepends=True),
        filename,
    )
    namespace = {**globals(), **names}
    exec(compile(text, filename, "exec"), namespace)
    return namespace["kernel"]


class Plain:
    """What stands in for `cuda` when Python itself runs a kernel."""

    class local:  # noqa: N801 - spelled as in a kernel
        array = staticmethod(lambda shape, dtype: np.zeros(shape, dtype))


def in_python(lines):
    """Return what Python makes of these lines."""
    given = arguments()
    helpers = {
        name: globals()[name].py_func
        for name in ("total_of", "scaled", "masked", "fill")
    }
    function_of(lines, cuda=Plain, **helpers)(*given)
    return given[0]


@pytest.mark.parametrize("lines", CASES)
def test_kernel_gives_what_python_gives(lines):
    given = arguments()
    recording = record(function_of(lines), 1, 1, *given, engine="python")
    assert set(recording.kinds) <= {"unwritten-output"}, str(recording)
    np.testing.assert_allclose(given[0], in_python(lines), rtol=3e-7)


TOGETHER = 12  # machine code takes a second per kernel, not per case


@needs_numba
@pytest.mark.parametrize("first", range(0, len(CASES), TOGETHER))
def test_machine_code_gives_what_python_gives(first):
    cases = CASES[first : first + TOGETHER]
    outs = together(cases)
    for lines, out in zip(cases, outs, strict=True):
        np.testing.assert_allclose(out, in_python(lines), rtol=3e-7)


def together(cases):
    """Run many cases as one kernel of machine code; return their outputs."""
    functions = {
        f"case_{number}": cuda.jit(device=True)(function_of(lines))
        for number, lines in enumerate(cases)
    }
    rows = "out[{0}], x[{0}], m[{0}], k[{0}], u[{0}], n, f"
    calls = [f"{name}({rows.format(i)})" for i, name in enumerate(functions)]
    kernel = function_of("; ".join(calls), **functions)
    *arrays, n, f = arguments()
    many = [np.stack([array] * len(cases)) for array in arrays]
    size = (1, 1, 1)
    # Unrecorded, because that compiles in a third of the time.
    launch(cuda.jit(kernel), size, size, (*many, n, f), engine="compiled")
    return many[0]


DEVICE = [
    ("cuda.atomic.and_(k, 4, 6); out[0] = k[4]", 5 & 6),
    ("cuda.atomic.or_(k, 4, 6); out[0] = k[4]", 5 | 6),
    ("out[0] = cuda.atomic.xor(k, 4, 6) * 10 + k[4]", 50 + (5 ^ 6)),
    ("cuda.atomic.inc(u, 0, 3); out[0] = u[0]", 2),
    ("cuda.atomic.inc(u, 0, 1); out[0] = u[0]", 0),
    ("cuda.atomic.dec(u, 0, 3); out[0] = u[0]", 0),
    ("u[0] = 0; cuda.atomic.dec(u, 0, 3); out[0] = u[0]", 3),
    ("u[0] = 7; cuda.atomic.dec(u, 0, 3); out[0] = u[0]", 3),
    ("x[0] = math.nan; cuda.atomic.nanmax(x, 0, f); out[0] = x[0]", 1.5),
    ("cuda.atomic.nanmin(x, 1, math.nan); out[0] = x[1]", 2),
    ("cuda.atomic.nanmin(x, 1, f); out[0] = x[1]", 1.5),
    ("cuda.nanosleep(20); out[0] = cuda.cbrt(27.0)", 3),
    ("out[0] = cuda.cbrt(float32(-8.0))", -2),
    # Python looks at all digits and gives 2.67.
    ("out[0] = round(2.675, 2)", 2.68),
    ("out[0] = cuda.lanemask_lt()", 0),
    ("out[0] = cuda.grid(ndim=1) + cuda.gridsize(ndim=1)", 1),
    ("y = 3; y = -y ** 2; out[0] = y ** -1", 0),
]


@pytest.mark.parametrize(("lines", "expected"), DEVICE)
def test_device_function_gives_what_the_gpu_gives(lines, expected):
    given = arguments()
    recording = record(function_of(lines), 1, 1, *given, engine="python")
    assert set(recording.kinds) <= {"unwritten-output"}, str(recording)
    assert given[0][0] == expected


@needs_numba
def test_machine_code_gives_what_the_gpu_gives():
    outs = together([lines for lines, _ in DEVICE])
    np.testing.assert_array_equal(outs[:, 0], [wanted for _, wanted in DEVICE])


@cuda.jit
def lanes_below(out):
    t = cuda.threadIdx.x
    out[t] = cuda.popc(cuda.lanemask_lt())


@pytest.mark.parametrize("engine", ENGINES)
def test_lanemask_names_the_lanes_below(engine):
    out = np.zeros(40, np.int32)
    record(lanes_below, 1, 40, out, engine=engine)
    np.testing.assert_array_equal(out, np.arange(40) % 32)


STOPS = [
    ("assert n < 3, 'too large'", "`n < 3` is not true here (too large)"),
    ("if n > 3: raise ValueError('no')", "it raises ValueError('no')"),
    ("for i in range(0, n, n - 5): out[i] = 1", "must not be zero"),
    ("out[0] = n // (n - 5)", "by zero"),
    ("out[0] = n % (n - 5)", "by zero"),
]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("lines", "words"), STOPS)
def test_thread_that_stops_names_its_line(lines, words, engine):
    with pytest.raises(KernelFault) as fault:
        record(function_of(lines), 1, 1, *arguments(), engine=engine)
    assert words in str(fault.value)
    assert "kernel, line 2 `" in str(fault.value)


@cuda.jit
def adds_atomically(out):
    cuda.atomic.add(out, 0, 1)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "bool"])
def test_narrow_elements_have_no_atomic_operations(name, engine):
    with pytest.raises(KernelError, match=f"add on {name} elements.*float64"):
        record(adds_atomically, 1, 1, np.zeros(1, name), engine=engine)


NUMBA_REFUSES = [
    ("out[0:4] = x[0:4]", "loop over the elements"),
    ("m[0] = m[1]", "loop over the elements"),
    ("out[0:3] = TABLE", "loop over the elements"),
    ("for i in reversed(range(4)): out[i] = i", "reversed"),
    ("for v in {1, 2}: out[0] = v", "{1, 2}"),
    ("out[0] = 1 if n in {1, 5} else 2", "{1, 5}"),
    ("a, *b = TABLE; out[0] = a", "*b"),
    ("out[0] = pow(n, 2, 3)", "takes 2 arguments"),
    ("a = cuda.local.array(WIDTH + 1, float32); out[0] = 1", "`WIDTH + 1`"),
    ("out[0] = cuda.activemask()", "cuda.ballot_sync"),
    ("out[0] = cuda.libdevice.expf(f)", "math.exp"),
    ("out[0] = f'{n}'", "f-string"),
    ("g = lambda: 1; g = lambda: 2; out[0] = g()", "a second function"),
    ("cuda.atomic.and_(x, 0, 3)", "int32, int64, uint32 and uint64"),
    ("cuda.atomic.exch(x, 0, 3)", "int32, int64, uint32 and uint64"),
    ("cuda.atomic.cas(x, 0, 3, 4)", "int32, int64, uint32 and uint64"),
    ("cuda.atomic.inc(k, 0, 3)", "uint32"),
    ("y = None; y = 3 if n > 3 else y; out[0] = y", "None"),
]


@pytest.mark.parametrize(("lines", "words"), NUMBA_REFUSES)
def test_what_numba_refuses_or_we_do_is_named(lines, words):
    with pytest.raises(KernelError, match=r"kernel, line [23] `") as refusal:
        record(function_of(lines), 1, 1, *arguments())
    assert words in str(refusal.value)
