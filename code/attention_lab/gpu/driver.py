"""Ask the NVIDIA driver what is there, without importing any CUDA package.

The answer takes about a millisecond and must come before `numba.cuda` is
imported, because numba decides at import whether it simulates.
"""

import ctypes
from dataclasses import dataclass

_LIBRARIES = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")


@dataclass(frozen=True)
class Driver:
    """What the driver answered: a device count, or why there is none."""

    devices: int
    reason: str


def probe_driver(libraries: tuple[str, ...] = _LIBRARIES) -> Driver:
    """Load the driver library and count the devices.

    Examples
    --------
    >>> probe_driver(libraries=("libnosuch.so",)).reason
    'no NVIDIA driver is installed'
    """
    library = _load(libraries)
    if library is None:
        return Driver(0, "no NVIDIA driver is installed")
    error = library.cuInit(0)
    if error != 0:
        return Driver(0, f"the NVIDIA driver does not start (error {error})")
    count = ctypes.c_int(0)
    error = library.cuDeviceGetCount(ctypes.byref(count))
    if error != 0:
        return Driver(0, f"the NVIDIA driver lists no device (error {error})")
    if count.value == 0:
        return Driver(0, "the NVIDIA driver is there, but it has no GPU")
    return Driver(count.value, f"{count.value} GPU found")


def _load(libraries: tuple[str, ...]) -> ctypes.CDLL | None:
    for name in libraries:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None
