"""A fault has the same sentence in both engines: thread, block, line, why."""

import numpy as np
import pytest

from attention_lab.gpu import cuda, record
from attention_lab.gpu.errors import KernelFault
from attention_lab.gpu.launch import launch

pytest.importorskip("numba", reason="the compiled engine is Numba's")

float32 = np.float32


@cuda.jit(device=True)
def only_positive(value):
    if value > 0:
        return value


@cuda.jit
def faulty(out, x, which):
    # One kernel, because compiling takes long.
    i = cuda.grid(1)
    if which == 0:
        if x[i] > 0:
            value = x[i]
        out[i] = value
    elif which == 1:
        for k in range(int(x[i])):
            out[i] = k
        out[i] = k
    elif which == 2:
        if x[i] > 0:
            part = x[1:]
        out[i] = part[0]
    elif which == 3:
        if x[i] > 0:
            other = x
        out[i] = other[i]
    elif which == 4:
        if x[i] > 0:
            own = cuda.local.array(2, float32)
            own[0] = x[i]
        out[i] = own[0]
    elif which == 5:
        out[i] = only_positive(x[i])
    elif which == 6:
        out[i] = 5 // int(x[i] + 1)
    elif which == 7:
        out[i] = (
            x[i] * float32(0.5)
            + x[i] * float32(0.25)
            + x[i + (1 if x[i] < float32(0.0) else 0)]
        )
    else:
        middle = x[1:3]
        out[i] = middle[1 - int(x[i])]


@cuda.jit
def waits_and_divides(out, x, which):
    i = cuda.grid(1)
    cuda.syncthreads()
    out[i] = 5 % int(x[i] + 1)


# which, the line, what is wrong; thread 1 of block 1 has x = -1.
FAULTS = [
    (faulty, 0, "out[i] = value", "`value`, which has no value"),
    (faulty, 1, "out[i] = k", "`k`, which has no value"),
    (faulty, 2, "out[i] = part[0]", "`part`, which has no value"),
    (faulty, 3, "out[i] = other[i]", "`other`, which has no value"),
    (faulty, 4, "out[i] = own[0]", "`own`, which has no value"),
    (faulty, 5, "only_positive(x[i])", "`only_positive(...)`, which has no"),
    (faulty, 6, "out[i] = 5 // int(x[i] + 1)", "divides a whole number"),
    (faulty, 7, "out[i] = (", "an index outside its array"),
    (faulty, 8, "out[i] = middle[1 - int(x[i])]", "an index outside its array"),
    (waits_and_divides, 0, "5 % int(x[i] + 1)", "divides a whole number"),
]


@pytest.mark.parametrize(("kernel", "which", "line", "words"), FAULTS)
def test_faults_name_thread_block_and_line(kernel, which, line, words):
    sentences = []
    for engine in ("python", "compiled"):
        x, out = np.array([1, 2, 1, -1], float32), np.zeros(4, float32)
        args = out, x, np.int64(which)
        with pytest.raises(KernelFault) as fault:
            launch(kernel, (2, 1, 1), (2, 1, 1), args, engine=engine)
        sentences.append(str(fault.value))
    assert sentences[0] == sentences[1]
    place, what = sentences[0].split("`: thread 1 of block 1 ")
    assert place.startswith(f"{kernel.__name__}, line ")
    assert place.endswith(line)
    assert words in what


@cuda.jit
def conditional_but_right(out, x):
    i = cuda.grid(1)
    for k in range(2):
        if x[i] > 0:
            value = x[i] + k
            own = cuda.local.array(2, float32)
            own[0] = value
            part = x[i:]
        if x[i] > 0:
            out[i] = value + own[0] + part[0]
        else:
            out[i] = float32(0.0)


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_a_variable_set_under_the_same_condition_is_no_fault(engine):
    x, out = np.array([3, -1], float32), np.zeros(2, float32)
    recording = record(conditional_but_right, 1, 2, out, x, engine=engine)
    assert recording.hazards == ()
    assert out.tolist() == [11, 0]
    launch(conditional_but_right, (1, 1, 1), (2, 1, 1), (out, x), engine=engine)


@cuda.jit
def booleans(out, x):
    shared = cuda.shared.array(4, np.bool_)
    own = cuda.local.array((2, 2), cuda.boolean)
    t = cuda.threadIdx.x
    shared[t] = x[t] > 1
    own[0, 0] = x[t]
    own[1, t % 2] = not own[0, 0]
    cuda.syncthreads()
    out[t] = shared[3 - t] and own[0, 0]
    out[t + 4] = own[1, t % 2] + shared[t]


@pytest.mark.parametrize("engine", ["python", "compiled"])
@pytest.mark.parametrize("dtype", [np.bool_, np.int32])
def test_arrays_of_bools_work_in_every_space(engine, dtype):
    x = np.array([2.5, 0, 1, np.nan], float32)
    out = np.zeros(8, dtype)
    recording = record(booleans, 1, 4, out, x, engine=engine)
    assert recording.hazards == ()
    # shared = [1, 0, 0, 0] (NaN > 1 is false), own[0, 0] = [1, 0, 1, 1].
    assert out[:4].tolist() == [0, 0, 0, 1]
    assert out[4:].tolist() == [1, 1, 0, 0]


@cuda.jit
def unread_bools(out):
    own = cuda.local.array(2, np.bool_)
    shared = cuda.shared.array(2, np.bool_)
    out[0] = own[0]
    out[1] = shared[5]


def test_unwritten_and_outside_bools_are_the_same_in_both_engines():
    made = []
    for engine in ("python", "compiled"):
        out = np.zeros(2, np.bool_)
        recording = record(unread_bools, 1, 1, out, engine=engine)
        made.append((recording.hazards, out.tolist()))
    assert made[0] == made[1]
    assert {h.kind for h in made[0][0]} == {
        "uninitialised-read",
        "out-of-bounds",
    }
