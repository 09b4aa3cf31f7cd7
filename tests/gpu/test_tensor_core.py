"""What a tensor core multiplies, and which lane holds what."""

import inspect
import textwrap

import numpy as np
import pytest

from attention_lab.gpu import cuda, to_device
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.recorder import record
from attention_lab.gpu.tensor_core import (
    choose_mma,
    make_product_kernel,
    mma_by_shuffles,
    trial,
    why_not_here,
)
from attention_lab.source import plain_function

half, real = np.float16, np.float32
#: The same layout as another library writes it: ((shape), (stride)) of the
#: lane and of the element, into a matrix whose rows lie next to each other.
#: NVIDIA CUTLASS, include/cute/atom/mma_traits_sm80.hpp, 16x8x16 F16.
CUTE = {
    "a": (((4, 8), (32, 1)), ((2, 2, 2), (16, 8, 128)), 16),
    "b": (((4, 8), (16, 1)), ((2, 2), (8, 64)), 8),
    "c": (((4, 8), (32, 1)), ((2, 2), (16, 8)), 16),
}


def offset(number, shape, stride):
    """Return where CuTe puts element `number` of a layout."""
    total = 0
    for size, step in zip(shape, stride, strict=True):
        total += number % size * step
        number //= size
    return total


def places(name):
    """Return (row, column) of every lane's elements, as CuTe has them."""
    lanes, elements, rows = CUTE[name]
    count = int(np.prod(elements[0]))
    at = np.array(
        [
            [offset(lane, *lanes) + offset(i, *elements) for i in range(count)]
            for lane in range(32)
        ]
    )
    return at % rows, at // rows


@cuda.jit
def fragments_kernel(c_out, a_in, b_in):
    """One warp multiplies fragments that the host has arranged."""
    a = cuda.local.array(8, half)
    b = cuda.local.array(4, half)
    c = cuda.local.array(4, real)
    lane = cuda.threadIdx.x
    for i in range(8):
        a[i] = a_in[lane, i]
    for i in range(4):
        b[i] = b_in[lane, i]
        c[i] = c_out[lane, i]
    mma_by_shuffles(c, a, b)
    for i in range(4):
        c_out[lane, i] = c[i]


@pytest.mark.parametrize("name", CUTE)
def test_every_element_is_held_once(name):
    rows, columns = places(name)
    held = set(
        zip(rows.ravel().tolist(), columns.ravel().tolist(), strict=True)
    )
    assert len(held) == rows.size
    # b is stored as (column, row) there: its first axis is N.
    shape = {"a": (16, 16), "b": (8, 16), "c": (16, 8)}[name]
    assert held == set(np.ndindex(shape))


def test_the_shuffles_multiply_fragments_as_another_library_arranges_them():
    rng = np.random.default_rng(5)
    a_MK = rng.integers(-9, 9, (16, 16))
    b_NK = rng.integers(-9, 9, (8, 16))
    c_MN = rng.integers(-99, 99, (16, 8))
    c_out = to_device(c_MN[places("c")].astype(real))
    fragments_kernel[1, 32](
        c_out,
        to_device(a_MK[places("a")].astype(half)),
        to_device(b_NK[places("b")].astype(half)),
    )
    made = np.empty((16, 8))
    made[places("c")] = c_out.copy_to_host()
    np.testing.assert_array_equal(made, c_MN + a_MK @ b_NK.T)


def test_the_trial_multiplies_and_finds_nothing_wrong():
    assert trial(mma_by_shuffles) == ""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("8 * (i // 2 % 2), 2 * t + i % 2 + 8 * (i // 4)",
         "8 * (i // 4), 2 * t + i % 2 + 8 * (i // 2 % 2)"),
        ("b_KN[2 * t + i % 2 + 8 * (i // 2), g]", "b_KN[4 * t + i, g]"),
        ("out[g + 8 * (i // 2), 2 * t + i % 2]",
         "out[g + 8 * (i % 2), 2 * t + i // 2]"),
        ("cuda.threadIdx.x // 4, cuda.threadIdx.x % 4",
         "cuda.threadIdx.x % 8, cuda.threadIdx.x // 8"),
    ],
    ids=["a", "b", "c", "lanes"],
)  # fmt: skip
def test_a_fragment_in_another_order_gives_other_numbers(
    monkeypatch, tmp_path, old, new
):
    from attention_lab.gpu import tensor_core

    def make_wrong(mma):
        function = plain_function(make_product_kernel(mma))
        source = textwrap.dedent(inspect.getsource(function))
        assert source.count(old) == 1
        path = tmp_path / "wrong_fragments.py"
        path.write_text(source.replace(old, new), encoding="utf-8")
        names = {"cuda": cuda, "mma": mma, "half": half, "real": real}
        exec(compile(path.read_text(encoding="utf-8"), path, "exec"), names)
        return names["product_kernel"]

    monkeypatch.setattr(tensor_core, "make_product_kernel", make_wrong)
    assert "other numbers" in trial(mma_by_shuffles)


def test_an_instruction_that_does_not_compile_is_reported():
    assert "does not compile" in trial("not a function")


@pytest.mark.parametrize(
    ("capability", "said"),
    [((7, 5), ""), ((9, 0), ""), ((10, 0), ""), ((7, 0), "7.0 is below 7.5")],
)
def test_an_old_gpu_is_told_why(capability, said):
    reason = why_not_here(capability)
    assert said in reason
    assert bool(reason) == bool(said)


@pytest.mark.skipif(runs_on_gpu(), reason="about what runs without a GPU")
class TestWithoutAGpu:
    def test_shuffles_multiply_and_the_sentence_says_so(self):
        mma, on_tensor_cores, sentence = choose_mma()
        assert mma is mma_by_shuffles
        assert not on_tensor_cores
        assert "no tensor cores here" in sentence

    def test_a_lane_that_stays_away_is_a_hazard(self):
        @cuda.jit
        def half_a_warp(out, x):
            a = cuda.local.array(8, half)
            b = cuda.local.array(4, half)
            c = cuda.local.array(4, real)
            for i in range(8):
                a[i] = half(x[i])
            for i in range(4):
                b[i], c[i] = half(x[i]), x[i]
            if cuda.threadIdx.x < 16:
                mma_by_shuffles(c, a, b)
            out[cuda.threadIdx.x] = c[0]

        out, x = np.zeros(32, real), np.ones(8, real)
        recording = record(half_a_warp, 1, 32, out, x)
        kinds = {hazard.kind for hazard in recording.hazards}
        assert "warp-divergent-shuffle" in kinds, str(recording)


@pytest.mark.needs_gpu("multiplies on its tensor cores")
def test_the_instruction_multiplies_as_the_shuffles_do():
    from attention_lab.gpu.mma_intrinsic import make_mma

    assert trial(make_mma()) == ""
