"""Kernels written with Numba's own names need no change."""

import linecache
import math

import numpy as np
import pytest

from attention_lab.gpu import record

numba = pytest.importorskip("numba", reason="these kernels name Numba")
from numba import cuda, float32, int32, njit  # noqa: E402 - after the skip
from numba.cuda import grid, syncthreads  # noqa: E402

from attention_lab.gpu.inference import Inference  # noqa: E402
from attention_lab.gpu.launch import launch  # noqa: E402
from attention_lab.gpu.lowering import known_arguments  # noqa: E402


@cuda.jit(device=True)
def half(x):
    return x * float32(0.5)


@njit
def third(x):
    return x / float32(3.0)


@cuda.jit
def numba_kernel(out, x):
    s = cuda.shared.array(shape=(8,), dtype=float32)
    acc = cuda.local.array(1, numba.float64)
    t = cuda.threadIdx.x
    i = grid(1)
    s[t] = x[i]
    acc[0] = 1.0
    syncthreads()
    out[i] = half(s[7 - t]) + third(x[i]) + float32(acc[0]) + int32(2.9)


def test_kernel_decorated_by_numba_is_recorded():
    x = np.arange(8, dtype=np.float32)
    out = np.zeros_like(x)
    recording = record(numba_kernel, 1, 8, out, x)
    assert recording.hazards == ()
    np.testing.assert_allclose(out, x[::-1] / 2 + x / 3 + 3, rtol=1e-6)


EXPRESSIONS = (
    "a + b",
    "a - b",
    "a * b",
    "a / b",
    "a // b",
    "a % b",
    "a ** 2",
    "min(a, b)",
    "a if a > b else b",
    "-a",
    "abs(a)",
    "math.sqrt(a)",
    "math.floor(a)",
    "float(a)",
    "int(a)",
    "a < b",
    "a + 1",
    "a * 0.5",
)
WHOLE_ONLY = ("a & b", "a | b", "a << b", "a >> b", "~a")


def defined(text):
    """Return a function from its text, with a source that can be read."""
    filename = f"<expression {hash(text)}>"
    linecache.cache[filename] = (
        len(text),
        None,
        text.splitlines(True),
        filename,
    )
    namespace = {"math": math, "np": np}
    exec(compile(text, filename, "exec"), namespace)
    return namespace["function"]


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("float32", "float32"),
        ("float32", "float64"),
        ("float32", "int64"),
        ("float32", "int8"),
        ("float32", "uint32"),
        ("int32", "int32"),
        ("uint32", "uint32"),
        ("uint32", "int64"),
        ("uint8", "uint64"),
        ("int16", "float32"),
        ("uint16", "float32"),
        ("float32", "uint16"),
        ("int64", "uint64"),
    ],
)
def test_types_are_those_that_numba_infers(a, b):
    """Numba's verdict on many expressions at once, against our rules."""
    from attention_lab.gpu.flatten import Flattener

    whole = "float" not in a + b
    expressions = EXPRESSIONS + (WHOLE_ONLY if whole else ())
    returned = ", ".join(expressions)
    compiled = njit(defined(f"def function(a, b):\n    return ({returned},)\n"))
    compiled.compile((getattr(numba, a), getattr(numba, b)))
    theirs = [str(t) for t in compiled.nopython_signatures[0].return_type]

    lines = "".join(f"    v{k} = {e}\n" for k, e in enumerate(expressions))
    flat = Flattener(defined(f"def function(a, b):\n{lines}"))
    values = [np.dtype(name).type(1) for name in (a, b)]
    known = known_arguments(["a", "b"], values)
    inferred = Inference(flat.body, known, (1, 1, 1)).variables
    ours = [inferred[f"v{k}"].dtype.name for k in range(len(expressions))]
    assert dict(zip(expressions, ours, strict=True)) == dict(
        zip(expressions, theirs, strict=True)
    )


PROGRAM = """
def function(out, a, b, i, u, n):
    total = 0
    for k in range(n):
        if k % 3 == 2:
            continue
        total += i * k - u // 3
        if total > 1000:
            break
    x = a * b - total
    if x > 0:
        x = a
    out[0] = total
    out[1] = x
    out[2] = (i - u) ^ 12
    out[3] = -u
    out[4] = a ** 3 + b % np.float32(0.7)
    out[5] = math.exp(a) / n + math.atan2(a, b)
    out[6] = min(i, u, n) + max(a, 0.25)
    out[7] = u - np.uint32(200)
"""


FUNCTION = defined(PROGRAM)
JITTED = njit(FUNCTION)


@pytest.mark.parametrize("engine", ["python", "compiled"])
@pytest.mark.parametrize("i", [-7, 5])
def test_one_thread_computes_what_numba_computes(engine, i):
    args = (
        np.float32(1.7),
        np.float32(-0.6),
        np.int32(i),
        np.uint32(9),
        np.int64(11),
    )
    theirs, ours = np.zeros(8), np.zeros(8)
    JITTED(theirs, *args)
    launch(FUNCTION, (1, 1, 1), (1, 1, 1), (ours, *args), engine=engine)
    # exp and atan2 of float32 may differ in the last bit of float32.
    np.testing.assert_allclose(ours, theirs, rtol=2.5e-7)
