"""Threads that wait must all meet: at one call, and barriers on one trip."""

import correct_waits as right
import mutants_with_waits as wrong
import numpy as np
import pytest

from attention_lab.gpu import record
from attention_lab.gpu.engines import has_numba
from attention_lab.gpu.errors import KernelFault
from attention_lab.gpu.launch import launch

ORDERS = ["ascending", "descending", "shuffled"]
ENGINES = ["python", "compiled"]
MUTANTS = [
    *((kernel, 32, "warp-divergent-shuffle") for kernel in wrong.WARP_MUTANTS),
    *((kernel, 8, "divergent-barrier") for kernel in wrong.BARRIER_MUTANTS),
]


def name(value):
    return getattr(value, "__name__", str(value))


def recorded(kernel, threads, **more):
    if more.get("engine") == "compiled" and not has_numba():
        pytest.skip("the compiled engine is Numba's")
    x = np.arange(1, threads + 1, dtype=np.float32)
    return record(kernel, 1, threads, np.zeros_like(x), x, **more)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("kernel", "threads", "kind"), MUTANTS, ids=name)
def test_a_wait_that_some_threads_miss_is_named(kernel, threads, kind, order):
    recording = recorded(kernel, threads, order=order, seed=2)
    assert recording.kinds == (kind,), str(recording)
    (hazard,) = recording.hazards
    assert f"thread {hazard.threads[0]} " in hazard.sentence
    assert f"thread {hazard.threads[1]} " in hazard.sentence


@pytest.mark.parametrize(("kernel", "threads", "kind"), MUTANTS, ids=name)
def test_a_plain_launch_stops_with_the_same_kind(kernel, threads, kind):
    x = np.ones(threads, np.float32)
    with pytest.raises(KernelFault) as fault:
        launch(kernel, (1, 1, 1), (threads, 1, 1), (np.zeros_like(x), x))
    assert fault.value.kind == kind


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(("kernel", "threads"), right.CORRECT, ids=name)
def test_a_wait_that_all_meet_is_clean(kernel, threads, order):
    recording = recorded(kernel, threads, order=order, seed=2)
    assert recording.hazards == (), str(recording)


# Compiling takes a second each: one kernel of every construct.
COMPILED = [
    (wrong.shuffle_for_half_a_warp, 32),
    (wrong.others_return_after_the_shuffle, 32),
    (wrong.other_trip_of_the_inner_loop, 8),
    (wrong.while_with_other_trips, 8),
    (wrong.vote_on_another_trip, 8),
    (right.returned_before_the_vote, 32),
    (right.barriers_in_nested_loops, 8),
]


@pytest.mark.parametrize(("kernel", "threads"), COMPILED, ids=name)
def test_both_engines_say_the_same_about_waits(kernel, threads):
    python, compiled = (
        recorded(kernel, threads, engine=engine, order="shuffled", seed=4)
        for engine in ENGINES
    )
    assert python.hazards == compiled.hazards


def test_the_trips_are_named():
    (hazard,) = recorded(wrong.other_trip_of_the_inner_loop, 8).hazards
    assert "on trip 1 of the loop" in hazard.sentence
    assert "waits at it on trip 2" in hazard.sentence


def test_another_call_of_a_helper_is_named():
    (hazard,) = recorded(wrong.barrier_of_a_helper_in_two_calls, 8).hazards
    assert "in another call of `meets`" in hazard.sentence
