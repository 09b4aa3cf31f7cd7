"""`make format` repairs code cells and touches nothing else of a page."""

import format_chapters
import mini_book


def test_only_the_code_of_cells_changes():
    before = mini_book.page(
        "# A\n\nsay  ( this )\n\n"
        + mini_book.cell("x=[1,2]\n\n\nf( x );", "hide-input", "exercise")
        + "\n```python\nx=1\n```\n\n"
        + mini_book.cell("%timeit f( 1 )")
        + "\n```{note}\nx=1\n```\n"
    )
    after = format_chapters.format_page(before)
    assert after == before.replace(
        "x=[1,2]\n\n\nf( x );", "x = [1, 2]\n\n\nf(x);"
    )
    assert format_chapters.format_page(after) == after


def test_page_without_cells_stays_as_it_is():
    assert format_chapters.format_page("# A\n\nx=1\n") == "# A\n\nx=1\n"
