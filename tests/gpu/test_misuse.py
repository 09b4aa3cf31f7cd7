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


LINES = [
    # the number and the names of arguments
    ("out[0] = cuda.grid()", "takes 1 argument"),
    ("i, j = cuda.grid(2, 3)", "takes 1 argument"),
    ("out[0] = cuda.grid(4)", "1, 2 or 3"),
    ("out[0] = cuda.grid(0)", "1, 2 or 3"),
    ("out[0] = cuda.grid(n)", "1, 2 or 3"),
    ("out[0] = cuda.grid(f)", "whole number"),
    ("out[0] = cuda.grid(axis=1)", "`axis`"),
    ("out[0] = cuda.gridsize()", "takes 1 argument"),
    ("cuda.syncthreads(1)", "takes 0 arguments"),
    ("cuda.syncthreads(all=True)", "`all`"),
    ("out[0] = cuda.syncthreads_count()", "takes 1 argument"),
    ("cuda.syncwarp(1, 2)", "takes 0 to 1"),
    ("cuda.threadfence(1)", "takes 0 arguments"),
    ("cuda.atomic.add(out, 0)", "takes 3 arguments"),
    ("cuda.atomic.add(out)", "takes 3 arguments"),
    ("cuda.atomic.add(out, 0, 1, 2)", "takes 3 arguments"),
    ("cuda.atomic.cas(k, 0, 1)", "takes 4 arguments"),
    ("cuda.atomic.compare_and_swap(k, 1)", "takes 3 arguments"),
    ("cuda.atomic.add(n, 0, 1)", "global or shared array"),
    ("cuda.atomic.add(m, 0, 1)", "needs 2 indices"),
    ("cuda.atomic.add(out, (0, 1), 1)", "needs 1 indices"),
    ("cuda.atomic.add(out, 1.0, 1)", "whole number"),
    ("cuda.atomic.add(out, 0, x)", "where a number goes"),
    ("cuda.atomic.add(out, 0, val=1)", "`val`"),
    ("cuda.atomic.mul(out, 0, 1)", "cuda.atomic.mul"),
    ("cuda.atomic(out, 0, 1)", "cuda.atomic.add(array, index, value)"),
    ("out[0] = cuda.shfl_sync(1, f)", "takes 3 arguments"),
    ("out[0] = cuda.shfl_sync(f, 1, 0)", "whole number"),
    ("out[0] = cuda.ballot_sync(1)", "takes 2 arguments"),
    ("out[0] = cuda.fma(f, f)", "takes 3 arguments"),
    ("out[0] = cuda.popc()", "takes 1 argument"),
    ("out[0] = cuda.popc(f)", "whole number"),
    ("out[0] = cuda.laneid()", "without parentheses"),
    ("out[0] = cuda.threadIdx.x()", "without parentheses"),
    ("out[0] = cuda.threadIdx", "cuda.threadIdx"),
    ("out[0] = cuda.threadIdx()", "cuda.threadIdx.x"),
    ("out[0] = cuda.threadIdx + 1", "cuda.threadIdx"),
    ("out[0] = cuda.threadIdx.w", "cuda.threadIdx.w"),
    ("out[0] = cuda.threadIdx[0]", "cannot be indexed"),
    ("out[cuda.grid] = 1", "cuda.grid"),
    ("out[0] = math.exp()", "takes 1 argument"),
    ("out[0] = math.exp(f, f)", "takes 1 argument"),
    ("out[0] = math.exp(x)", "where a number goes"),
    ("out[0] = math.exp('a')", "where a number goes"),
    ("out[0] = math.pow(f)", "takes 2 arguments"),
    ("out[0] = math.exp(x=f)", "keyword argument"),
    ("out[0] = math.nothing(f)", "math.nothing"),
    ("out[0] = min()", "takes at least 1"),
    ("out[0] = min(n)", "`min` of one value"),
    ("out[0] = max(x)", "`max` of one value"),
    ("out[0] = max(n, key=abs)", "keyword argument"),
    ("out[0] = abs()", "takes 1 argument"),
    ("out[0] = abs(n, n)", "takes 1 argument"),
    ("out[0] = len()", "takes 1 argument"),
    ("out[0] = len(n)", "`len` of a number"),
    ("out[0] = int()", "takes 1 argument"),
    ("out[0] = int(x)", "where a number goes"),
    ("out[0] = int('3')", "where a number goes"),
    ("out[0] = float('one')", "float('one')"),
    ("out[0] = float32()", "takes 1 argument"),
    ("out[0] = round()", "takes 1 to 2"),
    ("out[0] = round(f, f)", "whole number"),
    ("out[0] = round(f, 1, 2)", "takes 1 to 2"),
    ("out[0] = pow(n)", "takes 2 arguments"),
    ("out[0] = divmod(n)", "takes 2 arguments"),
    ("out[0] = helper()", "do not fit `helper(a, b)`"),
    ("out[0] = helper(1, 2, 3)", "do not fit `helper(a, b)`"),
    ("out[0] = helper(1, c=3)", "do not fit `helper(a, b)`"),
    ("out[0] = helper(1, a=3)", "do not fit `helper(a, b)`"),
    ("out[0] = helper", "helper"),
    ("out[0] = n(3)", "calling `n`"),
    ("out[0] = x(3)", "calling `x`"),
    ("out[0] = TABLE(3)", "calling `TABLE`"),
    # loops
    ("for i in range(): out[i] = 1", "takes 1 to 3"),
    ("for i in range(1, 2, 3, 4): out[i] = 1", "takes 1 to 3"),
    ("for i in range(0, 5, 0): out[i] = 1", "step of 0"),
    ("for i in range(0, 5, n - 5): out[i] = 1", "must not be zero"),
    ("for i in range(f): out[i] = 1", "whole number"),
    ("for i in range(x): out[i] = 1", "where a number goes"),
    ("for i in range('3'): out[i] = 1", "where a number goes"),
    ("for i in n: out[i] = 1", "`for` over `n`"),
    ("for i in 5: out[i] = 1", "`for` over `5`"),
    ("for i in 'abc': out[0] = 1", "`for` over `'abc'`"),
    ("for i in None: out[0] = 1", "`for` over `None`"),
    ("for i in math: out[0] = 1", "`for` over `math`"),
    ("for out[0] in range(3): pass", "a `for` that counts in"),
    ("for i, j in range(3): out[i] = j", "unpack"),
    ("for i, j, l in enumerate(x): out[i] = j", "unpack"),
    ("for i in enumerate(): out[0] = 1", "takes 1 to 2"),
    ("for i in zip(): out[0] = 1", "takes at least 1"),
    ("r = range(3); out[0] = r", "range"),
    ("out[0] = enumerate(x)", "enumerate"),
    ("while x: out[0] = 1", "where a number goes"),
    ("while 'a': break", "text"),
    # shapes and indices
    ("out[0] = m.shape[5]", "no item 5"),
    ("out[0] = m.shape[-3]", "no item -3"),
    ("out[0] = m.shape[0, 1]", "2 indices for a tuple"),
    ("out[0] = m.shape[1.0]", "whole number"),
    ("out[0] = m.shape", "a tuple of 2"),
    ("out[0] = m.shape[0:1]", "a tuple of 1"),
    ("out[0] = m.shape[0:n]", "not constant"),
    ("a, b, c = m.shape", "unpacking 2 values into 3"),
    ("a, b = x.shape", "unpacking 1 values into 2"),
    ("a, b = n", "number"),
    ("a, b = 5", "number"),
    ("out[0] = m.form", "`.form`"),
    ("out[0] = n.shape", "`.shape`"),
    ("out[0] = TABLE[7]", "no such item"),
    ("out[0] = TABLE['a']", "cannot be indexed"),
    ("out[0] = x[0][1]", "indexing a number"),
    ("out[0] = n[0]", "indexing a number"),
    ("out[0] = x[0, 1]", "2 indices"),
    ("out[0] = x['a']", "where a number goes"),
    ("out[0] = x[None]", "None"),
    ("out[0] = x[x]", "where a number goes"),
    ("out[0] = x[n > 3]", "a bool as an index"),
    ("out[n > 3] = 1", "a bool as an index"),
    ("out[0] = x[1.5]", "whole number"),
    ("out[0] = x[f:]", "whole number"),
    ("out[0] = x", "an array"),
    ("out[0] = 'a'", "text"),
    ("out[0] = None", "None"),
    ("out['a'] = 1", "where a number goes"),
    ("n[0] = 1", "indexing a number"),
    ("n.x = 1", "assigning"),
    ("x.shape = 4", "assigning"),
    ("TABLE[0] = 1", "constant"),
    ("out[0] = x.sum()", "x.sum"),
    ("out[0] = undefined", "`undefined` is not defined"),
    ("undefined[0] = 1", "`undefined` is not defined"),
    ("out[0] = np.undefined", "np.undefined"),
    # arrays of a block
    ("s = cuda.shared.array()", "needs a shape and a dtype"),
    ("s = cuda.shared.array(4)", "needs a shape and a dtype"),
    ("s = cuda.shared.array(4, float32, 1)", "needs a shape and a dtype"),
    ("s = cuda.shared.array(size=4, dtype=float32)", "shape and a dtype"),
    ("s = cuda.shared.array(4, 'float33')", "type of an array's elements"),
    ("s = cuda.shared.array(4, 4)", "type of an array's elements"),
    ("s = cuda.shared.array(4, str)", "type of an array's elements"),
    ("s = cuda.shared.array(4, n)", "type of an array's elements"),
    ("s = cuda.shared.array(4.0, float32)", "the shape `4.0`"),
    ("s = cuda.shared.array(n, float32)", "the shape `n`"),
    ("s = cuda.shared.array(-4, float32)", "the shape `-4`"),
    ("s = cuda.shared.array((), float32)", "the shape `()`"),
    ("s = cuda.shared.array((2, n), float32)", "the shape `(2, n)`"),
    ("s = cuda.shared.array('a', float32)", "the shape `'a'`"),
    ("s = cuda.shared.zeros(4, float32)", "cuda.shared.zeros"),
    ("s = cuda.local.array(0, float32); out[0] = s[0]", "local array"),
    ("s = cuda.shared.array(4, np.complex64); out[0] = 1", "elements"),
    # arithmetic
    ("out[0] = x + 1", "where a number goes"),
    ("out[0] = 1 + 'a'", "where a number goes"),
    ("out[0] = -x", "where a number goes"),
    ("out[0] = not x", "where a number goes"),
    ("out[0] = ~f", "bit operation"),
    ("out[0] = f & 1", "bit operation"),
    ("out[0] = x @ m", "`@`"),
    ("out[0] = x < 3", "where a number goes"),
    ("out[0] = n < 'a'", "where a number goes"),
    ("out[0] = 1 if x else 2", "where a number goes"),
    ("if x: out[0] = 1", "where a number goes"),
    ("out[0] = n and x", "where a number goes"),
    ("out[0] = (1, 2) + 3", "where a number goes"),
    ("out[0] = n in 5", "`in`"),
    ("out += 1", "where a number goes"),
    ("out[0] = 3j", "3j"),
    ("out[0] = b'a'", "b'a'"),
    ("out[0] = f'{n}'", "f-string"),
    ("print(f'{n}')", "f-string"),
    ("print(n, end='')", "keyword argument"),
    ("print(x)", "print"),
    ("out[0] = [1, 2][0]", "[1, 2]"),
    ("del n", "`del`"),
    ("import math", "`import`"),
    ("global n2", "`global`"),
    ("yield n", "yield"),
    ("return n", "returns a value"),
    ("out[0] = await_me", "`await_me` is not defined"),
]


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
    ("list", lambda: good[1, 4](out4(), [1, 2]), "argument 2 is a list"),
    ("None", lambda: good[1, 4](out4(), None), "argument 2 is a NoneType"),
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
