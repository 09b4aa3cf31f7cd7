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
    found, why = [], {}
    for axis, size in enumerate(flat.shape):
        if size == 1:
            found.append("1")
            continue
        letter, reason = _axis(places, axis, root, sizes)
        found.append(letter)
        if reason:
            why[axis] = reason
    return _single_sizes(flat.shape, found, root), why


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
) -> tuple[str, str]:
    """Return the letter of one axis longer than 1, or "?" and why."""
    paths, mixed = {}, False
    for number, place in enumerate(places):
        moved = np.moveaxis(place, axis, 0)
        moved = moved.reshape(moved.shape[0], -1)
        if (moved == moved[:1]).all():
            continue
        steps = moved - moved[:1]
        mixed |= bool((steps != steps[:, :1]).any())
        paths[number] = moved[:, 0]
    names = [_name(root, number) for number in paths]
    if not paths:
        return "?", "one element repeated along it"
    if mixed:
        among = " and ".join(names) if len(names) > 1 else names[0]
        return "?", f"steps along it mix {among}" + _of(root)
    if len(paths) == 1:
        ((number, path),) = paths.items()
        letter, total = _one_part(places[number], root, number)
        name = letter if letter not in ("?", "1") else _name(root, number)
        return part_letter(letter, total, path, sizes, name)
    return _merged(paths, root, sizes)


def _one_part(place: np.ndarray, root: Root, number: int) -> tuple[str, int]:
    """Take a root's axis P·E as E, if one third of it is all that is left."""
    letter, total = root.letters[number], root.shape[number]
    low, high = int(place.min()), int(place.max()) + 1
    third = total // 3
    if letter == "P·E" and high - low == third and low % third == 0:
        return "E", third
    return letter, total


def _name(root: Root, axis: int) -> str:
    letter = root.letters[axis]
    return f"axis {axis}" if letter in ("?", "1") else letter


def _of(root: Root) -> str:
    return f" of {root.name}"


def part_letter(
    letter: str, total: int, path: np.ndarray, sizes: dict[str, int], name: str
) -> tuple[str, str]:
    """Name an axis that moves along one axis of the root.

    Parameters
    ----------
    letter, total : of the root's axis.
    path : the places visited.
    sizes : sizes of letters.
    name : how a sentence calls the root's axis.

    Examples
    --------
    >>> part_letter("E", 12, np.array([0, 4, 8]), {"H": 3, "E": 12}, "E")
    ('H', '')
    >>> part_letter("L", 5, np.array([0, 1, 2]), {}, "L")
    ('?', '3 of the 5 of L')
    """
    count = len(path)
    if count == total and len(np.unique(path)) == count:
        if letter == "?":
            return "?", "its root's axis has no letter"
        return letter, ""
    steps = np.unique(np.diff(path))
    if letter == "P·E" and sizes.get("H") == 3 == count:
        # Packed "p h d" or "h p d": the numbers would be the same.
        return "?", "H and P are both 3, and only their names tell them apart"
    if len(steps) == 1 and letter in ("E", "P·E", "H·D", "P·H·D"):
        found = _factor(letter, total, count, int(steps[0]), sizes)
        if found:
            return found, ""
    if len(steps) == 1 and "·" in letter:
        found = _run(letter, count, int(steps[0]), sizes)
        if found:
            return found, ""
    if letter == "H" and count == sizes.get("H"):
        return "H", ""  # key heads, shared by groups of query heads
    return "?", f"{count} of the {total} of {name}"


def _factor(
    letter: str, total: int, count: int, step: int, sizes: dict[str, int]
) -> str:
    """Return which factor of E = H·D, or of P·E, has this size and step."""
    fused = letter.startswith("P")
    E = total // 3 if fused else total
    H = sizes.get("H")
    if H is None:  # the first split of E says it: the outer factor is H
        if count == E and fused and step == 1:
            return "E"
        if fused and count == 3 and step == E:
            return "P"
        if step > 1 and step * count in (E, total):
            return "H"
        return "D" if step == 1 and E % count == 0 else ""
    if E % H:
        return ""
    D = E // H
    factors = {"H": (H, D), "D": (D, 1)}
    if fused:
        factors |= {"P": (3, E), "E": (E, 1)}
    fits = [name for name, (size, _) in factors.items() if size == count]
    if len(fits) > 1:
        fits = [name for name in fits if factors[name][1] == step]
    return fits[0] if len(fits) == 1 else ""


def _run(letter: str, count: int, step: int, sizes: dict[str, int]) -> str:
    """Return which neighbouring factors of B·H, say, are stepped through.

    Examples
    --------
    >>> _run("B·H", 2, 3, {"B": 2, "H": 3})
    'B'
    """
    parts = letter.split("·")
    known = [sizes.get(part, 3 if part == "P" else 0) for part in parts]
    for first, last in itertools.combinations(range(len(parts) + 1), 2):
        inner = math.prod(known[last:])
        if (math.prod(known[first:last]), inner) == (count, step):
            return "·".join(parts[first:last])
    return ""


def _merged(
    paths: dict[int, np.ndarray], root: Root, sizes: dict[str, int]
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
                    root.letters[number],
                    root.shape[number],
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


def join_letters(letters: Sequence[str]) -> str:
    """Return the letter of merged axes.

    Examples
    --------
    >>> join_letters("HD"), join_letters("DH"), join_letters("PHD")
    ('E', 'D·H', 'P·E')
    """
    joined = "·".join(letter for letter in letters if letter != "1")
    return joined.replace("H·D", "E")


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
            letter = _by_size(size, sizes, ("P", "H", "E", "P·E"))
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
        if sizes.get(letter, 3 if letter == "P" else None) == size
    ]
    return fits[0] if len(fits) == 1 else "?"


def size_letter(size: int, sizes: dict[str, int]) -> tuple[str, str]:
    """Name the new axis of a projection by its size, or say why not.

    Examples
    --------
    >>> size_letter(36, {"E": 12})
    ('P·E', '')
    """
    E, H = sizes.get("E"), sizes.get("H")
    if E is None:
        return "?", "made by weights, and the size of E is not known"
    widths = {"E": E, "P·E": 3 * E}
    if H and E % H == 0:
        widths["D"] = E // H
    fits = [letter for letter, width in widths.items() if width == size]
    if len(fits) == 1 or fits[:1] == ["E"]:
        return fits[0], ""
    return "?", f"made by weights, and its size {size} is not E = {E}"
