import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from attention_lab.gpu import cuda, door, to_device, where
from attention_lab.gpu.driver import probe_driver


def run(code, **environment):
    """Run code in a fresh Python, where the door is not open yet."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("NUMBA_")}
    env.pop(door.DEVICE_VARIABLE, None)
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "script.py")
        script.write_text(code, encoding="utf-8")
        return subprocess.run(
            [sys.executable, "-W", "error::UserWarning", script],
            capture_output=True,
            text=True,
            check=False,
            env=env | environment,
        )


DOUBLE = """
import numpy
from attention_lab.gpu import cuda, to_device, where
@cuda.jit
def double(out, x):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + x[i]
x = to_device(numpy.arange(5.0))
out = to_device(numpy.full(5, numpy.nan))
double[2, 4](out, x)
print(out.copy_to_host().tolist(), where())
"""


def test_a_kernel_runs_wherever_this_is():
    ran = run(DOUBLE)
    assert ran.returncode == 0, ran.stderr
    assert "[0.0, 2.0, 4.0, 6.0, 8.0] Kernels run" in ran.stdout


def test_where_says_in_one_line_what_runs_and_what_it_cannot_show():
    assert "\n" not in where()
    assert "cannot show" in where() or "does not prove" in where()


@pytest.mark.parametrize("device", ["recorder", "simulator"])
def test_the_recorder_and_the_simulator_can_be_asked_for(device):
    ran = run(DOUBLE, ATTENTION_LAB_DEVICE=device)
    assert "[0.0, 2.0, 4.0, 6.0, 8.0] Kernels run" in ran.stdout, ran.stderr
    assert f"(ATTENTION_LAB_DEVICE={device})" in ran.stdout


def test_a_gpu_that_is_not_there_is_refused_in_one_sentence():
    if probe_driver().devices:
        pytest.skip("this machine has a GPU")
    ran = run(DOUBLE, ATTENTION_LAB_DEVICE="gpu")
    assert "ATTENTION_LAB_DEVICE=gpu, but no NVIDIA driver" in ran.stderr


def test_another_device_is_refused():
    ran = run(DOUBLE, ATTENTION_LAB_DEVICE="tpu")
    assert "must be one of gpu, recorder, simulator, not 'tpu'" in ran.stderr


def test_numba_imported_before_is_no_obstacle():
    ran = run("import numba\n" + DOUBLE, ATTENTION_LAB_DEVICE="simulator")
    assert "[0.0, 2.0" in ran.stdout, ran.stderr


def test_numba_cuda_imported_before_asks_for_a_restart():
    ran = run("import numba.cuda\n" + DOUBLE, ATTENTION_LAB_DEVICE="simulator")
    assert "restart Python and import attention_lab.gpu first" in ran.stderr


def test_the_recorder_needs_no_numba():
    ran = run("import sys; sys.modules['numba'] = None\n" + DOUBLE)
    assert "[0.0, 2.0, 4.0, 6.0, 8.0] Kernels run" in ran.stdout, ran.stderr


def test_a_self_test_that_hangs_is_reported():
    code = "import time; time.sleep(60)"
    assert "did not end within 1 seconds" in door.broken_stack(code, seconds=1)


def test_a_broken_gpu_prints_the_fix_and_goes_on_with_the_recorder():
    # A driver that lists one device, on which no kernel can run.
    broken = """
import ctypes
class Driver:
    def cuInit(self, flags):
        return 0
    def cuDeviceGetCount(self, count):
        count._obj.value = 1
        return 0
load = ctypes.CDLL
class Library(load):
    def __new__(cls, name, *args, **options):
        if "cuda" in str(name):
            return Driver()
        return load(name, *args, **options)
ctypes.CDLL = Library
"""
    ran = run(broken + DOUBLE)
    if door.runs_on_gpu():
        pytest.skip("the GPU of this machine is not broken")
    assert "[0.0, 2.0" in ran.stdout, ran.stderr
    assert "A GPU is here, but kernels do not run on it." in ran.stderr
    assert "on the CPU (the GPU's software does not work)" in ran.stdout


@pytest.mark.parametrize(
    ("error", "fix"),
    [
        ("CUDA_ERROR_UNSUPPORTED_PTX_VERSION (222)", "newer than the driver"),
        ("TypeError: Signature mismatch: 2 argument", "attention-lab[gpu]"),
        ("NvvmSupportError: libNVVM cannot be found", "attention-lab[gpu]"),
        ("ModuleNotFoundError: No module named 'numba'", "attention-lab[gpu]"),
        ("CUDA_ERROR_OUT_OF_MEMORY", "stop the other program"),
        ("first\nSomething new", "The self-test said: Something new"),
        ("", "The self-test said: no message"),
    ],
)
def test_every_known_failure_has_its_fix(error, fix):
    assert fix in door.explain_failure(error)


def test_a_machine_without_a_driver_has_no_device():
    driver = probe_driver(libraries=("libnosuch.so",))
    assert driver.devices == 0
    assert "no NVIDIA driver" in driver.reason


def test_tensors_and_arrays_go_to_the_device_and_back():
    x = torch.arange(6.0, requires_grad=True).reshape(2, 3).T
    back = to_device(x).copy_to_host()
    np.testing.assert_array_equal(back, x.detach())
    array = np.arange(6.0).reshape(2, 3)
    array.flags.writeable = False
    device = to_device(array)
    np.testing.assert_array_equal(device.copy_to_host(), array)


def test_what_goes_to_the_device_is_a_copy():
    @cuda.jit
    def clear(x):
        x[cuda.grid(1)] = 0.0

    kept = np.arange(1.0, 4.0)
    device = to_device(kept)
    clear[1, 3](device)
    np.testing.assert_array_equal(kept, [1, 2, 3])
    np.testing.assert_array_equal(device.copy_to_host(), [0, 0, 0])


@pytest.mark.needs_gpu("shows that a CUDA tensor is passed without a copy")
def test_a_tensor_on_the_gpu_is_passed_on_as_it_is():
    x = torch.zeros(3, device="cuda")
    assert to_device(x).data_ptr() == x.data_ptr()
