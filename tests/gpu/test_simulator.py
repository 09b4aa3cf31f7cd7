"""What numba's simulator says about a kernel, and what it keeps to itself.

The table "Who sees what" of the chapter on the recorder rests on this.
"""

import mutants_with_hazards as wrong
import numpy as np
import pytest

from attention_lab.gpu import cuda
from attention_lab.gpu.errors import KernelError
from attention_lab.gpu.simulator import run_in_simulator

pytest.importorskip("numba", reason="the simulator is Numba's")


def new_arrays(n, m=None):
    """Return an output of NaN and an input that counts from 1."""
    out = np.full(n, np.nan, np.float32)
    return out, np.arange(1, (m or n) + 1, dtype=np.float32)


def test_arrays_hold_the_results_afterwards():
    out, x = new_arrays(10)
    assert run_in_simulator(wrong.copies, 3, 4, out, x) == ""
    np.testing.assert_array_equal(out, x)


@cuda.jit
def prints_what_it_copies(out, x):
    i = cuda.grid(1)
    print("element", i, x[i])
    cuda.syncthreads()
    out[i] = x[i]


def test_what_a_kernel_prints_is_shown(capfd):
    out, x = new_arrays(3)
    assert run_in_simulator(prints_what_it_copies, 1, 3, out, x) == ""
    np.testing.assert_array_equal(out, x)
    shown = sorted(capfd.readouterr().out.splitlines())
    assert shown == [f"element {i} {i + 1.0}" for i in range(3)]


@cuda.jit
def prints_and_fails(out, x):
    print("here")
    out[x.shape[0] + cuda.threadIdx.x] = x[0]


def test_what_a_kernel_prints_before_an_error_is_shown(capfd):
    said = run_in_simulator(prints_and_fails, 1, 1, *new_arrays(3))
    assert said.startswith("IndexError")
    assert capfd.readouterr().out == "here\n"


@pytest.mark.parametrize(
    ("kernel", "threads"),
    [
        (wrong.reversed_without_barrier, wrong.N),
        (wrong.barrier_under_condition, wrong.N),
        (wrong.barrier_in_a_helper_under_condition, wrong.N),
        (wrong.left_neighbour, wrong.N),  # a negative index
        (wrong.reads_shared_nobody_filled, wrong.N),
        (wrong.copies, wrong.N - 1),  # a grid too small
        (wrong.copies, 1025),
        (wrong.big_tiles, wrong.N),  # more than 48 KiB of shared memory
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_the_simulator_is_silent(kernel, threads):
    assert run_in_simulator(kernel, 1, threads, *new_arrays(wrong.N)) == ""


def test_the_simulator_names_an_index_past_the_end():
    said = run_in_simulator(wrong.no_guard, 1, 8, *new_arrays(5))
    assert said.startswith("IndexError")


def test_the_simulator_has_no_shuffles():
    said = run_in_simulator(
        wrong.shuffle_under_condition, 1, 32, *new_arrays(32)
    )
    assert said.startswith("AttributeError")


def test_a_launch_that_does_not_end_is_given_up():
    with pytest.raises(KernelError, match=r"did not end within 0\.01 seconds"):
        run_in_simulator(wrong.copies, 1, 8, *new_arrays(8), seconds=0.01)


def test_a_missing_numba_is_named(tmp_path, monkeypatch):
    (tmp_path / "numba.py").write_text("raise ImportError('no numba here')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(KernelError, match="no numba here"):
        run_in_simulator(wrong.copies, 1, 8, *new_arrays(8))
