"""Fences with atomic operations make an order; without them there is none."""

import kernels_with_fences as kernels
import numpy as np
import pytest

from attention_lab.gpu import record

ORDERS = ["ascending", "descending", "shuffled"]
BLOCKS = 4


def recorded(kernel, order="ascending", engine="python"):
    x = np.arange(BLOCKS * kernels.THREADS, dtype=np.float32)
    args = (
        np.zeros(1, np.float32),
        np.zeros(BLOCKS, np.float32),
        np.zeros(2, np.int32),
        x,
    )
    recording = record(
        kernel,
        BLOCKS,
        kernels.THREADS,
        *args,
        order=order,
        seed=3,
        engine=engine,
    )
    return recording, args


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", kernels.CORRECT, ids=lambda k: k.__name__)
def test_order_by_fences_is_no_race(kernel, order):
    recording, (out, _, _, x) = recorded(kernel, order)
    assert recording.hazards == (), str(recording)
    assert "fence" in [note.kind for note in recording.notes]
    some = x[::4] if kernel is kernels.adds_under_a_lock else x
    np.testing.assert_array_equal(out, [some.sum()])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kernel", kernels.RACING, ids=lambda k: k.__name__)
def test_what_fences_do_not_order_is_a_race(kernel, order):
    recording, _ = recorded(kernel, order)
    assert "race" in recording.kinds, str(recording)


@pytest.mark.parametrize(
    ("kernel", "array"),
    [
        (kernels.last_block_without_fence, "partial"),
        (kernels.last_block_with_a_late_fence, "partial"),
        (kernels.lock_without_fence, "out"),
    ],
)
def test_a_race_for_want_of_a_fence_says_so(kernel, array):
    recording, _ = recorded(kernel)
    for hazard in recording.hazards:
        assert hazard.kind == "race"
        assert hazard.array == array
        assert "operation on `count`" in hazard.sentence
        assert "threadfence() before it" in hazard.sentence


def test_a_lock_that_is_freed_by_a_plain_store_asks_for_exch():
    recording, _ = recorded(kernels.frees_the_lock_by_a_store)
    said = [h.sentence for h in recording.hazards if h.array == "count"]
    assert "Store with cuda.atomic.exch" in said[0]


def test_both_engines_see_the_same_fences():
    pytest.importorskip("numba", reason="the compiled engine is Numba's")
    for kernel in (kernels.last_block_adds_up, kernels.another_lock_for_some):
        one, _ = recorded(kernel, engine="python")
        two, _ = recorded(kernel, engine="compiled")
        assert one.hazards == two.hazards
        assert one.events.fences == two.events.fences
