"""What kernels may be written with."""

import math

import numpy as np

from attention_lab.gpu import cuda, record

float32 = np.float32
int32 = np.int32
TABLE = (3, 1, 4)
FLAG = False


def run(kernel, *args, grid=1, block=1, **more):
    recording = record(kernel, grid, block, *args, **more)
    assert recording.hazards == (), str(recording)
    return args[0]


def floats(*shape):
    return np.zeros(shape, np.float32)


# -- device functions ---------------------------------------------------


@cuda.jit(device=True)
def sign_of(x):
    if x > 0:
        return 1
    for k in range(3):
        if k > 1:
            return -1
    return 0


@cuda.jit(device=True)
def twice(x, factor=2):
    return factor * sign_of(x)


@cuda.jit(device=True)
def swapped(a, b):
    return b, a


@cuda.jit
def calls(out, x):
    i = cuda.grid(1)
    out[i, 0] = twice(twice(x[i])) + sign_of(-x[i])
    first, second = swapped(x[i], float32(9.0))
    out[i, 1] = first
    out[i, 2] = second
    out[i, 3] = twice(x=x[i], factor=5)


def test_device_functions_return_early_from_loops_and_nest():
    x = np.array([2.0, -3.0], np.float32)
    np.testing.assert_array_equal(
        run(calls, floats(2, 4), x, block=2), [[1, 9, 2, 5], [-1, 9, -3, -5]]
    )


@cuda.jit(device=True)
def bump(counter):
    counter[0] += 1
    return counter[0]


@cuda.jit
def short_circuit(out, counter):
    if counter[0] < 0 and bump(counter) > 0:
        out[0] = 1
    if counter[0] == 0 or bump(counter) > 0:
        out[1] = 1
    x = counter[0] + bump(counter)
    out[2] = x
    out[3] = bump(counter) if counter[0] > 5 else counter[0]
    while bump(counter) < 4:
        out[4] += 1
    out[5] = counter[0]


def test_calls_happen_only_when_python_would_make_them():
    out = run(short_circuit, np.zeros(6, np.int32), np.zeros(1, np.int32))
    # counter: 0 → (0 + 1) → 1 … bump gives 2, 3 (two trips), 4.
    np.testing.assert_array_equal(out, [0, 1, 1, 1, 2, 4])


@cuda.jit(device=True)
def shift_left(row, temporary):
    t = cuda.threadIdx.x
    temporary[t] = row[t]
    cuda.syncthreads()
    row[t] = temporary[(t + 1) % row.shape[0]]
    first = temporary[0]
    cuda.syncthreads()
    return first


@cuda.jit
def barriers_in_helpers(out, x):
    s = cuda.shared.array(4, float32)
    total = float32(0.0)
    for r in range(x.shape[0]):
        total += shift_left(x[r], s)
        total += shift_left(x[r, :], s)
    out[cuda.threadIdx.x] = total


def test_device_function_with_barriers_works_on_rows():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    out = run(barriers_in_helpers, floats(4), x, block=4, order="shuffled")
    np.testing.assert_array_equal(x, [[2, 3, 0, 1], [6, 7, 4, 5]])
    np.testing.assert_array_equal(out, [0 + 1 + 4 + 5] * 4)


@cuda.jit
def inner_function(out, x):
    scale = x[0]

    def scaled(value):
        return value * scale

    for k in range(x.shape[0]):
        out[k] = scaled(x[k]) + scaled(float32(1.0))


def test_function_inside_a_kernel_sees_its_variables():
    x = np.array([2.0, 3.0], np.float32)
    np.testing.assert_array_equal(run(inner_function, floats(2), x), [6, 8])


# -- slices and tuples --------------------------------------------------


@cuda.jit(device=True)
def total_of(row):
    total = float32(0.0)
    for k in range(len(row)):
        total += row[k]
    return total


@cuda.jit
def slices(out, x):
    out[0] = total_of(x[1])
    out[1] = total_of(x[1, 2:])
    out[2] = total_of(x[1, :2])
    out[3] = total_of(x[0][1:3])
    part = x[:, 1:3]
    out[4] = part[1, 0] + part.shape[0] * float32(10.0)
    inner = part[1][1:]
    out[5] = inner[0]
    out[6] = total_of(x[0, 1:-1])


def test_slices_are_views_of_the_array():
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(
        run(slices, floats(7), x), [22, 13, 9, 3, 25, 6, 3]
    )


@cuda.jit
def slice_overrun(out, x):
    part = x[1:3]
    out[0] = part[2]


def test_index_outside_a_slice_is_out_of_bounds():
    x = np.arange(8, dtype=np.float32)
    recording = record(slice_overrun, 1, 1, floats(1), x)
    assert recording.kinds == ("out-of-bounds",)
    assert recording.hazards[0].indices == (2,)


@cuda.jit
def tuples(out, x):
    rows, columns = x.shape
    a = b = rows
    pair = (a + 1, columns)
    a, b = b + 1, a
    out[0] = a
    out[1] = b
    out[2] = pair[0] * pair[1] + len(pair)
    place = (0, 1)
    out[3] = x[place]
    total = 0
    for weight in (8, 4, 2):
        total += weight
    for entry in TABLE:
        total += entry
    out[4] = total + TABLE[2]
    out[5] = x.size + x.ndim


def test_tuples_are_unpacked_indexed_and_looped_over():
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.testing.assert_array_equal(
        run(tuples, floats(6), x), [3, 2, 11, 1, 26, 8]
    )


# -- loops, conditions, numbers -----------------------------------------


@cuda.jit
def loops(out, n):
    count = 0
    k = 0
    while True:
        k += 1
        if k % 2:
            continue
        if k > n:
            break
        count += k
    out[0] = count
    for j in range(n, 0, -2):
        out[1] += j
    while k > 0:
        k -= 3
    else:
        out[2] = k
    for j in range(3):
        if j == 5:
            break
    else:
        out[3] = 7
    if FLAG:
        undefined_name(out)
    x: int = 4
    out[4] = x if n > 2 else -x
    out[5] = 1 if (0 < n <= 7 and not n > 8) or n == -1 else 0


def test_loops_and_conditions():
    out = run(loops, np.zeros(6, np.int32), 7)
    np.testing.assert_array_equal(out, [12, 16, -1, 7, 4, 1])


@cuda.jit
def integers(out, a, b):
    out[0] = a // b
    out[1] = a % b
    out[2] = a << 2
    out[3] = a >> 1
    out[4] = (a & 6) | 9
    out[5] = a ^ 5
    out[6] = ~a
    out[7] = abs(a)
    out[8] = -a
    out[9] = a**2
    out[10] = int(3.99) + int(-3.99)
    out[11] = min(a, b, 0) + max(a, b)


def test_whole_numbers_follow_python():
    a, b = -7, 3
    expected = [
        a // b,
        a % b,
        a << 2,
        a >> 1,
        (a & 6) | 9,
        a ^ 5,
        ~a,
        abs(a),
        -a,
        a**2,
        0,
        min(a, b, 0) + max(a, b),
    ]
    out = run(integers, np.zeros(12, np.int64), a, b)
    np.testing.assert_array_equal(out, expected)


@cuda.jit
def widths(out, x, y):
    out[0] = x[0] * x[0]
    y[0] = x[0] * 3
    u = np.uint32(0) - np.uint32(1)
    out[1] = u >> np.uint32(1)
    out[2] = np.uint8(300)
    out[3] = np.int8(200)


def test_numba_widens_products_and_stores_wrap():
    # KNOWN: int32 * int32 is int64 in Numba (100000² does not wrap), while
    # storing into int32 keeps the low 32 bits.
    x = np.array([100_000], np.int32)
    y = np.zeros(1, np.int16)
    out = run(widths, np.zeros(4, np.int64), x, y)
    np.testing.assert_array_equal(out, [10**10, 2**63 - 1, 44, -56])
    assert y[0] == np.array(300_000).astype(np.int16)


@cuda.jit
def float_rules(out, x, half):
    out[0] = x[0] * x[0]
    out[1] = math.exp(x[0])
    out[2] = x[0] * 0.1
    out[3] = half[0] * half[0]
    out[4] = math.sqrt(x[0]) + math.log(x[0])
    out[5] = 1.0 / 0.0
    out[6] = x[0] / float32(0.0)
    out[7] = max(x[0], float32(math.nan))
    out[8] = x[0] ** 2
    out[9] = math.log(float32(0.0))
    out[10] = float(x[0]) // float32(0.7)


def test_float32_arithmetic_is_float32_and_literals_are_float64():
    x = np.array([1.1], np.float32)
    half = np.array([0.1], np.float16)
    out = run(float_rules, np.zeros(11), x, half)
    one = x[0]
    expected = [
        one * one,
        np.float32(math.exp(one)),
        float(one) * 0.1,
        half[0] * half[0],
        np.float32(math.sqrt(one)) + np.float32(math.log(one)),
        math.inf,
        math.inf,
        one,  # CUDA's fmax ignores a NaN
        one * one,
        -math.inf,
        1.0,
    ]
    np.testing.assert_array_equal(out, np.array(expected, float))


@cuda.jit
def two_types_in_turn(out, x):
    value = 0
    out[0] = value
    value = x[0]
    out[1] = value


def test_a_name_used_for_two_types_is_two_variables():
    x = np.array([1.5], np.float32)
    recording = record(two_types_in_turn, 1, 1, floats(2), x)
    assert recording.notes == ()


@cuda.jit
def where_am_i(out):
    x, y, z = cuda.grid(3)
    w, h, _ = cuda.gridsize(3)
    out[(z * h + y) * w + x] = (
        cuda.blockIdx.x * 1000 + cuda.threadIdx.y * 100 + cuda.blockDim.z * 10
    ) + cuda.gridDim.y


def test_indices_in_three_dimensions():
    out = run(
        where_am_i, np.zeros(4 * 6 * 2, np.int32), grid=(2, 3), block=(2, 2, 2)
    )
    _, y, x = np.meshgrid(range(2), range(6), range(4), indexing="ij")
    expected = x // 2 * 1000 + y % 2 * 100 + 20 + 3
    np.testing.assert_array_equal(out, expected.ravel())


@cuda.jit
def local_poison(out):
    acc = cuda.local.array((2, 2), float32)
    for k in range(4):
        acc[k // 2, k % 2] = k
    out[0] = acc[0, 1] + acc[1, 1]


def test_local_arrays_have_axes():
    assert run(local_poison, floats(1))[0] == 4
