"""The rules of a chapter that a machine can check.

Each rule is a function from a chapter's cells to a list of complaints, so that
the planted mistakes at the end can show that it does complain.
"""

import ast
import re
from dataclasses import dataclass
from statistics import median, quantiles

import jupytext
import pytest

import mini_book
from attention_lab.axes import AXES
from book_config import Book, front_matter

BOOK = Book()
PAGES = [BOOK.root / f"{page}.md" for page in BOOK.pages()]
CHAPTERS = BOOK.chapters()
NAMES = [path.stem for path in CHAPTERS]
#: The chapters in which the reader predicts before running.
PREDICTING = {
    "scaled_dot_product",
    "first_kernel",
    "shapes_are_views",
    "multi_head",
    "cross_and_grouped",
    "fused_qkv",
    "tiled_matmul",
    "online_softmax",
    "flash_forward",
    "flash_backward",
    "roofline",
    "vision",
    "recorder_and_gpu",
}
MOST_LINES = 20
MEDIAN_LINES = 5
NINE_IN_TEN_LINES = 12
COLUMNS = 80


@dataclass(frozen=True)
class Cell:
    """One code cell of a chapter."""

    source: str
    tags: frozenset[str] = frozenset()

    @property
    def lines(self):
        return self.source.splitlines()

    @property
    def tree(self):
        return ast.parse(self.source)


def cells_of(text):
    """Return the code cells of a chapter's text."""
    return [
        Cell(cell.source, frozenset(cell.metadata.get("tags", [])))
        for cell in jupytext.reads(text, fmt="md:myst").cells
        if cell.cell_type == "code"
    ]


def too_long(cells):
    return [
        f"{len(cell.lines)} lines: {cell.lines[0]}"
        for cell in cells
        if len(cell.lines) > MOST_LINES
    ]


def long_on_the_whole(cells):
    counts = [len(cell.lines) for cell in cells]
    if len(counts) < 2:
        return []
    found = []
    if median(counts) > MEDIAN_LINES:
        found.append(f"half of the cells exceed {MEDIAN_LINES} lines: {counts}")
    ninth = quantiles(counts, n=10, method="inclusive")[-1]
    if ninth > NINE_IN_TEN_LINES:
        found.append(
            f"a tenth of the cells exceeds {NINE_IN_TEN_LINES} lines: {counts}"
        )
    return found


def too_wide(cells):
    return [
        line for cell in cells for line in cell.lines if len(line) > COLUMNS
    ]


def late_imports(cells):
    return [
        ast.unparse(node)
        for cell in cells[1:]
        for node in ast.walk(cell.tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]


def shell_commands(cells):
    """Find `!pip` and magics: the setup cell is the only one that installs."""
    return [
        line
        for cell in cells
        for line in cell.lines
        if re.match(r"\s*[!%]", line)
    ]


def names_in(tree):
    """Yield every name that a cell binds or reads."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.arg) or (
            isinstance(node, ast.keyword) and node.arg
        ):
            yield node.arg


def foreign_axes(cells):
    """Find names whose upper-case ending is not made of the key's letters."""
    found = set()
    for cell in cells:
        for name in names_in(cell.tree):
            stem, _, suffix = name.rpartition("_")
            if name.startswith("TILE_"):
                fits = suffix in {"L", "S"}
            elif stem and re.fullmatch(r"[A-Z]+", suffix):
                is_constant = name == name.upper()
                fits = is_constant or set(suffix) <= set(AXES)
            else:
                fits = True
            if not fits:
                found.add(name)
    return sorted(found)


def predictions(cells):
    """Return the `predicted_x = None` cells as (position, name)."""
    return [
        (position, target.id)
        for position, cell in enumerate(cells)
        for node in cell.tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Constant)
        and node.value.value is None
        for target in node.targets
        if isinstance(target, ast.Name) and target.id.startswith("predicted_")
    ]


def unchecked_predictions(cells):
    return [
        name
        for position, name in predictions(cells)
        if not any(_checks(cell.tree, name) for cell in cells[position + 1 :])
    ]


def _checks(tree, name):
    """Say whether a call of some check_... receives this name."""
    return any(
        isinstance(node, ast.Call)
        and (
            getattr(node.func, "id", "") or getattr(node.func, "attr", "")
        ).startswith("check_")
        and name in names_in(node)
        for node in ast.walk(tree)
    )


def filled_in_predictions(cells):
    """Find predictions with an answer: they take the guess off the reader."""
    return [
        ast.unparse(node)
        for cell in cells
        for node in ast.walk(cell.tree)
        if isinstance(node, ast.Assign)
        and any(
            isinstance(target, ast.Name) and target.id.startswith("predicted_")
            for target in node.targets
        )
        and not (
            isinstance(node.value, ast.Constant) and node.value.value is None
        )
    ]


def own_kernels(cells):
    """Find kernels that are written on the page and are not an exercise."""
    return [
        node.name
        for cell in cells
        if "exercise" not in cell.tags
        for node in ast.walk(cell.tree)
        if isinstance(node, ast.FunctionDef)
        and any(
            "cuda.jit" in ast.unparse(decorator)
            for decorator in node.decorator_list
        )
    ]


RULES = (
    shell_commands,
    too_long,
    long_on_the_whole,
    too_wide,
    late_imports,
    foreign_axes,
    unchecked_predictions,
    filled_in_predictions,
    own_kernels,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("path", CHAPTERS, ids=NAMES)
def test_chapter_keeps_the_rule(path, rule):
    assert rule(cells_of(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_pages_with_code_cells_start_with_a_kernel(path):
    assert missing_kernel(path) == []


def missing_kernel(path):
    """Say so when a page has code cells and nothing to run them."""
    text = path.read_text(encoding="utf-8")
    has_cells = re.search(r"^`{3,}\{code-cell\}", text, flags=re.MULTILINE)
    head = front_matter(path)
    if has_cells and head.get("kernelspec", {}).get("name") != "python3":
        return [f"{path.name} needs front matter with `kernelspec: python3`"]
    return []


@pytest.mark.parametrize("name", sorted(PREDICTING))
def test_the_reader_predicts_in_this_chapter(name):
    path = BOOK.root / "book" / f"{name}.md"
    assert predictions(cells_of(path.read_text(encoding="utf-8"))) != []


KERNEL = "@cuda.jit\ndef scores_kernel(scores_LS):\n    pass"
GUESS = "predicted_shape = None  # your guess"
PLANTED = [
    (too_long, [Cell("\n".join(["x = 1"] * 21))]),
    (long_on_the_whole, [Cell("\n".join(["x = 1"] * 6))] * 3),
    (
        long_on_the_whole,
        [Cell("x = 1")] * 8 + [Cell("\n".join(["x = 1"] * 15))] * 2,
    ),
    (too_wide, [Cell("x = " + "1" * 77)]),
    (late_imports, [Cell("import numpy"), Cell("from math import pi")]),
    (late_imports, [Cell("x = 1"), Cell("def f():\n    import math")]),
    (shell_commands, [Cell("!pip install x")]),
    (shell_commands, [Cell("if x:\n    %pip install x")]),
    (foreign_axes, [Cell("scores_BHQK = 1")]),
    (foreign_axes, [Cell("f(x_NC)")]),
    (foreign_axes, [Cell("f(x_N=1)")]),
    (foreign_axes, [Cell("TILE_K = 4")]),
    (unchecked_predictions, [Cell(GUESS), Cell("check_shape(x, y)")]),
    (
        unchecked_predictions,
        [Cell("check_shape(x, predicted_shape)"), Cell(GUESS)],
    ),
    (filled_in_predictions, [Cell("predicted_shape = (1, 2)")]),
    (own_kernels, [Cell(KERNEL)]),
    (own_kernels, [Cell(KERNEL.replace("jit", "jit(device=True)"))]),
]


@pytest.mark.parametrize(("rule", "cells"), PLANTED)
def test_planted_mistake_is_reported(rule, cells):
    assert rule(cells) != []


def test_good_cells_pass_every_rule():
    cells = [
        Cell("import numpy as np\n\nMAX_ROWS = 3\nTILE_L = TILE_S = 4"),
        Cell(GUESS),
        Cell("scores_BHLS = f(q_BHLD, scale=None)"),
        Cell("verify.check_shape(scores_BHLS, predicted_shape)"),
        Cell(KERNEL, frozenset({"exercise"})),
    ]
    assert {rule.__name__: rule(cells) for rule in RULES} == {
        rule.__name__: [] for rule in RULES
    }
    assert predictions(cells) == [(1, "predicted_shape")]


def test_cells_and_tags_are_read_from_a_page():
    text = mini_book.page(
        "# A\n\n" + mini_book.cell("x = 1") + mini_book.cell(KERNEL, "exercise")
    )
    assert cells_of(text) == [
        Cell("x = 1"),
        Cell(KERNEL, frozenset({"exercise"})),
    ]


def test_code_cells_without_a_kernel_are_reported(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# A\n\n" + mini_book.cell("x = 1"), encoding="utf-8")
    assert missing_kernel(path) != []
    path.write_text(
        mini_book.page("# A\n\n" + mini_book.cell("x = 1")), encoding="utf-8"
    )
    assert missing_kernel(path) == []
