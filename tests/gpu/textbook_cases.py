"""A launch for every textbook kernel, and what must come out."""

from dataclasses import dataclass

import numpy as np
from textbook_kernels import (
    BINS,
    block_sum,
    box_filter_3d,
    claim,
    collatz,
    count_positive,
    first_above,
    histogram,
    largest,
    layer_norm,
    moving_average,
    prefix_sum,
    reverse_dynamic,
    shuffle_sum,
    softmax_rows,
    strided_axpy,
    tiled_matmul,
    top_two,
    transpose_naive,
    transpose_padded,
    vector_add,
    votes,
    warp_tree,
)
from textbook_python import (
    blank_bad_rows,
    dot_of_rows,
    heat_in_steps,
    place_of_largest,
    scan_in_two_rows,
)


@dataclass(frozen=True)
class Case:
    """A kernel, a launch, and what must come out."""

    kernel: object
    grid: object
    block: object
    args: tuple
    expected: np.ndarray
    shared_bytes: int = 0
    in_simulator: bool = True

    def __str__(self):
        """Name the case by its kernel."""
        return self.kernel.py_func.__name__


def _cases():
    rng = np.random.default_rng(0)

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    x, y = normal(101), normal(101)
    yield Case(vector_add, 4, 32, (np.zeros_like(x), x, y), x + y)
    out = normal(101)
    yield Case(
        strided_axpy,
        2,
        16,
        (out, x, np.float32(0.5)),
        np.float32(0.5) * x + out,
    )
    long = normal(150)
    padded = np.zeros(192)
    padded[:150] = long
    sums = padded.reshape(3, 64).sum(1)
    yield Case(block_sum, 3, 64, (np.zeros(3, np.float32), long), sums)
    yield Case(
        shuffle_sum,
        3,
        64,
        (np.zeros(3, np.float32), long),
        sums,
        in_simulator=False,
    )
    yield Case(
        warp_tree,
        1,
        32,
        (np.zeros(32, np.float32), long[:32].copy()),
        np.full(32, long[:32].astype(float).sum()),
        in_simulator=False,
    )
    yield Case(
        prefix_sum,
        1,
        64,
        (np.zeros(64, np.float32), long[:64].copy()),
        long[:64].astype(float).cumsum(),
    )
    numbers = rng.integers(0, 100, 130).astype(np.int32)
    yield Case(
        histogram,
        3,
        64,
        (np.zeros(BINS, np.int32), numbers),
        np.bincount(numbers % BINS, minlength=BINS),
    )
    yield Case(
        largest,
        5,
        32,
        (np.zeros(2, np.int32), numbers - 50),
        np.array([numbers.max() - 50, numbers.min() - 50]),
    )
    matrix = normal(19, 13)
    for kernel in (transpose_naive, transpose_padded):
        yield Case(
            kernel,
            (2, 3),
            (8, 8),
            (np.zeros((13, 19), np.float32), matrix),
            matrix.T,
        )
    window = np.convolve(long.astype(float), np.ones(5), "same") / 5
    yield Case(moving_average, 3, 64, (np.zeros(150, np.float32), long), window)
    right = normal(13, 11)
    yield Case(
        tiled_matmul,
        (2, 3),
        (8, 8),
        (np.zeros((19, 11), np.float32), matrix, right),
        matrix.astype(float) @ right,
    )
    exact = matrix.astype(float)
    weight = normal(13)
    normed = (exact - exact.mean(1, keepdims=True)) / np.sqrt(
        exact.var(1, keepdims=True) + 1e-5
    )
    yield Case(
        layer_norm,
        2,
        16,
        (np.zeros_like(matrix), matrix, weight, np.float32(1e-5)),
        normed * weight,
    )
    wide = normal(3, 150) * 10
    powers = np.exp(wide.astype(float) - wide.max(1, keepdims=True))
    yield Case(
        softmax_rows,
        3,
        64,
        (np.zeros_like(wide), wide),
        powers / powers.sum(1, keepdims=True),
    )
    yield Case(
        reverse_dynamic,
        1,
        17,
        (np.zeros(17, np.float32), long[:17].copy()),
        long[:17][::-1],
        shared_bytes=17 * 4,
        in_simulator=False,  # it cannot take NumPy's dtype for this
    )
    few = normal(32)
    yield Case(
        count_positive,
        1,
        32,
        (np.zeros(3, np.int32), few),
        np.array([(few > 0).sum(), 1, 0]),
    )
    t = np.arange(32)
    yield Case(
        votes,
        1,
        32,
        (np.zeros((32, 6), np.int32), few),
        np.stack(
            [
                np.full(32, (few > 0).sum()),
                np.zeros(32),
                np.ones(32),
                np.full(32, 5),
                t ^ 1,
                np.where(t < 2, t, t - 2),
            ],
            1,
        ),
        in_simulator=False,
    )
    above = matrix > 1.0
    places = np.where(above.any(1), above.argmax(1), -2)
    yield Case(
        first_above,
        2,
        16,
        (np.zeros(19, np.int32), matrix, np.float32(1.0)),
        places,
    )
    starts = np.arange(1, 20, dtype=np.int32)
    steps = []
    for n in range(1, 20):
        count = 0
        while n != 1:
            n = n // 2 if n % 2 == 0 else 3 * n + 1
            count += 1
        steps.append(count)
    yield Case(
        collatz, 1, 32, (np.zeros(19, np.int32), starts), np.array(steps)
    )
    volume = normal(3, 4, 5)
    layers = np.zeros((5, 4, 5))
    layers[1:-1] = volume
    yield Case(
        box_filter_3d,
        (2, 2, 2),
        (3, 2, 2),
        (np.zeros_like(volume), volume),
        layers[:-2] + layers[1:-1] + layers[2:],
    )
    yield Case(
        top_two,
        1,
        32,
        (np.zeros((19, 2), np.float32), matrix),
        -np.sort(-matrix, axis=1)[:, :2],
    )
    owners = np.zeros(4, np.int32)
    yield Case(
        claim,
        1,
        8,
        (owners, np.array([1, 3, 3, 1], np.int32)),
        np.array([-4, 2, 0, 4]),
    )
    line = normal(32)
    heat = line.astype(float)
    for _ in range(5):
        heat[1:-1] = (heat[:-2] + heat[2:]) / 4 + heat[1:-1] / 2
    yield Case(heat_in_steps, 1, 32, (np.zeros(32, np.float32), line, 5), heat)
    yield Case(
        scan_in_two_rows,
        1,
        32,
        (np.zeros(32, np.float32), line),
        line.astype(float).cumsum(),
    )
    other = normal(19, 13)
    yield Case(
        dot_of_rows,
        2,
        16,
        (np.zeros(19, np.float32), matrix, other),
        (exact * other).sum(1),
    )
    yield Case(
        place_of_largest,
        2,
        16,
        (np.zeros(19, np.int32), matrix),
        matrix.argmax(1),
    )
    blank = np.zeros((19, 13))
    blank[:, [0, -1]] = np.ptp(matrix, axis=1)[:, None]
    yield Case(
        blank_bad_rows, 2, 16, (np.zeros((19, 13), np.float32), matrix), blank
    )


def cases():
    """Return all cases, with fresh arrays."""
    return list(_cases())
