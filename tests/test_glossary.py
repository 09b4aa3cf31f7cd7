"""The glossary: sorted, linked, in both languages, and about this book."""

import re
import unicodedata
from dataclasses import dataclass
from itertools import pairwise

import pytest

from book_config import Book

BOOK = Book()
TEXT = (BOOK.root / "book" / "glossary.md").read_text(encoding="utf-8")
ENTRY = re.compile(
    r"\*\*(?P<term>[^*]+)\*\* \((?P<chinese>.+?)\): (?P<says>.+) "
    r"See \[(?P<title>[^\]]+)\]\((?P<page>\w+)\.md\)\."
)
#: Words that Chinese texts leave as they are.
SAME_IN_BOTH = {"logits", "softmax"}


@dataclass(frozen=True)
class Entry:
    """One term of the glossary."""

    term: str
    chinese: str
    says: str
    title: str
    page: str


def entries_in(text):
    """Return the entries, and the paragraphs that look like one but are not."""
    head = text.partition("\n## ")[0]
    paragraphs = [" ".join(part.split()) for part in head.split("\n\n")]
    marked = [part for part in paragraphs if part.startswith("**")]
    found = [ENTRY.fullmatch(part) for part in marked]
    broken = [part for part, hit in zip(marked, found, strict=True) if not hit]
    return [Entry(**hit.groupdict()) for hit in found if hit], broken


def prose_of(page):
    return (BOOK.root / "book" / f"{page}.md").read_text(encoding="utf-8")


def unsorted_terms(entries):
    terms = [entry.term.lower() for entry in entries]
    return [later for term, later in pairwise(terms) if not term < later]


def unlisted_pages(entries):
    pages = {page.removeprefix("book/") for page in BOOK.pages()}
    return [entry.term for entry in entries if entry.page not in pages]


def unused_terms(entries):
    """Find terms that the linked page never uses, as whole words."""
    return [
        entry.term
        for entry in entries
        if not re.search(
            rf"\b{re.escape(entry.term)}",
            " ".join(prose_of(entry.page).split()),
            flags=re.IGNORECASE,
        )
    ]


def wrong_titles(entries):
    """Find links that call a page otherwise than it calls itself."""
    return [
        entry.term
        for entry in entries
        if f"\n# {entry.title}\n" not in "\n" + prose_of(entry.page)
    ]


def without_chinese(entries):
    """Find terms without a Chinese word that is marked as Chinese."""
    return [
        entry.term
        for entry in entries
        if entry.chinese not in SAME_IN_BOTH
        and not any(
            unicodedata.name(letter, "").startswith("CJK UNIFIED")
            for word in re.findall(
                r'<span lang="zh">(.+?)</span>', entry.chinese
            )
            for letter in word
        )
    ]


def more_than_a_sentence(entries):
    return [
        entry.term
        for entry in entries
        if not re.fullmatch(r"[^.]+\.", entry.says)
    ]


RULES = (
    unsorted_terms,
    unlisted_pages,
    unused_terms,
    wrong_titles,
    without_chinese,
    more_than_a_sentence,
)


def test_every_entry_can_be_read():
    entries, broken = entries_in(TEXT)
    assert broken == []
    assert len(entries) >= 45


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_glossary_keeps_the_rule(rule):
    assert rule(entries_in(TEXT)[0]) == []


GOOD = Entry(
    "Token",
    '<span lang="zh">词元</span>',
    "one element of the sequence.",
    "Scaled dot product",
    "scaled_dot_product",
)


def changed(**fields):
    return Entry(**{**vars(GOOD), **fields})


@pytest.mark.parametrize(
    ("rule", "entries"),
    [
        (unsorted_terms, [GOOD, changed(term="Softmax")]),
        (unsorted_terms, [GOOD, GOOD]),
        (unlisted_pages, [changed(page="nowhere")]),
        (unused_terms, [changed(term="Zebra")]),
        (unused_terms, [changed(term="oken")]),
        (wrong_titles, [changed(title="Scaled dots")]),
        (without_chinese, [changed(chinese="token")]),
        (without_chinese, [changed(chinese="词元")]),
        (more_than_a_sentence, [changed(says="one element. Not two.")]),
    ],
)
def test_planted_mistake_is_reported(rule, entries):
    assert rule(entries) != []


def test_a_good_entry_passes_every_rule():
    assert {rule.__name__: rule([GOOD]) for rule in RULES} == {
        rule.__name__: [] for rule in RULES
    }


def test_an_entry_without_a_link_is_broken():
    text = (
        "# Glossary\n\n**Token** (词元): one element.\n\n## Sources\n\n**x**\n"
    )
    assert entries_in(text) == ([], ["**Token** (词元): one element."])
