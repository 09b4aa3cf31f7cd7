import subprocess
import sys

import numpy as np
import pytest

from attention_lab import examples
from attention_lab.source import plain_function, show_source
from attention_lab.steps import flash_forward, multi_head


def test_importing_the_package_imports_nothing_heavy():
    code = (
        "import sys, attention_lab, attention_lab.reference, "
        "attention_lab.masks\n"
        "heavy = {'torch', 'numba', 'matplotlib', 'sklearn'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert ran.stdout.strip() == "[]"


def test_the_source_of_a_kernel_is_the_kernels_own():
    source = show_source(multi_head.split_heads_kernel)
    assert "def split_heads_kernel(x_BHLD, x_BLE):" in repr(source)
    assert "# 3. Store" in source.code
    assert source._repr_markdown_().startswith("```python\n@cuda.jit")


def test_the_source_of_a_kernel_from_a_factory_is_not_indented():
    from numba import float32

    kernel = flash_forward.make_flash_kernel(3, 3, 4, 4, float32, False, False)
    source = show_source(kernel).code
    assert source.startswith("@cuda.jit\ndef flash_kernel(")
    assert plain_function(kernel).__name__ == "flash_kernel"


def test_a_checked_function_shows_its_own_code():
    assert "permute(0, 2, 1, 3)" in show_source(multi_head.split_heads).code


def test_a_docstring_is_shortened_and_the_code_is_not():
    short = show_source(flash_forward.flash_forward).code
    whole = show_source(flash_forward.flash_forward, whole=True).code
    assert '"""Attend tile by tile; return the output and the' in short
    assert "Parameters\n" in whole
    assert "Parameters\n" not in short
    body = whole[whole.rindex('"""') + 3 :]
    assert short.endswith(body)


def test_patches_are_cut_in_reading_order():
    image = examples.position_coded(8, 8)
    patches = examples.to_patches(image)
    assert patches.shape == (16, 4)
    np.testing.assert_array_equal(patches[0], [0, 1, 8, 9])
    np.testing.assert_array_equal(patches[5], [18, 19, 26, 27])
    np.testing.assert_array_equal(patches[15], [54, 55, 62, 63])


def test_the_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    images, labels = examples.load_digits()
    np.testing.assert_array_equal(images, load_digits().images / 16)
    np.testing.assert_array_equal(labels, load_digits().target)
    with pytest.raises(ValueError, match="read-only"):
        images[0, 0, 0] = 1


def test_the_digit_is_a_three_between_zero_and_one():
    assert examples.digit_label() == 3
    digit = examples.load_digit()
    assert digit.shape == (8, 8)
    assert digit.dtype == np.float32
    assert digit.min() == 0.0
    assert digit.max() == 1.0


@pytest.mark.parametrize("patch", [3, 0, 16])
def test_a_patch_that_does_not_divide_the_image_is_refused(patch):
    with pytest.raises(ValueError, match="axis rows has size 8, which patch ="):
        examples.to_patches(np.zeros((8, 8)), patch)


def test_position_code_tells_where_an_element_came_from():
    coded = examples.position_coded(2, 3, 5)
    assert coded[1, 2, 4] == np.ravel_multi_index((1, 2, 4), (2, 3, 5))
    assert len(set(coded.ravel().tolist())) == 30
