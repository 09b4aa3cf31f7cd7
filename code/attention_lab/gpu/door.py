"""The only file that asks "GPU or not?".

`from attention_lab.gpu import cuda` gives numba's CUDA where a GPU works, and
our recorder's `cuda` elsewhere. The kernels never need to know.
"""

import os
import subprocess
import sys
import warnings

from attention_lab.gpu import namespace
from attention_lab.gpu.driver import probe_driver

#: Set to "gpu", "recorder" or "simulator" to overrule the probe. The simulator
#: is numba's; the tests compare the recorder with it.
DEVICE_VARIABLE = "ATTENTION_LAB_DEVICE"
DEVICES = ("gpu", "recorder", "simulator")

_CANNOT_SHOW = {
    "gpu": "a right result here does not prove that threads cannot race",
    "recorder": (
        "it cannot show the speed of a GPU, and a clean recording proves the "
        "recorded input only"
    ),
    "simulator": (
        "it cannot show speed, races between threads, a barrier that some "
        "threads skip, or float64 slipping in"
    ),
}


def _choose():
    """Return the device's name, and the reason in a few words."""
    asked = os.environ.get(DEVICE_VARIABLE, "")
    if asked not in ("", *DEVICES):
        raise ImportError(
            f"{DEVICE_VARIABLE} must be one of {', '.join(DEVICES)}, not "
            f"{asked!r}"
        )
    if asked in ("recorder", "simulator"):
        return asked, f"{DEVICE_VARIABLE}={asked}"
    driver = probe_driver()
    if driver.devices == 0:
        if asked:
            raise ImportError(
                f"{DEVICE_VARIABLE}=gpu, but {driver.reason}; unset it to run "
                "the kernels on the recorder"
            )
        return "recorder", driver.reason
    broken = broken_stack()
    if broken:
        warnings.warn(
            f"A GPU is here, but kernels do not run on it. {broken} "
            "Going on with the recorder.",
            RuntimeWarning,
            stacklevel=2,
        )
        return "recorder", "the GPU's software does not work"
    return "gpu", driver.reason


def broken_stack(code=None, seconds=120):
    """Run a small kernel in a process of its own; return the fix, or "".

    A separate process, because numba cannot change its mind once `numba.cuda`
    is imported. The kernel uses what the book's kernels use.
    """
    try:
        ran = subprocess.run(
            [sys.executable, "-c", code or _SELF_TEST],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env={**os.environ, "NUMBA_ENABLE_CUDASIM": "0"},
        )
    except subprocess.TimeoutExpired:
        return f"The self-test did not end within {seconds} seconds."
    return "" if ran.returncode == 0 else explain_failure(ran.stderr)


_SELF_TEST = """
import math
import numpy
from numba import cuda, float32

@cuda.jit
def turn_round(out, x):
    tile = cuda.shared.array(32, float32)
    own = cuda.local.array(2, float32)
    t = cuda.threadIdx.x
    tile[t] = x[t]
    cuda.syncthreads()
    own[0] = max(tile[31 - t], float32(0.0))
    own[1] = min(math.exp(own[0] - own[0]), float32(2.0))
    out[t] = own[0] * own[1]

x = numpy.arange(32, dtype=numpy.float32)
out = cuda.to_device(numpy.full(32, numpy.nan, numpy.float32))
turn_round[1, 32](out, cuda.to_device(x))
numpy.testing.assert_array_equal(out.copy_to_host(), x[::-1])
"""

_INSTALL = "Fix: pip install 'attention-lab[gpu]', then restart."
# What the error says -> what to do. The first that is found counts.
_FIXES = {
    "UNSUPPORTED_PTX_VERSION": (
        f"The compiler is newer than the driver. {_INSTALL}"
    ),
    "No module named 'numba'": f"numba is missing. {_INSTALL}",
    "Signature mismatch": (
        f"numba's own CUDA target lacks what the kernels use. {_INSTALL}"
    ),
    "libNVVM": f"The CUDA compiler is missing. {_INSTALL}",
    "libnvvm": f"The CUDA compiler is missing. {_INSTALL}",
    "nvrtc": f"The CUDA runtime compiler is missing. {_INSTALL}",
    "OUT_OF_MEMORY": (
        "The GPU's memory is full. Fix: stop the other program that uses it, "
        "then restart."
    ),
}


def explain_failure(stderr):
    """Turn the self-test's error output into the one thing to do.

    Examples
    --------
    >>> explain_failure("ValueError: something new")
    'The self-test said: ValueError: something new'
    """
    for sign, fix in _FIXES.items():
        if sign in stderr:
            return fix
    lines = stderr.strip().splitlines() or ["no message"]
    return f"The self-test said: {lines[-1]}"


def _open(device):
    """Return the `cuda` of the chosen device."""
    if device == "recorder":
        return namespace.cuda
    simulate = device == "simulator"
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1" if simulate else "0"
    import numba

    if "numba.cuda" not in sys.modules:
        # If numba was imported earlier it has read its environment already.
        numba.config.ENABLE_CUDASIM = int(simulate)
    elif bool(numba.config.ENABLE_CUDASIM) != simulate:
        raise ImportError(
            "numba.cuda was imported before attention_lab.gpu and cannot "
            f"change to the {device}: restart Python and import "
            "attention_lab.gpu first"
        )
    from numba import cuda

    return cuda


_DEVICE, _REASON = _choose()
cuda = _open(_DEVICE)


def runs_on_gpu():
    """Return whether kernels run on a GPU."""
    return _DEVICE == "gpu"


def where():
    """Say in one line what runs the kernels, and what that cannot show."""
    if runs_on_gpu():
        device = cuda.get_current_device()
        name = device.name
        name = name.decode() if isinstance(name, bytes) else name
        major, minor = device.compute_capability
        place = f"on {name} (compute capability {major}.{minor})"
    else:
        place = {
            "recorder": f"on this book's recorder, on the CPU ({_REASON})",
            "simulator": f"in numba's CUDA simulator ({_REASON})",
        }[_DEVICE]
    return f"Kernels run {place}; {_CANNOT_SHOW[_DEVICE]}."


def to_device(array):
    """Hand an array to a kernel; `.copy_to_host()` brings it back.

    Parameters
    ----------
    array : a NumPy array or a torch tensor. A tensor on the GPU is wrapped
        without a copy; anything else is copied.

    Raises
    ------
    ValueError
        For bfloat16, which numba has no type for: its bits would be read as
        float16 and give wrong numbers without an error.

    References
    ----------
    The bfloat16 trap: pytorch/pytorch#129621.
    """
    if str(array.dtype) == "torch.bfloat16":
        raise ValueError(
            "array has dtype bfloat16, which kernels cannot read; convert it "
            "with array.float() first"
        )
    if hasattr(array, "detach"):
        array = array.detach()
        if array.is_cuda:
            return cuda.as_cuda_array(array)
        array = array.numpy()
    return cuda.to_device(array.copy(order="C"))
