"""Where elements came from: back to their root, and back to the inputs."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_lab.shape_flow.errors import CannotFollow
from attention_lab.shape_flow.memory import Root, find_root, roots_in
from attention_lab.shape_flow.steps import SAME, Value

_NOUNS = {
    "B": "batch",
    "L": "token",
    "S": "token",
    "H": "head",
    "D": "channel",
    "E": "column",
    "P": "part",
}
Place = tuple[int, ...]


@dataclass(frozen=True)
class Origin:
    """Where one element came from.

    Attributes
    ----------
    root : the tensor that it is an element of: an input, or what a computing
        step made; "a constant" for a number that was written in.
    index : its place there.
    inputs : by input, the places of all elements it can depend on. A mask can
        leave fewer; never more.
    """

    root: str
    index: Place
    inputs: dict[str, tuple[Place, ...]]

    def __str__(self) -> str:
        sources = "; ".join(
            f"{name} at {len(places)} places"
            for name, places in self.inputs.items()
        )
        depends = sources or "no input"
        return f"{self.root}{list(self.index)}, depends on {depends}"

    def along(self, name: str, *axes: int) -> tuple[Place, ...]:
        """Return the distinct places along some axes of an input.

        One tensor passed under two names is found by either.

        Examples
        --------
        >>> Origin("x", (0, 1), {"x": ((0, 1), (0, 2))}).along("x", 0)
        ((0,),)
        """
        places = {
            tuple(p[a] for a in axes)
            for known, reached in self.inputs.items()
            for p in reached
            if name in (known, *known.split(SAME))
        }
        return tuple(sorted(places))


def of_element(flow: Any, value: Value, index: Sequence[int]) -> Origin:
    """Return the origin of one element; see `ShapeFlow.origin`."""
    codes = followed(value)
    place = check_place(value, index)
    code = int(codes[place])
    if code == -1:
        return Origin("a constant", (), {})
    root = find_root(flow.roots, code)
    at = np.unravel_index(code - root.offset, root.shape) if root.shape else ()
    reached = reach(flow.roots, np.array([code]))
    return Origin(
        root.name,
        tuple(int(i) for i in at),
        {
            name: tuple(tuple(int(i) for i in p) for p in np.argwhere(mask))
            for name, mask in reached.items()
        },
    )


def followed(value: Value) -> np.ndarray:
    """Return the codes of a value, or say why there are none."""
    if value.codes is None:
        raise CannotFollow(f"cannot follow {value.name}: {value.reason}")
    if (value.codes == -2).any():
        raise CannotFollow(
            f"cannot follow {value.name}: it holds memory that no recorded "
            "step has written"
        )
    return value.codes


def check_place(value: Value, index: Sequence[int]) -> Place:
    """Return the index as a tuple, or refuse one that does not exist."""
    place = tuple(index)
    if len(place) != len(value.shape):
        raise ValueError(
            f"index has {len(place)} numbers, but {value.name} has "
            f"{len(value.shape)} axes {value.shape}"
        )
    for axis, (at, size) in enumerate(zip(place, value.shape, strict=True)):
        if not 0 <= at < size:
            raise ValueError(
                f"index: axis {axis} of {value.name} ends at {size - 1}; "
                f"there is no {at}"
            )
    return tuple(int(at) for at in place)


def reach(roots: Sequence[Root], codes: np.ndarray) -> dict[str, np.ndarray]:
    """Return, by input, which of its elements these codes can depend on.

    Walks back from the newest root to the oldest; each element is marked
    once, so the cost is that of one pass over the trace.

    Raises
    ------
    CannotFollow
        If the way back leads through a step that is not known.
    """
    needed: dict[int, np.ndarray] = {}
    _mark(roots, needed, codes)
    for root in sorted(roots, key=lambda r: r.offset, reverse=True):
        mask = needed.get(id(root))
        if mask is None or root.kind in ("input", "constant"):
            continue
        if root.kind == "opaque":
            raise CannotFollow(
                f"cannot follow further back than {root.name}: {root.reason}"
            )
        for parent, labels in root.parents:
            taken = project(mask.reshape(root.shape), root.labels, labels)
            taken = np.broadcast_to(taken, parent.shape)
            _mark(roots, needed, parent[taken])
    return {
        root.name: needed[id(root)].reshape(root.shape)
        for root in roots
        if root.kind == "input" and id(root) in needed
    }


def _mark(
    roots: Sequence[Root], needed: dict[int, np.ndarray], codes: np.ndarray
) -> None:
    if (codes == -2).any():
        raise CannotFollow(
            "cannot follow: it depends on memory that no recorded step wrote"
        )
    for root in roots_in(list(roots), codes):
        mask = needed.setdefault(id(root), np.zeros(root.size, dtype=bool))
        flat = codes[(codes >= root.offset)] - root.offset
        mask[flat[flat < root.size]] = True


def project(mask: np.ndarray, labels: tuple, onto: tuple) -> np.ndarray:
    """Carry a mask over a result's axes to an operand's, by their labels.

    Axes that only the operand has get size 1, to be broadcast: all of it is
    taken.

    Examples
    --------
    >>> project(np.array([[True, False]]), ("i", "j"), ("k", "j")).tolist()
    [[True, False]]
    """
    gone = tuple(a for a, label in enumerate(labels) if label not in onto)
    kept = [label for label in labels if label in onto]
    mask = mask.any(axis=gone) if gone else mask
    order = [kept.index(label) for label in onto if label in kept]
    mask = np.transpose(mask, order)
    place = tuple(slice(None) if la in kept else None for la in onto)
    return mask[place]


def contents(
    flow: Any, value: Value, axes: str | None, fixed: dict[str, int]
) -> str:
    """Say what a part of a value holds; see `ShapeFlow.contents`."""
    followed(value)
    letters = value.letters if axes is None else tuple(axes.replace(" ", ""))
    if len(letters) != len(value.shape):
        raise ValueError(
            f"axes: {''.join(letters)!r} names {len(letters)} axes, but "
            f"{value.name} has {len(value.shape)}: {value.shape}"
        )
    for letter in fixed:
        if letter not in letters:
            raise ValueError(
                f"{letter}: {value.name} has axes {' '.join(letters)}; pass "
                'axes="…" if they are meant otherwise'
            )
    batch = {"B": 0} if "B" in letters else {}
    chosen = {**batch, **fixed}
    index: list[Any] = []
    for letter, size in zip(letters, value.shape, strict=True):
        at = chosen.get(letter)
        if at is not None and not 0 <= at < size:
            raise ValueError(
                f"{letter} = {at}: axis {letter} of {value.name} has size "
                f"{size}"
            )
        index.append(slice(None) if at is None else at)
    part = value.line[tuple(index)]
    subject = " of ".join(
        f"{_NOUNS.get(letter, letter)} {at}"
        for letter, at in sorted(
            fixed.items(), key=lambda item: "DEHPLSB".find(item[0])
        )
    )
    return f"{subject or value.name} holds {held(flow.roots, part)}"


def held(roots: Sequence[Root], part: np.ndarray) -> str:
    """Say which tokens and columns a piece holds."""
    flat = part.reshape(-1)
    used = roots_in(list(roots), flat)
    if not used:
        return "constants"
    if len(used) > 1:
        return "elements of " + ", ".join(root.name for root in used)
    (root,) = used
    places = np.unravel_index(flat[flat >= 0] - root.offset, root.shape)
    if len(root.shape) < 2:
        return f"{span('element', 'elements', places[0])} of {root.name}"
    token = next(
        (a for a, x in enumerate(root.letters[:-1]) if x in ("L", "S")),
        len(root.shape) - 2,
    )
    columns = {
        int(t): places[-1][places[token] == t] for t in np.unique(places[token])
    }
    words = {t: span("column", "columns", c) for t, c in columns.items()}
    if len(set(words.values())) == 1:
        tokens = np.array(list(columns))
        return f"{next(iter(words.values()))} of " + span(
            "token", "tokens", tokens
        )
    listed = [str(t) for t in words]
    named = ", ".join(listed[:-1]) + f" and {listed[-1]}"
    pieces = [f"{w} of token {t}" for t, w in words.items()]
    shown = ", ".join(pieces[:3]) + (", …" if len(pieces) > 3 else "")
    return f"tokens {named} mixed: {shown}"


def span(one: str, many: str, numbers: np.ndarray) -> str:
    """Write numbers in the order they stand, short where they are a run.

    Examples
    --------
    >>> span("column", "columns", np.array([4, 5, 6, 7]))
    'columns 4…7'
    """
    listed = list(dict.fromkeys(int(n) for n in numbers))
    if len(listed) == 1:
        return f"{one} {listed[0]}"
    if listed == list(range(listed[0], listed[0] + len(listed))):
        return f"{many} {listed[0]}…{listed[-1]}"
    shown = ", ".join(map(str, listed[:6]))
    return f"{many} {shown}" + (", …" if len(listed) > 6 else "")


def name_element(roots: Sequence[Root], code: int) -> str:
    """Name one element by its root: "token 1, column 8 of linear (step 1)".

    Examples
    --------
    >>> root = Root("x", "input", None, (1, 2, 3), 0, ("B", "L", "E"))
    >>> name_element([root], 5)
    'batch 0, token 1, column 2 of x'
    """
    if code < 0:
        return "a constant" if code == -1 else "an unknown number"
    root = find_root(list(roots), code)
    at = np.unravel_index(code - root.offset, root.shape) if root.shape else ()
    words = []
    for axis, (letter, place) in enumerate(zip(root.letters, at, strict=True)):
        noun = _NOUNS.get(letter, "")
        if letter in ("P·E", "2·E", "H·D", "?") and axis == len(at) - 1:
            noun = "column"
        words.append(f"{noun or f'axis {axis}:'} {int(place)}")
    return f"{', '.join(words)} of {root.name}"
