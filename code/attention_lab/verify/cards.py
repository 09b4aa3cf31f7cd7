"""The museum's cards: the symptom first, then a guess, then the report.

The report on a card is made when the card is shown: the exhibit runs, and the
check that catches it speaks.
"""

import html
import zlib
from dataclasses import dataclass

import torch._dynamo  # noqa: F401 - torch loads it at the first checkpoint

from attention_lab.source import show_source
from attention_lab.verify.attention.battery import verify_attention
from attention_lab.verify.known_mistakes import (
    ROOMS,
    KnownMistake,
    known_mistakes,
)
from attention_lab.verify.report import Check, Report

#: How many causes a reader chooses from.
CHOICES = 3
#: The sizes that modules of the museum are built with.
EMBED_DIM, NUM_HEADS = 15, 3


def examine(card: KnownMistake) -> Report:
    """Run the verifier that takes an exhibit's kind on it, in this process."""
    exhibit = card.exhibit()
    if card.kind == "attention":
        return verify_attention(exhibit, only=[card.check], isolate=False)
    if card.kind == "module":
        from attention_lab.verify.module.battery import verify_module

        return verify_module(
            exhibit, EMBED_DIM, NUM_HEADS, only=[card.check], isolate=False
        )
    from attention_lab.verify.kernel.battery import verify_kernel

    case = exhibit()
    return verify_kernel(
        case.kernel,
        case.launch,
        case.reference,
        only=[card.check],
        isolate=False,
        **case.options,
    )


@dataclass(frozen=True)
class Card:
    """One card with the check that caught its exhibit; shows in a notebook."""

    mistake: KnownMistake
    check: Check

    @property
    def choices(self) -> tuple[str, ...]:
        """Return causes to choose from: the right one among others."""
        others = [
            card
            for card in known_mistakes().values()
            if card.room == self.mistake.room and card.id != self.mistake.id
        ]
        others.sort(key=lambda card: _shuffled(self.mistake.id + card.id))
        chosen = [self.mistake, *others[: CHOICES - 1]]
        chosen.sort(key=lambda card: _shuffled(card.id + self.mistake.id))
        return tuple(card.cause for card in chosen)

    def __repr__(self) -> str:
        choices = "\n".join(f"  ? {cause}" for cause in self.choices)
        return "\n".join(
            [
                self.mistake.title,
                self.mistake.symptom,
                choices,
                f"The check “{self.check.name}” says: {self.check.what}",
                f"It is: {self.mistake.cause}",
                f"Seen in: {self.mistake.source}",
            ]
        )

    def _repr_html_(self) -> str:
        card, write = self.mistake, html.escape
        choices = "".join(f"<li>{write(cause)}</li>" for cause in self.choices)
        code = write(show_source(card.exhibit()).code)
        return (
            f'<section class="exhibit" id="{card.id}">'
            f'<p class="exhibit-title">{write(card.title)}</p>'
            f"<p>{write(card.symptom)}</p>"
            f"<p>Which of these is it?</p><ul>{choices}</ul>"
            "<details><summary>Guess first, then open the report</summary>"
            f"<p>The check <em>{write(self.check.name)}</em> says: "
            f"{write(self.check.what)}</p>"
            f"<p><strong>It is this:</strong> {write(card.cause)}</p>"
            f'<p>Explained on the page <a href="{card.page}.html">'
            f"{write(card.page.replace('_', ' '))}</a>. "
            f"Seen in: {write(card.source)}.</p>"
            f'<pre tabindex="0"><code>{code}</code></pre>'
            "</details></section>"
        )


def _shuffled(text: str) -> int:
    """Return a number that stands for a text, the same in every run."""
    return zlib.crc32(text.encode())


@dataclass(frozen=True)
class Cards:
    """Some cards of one room; shows them one below the other."""

    cards: tuple[Card, ...]

    def __repr__(self) -> str:
        return "\n\n".join(map(repr, self.cards))

    def _repr_html_(self) -> str:
        return "\n".join(card._repr_html_() for card in self.cards)


def show_cards(
    room: str, checks: list[str], part: slice = slice(None)
) -> Cards:
    """Run a room's exhibits that these checks catch, and show their cards.

    Parameters
    ----------
    room : one of `known_mistakes.ROOMS`, such as "masks".
    checks : names of checks, as on the cards.
    part : which of those cards, where there are many.

    Raises
    ------
    ValueError
        If the room does not exist or no card fits.
    AssertionError
        If a check lets its exhibit pass.

    Examples
    --------
    >>> shown = show_cards("masks", ["mask and causal"])
    >>> shown.cards[0].check.mistake
    'causal-and-mask-one-ignored'
    """
    if room not in ROOMS:
        raise ValueError(
            f"room must be one of {', '.join(ROOMS)}, not {room!r}"
        )
    chosen = [
        card
        for card in known_mistakes().values()
        if card.room == room and card.check in checks
    ][part]
    if not chosen:
        raise ValueError(f"no card of the room {room!r} fits {checks}")
    return Cards(tuple(map(_examined, chosen)))


def _examined(card: KnownMistake) -> Card:
    check = examine(card)[card.check]
    if check.passed:
        raise AssertionError(f"the check {card.check!r} lets {card.id} pass")
    return Card(card, check)
