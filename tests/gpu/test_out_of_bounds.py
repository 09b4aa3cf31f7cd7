"""An access outside says outside of what; one from the end is legal."""

import numpy as np
import pytest

from attention_lab.gpu import cuda, record
from attention_lab.gpu.engines import has_numba
from attention_lab.gpu.errors import KernelFault
from attention_lab.gpu.launch import launch

float32 = np.float32
BEFORE_LAST = -2


@pytest.fixture(params=["python", "compiled"])
def engine(request):
    if request.param == "compiled" and not has_numba():
        pytest.skip("the compiled engine is Numba's")
    return request.param


def one_hazard(kernel, engine, *args, block=1):
    (hazard,) = record(kernel, 1, block, *args, engine=engine).hazards
    assert hazard.kind == "out-of-bounds"
    return hazard


# -- parts of arrays ------------------------------------------------------


@cuda.jit(device=True)
def sum_of_five(row):
    total = float32(0.0)
    for k in range(5):
        total += row[k]
    return total


@cuda.jit
def passes_a_slice(out, x):
    out[0] = sum_of_five(x[4:8])


@cuda.jit
def passes_a_row(out, x):
    out[0] = sum_of_five(x[1])


@cuda.jit
def passes_a_part_of_a_row(out, x):
    out[0] = sum_of_five(x[1, 2 : x.shape[1]])


@cuda.jit
def passes_a_part_of_a_part(out, x):
    middle = x[2:10]
    out[0] = sum_of_five(middle[3:6])


@cuda.jit
def passes_the_whole(out, x):
    out[0] = sum_of_five(x)


@cuda.jit
def indexes_a_slice_at_once(out, x):
    out[0] = x[4:8][cuda.threadIdx.x + 4]


@cuda.jit
def stores_past_a_named_part(out, x):
    half = x[0:3]
    half[cuda.blockDim.x + 4] = float32(1.0)
    out[0] = half[0]


@cuda.jit
def adds_past_a_named_part(out, x):
    half = x[0:3]
    cuda.atomic.add(half, cuda.blockDim.x + 2, float32(1.0))
    out[0] = half[0]


@cuda.jit
def misses_columns_of_some_rows(out, x):
    some = x[1:3]
    out[0] = some[0, cuda.blockDim.x + 6]


@cuda.jit
def misses_rows_by_a_missed_index(out, x):
    some = x[1:3, 2:4]
    index = x[0, 0:3]
    out[0] = some[5, max(int(index[4 * cuda.blockDim.x]), 0)]


LINE = np.arange(12, dtype=float32)
ROWS = np.arange(12, dtype=float32).reshape(3, 4)


@pytest.mark.parametrize(
    ("kernel", "x", "words"),
    [
        (passes_a_slice, LINE, "row[4], but row is x[4:8]"),
        (passes_a_row, ROWS, "row[4], but row is x[1, 0:4]"),
        (passes_a_part_of_a_row, ROWS, "row[2], but row is x[1, 2:4]"),
        (passes_a_part_of_a_part, LINE, "row[3], but row is x[5:8]"),
        (passes_the_whole, LINE[:4], "x[4], but the shape is (4,)"),
        (indexes_a_slice_at_once, LINE, "x[4:8][4], which is outside"),
        (stores_past_a_named_part, LINE, "half[5], but half is x[0:3]"),
        (adds_past_a_named_part, LINE, "half[3], but half is x[0:3]"),
        (
            misses_columns_of_some_rows,
            ROWS,
            "some[..., 7], but some is x[..., 0:4]",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_part_that_was_missed_is_named(kernel, x, words):
    out = np.zeros(1, float32)
    hazard = one_hazard(kernel, "python", out, x.copy())
    assert words in hazard.sentence
    assert hazard.array == "x"


def test_a_missed_part_inside_an_index_is_kept_apart(engine):
    out = np.zeros(1, float32)
    hazards = record(
        misses_rows_by_a_missed_index, 1, 1, out, ROWS, engine=engine
    ).hazards
    said = " ".join(hazard.sentence for hazard in hazards)
    assert "index[4], but index is x[0, 0:3]" in said
    assert "some[5, ...], but some is x[1:3, ...]" in said


# -- negative indices -----------------------------------------------------


@cuda.jit
def reads_the_last(out, x):
    out[0] = x[-1]
    out[-1] = x[BEFORE_LAST]


@cuda.jit
def reads_the_last_column(out, x):
    s = cuda.shared.array((2, 3), float32)
    s[-1, -1] = x[1, -1]
    out[0] = s[1, 2]
    row = x[1]
    out[1] = row[-2] + x[-1][-1]


@cuda.jit
def reads_the_last_of_a_part(out, x):
    part = x[2:6]
    out[0] = part[-1]
    k = -1
    out[1] = part[k]


@cuda.jit
def adds_to_the_last(out, x):
    cuda.atomic.add(out, -1, x[0])
    out[0] = x[0]


@pytest.mark.parametrize(
    ("kernel", "x", "expected"),
    [
        (reads_the_last, LINE, [11, 10]),
        (reads_the_last_column, ROWS, [7, 6 + 11]),
        (reads_the_last_of_a_part, LINE, [5, 5]),
        (adds_to_the_last, LINE[2:], [2, 2]),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_literal_index_from_the_end_is_legal(kernel, x, expected):
    out = np.zeros(2, float32)
    recording = record(kernel, 1, 1, out, x.copy())
    assert recording.hazards == (), str(recording)
    np.testing.assert_array_equal(out, expected)
    out[:] = 0
    launch(kernel, (1, 1, 1), (1, 1, 1), (out, x.copy()))
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("kernel", "x"),
    [
        (stores_past_a_named_part, LINE),
        (adds_past_a_named_part, LINE),
        (misses_columns_of_some_rows, ROWS),
        (reads_the_last_column, ROWS),
        (adds_to_the_last, LINE),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_both_engines_say_the_same_of_indices(kernel, x):
    pytest.importorskip("numba", reason="the compiled engine is Numba's")
    said, outs = [], []
    for engine in ("python", "compiled"):
        outs.append(np.zeros(2, float32))
        recording = record(kernel, 1, 1, outs[-1], x.copy(), engine=engine)
        said.append(recording.hazards)
    assert said[0] == said[1]
    np.testing.assert_array_equal(*outs)


@cuda.jit
def reads_far_from_the_end(out, x):
    out[0] = x[-5]


def test_a_literal_index_before_the_first_is_outside():
    out = np.zeros(1, float32)
    for size in range(5):
        x = np.zeros(size, float32)
        hazard = one_hazard(reads_far_from_the_end, "python", out, x)
        assert f"x[-5], but the shape is ({size},)" in hazard.sentence
        with pytest.raises(KernelFault):
            launch(reads_far_from_the_end, (1, 1, 1), (1, 1, 1), (out, x))


@cuda.jit
def left_neighbour_in_a_part(out, x):
    part = x[2:6]
    t = cuda.threadIdx.x
    out[t] = part[t - 1]


def test_an_index_that_gets_negative_wraps_in_its_part_and_is_named(engine):
    out = np.zeros(4, float32)
    hazard = one_hazard(left_neighbour_in_a_part, engine, out, LINE, block=4)
    assert "part[-1], but part is x[2:6]" in hazard.sentence
    assert "negative index" in hazard.sentence
    np.testing.assert_array_equal(out, [5, 2, 3, 4])  # as Numba wraps


# -- who ------------------------------------------------------------------


@cuda.jit
def column_for_row(out, x):
    c, r = cuda.grid(2)
    out[c, r] = x[r, c]


@cuda.jit
def deep(out, x):
    x3, y3, z3 = cuda.grid(3)
    out[z3, y3, x3 + 1] = x[z3, y3, x3]


def test_threads_and_blocks_are_named_by_their_axes():
    out, x = np.zeros((3, 4), float32), np.zeros((3, 4), float32)
    recording = record(column_for_row, (2, 3), (2, 1), out, x)
    said = " ".join(hazard.sentence for hazard in recording.hazards)
    assert "thread (1, 0)" not in said  # only x has several threads
    assert "thread 1 of block (1, 0) writes out[3, 0]" in said
    out, x = np.zeros((2, 2, 2), float32), np.zeros((2, 2, 2), float32)
    recording = record(deep, 1, (2, 2, 2), out, x)
    said = recording.hazards[0].sentence
    assert "thread (1, 0, 0) of block 0 writes out[0, 0, 2]" in said
    assert next(recording.events.rows())["thread"] == (0, 0, 0)


@cuda.jit
def fills_a_row_of_a_part(out, row):
    part = out[2:4]
    part[row[0], 1:] = 7.0


@pytest.mark.parametrize(
    ("row", "words", "filled"),
    [
        (1, None, [3]),
        (-1, "writes part[-1, 1], but part is out[2:4, 0:3]", [3]),
        (2, "writes part[2, 1], but part is out[2:4, 0:3]", []),
    ],
)
def test_each_element_of_a_filled_row_has_its_own_check(
    row, words, filled, engine
):
    out = np.zeros((6, 3), float32)
    recording = record(
        fills_a_row_of_a_part, 1, 1, out, np.array([row]), engine=engine
    )
    expected = np.zeros((6, 3), float32)
    expected[filled, 1:] = 7
    np.testing.assert_array_equal(out, expected)
    outside = [h for h in recording.hazards if h.kind == "out-of-bounds"]
    assert [words in h.sentence for h in outside] == [True] * bool(words)
    assert [h.count for h in outside] == [2] * bool(words)


@cuda.jit
def uses_a_missed_row_often(out, x, rows):
    part = x[1:3]
    for k in range(rows.size):
        row = part[rows[k]]
        for j in range(3):
            out[k] += row[j]


def test_a_row_that_was_missed_is_counted_from_the_end_each_time(engine):
    x = np.arange(12, dtype=float32).reshape(4, 3)
    # 1500 misses of distinct rows, more than are kept, then two that wrap.
    rows = np.array([*range(2, 1502), -1, -2])
    out = np.zeros(len(rows), float32)
    (hazard,) = record(
        uses_a_missed_row_often, 1, 1, out, x, rows, engine=engine
    ).hazards
    assert "reads row[0], but row is x[2 of 1:3, 0:3]" in hazard.sentence
    assert hazard.count == 3 * len(rows)
    np.testing.assert_array_equal(out[-2:], [6 + 7 + 8, 3 + 4 + 5])
