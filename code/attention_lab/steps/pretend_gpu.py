"""What does a stopwatch on the CPU see of a GPU?

A model of two clocks, with times that are known, so that a stopwatch can be
checked: is what it says the time of the kernel? It has three rules. A launch
puts work into a queue and returns. The GPU does the work in order, after the
launch. The first launch of a kernel compiles it, and the CPU waits for that.

Source: CUDA C++ Programming Guide, "Asynchronous Concurrent Execution"; Numba
documentation, "Compiling Python code with @jit": lazy compilation.
"""

from attention_lab.axes import check_tile


class PretendGPU:
    """A GPU that computes nothing and takes a known time for it.

    Parameters
    ----------
    kernel_us : time of the kernel on the GPU, in microseconds.
    launch_us : time of a launch on the CPU.
    compile_us : time of compiling, at the first launch, on the CPU.

    Attributes
    ----------
    called : the names of what was called, in order.

    Raises
    ------
    ValueError
        If a time is not a whole number of at least 1.

    Examples
    --------
    >>> gpu = PretendGPU(kernel_us=900, launch_us=5, compile_us=70_000)
    >>> gpu.launch()
    >>> gpu.clock()  # it has compiled and launched; nothing is computed yet
    70005
    >>> gpu.synchronize()
    >>> gpu.clock()
    70905
    """

    def __init__(
        self,
        kernel_us: int = 1000,
        launch_us: int = 5,
        compile_us: int = 800_000,
    ) -> None:
        self.kernel_us = check_tile("kernel_us", kernel_us)
        self.launch_us = check_tile("launch_us", launch_us)
        self.compile_us = check_tile("compile_us", compile_us)
        self.called: list[str] = []
        self._now = 0
        self._idle_from = 0

    def launch(self) -> None:
        """Put one run of the kernel into the queue, and return."""
        if "launch" not in self.called:
            self._now += self.compile_us
        self.called.append("launch")
        self._now += self.launch_us
        self._idle_from = max(self._idle_from, self._now) + self.kernel_us

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.called.append("synchronize")
        self._now = max(self._now, self._idle_from)

    def clock(self) -> int:
        """Return the time on the CPU, in microseconds."""
        self.called.append("clock")
        return self._now
