"""tools/run_chapters.py keeps a good run, and names what fails or is slow."""

import subprocess
import sys
from pathlib import Path

import pytest

import mini_book
import notebooks
import run_chapters
from run_chapters import ChapterError, Run, execute, is_slow

pytestmark = pytest.mark.slow("starts kernels")


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """Write a book with a good and a raising chapter, and run it."""
    book = mini_book.make(
        tmp_path_factory.mktemp("planted") / "book",
        start=mini_book.page(
            "# A\n\n"
            + mini_book.cell("from time import process_time, sleep")
            + mini_book.cell("sleep(1)")
            + mini_book.cell("while process_time() < 2.5: pass\nprint(6 * 7)")
        ),
        red=mini_book.page("# B\n\n" + mini_book.cell("1 / 0")),
    )
    notebooks.main([], book)
    return book


@pytest.fixture(scope="module")
def told(planted):
    """Run the planted book twice, as make does; return what was printed."""
    return [
        subprocess.run(
            [sys.executable, run_chapters.__file__, planted.root],
            capture_output=True,
            text=True,
        )
        for _ in range(2)
    ]


def test_raising_cell_is_told_with_chapter_source_and_error(told):
    assert told[0].returncode == 1
    assert "red.ipynb: this cell failed after" in told[0].stdout
    assert "\n1 / 0\n" in told[0].stdout
    assert "ZeroDivisionError" in told[0].stdout
    assert "chapters: 2 run, 0 unchanged" in told[0].stdout
    assert "1 wrong" in told[0].stdout


def test_only_a_good_run_is_kept(told):
    assert told[1].returncode == 1
    assert "chapters: 1 run, 1 unchanged" in told[1].stdout


def test_the_site_shows_the_kept_run(planted, told):
    page = run_chapters.myst_nb_reader_plugin(
        str(planted.root / "book" / "start.md")
    )
    cache = run_chapters.get_cache(planted.root / "_build" / ".jupyter_cache")
    _, merged = cache.merge_match_into_notebook(page)
    outputs = [cell for cell in merged.cells if cell.cell_type == "code"]
    assert outputs[-1].outputs[0].text == "42\n"
    assert outputs[-1].execution_count == 3


def test_slow_cell_and_slow_chapter_are_told(planted, monkeypatch):
    run = execute(planted.root / "book" / "start.ipynb")
    assert len(run.seconds) == 4
    assert not is_slow(run)
    (complaint,) = run.slow(limit=0.2)
    assert "process_time() <" in complaint
    monkeypatch.setattr(run_chapters, "CHAPTER_LIMIT_S", 0.2)
    assert is_slow(run)
    (sentence,) = run_chapters.faults(Path("start.ipynb"), run)
    assert sentence.startswith("start.ipynb took")


def test_each_cells_better_time_counts():
    first, second = Run(["a", "b"], [1.0, 5.0]), Run(["a", "b"], [2.0, 3.0])
    assert run_chapters.better(first, second).seconds == [1.0, 3.0]


def test_outputs_of_other_code_are_refused(planted):
    run = execute(planted.root / "book" / "start.ipynb")
    path = planted.root / "book" / "start.md"
    page = run_chapters.myst_nb_reader_plugin(str(path))
    run.cells[-1].source = "print(6 * 8)"
    with pytest.raises(ChapterError, match=r"is not that of start\.md"):
        run_chapters.with_outputs(page, run, Path("start.md"))


def test_a_book_without_code_is_refused(tmp_path, capsys):
    book = mini_book.make(tmp_path / "book", start="# Words\n")
    assert run_chapters.main(book) == 1
    assert "no page of the book runs any code" in capsys.readouterr().err
