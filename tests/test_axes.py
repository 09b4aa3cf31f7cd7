import re
from pathlib import Path

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

from attention_lab.axes import (
    AXES,
    ShapeMismatch,
    axis_letters,
    check_axes,
    check_divisible,
    check_tile,
    shape_checked,
)


@shape_checked
def scores(
    q_LD: Float[Tensor, "L D"], k_SD: Float[Tensor, "S D"], rows: int = 1
) -> Float[Tensor, "L S"]:
    return q_LD @ k_SD.T


@shape_checked
def returns_transposed(x_LD: Float[Tensor, "L D"]) -> Float[Tensor, "L D"]:
    return x_LD.T


def test_every_letter_means_one_thing():
    assert list(AXES) == ["B", "L", "S", "H", "D", "E", "P"]
    assert len(set(AXES.values())) == len(AXES)


@pytest.mark.parametrize(
    ("name", "letters"),
    [
        ("scores_BHLS", "BHLS"),
        ("row_max", ""),
        ("x", ""),
        ("qkv_PBHLD", "PBHLD"),
    ],
)
def test_letters_are_read_from_the_end_of_a_name(name, letters):
    assert axis_letters(name) == letters


def test_the_page_of_the_axis_key_says_the_same():
    page = Path(__file__).parents[1] / "book" / "axis_key.md"
    rows = re.findall(
        r"^\| ([A-Z]) \| ([^|]+?) \|[^|]*\|$",
        page.read_text(encoding="utf-8"),
        flags=re.MULTILINE,
    )
    assert dict(rows) == AXES


def test_a_right_call_goes_through():
    assert scores(torch.zeros(5, 11), torch.zeros(7, 11)).shape == (5, 7)


def test_a_size_mismatch_names_argument_axis_and_both_sizes():
    message = r"k_SD: axis D has size 13, but q_LD has D = 11"
    with pytest.raises(ShapeMismatch, match=message):
        scores(torch.zeros(5, 11), torch.zeros(7, 13))


def test_a_wrong_rank_names_the_axes_that_are_needed():
    with pytest.raises(ShapeMismatch, match=r"q_LD has 3 axes .* needed: L D"):
        scores(torch.zeros(1, 5, 11), torch.zeros(7, 11))


def test_a_wrong_dtype_is_named():
    with pytest.raises(ShapeMismatch, match="k_SD has dtype int64"):
        scores(torch.zeros(5, 11), torch.zeros(7, 11, dtype=torch.int64))


def test_a_wrong_kind_of_array_is_named():
    with pytest.raises(
        ShapeMismatch, match="q_LD must be a Tensor, not ndarray"
    ):
        scores(np.zeros((5, 11)), torch.zeros(7, 11))


def test_a_wrong_plain_argument_is_named():
    with pytest.raises(
        ShapeMismatch, match="rows must be of type int, not str"
    ):
        scores(torch.zeros(5, 11), torch.zeros(7, 11), rows="two")


def test_a_function_that_returns_a_wrong_shape_is_caught():
    with pytest.raises(Exception, match="return"):
        returns_transposed(torch.zeros(5, 11))


def test_width_is_divided_among_heads():
    assert check_divisible(12, 3, "embed_dim", "num_heads") == 4


@pytest.mark.parametrize(
    ("E", "H", "message"),
    [
        (10, 3, r"embed_dim: axis E has size 10, which num_heads H = 3"),
        (0, 3, "embed_dim: axis E must be a whole number of at least 1, not 0"),
        (
            12,
            0,
            "num_heads: axis H must be a whole number of at least 1, not 0",
        ),
        (12, -3, "num_heads: axis H"),
        (12, 3.0, "num_heads: axis H must be a whole number"),
        (12, True, "num_heads: axis H must be a whole number"),
    ],
)
def test_widths_that_cannot_be_divided_are_refused(E, H, message):
    with pytest.raises(ShapeMismatch, match=message):
        check_divisible(E, H, "embed_dim", "num_heads")


@pytest.mark.parametrize("size", [0, -4, 2.0, True, "4"])
def test_tiles_below_one_are_refused(size):
    with pytest.raises(ValueError, match="TILE_S must be a whole number"):
        check_tile("TILE_S", size)


def test_an_argument_without_axes_is_refused():
    with pytest.raises(ShapeMismatch, match="x_BLE must be an array"):
        check_axes("x_BLE", [1, 2], "BLE")
