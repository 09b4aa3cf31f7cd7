import numpy as np
import pytest
import torch

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_array,
    as_number,
    as_sequence,
    as_text,
    as_whole,
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
        as_array("x_BLE", np.zeros((2, 3)), axes="BLE")


def test_a_name_without_letters_is_not_spelled_out_as_axes():
    with pytest.raises(ShapeMismatch, match=r"but 1 are needed: D$"):
        as_array("output", np.zeros((2, 3)), axes="D")


@pytest.mark.parametrize(
    ("ragged", "sizes"),
    [
        ([[0.5, 0.5], [1.0]], "axis S has size 1 in one place and 2 in"),
        ([np.ones(2), np.ones(3)], "axis S has size 2 in one place and 3 in"),
        ([torch.ones(2), torch.ones(5)], "axis S has size 2 .* and 5 in"),
        ([[[1], [2]], [[3], [4, 5]]], "axis 2 has size 1 .* and 2 in"),
    ],
)
def test_ragged_rows_are_refused_with_axis_and_sizes(ragged, sizes):
    with pytest.raises(ShapeMismatch, match=f"x_LS is ragged: {sizes}"):
        as_array("x_LS", ragged)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (torch.eye(2).to_sparse(), r"a sparse tensor of shape \(2, 2\)"),
        (torch.ones(2, 3, device="meta"), r"a meta tensor of shape \(2, 3\)"),
        (torch.ones(2, dtype=torch.complex64), "not complex64"),
        (np.ones(2, dtype=complex).tolist(), "not complex128"),
        (torch.ones(2, dtype=torch.complex64).conj(), "cannot be read as"),
        ([[1.0, 2.0], 3.0], "cannot be read as an array of real numbers"),
        ([1.0, None], "not object"),
        (None, "real numbers, not NoneType"),
        ({1.0}, "real numbers, not set"),
        (iter([1.0]), "real numbers, not list_iterator"),
    ],
)
def test_what_is_no_array_of_real_numbers_is_refused(data, kind):
    with pytest.raises(ValueError, match=f"x_LS .*{kind}"):
        as_array("x_LS", data)


@pytest.mark.parametrize(
    "value", [None, "a", True, 1j, np.nan, np.inf, -np.inf, [1.0, 2.0], []]
)
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(ValueError, match="tolerance must be one finite number"):
        as_number("tolerance", value)


def test_a_number_is_held_to_its_least_value():
    assert as_number("tolerance", torch.tensor(0.5), least=0) == 0.5
    assert as_number("row_max", -np.inf, allow_minus_inf=True) == -np.inf
    with pytest.raises(ValueError, match=r"at least 0, not -0\.5"):
        as_number("tolerance", -0.5, least=0)


@pytest.mark.parametrize("value", [None, "a", True, 1.0, -1, [1], 10**30])
def test_what_is_no_whole_number_is_refused(value):
    with pytest.raises(ValueError, match="tile_row must be a whole number of"):
        as_whole("tile_row", value)


@pytest.mark.parametrize("value", [2, np.int8(2), torch.tensor(2)])
def test_a_whole_number_of_any_library_is_taken(value):
    assert as_whole("tile_row", value) == 2


@pytest.mark.parametrize("value", [None, 3, "", "  ", b"title", ["title"]])
def test_what_is_no_text_is_refused(value):
    with pytest.raises(
        ValueError, match="title must be text that is not empty"
    ):
        as_text("title", value)


@pytest.mark.parametrize(
    "value",
    [None, 3, "ab", {0: 1}, {0, 1}, iter([0, 1]), zip([0], [1], strict=True),
     np.array(3), torch.tensor(3)],
)  # fmt: skip
def test_what_is_no_list_is_refused(value):
    with pytest.raises(ValueError, match="heads must be a list of heads, not"):
        as_sequence("heads", value, "a list of heads")


def test_a_list_is_held_to_its_length():
    assert as_sequence("pair", np.array([2, 1]), "a pair", 2) == [2, 1]
    with pytest.raises(ValueError, match=r"pair must be a pair, not \(0,\)"):
        as_sequence("pair", (0,), "a pair", 2)


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
