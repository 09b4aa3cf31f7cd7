"""`kernel[grid, block](...)`: launching kernels where there is no GPU."""

import functools

from attention_lab.gpu.arguments import host_views
from attention_lab.gpu.engines import run
from attention_lab.gpu.errors import KernelFault, WrongArgument, WrongValue
from attention_lab.gpu.explain import explain_trouble
from attention_lab.gpu.kernel_source import kernel_function
from attention_lab.gpu.limits import check_launch, dynamic_bytes, three_sizes


class Kernel:
    """A function decorated with ``cuda.jit``.

    Parameters
    ----------
    function : the plain Python function
    options : the options given to ``jit``
    """

    def __init__(self, function, options=None):
        self.py_func = function
        self.targetoptions = dict(options or {})
        functools.update_wrapper(self, function)

    def __getitem__(self, launch):
        """Return the kernel, ready to run on a grid of blocks."""
        if not isinstance(launch, tuple) or not 2 <= len(launch) <= 4:
            raise WrongArgument(
                f"launch `{self.__name__}` as {self.__name__}[grid, block]"
                "(...), with an optional stream and size of dynamic shared "
                "memory after the block"
            )
        grid, block, *more = launch
        shared_bytes = more[1] if len(more) == 2 else 0
        return Configured(self, grid, block, shared_bytes)

    def forall(self, ntasks, tpb=256, stream=0, sharedmem=0):
        """Return the kernel, ready to run with at least `ntasks` threads."""
        (tasks, *_), (threads, *_) = (
            three_sizes(ntasks, "grid"),
            three_sizes(tpb, "block"),
        )
        if tasks < 0 or threads < 1:
            raise WrongValue(
                f"forall({ntasks}, tpb={tpb}): give a number of tasks, and "
                "at least one thread per block"
            )
        return Configured(self, -(-ntasks // tpb), tpb, sharedmem)

    def __call__(self, *args, **named):
        """Refuse: a kernel needs a grid."""
        raise WrongArgument(
            f"`{self.__name__}` is a kernel: launch it as "
            f"{self.__name__}[grid, block](...)"
        )

    def __repr__(self):
        """Name the kernel."""
        return f"<kernel {self.__name__}>"


class DeviceFunction:
    """A function that kernels may call, from ``cuda.jit(device=True)``."""

    def __init__(self, function, options=None):
        self.py_func = function
        self.targetoptions = dict(options or {})
        functools.update_wrapper(self, function)

    def __call__(self, *args, **named):
        """Refuse: a device function runs inside a kernel."""
        raise WrongArgument(
            f"`{self.__name__}` is a device function: call it from a kernel"
        )

    def __getitem__(self, launch):
        """Refuse: only kernels are launched."""
        raise WrongArgument(
            f"`{self.__name__}` is a device function and cannot be launched: "
            "call it from a kernel, or decorate it with @cuda.jit alone"
        )


class Configured:
    """A kernel with the grid, block and shared memory of its launch."""

    def __init__(self, kernel, grid, block, shared_bytes=0):
        self.kernel = kernel
        self.grid = three_sizes(grid, "grid")
        self.block = three_sizes(block, "block")
        self.shared_bytes = dynamic_bytes(shared_bytes)

    def __call__(self, *args, **named):
        """Run the kernel; the arrays hold its results when this returns."""
        if named:
            raise WrongArgument(
                f"`{self.kernel.__name__}` is launched with "
                f"`{', '.join(named)}` by name; Numba takes the arguments of "
                "a kernel by position only"
            )
        launch(self.kernel, self.grid, self.block, args, self.shared_bytes)


def launch(
    kernel,
    grid,
    block,
    args,
    shared_bytes=0,
    order="ascending",
    seed=0,
    engine="auto",
):
    """Run a kernel once, without recording it.

    Parameters
    ----------
    kernel : a decorated kernel or a plain function
    grid, block : the launch, three sizes each
    args : its arguments
    shared_bytes : dynamic shared memory of each block
    order, seed : the order in which threads and blocks take their turns
    engine : "python", "compiled", or "auto" to choose by size

    Raises
    ------
    LaunchRefused
        If no GPU would accept the launch.
    KernelFault
        If threads wait for each other in vain, or an index is outside its
        array.
    """
    function = kernel_function(kernel)
    check_launch(grid, block)
    pairs = host_views(function, args)
    views = [view for view, _ in pairs]
    lowered, done, _ = run(
        kernel, views, grid, block, shared_bytes, order, seed, False, engine
    )
    if done.trouble is not None:
        hazard = explain_trouble(done.trouble, lowered.stops, done.names)
        raise KernelFault(hazard.sentence, hazard.kind)
    for _, copy_back in pairs:
        if copy_back is not None:
            copy_back()
