"""The chapters' controls: each choice runs the step again, and shows that run.

The cells that a call of `explore` needs are taken from its chapter, as they
stand there; only the twin is replaced, which the chapter's own run makes.
"""

import ast
import copy
import importlib.util
from dataclasses import replace
from functools import cache
from itertools import count

import jupytext
import numpy as np
import pytest

from attention_lab import figures
from attention_lab.figures.explore import Refused
from attention_lab.steps.head_board import record_head_board
from book_config import Book

pytest.importorskip("ipywidgets", reason="the controls of a kernel")

BOOK = Book()
#: Chapter → how many explorers it has.
EXPLORERS = {
    "scaled_dot_product": 2,
    "multi_head": 1,
    "fused_qkv": 1,
    "flash_forward": 1,
    "flash_backward": 1,
    "recorder_and_gpu": 1,
}
PLACES = [(name, n) for name, many in EXPLORERS.items() for n in range(many)]
#: Choices that do not fit the first ones of the other controls, and are said.
REFUSED = {
    ("multi_head", "heads", "3"): "axis E has size 8, which num_heads H = 3",
    ("fused_qkv", "heads", "3"): "axis E has size 8, which num_heads H = 3",
    ("multi_head", "E", "6"): "axis E has size 6, which num_heads H = 4",
    ("fused_qkv", "E", "6"): "axis E has size 6, which num_heads H = 4",
}
TWIN = figures.draw_heatmap(np.eye(2))


@cache
def code_cells(chapter):
    path = BOOK.root / "book" / f"{chapter}.md"
    notebook = jupytext.read(path, fmt="md:myst")
    return [
        ast.parse(cell.source)
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def calls_explore(cell):
    call = getattr(cell.body[-1], "value", None)
    name = getattr(call, "func", None)
    return "explore" in (getattr(name, "id", ""), getattr(name, "attr", ""))


def bound(cell):
    """Return the names that a cell makes."""
    names = {
        alias.asname or alias.name
        for node in cell.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    names |= {n.name for n in cell.body if isinstance(n, ast.FunctionDef)}
    return names | {
        name.id
        for node in cell.body
        for name in ast.walk(node)
        if isinstance(node, ast.Assign)
        and isinstance(name, ast.Name)
        and isinstance(name.ctx, ast.Store)
    }


def read(cell):
    return {
        node.id
        for node in ast.walk(cell)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def source_of(chapter, number):
    """Return a module with one explorer of a chapter and what it needs."""
    cells = code_cells(chapter)
    places = [n for n, cell in enumerate(cells) if calls_explore(cell)]
    cell = copy.deepcopy(cells[places[number]])
    call = cell.body[-1].value
    (twin,) = [word for word in call.keywords if word.arg == "twin"]
    twin.value = ast.Name("TWIN", ast.Load())
    kept, wanted = [], read(cell)
    for other in reversed(cells[: places[number]]):
        if bound(other) & wanted:
            kept.insert(0, ast.unparse(other))
            wanted = (wanted - bound(other)) | read(other)
    return "\n".join([*kept, f"explorer = {ast.unparse(call)}", ""])


_numbers = count()


@pytest.fixture
def explorer_of(tmp_path, monkeypatch):
    monkeypatch.delenv("ATTENTION_LAB_STATIC", raising=False)

    def load(chapter, number):
        path = tmp_path / f"{chapter}_{next(_numbers)}.py"
        path.write_text(source_of(chapter, number), encoding="utf-8")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        module.TWIN = TWIN
        spec.loader.exec_module(module)
        return module.explorer

    return load


def kept(explorer):
    """Return the explorer with each run made once."""
    runs = cache(lambda chosen: explorer.run(**dict(chosen)))
    return replace(explorer, run=lambda **c: runs(tuple(c.items())))


def numbers(state):
    """Return all numbers of a figure's data, without its words."""
    if isinstance(state, dict):
        return [numbers(part) for part in state.values()]
    if isinstance(state, list):
        return [numbers(part) for part in state]
    return None if isinstance(state, str) else state


def test_every_explorer_of_the_book_is_tried():
    found = {
        path.stem: sum(map(calls_explore, code_cells(path.stem)))
        for path in BOOK.chapters()
    }
    assert {name: many for name, many in found.items() if many} == EXPLORERS


@pytest.fixture
def shown(monkeypatch):
    """What controls show, newest last."""
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    return shown


def tried(name, options, refused):
    """Return the choices that fit not, and the first other one that does."""
    misfits = [choice for choice in options if (name, choice[0]) in refused]
    fits = [choice for choice in options[1:] if choice not in misfits]
    return misfits + fits[:1]


def move_all(explorer, shown, refused):
    """Move every control to another option, and look at what is shown."""
    box = explorer.controls()
    controls = {c.description: c for c in box.children[0].children}
    assert set(controls) == set(explorer.choices)
    (first,) = shown
    assert first.passed
    for name, control in controls.items():
        for label, option in tried(name, control.options, refused):
            control.value = option
            after = shown[-1]
            if (name, label) in refused:
                assert isinstance(after, Refused)
                assert refused[name, label] in after.sentence
            else:
                assert not isinstance(after, Refused), after
                assert after.passed, f"{name} = {label}"
                assert numbers(after.state) != numbers(first.state), label
        control.value = control.options[0][1]


@pytest.mark.parametrize(("chapter", "number"), PLACES)
def test_each_choice_shows_a_run_of_its_own(
    chapter, number, explorer_of, shown
):
    explorer = kept(explorer_of(chapter, number))
    refused = {
        choice: said
        for (page, *choice), said in REFUSED.items()
        if page == chapter
        for choice in [tuple(choice)]
    }
    move_all(explorer, shown, refused)


@pytest.mark.parametrize(
    ("planted", "said"),
    [
        (lambda board, E: board(E=8), "6"),  # the choice is not used
        (lambda board, E: board(E=E, error=1.0), "E = 6"),  # a verdict fails
        (lambda board, E: board(E=E, heads=4), "size 6"),  # it is refused
    ],
)
def test_a_control_that_lies_is_caught(planted, said, shown):
    def board(E, heads=2, error=0.0):
        data = record_head_board(((heads, heads),), E=E)
        data["runs"][0]["error"] += error if E == 6 else 0.0
        return figures.draw_head_board(data)

    explorer = figures.explore(lambda E: planted(board, E), twin=TWIN, E=[8, 6])
    with pytest.raises(AssertionError, match=said):
        move_all(explorer, shown, {})
