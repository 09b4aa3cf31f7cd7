"""The museum's catalogue: every known mistake, with its words and its code.

`museum/` holds one room per kind of mistake. A room is two files: the text
(`masks.toml`) and the exhibits (`masks.py`), code that makes the mistake the
way people made it. The id ``mask-polarity`` of the text is the name
`mask_polarity` in the code.
"""

import importlib
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

Kind = Literal["attention", "module", "kernel"]
ROOMS = (
    "masks",
    "softmax",
    "heads",
    "online",
    "backward",
    "modules",
    "kernels",
)


@dataclass(frozen=True)
class KnownMistake:
    """One exhibit's card.

    `symptom` is what its user sees, `cause` the mistake in one sentence,
    `hint` and `bigger_hint` lead to the remedy without giving it away.
    `source` is the public report, `check` the check that catches it, `page`
    the page that explains it. `kind` says which verifier takes the exhibit.
    """

    id: str
    room: str
    kind: Kind
    title: str
    symptom: str
    cause: str
    hint: str
    bigger_hint: str
    source: str
    check: str
    page: str

    @property
    def link(self) -> str:
        """Return the address of the card in the museum."""
        return f"museum.html#{self.id}"

    def exhibit(self) -> Any:
        """Return the exhibit: a function, a module's class, a kernel's case."""
        room = importlib.import_module(
            f"attention_lab.verify.museum.{self.room}"
        )
        return getattr(room, self.id.replace("-", "_"))


@cache
def known_mistakes() -> dict[str, KnownMistake]:
    """Read the catalogue; id -> card, in the order of the rooms.

    Examples
    --------
    >>> known_mistakes()["mask-polarity"].room
    'masks'
    """
    cards: dict[str, KnownMistake] = {}
    for room in ROOMS:
        path = Path(__file__).parent / "museum" / f"{room}.toml"
        for name, text in tomllib.loads(path.read_text("utf-8")).items():
            if name in cards:
                raise ValueError(f"{path.name}: {name} is in two rooms")
            cards[name] = KnownMistake(id=name, room=room, **text)
    return cards
