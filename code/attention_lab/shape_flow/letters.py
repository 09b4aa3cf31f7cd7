"""Axis letters, read from how a step along an axis moves through its root.

A letter is not copied from step to step by the name of the function: it is
read from the element codes. If one step along an axis moves only along E, and
by D places, the axis is H. If it moves along L and E at once, as after a view
without a permute, no letter is true, and it gets a "?" with that reason.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np

from attention_lab.shape_flow.factors import (
    PARTS,
    join_letters,
    part_letter,
    shared_letters,
)
from attention_lab.shape_flow.memory import Root, roots_in

Letters = tuple[tuple[str, ...], dict[int, str]]


def letters_of(
    codes: np.ndarray, roots: Sequence[Root], sizes: dict[str, int]
) -> Letters:
    """Return a letter per axis, and why an axis has none.

    Parameters
    ----------
    codes : exact codes of the tensor.
    roots : all roots of the trace.
    sizes : what is known, such as {"H": 3, "E": 12}.
    """
    if codes.size == 0:
        return _all_unknown(codes.ndim, "an empty tensor tells nothing")
    if (codes == -2).any():
        return _all_unknown(codes.ndim, "its elements could not be followed")
    if (codes < 0).all():
        return _all_unknown(codes.ndim, "it holds constants only")
    if (codes < 0).any():
        return _all_unknown(codes.ndim, "constants are mixed into it")
    used = roots_in(roots, codes)
    if len(used) == 1:
        return _of_one(codes - used[0].offset, used[0], sizes)
    return _of_several(codes, used, sizes)


def _all_unknown(ndim: int, why: str) -> Letters:
    return ("?",) * ndim, dict.fromkeys(range(ndim), why)


def _of_one(flat: np.ndarray, root: Root, sizes: dict[str, int]) -> Letters:
    """Read the axes of a tensor whose elements all come from one root."""
    if flat.ndim == 0:
        return (), {}
    places = np.unravel_index(flat, root.shape) if root.shape else ()
    found, why = ["1"] * flat.ndim, {}
    straight: dict[int, tuple[int, np.ndarray]] = {}
    for axis, size in enumerate(flat.shape):
        if size == 1:
            continue
        read = _axis(places, axis, root, sizes)
        if isinstance(read[0], int):
            straight[axis] = read
            continue
        found[axis], reason = read
        if reason:
            why[axis] = reason
    for axis, (letter, reason) in _name_straight(
        straight, places, root, sizes
    ).items():
        found[axis] = letter
        if reason:
            why[axis] = reason
    return _single_sizes(flat.shape, found, root), why


def _name_straight(
    straight: dict[int, tuple[int, np.ndarray]],
    places: Sequence[np.ndarray],
    root: Root,
    sizes: dict[str, int],
) -> dict[int, tuple[str, str]]:
    """Name axes that move along one axis of the root each."""
    named: dict[int, tuple[str, str]] = {}
    by_number: dict[int, dict[int, np.ndarray]] = {}
    for axis, (number, path) in straight.items():
        by_number.setdefault(number, {})[axis] = path
    for number, paths in by_number.items():
        letter, total = _one_part(places[number], root, number)
        name = letter if letter not in ("?", "1") else _name(root, number)
        shared = shared_letters(letter, total, list(paths.values()), sizes)
        for axis, path in paths.items():
            if shared is None:
                named[axis] = part_letter(letter, total, path, sizes, name)
            else:
                named[axis] = shared.pop(0)
    return named


def _single_sizes(shape: tuple, found: list[str], root: Root) -> tuple:
    """Name an axis of size 1 where only one axis can have gone there."""
    left = [
        letter
        for letter, size in zip(root.letters, root.shape, strict=True)
        if size == 1 and letter not in ("?", "1")
    ]
    axes = [axis for axis, size in enumerate(shape) if size == 1]
    if len(axes) == len(left):  # their order is not seen, and is kept
        for axis, letter in zip(axes, left, strict=True):
            found[axis] = letter
    return tuple(found)


def _axis(
    places: Sequence[np.ndarray],
    axis: int,
    root: Root,
    sizes: dict[str, int],
) -> tuple[str, str] | tuple[int, np.ndarray]:
    """Return the letter of one axis longer than 1, or "?" and why.

    Where it moves along one axis of the root only, return which one, and the
    places visited there.
    """
    paths, mixed = {}, False
    for number, place in enumerate(places):
        moved = np.moveaxis(place, axis, 0)
        moved = moved.reshape(moved.shape[0], -1)
        if (moved == moved[:1]).all():
            continue
        steps = moved - moved[:1]
        mixed |= bool((steps != steps[:, :1]).any())
        paths[number] = moved[:, 0]
    if not paths:
        return "?", "one element repeated along it"
    if mixed:
        names = [_name(root, number) for number in paths]
        return "?", f"steps along it mix {' and '.join(names)}" + _of(root)
    if len(paths) == 1:
        return next(iter(paths.items()))
    return _merged(paths, places, root, sizes)


def _one_part(place: np.ndarray, root: Root, number: int) -> tuple[str, int]:
    """Take a root's axis P·E as E, if one part of it is all that is left."""
    letter, total = root.letters[number], root.shape[number]
    low, high = int(place.min()), int(place.max()) + 1
    part = total // PARTS.get(letter, 1)
    if part < total and high - low == part and low % part == 0:
        return "E", part
    return letter, total


def _name(root: Root, axis: int) -> str:
    letter = root.letters[axis]
    return f"axis {axis}" if letter in ("?", "1") else letter


def _of(root: Root) -> str:
    return f" of {root.name}"


def _merged(
    paths: dict[int, np.ndarray],
    places: Sequence[np.ndarray],
    root: Root,
    sizes: dict[str, int],
) -> tuple[str, str]:
    """Name an axis that runs through several axes of the root."""
    names = " and ".join(_name(root, number) for number in paths)
    mixed = "?", f"steps along it mix {names}" + _of(root)
    count = len(next(iter(paths.values())))
    visited = {k: list(dict.fromkeys(p.tolist())) for k, p in paths.items()}
    for order in itertools.permutations(paths):
        shape = [len(visited[number]) for number in order]
        if math.prod(shape) != count:
            return mixed
        grid = np.unravel_index(np.arange(count), shape)
        if all(
            np.array_equiv(paths[number], np.array(visited[number])[g])
            for number, g in zip(order, grid, strict=True)
        ):
            parts = [
                part_letter(
                    *_one_part(places[number], root, number),
                    np.array(visited[number]),
                    sizes,
                    _name(root, number),
                )
                for number in order
            ]
            letters = [letter for letter, _ in parts]
            if "?" in letters:
                return "?", f"it merges {names}" + _of(root)
            return join_letters(letters), ""
    return mixed


def _of_several(
    codes: np.ndarray, used: Sequence[Root], sizes: dict[str, int]
) -> Letters:
    """Read a tensor put together from several roots, by stack or cat."""
    owner = np.zeros(codes.shape, dtype=np.int64)
    for number, root in enumerate(used):
        mine = (codes >= root.offset) & (codes < root.offset + root.size)
        owner[mine] = number
    found, why = [], {}
    for axis, size in enumerate(codes.shape):
        moved = np.moveaxis(owner, axis, 0).reshape(size, -1)
        if size > 1 and not (moved == moved[:1]).all():
            stacked = size == len(used) and sizes.get("H") == size
            letter = "H" if stacked else _by_size(size, sizes, ("E", "P·E"))
            found.append(letter)
            if letter == "?":
                why[axis] = f"{len(used)} tensors are joined along it"
            continue
        found.append("1" if size == 1 else "?")
    joined = [a for a, s in enumerate(codes.shape) if found[a] == "?"]
    parts = [_piece(codes, owner, number) for number in range(len(used))]
    read = [
        _of_one(part - root.offset, root, sizes)[0]
        for part, root in zip(parts, used, strict=True)
        if part is not None
    ]
    for axis in joined:
        if axis in why:
            continue
        names = {letters[axis] for letters in read}
        if len(read) == len(used) and len(names) == 1:
            found[axis] = names.pop()
        if found[axis] == "?":
            why[axis] = "the joined tensors do not agree about it"
    return tuple(found), why


def _piece(
    codes: np.ndarray, owner: np.ndarray, number: int
) -> np.ndarray | None:
    """Return the block that one root fills, or None if it fills no block."""
    places = np.argwhere(owner == number)
    low, high = places.min(axis=0), places.max(axis=0) + 1
    block = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
    whole = (owner[block] == number).all()
    return codes[block] if whole else None


def _by_size(size: int, sizes: dict[str, int], among: Sequence[str]) -> str:
    fits = [
        letter
        for letter in among
        if ("E" in sizes) and size == sizes["E"] * (3 if "P" in letter else 1)
    ]
    return fits[0] if len(fits) == 1 else "?"
