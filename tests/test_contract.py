import numpy as np
import pytest
import torch

from attention_lab import masks
from attention_lab.axes import ShapeMismatch
from attention_lab.contract import check_attention_call
from attention_lab.examples import example_qkv
from attention_lab.reference import attention_reference
from attention_lab.steps import scaled_dot_product
from cases import IMPLEMENTATIONS, IN_PYTORCH, as_input

EVERYONE = IMPLEMENTATIONS | {"reference_cuda": attention_reference}


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


Q = zeros(2, 3, 5, 11)
K = zeros(2, 3, 7, 11)
V = zeros(2, 3, 7, 13)
MASK = {"attn_mask": np.ones((2, 3, 5, 7), bool)}

# (query, key, value, options, error, message): one row per rule.
REFUSED = {
    "query rank": (Q[0], K, V, {}, ShapeMismatch, "query has 3 axes .* B H L"),
    "key rank": (Q, K[0], V, {}, ShapeMismatch, "key has 3 axes .* B H S D"),
    "batch of key": (
        Q, zeros(4, 3, 7, 11), V, {}, ShapeMismatch,
        "key: axis B has size 4, but query has B = 2",
    ),
    "batch of value": (
        Q, K, zeros(1, 3, 7, 13), {}, ShapeMismatch,
        "value: axis B has size 1, but query has B = 2",
    ),
    "heads": (
        Q, K[:, :1], V[:, :1], {}, ShapeMismatch,
        "key: axis H has size 1, but query has H = 3; enable_gqa",
    ),
    "heads do not divide": (
        Q, K[:, :2], V[:, :2], {"enable_gqa": True}, ShapeMismatch,
        "key: axis H has size 2, which does not divide the query's H = 3",
    ),
    "heads of value": (
        Q, K, V[:, :1], {"enable_gqa": True}, ShapeMismatch,
        "value: axis H has size 1, but key has H = 3",
    ),
    "keys and values": (
        Q, K, V[:, :, :6], {}, ShapeMismatch,
        "value: axis S has size 6, but key has S = 7",
    ),
    "width": (
        Q, K[..., :10], V, {}, ShapeMismatch,
        "key: axis D has size 10, but query has D = 11",
    ),
    "no width": (
        Q[..., :0], K[..., :0], V, {}, ShapeMismatch,
        "query: axis D has size 0",
    ),
    "integers": (
        Q.astype(int), K, V, {}, ValueError, "query has dtype int64",
    ),
    "mixed dtypes": (
        Q, K.astype(np.float64), V, {}, ValueError,
        "key has dtype float64, but query has float32",
    ),
    "3-axis mask": (
        Q, K, V, {"attn_mask": np.ones((2, 5, 7), bool)}, ShapeMismatch,
        r"attn_mask has 3 axes \(2, 5, 7\).*B = 2.*H = 3.*attn_mask\[:, None\]",
    ),
    "3-axis mask, one batch": (
        Q[:1], K[:1], V[:1], {"attn_mask": np.ones((1, 5, 7), bool)},
        ShapeMismatch, "attn_mask has 3 axes",
    ),
    "5-axis mask": (
        Q, K, V, {"attn_mask": np.ones((1, 2, 3, 5, 7), bool)}, ShapeMismatch,
        "attn_mask has 5 axes",
    ),
    "(B, S) mask": (
        Q, K, V, {"attn_mask": np.ones((2, 7), bool)}, ShapeMismatch,
        r"axis L has size 2, but query has L = 5.*attn_mask\[:, None, None\]",
    ),
    "(B, S) mask with B = L": (
        zeros(5, 3, 5, 11), zeros(5, 3, 7, 11), zeros(5, 3, 7, 13),
        {"attn_mask": np.ones((5, 7), bool)}, ShapeMismatch,
        r"could be L = 5 or B = 5; write attn_mask\[None, None\]",
    ),
    "mask's keys": (
        Q, K, V, {"attn_mask": np.ones((5, 6), bool)}, ShapeMismatch,
        "axis S has size 6, but key has S = 7",
    ),
    "mask's heads": (
        Q, K, V, {"attn_mask": np.ones((2, 2, 5, 7), bool)}, ShapeMismatch,
        "axis H has size 2, but query has H = 3",
    ),
    "integer mask": (
        Q, K, V, {"attn_mask": np.ones((5, 7), int)}, ValueError,
        r"attn_mask has dtype int64; use bool \(True = may attend\)",
    ),
    "mask and is_causal": (
        Q, K, V, MASK | {"is_causal": True}, ValueError,
        r"attn_mask or is_causal, not both.*\(L, S\) = \(5, 7\)",
    ),
    "list as mask": (
        Q, K, V, {"attn_mask": [[True]]}, ValueError,
        "attn_mask must be a NumPy array or a torch tensor, not list",
    ),
    "a probability where is_causal stands": (
        Q, K, V, {"is_causal": 0.1}, ValueError,
        "is_causal must be True or False, not 0.1",
    ),
    "a word for enable_gqa": (
        Q, K, V, {"enable_gqa": "no"}, ValueError,
        "enable_gqa must be True or False, not 'no'",
    ),
    "list as mask, with is_causal": (
        Q, K, V, {"attn_mask": [[True]], "is_causal": True}, ValueError,
        "attn_mask must be a NumPy array or a torch tensor, not list",
    ),
    "mask with NaN": (
        Q, K, V, {"attn_mask": np.full((5, 7), np.nan)}, ValueError,
        "attn_mask holds NaN",
    ),
    "mask with infinity": (
        Q, K, V, {"attn_mask": np.full((5, 7), np.inf)}, ValueError,
        "attn_mask holds \\+∞",
    ),
    "mask beyond float32": (
        Q, K, V, {"attn_mask": np.full((5, 7), np.finfo(float).min)},
        ValueError, "finite numbers that float32, the dtype of query, cannot",
    ),
    "huge scale": (
        Q, K, V, {"scale": 10**400}, ValueError, "scale must be finite",
    ),
    "infinite scale": (
        Q, K, V, {"scale": float("inf")}, ValueError, "scale must be finite",
    ),
    "scale in words": (
        Q, K, V, {"scale": "small"}, ValueError, "scale must be a number",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", EVERYONE)
@pytest.mark.parametrize("rule", REFUSED)
def test_bad_input_is_refused_with_the_axis_and_both_sizes(name, rule):
    query, key, value, options, error, message = REFUSED[rule]
    options = {k: as_input(name, v)[0] for k, v in options.items()}
    with pytest.raises(error, match=f"(?s){message}"):
        EVERYONE[name](*as_input(name, query, key, value), **options)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_tensors_on_different_devices_are_refused(name):
    q, k, v = (torch.zeros(x.shape) for x in (Q, K, V))
    message = "value is on device meta, but query is on device cpu"
    with pytest.raises(ValueError, match=message):
        IMPLEMENTATIONS[name](q, k, v.to("meta"))
    mask = torch.ones(5, 7, dtype=torch.bool, device="meta")
    message = "attn_mask is on device meta, but query is on device cpu"
    with pytest.raises(ValueError, match=message):
        IMPLEMENTATIONS[name](q, k, v, mask)


@pytest.mark.parametrize("name", [x for x in EVERYONE if x.endswith("_cuda")])
def test_arrays_that_would_lose_something_are_refused(name):
    with pytest.raises(ValueError, match="query is a masked array, whose mask"):
        EVERYONE[name](np.ma.masked_less(Q, 1), K, V)
    long = [x.astype(np.longdouble) for x in (Q, K, V)]
    with pytest.raises(ValueError, match=r"query has dtype .* attention needs"):
        EVERYONE[name](*long)


@pytest.mark.parametrize("name", EVERYONE)
def test_sparse_tensors_are_refused(name):
    q, k, v = (torch.ones(x.shape) for x in (Q, K, V))
    with pytest.raises(ValueError, match=r"query has layout torch\.sparse_coo"):
        EVERYONE[name](q.to_sparse(), k, v)
    mask = torch.ones(5, 7).to_sparse()
    with pytest.raises(ValueError, match=r"attn_mask has layout torch\.sparse"):
        EVERYONE[name](q, k, v, mask)


@pytest.mark.parametrize("name", IN_PYTORCH)
def test_the_torch_versions_say_who_takes_numpy(name):
    message = "query must be a torch tensor, not ndarray; `attention_cuda`"
    with pytest.raises(ValueError, match=message):
        IMPLEMENTATIONS[name](Q, K, V)


def test_the_advice_for_two_masks_works():
    q, k, v = (torch.tensor(x) for x in example_qkv())
    keep = torch.ones(5, 7, dtype=torch.bool)
    both = keep & masks.causal(5, 7, like=keep)
    np.testing.assert_array_equal(
        scaled_dot_product.attention(q, k, v, both),
        scaled_dot_product.attention(q, k, v, is_causal=True),
    )


def test_kernels_refuse_tensors_without_numbers():
    q, k, v = (torch.zeros(x.shape, device="meta") for x in (Q, K, V))
    for name, run in IMPLEMENTATIONS.items():
        if name.endswith("_cuda"):
            with pytest.raises(ValueError, match="on device meta, which holds"):
                run(q, k, v)


@pytest.mark.parametrize("name", IMPLEMENTATIONS)
def test_numpy_masks_of_any_strides_are_read(name):
    q, k, v = (torch.tensor(x) for x in example_qkv())
    keep = np.tri(5, 7, dtype=bool)
    expected = IMPLEMENTATIONS[name](q, k, v, keep)
    upside_down = np.ascontiguousarray(keep[::-1])[::-1]
    upside_down.flags.writeable = False
    out = IMPLEMENTATIONS[name](q, k, v, upside_down)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize("name", EVERYONE)
def test_mixed_libraries_are_refused(name):
    with pytest.raises(
        ValueError, match="key is a numpy array, but query is a"
    ):
        EVERYONE[name](torch.zeros(Q.shape), K, V)
    with pytest.raises(ValueError, match="query must be a NumPy array"):
        EVERYONE[name](Q.tolist(), K, V)


@pytest.mark.parametrize(
    "shape",
    [(7,), (1, 7), (5, 1), (5, 7), (1, 1, 5, 7), (2, 1, 1, 7), (1,) * 4],
)
def test_masks_broadcast_from_the_right(shape):
    q, k, v = example_qkv()
    check_attention_call(q, k, v, np.ones(shape, bool))
    check_attention_call(q, k, v, np.zeros(shape, np.float32))


def test_an_l_by_s_mask_is_accepted_when_the_batch_has_another_size():
    q, k, v = example_qkv(B=2, L=5, S=7)
    assert check_attention_call(q, k, v, np.ones((5, 7), bool)).S == 7


def test_sizes_are_read_by_letter():
    call = check_attention_call(Q, K, V)
    sizes = (call.B, call.H, call.H_kv, call.L, call.S, call.D, call.D_v)
    assert sizes == (2, 3, 3, 5, 7, 11, 13)
    assert call.scale == 11**-0.5
    assert not call.is_empty
