"""`make book` fails when a cell raises or Sphinx warns, and only then.

Jupyter Book itself shrugs at both by default: it prints a warning and leaves
exit code 0. The build here uses our settings and the Makefile's own flags.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import mini_book
import notebooks
from book_config import ROOT

pytestmark = pytest.mark.slow("builds small books")


def build(root: Path, *pages: str) -> subprocess.CompletedProcess:
    """Build a book of one page as the Makefile does."""
    book = mini_book.make(root, start=mini_book.page("\n".join(pages)))
    notebooks.main([], book)
    for folder in ("_ext", "_static"):
        shutil.copytree(
            ROOT / "book" / folder,
            root / "book" / folder,
            ignore=shutil.ignore_patterns("__pycache__", "fonts"),
        )
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    flags = re.search(r"jupyter-book (build \. .*)$", makefile, flags=re.M)
    assert flags, "the Makefile no longer runs jupyter-book"
    program = Path(sys.executable).with_name("jupyter-book")
    return subprocess.run(
        [program, *flags[1].split()],
        cwd=root,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )


def test_good_page_is_built_and_hands_out_our_notebook(tmp_path):
    root = tmp_path / "book"
    ran = build(root, "# Title\n", mini_book.cell("print(6 * 7)"))
    assert ran.returncode == 0, ran.stdout + ran.stderr
    html = root / "_build" / "html"
    page = (html / "book" / "start.html").read_text(encoding="utf-8")
    assert "42" in page
    offered = html / "_sources" / "book" / "start.ipynb"
    ours = root / "book" / "start.ipynb"
    assert offered.read_bytes() == ours.read_bytes()


def test_raising_cell_makes_the_build_fail(tmp_path):
    ran = build(tmp_path / "book", "# Title\n", mini_book.cell("1 / 0"))
    assert ran.returncode != 0
    assert "ZeroDivisionError" in ran.stdout + ran.stderr


def test_warning_makes_the_build_fail(tmp_path):
    ran = build(tmp_path / "book", "# Title\n\n### A level is skipped\n")
    assert ran.returncode != 0
    assert "Non-consecutive header level" in ran.stdout + ran.stderr
