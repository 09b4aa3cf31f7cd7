"""The museum's catalogue: complete, consistent, and without solutions."""

import inspect
import re
from pathlib import Path

import pytest

from attention_lab.verify.attention.kinds import KINDS
from attention_lab.verify.known_mistakes import ROOMS, known_mistakes

CARDS = known_mistakes()
BOOK = Path(__file__).parents[2] / "book"
MUSEUM = (
    Path(__file__).parents[2] / "code" / "attention_lab" / "verify" / "museum"
)


def test_there_are_more_than_45_exhibits_in_every_room_some():
    assert len(CARDS) >= 45
    assert {card.room for card in CARDS.values()} == set(ROOMS)


@pytest.mark.parametrize("name", CARDS)
def test_every_card_has_an_exhibit_that_can_be_called(name):
    assert callable(CARDS[name].exhibit())


@pytest.mark.parametrize("name", CARDS)
def test_every_card_is_filled_in(name):
    card = CARDS[name]
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
    for text in ("title", "symptom", "cause", "hint", "bigger_hint", "source"):
        value = getattr(card, text)
        assert value.strip() == value, text
        assert value, text
    for text in ("symptom", "cause", "hint", "bigger_hint"):
        assert getattr(card, text).endswith((".", "?")), text
    assert card.hint != card.bigger_hint


@pytest.mark.parametrize("name", CARDS)
def test_no_hint_holds_code(name):
    card = CARDS[name]
    for text in (card.symptom, card.hint, card.bigger_hint):
        assert not re.search(r"`|==", text), text


@pytest.mark.parametrize("name", CARDS)
def test_the_page_of_a_card_exists(name):
    assert (BOOK / f"{CARDS[name].page}.md").is_file()


@pytest.mark.parametrize(
    "name", [n for n, card in CARDS.items() if card.kind == "attention"]
)
def test_the_check_of_an_attention_card_exists(name):
    assert CARDS[name].check in {kind.name for kind in KINDS}


@pytest.mark.parametrize("room", ROOMS)
def test_every_exhibit_of_a_room_has_a_card(room):
    shown = {
        name
        for name, thing in vars(
            __import__(f"attention_lab.verify.museum.{room}", fromlist=["_"])
        ).items()
        if not name.startswith("_")
        and (inspect.isfunction(thing) or inspect.isclass(thing))
        and thing.__module__ == f"attention_lab.verify.museum.{room}"
    }
    cards = {
        name.replace("-", "_")
        for name, card in CARDS.items()
        if card.room == room
    }
    assert {name for name in shown - cards if not helps(room, name)} == set()


def helps(room, name):
    """Whether a name is used by the room's exhibits rather than being one."""
    source = (MUSEUM / f"{room}.py").read_text("utf-8")
    return len(re.findall(rf"\b{name}\b", source)) > 1
