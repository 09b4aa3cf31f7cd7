"""popc, clz, ffs and brev count the bits of their operand's own type."""

import numpy as np
import pytest

from attention_lab.gpu import cuda, record
from attention_lab.gpu.errors import UnsupportedConstruct

# Independent of the recorder: the bits as text, of Numba's own types.
# Numba (numba/cuda/cudadecl.py): popc and clz take and return every integer
# type; ffs has 32 and 64 bits; brev has uint32, which an int64 becomes too
# (brev.b32 in its PTX), and uint64.
ENGINES = ["python", "compiled"]
EDGES = 11
DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]


def edges(dtype):
    """Return the values at which a width shows."""
    info = np.iinfo(dtype)
    middle = 1 << info.bits // 2
    values = {info.min, info.max, 0, 1, 5, 6, info.max // 3, middle}
    if info.min < 0:
        values |= {-1, -2, info.min + 1}
    values = sorted(v for v in values if info.min <= v <= info.max)
    return np.array((values + [0] * EDGES)[:EDGES], dtype)


def bits(value, width):
    """Return the two's complement of a number as text."""
    return format(int(value) % 2**width, f"0{width}b")


def counts(value, dtype):
    """Return popc, clz and, from 32 bits on, ffs, read off the text."""
    text = bits(value, 8 * np.dtype(dtype).itemsize)
    return [
        text.count("1"),
        len(text) - len(text.lstrip("0")),
        0 if "1" not in text else len(text) - text.rindex("1"),
    ]


def reverse(value, dtype):
    """Return what Numba's brev gives."""
    return int(bits(value, 64 if dtype == "u8" else 32)[::-1], 2)


@cuda.jit(device=True)
def every_width(out, row, i, x):
    out[row, i, 0] = cuda.popc(x[i])
    out[row, i, 1] = cuda.clz(x[i])
    out[row, i, 3] = cuda.brev(x[i])


@cuda.jit
def bits_of_all(out, a, b, c, d, e, f, g, h):
    i = cuda.grid(1)
    every_width(out, 0, i, a)
    every_width(out, 1, i, b)
    every_width(out, 2, i, c)
    every_width(out, 3, i, d)
    every_width(out, 4, i, e)
    every_width(out, 5, i, f)
    every_width(out, 6, i, g)
    every_width(out, 7, i, h)
    out[2, i, 2] = cuda.ffs(c[i])
    out[3, i, 2] = cuda.ffs(d[i])
    out[6, i, 2] = cuda.ffs(g[i])
    out[7, i, 2] = cuda.ffs(h[i])


@pytest.mark.parametrize("engine", ENGINES)
def test_bits_are_those_of_the_operands_type(engine):
    columns = [edges(dtype) for dtype in DTYPES]
    out = np.zeros((8, EDGES, 4), np.uint64)
    record(bits_of_all, 1, EDGES, out, *columns, engine=engine)
    for dtype, x, rows in zip(DTYPES, columns, out.tolist(), strict=True):
        for value, row in zip(x, rows, strict=True):
            expected = [*counts(value, dtype), reverse(value, dtype)]
            if x.itemsize < 4:
                expected[2] = 0  # ffs was not asked
            assert row == expected, (dtype, value)


@cuda.jit
def find_first(out, x):
    i = cuda.grid(1)
    out[i] = cuda.ffs(x[i])


@cuda.jit
def turn_round(out, x):
    i = cuda.grid(1)
    out[i] = cuda.brev(x[i])


@pytest.mark.parametrize("dtype", ["i1", "i2", "u1", "u2", "?"])
def test_ffs_of_narrow_numbers_is_refused_as_numba_does(dtype):
    out = np.zeros(1, np.int64)
    with pytest.raises(UnsupportedConstruct, match="32 and 64 bits"):
        record(find_first, 1, 1, out, np.ones(1, dtype))


@cuda.jit
def literals(out, x):
    # A literal and cuda.grid are int64, threadIdx is int32, a bool an int8.
    out[0] = cuda.clz(5)
    out[1] = cuda.clz(1 << 40)
    out[2] = cuda.clz(cuda.threadIdx.x)
    out[3] = cuda.clz(cuda.blockDim.x)
    out[4] = cuda.clz(cuda.grid(1))
    out[5] = cuda.popc(-1)
    out[6] = cuda.popc(np.int32(-1))
    out[7] = cuda.popc(np.int8(-1))
    out[8] = cuda.clz(x[0] == 3)
    out[9] = cuda.popc(x[0] == 3)
    out[10] = 63 - cuda.clz(np.uint8(x[0]))
    out[11] = cuda.clz(cuda.laneid)
    out[12] = cuda.brev(cuda.threadIdx.x + 1)
    out[13] = cuda.brev(np.uint64(1))
    out[14] = cuda.ffs(0) - 1
    out[15] = cuda.clz(x[0] & 255)


@pytest.mark.parametrize("engine", ENGINES)
def test_literals_and_indices_have_numbas_types(engine):
    out = np.zeros(16, np.float64)
    record(literals, 1, 1, out, np.array([3], np.int16), engine=engine)
    assert out.tolist() == [
        *(61, 23, 32, 31, 64, 64, 32, 8, 7, 1),
        *(63 - 6, 32, 2.0**31, 2.0**63, -1, 62),
    ]


def test_the_lost_half_of_a_reversed_int64_is_noted():
    x = np.array([1 << 40, 1], np.int64)
    out = np.zeros(2, np.int64)
    recording = record(turn_round, 1, 2, out, x)
    assert [note.kind for note in recording.notes] == ["half-reversed"]
    recording = record(turn_round, 1, 2, out, x.astype(np.uint64))
    assert recording.notes == ()


def test_numba_declares_these_types():
    """The table above is Numba's own, where its CUDA target can be asked."""
    pytest.importorskip("numba", reason="compares with Numba's declarations")
    from numba.cuda import cudadecl, cudaimpl

    def cases(template):
        return {str(s.args[0]): str(s.return_type) for s in template.cases}

    integers = {np.dtype(d).name for d in DTYPES}
    assert cases(cudadecl.Cuda_popc) == {n: n for n in integers}
    assert cases(cudadecl.Cuda_clz) == {n: n for n in integers}
    assert set(cases(cudadecl.Cuda_ffs).values()) == {"uint32"}
    assert cases(cudadecl.Cuda_brev) == {"uint32": "uint32", "uint64": "uint64"}
    lowered = {
        str(types[0])
        for _, function, types in cudaimpl.registry.functions
        if getattr(function, "__name__", "") == "ffs"
    }
    assert lowered == {"int32", "uint32", "int64", "uint64"}
