"""Run a kernel in numba's simulator, to compare it with the recorder.

The simulator cannot share a process with the recorder or a GPU, so it gets
one of its own, with the kernel's source.
"""

import contextlib
import io
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np

from attention_lab.gpu.compile_card import collect
from attention_lab.gpu.errors import KernelError
from attention_lab.gpu.kernel_source import python_function


def run_in_simulator(kernel, grid, block, *args, seconds=60):
    """Launch a kernel in numba's simulator and return what that said.

    The arrays hold the kernel's results afterwards, as after a launch, and
    what the kernel prints is printed.

    Parameters
    ----------
    kernel : a kernel of this package or of Numba, or a plain function
    grid, block : the launch, as in ``kernel[grid, block]``
    *args : NumPy arrays and numbers
    seconds : after which the launch counts as stuck

    Returns
    -------
    The error or the warnings of the launch as text; "" if there was neither.

    Raises
    ------
    KernelError
        If the simulator did not run, because Numba is missing or because
        the launch did not end.
    """
    functions = []
    key = collect(python_function(kernel), False, functions, {})
    environment = {
        **os.environ,
        "NUMBA_ENABLE_CUDASIM": "1",
        "ATTENTION_LAB_DEVICE": "simulator",
        "PYTHONPATH": os.pathsep.join(
            [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
        ).rstrip(os.pathsep),
    }
    try:
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", __name__],
            input=pickle.dumps((functions, key, grid, block, args)),
            capture_output=True,
            check=False,
            env=environment,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        raise KernelError(
            f"the launch did not end within {seconds} seconds in the simulator"
        ) from None
    if done.returncode:
        last = done.stderr.decode().strip().splitlines() or ["no message"]
        raise KernelError(f"numba's simulator does not run here: {last[-1]}")
    after, said, printed = pickle.loads(done.stdout)
    print(printed, end="")
    for array, made in zip(args, after, strict=True):
        if isinstance(array, np.ndarray):
            array[...] = made
    return said


def main():
    """Answer one request: the simulator's side."""
    from attention_lab.gpu import cuda
    from attention_lab.gpu.compile_worker import build

    answers = own_output()
    functions, key, grid, block, args = pickle.load(sys.stdin.buffer)
    kernel = cuda.jit(build(functions, cuda)[key])
    printed = io.StringIO()
    with (
        warnings.catch_warnings(record=True) as caught,
        contextlib.redirect_stdout(printed),
    ):
        warnings.simplefilter("always")
        try:
            kernel[grid, block](*args)
            said = [str(warning.message) for warning in caught]
        except Exception as error:
            said = [f"{type(error).__name__}: {error}"]
    with answers:
        pickle.dump((args, "\n".join(said), printed.getvalue()), answers)


def own_output():
    """Return a file for the answer that nothing else can write to.

    It takes the place of the standard output, which becomes the error output.
    """
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    return answers


if __name__ == "__main__":
    main()
