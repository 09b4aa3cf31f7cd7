"""A variable may stand for one array now and for another later."""

import numpy as np
import pytest

from attention_lab.gpu import cuda, record
from attention_lab.gpu.engines import has_numba
from attention_lab.gpu.errors import KernelFault, UnsupportedConstruct

float32 = np.float32
N = 16
ENGINES = ["python", *(["compiled"] if has_numba() else [])]
ORDERS = ["ascending", "descending", "shuffled"]


def floats(*shape):
    return np.zeros(shape, np.float32)


@pytest.fixture(params=[(e, o) for e in ENGINES for o in ORDERS])
def run(request):
    engine, order = request.param

    def runs(kernel, *args, block=1, grid=1):
        recording = record(
            kernel, grid, block, *args, engine=engine, order=order, seed=5
        )
        assert recording.hazards == (), str(recording)
        return args[0]

    return runs


@cuda.jit
def ping_pong(out, x, steps):
    now = cuda.shared.array(N, float32)
    new = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    now[t] = x[t]
    cuda.syncthreads()
    for _ in range(steps):
        new[t] = now[t] + now[(t + 1) % N]
        cuda.syncthreads()
        now, new = new, now
    out[t] = now[t]


@pytest.mark.parametrize("steps", [0, 1, 2, 5])
def test_two_shared_arrays_change_their_names_in_a_loop(run, steps):
    x = np.arange(N, dtype=np.float32)
    expected = x.copy()
    for _ in range(steps):
        expected = expected + np.roll(expected, -1)
    np.testing.assert_array_equal(
        run(ping_pong, floats(N), x, steps, block=N), expected
    )


@cuda.jit
def ping_pong_without_barrier(out, x, steps):
    now = cuda.shared.array(N, float32)
    new = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    now[t] = x[t]
    cuda.syncthreads()
    for _ in range(steps):
        new[t] = now[t] + now[(t + 1) % N]
        now, new = new, now
    out[t] = now[t]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("order", ORDERS)
def test_missing_barrier_between_swaps_is_a_race(engine, order):
    x = np.arange(N, dtype=np.float32)
    recording = record(
        ping_pong_without_barrier,
        1,
        N,
        floats(N),
        x,
        3,
        engine=engine,
        order=order,
    )
    assert "race" in " ".join(recording.kinds)
    names = {hazard.array for hazard in recording.hazards}
    assert names <= {"now", "new"}


@cuda.jit
def swaps_arguments(out, x, steps):
    t = cuda.threadIdx.x
    for _ in range(steps):
        out[t] = x[t] + float32(1.0)
        x, out = out, x


def test_arguments_change_their_names(run):
    out, x = floats(4), np.arange(4, dtype=np.float32)
    run(swaps_arguments, out, x, 3, block=4)
    np.testing.assert_array_equal(out, np.arange(4) + 3)
    np.testing.assert_array_equal(x, np.arange(4) + 2)


@cuda.jit
def chosen_by_thread(out, x, y):
    s = cuda.shared.array(N, float32)
    t = cuda.threadIdx.x
    s[t] = -x[t]
    source = x if t % 3 == 0 else (s if t % 3 == 1 else y[t])
    if t % 3 == 2:
        out[t] = source[1]
    else:
        out[t] = source[t]
    target = out
    if t == 0:
        target = y[0]
    target[t] += len(source) + source.shape[0]
    cuda.atomic.add(target, t, 1)


def test_every_thread_may_choose_another_array(run):
    x = np.arange(1, 7, dtype=np.float32)
    y = np.arange(12, dtype=np.float32).reshape(6, 2) * 10
    before = y.copy()
    expected = []
    for t in range(6):
        value, size = [(x[t], 6), (-x[t], N), (before[t, 1], 2)][t % 3]
        expected.append(value + (2 * size + 1 if t else 0))
    np.testing.assert_array_equal(
        run(chosen_by_thread, floats(6), x, y, block=6), expected
    )
    assert y[0, 0] == before[0, 0] + 13


@cuda.jit
def swaps_rows(out, x):
    s = cuda.shared.array((2, N), float32)
    t = cuda.threadIdx.x
    a, b = s[0], s[1]
    a[t] = x[t]
    cuda.syncthreads()
    for d in range(3):
        b[t] = a[t]
        if t >= 2**d:
            b[t] += a[t - 2**d]
        cuda.syncthreads()
        a, b = b, a
    out[t] = a[t]


def test_two_rows_of_one_array_change_their_names(run):
    x = np.arange(8, dtype=np.float32)
    np.testing.assert_array_equal(
        run(swaps_rows, floats(8), x, block=8), x.cumsum()
    )


@cuda.jit
def shrinks(out, x):
    rest = x
    k = 0
    while len(rest) > 1:
        out[k] = rest[0] + rest[-1 + len(rest)]
        rest = rest[1:]
        k += 1


def test_an_array_shrinks_in_a_loop(run):
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(run(shrinks, floats(4), x), x[:4] + 4)


@cuda.jit
def row_or_column(out, x, i):
    line = x[i, :] if i > 1 else x[:, i]
    total = float32(0.0)
    for value in line:
        total += value
    out[0] = total


def test_a_row_or_a_column(run):
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert run(row_or_column, floats(1), x, 2)[0] == x[2].sum()
    assert run(row_or_column, floats(1), x, 1)[0] == x[:, 1].sum()


@cuda.jit(device=True)
def longer(a, b):
    if len(a) > len(b):
        return a
    return b


@cuda.jit
def chooses_in_a_helper(out, x, y):
    best = longer(x, y)
    out[0] = best[0] + len(best)


def test_a_device_function_may_return_one_of_its_arrays(run):
    x, y = floats(3) + 5, floats(4) + 7
    assert run(chooses_in_a_helper, floats(1), x, y)[0] == 11


@cuda.jit
def of_two_types(out, x):
    s = cuda.shared.array(N, np.float64)
    for _ in range(2):
        x = s
    out[0] = x[0]


@cuda.jit
def of_two_ranks(out, x):
    for _ in range(2):
        x = out
    out[0] = x[0]


@cuda.jit
def in_a_tuple(out, x):
    pair = (out, x)
    pair[0][0] = 1


@pytest.mark.parametrize(
    ("kernel", "x", "words"),
    [
        (of_two_types, floats(3), "float64"),
        (of_two_ranks, floats(3, 3), "2 axes"),
        (in_a_tuple, floats(3), "a tuple that holds the global array `out`"),
    ],
)
def test_arrays_of_different_types_cannot_share_a_name(kernel, x, words):
    with pytest.raises(UnsupportedConstruct, match="line") as refusal:
        record(kernel, 1, 1, floats(3), x)
    assert words in str(refusal.value)


@cuda.jit
def chooses_for_some(out, x, y):
    i = cuda.grid(1)
    if i < 2:
        a = x
    elif i < 4:
        a = y
    out[i] = a[i]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_name_that_stands_for_no_array_yet_is_a_fault(engine):
    args = floats(8), floats(8), floats(8)
    record(chooses_for_some, 1, 4, *args, engine=engine)
    with pytest.raises(KernelFault, match=r"thread 4 of block 0 uses `a`"):
        record(chooses_for_some, 1, 6, *args, engine=engine)


@cuda.jit
def reads_past_the_chosen(out, x, y, wanted):
    i = cuda.grid(1)
    a = x[1:]
    if wanted == 1:
        a = y[2:4]
    out[i] = a[i + 1]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_index_past_the_array_that_is_meant_names_it(engine):
    args = floats(4), floats(8), floats(4)
    for wanted, said in ((0, None), (1, "reads a[2], but a is y[2:4]")):
        hazards = record(
            reads_past_the_chosen, 1, 4, *args, wanted, engine=engine
        ).hazards
        assert said is None or said in hazards[0].sentence
        assert len(hazards) == (said is not None)
