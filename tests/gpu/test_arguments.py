"""What may be passed to a kernel; the rest is refused in one sentence."""

import numpy as np
import pytest

from attention_lab.gpu import cuda, record
from attention_lab.gpu.errors import KernelError
from attention_lab.gpu.launch import launch

float32 = np.float32


@cuda.jit
def double(out, x):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = x[i] * 2


@cuda.jit
def take(out, n):
    out[0] = n


FIELDS = np.zeros(4, [("real", "f4"), ("when", "i8")])
PACKED = np.zeros(4, [("flag", "i1"), ("value", "f4")])


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (np.ones(4, np.complex64), "dtype complex64"),
        (np.ones(4, np.complex128), r"array.real.copy\(\)"),
        (np.ones(4, ">f4"), r"array.astype\('float32'\)"),
        (np.ones(4, ">i8"), r"array.astype\('int64'\)"),
        (FIELDS, "the fields real, when"),
        (PACKED["value"], r"array.copy\(\)"),
        (np.ones(4, object), "dtype object"),
        (np.ones(4, np.longdouble), "float16/32/64"),
        (np.ones(4, "M8[s]"), r"array.view\('int64'\)"),
        (np.ones(4, "m8[s]"), r"array.view\('int64'\)"),
        (np.array(["a", "b"]), "dtype <U1"),
        (np.array([b"a", b"b"]), "dtype |S1"),
        (np.ma.masked_less(np.arange(4.0), 2), "masked array"),
        (np.array(1.0, np.float32), r"array.reshape\(1\)"),
        (np.complex64(1), "dtype complex64"),
        (np.longdouble(1), "float16/32/64"),
        (np.datetime64(1, "s"), "dtype datetime64"),
        (2**64, "no room in 64 bits"),
        (-(2**63) - 1, "no room in 64 bits"),
        ([1.0, 2.0], "is a list"),
        ((1, 2), "is a tuple"),
        (1j, "is a complex"),
        (None, "is a NoneType"),
    ],
)
def test_what_no_kernel_takes_is_refused_by_name(x, words):
    for start in (
        lambda: double[1, 4](np.zeros(4, float32), x),
        lambda: record(double, 1, 4, np.zeros(4, float32), x),
    ):
        with pytest.raises(KernelError, match=words) as refusal:
            start()
        sentence = str(refusal.value)
        assert "`x`" in sentence
        assert "\n" not in sentence


def read_only():
    array = np.zeros(4, float32)
    array.flags.writeable = False
    return array


def expanded():
    return np.lib.stride_tricks.as_strided(np.zeros(1, float32), (4,), (0,))


@pytest.mark.parametrize("engine", ["python", "compiled"])
@pytest.mark.parametrize(
    ("make", "words"), [(read_only, "read-only"), (expanded, "expanded")]
)
def test_an_output_that_cannot_be_written_is_named(make, words, engine):
    x = np.ones(4, float32)
    for start in (
        lambda: launch(
            double, (1, 1, 1), (4, 1, 1), (make(), x), engine=engine
        ),
        lambda: record(double, 1, 4, make(), x, engine=engine),
    ):
        with pytest.raises(KernelError, match=words) as refusal:
            start()
        sentence = str(refusal.value)
        assert sentence.startswith("argument 1 (`out`) is ")
        assert "`out[i] = x[i] * 2`" in sentence
        assert "\n" not in sentence


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_an_input_may_be_read_only_and_expanded(engine):
    out = np.zeros(4, float32)
    x = np.broadcast_to(float32(3), 4)
    record(double, 1, 4, out, x, engine=engine)
    assert out.tolist() == [6] * 4
    record(double, 1, 4, np.zeros(0, float32), x, engine=engine)


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_strides_of_any_sign_are_followed(engine):
    memory = np.arange(128, dtype=float32)
    for x in (memory[::-1], memory[::2], memory[100::-3], memory[3:]):
        out = np.zeros(32, float32)
        record(double, 1, 32, out[::-1], x, engine=engine)
        np.testing.assert_array_equal(out[::-1], 2 * x[:32])


def test_a_reversed_array_takes_as_many_sectors():
    x = np.arange(32, dtype=float32)
    recording = record(double, 1, 32, np.zeros(32, float32), x[::-1])
    assert recording.traffic["x"].sectors == 4  # 128 bytes, from the first
    assert (
        record(
            double, 1, 32, np.zeros(32, float32), np.zeros(64, float32)[::-2]
        )
        .traffic["x"]
        .sectors
        == 8
    )


@pytest.mark.parametrize(
    "value", [2**63, 2**64 - 1, -(2**63), np.uint64(2**64 - 1), np.uint8(255)]
)
def test_whole_numbers_keep_all_their_bits(value):
    out = np.zeros(1, np.uint64)
    take[1, 1](out, value)
    assert int(out[0]) == int(value) % 2**64


def torch_tensors():
    torch = pytest.importorskip("torch", reason="these arguments are torch's")
    ones = torch.ones(4)
    return {
        "requires a gradient": torch.ones(4, requires_grad=True),
        "bfloat16": ones.bfloat16(),
        "to_dense": ones.to_sparse(),
        "meta": torch.ones(4, device="meta"),
        "resolve_neg": torch._neg_view(ones),
        "complex64": torch.ones(4, dtype=torch.complex64).conj(),
        "view_as_real": torch.ones(4, dtype=torch.complex64),
        "float8": ones.to(torch.float8_e4m3fn),
        "quantize|qint8": torch.quantize_per_tensor(ones, 1.0, 0, torch.qint8),
        "reshape": torch.tensor(1.0),
    }


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
def test_tensors_without_plain_numbers_are_refused_by_name():
    for words, tensor in torch_tensors().items():
        with pytest.raises(KernelError, match=words) as refusal:
            double[1, 4](np.zeros(4, float32), tensor)
        assert "`x`" in str(refusal.value)
        assert "\n" not in str(refusal.value)


def test_tensors_of_plain_numbers_share_their_memory():
    torch = pytest.importorskip("torch", reason="these arguments are torch's")
    for dtype in (torch.float16, torch.float64, torch.int8, torch.uint8):
        out, x = torch.zeros(4, dtype=dtype), torch.arange(4).to(dtype)
        double[1, 4](out.flip(0), x)
        double[1, 4](out, x)
        assert out.tolist() == [0, 2, 4, 6]
    out = torch.zeros(4, 2)
    double[1, 4](out.t()[1], torch.ones(4))
    assert out[:, 1].tolist() == [2] * 4
    with pytest.raises(KernelError, match=r"tensor.contiguous\(\)"):
        double[1, 4](torch.zeros(1).expand(4), torch.ones(4))
