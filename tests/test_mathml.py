"""Formulas become MathML that says what the TeX said."""

import re
import sys
from html import unescape

import pytest

import math_font
from book_config import ROOT, Book

sys.path.insert(0, str(ROOT / "book" / "_ext"))
import mathml

CODE = re.compile(r"```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
FORMULA = re.compile(r"\$\$(.+?)\$\$|(?<![\\$])\$([^$]+?)\$", re.DOTALL)


def formulas():
    """Return every formula of the book, with the name of its page."""
    return [
        (path.stem, (block or inline).strip(), bool(block))
        for path in Book().root.glob("book/**/*.md")
        for block, inline in FORMULA.findall(
            CODE.sub("", path.read_text("utf-8"))
        )
    ]


def test_every_formula_of_the_book_can_be_shown():
    found = formulas()
    assert len(found) > 30
    for page, tex, is_block in found:
        shown = mathml.formula(tex, is_block=is_block)
        assert shown.startswith("<math "), page
        assert "\\" not in re.sub(r'alttext="[^"]*"', "", shown), page


def test_a_name_is_one_word_and_a_variable_one_letter():
    shown = mathml.formula(r"\mathrm{softmax}_S(x\,y)", is_block=True)
    assert "<mi>softmax</mi>" in shown
    assert "<mi>S</mi>" in shown
    assert "<mi>x</mi>" in shown
    assert 'display="block"' in shown
    alternative = re.search(r'alttext="([^"]*)"', shown)[1]
    assert unescape(alternative) == r"\mathrm{softmax}_S(x\,y)"


def test_quotes_and_markup_stay_inside_the_alternative():
    shown = mathml.formula('a < b " > c', is_block=False)
    assert 'alttext="a &lt; b &quot; &gt; c"' in shown
    assert "<mo>&#x0003C;</mo>" in shown


def test_an_unknown_command_is_refused():
    with pytest.raises(ValueError, match=r"\\nonsense is not known"):
        mathml.formula(r"1 + \nonsense{2}", is_block=False)


def test_the_committed_font_has_every_character_that_is_shown():
    path = math_font.TARGET / "stix-two-math.woff2"
    assert path.stat().st_size < 50_000
    kept = set(math_font.characters())
    for page, tex, is_block in formulas():
        shown = re.sub(r"<[^>]*>", "", mathml.formula(tex, is_block=is_block))
        missing = {c for c in unescape(shown) if ord(c) not in kept}
        assert not missing, (page, tex, missing)
