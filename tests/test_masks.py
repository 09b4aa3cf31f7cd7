import numpy as np
import pytest
import torch

from attention_lab import masks


def test_upper_left_is_pytorchs_is_causal():
    expected = np.tril(np.ones((2, 5), bool))
    np.testing.assert_array_equal(masks.causal(2, 5), expected)


def test_lower_right_lets_the_last_query_see_everything():
    expected = [[1, 1, 1, 1, 0], [1, 1, 1, 1, 1]]
    mask = masks.causal(2, 5, align="lower_right")
    np.testing.assert_array_equal(mask, np.array(expected, bool))


def test_lower_right_with_more_queries_than_keys_leaves_rows_empty():
    mask = masks.causal(5, 2, align="lower_right")
    np.testing.assert_array_equal(mask.sum(1), [0, 0, 0, 1, 2])


def test_both_alignments_agree_when_lengths_are_equal():
    np.testing.assert_array_equal(
        masks.causal(7, 7), masks.causal(7, 7, align="lower_right")
    )


def test_changing_the_future_is_invisible_to_every_row():
    for row, keep in enumerate(masks.causal(7, 7)):
        assert keep[: row + 1].all()
        assert not keep[row + 1 :].any()


def test_a_window_sees_its_width_and_no_more():
    counts = masks.window(7, 7, width=3).sum(1)
    np.testing.assert_array_equal(counts, [1, 2, 3, 3, 3, 3, 3])
    np.testing.assert_array_equal(masks.window(5, 5, 5), masks.causal(5, 5))


def test_padding_keeps_the_first_keys_of_each_sequence():
    mask = masks.padding([3, 0, 5], S=5)
    assert mask.shape == (3, 1, 1, 5)
    np.testing.assert_array_equal(mask.sum((1, 2, 3)), [3, 0, 5])
    assert mask[0, 0, 0].tolist() == [True, True, True, False, False]


def test_a_tensor_asked_for_is_a_tensor_given():
    mask = masks.causal(2, 3, like=torch.zeros(1))
    assert mask.dtype == torch.bool
    np.testing.assert_array_equal(mask.numpy(), masks.causal(2, 3))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: masks.causal(-1, 3), "L must be at least 0, not -1"),
        (lambda: masks.causal(2, 3.0), "S must be a whole number"),
        (lambda: masks.causal(2, 3, align="top"), "align must be .* not 'top'"),
        (
            lambda: masks.window(2, 3, width=0),
            "width must be at least 1, not 0",
        ),
        (lambda: masks.causal(2, 3, like=[1]), "like must be a torch tensor"),
        (lambda: masks.padding([4], S=3), r"0 … S = 3, not \[4\]"),
        (lambda: masks.padding([1.5], S=3), "whole numbers along axis B"),
        (lambda: masks.padding([[1]], S=3), "whole numbers along axis B"),
    ],
)
def test_bad_sizes_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_extreme_windows_and_batches():
    np.testing.assert_array_equal(
        masks.window(3, 3, 10**30), masks.causal(3, 3)
    )
    assert masks.padding([], S=3).shape == (0, 1, 1, 3)
