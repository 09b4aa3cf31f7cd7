"""Compile CUDA C at run time and launch it, through NVIDIA's C interfaces.

NVRTC comes with torch's CUDA builds, the driver with the GPU; both are called
through ctypes, so that no further package has to be there. The machine code is
loaded into the context that is current: torch's and Numba's, which is the same.
"""

import ctypes
import sys
from pathlib import Path
from typing import Any

#: The newest first; the caller may know better.
MAJORS = (13, 12, 11)
#: What Numba uses: fused multiply-add, and exact division and roots. These are
#: NVRTC's defaults; they stand here so that nobody has to look them up.
EXACT = ("--fmad=true", "--prec-div=true", "--prec-sqrt=true", "--ftz=false")


class CudaCError(RuntimeError):
    """What NVRTC or the driver refused, with its own words."""


def load_nvrtc(majors: tuple[int, ...] = MAJORS) -> ctypes.CDLL:
    """Load NVRTC from the system, or from the wheels of torch and NVIDIA.

    Parameters
    ----------
    majors : versions of CUDA, the first that is there is taken.

    Raises
    ------
    CudaCError
        If it is in neither place.
    """
    names = [f"libnvrtc.so.{major}" for major in majors]
    for name in names:
        wheels = [
            str(path)
            for entry in sys.path
            for path in Path(entry or ".").glob(f"nvidia/*/lib/{name}*")
        ]
        for library in (name, *wheels):
            try:
                return ctypes.CDLL(library)
            except OSError:
                continue
    raise CudaCError(f"no NVRTC found ({', '.join(names)})")


def compile_cubin(
    source: str,
    architecture: str,
    *options: str,
    majors: tuple[int, ...] = MAJORS,
) -> bytes:
    """Compile CUDA C for an architecture such as "sm_90".

    Raises
    ------
    CudaCError
        If there is no NVRTC, or it refuses the source; with its first words.
    """
    nvrtc = load_nvrtc(majors)
    program = ctypes.c_void_p()
    check_nvrtc(
        nvrtc,
        nvrtc.nvrtcCreateProgram(
            ctypes.byref(program), source.encode(), b"flash.cu", 0, None, None
        ),
    )
    try:
        given = (f"--gpu-architecture={architecture}", *EXACT, *options)
        texts = (ctypes.c_char_p * len(given))(*(x.encode() for x in given))
        if nvrtc.nvrtcCompileProgram(program, len(given), texts):
            log = read(nvrtc, program, "ProgramLog").decode(errors="replace")
            raise CudaCError(f"NVRTC refuses the source: {log.strip()[:400]}")
        return read(nvrtc, program, "CUBIN")
    finally:
        nvrtc.nvrtcDestroyProgram(ctypes.byref(program))


def read(nvrtc: ctypes.CDLL, program: ctypes.c_void_p, what: str) -> bytes:
    """Read a log or a cubin, with its terminating zero cut off a log."""
    size = ctypes.c_size_t()
    get_size = getattr(nvrtc, f"nvrtcGet{what}Size")
    check_nvrtc(nvrtc, get_size(program, ctypes.byref(size)))
    buffer = ctypes.create_string_buffer(size.value)
    check_nvrtc(nvrtc, getattr(nvrtc, f"nvrtcGet{what}")(program, buffer))
    return buffer.raw if what == "CUBIN" else buffer.value


def check_nvrtc(nvrtc: ctypes.CDLL, code: int) -> None:
    """Raise the error that NVRTC returned, if it did."""
    if code:
        nvrtc.nvrtcGetErrorString.restype = ctypes.c_char_p
        raise CudaCError(f"NVRTC: {nvrtc.nvrtcGetErrorString(code).decode()}")


class Function:
    """A kernel of a cubin, loaded into the current context.

    Raises
    ------
    CudaCError
        If the driver does not load it.
    """

    def __init__(self, cubin: bytes, name: str) -> None:
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.module, self.handle = ctypes.c_void_p(), ctypes.c_void_p()
        self.cubin = cubin
        self.check(
            self.driver.cuModuleLoadData(ctypes.byref(self.module), cubin)
        )
        self.check(
            self.driver.cuModuleGetFunction(
                ctypes.byref(self.handle), self.module, name.encode()
            )
        )

    def check(self, code: int) -> None:
        """Raise the error that the driver returned, if it did."""
        if code:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(code, ctypes.byref(text))
            words = text.value.decode() if text.value else "no words"
            raise CudaCError(f"CUDA driver, error {code}: {words}")

    def prepare(
        self, grid: tuple[int, int], block: tuple[int, int], *args: Any
    ) -> "Prepared":
        """Return a launch on the default stream, ready to be made.

        Parameters
        ----------
        args : torch tensors on the GPU, floats (float32) and ints (int32).
        """
        return Prepared(self, grid, block, args)


class Prepared:
    """One launch; calling it makes it. Keeps alive what the kernel reads."""

    def __init__(
        self,
        function: Function,
        grid: tuple[int, int],
        block: tuple[int, int],
        args: tuple[Any, ...],
    ) -> None:
        self.function, self.args = function, args
        self.values = [as_c(arg) for arg in args]
        self.pointers = (ctypes.c_void_p * len(args))(
            *(ctypes.addressof(value) for value in self.values)
        )
        # Sizes in three directions, shared memory; the stream is the default.
        self.sizes = [ctypes.c_uint(n) for n in (*grid, 1, *block, 1, 0)]

    def __call__(self) -> None:
        """Launch the kernel."""
        launch = self.function.driver.cuLaunchKernel
        handle = self.function.handle
        self.function.check(
            launch(handle, *self.sizes, None, self.pointers, None)
        )


def as_c(value: Any) -> Any:
    """Turn an argument of a kernel into its C type.

    Raises
    ------
    TypeError
        For anything but a tensor, a float or an int.
    """
    if hasattr(value, "data_ptr"):
        return ctypes.c_uint64(value.data_ptr())
    if isinstance(value, float):
        return ctypes.c_float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return ctypes.c_int(value)
    raise TypeError(f"a kernel cannot take a {type(value).__name__}")
