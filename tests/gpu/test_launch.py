"""Launching without a GPU looks and behaves like Numba's."""

import numpy as np
import pytest

from attention_lab.gpu import cuda, record, to_device
from attention_lab.gpu.errors import KernelError, KernelFault, LaunchRefused


@cuda.jit
def double(out, x):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = x[i] * np.float32(2.0)


@cuda.jit(fastmath=True)
def no_guard(out, x):
    out[cuda.grid(1)] = x[cuda.grid(1)]


@cuda.jit("void(int64[:], int64)")
def divides(out, n):
    out[0] = 7 // n


def test_launch_with_grid_block_stream_and_shared_bytes():
    x = np.arange(5, dtype=np.float32)
    for launch in ((2, 3), (2, 3, 0), (2, 3, cuda.stream(), 0)):
        out = np.zeros(5, np.float32)
        double[launch](out, x)
        np.testing.assert_array_equal(out, 2 * x)
    out = np.zeros(5, np.float32)
    double.forall(5)(out, x)
    np.testing.assert_array_equal(out, 2 * x)
    cuda.synchronize()


def test_to_device_copies_and_comes_back():
    x = np.arange(4, dtype=np.float32)
    device = to_device(x)
    double[1, 4](device, device)
    np.testing.assert_array_equal(x, [0, 1, 2, 3])
    np.testing.assert_array_equal(device.copy_to_host(), [0, 2, 4, 6])
    back = np.zeros(4, np.float32)
    device.copy_to_host(back)
    np.testing.assert_array_equal(back, [0, 2, 4, 6])
    empty = cuda.device_array_like(x)
    assert np.isnan(empty.copy_to_host()).all()
    assert cuda.device_array(3, np.int32).shape == (3,)


def test_views_of_host_arrays_are_written_in_place():
    grid = np.zeros((4, 6), np.float32)
    double[1, 3](grid[1, ::2], np.ones(3, np.float32))
    np.testing.assert_array_equal(grid[1], [2, 0, 2, 0, 2, 0])


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda x: double(x, x), r"double\[grid, block\]"),
        (lambda x: double[1](x, x), "grid, block"),
        (lambda x: double[1.5, 2](x, x), "whole numbers"),
        (lambda x: double[(1, 1, 1, 1), 2](x, x), "1, 2 or 3"),
        (lambda x: double[1, 2](x), "takes 2 arguments"),
        (lambda x: double[1, 2](x, "text"), r"argument 2 \(`\w+`\) is a str"),
        (lambda x: double[1, 2](x, x.astype(complex)), "complex"),
        (lambda x: double[1, 2](x, np.array(1.0)), "without axes"),
        (lambda x: cuda.syncthreads(), "inside a kernel only"),
    ],
)
def test_wrong_launches_are_explained(call, words):
    with pytest.raises(KernelError, match=words):
        call(np.zeros(4, np.float32))


def test_cuda_names_that_do_not_exist_say_so():
    with pytest.raises(AttributeError, match="not available without a GPU"):
        _ = cuda.cooperative
    assert not cuda.is_available()
    assert cuda.get_current_device().MAX_THREADS_PER_BLOCK == 1024


def test_refused_launch_names_the_kind():
    x = np.zeros(4, np.float32)
    with pytest.raises(LaunchRefused, match="2048") as refusal:
        double[1, 2048](x, x)
    assert refusal.value.kind == "too-many-threads"


def test_index_outside_names_thread_block_and_line():
    x = np.zeros(5, np.float32)
    with pytest.raises(KernelFault) as fault:
        no_guard[2, 3](x, x)
    assert fault.value.kind == "out-of-bounds"
    assert "thread 2 of block 1" in str(fault.value)
    assert "`out[cuda.grid(1)] = x[cuda.grid(1)]`" in str(fault.value)


def test_division_of_a_whole_number_by_zero_is_a_fault():
    with pytest.raises(KernelFault, match="by zero"):
        divides[1, 1](np.zeros(1, np.int64), 0)


def test_torch_tensors_share_their_memory():
    torch = pytest.importorskip("torch", reason="the test passes tensors")
    x = torch.arange(4, dtype=torch.float32)
    out = torch.zeros(4)
    double[1, 4](out, x)
    torch.testing.assert_close(out, 2 * x)
    with pytest.raises(KernelError, match="detach"):
        double[1, 4](out.requires_grad_(), x)
    with pytest.raises(KernelError, match="bfloat16"):
        record(double, 1, 4, np.zeros(4, np.float32), x.bfloat16())


class OnTheGPU:
    """What a GPU array looks like from the host."""

    def __init__(self, values):
        self.values = values

    def copy_to_host(self):
        return self.values.copy()

    def copy_to_device(self, values):
        self.values = values.copy()


def test_gpu_arrays_are_copied_here_and_back():
    x = OnTheGPU(np.arange(4, dtype=np.float32))
    out = OnTheGPU(np.zeros(4, np.float32))
    assert record(double, 1, 4, out, x).hazards == ()
    np.testing.assert_array_equal(out.values, [0, 2, 4, 6])
