"""Write the notebook of every chapter: book/x.md becomes book/x.ipynb.

Colab cannot open a .md file, so each chapter has a committed notebook. It is
generated: plain Markdown, no outputs, the same bytes on every machine. Edit
the .md and run `make notebooks`; `--check` exits with 1 if one is stale.
"""

import argparse
import hashlib
import sys
from pathlib import Path

import jupytext
import nbformat
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from book_config import Book, front_matter
from plain_markdown import Converter, NotPlainError

#: Cells with one of these tags hide their code on the site; Colab folds them.
FOLDED = {"hide-input", "hide-cell", "remove-input", "remove-cell"}

#: Colab has everything else that a chapter imports. These are pure Python, so
#: fetching them without their dependencies replaces nothing there.
LACKED_BY_COLAB = ("jaxtyping", "wadler-lindig")
MAYBE_LACKED = ("beartype", "einops")

SETUP = """\
# @title Setup: installs attention_lab where it is missing
from importlib import invalidate_caches
from importlib.util import find_spec

if find_spec("attention_lab") is None:
    source = "git+{repository}@{branch}"
    %pip install -q --no-deps "attention-lab @ {{source}}" {pins}
    if find_spec("beartype") is None or find_spec("einops") is None:
        %pip install -q --no-deps {more_pins}
    invalidate_caches()
    try:
        import attention_lab  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "attention_lab is still missing. Check that this notebook may "
            "use the internet, restart the session, run this cell again."
        ) from error
"""


def setup_cell(book: Book) -> str:
    """Return the code that makes `import attention_lab` work in Colab."""
    return SETUP.format(
        repository=book.repository,
        branch=book.branch,
        pins=" ".join(map(book.pin, LACKED_BY_COLAB)),
        more_pins=" ".join(map(book.pin, MAYBE_LACKED)),
    ).rstrip("\n")


def head_cell(book: Book, page: str) -> str:
    """Return the two links that stand above a chapter's title."""
    return (
        f"[Open in Colab]({book.colab(page)}) · "
        f"[Read this page on the site]({book.site}{page}.html)"
    )


def metadata(wants_gpu: bool) -> dict:
    """Return what Colab and Jupyter need to know about a notebook."""
    colab: dict = {"provenance": []}
    found = {
        "colab": colab,
        "kernelspec": {
            "display_name": "Python 3",
            "language": "python",
            "name": "python3",
        },
        "language_info": {"name": "python"},
    }
    if wants_gpu:
        found["accelerator"] = "GPU"
        colab["gpuType"] = "T4"
    return found


def code_cell(source: str, tags: list[str]) -> nbformat.NotebookNode:
    """Return one code cell with its tags, folded where the site hides it."""
    kept: dict = {"tags": tags} if tags else {}
    if FOLDED & set(tags):
        kept["cellView"] = "form"
    return new_code_cell(source, metadata=kept)


def build(path: Path, book: Book) -> str:
    """Return the notebook of one chapter as the text of its file."""
    page = path.relative_to(book.root).with_suffix("").as_posix()
    converter = Converter(page, book)
    cells = [
        code_cell(setup_cell(book), ["setup"]),
        new_markdown_cell(head_cell(book, page)),
    ]
    for cell in jupytext.read(path, fmt="md:myst").cells:
        if cell.cell_type == "code":
            cells.append(
                code_cell(cell.source, list(cell.metadata.get("tags", [])))
            )
        elif text := converter.convert(cell.source):
            cells.append(new_markdown_cell(text))
    for index, cell in enumerate(cells):
        digest = hashlib.sha256(cell.source.encode()).hexdigest()[:8]
        cell["id"] = f"{index:02d}-{digest}"
    notebook = new_notebook(
        cells=cells,
        metadata=metadata(bool(front_matter(path).get("gpu"))),
    )
    nbformat.validate(notebook)
    return nbformat.writes(notebook).rstrip("\n") + "\n"


def stale(book: Book) -> dict[Path, str | None]:
    """Return the notebooks that differ from their chapter, and their text.

    A notebook whose chapter is gone is stale as well; its text is None.
    """
    wanted = {
        path.with_suffix(".ipynb"): build(path, book)
        for path in book.chapters()
    }
    found: dict[Path, str | None] = {
        path: text
        for path, text in wanted.items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path in sorted((book.root / "book").rglob("*.ipynb")):
        if path not in wanted and ".ipynb_checkpoints" not in path.parts:
            found[path] = None
    return found


def main(arguments: list[str] | None = None, book: Book | None = None) -> int:
    """Write the stale notebooks, or only name them with `--check`."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--check",
        action="store_true",
        help="change nothing; exit with 1 if a notebook is stale",
    )
    options = parser.parse_args(arguments)
    book = book or Book()
    try:
        found = stale(book)
    except NotPlainError as error:
        print(error, file=sys.stderr)
        return 1
    names = [path.relative_to(book.root).as_posix() for path in found]
    if options.check:
        for name in names:
            print(f"{name} is stale: run `make notebooks`", file=sys.stderr)
        print(f"notebooks: {len(book.chapters())} checked, {len(names)} stale")
        return 1 if names else 0
    for path, text in found.items():
        if text is None:
            path.unlink()
        else:
            path.write_text(text, encoding="utf-8", newline="\n")
    print(f"notebooks: {len(names)} written{': ' if names else ''}", end="")
    print(", ".join(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
