"""A loop that never ends is an error with its line, not a silent wait."""

import endless_kernels as kernels
import numpy as np
import pytest

from attention_lab.gpu import record
from attention_lab.gpu.engines import has_numba
from attention_lab.gpu.errors import KernelError, KernelFault
from attention_lab.gpu.launch import launch
from attention_lab.gpu.limits import TRIPS_VARIABLE

TRIPS = 3000  # more than an endless loop gets


def name(kernel):
    return kernel.py_func.__name__


def run(kernel, engine="python", recorded=False, trips=TRIPS, block=8):
    """Run a kernel in two blocks of `block` threads; return its output."""
    if engine == "compiled" and not has_numba():
        pytest.skip("the compiled engine is Numba's")
    flag, out = np.array([0, trips]), np.zeros(2 * block, np.int64)
    if recorded:
        record(kernel, 2, block, flag, out, engine=engine)
    else:
        launch(kernel, (2, 1, 1), (block, 1, 1), (flag, out), engine=engine)
    return out


def fault_of(kernel, **more):
    with pytest.raises(KernelFault) as fault:
        run(kernel, **more)
    assert fault.value.kind == "endless-loop"
    return str(fault.value)


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("kernel", kernels.SPINS, ids=name)
def test_a_spin_is_named_with_what_it_waits_for(kernel, recorded):
    said = fault_of(kernel, recorded=recorded)
    waits_for = "s" if "shared" in name(kernel) else "flag"
    assert f"change `{waits_for}`" in said
    assert "`while " in said  # the line
    assert "of block " in said
    assert "take turns only at barriers" in said
    assert "deadlocks" in said


@pytest.mark.parametrize("kernel", kernels.ENDLESS, ids=name)
def test_a_loop_that_nothing_ends_is_named(kernel):
    said = fault_of(kernel)
    assert "thread 0 of block 0 never leaves this loop" in said


@pytest.mark.parametrize("kernel", kernels.LONG, ids=name)
def test_a_long_loop_is_left_alone(kernel):
    np.testing.assert_array_equal(run(kernel, block=1), [TRIPS, TRIPS])


@pytest.mark.parametrize(
    "kernel", [kernels.waits_for_the_grid, kernels.for_ever], ids=name
)
@pytest.mark.parametrize("recorded", [False, True])
def test_both_engines_say_the_same_of_an_endless_loop(kernel, recorded):
    said = fault_of(kernel, recorded=recorded)
    assert said == fault_of(kernel, engine="compiled", recorded=recorded)


def test_a_flag_that_is_set_is_not_waited_for():
    flag, out = np.ones(2, np.int64), np.zeros(2, np.int64)
    record(kernels.waits_for_a_flag, 1, 2, flag, out)
    np.testing.assert_array_equal(out, [1, 1])


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_a_loop_that_may_end_has_a_limit_that_can_be_raised(
    engine, monkeypatch
):
    monkeypatch.setenv(TRIPS_VARIABLE, "2000")
    said = fault_of(kernels.oscillates, engine=engine)
    assert "made 2000 trips" in said
    assert TRIPS_VARIABLE in said
    fault_of(kernels.counts_to, engine=engine, block=1)
    monkeypatch.setenv(TRIPS_VARIABLE, str(2 * TRIPS))
    run(kernels.counts_to, engine=engine, block=1)


def test_a_wrong_limit_is_refused(monkeypatch):
    monkeypatch.setenv(TRIPS_VARIABLE, "many")
    with pytest.raises(KernelError, match="whole number"):
        run(kernels.counts_to)


def test_sixteen_million_trips_are_fine_in_machine_code():
    n = 4096
    out = run(kernels.walks_a_square, engine="compiled", trips=n, block=1)
    np.testing.assert_array_equal(out, [n * n // 2] * 2)
    long = run(kernels.counts_to, engine="compiled", trips=n * n, block=1)
    np.testing.assert_array_equal(long, [n * n] * 2)


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_a_loop_that_stops_the_thread_is_not_endless(engine):
    with pytest.raises(KernelFault, match="because it raises ValueError"):
        run(kernels.stops_in_a_loop, engine=engine)


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_a_branch_that_types_rule_out_says_nothing_about_a_loop(engine):
    out = run(kernels.has_a_dead_branch, engine=engine, block=1)
    np.testing.assert_array_equal(out, [TRIPS, TRIPS])
