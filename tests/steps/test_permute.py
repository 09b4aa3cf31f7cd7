import itertools

import numpy as np
import pytest
import torch

from attention_lab.axes import ShapeMismatch
from attention_lab.examples import position_coded
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.errors import KernelFault
from attention_lab.gpu.recorder import record
from attention_lab.source import plain_function
from attention_lab.steps import permute as step
from test_mistakes_are_caught import edited

recorder_only = pytest.mark.skipif(
    runs_on_gpu(), reason="records the launches that the recorder makes"
)
#: Primes; one block less one, full, plus one; size 1; fewer axes than four.
SHAPES = [(2, 3, 5, 7), (1, 127), (128,), (3, 43), (1, 1, 1, 1), (5, 1, 26)]
KEYS = (0, 1, 3, 2)  # B H S D → B H D S
HEADS = (0, 2, 1, 3)  # B L H D → B H L D


def coded(shape):
    return position_coded(*shape).astype(np.float32)


def sectors(places):
    """Count the 32-byte sectors of each warp's 32 places, and their mean."""
    warps = [places[i : i + 32] for i in range(0, len(places), 32)]
    return np.mean([len({place // 8 for place in warp}) for warp in warps])


@pytest.mark.parametrize("shape", [(), (5,), (2, 3, 5), (1, 4, 1)])
def test_strides_are_those_of_numpy(shape):
    strides = np.empty(shape, np.int8).strides
    assert step.contiguous_strides(shape) == strides


@pytest.mark.parametrize("by", step.WAYS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_both_kernels_move_every_element_to_its_place(shape, by):
    x = coded(shape)
    for axes in itertools.permutations(range(len(shape))):
        moved = step.permute_cuda(x, axes, by)
        np.testing.assert_array_equal(moved, x.transpose(axes))
        assert moved.flags.c_contiguous


def test_the_readable_version_copies():
    x = torch.tensor(coded((2, 3, 5, 7)))
    moved = step.permute(x, KEYS)
    np.testing.assert_array_equal(moved, x.numpy().transpose(KEYS))
    assert moved.is_contiguous()
    assert moved.data_ptr() != x.data_ptr()


def test_kinds_and_dtypes_come_back():
    x = torch.tensor(coded((2, 3, 5))).double()
    moved = step.permute_cuda(x.transpose(0, 1), (2, 0, 1))
    assert moved.dtype == torch.float64
    np.testing.assert_array_equal(moved, x.permute(2, 1, 0))
    half = step.permute_cuda(coded((3, 2)).astype(np.float16), (1, 0))
    assert half.dtype == np.float16
    assert step.permute_cuda(coded((3, 0, 2)), (2, 0, 1)).shape == (2, 3, 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: step.permute_cuda(coded((2, 3)), (0, 0)),
            ShapeMismatch,
            r"axes must name each of the 2 axes of x once.*not \(0, 0\)",
        ),
        (
            lambda: step.permute_cuda(coded((2, 3)), (0, 1, 2)),
            ShapeMismatch,
            r"2 axes of x once, from 0 to 1, not \(0, 1, 2\)",
        ),
        (
            lambda: step.permute_cuda(coded((2, 3)), (1, -2)),
            ShapeMismatch,
            r"not \(1, -2\)",
        ),
        (
            lambda: step.permute_cuda(coded((2, 3)), (True, 0)),
            ShapeMismatch,
            r"not \(True, 0\)",
        ),
        (
            lambda: step.permute(torch.ones(2, 3), (0,)),
            ShapeMismatch,
            "2 axes of x once",
        ),
        (
            lambda: step.permute_cuda(coded((1, 1, 1, 1, 1)), range(5)),
            ShapeMismatch,
            "x has 5 axes .* at most 4",
        ),
        (
            lambda: step.permute_cuda(coded((2, 3)), (1, 0), "copy"),
            ValueError,
            "by must be one of gather, scatter, not 'copy'",
        ),
        (
            lambda: step.measure((2, 3), (1, 0), threads=1025),
            ValueError,
            "threads = 1025, but CUDA allows 1024",
        ),
        (
            lambda: step.plan_walk((2, 3), (1, 0), threads=0),
            ValueError,
            "threads must be a whole number of at least 1, not 0",
        ),
        (
            lambda: step.permute_cuda(np.arange(6), (0,)),
            ValueError,
            "x has dtype int64",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# -- recorded --------------------------------------------------------------


@recorder_only
@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
@pytest.mark.parametrize("by", step.WAYS)
def test_both_are_clean_and_move_what_the_formula_says(by, order):
    for shape in ((2, 3, 5, 7), (1, 1, 1, 129), (1, 1, 1, 1)):
        recording = step.measure(shape, KEYS, by, order)
        assert recording.is_clean, str(recording)
        assert recording.matches_formula, str(recording)
        kinds = {note.kind for note in recording.notes}
        assert not {kind for kind in kinds if "float64" in kind}


@recorder_only
@pytest.mark.parametrize("axes", [KEYS, HEADS], ids=["keys", "heads"])
@pytest.mark.parametrize("shape", [(1, 1, 32, 32), (2, 8, 4, 8), (1, 3, 5, 7)])
def test_sectors_are_those_of_the_places(shape, axes):
    x = position_coded(*shape)
    there = x.transpose(axes).ravel()  # place in out → place in x
    back = np.argsort(there)  # place in x → place in out
    in_order = sectors(np.arange(x.size))
    expected = {
        "gather": {"x": sectors(there), "out": in_order},
        "scatter": {"x": in_order, "out": sectors(back)},
    }
    for by, arrays in expected.items():
        traffic = step.measure(shape, axes, by).traffic
        for name, mean in arrays.items():
            assert traffic[name].sectors_per_request == pytest.approx(mean)


# -- planted mistakes ------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("rest % size_2", "rest % size_1"),
        ("i_3 * step_3", "i_3 * step_2"),
        ("n // size_3", "n // size_2"),
    ],
)
@pytest.mark.parametrize("by", step.WAYS)
def test_a_wrong_place_fails_the_comparison(
    by, old, new, tmp_path, monkeypatch
):
    folders = tmp_path / "helper", tmp_path / "kernel"
    for folder in folders:
        folder.mkdir()
    helper = edited(step.place_of, old, new, folders[0])
    # A kernel keeps the helper that it was made with: make it again.
    kernel = step.plan_walk((2,), (0,), by).kernel
    kernel = edited(kernel, "# 2. Compute", "# 2. compute", folders[1])
    plain_function(kernel).__globals__["place_of"] = helper
    monkeypatch.setattr(step, f"{by}_kernel", kernel)
    x = coded((2, 3, 5, 7))
    with pytest.raises((AssertionError, KernelFault)):
        np.testing.assert_array_equal(
            step.permute_cuda(x, KEYS, by), x.transpose(KEYS)
        )


@recorder_only
@pytest.mark.parametrize(("by", "array"), [("gather", "out"), ("scatter", "x")])
def test_a_missing_guard_is_out_of_bounds(by, array, tmp_path):
    walk = step.plan_walk((2, 3, 5, 7), KEYS, by)
    broken = edited(walk.kernel, f"if n < {array}.size:", "if True:", tmp_path)
    x = position_coded(210).astype(np.float32)
    out = np.full_like(x, np.nan)
    numbers = (*walk.sizes, *walk.steps)
    recording = record(broken, walk.grid, walk.block, out, x, *numbers)
    assert "out-of-bounds" in recording.kinds, str(recording)
