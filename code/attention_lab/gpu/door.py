"""The only file that asks "GPU or not?".

`from attention_lab.gpu import cuda` gives numba's CUDA where a GPU works, and
numba's CUDA simulator elsewhere. The kernels never need to know.
"""

import os
import sys
import warnings
from typing import Any

import numpy as np

from attention_lab.gpu.driver import probe_driver

#: Set to "gpu" or "simulator" to overrule the probe.
DEVICE_VARIABLE = "ATTENTION_LAB_DEVICE"

_BLIND_SPOTS = (
    "it cannot show speed, races between threads, a barrier that some threads "
    "skip, or float64 slipping in"
)
_GPU_BLIND_SPOTS = "a right result here does not prove that threads cannot race"


def _choose() -> tuple[str, str]:
    """Return "gpu" or "simulator", and the reason in a few words."""
    asked = os.environ.get(DEVICE_VARIABLE, "")
    if asked not in ("", "gpu", "simulator"):
        raise ImportError(
            f"{DEVICE_VARIABLE} must be 'gpu' or 'simulator', not {asked!r}"
        )
    if asked:
        return asked, f"{DEVICE_VARIABLE}={asked}"
    if os.environ.get("NUMBA_ENABLE_CUDASIM") == "1":
        return "simulator", "NUMBA_ENABLE_CUDASIM=1"
    driver = probe_driver()
    if driver.devices == 0:
        return "simulator", driver.reason
    broken = _broken_stack()
    if broken:
        warnings.warn(
            f"A GPU is here, but kernels do not run on it. {broken} "
            "Going on with the simulator.",
            RuntimeWarning,
            stacklevel=2,
        )
        return "simulator", "the GPU's software does not work"
    return "gpu", driver.reason


def _broken_stack() -> str:
    """Run one tiny kernel in a process of its own; return the fix, or "".

    A separate process, because numba cannot change from the GPU to the
    simulator once `numba.cuda` is imported.
    """
    import subprocess

    ran = subprocess.run(
        [sys.executable, "-c", _SELF_TEST],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "0"},
    )
    return "" if ran.returncode == 0 else explain_failure(ran.stderr)


_SELF_TEST = """
import numpy
from numba import cuda

def double(out, x):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = x[i] + x[i]

x = cuda.to_device(numpy.arange(33, dtype=numpy.float32))
out = cuda.to_device(numpy.full(33, numpy.nan, numpy.float32))
cuda.jit(double)[2, 32](out, x)
numpy.testing.assert_array_equal(out.copy_to_host(), 2 * numpy.arange(33))
"""

# What the error says -> what to do. The first that is found counts.
_FIXES = {
    "UNSUPPORTED_PTX_VERSION": (
        "The compiler is newer than the driver. Fix: pip install "
        "'numba-cuda[cu12]>=0.22', then restart."
    ),
    "No module named 'numba'": "Fix: pip install 'attention-lab[kernels]'.",
    "libNVVM": (
        "The CUDA compiler is missing. Fix: pip install 'numba-cuda[cu12]', "
        "then restart."
    ),
    "libnvvm": (
        "The CUDA compiler is missing. Fix: pip install 'numba-cuda[cu12]', "
        "then restart."
    ),
    "nvrtc": (
        "The CUDA runtime compiler is missing. Fix: pip install "
        "'numba-cuda[cu12]', then restart."
    ),
    "OUT_OF_MEMORY": (
        "The GPU's memory is full. Fix: stop the other program that uses it, "
        "then restart."
    ),
}


def explain_failure(stderr: str) -> str:
    """Turn the self-test's error output into the one thing to do.

    Examples
    --------
    >>> explain_failure("CudaSupportError: libNVVM cannot be found")
    "The CUDA compiler is missing. Fix: pip install 'numba-cuda[cu12]', then \
restart."
    """
    for sign, fix in _FIXES.items():
        if sign in stderr:
            return fix
    lines = stderr.strip().splitlines() or ["no message"]
    return f"The self-test said: {lines[-1]}"


def _open(device: str) -> Any:
    """Import `numba.cuda` for the chosen device."""
    simulate = device == "simulator"
    os.environ["NUMBA_ENABLE_CUDASIM"] = "1" if simulate else "0"
    try:
        import numba
    except ImportError as error:
        raise ImportError(
            "the CUDA kernels need numba: pip install 'attention-lab[kernels]'"
        ) from error
    if "numba.cuda" in sys.modules:
        if bool(numba.config.ENABLE_CUDASIM) != simulate:
            raise ImportError(
                "numba.cuda was imported before attention_lab.gpu and cannot "
                f"change to the {device}: restart Python and import "
                "attention_lab.gpu first"
            )
    else:
        # If numba was imported earlier it has read its environment already.
        numba.config.ENABLE_CUDASIM = int(simulate)
    from numba import cuda

    return cuda


_DEVICE, _REASON = _choose()
cuda = _open(_DEVICE)


def runs_on_gpu() -> bool:
    """Return whether kernels run on a GPU."""
    return _DEVICE == "gpu"


def where() -> str:
    """Say in one line what runs the kernels, and what that cannot show."""
    import numba

    if not runs_on_gpu():
        return (
            f"Kernels run in numba {numba.__version__}'s CUDA simulator "
            f"({_REASON}); {_BLIND_SPOTS}."
        )
    device = cuda.get_current_device()
    name = (
        device.name.decode()
        if isinstance(device.name, bytes)
        else (device.name)
    )
    major, minor = device.compute_capability
    return (
        f"Kernels run on {name} (compute capability {major}.{minor}, numba "
        f"{numba.__version__}); {_GPU_BLIND_SPOTS}."
    )


def to_device(array: Any) -> Any:
    """Hand an array to a kernel; `.copy_to_host()` brings it back.

    Parameters
    ----------
    array : a NumPy array or a torch tensor. A tensor on the GPU is passed on
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
            return array
        array = array.numpy()
    return cuda.to_device(np.ascontiguousarray(array))
