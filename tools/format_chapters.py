"""Format the code cells of the chapters in place, as ruff formats notebooks.

The linters read the generated notebooks, but the text to mend is the .md. This
writes ruff's layout back into the .md, cell by cell, and touches nothing else.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell, new_notebook

from book_config import Book

CELL = re.compile(
    r"^(?P<head>```\{code-cell\}.*\n(?::[\w-]+:.*\n)*\n*)"
    r"(?P<source>(?:(?!```).*\n)*?)"
    r"(?P<foot>```[ \t]*)$",
    re.MULTILINE,
)


def formatted(sources: list[str]) -> list[str]:
    """Return the cells as `ruff format` lays them out."""
    notebook = new_notebook(cells=[new_code_cell(text) for text in sources])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cells.ipynb")
        nbformat.write(notebook, path)
        subprocess.run(
            [
                Path(sys.executable).with_name("ruff"),
                "format",
                "--quiet",
                f"--config={Book().root / 'pyproject.toml'}",
                path,
            ],
            check=True,
        )
        cells = nbformat.read(path, as_version=4).cells
    return [cell.source for cell in cells]


def format_page(text: str) -> str:
    """Return a page with its code cells formatted."""
    cells = list(CELL.finditer(text))
    new = iter(formatted([cell["source"].rstrip("\n") for cell in cells]))
    return CELL.sub(
        lambda cell: f"{cell['head']}{next(new)}\n{cell['foot']}", text
    )


def main() -> None:
    """Format every chapter and name the ones that changed."""
    book = Book()
    for path in book.chapters():
        old = path.read_text(encoding="utf-8")
        new = format_page(old)
        if new != old:
            path.write_text(new, encoding="utf-8", newline="\n")
            print(f"formatted {path.relative_to(book.root)}")


if __name__ == "__main__":
    main()
