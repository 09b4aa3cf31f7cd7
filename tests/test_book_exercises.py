"""Every exercise of the book: its form, its check, its solution, its tests.

Each rule is a function from a chapter to a list of complaints, so that the
planted mistakes at the end can show that it does complain.
"""

import ast
import re
from pathlib import Path

import pytest

import mini_book
from book_config import Book
from marking import exercises_of, feedback_on_page
from page_exercises import (
    HEADING,
    LIKE_A_HEADING,
    code_cells,
    exercises_in,
    without_solutions,
)

BOOK = Book()
TESTS = Path(__file__).parent / "exercises"
FEWEST_RIGHT, FEWEST_WRONG = 3, 2


def exercises_name(text):
    """Return the stem that a page imports as `exercises`, or None."""
    for line in text.splitlines():
        if line.startswith("from attention_lab.exercises import ") and (
            line.endswith(" as exercises")
        ):
            return line.split()[3]
    return None


CHAPTERS = {
    path.stem: path.read_text(encoding="utf-8") for path in BOOK.chapters()
}
WITH_EXERCISES = {
    stem: text for stem, text in CHAPTERS.items() if exercises_name(text)
}
EVERY = [
    pytest.param(stem, exercise, id=f"{stem}-{exercise.title}")
    for stem, text in WITH_EXERCISES.items()
    for exercise in exercises_in(text)
]


def badly_headed(text):
    """Find headings that lack difficulty, importance or minutes."""
    if exercises_name(text) is None:
        return []
    return [
        found.group()
        for found in LIKE_A_HEADING.finditer(text)
        if not HEADING.match(found.group())
    ]


def lost_checks(text):
    """Find checks that belong to no exercise, and exercises without one."""
    found = exercises_in(text)
    complaints = [e.title for e in found if len(e.names) != 1]
    called = [name for e in found for name in e.names]
    cells = "\n".join(code_cells(text))
    if len(re.findall(r"\bexercises\.\w+\.check\(", cells)) != len(called):
        complaints.append("a check outside of an exercise")
    return complaints + [n for n in called if called.count(n) > 1]


def unsolved(text):
    """Find exercises without a solution that can be opened."""
    return [e.title for e in exercises_in(text) if not e.solution]


def filled_in(text):
    """Find cells that give the solution away: they have no gap."""
    return [
        e.title
        for e in exercises_in(text)
        if not any("..." in cell or "= None" in cell for cell in e.cells)
    ]


def tables_in(source):
    """Return how many answers the tables of a chapter's tests have."""
    counts = {"RIGHT": {}, "WRONG": {}}
    for node in ast.parse(source).body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.targets[0], ast.Name)
            and node.targets[0].id in counts
            and isinstance(node.value, ast.Dict)
        ):
            counts[node.targets[0].id] = {
                key.value: len(getattr(value, "elts", ()))
                for key, value in zip(
                    node.value.keys, node.value.values, strict=True
                )
            }
    return counts


def untested(text, source):
    """Find exercises with too few right or wrong answers in their tests."""
    tables = tables_in(source)
    return [
        f"{name}: {tables[table].get(name, 0)} answers in {table}"
        for exercise in exercises_in(text)
        for name in exercise.names
        for table, fewest in (("RIGHT", FEWEST_RIGHT), ("WRONG", FEWEST_WRONG))
        if tables[table].get(name, 0) < fewest
    ]


def too_short_a_time(text):
    """Say so where the head gives less time than the exercises ask for."""
    asked = sum(exercise.minutes for exercise in exercises_in(text))
    found = re.search(r"(\d+)\s+to\s+do\b", text)
    given = int(found[1]) if found else 0
    return [f"{given} minutes to do {asked}"] if given < asked else []


RULES = (badly_headed, lost_checks, unsolved, filled_in, too_short_a_time)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("stem", sorted(WITH_EXERCISES))
def test_chapter_keeps_the_rule(stem, rule):
    assert rule(WITH_EXERCISES[stem]) == []


@pytest.mark.parametrize("stem", sorted(WITH_EXERCISES))
def test_every_check_has_right_and_wrong_answers(stem):
    source = (TESTS / f"test_{stem}.py").read_text(encoding="utf-8")
    assert untested(WITH_EXERCISES[stem], source) == []


@pytest.mark.parametrize("stem", sorted(WITH_EXERCISES))
def test_every_check_of_the_module_is_on_the_page(stem):
    module = exercises_of(exercises_name(WITH_EXERCISES[stem]))
    names = {
        name
        for name in vars(module)
        if hasattr(getattr(module, name), "examine")
    }
    on_page = {n for e in exercises_in(WITH_EXERCISES[stem]) for n in e.names}
    assert names == on_page
    assert {getattr(module, n).id for n in names} == {
        f"{stem}.{n}" for n in names
    }


@pytest.mark.parametrize(("stem", "exercise"), EVERY)
def test_page_stays_green_while_an_exercise_is_blank(stem, exercise):
    for feedback in feedback_on_page(WITH_EXERCISES[stem], exercise):
        assert feedback.blank


@pytest.mark.parametrize(("stem", "exercise"), EVERY)
def test_solution_of_the_page_passes(stem, exercise):
    for feedback in feedback_on_page(
        WITH_EXERCISES[stem], exercise, exercise.solution
    ):
        assert feedback.passed, str(feedback)


GOOD = mini_book.page(
    "# A\n\n"
    + mini_book.cell("from attention_lab.exercises import x as exercises")
    + "\nAbout 9 minutes: 2 to read, 2 to predict, 5\nto do.\n\n"
    "## On your own\n\n"
    "**Add.** Difficulty 1 · Importance 2 · 5 minutes. Add them.\n\n"
    + mini_book.cell("def add(x, y):\n    return ...", "exercise")
    + "\n"
    + mini_book.cell("exercises.add.check(add)")
    + "\n<details>\n<summary>Solution</summary>\n\nAdd:\n\n"
    "```python\ndef add(x, y):\n    return x + y\n```\n\n</details>\n"
    "\n## Sources\n\nNone.\n"
)
TABLES = "RIGHT = {'add': [f, g, h]}\nWRONG = {'add': [(f, 'a'), (g, 'b')]}\n"


def test_good_exercise_pleases_every_rule():
    assert {rule.__name__: rule(GOOD) for rule in RULES} == {
        rule.__name__: [] for rule in RULES
    }
    assert untested(GOOD, TABLES) == []
    (exercise,) = exercises_in(GOOD)
    assert (exercise.title, exercise.minutes) == ("Add", 5)
    assert exercise.cells[0] == "def add(x, y):\n    return ...\n"
    assert exercise.names == ["add"]
    assert exercise.solution == "def add(x, y):\n    return x + y\n"


PLANTED = [
    (badly_headed, GOOD.replace(" · 5 minutes", "")),
    (badly_headed, GOOD.replace("Difficulty 1 ·", "Difficulty 1.")),
    (badly_headed, GOOD.replace("**Add.**", "1. **Add.**")),
    (lost_checks, GOOD.replace("exercises.add.check(add)", "add")),
    (
        lost_checks,
        GOOD.replace("## Sources", "## On\n\n**Add.**")
        + mini_book.cell("exercises.add.check(1)"),
    ),
    (unsolved, GOOD.replace("<summary>Solution", "<summary>Answer")),
    (unsolved, GOOD.replace("```python", "```")),
    (too_short_a_time, GOOD.replace("5\nto do", "4 to do")),
    (too_short_a_time, GOOD.replace("5\nto do", "some to do")),
    (filled_in, GOOD.replace("return ...", "return x + y")),
]


@pytest.mark.parametrize(("rule", "text"), PLANTED)
def test_planted_mistake_is_reported(rule, text):
    assert text != GOOD
    assert rule(text) != []


@pytest.mark.parametrize(
    "tables",
    [
        "",
        TABLES.replace("f, g, h", "f, g"),
        TABLES.replace(", (g, 'b')", ""),
        TABLES.replace("'add'", "'sub'"),
    ],
)
def test_exercise_with_too_few_answers_is_reported(tables):
    assert untested(GOOD, tables) != []


def test_solutions_are_stripped_and_nothing_else():
    stripped = without_solutions(GOOD)
    assert "x + y" not in stripped
    assert "Solution" not in stripped
    (exercise,) = exercises_in(stripped)
    assert exercise.names == ["add"]
    assert exercise.solution is None
    assert stripped.endswith("\n## Sources\n\nNone.\n")


@pytest.mark.parametrize("stem", sorted(WITH_EXERCISES))
def test_stripped_chapter_has_its_exercises_and_no_solution(stem):
    text = WITH_EXERCISES[stem]
    before, after = exercises_in(text), exercises_in(without_solutions(text))
    assert [e.cells for e in after] == [e.cells for e in before]
    assert [e.solution for e in after] == [None] * len(before)


RUNNING = mini_book.page(
    mini_book.cell(
        "from types import SimpleNamespace\n"
        "from attention_lab.exercises.exercise import Exercise\n"
        "from attention_lab.verify.report import Check"
    )
    + "\n**Add.** Difficulty 1 · Importance 2 · 5 minutes. Add them.\n\n"
    + mini_book.cell(
        "exercises = SimpleNamespace(add=Exercise('x.add', lambda add: "
        "[Check('sum', add(2, 3) == 5)]))\n"
        "def add(x, y):\n    return ..."
    )
    + mini_book.cell("exercises.add.check(add)")
)


@pytest.mark.parametrize(
    ("sign", "passes"), [("+", True), ("-", False), ("/ 0 *", False)]
)
def test_wrong_solution_of_a_page_is_found(sign, passes):
    (exercise,) = exercises_in(RUNNING)
    (blank,) = feedback_on_page(RUNNING, exercise)
    assert blank.blank
    solution = f"def add(x, y):\n    return x {sign} y\n"
    (feedback,) = feedback_on_page(RUNNING, exercise, solution)
    assert feedback.passed is passes
