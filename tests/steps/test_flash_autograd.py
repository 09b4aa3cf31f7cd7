"""`flash_attention` as an operation of PyTorch."""

import subprocess
import sys

import numpy as np
import pytest
import torch

from attention_lab.error_bound import error_bound
from attention_lab.examples import example_qkv
from attention_lab.gpu import launch as gpu_launch
from attention_lab.reference import attention_reference
from attention_lab.steps import flash_attention, launch, scaled_dot_product
from attention_lab.verify import verify_attention
from backward_cases import arrays, assert_right, with_tensors
from cases import random_mask, tensors


def inputs(L=3, S=5, H_kv=2, dtype=np.float64):
    qkv = example_qkv(1, 2, L, S, 2, 3, H_kv, dtype=dtype)
    return [torch.tensor(x, requires_grad=True) for x in qkv]


def test_it_passes_every_check_of_the_verifier():
    report = verify_attention(flash_attention, seconds=300)
    assert report.passed, str(report)
    assert report.not_tested == {}
    assert {check.name for check in report.checks} >= {
        "gradients",
        "gradients of a masked row",
    }


@pytest.mark.parametrize(
    ("sizes", "options"),
    [
        ({}, {}),
        ({"L": 5, "S": 3}, {"is_causal": True}),
        ({}, {"attn_mask": torch.tensor(random_mask((1, 2, 3, 5)))}),
        ({"H_kv": 1, "L": 17, "S": 2}, {"enable_gqa": True}),
    ],
    ids=["plain", "causal", "masked row", "shared heads, ragged"],
)
def test_its_gradients_are_those_of_finite_differences(sizes, options):
    def run(q, k, v):
        return flash_attention(q, k, v, **options)

    # Fast: compares one random direction instead of every number.
    assert torch.autograd.gradcheck(run, inputs(**sizes), fast_mode=True)


def test_gradcheck_would_see_a_wrong_gradient(monkeypatch):
    from attention_lab.steps import flash_autograd

    right = flash_autograd.flash_backward_cuda

    def wrong(*given):
        dq, dk, dv = right(*given)
        return dq, dk * 1.01, dv

    monkeypatch.setattr(flash_autograd, "flash_backward_cuda", wrong)
    with pytest.raises(RuntimeError, match=r"Jacobian mismatch"):
        torch.autograd.gradcheck(flash_attention, inputs(), fast_mode=True)


@pytest.mark.parametrize("mode", ["causal", "masked row", "shared"])
def test_it_is_within_the_error_bound_in_float32(mode):
    given, options = arrays(13, 7, 2, 3, mode)
    out_grad, *qkv = tensors(*given)
    qkv = [x.requires_grad_() for x in qkv]
    out = flash_attention(*qkv, **with_tensors(options))
    out.backward(out_grad)
    exact = attention_reference(*given[1:], **options).out_BHLD
    bound = error_bound(*given[1:], **options)
    np.testing.assert_allclose(out.detach(), exact, atol=bound, rtol=0)
    assert_right([x.grad for x in qkv], given, options)


def test_an_expanded_gradient_is_read_right():
    # The gradient of a sum is one number, expanded with strides of 0.
    one, other = inputs(), inputs()
    flash_attention(*one).sum().backward()
    scaled_dot_product.attention(*other).sum().backward()
    for x, y in zip(one, other, strict=True):
        torch.testing.assert_close(x.grad, y.grad)


def test_half_precisions_get_gradients_of_their_own_dtype():
    qkv = [x.detach().half().requires_grad_() for x in inputs()]
    flash_attention(*qkv).sum().backward()
    assert {x.grad.dtype for x in qkv} == {torch.float16}


def test_a_numpy_mask_is_taken():
    mask = random_mask((1, 2, 3, 5))
    out = flash_attention(*inputs(), attn_mask=mask)
    same = flash_attention(*inputs(), attn_mask=torch.tensor(mask))
    np.testing.assert_array_equal(out.detach(), same.detach())


def test_a_gradient_of_a_gradient_is_refused_in_a_sentence():
    q, k, v = inputs()
    out = flash_attention(q, k, v)
    (q_grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(
        NotImplementedError, match="no gradient of its gradient"
    ):
        q_grad.sum().backward()


def test_a_mask_that_wants_a_gradient_is_refused():
    mask = torch.zeros(3, 5, dtype=torch.float64, requires_grad=True)
    with pytest.raises(ValueError, match="attn_mask requires a gradient"):
        flash_attention(*inputs(), attn_mask=mask)


def test_an_input_that_changed_in_between_is_refused():
    q, k, v = inputs()
    keys = k * 1
    out = flash_attention(q, keys, v)
    keys += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_numpy_arrays_are_refused():
    with pytest.raises(ValueError, match="query must be a torch tensor"):
        flash_attention(*example_qkv())


def test_the_package_of_steps_imports_nothing_before_it_is_asked():
    program = (
        "import sys, attention_lab.steps as steps\n"
        "assert 'torch' not in sys.modules\n"
        "assert 'numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


# -- On the GPU ------------------------------------------------------------


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Treat CPU tensors as a GPU's; keep what the kernels were given.

    The recorder's kernels can read a CPU tensor in place, so what happens to
    pointers and to the order of streams can be seen without a GPU.
    """
    seen = {"pointers": set(), "order": []}

    def order_streams(device, kernels_first):
        seen["order"].append(kernels_first)

    def call(self, *args):
        pointers = {x.ctypes.data for x in args if isinstance(x, np.ndarray)}
        seen["pointers"] |= pointers
        seen["order"].append(self.kernel.__name__)
        gpu_launch.launch(self.kernel, self.grid, self.block, args)

    monkeypatch.setattr(launch, "stays_on_gpu", torch.is_tensor)
    monkeypatch.setattr(launch, "order_streams", order_streams)
    monkeypatch.setattr(gpu_launch.Configured, "__call__", call)
    return seen


@pytest.mark.parametrize("mode", ["causal", "masked row", "shared", "added"])
def test_tensors_on_the_gpu_are_not_copied(as_on_a_gpu, mode):
    given, options = arrays(13, 7, 2, 3, mode)
    out_grad, *qkv = tensors(*given)
    qkv = [x.requires_grad_() for x in qkv]
    out = flash_attention(*qkv, **with_tensors(options))
    out.backward(out_grad)
    assert_right([x.grad for x in qkv], given, options)
    kept = [*qkv, out_grad, out, *(x.grad for x in qkv)]
    assert {x.data_ptr() for x in kept} <= as_on_a_gpu["pointers"]


def test_kernels_wait_for_torch_and_torch_for_the_kernels(as_on_a_gpu):
    q, k, v = inputs()
    flash_attention(q, k, v).sum().backward()
    order = as_on_a_gpu["order"]
    first, last = order.index("row_dot_kernel"), order.index("dkv_kernel")
    assert order[0] is False  # the kernels wait for torch's inputs
    assert order[first - 1] is False
    assert order[last + 1 :] == [True] * 3  # torch waits for three gradients


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_on_the_gpu_is_converted_there(as_on_a_gpu, dtype):
    qkv = [x.detach().to(dtype).requires_grad_() for x in inputs()]
    out = flash_attention(*qkv, attn_mask=torch.ones(3, 5, dtype=torch.bool))
    out.sum().backward()
    assert out.dtype == dtype
    assert {x.grad.dtype for x in qkv} == {dtype}
    exact = attention_reference(*qkv).out_BHLD
    np.testing.assert_allclose(
        out.detach().double(), exact, atol=error_bound(*qkv), rtol=0
    )


@pytest.mark.needs_gpu("runs the forward and backward kernels on a side stream")
def test_on_a_gpu_it_agrees_with_the_reference_on_any_stream():
    given, options = arrays(33, 17, 64, 64, "causal")
    with torch.cuda.stream(torch.cuda.Stream()):
        out_grad, *qkv = (torch.tensor(x, device="cuda") for x in given)
        qkv = [x.requires_grad_() for x in qkv]
        flash_attention(*qkv, **options).backward(out_grad)
        found = [x.grad.cpu() for x in qkv]
    assert_right(found, given, options)
