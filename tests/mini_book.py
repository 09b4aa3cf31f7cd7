"""A small book in a temporary folder, for the tests of the tools."""

import shutil
import subprocess
from pathlib import Path

from book_config import ROOT, Book

FRONT = """\
---
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
{more}---

"""


def page(body: str, more: str = "") -> str:
    """Return a chapter with the front matter that every chapter has."""
    return FRONT.format(more=more) + body


def cell(source: str, *tags: str) -> str:
    """Return one code cell of a chapter."""
    options = f":tags: [{', '.join(tags)}]\n" if tags else ""
    return f"```{{code-cell}} ipython3\n{options}{source}\n```\n"


def make(root: Path, **pages: str) -> Book:
    """Write a book with our settings and these pages; `start` comes first."""
    (root / "book").mkdir(parents=True)
    for name in ("_config.yml", "constraints.txt"):
        shutil.copyfile(ROOT / name, root / name)
    names = ["start", *(name for name in pages if name != "start")]
    toc = ["format: jb-book", "root: book/start"]
    if names[1:]:
        toc += ["chapters:", *(f"  - file: book/{name}" for name in names[1:])]
    (root / "_toc.yml").write_text("\n".join(toc) + "\n", encoding="utf-8")
    for name, text in pages.items():
        (root / "book" / f"{name}.md").write_text(text, encoding="utf-8")
    return Book(root)


def git(root: Path, *arguments: str) -> None:
    """Run one git command in the folder."""
    subprocess.run(["git", *arguments], cwd=root, check=True)


def track(root: Path, *paths: str) -> None:
    """Make the folder a git checkout that tracks these files."""
    git(root, "init", "--quiet")
    git(root, "add", "--", *paths)
