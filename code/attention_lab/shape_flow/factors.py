"""What a width is made of: E = H·D, and P·E in its packing orders.

A fused axis is written P·E: queries, keys and values one after the other
(einops' "p h d"). Where it is split in another order, sizes and steps say so;
where they cannot tell two letters apart, as with H = 3 = P, the answer is "?".
Keys and values alone, as in torch's attention to another sequence, are 2·E; the
axis of these two has no letter.
"""

import itertools
import math
from collections.abc import Sequence

import numpy as np

#: How many projections lie side by side in a width.
PARTS = {"P·E": 3, "2·E": 2}


def shared_letters(
    letter: str, total: int, paths: Sequence[np.ndarray], sizes: dict[str, int]
) -> list[tuple[str, str]] | None:
    """Name several axes that share one axis of the root, or return None.

    Examples
    --------
    >>> rows, columns = np.array([0, 4, 8]), np.array([0, 1, 2, 3])
    >>> shared_letters("E", 12, [rows, columns], {})
    [('H', ''), ('D', '')]
    """
    if letter not in ("E", *PARTS) or len(paths) < 2:
        return None
    moves = []
    for path in paths:
        steps = np.unique(np.diff(path))
        if len(steps) != 1:
            return None
        moves.append((len(path), int(steps[0])))
    parts = PARTS.get(letter, 1)
    fused = parts > 1
    E, H = total // parts, sizes.get("H")
    if H is None:
        inner = [count for count, step in moves if step == 1]
        if not inner or E % inner[0] or inner[0] == E:
            return None
        H = E // inner[0]
        if not fused and len(moves) != 2:
            return None
    if E % H:
        return None
    read = [
        [names[move] for move in moves]
        for names in _layouts(parts, E, H)
        if all(move in names for move in moves)
    ]
    if not read:
        return None
    return [_only(options) for options in zip(*read, strict=True)]


def _only(options: Sequence[str]) -> tuple[str, str]:
    """Return the letter on which all readings agree, or why there is none."""
    if len(set(options)) > 1:
        return "?", f"{' and '.join(dict.fromkeys(options))} have one size"
    return options[0], "keys, then values" if options[0] == "?" else ""


def _layouts(parts: int, E: int, H: int) -> list[dict[tuple[int, int], str]]:
    """Return (size, step) → letter, for each order an axis can be packed in.

    Orders in which two axes would look alike are left out.
    """
    D, n = E // H, parts
    if n == 1:
        return [{(H, D): "H", (D, 1): "D"}]
    P = "P" if n == 3 else "?"
    every = [
        {(n, E): P, (H, D): "H", (D, 1): "D"},
        {(H, n * D): "H", (n, D): P, (D, 1): "D"},
        {(H, n * D): "H", (D, n): "D", (n, 1): P},
        {(n, E): P, (E, 1): "E"},
    ]
    return [names for names in every if len(names) > 1]


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
    if len(steps) == 1 and letter in ("E", *PARTS):
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
    """Return which factor of E = H·D, or of P·E, has this size and step.

    Examples
    --------
    >>> _factor("E", 12, 3, 4, {"H": 3}), _factor("E", 12, 3, 1, {"H": 3})
    ('H', '')
    """
    parts = PARTS.get(letter, 1)
    E, H = total // parts, sizes.get("H")
    if parts > 1 and (count, step) == (E, 1):
        return "E"
    if H is None or E % H:
        return ""
    layouts = _layouts(parts, E, H)
    fits = {names[count, step] for names in layouts if (count, step) in names}
    return fits.pop() if len(fits) == 1 and fits != {"?"} else ""


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


def join_letters(letters: Sequence[str]) -> str:
    """Return the letter of merged axes.

    Examples
    --------
    >>> join_letters("HD"), join_letters("DH"), join_letters("PHD")
    ('E', 'D·H', 'P·E')
    """
    joined = "·".join(letter for letter in letters if letter != "1")
    return joined.replace("H·D", "E")


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
    widths = {"E": E} | {fused: n * E for fused, n in PARTS.items()}
    if H and E % H == 0:
        widths["D"] = E // H
    fits = [letter for letter, width in widths.items() if width == size]
    if len(fits) == 1 or fits[:1] == ["E"]:
        return fits[0], ""
    return "?", f"made by weights, and its size {size} is not E = {E}"
