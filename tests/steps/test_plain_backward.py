import numpy as np
import pytest
import torch
from numba import float32

from attention_lab.error_bound import gradient_error_bound
from attention_lab.examples import example_qkv
from attention_lab.gpu import record
from attention_lab.gpu.backward_traffic import plain_backward_traffic
from attention_lab.reference import attention_gradients_reference
from attention_lab.steps.plain_backward import make_softmax_backward_kernel
from attention_lab.steps.recorded import record_plain_backward
from attention_lab.steps.scaled_dot_product import attention_weights
from test_mistakes_are_caught import edited

#: By kernel: the formula's name of each array, in the order of its arguments.
NAMES = (
    {
        "scores_BHLS": "weight_gradients",
        "q_BHLD": "output_gradient",
        "k_BHSD": "value",
    },
    {
        "d_scores_BHLS": "score_gradients",
        "weights_BHLS": "weights",
        "d_weights_BHLS": "weight_gradients",
    },
    *(
        {"out_BHLD": out, "weights_BHLS": factors, "v_BHSD": rows}
        for out, factors, rows in (
            ("query_gradient", "score_gradients", "key"),
            ("key_gradient", "score_gradients", "query"),
            ("value_gradient", "weights", "output_gradient"),
        )
    ),
)


def given(L, S, is_causal, B=2, H=3, D=5):
    q, k, v = example_qkv(B, H, L, S, D)
    out_grad = np.random.default_rng(1).standard_normal(q.shape)
    weights = attention_weights(
        *map(torch.from_numpy, (q, k, v)), is_causal=is_causal
    )
    return (out_grad.astype(np.float32), q, k, v), weights.numpy()


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize(("L", "S"), [(5, 7), (9, 4), (1, 1)])
def test_the_gradients_are_right_and_the_traffic_is_the_formula(
    L, S, is_causal
):
    arrays, weights = given(L, S, is_causal)
    recordings, gradients = record_plain_backward(*arrays, weights)
    exact = attention_gradients_reference(*arrays, is_causal=is_causal)
    bounds = gradient_error_bound(*arrays, is_causal=is_causal)
    for ours, right, bound in zip(gradients, exact, bounds, strict=True):
        np.testing.assert_allclose(ours, right, atol=bound, rtol=0)
    formula = plain_backward_traffic(L, S, 5, B=2, H=3)
    for run, expected, names in zip(
        recordings, formula.values(), NAMES, strict=True
    ):
        assert run.hazards == ()
        counts = run.traffic.counts()
        counts.pop("bias_BHLS", None)
        assert {names[name]: both for name, both in counts.items()} == expected


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
def test_the_softmax_kernel_is_clean_in_every_order(order):
    arrays, weights = given(5, 7, False)
    d_weights = arrays[0] @ arrays[3].swapaxes(2, 3)
    d_scores = np.full_like(weights, np.nan)
    recording = record(
        make_softmax_backward_kernel(float32), (1, 6), (32, 1),
        d_scores, weights, d_weights, np.float32(1), order=order,
    )  # fmt: skip
    assert recording.is_clean, str(recording)
    # A softmax does not notice a shift of its row, so its gradient has none.
    np.testing.assert_allclose(d_scores.sum(-1), 0, atol=1e-6)


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("(d_weight - row_dot)", "d_weight"),
        ("d_score * scale", "d_score"),
        ("row < L and", "row < L - 1 and"),
    ],
)
def test_each_part_of_the_kernel_matters(right, wrong, tmp_path):
    arrays, weights = given(5, 7, False)
    d_weights = arrays[0] @ arrays[3].swapaxes(2, 3)
    kernel = make_softmax_backward_kernel(float32)
    results = []
    for one in (kernel, edited(kernel, right, wrong, tmp_path)):
        results.append(np.full_like(weights, np.nan))
        record(
            one, (1, 6), (32, 1),
            results[-1], weights, d_weights, np.float32(0.5),
        )  # fmt: skip
    off = np.abs(results[0] - results[1]).max()
    assert not off <= 1e-3


def test_by_hand_a_value_of_another_width_counts_for_itself():
    formula = plain_backward_traffic(L=2, S=3, D=4, D_v=5)
    assert formula["weight_gradients"]["value"] == (30, 0)
    assert formula["value_gradient"]["value_gradient"] == (0, 15)
    assert formula["key_gradient"]["key_gradient"] == (0, 12)
