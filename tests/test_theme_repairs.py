"""The theme's pages are repaired, and a changed theme is noticed."""

import sys

import pytest

from book_config import ROOT

sys.path.insert(0, str(ROOT / "book" / "_ext"))
from theme_repairs import REPAIRS, repaired

PAGE = "".join(f"{old}>{about}" for about, (old, _) in REPAIRS.items())


def test_everything_is_repaired_once():
    page = repaired(PAGE)
    assert 'role="complementary" aria-label="The book"' in page
    assert page.count('aria-label="Search"') == 1
    for dialog in ("search-dialog", "primary-sidebar-modal"):
        assert f'<dialog id="pst-{dialog}" aria-label=' in page


def test_a_page_without_the_theme_stays():
    assert repaired("<p>a</p>") == "<p>a</p>"


@pytest.mark.parametrize("about", REPAIRS)
def test_a_changed_theme_is_noticed(about):
    with pytest.raises(ValueError, match="no longer writes"):
        repaired(f"<section {about}>")
