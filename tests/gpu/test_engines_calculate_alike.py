"""Both engines give the same bits for the same expression, at the edges too.

The expressions are drawn at random over all types of numbers, with a fixed
seed; the operands are the values at which widths, signs and roundings show.
"""

import linecache
import math
import random

import numpy as np
import pytest

from attention_lab.gpu.launch import launch

pytest.importorskip("numba", reason="the compiled engine is Numba's")

WHOLE = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
FLOAT = ["f4", "f8"]
TYPES = [*WHOLE, *FLOAT]
EXPRESSIONS = 80
PER_KERNEL = 40
THREADS = 23


def edges(dtype):
    """Return values of a type, most of them at one of its edges."""
    dtype = np.dtype(dtype)
    if dtype.kind == "f":
        values = [0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -3.7, 1e-3, 127.5, -128.9]
        values += [255.9, 3e4, 7e4, 2.0**31, -(2.0**31), 2.0**32, 5e9, 1e18]
        values += [2.0**63, 1e19, -1e30, math.inf, -math.inf, math.nan]
    else:
        info = np.iinfo(dtype)
        values = [
            0,
            1,
            2,
            3,
            7,
            31,
            32,
            63,
            64,
            70,
            100,
            info.max,
            info.max - 1,
        ]
        values += [info.max // 2 + 1, info.max // 3, 2**24 + 1, 2**53 + 1]
        values += [2**62 + 2**38 + 1, -1, -2, -3, -7, info.min, info.min + 1]
        values = [v for v in values if info.min <= v <= info.max]
    return np.array(values, dtype)


def whole_expression(rng):
    """Return an expression of the whole numbers i, j and n."""
    i, j = rng.sample("ijn", 2)
    return rng.choice(
        [
            *(f"{i} {op} {j}" for op in ("+", "-", "*", "&", "|", "^")),
            *(f"{i} {op} {j}" for op in ("<<", ">>", "<<", ">>")),
            *(f"{i} {op} ({j} | 1)" for op in ("//", "%")),
            *(f"{i} {op} {rng.choice((-1, 3, -7))}" for op in ("//", "%")),
            f"{i} ** ({j} & {rng.choice((3, 63, 0x1FFFF))})",
            f"{i} {rng.choice(('<<', '>>'))} {rng.choice((1, 40, 63))}",
            f"({i} + {j}) * {i} - {j}",
            f"-{i}",
            f"~{i}",
            f"abs({i})",
            f"abs({i} - {j})",
            f"min({i}, {j}) + max({j}, {i})",
            f"{i} < {j}",
            f"({i} > {j}) + ({i} == {j})",
            f"{i} if {i} > {j} else {j}",
            f"{i} / {j}",
        ]
    )


def float_expression(rng):
    """Return an expression of the floats a and b, and of whole numbers."""
    a, b = rng.sample("ab", 2)
    i = rng.choice("ijn")
    return rng.choice(
        [
            *(f"{a} {op} {b}" for op in ("+", "-", "*", "/", "//", "%")),
            *(f"{a} {op} {i}" for op in ("+", "*", "/", "//", "%")),
            *(f"{i} {op} {a}" for op in ("<", "==", ">=", "-")),
            f"int({a})",
            f"int({a} * 1e30)",
            f"math.{rng.choice(('floor', 'ceil', 'trunc'))}({a})",
            f"round({a})",
            f"{a} ** 3",
            f"{a} ** ({i} % 5 - 2)",
            f"min({a}, {b}) - max({b}, {a})",
            f"np.{np.dtype(rng.choice(TYPES)).name}({a})",
            f"np.float32({i}) + np.float32(0.5)",
            f"float({i})",
            f"abs({a})",
            f"-{a}",
            f"bool({a}) + bool({i})",
            f"math.{rng.choice(('sqrt', 'exp', 'log', 'sinh', 'log1p'))}({a})",
            f"math.{rng.choice(('tanh', 'atan', 'log2', 'erf'))}({a})",
            f"math.{rng.choice(('fmod', 'atan2', 'copysign'))}({a}, {b})",
            f"{a} if {a} > {b} else {b}",
            f"cuda.fma({a}, {b}, {a})",
        ]
    )


def programs():
    """Yield (text of a kernel, the dtype of each of its arrays)."""
    rng = random.Random(20)
    for _ in range(EXPRESSIONS // PER_KERNEL):
        names = "abijn"
        dtypes = [rng.choice(FLOAT) for _ in "ab"]
        dtypes += [rng.choice(WHOLE) for _ in "ijn"]
        targets = [rng.choice([*TYPES, "?"]) for _ in range(4)]
        lines = [
            f"def function({', '.join('wxyz')}, {', '.join(names.upper())}):"
        ]
        lines += ["    t = cuda.grid(1)"]
        lines += [f"    {name} = {name.upper()}[t]" for name in names]
        for k in range(PER_KERNEL):
            make = rng.choice((whole_expression, float_expression))
            lines.append(f"    {'wxyz'[k % 4]}[{k // 4}, t] = {make(rng)}")
        yield "\n".join(lines) + "\n", targets, dtypes


def defined(text):
    """Return a function from its text, with a source that can be read."""
    from attention_lab.gpu import cuda

    filename = f"<expressions {hash(text)}>"
    lines = text.splitlines(True)
    linecache.cache[filename] = (len(text), None, lines, filename)
    namespace = {"math": math, "np": np, "cuda": cuda}
    exec(compile(text, filename, "exec"), namespace)
    return namespace["function"]


def operands(dtype, rng):
    """Return one operand for each thread."""
    values = edges(dtype)
    return values[rng.integers(0, len(values), THREADS)]


@pytest.mark.parametrize("number", range(EXPRESSIONS // PER_KERNEL))
def test_random_expressions_have_the_same_bits(number):
    text, targets, dtypes = list(programs())[number]
    function = defined(text)
    rng = np.random.default_rng(number)
    inputs = [operands(dtype, rng) for dtype in dtypes]
    results = []
    for engine in ("python", "compiled"):
        shape = PER_KERNEL // 4, THREADS
        outputs = [np.zeros(shape, dtype) for dtype in targets]
        launch(
            function,
            (1, 1, 1),
            (THREADS, 1, 1),
            (*outputs, *inputs),
            engine=engine,
        )
        results.append(outputs)
    for k, (mine, other) in enumerate(zip(*results, strict=True)):
        for row, values in enumerate(zip(mine, other, strict=True)):
            line = text.splitlines()[7 + 4 * row + k]
            assert_same_bits(*values, f"{line} of {dtypes} into {targets[k]}")


def assert_same_bits(one, two, what):
    """Compare bits; any NaN is as good as any other."""
    if one.dtype.kind == "f":
        missing = np.isnan(one)
        np.testing.assert_array_equal(missing, np.isnan(two), what)
        one, two = np.where(missing, 0, one), np.where(missing, 0, two)
        np.testing.assert_array_equal(np.signbit(one), np.signbit(two), what)
    np.testing.assert_array_equal(one, two, what)
