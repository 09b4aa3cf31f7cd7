"""The flash backward pass, in PyTorch and as kernels, against float64."""

import numpy as np
import pytest
import torch

from attention_lab.axes import ShapeMismatch
from attention_lab.error_bound import (
    lse_error_bound,
    rounding,
)
from attention_lab.examples import example_qkv
from attention_lab.reference import (
    attention_gradients_reference,
    attention_reference,
)
from attention_lab.steps import flash_backward as step
from attention_lab.steps.flash_forward import flash_forward, flash_forward_cuda
from attention_lab.steps.scaled_dot_product import attention_weights
from backward_cases import (
    MODES,
    TILES,
    arrays,
    assert_right,
    in_kernels,
    in_pytorch,
)
from cases import tensors

SIZES = [(1, 1, 3, 5), (4, 5, 4, 4), (13, 7, 2, 3)]


@pytest.mark.parametrize("factor", [1, 100])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_derivation_is_within_the_error_bound(sizes, mode, factor):
    given, options = arrays(*sizes, mode, factor)
    assert_right(in_pytorch(*given, options, **TILES), given, options)


@pytest.mark.parametrize("factor", [1, 100])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_the_kernels_are_within_the_error_bound(sizes, mode, factor):
    given, options = arrays(*sizes, mode, factor)
    assert_right(in_kernels(*given, options, **TILES), given, options)


@pytest.mark.parametrize("split", [2, 4, 8])
@pytest.mark.parametrize("mode", ["plain", "masked row"])
def test_threads_that_share_a_row_give_its_gradient(split, mode):
    # 11 and 5 channels leave some threads of a row with nothing.
    given, options = arrays(5, 7, 11, 5, mode)
    tiles = {**TILES, "SPLIT": split}
    assert_right(in_kernels(*given, options, **tiles), given, options)


@pytest.mark.parametrize("run", [in_pytorch, in_kernels])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precisions_accumulate_in_float32(run, dtype):
    given, _ = arrays(5, 7, 11, 5)
    given = [torch.tensor(x).to(dtype) for x in given]
    forward = flash_forward if run is in_pytorch else flash_forward_cuda
    backward = (
        step.flash_backward if run is in_pytorch else step.flash_backward_cuda
    )
    found = backward(*given, *forward(*given[1:]))
    assert {x.dtype for x in found} == {dtype}
    assert_right([x.double() for x in found], given, {})


@pytest.mark.parametrize("run", [in_pytorch, in_kernels])
def test_float64_is_computed_in_float64(run):
    given, options = arrays(5, 7, 11, 5, "causal", dtype=np.float64)
    found = run(*given, options, **TILES)
    exact = attention_gradients_reference(*given, **options)
    for got, right in zip(found, exact, strict=True):
        np.testing.assert_allclose(got, right, atol=rounding(right), rtol=0)


@pytest.mark.parametrize("run", [in_pytorch, in_kernels])
def test_a_row_that_sees_nothing_gets_and_gives_exactly_nothing(run):
    given, options = arrays(5, 7, 3, 5, "masked row")
    found = run(*given, options, **TILES)
    assert (np.asarray(found.query_BHLD)[:, :, 0] == 0).all()
    out_grad = given[0].copy()
    out_grad[:, :, 0] = 1e30
    again = run(out_grad, *given[1:], options, **TILES)
    for one, other in zip(found, again, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("run", [in_pytorch, in_kernels])
def test_a_key_that_no_query_sees_has_a_gradient_of_zero(run):
    given, options = arrays(3, 8, 5, 1, "causal")
    found = run(*given, options, **TILES)
    for gradient in found[1:]:
        assert (np.asarray(gradient)[:, :, 3:] == 0).all()
        assert (np.asarray(gradient)[:, :, :3] != 0).any()


@pytest.mark.parametrize("backward", ["flash_backward", "flash_backward_cuda"])
@pytest.mark.parametrize("empty", [{"L": 0}, {"S": 0}, {"D_v": 0}, {"B": 0}])
def test_empty_axes_have_gradients_of_zero(backward, empty):
    q, k, v = tensors(*example_qkv(**empty))
    out, lse = flash_forward(q, k, v)
    found = getattr(step, backward)(out, q, k, v, out, lse)
    for gradient, x in zip(found, (q, k, v), strict=True):
        np.testing.assert_array_equal(gradient, np.zeros(x.shape))


def test_by_hand_two_equal_keys():
    # Weights ½ and ½, output 2; dO = 1: dP = (0, 4), D = 2, dS = (−1, 1).
    # The scale is ½: dQ = ½ · (−1 · 1 + 1 · 1) = 0, dK = ½ · (∓1) · 3.
    q = np.array([[[[3.0, 0, 0, 0]]]], np.float32)
    k = np.array([[[[1.0, 0, 0, 0], [1, 0, 0, 0]]]], np.float32)
    v = np.array([[[[0.0], [4]]]], np.float32)
    found = in_kernels(np.ones((1, 1, 1, 1), np.float32), q, k, v, {})
    assert found.query_BHLD.tolist() == [[[[0, 0, 0, 0]]]]
    assert found.value_BHSD.tolist() == [[[[0.5], [0.5]]]]
    np.testing.assert_allclose(found.key_BHSD[0, 0, :, 0], [-1.5, 1.5])


@pytest.mark.parametrize("factor", [1, 100])
def test_the_weights_come_back_from_the_log_sum_exp(factor):
    given, options = arrays(5, 7, 11, 5, "causal", factor)
    out_grad, q, k, v = tensors(*given)
    out, lse = flash_forward(q, k, v, **options, **TILES)
    exact = attention_reference(*given[1:], **options).lse_BHL
    bound = lse_error_bound(*given[1:], **options)
    np.testing.assert_allclose(lse, exact, atol=bound, rtol=0)
    trace = []
    step.flash_backward(
        out_grad, q, k, v, out, lse, **options, **TILES, trace=trace
    )
    right = attention_weights(q, k, v, **options)
    rebuilt = torch.zeros_like(right)
    for tile in trace:
        row, s = 4 * tile.tile_row, 3 * tile.tile_col
        rebuilt[:, :, row : row + 4, s : s + 3] = tile.weights
    # A weight is exp(score − lse): its relative error is their absolute one.
    np.testing.assert_allclose(rebuilt, right, atol=4 * bound, rtol=0)


def test_causal_tiles_above_the_diagonal_are_not_visited():
    given, options = arrays(8, 8, 3, 3, "causal")
    trace = []
    in_pytorch(*given, options, TILE_L=4, TILE_S=4, trace=trace)
    places = [(t.tile_row, t.tile_col) for t in trace]
    assert places == [(0, 0), (1, 0), (1, 1)]


@pytest.mark.parametrize("backward", ["flash_backward", "flash_backward_cuda"])
class TestWhatIsRefused:
    def call(self, backward, *, fresh=None, **changed):
        (out_grad, q, k, v), _ = arrays(5, 7, 3, 2)
        out_grad, q, k, v = tensors(out_grad, q, k, v)
        out, lse = flash_forward(q, k, v)
        given = {"out_grad": out_grad, "out": out, "lse": lse} | changed
        for name, change in (fresh or {}).items():
            given[name] = change(given[name])
        return getattr(step, backward)(query=q, key=k, value=v, **given)

    @pytest.mark.parametrize("name", ["out_grad", "out", "lse"])
    def test_another_length(self, backward, name):
        words = f"{name}: axis L has size 4, but query has L = 5"
        with pytest.raises(ShapeMismatch, match=words):
            self.call(backward, fresh={name: lambda x: x[:, :, 1:]})

    def test_another_width(self, backward):
        words = "out_grad: axis D has size 1, but value has D = 2"
        with pytest.raises(ShapeMismatch, match=words):
            self.call(backward, fresh={"out_grad": lambda x: x[..., 1:]})

    def test_another_rank(self, backward):
        with pytest.raises(ShapeMismatch, match=r"lse has 2 axes \(1, 4\)"):
            self.call(backward, fresh={"lse": lambda x: x[:, :, 0]})

    @pytest.mark.parametrize("name", ["out_grad", "out", "lse"])
    def test_another_dtype(self, backward, name):
        words = f"{name} has dtype float64, but a query of float32 needs"
        with pytest.raises(ValueError, match=words):
            self.call(backward, fresh={name: torch.Tensor.double})

    @pytest.mark.parametrize("name", ["TILE_L", "TILE_S"])
    @pytest.mark.parametrize("size", [0, 2.5])
    def test_a_tile_that_is_no_size(self, backward, name, size):
        with pytest.raises(ValueError, match=f"{name} must be a whole number"):
            self.call(backward, **{name: size})


@pytest.mark.parametrize(
    ("tiles", "words"),
    [
        ({"SPLIT": 3}, "SPLIT = 3 threads cannot share a row"),
        ({"SPLIT": 64}, "SPLIT = 64 threads cannot share a row"),
        ({"SPLIT": 0}, "SPLIT must be a whole number"),
        (
            {"TILE_L": 65, "SPLIT": 16},
            "TILE_L = 65 rows of 16 threads need 1040 threads .* 1024",
        ),
        (
            {"TILE_S": 600},
            "TILE_S = 600 rows .* 96 bytes each, need 57600 bytes .* 49152",
        ),
    ],
)
def test_tiles_that_no_gpu_can_launch_are_refused(tiles, words):
    given, options = arrays(5, 7, 11, 11)
    with pytest.raises(ValueError, match=words):
        in_kernels(*given, options, **tiles)


def test_wide_rows_fit_the_default_tiles():
    given, options = arrays(2, 3, 389, 7)
    assert_right(in_kernels(*given, options), given, options)


@pytest.mark.parametrize("name", ["out_grad", "query"])
def test_numpy_is_for_the_kernels(name):
    given, _ = arrays(5, 7, 3, 2)
    out_grad, q, k, v = tensors(*given)
    out, lse = flash_forward(q, k, v)
    if name == "query":
        _, q, k, v = given
    else:
        out_grad = given[0]
    with pytest.raises(ValueError, match=f"{name} must be a torch tensor"):
        step.flash_backward(out_grad, q, k, v, out, lse)
