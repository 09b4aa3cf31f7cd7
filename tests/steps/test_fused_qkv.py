import numpy as np
import pytest
import torch
from torch.utils.checkpoint import checkpoint

from attention_lab.axes import ShapeMismatch
from attention_lab.steps import fused_qkv as step
from attention_lab.steps.fused_qkv import LAYOUTS, FusedQKVAttention
from attention_lab.steps.multi_head import MultiHeadAttention

B, L, H, D = 2, 5, 3, 4
E = H * D
F = 3 * E


def coded_rows(layout):
    """Return the (p, h, d) of every packed row, from the layout's name."""
    sizes = {"p": 3, "h": H, "d": D}
    order = layout.split()
    index = np.indices([sizes[x] for x in order]).reshape(3, -1)
    return np.stack([index[order.index(x)] for x in "phd"], axis=1)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_packed_channel_lands_where_its_layout_says(layout):
    packed = torch.arange(F).expand(B, L, F)
    qkv = step.split_qkv(packed, H, layout)
    assert qkv.shape == (3, B, H, L, D)
    for row, (p, h, d) in enumerate(coded_rows(layout)):
        assert (qkv[p, :, h, :, d] == row).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_kernel_moves_the_same_elements(layout):
    packed = torch.arange(B * L * F, dtype=torch.float32).reshape(B, L, F)
    expected = step.split_qkv(packed, H, layout)
    np.testing.assert_array_equal(
        step.split_qkv_cuda(packed, H, layout), expected
    )
    as_numpy = step.split_qkv_cuda(packed.numpy(), H, layout)
    np.testing.assert_array_equal(as_numpy, expected)
    assert step.split_qkv_cuda(packed[:0], H, layout).shape == (3, 0, H, L, D)


def test_a_layout_is_three_steps():
    assert step.layout_steps("p h d", H, D) == {"p": E, "h": D, "d": 1}
    assert step.layout_steps("h p d", H, D) == {"p": D, "h": 3 * D, "d": 1}
    assert step.layout_steps("h d p", H, D) == {"p": 1, "h": 3 * D, "d": 3}


@pytest.mark.parametrize("target", LAYOUTS)
@pytest.mark.parametrize("source", LAYOUTS)
def test_conversions_undo_each_other(source, target):
    weight = torch.randn(F, E)
    there = step.convert_layout(weight, H, source, target)
    back = step.convert_layout(there, H, target, source)
    np.testing.assert_array_equal(back, weight)
    assert source == target or (there != weight).any()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fusing_and_unfusing_give_the_three_weights_back(layout):
    parts = [torch.randn(E, E) for _ in range(3)]
    fused = step.fuse(*parts, H, layout)
    for part, again in zip(parts, step.unfuse(fused, H, layout), strict=True):
        np.testing.assert_array_equal(again, part)


def fused_module(layout="p h d", recompute=False):
    torch.manual_seed(0)
    separate = MultiHeadAttention(E, H).double()
    fused = FusedQKVAttention(E, H, layout, recompute).double()
    fused.load_separate(separate)
    return separate, fused


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_one_projection_equals_three(layout, is_causal):
    separate, fused = fused_module(layout)
    x = torch.randn(B, L, E, dtype=torch.float64)
    expected = separate(x, x, x, is_causal=is_causal).detach()
    out = fused(x, is_causal=is_causal).detach()
    np.testing.assert_allclose(out, expected, atol=1e-14)
    again = fused.to_separate()(x, x, x, is_causal=is_causal).detach()
    np.testing.assert_array_equal(again, expected)


@pytest.mark.parametrize("wrong", LAYOUTS[1:])
def test_a_weight_read_in_the_wrong_layout_gives_another_output(wrong):
    _, fused = fused_module("p h d")
    x = torch.randn(B, L, E, dtype=torch.float64)
    right = fused(x).detach()
    fused.layout = wrong
    assert (fused(x).detach() - right).abs().max() > 0.01


@pytest.mark.parametrize("layout", LAYOUTS)
def test_kernels_after_the_projection_agree(layout):
    _, fused = fused_module(layout)
    x = torch.randn(B, L, E, dtype=torch.float64)
    keep = torch.rand(B, 1, L, L) > 0.3
    keep[:, :, 0] = False
    np.testing.assert_allclose(
        fused.forward_cuda(x, keep), fused(x, keep).detach(), atol=1e-14
    )


def gradients(module, x, run=None):
    module.zero_grad()
    (run or module)(x).square().sum().backward()
    return [p.grad for p in module.parameters()]


def test_recomputation_gives_the_same_gradients():
    _, plain = fused_module()
    _, recomputing = fused_module(recompute=True)
    x = torch.randn(B, L, E, dtype=torch.float64)  # needs no gradient itself
    expected, got = gradients(plain, x), gradients(recomputing, x)
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_recomputation_really_happens_and_only_in_training():
    _, module = fused_module(recompute=True)
    calls = []
    module.qkv.register_forward_hook(lambda *_: calls.append(1))
    x = torch.randn(B, L, E, dtype=torch.float64)
    gradients(module, x)
    assert len(calls) == 2
    module.eval()
    gradients(module, x)
    assert len(calls) == 3


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_reentrant_checkpointing_loses_the_gradients():
    # The mistake that `use_reentrant=False` avoids.
    _, module = fused_module()
    x = torch.randn(B, L, E, dtype=torch.float64)
    out = checkpoint(module._attend, x, None, False, use_reentrant=True)
    assert not out.requires_grad


def test_a_fused_bias_is_packed_like_its_weight():
    _, fused = fused_module("h d p")
    x = torch.zeros(1, 1, E, dtype=torch.float64)
    qkv = step.split_qkv(fused.qkv(x), H, "h d p")
    separate = fused.to_separate()
    flat = torch.cat([p.bias for p in (separate.q_proj, separate.k_proj)])
    np.testing.assert_array_equal(qkv[:2].flatten().detach(), flat.detach())


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: FusedQKVAttention(10, 3), ShapeMismatch, "axis E has size 10"),
        (
            lambda: FusedQKVAttention(12, 3, "d h p"),
            ValueError,
            "layout must be",
        ),
        (
            lambda: step.split_qkv(torch.zeros(B, L, 35), H),
            ShapeMismatch,
            "axis P·E has size 35, which P = 3 does not divide",
        ),
        (
            lambda: step.split_qkv_cuda(torch.zeros(B, L, 30), H),
            ShapeMismatch,
            "axis E has size 10, which num_heads H = 3",
        ),
        (
            lambda: step.split_qkv(torch.zeros(L, F), H),
            ShapeMismatch,
            "packed has 2 axes",
        ),
        (
            lambda: step.convert_layout(
                torch.zeros(35, 2), H, "p h d", "h p d"
            ),
            ShapeMismatch,
            "weight: the packed axis",
        ),
        (
            lambda: step.fuse(*(torch.zeros(E, i) for i in (2, 2, 3)), H),
            ShapeMismatch,
            r"v has shape \(12, 3\), but q has \(12, 2\)",
        ),
        (
            lambda: fused_module()[1](torch.zeros(B, L, 10)),
            ShapeMismatch,
            "x_BLE: axis E has size 10, but .* E = 12",
        ),
        (
            lambda: fused_module()[1].load_separate(MultiHeadAttention(24, 3)),
            ShapeMismatch,
            "module: axis E has size 24, but this has E = 12",
        ),
        (
            lambda: fused_module()[1].load_separate(MultiHeadAttention(12, 4)),
            ShapeMismatch,
            "module: axis H has size 4, but this has H = 3",
        ),
        (
            lambda: fused_module()[1].load_separate(torch.nn.Linear(2, 2)),
            ValueError,
            "module must be this book's MultiHeadAttention, not Linear",
        ),
        (
            lambda: fused_module()[1](torch.zeros(B, L, E)),
            ValueError,
            "x_BLE has dtype torch.float32, but the module has torch.float64",
        ),
        (
            lambda: FusedQKVAttention(12, 3, recompute="no"),
            ValueError,
            "recompute must be True or False, not 'no'",
        ),
        (
            lambda: step.fuse([1], [1], [1], H),
            ValueError,
            "q must be a torch tensor, not list",
        ),
        (
            lambda: step.convert_layout(torch.tensor(1), H, "p h d", "h p d"),
            ShapeMismatch,
            "weight has no axes",
        ),
    ],
)
def test_bad_input_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
