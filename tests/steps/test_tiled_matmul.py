"""Every rung of the matrix product: right, clean, and as predicted."""

import numpy as np
import pytest
import torch
from numba import float32

from attention_lab.axes import ShapeMismatch
from attention_lab.error_bound import ulp
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.recorder import record
from attention_lab.steps import matmul_ladder, tiled_matmul
from attention_lab.steps.matmul_tile import Tile
from attention_lab.steps.tiled_matmul import RUNGS, matmul_cuda
from test_mistakes_are_caught import edited

#: Small tiles, so that a small product already has several blocks.
SMALL = {
    "naive": Tile(4, 8),
    "coalesced": Tile(8, 4),
    "shared_tile": Tile(4, 8, 4),
    "register_1d": Tile(8, 8, 4, 4),
    "register_2d": Tile(8, 16, 4, 4, 2, 4),
}
SIZES = [(1, 1, 1), (7, 9, 3), (8, 8, 4), (9, 7, 5), (17, 19, 13)]
recorder_only = pytest.mark.skipif(
    runs_on_gpu(), reason="records the launches that the recorder makes"
)


def factors(L, S, D, dtype=np.float32):
    rng = np.random.default_rng(0)
    shapes = (L, D), (D, S)
    return [rng.standard_normal(shape).astype(dtype) for shape in shapes]


def exact_and_bound(a, b):
    """Return the float64 product, and the rule of `error_bound` for it."""
    exact = a.astype(np.float64) @ b.astype(np.float64)
    one_by_one = np.zeros_like(exact, dtype=a.dtype)
    for d in range(a.shape[1]):
        one_by_one += a[:, d, None] * b[d]
    worst = max(np.abs(x - exact).max() for x in (a @ b, one_by_one))
    return exact, 2 * worst + 2 * ulp(np.abs(exact).max(), a.dtype.name)


def assert_right(out, a, b):
    exact, bound = exact_and_bound(a, b)
    np.testing.assert_allclose(out, exact, atol=bound, rtol=0)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_is_right_at_ragged_sizes(rung, size):
    a, b = factors(*size)
    assert_right(matmul_cuda(a, b, rung, SMALL[rung]), a, b)


@pytest.mark.parametrize("rung", RUNGS)
def test_the_usual_tile_is_right_at_its_edge(rung):
    a, b = factors(129, 65, 9)
    a *= np.float32(100)
    assert_right(matmul_cuda(a, b, rung), a, b)


@pytest.mark.parametrize("tiles", [(1, 1, 1), (4, 3, 2), (16, 16, 16)], ids=str)
def test_the_readable_version_is_right_for_any_tile(tiles):
    a, b = factors(7, 9, 5)
    out = tiled_matmul.matmul(torch.tensor(a), torch.tensor(b), *tiles)
    assert_right(out, a, b)


def test_kinds_and_dtypes_come_back():
    a, b = (torch.tensor(x) for x in factors(5, 7, 3, np.float64))
    assert matmul_cuda(a, b).dtype == torch.float64
    np.testing.assert_allclose(matmul_cuda(a, b), a @ b, atol=1e-14)
    half = matmul_cuda(a.half(), b.half())
    assert half.dtype == torch.float16
    expected = a.half().double() @ b.half().double()
    worst = ulp(expected.abs().max().item(), "float16")
    np.testing.assert_allclose(half, expected, atol=worst, rtol=0)


def test_nothing_to_sum_gives_zeros():
    out = matmul_cuda(np.ones((2, 0), "f4"), np.ones((0, 3), "f4"))
    np.testing.assert_array_equal(out, np.zeros((2, 3)))
    assert matmul_cuda(*factors(0, 3, 2)).shape == (0, 3)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda a, b: matmul_cuda(a, b[:-1]),
            ShapeMismatch,
            "b: axis D has size 2, but a has D = 3",
        ),
        (
            lambda a, b: matmul_cuda(a[None], b),
            ShapeMismatch,
            "a has 3 axes",
        ),
        (
            lambda a, b: matmul_cuda(a, b.astype(float)),
            ValueError,
            "b has dtype float64, but a has float32",
        ),
        (
            lambda a, b: matmul_cuda(a, torch.tensor(b)),
            ValueError,
            "b has type Tensor, but a has ndarray",
        ),
        (
            lambda a, b: matmul_cuda(a, b, "fastest"),
            ValueError,
            "rung must be one of naive, .* not 'fastest'",
        ),
        (
            lambda a, b: matmul_cuda(a, b, tile=Tile(8, 8, 0)),
            ValueError,
            "TILE_D must be a whole number of at least 1, not 0",
        ),
        (
            lambda a, b: matmul_cuda(a, b, tile=Tile(8, 8, 4, 3)),
            ValueError,
            "PATCH_L = 3 does not divide TILE_L = 8",
        ),
        (
            lambda a, b: matmul_cuda(a, b, tile=Tile(64, 32, 4)),
            ValueError,
            "needs 2048 threads, but CUDA allows 1024",
        ),
        (
            lambda a, b: matmul_cuda(a, b, tile=Tile(64, 64, 128, 8, 8)),
            ValueError,
            "TILE_D = 128 needs 65536 bytes of shared memory",
        ),
        (
            lambda a, b: matmul_cuda(
                np.zeros((0, 1), "f4"), np.zeros((1, 600_000), "f4"), "naive"
            ),
            ValueError,
            "axis S needs 75000 blocks, but CUDA allows 65535",
        ),
        (
            lambda a, b: tiled_matmul.matmul(
                torch.tensor(a), torch.tensor(b[:-1])
            ),
            ShapeMismatch,
            "axis D has size 2",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call(*factors(2, 4, 3))


# -- recorded --------------------------------------------------------------


@recorder_only
@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
@pytest.mark.parametrize("rung", RUNGS)
def test_every_rung_is_clean_and_moves_what_the_formula_says(rung, order):
    for L, S, D in SIZES:
        tile = SMALL[rung]
        recording = matmul_ladder.measure(rung, L, S, D, tile, order)
        assert recording.is_clean, str(recording)
        assert recording.matches_formula, str(recording)
        shared = matmul_ladder.predicted_shared_reads(rung, L, S, D, tile)
        assert recording.traffic.total("reads", "shared") == shared
        kinds = {note.kind for note in recording.notes}
        assert not {kind for kind in kinds if "float64" in kind}


@recorder_only
def test_the_ladder_measures_what_it_predicts():
    rows = matmul_ladder.ladder(128, 128, 16)
    for row in rows:
        assert row.is_clean
        assert row.reads == row.reads_measured, row
        assert row.shared_reads == row.shared_reads_measured, row
        assert row.sectors == row.sectors_measured, row
    # 2·D reads per output; 2·D/16; D/64 twice; D/128 twice.
    assert [row.reads for row in rows] == [32, 32, 2, 0.5, 0.25]
    table = matmul_ladder.as_table(rows)
    assert "≠" not in table
    wrong = [rows[0]._replace(reads_measured=33.0)]
    assert "32 ≠ 33" in matmul_ladder.as_table(wrong)


@recorder_only
@pytest.mark.parametrize(("PAD", "passes"), [(0, 8), (1, 4), (4, 1)])
def test_padding_removes_the_bank_conflict(PAD, passes):
    tile = Tile(32, 32, 8, 4, 4, PAD)
    traffic = matmul_ladder.measure("register_2d", 32, 32, 8, tile).traffic
    predicted = matmul_ladder.predicted_passes(tile)
    for name, worst in predicted.items():
        assert traffic[name].worst_bank_conflict == worst
    assert predicted["a_tile"] == passes


@pytest.mark.parametrize("size", [(129, 128, 8), (128, 130, 8), (128, 128, 9)])
def test_sectors_have_a_formula_for_whole_tiles_only(size):
    with pytest.raises(ValueError, match=r"axis . has size 1?\d+, but the sec"):
        matmul_ladder.ladder(*size)


# -- planted mistakes ------------------------------------------------------

MISTAKES = [
    (
        "cuda.syncthreads()  # both tiles are complete before anyone reads",
        "pass",
        "race",
    ),
    (
        "cuda.syncthreads()  # nobody overwrites a tile still being read",
        "pass",
        "race",
    ),
    ("if row < out_LS.shape[0] and s < ", "if s < ", "out-of-bounds"),
]


@recorder_only
@pytest.mark.parametrize(("old", "new", "kind"), MISTAKES)
def test_a_planted_hazard_is_named(old, new, kind, tmp_path):
    tile = SMALL["register_2d"]
    kernel = tiled_matmul.make_register_2d_kernel(float32, tile)
    broken = edited(kernel, old, new, tmp_path)
    launch = RUNGS["register_2d"].launch(9, 17, tile)
    out = np.full((9, 17), np.nan, np.float32)
    recording = record(broken, *launch, out, *factors(9, 17, 5))
    assert kind in recording.kinds, str(recording)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ts + j]", "ts + j * 2]"),
        ("threadIdx.x * PATCH_S", "threadIdx.x"),
        ("a_tile[d, tl + i]", "a_tile[d, tl]"),
    ],
)
def test_a_wrong_stride_fails_the_comparison(old, new, tmp_path):
    tile = SMALL["register_2d"]
    kernel = tiled_matmul.make_register_2d_kernel(float32, tile)
    broken = edited(kernel, old, new, tmp_path)
    a, b = factors(9, 11, 5)
    out = np.zeros((9, 11), np.float32)
    grid, block = RUNGS["register_2d"].launch(9, 11, tile)
    broken[grid, block](out, a, b)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        assert_right(out, a, b)


@recorder_only
def test_an_uncoalesced_load_fails_the_prediction(tmp_path):
    kernel = tiled_matmul.make_coalesced_kernel(float32, Tile(8, 32))
    broken = edited(
        kernel, "s, row = cuda.grid(2)", "row, s = cuda.grid(2)", tmp_path
    )
    out = np.zeros((32, 32), np.float32)
    recording = record(broken, (4, 1), (8, 32), out, *factors(32, 32, 8))
    predicted = matmul_ladder.predicted_sectors("coalesced", 32, 32, 8)
    measured = recording.traffic["out_LS"].sectors_per_request
    assert measured > predicted["out_LS"]
