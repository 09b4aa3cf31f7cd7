"""The book's inputs: one digit, small primes, coded positions."""

import functools
from importlib.resources import as_file, files
from typing import Any

import numpy as np
from einops import rearrange
from jaxtyping import Float, Int

PATCH = 2  # a patch is 2 × 2 pixels
DIGIT = 13  # the first well-drawn 3


def load_digit(index: int = DIGIT) -> Float[np.ndarray, "8 8"]:
    """Return a handwritten digit of 8 × 8 pixels, with values from 0 to 1.

    References
    ----------
    `load_digits`

    Examples
    --------
    >>> load_digit().shape
    (8, 8)
    """
    return load_digits()[0][index].copy()


def digit_label(index: int = DIGIT) -> int:
    """Return which digit 0 … 9 an image shows.

    Examples
    --------
    >>> digit_label()
    3
    """
    return int(load_digits()[1][index])


@functools.cache
def load_digits() -> tuple[Float[np.ndarray, "B 8 8"], Int[np.ndarray, "B"]]:
    """Return 1797 handwritten digits, values from 0 to 1, and what they show.

    Both arrays are shared by all callers, and read-only.

    References
    ----------
    Alpaydin & Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI,
    the test part, as scikit-learn ships it (CC BY 4.0).

    Examples
    --------
    >>> [part.shape for part in load_digits()]
    [(1797, 8, 8), (1797,)]
    """
    with (
        as_file(files("attention_lab") / "digits.npz") as path,
        np.load(path) as data,
    ):
        images = data["images"].astype(np.float32) / np.float32(16)
        labels = data["labels"].astype(np.int64)
    for array in (images, labels):
        array.flags.writeable = False
    return images, labels


def to_patches(
    image: Float[np.ndarray, "rows cols"], patch: int = PATCH
) -> Float[np.ndarray, "L D"]:
    """Cut an image into patches, left to right and top to bottom.

    Raises
    ------
    ValueError
        If `patch` does not divide both sides; names the side and both sizes.

    Examples
    --------
    >>> to_patches(np.arange(16).reshape(4, 4))[1].tolist()
    [2, 3, 6, 7]
    """
    for axis, size in zip(("rows", "cols"), image.shape, strict=True):
        if patch < 1 or size % patch:
            raise ValueError(
                f"image: axis {axis} has size {size}, which patch = {patch} "
                "does not divide"
            )
    return rearrange(image, "(r p) (c q) -> (r c) (p q)", p=patch, q=patch)


def digit_patches(index: int = DIGIT) -> Float[np.ndarray, "16 4"]:
    """Return the digit's 16 patches of 4 pixels: the book's sequence."""
    return to_patches(load_digit(index))


def position_coded(*shape: int) -> Int[np.ndarray, "..."]:
    """Return an array whose every element is its own flat index.

    After any number of views and permutations the value still tells where the
    element came from.

    Examples
    --------
    >>> position_coded(2, 3).tolist()
    [[0, 1, 2], [3, 4, 5]]
    """
    return np.arange(int(np.prod(shape))).reshape(shape)


def example_qkv(
    B: int = 2,
    H: int = 3,
    L: int = 5,
    S: int = 7,
    D: int = 11,
    D_v: int | None = None,
    H_kv: int | None = None,
    seed: int = 0,
    dtype: Any = np.float32,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return normal queries, keys and values; every axis has its own prime.

    Distinct sizes make a swapped axis an error instead of a coincidence.

    Examples
    --------
    >>> [x.shape for x in example_qkv()]
    [(2, 3, 5, 11), (2, 3, 7, 11), (2, 3, 7, 11)]
    """
    rng = np.random.default_rng(seed)
    H_kv = H if H_kv is None else H_kv
    shapes = (
        (B, H, L, D),
        (B, H_kv, S, D),
        (B, H_kv, S, D if D_v is None else D_v),
    )
    q, k, v = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return q, k, v
