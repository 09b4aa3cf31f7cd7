import numpy as np
import pytest
import torch
from torch import nn

from attention_lab.axes import ShapeMismatch
from attention_lab.examples import position_coded
from attention_lab.masks import padding
from attention_lab.steps import multi_head as step
from attention_lab.steps.multi_head import MultiHeadAttention

B, L, S, H, D = 2, 5, 7, 3, 4
E = H * D


def inputs(dtype=torch.float64, whole_numbers=False):
    """Return query (B, L, E), key and value (B, S, E)."""
    generator = torch.Generator().manual_seed(0)
    shapes = ((B, L, E), (B, S, E), (B, S, E))
    if whole_numbers:
        return [
            torch.randint(-3, 4, s, generator=generator).to(dtype)
            for s in shapes
        ]
    return [torch.randn(s, generator=generator, dtype=dtype) for s in shapes]


def module(dtype=torch.float64, dropout=0.0, whole_numbers=False):
    torch.manual_seed(0)
    ours = MultiHeadAttention(E, H, dropout).to(dtype)
    if whole_numbers:
        for p in ours.parameters():
            p.data = torch.randint(-3, 4, p.shape).to(dtype)
    return ours


def coded():
    return torch.tensor(position_coded(B, L, E), dtype=torch.float32)


def test_head_h_owns_its_channels_of_every_token():
    x_BLE = coded()
    x_BHLD = step.split_heads(x_BLE, H)
    for h in range(H):
        own = x_BLE[:, :, h * D : (h + 1) * D]
        np.testing.assert_array_equal(x_BHLD[:, h], own)


def test_splitting_copies_nothing_and_merging_undoes_it():
    x_BLE = coded()
    x_BHLD = step.split_heads(x_BLE, H)
    assert x_BHLD.data_ptr() == x_BLE.data_ptr()
    assert x_BHLD.stride() == (L * E, D, E, 1)
    np.testing.assert_array_equal(step.merge_heads(x_BHLD), x_BLE)


def test_view_alone_has_the_right_shape_and_other_elements():
    x_BLE = coded()
    right = step.split_heads(x_BLE, H)
    wrong = x_BLE.view(B, H, L, D)
    assert wrong.shape == right.shape
    assert (wrong != right).float().mean() > 0.5


def test_merging_without_permute_is_not_the_inverse():
    x_BHLD = step.split_heads(coded(), H)
    assert (x_BHLD.reshape(B, L, E) != coded()).float().mean() > 0.5


def test_kernels_move_the_same_elements():
    x_BLE = coded()
    x_BHLD = step.split_heads_cuda(x_BLE, H)
    np.testing.assert_array_equal(x_BHLD, step.split_heads(x_BLE, H))
    np.testing.assert_array_equal(step.merge_heads_cuda(x_BHLD), x_BLE)
    as_numpy = step.split_heads_cuda(x_BLE.numpy(), H)
    np.testing.assert_array_equal(as_numpy, x_BHLD)
    assert step.split_heads_cuda(x_BLE[:, :0], H).shape == (B, H, 0, D)


def test_equals_the_loop_over_heads_exactly_on_whole_numbers():
    # Whole numbers up to 3 make every projection exact. With identical keys
    # the softmax is uniform, so the mixture is exact as well.
    ours = module(whole_numbers=True)
    query, key, value = inputs(whole_numbers=True)
    key = key[:, :1].expand(B, 8, E)
    value = value[:, :1].expand(B, 8, E)
    np.testing.assert_array_equal(
        ours(query, key, value).detach(),
        ours.loop_over_heads(query, key, value).detach(),
    )


def test_projections_are_the_loops_exactly_on_whole_numbers():
    ours = module(whole_numbers=True)
    query = inputs(whole_numbers=True)[0]
    q_BHLD = step.split_heads(ours.q_proj(query), H)
    for h in range(H):
        own = slice(h * D, (h + 1) * D)
        q_BLD = nn.functional.linear(
            query, ours.q_proj.weight[own], ours.q_proj.bias[own]
        )
        np.testing.assert_array_equal(q_BHLD[:, h].detach(), q_BLD.detach())


@pytest.mark.parametrize("mode", ["plain", "causal", "padding", "per head"])
def test_equals_the_loop_over_heads_within_float64_rounding(mode):
    ours, arrays = module(), inputs()
    options = {
        "plain": {},
        "causal": {"is_causal": True},
        "padding": {"attn_mask": padding([3, 7], S, like=arrays[0])},
        "per head": {"attn_mask": torch.randn(1, H, L, S).double()},
    }[mode]
    np.testing.assert_allclose(
        ours(*arrays, **options).detach(),
        ours.loop_over_heads(*arrays, **options).detach(),
        atol=1e-14,
    )


@pytest.mark.parametrize("is_causal", [False, True])
def test_weights_come_from_and_go_to_pytorch(is_causal):
    query, key, value = inputs()
    theirs = nn.MultiheadAttention(E, H, batch_first=True).double()
    theirs.in_proj_bias.data.normal_()
    ours = MultiHeadAttention(E, H).double()
    ours.load_torch(theirs)
    # In nn.MultiheadAttention True forbids: the opposite polarity.
    forbid = torch.ones(L, S).triu(1).bool() if is_causal else None
    expected = theirs(query, key, value, attn_mask=forbid)[0].detach()
    out = ours(query, key, value, is_causal=is_causal).detach()
    np.testing.assert_allclose(out, expected, atol=1e-14)
    again = ours.to_torch()(query, key, value, attn_mask=forbid)[0].detach()
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (lambda: nn.MultiheadAttention(10, 2), "axis E has size 10"),
        (lambda: nn.MultiheadAttention(E, 2), "axis H has size 2.* H = 3"),
        (lambda: nn.MultiheadAttention(E, H, bias=False), "bias=False"),
        (lambda: nn.MultiheadAttention(E, H, kdim=5), "kdim or vdim"),
        (lambda: nn.MultiheadAttention(E, H, add_bias_kv=True), "bias_k"),
    ],
)
def test_modules_whose_weights_have_no_place_are_refused(theirs, message):
    with pytest.raises(ValueError, match=message):
        module().load_torch(theirs())


@pytest.mark.parametrize("is_causal", [False, True])
def test_kernels_between_the_projections_agree(is_causal):
    ours = module(torch.float32)
    arrays = inputs(torch.float32)
    exact = module()(*(x.double() for x in arrays), is_causal=is_causal)
    out = ours.forward_cuda(*arrays, is_causal=is_causal)
    # Plain float32 is the yardstick: at most twice its error.
    plain = (ours(*arrays, is_causal=is_causal) - exact).abs().max()
    assert (out - exact).abs().max() <= 2 * plain + 2e-7


def test_no_parameter_depends_on_the_number_of_heads():
    counts = {
        heads: sum(p.numel() for p in MultiHeadAttention(E, heads).parameters())
        for heads in (1, 2, 3, 4, 6, 12)
    }
    assert set(counts.values()) == {4 * (E * E + E)}


def test_dropout_works_in_training_and_not_in_eval():
    ours, arrays = module(dropout=0.5), inputs()
    plain = module()(*arrays)
    ours.eval()
    torch.testing.assert_close(ours(*arrays), plain, rtol=0, atol=0)
    ours.train()
    assert (ours(*arrays) != ours(*arrays)).any()


def test_batch_entries_do_not_see_each_other():
    ours, (query, key, value) = module(), inputs()
    before = ours(query, key, value)[0]
    key[1] += 1
    torch.testing.assert_close(
        ours(query, key, value)[0], before, rtol=0, atol=0
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: MultiHeadAttention(10, 3), "embed_dim: axis E has size 10"),
        (lambda: step.split_heads(coded(), 5), "x_BLE: axis E has size 12"),
        (lambda: step.split_heads_cuda(coded(), 5), "x_BLE: axis E has size"),
        (lambda: step.split_heads(coded()[0], 3), "x_BLE has 2 axes"),
        (lambda: step.split_heads_cuda(coded()[0], 3), "x_BLE has 2 axes"),
        (lambda: step.merge_heads(coded()), "x_BHLD has 3 axes"),
        (lambda: step.merge_heads_cuda(coded()), "x_BHLD has 3 axes"),
        (
            lambda: module()(inputs()[0][..., :10], *inputs()[1:]),
            "query_BLE: axis E has size 10, but .* E = 12",
        ),
        (
            lambda: module()(inputs()[0], inputs()[1][0], inputs()[2]),
            "key_BSE has 2 axes",
        ),
        (
            lambda: module()(inputs()[0], inputs()[1][:, :6], inputs()[2]),
            "value_BSE: axis S has size 7, but key_BSE has S = 6",
        ),
    ],
)
def test_bad_shapes_are_refused(call, message):
    with pytest.raises(ShapeMismatch, match=message):
        call()


@pytest.mark.parametrize(
    "forward", ["forward", "loop_over_heads", "forward_cuda"]
)
@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        (torch.ones(B, 4, L, S).bool(), ShapeMismatch, "axis H has size 4"),
        (torch.ones(B, 2, L, S).bool(), ShapeMismatch, "axis H has size 2"),
        (torch.ones(B, L, S).bool(), ShapeMismatch, "B = 2 or H = 3"),
        ([[True]], ValueError, "attn_mask must be a NumPy array or a torch"),
    ],
)
def test_a_mask_that_does_not_fit_all_heads_is_refused(
    forward, mask, error, message
):
    with pytest.raises(error, match=message):
        getattr(module(torch.float32), forward)(*inputs(torch.float32), mask)


@pytest.mark.parametrize(
    "forward", ["forward", "loop_over_heads", "forward_cuda"]
)
@pytest.mark.parametrize("empty", ["L", "B"])
def test_empty_axes_give_empty_results(forward, empty):
    query, key, value = inputs(torch.float32)
    if empty == "L":
        query = query[:, :0]
    else:
        query, key, value = query[:0], key[:0], value[:0]
    out = getattr(module(torch.float32), forward)(query, key, value)
    assert out.shape == query.shape


@pytest.mark.parametrize(
    "forward", ["forward", "loop_over_heads", "forward_cuda"]
)
def test_inputs_that_the_weights_cannot_multiply_are_refused(forward):
    run = getattr(module(torch.float32), forward)
    query, key, value = inputs(torch.float32)
    with pytest.raises(
        ValueError, match=r"key_BSE has dtype torch\.float64, but"
    ):
        run(query, key.double(), value)
    with pytest.raises(ValueError, match="query_BLE must be a torch tensor"):
        run(query.numpy(), key, value)
    with pytest.raises(ValueError, match="value_BSE has device meta, but"):
        run(query, key, value.to("meta"))
    with pytest.raises(ShapeMismatch, match="key_BSE: axis B has size 1, but"):
        run(query, key[:1], value[:1])


@pytest.mark.parametrize("dropout", [-0.1, 1.5, float("nan"), "a", None, True])
def test_dropout_is_a_probability(dropout):
    with pytest.raises(
        ValueError, match="dropout must be a probability from 0"
    ):
        MultiHeadAttention(E, H, dropout)


def test_another_module_is_refused():
    with pytest.raises(
        ValueError, match=r"module must be a torch\.nn\.Multihead"
    ):
        module().load_torch(nn.Linear(2, 2))


def test_numpy_integers_are_sizes_too():
    assert MultiHeadAttention(np.int64(E), np.int32(H)).num_heads == H
