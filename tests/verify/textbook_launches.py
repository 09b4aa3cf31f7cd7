"""Textbook kernels as cases for `verify_kernel`, at ragged sizes."""

import numpy as np

from attention_lab.verify.kernel.case import KernelCase, Launch
from attention_lab.verify.kernel.wrong_answers import softmax_wrong_answers
from gpu import textbook_kernels as kernels

BLOCK, TILE = kernels.BLOCK, kernels.TILE
LENGTHS = [{"N": n} for n in (1, 63, 64, 65, 131)]
ROWS = [{"N": n, "M": m} for n, m in ((1, 1), (3, 64), (17, 5), (5, 131))]
SQUARES = [
    {"N": n, "M": m, "K": k}
    for n, m, k in ((1, 1, 1), (8, 8, 8), (7, 9, 5), (17, 11, 19))
]


def normal(*shape):
    return np.random.default_rng(4).standard_normal(shape).astype(np.float32)


def empty(*shape):
    return np.zeros(shape, np.float32)


def cdiv(a, b):
    return -(-a // b)


def blocks_of(x, size=BLOCK):
    padded = np.zeros(cdiv(len(x), size) * size)
    padded[: len(x)] = x
    return padded.reshape(-1, size)


def per_number(kernel, reference, *more, **options):
    """One thread per number of one or two arrays of length N."""

    def launch(N):
        args = (empty(N), normal(N), *more)
        return Launch(cdiv(N, BLOCK), BLOCK, args, **options)

    return KernelCase(kernel, launch, reference, {"sizes": LENGTHS})


def per_block(kernel):
    """One sum per block of numbers."""

    def launch(N):
        blocks = cdiv(N, BLOCK)
        return Launch(blocks, BLOCK, (empty(blocks), normal(N)))

    def sums(values):
        return blocks_of(values).sum(1)

    return KernelCase(kernel, launch, sums, {"sizes": LENGTHS})


def added():
    def launch(N):
        return Launch(cdiv(N, 32), 32, (empty(N), normal(N), normal(N) ** 2))

    return KernelCase(kernels.vector_add, launch, np.add, {"sizes": LENGTHS})


def histogram():
    def launch(N):
        counts = np.zeros(kernels.BINS, np.int32)
        values = np.arange(N, dtype=np.int32) ** 2
        return Launch(cdiv(N, BLOCK), BLOCK, (counts, values), accumulates=True)

    def counted(start, values):
        bins = kernels.BINS
        return start + np.bincount(values % bins, minlength=bins)

    return KernelCase(kernels.histogram, launch, counted, {"sizes": LENGTHS})


def transposed(kernel):
    def launch(N, M):
        args = (empty(M, N), normal(N, M))
        return Launch((cdiv(M, TILE), cdiv(N, TILE)), (TILE, TILE), args)

    return KernelCase(kernel, launch, np.transpose, {"sizes": ROWS})


def matmul():
    def launch(N, M, K):
        args = (empty(N, M), normal(N, K), normal(K, M))
        return Launch((cdiv(M, TILE), cdiv(N, TILE)), (TILE, TILE), args)

    def budget(N, M, K):
        return {
            "left": (N * K * cdiv(M, TILE), 0),
            "right": (K * M * cdiv(N, TILE), 0),
            "out": (0, N * M),
        }

    return KernelCase(
        kernels.tiled_matmul,
        launch,
        np.matmul,
        {"sizes": SQUARES, "traffic": budget, "budget": budget},
    )


def layer_norm():
    def launch(N, M):
        args = (empty(N, M), normal(N, M), normal(M), np.float32(1e-5))
        return Launch(cdiv(N, 16), 16, args)

    def normed(rows, weight, epsilon):
        mean = rows.mean(1, keepdims=True)
        return (
            (rows - mean)
            / np.sqrt(rows.var(1, keepdims=True) + epsilon)
            * weight
        )

    return KernelCase(kernels.layer_norm, launch, normed, {"sizes": ROWS})


def softmax_rows():
    def launch(N, M):
        return Launch(N, BLOCK, (empty(N, M), normal(N, M) * 10))

    def weights(scores):
        powers = np.exp(scores - scores.max(1, keepdims=True))
        return powers / powers.sum(1, keepdims=True)

    options = {"sizes": ROWS, "wrong_answers": softmax_wrong_answers(BLOCK)}
    return KernelCase(kernels.softmax_rows, launch, weights, options)


def first_above():
    def launch(N, M):
        args = (np.zeros(N, np.int32), normal(N, M), np.float32(1.0))
        return Launch(cdiv(N, 16), 16, args)

    def places(rows, limit):
        above = rows > limit
        return np.where(above.any(1), above.argmax(1), -2)

    return KernelCase(kernels.first_above, launch, places, {"sizes": ROWS})


def reverse_dynamic():
    def launch(N):
        return Launch(1, N, (empty(N), normal(N)), shared_bytes=N * 4)

    def reverse(values):
        return values[::-1]

    return KernelCase(
        kernels.reverse_dynamic, launch, reverse, {"sizes": LENGTHS}
    )


def prefix_sum():
    def launch():
        return Launch(1, BLOCK, (empty(BLOCK), normal(BLOCK)))

    return KernelCase(kernels.prefix_sum, launch, np.cumsum, {"sizes": [{}]})


def moving_average(values):
    return np.convolve(values, np.ones(5))[2 : 2 + len(values)] / 5


TEXTBOOK = {
    "vector_add": added(),
    "strided_axpy": per_number(
        kernels.strided_axpy,
        lambda out, x, factor: factor * x + out,
        np.float32(0.5),
        accumulates=True,
    ),
    "block_sum": per_block(kernels.block_sum),
    "shuffle_sum": per_block(kernels.shuffle_sum),
    "prefix_sum": prefix_sum(),
    "histogram": histogram(),
    "transpose_naive": transposed(kernels.transpose_naive),
    "transpose_padded": transposed(kernels.transpose_padded),
    "moving_average": per_number(kernels.moving_average, moving_average),
    "tiled_matmul": matmul(),
    "layer_norm": layer_norm(),
    "softmax_rows": softmax_rows(),
    "reverse_dynamic": reverse_dynamic(),
    "first_above": first_above(),
}
