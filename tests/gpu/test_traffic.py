"""Measured traffic equals the formula, exactly."""

import itertools

import numpy as np
import pytest
from attention_kernels import attention_float64
from numba import float32

from attention_lab.gpu import cuda, record
from attention_lab.gpu.traffic import (
    flash_forward_traffic,
    key_rows_loaded,
    naive_forward_traffic,
    visible_keys,
)
from attention_lab.steps.flash_forward import make_flash_kernel
from attention_lab.steps.scaled_dot_product import (
    make_scores_kernel,
    make_softmax_kernel,
    make_weighted_sum_kernel,
)

# L, S, D, TILE_L, TILE_S: primes, one, a tile less and more than a tile.
SIZES = [
    (1, 1, 1, 1, 1),
    (1, 7, 2, 4, 4),
    (5, 7, 3, 4, 4),
    (7, 5, 3, 4, 2),
    (3, 4, 5, 4, 4),
    (4, 4, 2, 4, 4),
    (5, 5, 2, 4, 4),
    (9, 3, 2, 4, 8),
    (2, 11, 3, 2, 4),
    (8, 8, 4, 4, 4),
    (11, 13, 2, 4, 3),
    (13, 11, 2, 8, 4),
    (6, 9, 1, 3, 5),
    (12, 2, 3, 5, 3),
]
HEADS = [(1, 1, 1), (2, 2, 2), (1, 4, 2), (1, 2, 1), (2, 1, 1), (1, 3, 3)]
CONFIGURATIONS = list(itertools.product(SIZES, HEADS, [False, True]))
RENAMED = {
    "q_BHLD": "query",
    "k_BHSD": "key",
    "v_BHSD": "value",
    "out_BHLD": "output",
    "lse_BHL": "log_sum_exp",
    "scores_BHLS": "scores",
    "weights_BHLS": "weights",
}
NO_BIAS = np.zeros((1, 1, 1, 1), np.float32)


def counts(recording):
    return {
        RENAMED[name]: both for name, both in recording.traffic.counts().items()
    }


def tensors(B, H, H_kv, L, S, D):
    rng = np.random.default_rng(L * 100 + S)
    shapes = (B, H, L, D), (B, H_kv, S, D), (B, H_kv, S, D)
    return [rng.standard_normal(s).astype(np.float32) for s in shapes]


def record_flash(sizes, heads, causal):
    L, S, D, TILE_L, TILE_S = sizes
    B, H, H_kv = heads
    query, key, value = tensors(B, H, H_kv, L, S, D)
    output = np.full_like(query, np.nan)
    lse = np.full((B, H, L), np.nan, np.float32)
    recording = record(
        make_flash_kernel(D, D, TILE_L, TILE_S, float32, False, causal),
        (-(-L // TILE_L), B * H),
        TILE_L,
        output,
        lse,
        query,
        key,
        value,
        NO_BIAS,
        np.float32(D**-0.5),
        H // H_kv,
    )
    return recording, output, lse, attention_float64(query, key, value, causal)


def test_there_are_more_than_300_configurations():
    assert 2 * len(CONFIGURATIONS) >= 300


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", HEADS)
def test_flash_traffic_equals_formula(heads, causal):
    for sizes in SIZES:
        L, S, D, TILE_L, TILE_S = sizes
        recording, output, lse, expected = record_flash(sizes, heads, causal)
        formula = flash_forward_traffic(
            L, S, D, TILE_L, TILE_S, heads[0], heads[1], causal
        )
        assert counts(recording) == formula, (sizes, heads, causal)
        assert recording.hazards == (), str(recording)
        np.testing.assert_allclose(output, expected[0], rtol=0, atol=2e-6)
        np.testing.assert_allclose(lse, expected[1], rtol=0, atol=2e-6)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("heads", HEADS)
def test_naive_traffic_equals_formula(heads, causal):
    scores_kernel = make_scores_kernel(float32, False, causal)
    softmax_kernel = make_softmax_kernel(float32)
    sum_kernel = make_weighted_sum_kernel(float32)
    B, H, H_kv = heads
    for L, S, D, _, _ in SIZES:
        query, key, value = tensors(B, H, H_kv, L, S, D)
        scores = np.full((B, H, L, S), np.nan, np.float32)
        weights = np.full_like(scores, np.nan)
        output = np.full_like(query, np.nan)
        formula = naive_forward_traffic(L, S, D, B, H, causal)
        grid = (-(-S // 4), -(-L // 4), B * H)
        scale = np.float32(D**-0.5)
        made = {
            "scores": record(
                scores_kernel,
                grid,
                (4, 4),
                scores,
                query,
                key,
                NO_BIAS,
                scale,
                H // H_kv,
            ),
            "softmax": record(
                softmax_kernel, (-(-L // 8), B * H), 8, weights, scores
            ),
            "weighted_sum": record(
                sum_kernel,
                (-(-D // 4), -(-L // 4), B * H),
                (4, 4),
                output,
                weights,
                value,
                H // H_kv,
            ),
        }
        for step, recording in made.items():
            assert recording.hazards == (), str(recording)
            assert counts(recording) == formula[step], (step, L, S, D)
        expected = attention_float64(query, key, value, causal)
        np.testing.assert_allclose(output, expected[0], rtol=0, atol=2e-6)


def test_formula_rejects_a_kernel_that_loads_a_tile_twice():
    sizes = (5, 7, 3, 4, 4)
    recording, *_ = record_flash(sizes, (1, 1, 1), False)
    wrong = flash_forward_traffic(5, 7, 3, 5, 4)  # one block would be enough
    assert counts(recording) != wrong
    assert not recording.against({"k_BHSD": wrong["key"]}).matches_formula


def test_visible_keys_counts_a_drawn_mask():
    for L, S in itertools.product(range(1, 8), repeat=2):
        mask = np.tril(np.ones((L, S), bool))
        assert visible_keys(L, S, True) == mask.sum()


def test_key_rows_by_hand():
    # Tiles of 4 keys, 7 keys. Queries 0-3 need keys 0-3: one tile, 4 rows.
    # Query 4 needs keys 0-4: two tiles, cut at 7.
    assert key_rows_loaded(5, 7, 4, 4, causal=True) == 4 + 7


@cuda.jit
def copy_column(out, matrix):
    i = cuda.threadIdx.x
    out[i] = matrix[i, 0]


@cuda.jit
def copy_row(out, matrix):
    i = cuda.threadIdx.x
    out[i] = matrix[0, i]


@pytest.mark.parametrize(
    ("kernel", "dtype", "sectors"),
    [
        (copy_row, np.float32, 4),  # 32 lanes × 4 bytes / 32
        (copy_row, np.float64, 8),
        (copy_row, np.float16, 2),
        (copy_column, np.float32, 32),  # each lane in a row of its own
    ],
)
def test_sectors_of_one_warp(kernel, dtype, sectors):
    matrix = np.ones((32, 32), dtype)
    recording = record(kernel, 1, 32, np.zeros(32, dtype), matrix)
    assert recording.traffic["matrix"].sectors == sectors
    assert recording.traffic["matrix"].requests == 1
    strided = [n.kind for n in recording.notes]
    assert ("strided-access" in strided) == (kernel is copy_column)


@cuda.jit
def bank_stride(out, step):
    memory = cuda.shared.array(1024, np.float32)
    t = cuda.threadIdx.x
    memory[t * step % 1024] = np.float32(t)
    cuda.syncthreads()
    out[t] = memory[t * step % 1024]


@pytest.mark.parametrize(
    ("step", "worst"),
    [(1, 1), (2, 2), (4, 4), (31, 1), (32, 32), (33, 1)],
)
def test_bank_conflicts_follow_the_greatest_common_divisor(step, worst):
    # Lanes t·step mod 32 fall on 32 / gcd(step, 32) different banks.
    recording = record(bank_stride, 1, 32, np.zeros(32, np.float32), step)
    row = recording.traffic["memory"]
    assert row.worst_bank_conflict == worst
    assert row.bank_conflicts == 2 * (worst - 1)
    assert any(n.kind == "bank-conflict" for n in recording.notes) == (
        worst > 1
    )


@cuda.jit
def broadcast(out, x):
    memory = cuda.shared.array(4, np.float32)
    t = cuda.threadIdx.x
    if t < 4:
        memory[t] = x[t]
    cuda.syncthreads()
    out[t] = memory[1]


def test_one_word_for_all_lanes_is_no_conflict():
    x = np.ones(4, np.float32)
    recording = record(broadcast, 1, 32, np.zeros(32, np.float32), x)
    assert recording.traffic["memory"].worst_bank_conflict == 1


@cuda.jit(device=True)
def through_local(x, t):
    held = cuda.local.array(1, np.float32)
    held[0] = x[t]
    return held[0]


@cuda.jit
def calls_twice(out, x):
    t = cuda.threadIdx.x
    out[t] = through_local(x, t) + through_local(x, t)


def test_local_arrays_of_two_calls_are_counted_together():
    x = np.ones(4, np.float32)
    recording = record(calls_twice, 1, 4, np.zeros(4, np.float32), x)
    held = recording.traffic["held"]
    assert (held.reads, held.writes, held.most_per_thread) == (8, 8, 4)
    assert held.bytes_read == 8 * 4
    assert len([row for row in recording.traffic if row.array == "held"]) == 1


@cuda.jit
def lanes_start_late(out, x):
    rows = cuda.shared.array((32, 33), np.float32)
    t = cuda.threadIdx.x
    for r in range(32):
        rows[r, t] = x[t]
    cuda.syncthreads()
    total = np.float32(0.0)
    for r in range(32):
        if r >= t:
            total += rows[r, 0] * x[r]
    out[t] = total


@pytest.mark.parametrize("engine", ["python", "compiled"])
def test_lanes_that_skip_trips_are_matched_trip_by_trip(engine):
    if engine == "compiled":
        pytest.importorskip("numba", reason="the compiled engine is Numba's")
    # On every trip all lanes that take part read one word: no conflict, and
    # one sector of x. Matched by count, lane t would be t rows behind.
    x = np.ones(32, np.float32)
    out = np.zeros(32, np.float32)
    recording = record(lanes_start_late, 1, 32, out, x, engine=engine)
    assert recording.traffic["rows"].worst_bank_conflict == 1
    assert recording.traffic["x"].sectors == 32 * 4 + 32
    assert recording.notes == ()
    np.testing.assert_array_equal(out, np.arange(32, 0, -1))
