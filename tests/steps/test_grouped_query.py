import numpy as np
import pytest
import torch
from numba import float32

from attention_lab import masks
from attention_lab.error_bound import error_bound
from attention_lab.examples import example_qkv
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.recorder import record
from attention_lab.gpu.traffic import naive_forward_traffic
from attention_lab.reference import (
    attention_gradients_reference,
    attention_reference,
)
from attention_lab.steps import grouped_query as step
from cases import random_mask, tensors
from test_mistakes_are_caught import edited

# The contract, and clean recordings, are tested for all implementations alike
# in test_contract.py, test_contract_values.py and gpu/test_shipped_kernels.py.

recorder_only = pytest.mark.skipif(
    runs_on_gpu(), reason="records the launches that the recorder makes"
)
SIZES = [
    # B, H, H_kv, L, S, D: primes, single ones, one block of threads ± 1
    (2, 6, 3, 5, 7, 3),
    (1, 4, 1, 1, 1, 1),
    (1, 2, 2, 3, 8, 2),
    (2, 4, 2, 4, 9, 5),
    (1, 6, 2, 5, 7, 8),
    (1, 3, 1, 1, 17, 9),
]
RUNS = {"attention": step.attention, "attention_cuda": step.attention_cuda}


def inputs(B, H, H_kv, L, S, D, gain=1):
    q, k, v = example_qkv(B, H, L, S, D, H_kv=H_kv)
    return q * np.float32(gain), k, v


def run(name, q, k, v, mask=None, **options):
    if name == "attention":
        q, k, v = tensors(q, k, v)
        mask = None if mask is None else torch.tensor(mask)
    out = RUNS[name](q, k, v, mask, enable_gqa=True, **options)
    return np.asarray(out)


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", RUNS)
def test_a_moved_diagonal_is_the_mask_aligned_at_the_lower_right(name, size):
    *_, L, S, _ = size
    q, k, v = inputs(*size, gain=100)
    keep = masks.causal(L, S, align="lower_right")
    exact = attention_reference(q, k, v, keep, enable_gqa=True).out_BHLD
    bound = error_bound(q, k, v, keep, enable_gqa=True)
    out = run(name, q, k, v, is_causal=True, first_row=S - L)
    np.testing.assert_allclose(out, exact, atol=bound, rtol=0)


@pytest.mark.parametrize("name", RUNS)
def test_a_diagonal_past_the_last_key_shows_everything(name):
    q, k, v = inputs(1, 4, 2, 3, 5, 2)
    open_to_all = run(name, q, k, v)
    moved = run(name, q, k, v, is_causal=True, first_row=99)
    np.testing.assert_array_equal(moved, open_to_all)


@pytest.mark.parametrize("name", RUNS)
def test_query_heads_read_their_own_key_head(name):
    # One key: its weight is 1, so an output is the value of its key head.
    value = np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1)
    q, k = np.ones((1, 6, 1, 1), np.float32), np.ones_like(value)
    out = run(name, q, k, value)
    assert out.ravel().tolist() == [0, 0, 1, 1, 2, 2]


def test_the_gradient_of_a_key_is_the_sum_over_its_group():
    arrays = inputs(2, 6, 2, 5, 7, 3)
    q, k, v = (
        torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in arrays
    )
    mask = random_mask((2, 6, 5, 7))
    out = step.attention(q, k, v, torch.tensor(mask), enable_gqa=True)
    out_grad = np.random.default_rng(2).standard_normal(out.shape)
    out.backward(torch.tensor(out_grad))
    exact = attention_gradients_reference(
        out_grad, q, k, v, mask, enable_gqa=True
    )
    for ours, right in zip((q, k, v), exact, strict=True):
        np.testing.assert_allclose(ours.grad, right, atol=1e-13)


def test_nothing_is_repeated(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("a key was repeated")

    for name in ("repeat_interleave", "repeat", "expand"):
        monkeypatch.setattr(torch.Tensor, name, refuse)
    q, k, v = tensors(*inputs(1, 4, 2, 3, 5, 2))
    assert step.attention(q, k, v, enable_gqa=True).shape == (1, 4, 3, 2)


@pytest.mark.parametrize(
    ("first_row", "is_causal", "says"),
    [
        (-1, True, "first_row must be a whole number of at least 0, not -1"),
        (1.0, True, "first_row must be a whole number of at least 0, not 1.0"),
        (True, True, "first_row must be a whole number"),
        (2, False, "first_row = 2 moves the causal diagonal, but is_causal is"),
    ],
)
@pytest.mark.parametrize("name", RUNS)
def test_a_first_row_without_meaning_is_refused(
    name, first_row, is_causal, says
):
    with pytest.raises(ValueError, match=says):
        run(
            name, *inputs(1, 2, 1, 3, 5, 2), is_causal=is_causal,
            first_row=first_row,
        )  # fmt: skip


# -- traffic ---------------------------------------------------------------


def record_scores(size, first_row, make=None, order="ascending"):
    B, H, H_kv, L, S, D = size
    q, k, _ = inputs(*size)
    scores = np.full((B, H, L, S), np.nan, np.float32)
    make = make or step.make_grouped_scores_kernel
    kernel = make(H // H_kv, float32, False, first_row is not None)
    grid = (-(-S // 8), -(-L // 4), B * H_kv)
    bias = np.zeros((1, 1, 1, 1), np.float32)
    scale = np.float32(D**-0.5)
    return record(
        kernel, grid, (8, 4, 1), scores, q, k, bias, scale, first_row or 0,
        order=order,
    ), scores  # fmt: skip


def record_sum(size):
    B, H, H_kv, L, S, D = size
    weights = example_qkv(B, H, L, S, S)[0]
    _, _, v = inputs(*size)
    out = np.full((B, H, L, D), np.nan, np.float32)
    kernel = step.make_grouped_sum_kernel(H // H_kv, float32)
    grid = (-(-D // 8), -(-L // 4), B * H_kv)
    return record(kernel, grid, (8, 4, 1), out, weights, v)


def counts(recording, **names):
    """Return the recorded traffic under the formula's names."""
    traffic = recording.traffic
    return {
        ours: (traffic[array].reads, traffic[array].writes)
        for ours, array in names.items()
    }


SCORES = {"key": "k_BHSD", "query": "q_BHLD", "scores": "scores_BHLS"}
SUM = {"value": "v_BHSD", "weights": "weights_BHLS", "output": "out_BHLD"}


@recorder_only
@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_scores_move_what_the_formula_says(size, order):
    B, H, H_kv, L, S, D = size
    for first_row in (None, 0, max(0, S - L)):
        recording, _ = record_scores(size, first_row, order=order)
        assert recording.is_clean, str(recording)
        formula = step.grouped_traffic(L, S, D, B, H, H_kv, first_row)
        assert counts(recording, **SCORES) == formula["scores"]


@recorder_only
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_sum_moves_what_the_formula_says(size):
    B, H, H_kv, L, S, D = size
    recording = record_sum(size)
    assert recording.is_clean, str(recording)
    formula = step.grouped_traffic(L, S, D, B, H, H_kv)
    assert counts(recording, **SUM) == formula["weighted_sum"]


def test_a_group_reads_a_key_once_where_the_plain_kernel_reads_it_for_each():
    plain = naive_forward_traffic(1, 13, 5, B=2, H=8)
    grouped = step.grouped_traffic(1, 13, 5, B=2, H=8, H_kv=2)
    for kernel, array in (("scores", "key"), ("weighted_sum", "value")):
        assert plain[kernel][array][0] == 4 * grouped[kernel][array][0]
    assert plain["scores"]["query"] == grouped["scores"]["query"]


@recorder_only
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("h = h_kv * group", "h = h_kv + group"),
        ("s < visible else", "s <= visible else"),
        ("first_row + row + 1", "row + 1"),
        ("first_row + row + 1", "first_row + row"),
        ("b, h_kv = bh // H_kv, bh % H_kv", "b, h_kv = bh % H_kv, bh // H_kv"),
        ("for d in range(D):", "for d in range(D - 1):"),
        ("s < S and", "s < S - 1 and"),
        ("row < L and", "row < L - 1 and"),
    ],
)
def test_a_mistake_in_the_kernel_shows(right, wrong, tmp_path):
    size = (2, 6, 3, 5, 11, 3)

    def make(*kind):
        kernel = step.make_grouped_scores_kernel(*kind)
        return edited(kernel, right, wrong, tmp_path)

    _, expected = record_scores(size, 6)
    recording, scores = record_scores(size, 6, make)
    same = np.array_equal(scores, expected, equal_nan=True)  # noqa: TID251
    assert recording.hazards or not same
