"""The `cuda` that kernels are written against where there is no GPU.

Spelled like ``numba.cuda``: the kernel source needs no change to run on
a GPU, only the import.
"""

import contextlib

import numpy as np

from attention_lab.gpu.arguments import DeviceArray, host_view
from attention_lab.gpu.device_names import KNOWN, DeviceName
from attention_lab.gpu.launch import DeviceFunction, Kernel
from attention_lab.gpu.limits import MAX_THREADS_PER_BLOCK, WARP_SIZE


class Device:
    """What stands in for a GPU: its limits, and an honest name."""

    name = b"the recorder (no GPU)"
    id = 0
    WARP_SIZE = WARP_SIZE
    MAX_THREADS_PER_BLOCK = MAX_THREADS_PER_BLOCK


class Stream:
    """A queue of work; here every launch is over when it returns."""

    def synchronize(self):
        """Return at once."""

    @contextlib.contextmanager
    def auto_synchronize(self):
        """Enter a block at whose end the work is done."""
        yield self


class CudaNamespace:
    """The names of ``numba.cuda`` that kernels and their launchers use."""

    float16, float32, float64 = np.float16, np.float32, np.float64
    int8, int16, int32, int64 = np.int8, np.int16, np.int32, np.int64
    uint8, uint16, uint32, uint64 = np.uint8, np.uint16, np.uint32, np.uint64
    boolean = np.bool_

    def __getattr__(self, name):
        """Return a name that works inside kernels only."""
        if name in KNOWN and "." not in name:
            return DeviceName(name)
        raise AttributeError(
            f"cuda.{name} is not available without a GPU; kernels here may "
            f"use {', '.join(sorted(n for n in KNOWN if '.' not in n))}"
        )

    def jit(self, function=None, **options):
        """Make a kernel, or with ``device=True`` a function for kernels.

        Parameters
        ----------
        function : the function, when used as a bare decorator. A Numba
            signature is accepted and ignored: types follow the arguments.
        **options : Numba's options; only ``device`` changes anything here.
        """
        make = DeviceFunction if options.get("device") else Kernel
        if callable(function):
            return make(function, options)
        return lambda inner: make(inner, options)

    def to_device(self, obj, stream=0, copy=True, to=None):
        """Return a copy of an array that a kernel can work on."""
        view, _ = host_view(obj)
        if to is not None:
            to.copy_to_device(view)
            return to
        return np.array(view, copy=True).view(DeviceArray)

    def device_array(self, shape, dtype=np.float64, **_):
        """Return new memory whose values nobody has written (NaN or junk)."""
        made = np.empty(shape, dtype).view(DeviceArray)
        made[...] = np.nan if made.dtype.kind == "f" else made.dtype.type(85)
        return made

    def device_array_like(self, ary, stream=0):
        """Return unwritten memory of the same shape and dtype."""
        return self.device_array(ary.shape, ary.dtype)

    pinned_array = device_array
    mapped_array = device_array

    def as_cuda_array(self, obj):
        """Return a view of the memory of an array or a CPU tensor."""
        return host_view(obj)[0].view(DeviceArray)

    def synchronize(self):
        """Wait for the device: a launch here is over when it returns."""

    def stream(self):
        """Return a stream."""
        return Stream()

    default_stream = stream

    def is_available(self):
        """Say whether there is a GPU: no."""
        return False

    def get_current_device(self):
        """Return the limits that this stand-in keeps."""
        return Device()


cuda = CudaNamespace()
