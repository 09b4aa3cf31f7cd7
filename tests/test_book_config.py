"""What the tools know about the book comes from one place each."""

import subprocess
from pathlib import Path

import pytest

import mini_book
from book_config import ROOT, Book, front_matter


def files_of_the_project() -> list[Path]:
    """Return the files that git has or would take, written by hand."""
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    return [
        ROOT / name
        for name in listing.split("\0")
        if name and not name.endswith(".ipynb")
    ]


def naming(address: str, files: list[Path]) -> list[str]:
    """Return the names of the files in which the address stands."""
    return [
        path.name
        for path in files
        if path.is_file() and address.encode() in path.read_bytes()
    ]


def test_repository_address_is_written_once(tmp_path):
    slug = Book().slug
    files = files_of_the_project()
    assert naming(slug, files) == ["_config.yml"]
    copy = tmp_path / "copy.md"
    copy.write_text(f"git clone https://example.org/{slug}", encoding="utf-8")
    assert naming(slug, [*files, copy]) == ["_config.yml", "copy.md"]


def test_addresses_follow_from_the_config(tmp_path):
    book = mini_book.make(tmp_path / "book", start="# A\n")
    config = book.root / "_config.yml"
    config.write_text(
        "repository: {url: 'https://github.com/me/it/', branch: b}\n"
        "launch_buttons: {colab_url: 'https://colab.example.org/'}\n",
        encoding="utf-8",
    )
    assert book.slug == "me/it"
    assert book.site == "https://me.github.io/it/"
    assert book.raw("book/x.png").endswith("/me/it/b/book/x.png")
    assert book.colab("book/start") == (
        "https://colab.example.org/github/me/it/blob/b/book/start.ipynb"
    )
    with config.open("a", encoding="utf-8") as file:
        file.write("html: {baseurl: 'https://book.example.org/x'}\n")
    assert book.site == "https://book.example.org/x/"


def test_pages_come_in_the_order_of_the_contents(tmp_path):
    book = mini_book.make(tmp_path / "book", start="# A\n")
    (book.root / "_toc.yml").write_text(
        "{root: r, parts: [{chapters: [{file: b, sections: [{file: c}]}, "
        "{file: a}]}, {chapters: [{url: 'https://x', title: x}]}]}",
        encoding="utf-8",
    )
    assert book.pages() == ["r", "b", "c", "a"]


def test_chapters_are_the_pages_that_run_code_also_unlisted_ones(tmp_path):
    book = mini_book.make(
        tmp_path / "book",
        start="# No code\n",
        second=mini_book.page("# B\n"),
        first=mini_book.page("# A\n"),
    )
    extra = book.root / "book" / "extra.md"
    extra.write_text(mini_book.page("# C\n"), encoding="utf-8")
    names = [path.stem for path in book.chapters()]
    assert names == ["second", "first", "extra"]
    assert front_matter(book.root / "book" / "start.md") == {}


def test_pins_are_found_under_either_spelling(tmp_path):
    book = mini_book.make(tmp_path / "book", start="# A\n")
    (book.root / "constraints.txt").write_text(
        "# wadler==9\nwadler_lindig==0.1.8  # why\n", encoding="utf-8"
    )
    assert book.pin("wadler-lindig") == "wadler-lindig==0.1.8"
    with pytest.raises(LookupError, match="does not pin wadler"):
        book.pin("wadler")
