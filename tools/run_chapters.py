"""Run every chapter's notebook: it must come to its end, and fast enough.

The notebooks run as in Colab, from the committed `.ipynb` in an empty folder:
whatever a chapter needs has to come from the package. Their outputs go into
the cache that Jupyter Book reads, so the site shows this very run and nothing
runs twice. A chapter whose code did not change keeps its outputs and times.

A slow moment of the machine is no slow chapter: what counts is how long a cell
took or how long it computed, whichever is less. A chapter that exceeds a limit
runs again, alone, and each cell's better time counts.

    python tools/run_chapters.py [folder of another book]
"""

import multiprocessing
import os
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import psutil
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import myst_nb_reader_plugin
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError

from book_config import Book

#: Seconds, on two cores without a GPU. The first two cells import. A cell
#: should take less than 2 s, which is said; a slower machine needs room.
CELL_LIMIT_S, CHAPTER_LIMIT_S, BOOK_LIMIT_S = 5.0, 60.0, 360.0
CELL_AIM_S = 2.0
IMPORTING = 2
#: After so many seconds a cell counts as stuck.
STUCK_S = 120


@dataclass(frozen=True)
class Run:
    """How a notebook ran: its code cells with outputs, and their seconds."""

    cells: list[Any]
    seconds: list[float]

    def slow(self, limit: float = CELL_LIMIT_S) -> list[str]:
        """Describe the cells over a limit, the importing ones left out."""
        pairs = list(zip(self.cells, self.seconds, strict=True))[IMPORTING:]
        return [
            f"{seconds:.2f} s, limit {limit} s:\n{cell.source}"
            for cell, seconds in pairs
            if seconds > limit
        ]


class ChapterError(RuntimeError):
    """A cell of a chapter raised, or got stuck."""


def execute(path: Path) -> Run:
    """Run a notebook in an empty folder and time its code cells.

    Returns
    -------
    For each cell the time until it ended, or the time for which the kernel and
    the processes that it waited for computed, if that is less.

    Raises
    ------
    ChapterError
        With the cell that failed, its seconds and what it said.
    """
    notebook = nbformat.read(path, as_version=4)
    cells, timings = [], []
    with TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=STUCK_S,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
        )
        with client.setup_kernel():
            kernel = psutil.Process(client.km.provisioner.pid)
            for index, cell in enumerate(notebook.cells):
                if cell.cell_type != "code":
                    continue
                start, computed = time.perf_counter(), cpu_seconds(kernel)
                try:
                    client.execute_cell(cell, index)
                except (CellExecutionError, CellTimeoutError) as error:
                    seconds = time.perf_counter() - start
                    raise ChapterError(
                        f"{path.name}: this cell failed after {seconds:.2f} s\n"
                        f"{cell.source}\n\n{error}"
                    ) from None
                took = time.perf_counter() - start
                timings.append(min(took, cpu_seconds(kernel) - computed))
                cells.append(cell)
    return Run(cells, timings)


def cpu_seconds(process: psutil.Process) -> float:
    """Return for how long a process and its ended children computed."""
    times = process.cpu_times()
    return sum(times[:4])  # its own user and system, its children's


def better(first: Run, second: Run) -> Run:
    """Return the second run with each cell's better time."""
    seconds = map(min, first.seconds, second.seconds)
    return Run(second.cells, list(seconds))


def prepare(folder: str) -> None:
    """Keep the reader's own settings out of the kernels of this process.

    The compiler, too: it takes seconds, and the site is built without it. Two
    chapters share the machine, so each computes on one thread.
    """
    os.environ.pop("ATTENTION_LAB_COMPILER_PYTHON", None)
    os.environ |= {
        "ATTENTION_LAB_STATIC": "1",
        "IPYTHONDIR": f"{folder}/ipython",
        "MPLCONFIGDIR": f"{folder}/matplotlib",
        "OMP_NUM_THREADS": "1",
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }


def try_to_execute(path: Path) -> Run | str:
    """Return the run, or what went wrong: no error crosses processes whole."""
    try:
        return execute(path)
    except ChapterError as error:
        return str(error)


def with_outputs(page: Any, run: Run, path: Path) -> Any:
    """Return a page as Jupyter Book reads it, with the outputs of a run.

    Raises
    ------
    ChapterError
        If the notebook's code is not the page's.
    """
    shown = [cell for cell in page.cells if cell.cell_type == "code"]
    ran = run.cells[-len(shown) :]  # the notebook's own setup cell comes first
    if [cell.source for cell in shown] != [cell.source for cell in ran]:
        raise ChapterError(
            f"{path.name}: its code is not that of {path.stem}.md; run "
            "`make notebooks`"
        )
    for number, (cell, executed) in enumerate(zip(shown, ran, strict=True), 1):
        cell.outputs, cell.execution_count = executed.outputs, number
        for output in cell.outputs:
            if "execution_count" in output:
                output.execution_count = number
    return page


def run_all(paths: list[Path]) -> dict[Path, Run | str]:
    """Run notebooks on all cores; the slow ones again, one after the other."""
    context = multiprocessing.get_context("spawn")
    with (
        TemporaryDirectory() as folder,
        ProcessPoolExecutor(
            os.cpu_count(), context, prepare, (folder,)
        ) as pool,
    ):
        runs = dict(zip(paths, pool.map(try_to_execute, paths), strict=True))
        for path, run in runs.items():
            if isinstance(run, Run) and is_slow(run):
                again = pool.submit(try_to_execute, path).result()
                runs[path] = (
                    better(run, again) if isinstance(again, Run) else again
                )
    return runs


def is_slow(run: Run) -> bool:
    """Say whether a cell or the whole chapter exceeds its limit."""
    return bool(run.slow()) or sum(run.seconds) > CHAPTER_LIMIT_S


def faults(path: Path, run: Run | str) -> list[str]:
    """Say what is wrong with a run, in sentences."""
    if isinstance(run, str):
        return [run]
    found = [f"{path.name}: {sentence}" for sentence in run.slow()]
    total = sum(run.seconds)
    if total > CHAPTER_LIMIT_S:
        found.append(
            f"{path.name} took {total:.1f} s, limit {CHAPTER_LIMIT_S} s"
        )
    return found


def main(book: Book | None = None) -> int:
    """Run what the cache lacks; return 1 if a chapter fails or is slow."""
    book = book or Book()
    cache = get_cache(book.root / "_build" / ".jupyter_cache")
    chapters = book.chapters()
    if not chapters:
        print("no page of the book runs any code", file=sys.stderr)
        return 1
    pages = {
        path.with_suffix(".ipynb"): myst_nb_reader_plugin(str(path))
        for path in chapters
    }
    totals: dict[Path, float] = {}
    for path, page in pages.items():
        try:
            record = cache.match_cache_notebook(page)
        except KeyError:
            continue
        totals[path] = record.data["execution_seconds"]
    wrong = []
    fresh = run_all([path for path in pages if path not in totals])
    for path, run in fresh.items():
        found = faults(path, run)
        wrong += found
        if found or isinstance(run, str):
            continue
        totals[path] = sum(run.seconds)
        cache.cache_notebook_bundle(
            CacheBundleIn(
                with_outputs(pages[path], run, path),
                str(path.with_suffix(".md")),
                data={"execution_seconds": totals[path]},
            ),
            check_validity=False,
            overwrite=True,
        )
        for sentence in run.slow(CELL_AIM_S):
            print(f"{path.name}, slower than it should be: {sentence}\n")
    book_s = sum(totals.values())
    if book_s > BOOK_LIMIT_S:
        wrong.append(f"all took {book_s:.0f} s, limit {BOOK_LIMIT_S:.0f} s")
    print(*wrong, sep="\n\n", end="\n" if wrong else "")
    slowest = max(totals, key=totals.get, default=None)
    print(
        f"chapters: {len(fresh)} run, {len(pages) - len(fresh)} unchanged, "
        f"together {book_s:.0f} s"
        + (
            f", longest {slowest.stem} {totals[slowest]:.1f} s"
            if slowest
            else ""
        )
        + f"; {len(wrong)} wrong"
    )
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(*(Book(Path(root)) for root in sys.argv[1:2])))
