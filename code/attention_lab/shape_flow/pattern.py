"""A rearrangement in einops' words, and a root rearranged by it."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import einops
import numpy as np

from attention_lab.shape_flow.memory import Root

_FACTORS = {
    "E": "HD", "P·E": "PHD", "2·E": "PHD", "H·D": "HD", "D·H": "HD",
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class Pattern:
    """One pattern, such as "b l (h d) -> b h l d", with its sizes."""

    text: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    sizes: dict[str, int]

    @property
    def target(self) -> str:
        """The right side."""
        return self.text.partition("->")[2].strip()

    @classmethod
    def read(
        cls, text: str, given: dict[str, int], known: dict[str, int]
    ) -> "Pattern":
        """Read a pattern, or refuse it in one sentence.

        Examples
        --------
        >>> Pattern.read("b l (h d) -> b h l d", {"h": 3}, {}).left
        ('b', 'l', '(h d)')
        """
        left, arrow, right = text.partition("->")
        if not arrow or "..." in text:
            raise ValueError(
                f'pattern {text!r} must read like "b l (h d) -> b h l d"'
            )
        sides = [_groups(text, side) for side in (left, right)]
        names = [sorted(" ".join(g).translate(_PLAIN).split()) for g in sides]
        if names[0] != names[1] or len(set(names[0])) != len(names[0]):
            raise ValueError(
                f"pattern {text!r}: every axis must stand once on each side"
            )
        sizes = {}
        for name in names[0]:
            size = given.get(name, known.get(name.upper()))
            if name in given and (
                isinstance(size, bool) or not isinstance(size, int) or size < 1
            ):
                raise ValueError(
                    f"{name} must be a whole number of at least 1, not {size!r}"
                )
            if name in given or (name in ("h", "d", "p") and size):
                sizes[name] = size
        for group in sides[0]:
            missing = [
                n for n in group.translate(_PLAIN).split() if n not in sizes
            ]
            if "(" in group and len(missing) > 1:
                raise ValueError(
                    f"pattern {text!r}: say the size of {missing[0]}, as in "
                    f"verify(…, {missing[0]}=3)"
                )
        return cls(text, sides[0], sides[1], sizes)

    def rearranged(self, root: Root, known: dict[str, int]) -> list[np.ndarray]:
        """Return the root's codes in the order wanted; none if it fits not.

        Several if its axes have no letters, and may be meant in two orders.
        """
        codes = np.arange(root.size).reshape(root.shape) + root.offset
        letters = list(root.letters)
        codes, letters = _unmerged(codes, letters, known)
        if self.sizes.get("p") == 2 and root.letters[-1:] != ("2·E",):
            return []  # without E known, a plain width would look like it
        if codes.ndim != len(self.left):
            return []
        found = []
        for order in self._orders(letters):
            try:
                turned = codes.transpose(order)
                found.append(einops.rearrange(turned, self.text, **self.sizes))
            except einops.EinopsError:
                continue  # its sizes are not those of the pattern
        return found

    def _orders(self, letters: Sequence[str]) -> list[tuple[int, ...]]:
        """Return which axis of the root may be which of the left side.

        By letters where all are known. Else in the order they stand; but batch
        and tokens may come either way.
        """
        if "?" in letters:
            usual = tuple(range(len(letters)))
            first = [group for group in self.left[:2] if "(" not in group]
            if len(first) < 2 or len(usual) < 3:
                return [usual]
            return [usual, (1, 0, *usual[2:])]
        fits = [
            order
            for order in itertools.permutations(range(len(letters)))
            if all(
                _fits(group, letters[axis])
                for group, axis in zip(self.left, order, strict=True)
            )
        ]
        return fits[:1]

    def joined(self, roots: Sequence[Root]) -> np.ndarray | None:
        """Return heads that are roots of their own, side by side."""
        if len(roots) < 2 or len({r.shape for r in roots}) > 1:
            return None
        if roots[0].kind == "input" or len(self.right) != 3:
            return None
        parts = []
        for root in sorted(roots, key=lambda r: r.offset):
            codes = np.arange(root.size).reshape(root.shape) + root.offset
            if codes.ndim == 4 and codes.shape[1] == 1:
                codes = codes[:, 0]
            parts.append(codes)
        if parts[0].ndim != 3 or len(parts) != self.sizes.get("h", len(parts)):
            return None
        return np.concatenate(parts, axis=-1)


_PLAIN = str.maketrans("()", "  ")


def _groups(text: str, side: str) -> tuple[str, ...]:
    """Cut one side at the spaces outside of parentheses."""
    if side.count("(") != side.count(")"):
        raise ValueError(f"pattern {text!r}: a parenthesis is not closed")
    groups, rest = [], side.split()
    while rest:
        word = rest.pop(0)
        while word.count("(") > word.count(")"):
            word += " " + rest.pop(0)
        groups.append(word.replace("( ", "(").replace(" )", ")"))
    return tuple(groups)


def _fits(group: str, letter: str) -> bool:
    """Whether an axis of the pattern can be an axis with this letter."""
    names = set(group.translate(_PLAIN).upper().split())
    names = {"L" if n in ("S", "N", "T", "Q", "K") else n for n in names}
    if letter == "1":
        return True
    factors = set(_FACTORS.get(letter, letter.replace("S", "L")))
    return names == factors or (len(names) == 1 and not names <= set("BLHDEP"))


def _unmerged(
    codes: np.ndarray, letters: list[str], known: dict[str, int]
) -> tuple[np.ndarray, list[str]]:
    """Open axes such as B·L, so that a pattern can name their parts."""
    shape, found = [], []
    for size, letter in zip(codes.shape, letters, strict=True):
        parts = letter.split("·")
        sizes = [known.get(part, 0) for part in parts]
        opens = len(parts) > 1 and letter not in _FACTORS
        if opens and int(np.prod(sizes)) == size:
            shape += sizes
            found += parts
        else:
            shape.append(size)
            found.append(letter)
    return codes.reshape(shape), found
