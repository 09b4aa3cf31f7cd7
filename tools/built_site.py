"""The built site, parsed once, and what a check says about it."""

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bs4 import BeautifulSoup, Tag

from book_config import Book


@dataclass
class Result:
    """What one check looked at, and what it found wrong."""

    what: str
    looked_at: int = 0
    faults: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        """Return the check's line, and below it one line per fault."""
        mark = "✗" if self.faults else "✓"
        head = (
            f"{mark} {self.what}: {self.looked_at} checked, "
            f"{len(self.faults)} wrong"
        )
        return "\n".join([head, *(f"    {fault}" for fault in self.faults)])


class Site:
    """The built pages and the book that they were built from."""

    def __init__(self, html: Path, book: Book) -> None:
        self.html = html.resolve()
        self.book = book

    @cached_property
    def pages(self) -> dict[Path, BeautifulSoup]:
        """Every page of the site, parsed; parts of the theme left out."""
        return {
            path: BeautifulSoup(path.read_text("utf-8"), "html.parser")
            for path in sorted(self.html.rglob("*.html"))
            if "_static" not in path.relative_to(self.html).parts
        }

    @cached_property
    def anchors(self) -> dict[Path, set[str]]:
        """The fragments that each page has."""
        return {
            path: {
                str(tag.get(key))
                for key in ("id", "name")
                for tag in soup.find_all(attrs={key: True})
            }
            for path, soup in self.pages.items()
        }

    @cached_property
    def tracked(self) -> set[str]:
        """The files that git knows, counted from the root of the book."""
        listing = subprocess.run(
            ["git", "ls-files", "-z"],
            cwd=self.book.root,
            capture_output=True,
            text=True,
        )
        if listing.returncode:
            raise SystemExit(
                "check_site needs a git checkout to tell what readers can "
                f"open: {listing.stderr.strip()}"
            )
        return set(listing.stdout.split("\0"))

    def name(self, path: Path) -> str:
        """Return how a fault calls a page."""
        return path.relative_to(self.html).as_posix()

    def tags(self, *names: str) -> Iterator[tuple[str, Path, Tag]]:
        """Yield every tag of these names, with its page's name and path."""
        for path, soup in self.pages.items():
            for tag in soup.find_all(list(names)):
                yield self.name(path), path, tag
