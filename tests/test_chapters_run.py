"""Every committed notebook runs from top to bottom, and fast enough.

They run in an empty folder, as in Colab: whatever a chapter needs has to come
from the package. A slow moment of the machine is no slow chapter, so a chapter
that exceeds a limit gets a second run, and each cell's better time counts.
"""

import time
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

import mini_book
import notebooks
from attention_lab.gpu.compile_card import PYTHON_VARIABLE
from book_config import Book

pytestmark = pytest.mark.slow("executes every notebook")

BOOK = Book()
CHAPTERS = BOOK.chapters()
CELL_LIMIT_S = 2.0
BOOK_LIMIT_S = 180.0
STUCK_S = 120
#: The setup cell and the chapter's first cell, which imports torch and numba.
IMPORTING = 2


@dataclass(frozen=True)
class Timing:
    """How long one code cell took."""

    source: str
    seconds: float


class ChapterError(AssertionError):
    """A cell of a chapter raised, or got stuck."""


def execute(path: Path) -> list[Timing]:
    """Run a notebook in an empty folder and time its code cells."""
    notebook = nbformat.read(path, as_version=4)
    timings = []
    with TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=STUCK_S,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        with client.setup_kernel():
            for index, cell in enumerate(notebook.cells):
                if cell.cell_type != "code":
                    continue
                start = time.perf_counter()
                try:
                    client.execute_cell(cell, index)
                except (CellExecutionError, CellTimeoutError) as error:
                    seconds = time.perf_counter() - start
                    raise ChapterError(
                        f"{path.name}: this cell failed after {seconds:.2f} s\n"
                        f"{cell.source}\n\n{error}"
                    ) from None
                timings.append(Timing(cell.source, time.perf_counter() - start))
    return timings


def slow(timings: list[Timing], limit: float = CELL_LIMIT_S) -> list[str]:
    """Describe the cells over the limit, the importing ones left out."""
    return [
        f"{timing.seconds:.2f} s, limit {limit} s:\n{timing.source}"
        for timing in timings[IMPORTING:]
        if timing.seconds > limit
    ]


@cache
def run(path: Path) -> tuple[Timing, ...]:
    """Run a chapter once for all tests, twice if it seemed slow."""
    timings = execute(path)
    if slow(timings):
        timings = [
            min(pair, key=lambda timing: timing.seconds)
            for pair in zip(timings, execute(path), strict=True)
        ]
    return tuple(timings)


@pytest.fixture(autouse=True)
def quiet_kernels(monkeypatch, tmp_path):
    """Keep the reader's own IPython settings out of the kernels.

    The compiler, too: it takes seconds, and the site is built without it.
    """
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("MPLCONFIGDIR", str(tmp_path / "matplotlib"))
    monkeypatch.setenv("PYDEVD_DISABLE_FILE_VALIDATION", "1")


@pytest.mark.parametrize("path", CHAPTERS, ids=lambda path: path.stem)
def test_chapter_runs_and_no_cell_is_slow(path):
    assert slow(list(run(path.with_suffix(".ipynb")))) == []


def test_all_chapters_together_are_fast():
    assert CHAPTERS, "no page of the book runs any code"
    total = sum(
        timing.seconds
        for path in CHAPTERS
        for timing in run(path.with_suffix(".ipynb"))
    )
    assert total <= BOOK_LIMIT_S


@pytest.fixture
def planted(tmp_path):
    """Write a chapter with one slow and one raising cell."""
    book = mini_book.make(
        tmp_path / "book",
        start=mini_book.page(
            "# A\n\n"
            + mini_book.cell("from time import sleep")
            + mini_book.cell("sleep(0.3)")
        ),
        red=mini_book.page("# B\n\n" + mini_book.cell("1 / 0")),
    )
    notebooks.main([], book)
    return book.root / "book"


def test_raising_cell_is_reported_with_chapter_source_and_time(planted):
    with pytest.raises(
        ChapterError, match=r"red\.ipynb: .* s\n1 / 0\n"
    ) as info:
        execute(planted / "red.ipynb")
    assert "ZeroDivisionError" in str(info.value)


def test_slow_cell_is_reported(planted):
    timings = execute(planted / "start.ipynb")
    assert len(timings) == 3
    complaint = slow(timings, limit=0.2)
    assert len(complaint) == 1
    assert "sleep(0.3)" in complaint[0]
