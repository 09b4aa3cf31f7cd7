"""Misuse is answered in plain words: what, where, what to write instead.

Two tables: lines of kernels that no GPU could run, and calls from the
outside that make no sense. Each must end in an error of this package, never
in a KeyError from its inside or in one of Numba's.
"""

import functools
import linecache
import math
import re

import numpy as np
import pytest
from misuse_lines import LINES

import attention_lab.gpu.errors as errors
from attention_lab.gpu import compile_card, cuda, record
from attention_lab.gpu.errors import (
    KernelError,
    LaunchRefused,
    UnsupportedConstruct,
    WrongArgument,
    WrongValue,
)

float32 = np.float32
TABLE = (3, 1, 4)
PARAMETERS = "out, x, m, k, n, f"


@cuda.jit(device=True)
def helper(a, b=2):
    return a + b


def arguments():
    return (
        np.zeros(8, np.float32),
        np.ones(8, np.float32),
        np.ones((3, 4), np.float32),
        np.ones(8, np.int32),
        5,
        np.float32(1.5),
    )


def kernel_of(lines, name="misused"):
    """Return a kernel with these lines, and a source that can be read."""
    body = "".join(f"    {line}\n" for line in lines.split("; "))
    text = f"def {name}({PARAMETERS}):\n{body}"
    filename = f"<{name} {lines}>"
    linecache.cache[filename] = (
        len(text),
        None,
        text.splitlines(keepends=True),
        filename,
    )
    namespace = dict(globals())
    exec(compile(text, filename, "exec"), namespace)
    return cuda.jit(namespace[name])


@pytest.mark.parametrize("engine", ["python", "compiled"])
@pytest.mark.parametrize(("lines", "words"), LINES, ids=[m[0] for m in LINES])
def test_misused_line_is_refused_in_plain_words(lines, words, engine):
    if engine == "compiled":
        pytest.importorskip("numba", reason="the compiled engine needs Numba")
    with pytest.raises(KernelError) as refusal:
        record(kernel_of(lines), 1, 1, *arguments(), engine=engine)
    message = str(refusal.value)
    assert words in message
    assert re.search(r"misused, line \d+ `", message), message
    assert "Error" not in message


@cuda.jit
def good(out, x):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = x[i]


@cuda.jit
def dynamic(out):
    s = cuda.shared.array(0, float32)
    s[0] = 1
    out[0] = s[0]


def plain(out, x):
    out[0] = x[0]


def unreadable():
    namespace = {}
    exec("def kernel(out, x):\n    out[0] = 1\n", namespace)
    return namespace["kernel"]


def three(**more):
    return record(good, 1, 4, out4(), x4(), **more)


def out4():
    return np.zeros(4, np.float32)


x4 = out4

CALLS = [
    # launching
    ("no grid", lambda: good(out4(), x4()), "good[grid, block]"),
    ("no grid, by name", lambda: good(out=out4(), x=x4()), "good[grid, block]"),
    ("one size", lambda: good[1](out4(), x4()), "good[grid, block]"),
    ("five sizes", lambda: good[1, 2, 3, 4, 5], "good[grid, block]"),
    ("by name", lambda: good[1, 4](out4(), x=x4()), "`x` by name"),
    ("all by name", lambda: good[1, 4](out=out4(), x=x4()), "by position"),
    ("float grid", lambda: good[1.5, 4], "whole numbers"),
    ("whole float grid", lambda: good[4 / 2, 4], "-(-n // threads)"),
    ("float block", lambda: good[1, (2.0, 2)], "whole numbers"),
    ("NumPy float grid", lambda: good[np.float64(2), 4], "whole numbers"),
    ("text grid", lambda: good["1", 4], "the grid is '1'"),
    ("text in block", lambda: good[1, ("a", 2)], "the block is"),
    ("None grid", lambda: good[None, 4], "the grid is None"),
    ("None block", lambda: good[1, None], "the block is None"),
    ("four sizes", lambda: good[(1, 1, 1, 1), 4], "1, 2 or 3 sizes"),
    ("no sizes", lambda: good[(), 4], "1, 2 or 3 sizes"),
    ("nested", lambda: good[((1, 2), 3), 4], "the grid is"),
    ("dict", lambda: good[{"x": 1}, 4], "the grid is"),
    ("array grid", lambda: good[np.ones(2, int), 4], "the grid is"),
    ("nan grid", lambda: good[math.nan, 4], "whole numbers"),
    ("negative grid", lambda: good[-1, 4](out4(), x4()), "negative size"),
    ("negative block", lambda: good[1, (4, -1)](out4(), x4()), "negative"),
    ("zero grid", lambda: good[0, 4](out4(), x4()), "is empty"),
    ("zero block", lambda: good[1, (4, 0)](out4(), x4()), "is empty"),
    ("negative shared", lambda: good[1, 4, 0, -4], "cannot be negative"),
    ("float shared", lambda: good[1, 4, 0, 1.5], "whole number of bytes"),
    ("None shared", lambda: good[1, 4, 0, None], "whole number of bytes"),
    ("text shared", lambda: good[1, 4, 0, "4"], "whole number of bytes"),
    ("forall text", lambda: good.forall("4"), "the grid is '4'"),
    ("forall no threads", lambda: good.forall(4, tpb=0), "at least one"),
    ("one argument", lambda: good[1, 4](out4()), "takes 2 arguments"),
    ("no argument", lambda: good[1, 4](), "takes 2 arguments"),
    ("three arguments", lambda: good[1, 4](1, 2, 3), "takes 2 arguments"),
    ("list", lambda: good[1, 4](out4(), [1, 2]), "argument 2 (`x`) is a list"),
    ("None", lambda: good[1, 4](out4(), None), "(`x`) is a NoneType"),
    ("complex number", lambda: good[1, 4](out4(), 1j), "complex"),
    ("text array", lambda: good[1, 4](out4(), np.array(["a"])), "dtype <U1"),
    ("date", lambda: good[1, 4](out4(), np.datetime64("2020")), "datetime64"),
    (
        "complex scalar",
        lambda: good[1, 4](out4(), np.complex64(1)),
        "complex64",
    ),
    ("huge number", lambda: good[1, 4](out4(), 2**70), "64 bits"),
    ("device function", lambda: helper(1, 2), "call it from a kernel"),
    ("device launch", lambda: helper[1, 2](1, 2), "cannot be launched"),
    ("read outside", lambda: cuda.threadIdx.x + 1, "inside a kernel only"),
    ("compared", lambda: cuda.threadIdx.x < 3, "inside a kernel only"),
    ("as a number", lambda: int(cuda.blockDim.x), "inside a kernel only"),
    ("as an index", lambda: [1, 2][cuda.laneid], "inside a kernel only"),
    ("in a range", lambda: range(cuda.blockIdx.x), "inside a kernel only"),
    ("multiplied", lambda: 2 * cuda.gridDim.y, "inside a kernel only"),
    ("called", lambda: cuda.grid(1), "inside a kernel only"),
    ("atomic", lambda: cuda.atomic.add(out4(), 0, 1), "inside a kernel only"),
    ("shared", lambda: cuda.shared.array(4, float32), "inside a kernel only"),
    # recording
    ("launch", lambda: record(good[1, 4], 1, 4, out4()), "pass `good` itself"),
    ("plain call", lambda: record(plain, 1, 4, out4()), "takes 2 arguments"),
    ("device", lambda: record(helper, 1, 4, 1, 2), "is a device function"),
    ("lambda", lambda: record(lambda out: None, 1, 4, out4()), "a lambda"),
    ("class", lambda: record(dict, 1, 4, out4()), "is not a kernel"),
    ("number", lambda: record(3, 1, 4, out4()), "is not a kernel"),
    ("None kernel", lambda: record(None, 1, 4, out4()), "is not a kernel"),
    ("text kernel", lambda: record("good", 1, 4, out4()), "is not a kernel"),
    ("builtin", lambda: record(len, 1, 4, out4()), "is not a kernel"),
    (
        "partial",
        lambda: record(functools.partial(plain, out4()), 1, 4, x4()),
        "is not a kernel",
    ),
    ("exec", lambda: record(unreadable(), 1, 4, out4(), x4()), "the source"),
    ("order", lambda: three(order="random"), "'shuffled'"),
    ("order None", lambda: three(order=None), "order is None"),
    ("order list", lambda: three(order=[0, 1]), "order is [0, 1]"),
    ("seed", lambda: three(seed="a"), "seed is 'a'"),
    ("float seed", lambda: three(seed=1.5), "seed is 1.5"),
    ("engine", lambda: three(engine="gpu"), "'compiled'"),
    ("engine None", lambda: three(engine=None), "engine is None"),
    ("shared_bytes", lambda: three(shared_bytes=-1), "cannot be negative"),
    ("shared_bytes float", lambda: three(shared_bytes=2.0), "whole number"),
    ("record grid", lambda: record(good, "1", 4, out4(), x4()), "the grid"),
    ("record block", lambda: record(good, 1, 2.5, out4(), x4()), "the block"),
    ("kernel as grid", lambda: record(good, out4(), x4()), "the grid is"),
    # compiling
    ("card launch", lambda: compile_card(good[1, 4], ()), "pass `good`"),
    ("card device", lambda: compile_card(helper, ()), "a device function"),
    ("card class", lambda: compile_card(dict, ()), "is not a kernel"),
    ("no signature", lambda: compile_card(good, None), "the signature is"),
    ("number", lambda: compile_card(good, 3), "the signature is 3"),
    ("word", lambda: compile_card(good, "float32"), "the signature is"),
    ("empty text", lambda: compile_card(good, ""), "the signature is"),
    ("open", lambda: compile_card(good, "void(float32[:]"), "the signature"),
    ("returns", lambda: compile_card(good, "int32(int32)"), "returns int32"),
    ("no type", lambda: compile_card(good, "void(float33[:])"), "float33"),
    ("comma", lambda: compile_card(good, "void(float32[:],)"), "type of an"),
    ("bracket", lambda: compile_card(good, ("float32[",)), "type of an"),
    ("object", lambda: compile_card(good, (object(),)), "does not name"),
    ("None type", lambda: compile_card(good, (None, None)), "does not name"),
    ("cc text", lambda: compile_card(good, (1, 2), cc="7.5"), "cc is '7.5'"),
    ("cc number", lambda: compile_card(good, (1, 2), cc=75), "cc is 75"),
    ("cc float", lambda: compile_card(good, (1, 2), cc=(7.5, 0)), "cc is"),
    ("cc None", lambda: compile_card(good, (1, 2), cc=None), "cc is None"),
]


@pytest.mark.parametrize(
    ("call", "words"), [m[1:] for m in CALLS], ids=[m[0] for m in CALLS]
)
def test_misused_call_is_refused_in_plain_words(call, words):
    with pytest.raises(KernelError) as refusal:
        call()
    assert words in str(refusal.value)
    assert isinstance(
        refusal.value, (TypeError, ValueError)
    ) or "source" in str(refusal.value)


def test_refused_launch_is_recorded_as_a_hazard():
    for grid, block in ((-1, 4), (1, (4, -1)), (0, 4)):
        recording = record(good, grid, block, out4(), x4())
        assert recording.kinds == ("empty-launch",)


def test_numpy_whole_numbers_are_sizes_and_seeds():
    out, x = out4(), np.arange(4, dtype=np.float32)
    good[np.int32(1), (np.int64(4),)](out, x)
    np.testing.assert_array_equal(out, x)
    recording = record(
        good,
        np.int64(1),
        [np.uint8(4)],
        out,
        x,
        order="shuffled",
        seed=np.int32(3),
        shared_bytes=np.int64(8),
    )
    assert recording.hazards == ()


def test_errors_are_also_the_builtin_that_fits():
    pairs = {
        WrongArgument: TypeError,
        WrongValue: ValueError,
        UnsupportedConstruct: NotImplementedError,
        LaunchRefused: ValueError,
        errors.KernelFault: RuntimeError,
        errors.CompilerMissing: ImportError,
        errors.CompileRefused: ValueError,
    }
    for ours, builtin in pairs.items():
        assert issubclass(ours, builtin)
        assert issubclass(ours, KernelError)
