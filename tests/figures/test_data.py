import numpy as np
import pytest
import torch

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_array,
    check_index,
    check_size,
    read_field,
    shown_places,
)


def test_a_tensor_keeps_its_memory_and_strides():
    tensor = torch.arange(24).view(2, 3, 4).permute(1, 0, 2)
    array = as_array("x_BLE", tensor)
    assert array.ctypes.data == tensor.data_ptr()
    assert array.strides == tuple(8 * stride for stride in tensor.stride())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.bool])
def test_other_types_are_taken_too(dtype):
    array = as_array("x_L", torch.ones(3, dtype=dtype))
    np.testing.assert_array_equal(array.astype(float), np.ones(3))


def test_a_tensor_with_a_gradient_is_taken():
    tensor = torch.ones(3, requires_grad=True)
    np.testing.assert_array_equal(as_array("x_L", tensor), np.ones(3))


def test_nan_is_refused_with_its_place():
    with pytest.raises(ValueError, match=r"x_LD holds nan at \[1, 2\]; 1 of"):
        as_array("x_LD", np.array([[0, 1, 2], [3, 4, np.nan]]))


def test_only_minus_infinity_can_be_allowed():
    as_array("x_L", [0.0, -np.inf], allow_minus_inf=True)
    with pytest.raises(ValueError, match="-inf"):
        as_array("x_L", [0.0, -np.inf])
    with pytest.raises(ValueError, match="inf at"):
        as_array("x_L", [0.0, np.inf], allow_minus_inf=True)


def test_an_empty_array_is_refused_with_its_axis():
    with pytest.raises(ValueError, match="axis S has size 0"):
        as_array("scores_LS", np.zeros((5, 0)))


def test_a_wrong_rank_is_refused_with_the_axes_needed():
    with pytest.raises(ShapeMismatch, match=r"2 axes \(2, 3\), but 3 .*B L E"):
        as_array("x_BLE", np.zeros((2, 3)), ndim=3)


def test_words_are_refused():
    with pytest.raises(ValueError, match="real numbers"):
        as_array("x_L", ["a", "b"])


@pytest.mark.parametrize("index", [-1, 5, 1.0, True])
def test_an_index_outside_its_axis_is_refused(index):
    with pytest.raises(ValueError, match="query"):
        check_index("query", index, "L", 5)


def test_too_long_an_axis_is_refused_with_both_sizes():
    with pytest.raises(ValueError, match="axis L has size 9; at most 8"):
        check_size("x", "L", 9, 8)


def test_a_step_may_be_a_mapping_or_an_object():
    class Step:
        row_max = 2.0

    assert read_field(Step(), "row_max", "trace[0]") == 2.0
    with pytest.raises(ValueError, match=r"trace\[3\] has no 'row_sum'"):
        read_field({"row_max": 2.0}, "row_sum", "trace[3]")


@pytest.mark.parametrize("size", [1, 7, 8, 9, 100])
def test_shown_places_start_at_0_and_end_at_the_last(size):
    places = shown_places(size, 8)
    assert len(places) == min(size, 8)
    assert (places[0], places[-1]) == (0, size - 1)
    assert (None in places) == (size > 8)
