"""A race of updates asks for an atomic operation, not for a barrier."""

import numpy as np
import pytest

from attention_lab.gpu import cuda, record
from attention_lab.gpu.explain import atomic_for

float32 = np.float32


@cuda.jit
def adds(out, x):
    out[0] += x[cuda.grid(1)]


@cuda.jit
def subtracts_the_long_way(out, x):
    i = cuda.grid(1)
    out[i % 2] = out[i % 2] - x[i]


@cuda.jit
def keeps_the_largest(out, x):
    out[0] = max(out[0], x[cuda.grid(1)])


@cuda.jit
def multiplies(out, x):
    out[0] *= x[cuda.grid(1)]


@cuda.jit
def counts_in_two_lines(out, x):
    old = out[0]
    out[0] = old + x[cuda.grid(1)]


@cuda.jit
def adds_in_shared_memory(out, x):
    s = cuda.shared.array(1, float32)
    t = cuda.threadIdx.x
    if t == 0:
        s[0] = float32(0.0)
    cuda.syncthreads()
    s[0] += x[t]
    cuda.syncthreads()
    if t == 0:
        out[0] = s[0]


@cuda.jit
def shifts(out, x):
    s = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    if t < 7:
        s[t] += s[t + 1]
    out[t] = s[t]


def races(kernel, grid=1):
    out, x = np.zeros(8, float32), np.ones(8 * grid, float32)
    hazards = record(kernel, grid, 8, out, x).hazards
    return [hazard for hazard in hazards if hazard.kind == "race"]


@pytest.mark.parametrize("grid", [1, 2])
@pytest.mark.parametrize(
    ("kernel", "advice"),
    [
        (adds, "cuda.atomic.add(out, ...)"),
        (subtracts_the_long_way, "cuda.atomic.sub(out, ...)"),
        (keeps_the_largest, "cuda.atomic.max(out, ...)"),
        (multiplies, "an operation of cuda.atomic"),
        (counts_in_two_lines, "an operation of cuda.atomic"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_an_update_by_several_threads_asks_for_an_atomic(kernel, advice, grid):
    found = races(kernel, grid)
    assert found
    for hazard in found:
        assert advice in hazard.sentence
        assert "a barrier would not help" in hazard.sentence
        assert "Put cuda.syncthreads()" not in hazard.sentence


def test_an_update_of_shared_memory_asks_for_an_atomic():
    (read_write, write_write) = races(adds_in_shared_memory)
    for hazard in (read_write, write_write):
        assert "cuda.atomic.add(s, ...)" in hazard.sentence


def test_a_neighbour_read_while_it_is_updated_asks_for_a_barrier():
    for hazard in races(shifts):
        assert "Put cuda.syncthreads()" in hazard.sentence


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("x[i] += v", "add"),
        ("x[i, j] -= v", "sub"),
        ("x[i] = v + x[i]", "add"),
        ("x[i] = v - x[i]", None),
        ("x[i] = x[i] - v", "sub"),
        ("x[i] = min(v, x[i])", "min"),
        ("x[i] = max(v, w)", None),
        ("x[i] = x[j] + v", None),
        ("x[i] |= v", None),
        ("if a: x[i] += v", None),
        ("x[i] = x[i] + (", None),
    ],
)
def test_the_atomic_that_does_what_a_line_does(line, name):
    assert atomic_for(line) == name
