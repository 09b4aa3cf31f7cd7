"""What the tests of a chapter's exercises share.

`tests/exercises/test_<chapter>.py` has two tables: `RIGHT` maps the name of an
exercise to at least three different right answers, `WRONG` to at least two
wrong ones, each with the name of the check that fails and a piece of what the
report says: words, or the id of a known mistake. `tests/test_book_exercises.py`
tries the page itself: every exercise blank, and with the page's solution.
"""

import ast
import contextlib
import importlib
import io
import linecache

from page_exercises import code_cells


def each(table):
    """Return (exercise, number, answer) for a parametrised test."""
    return [
        (name, number, answer)
        for name, answers in table.items()
        for number, answer in enumerate(answers)
    ]


def assert_passes(feedback):
    """Fail with the report unless the answer passed."""
    assert feedback.passed, str(feedback)


def assert_fails(feedback, check, words):
    """Fail unless this check failed, and what it says has the words.

    It says a message, the smallest example, and the ids of mistakes.

    The failure has to help as well: it says what differs, a hint or a cause.
    """
    assert not feedback.blank
    assert not feedback.passed
    failed = feedback[check]
    assert not failed.passed, str(feedback)
    parts = failed.message, failed.counterexample, failed.mistake, failed.also
    said = " ".join(map(str, parts))
    assert words in said, said
    assert failed.what


def in_order(parsons, *codes):
    """Return the letters of a Parsons problem for lines, given as code.

    Without lines: those of the kernel itself, in its own order.
    """
    left = dict(parsons.lines)
    order = []
    for code in codes or [line.code for line in parsons.ordered]:
        letter = next(
            (key for key, line in left.items() if line.code == code), None
        )
        assert letter, f"no line {code!r} is left in {left}"
        order.append(letter)
        del left[letter]
    return " ".join(order)


def exercises_of(stem):
    """Return the module with a chapter's exercises."""
    return importlib.import_module(f"attention_lab.exercises.{stem}")


def feedback_on_page(text, exercise, code=None):
    """Run an exercise as a reader does, and return what its checks say.

    Its own cells run with the imports of the page's first cell and nothing
    else of the page: whoever jumps to an exercise has run only that. `code`,
    a solution, replaces what the cells define.
    """
    namespace = _imports(code_cells(text)[0])
    name = f"<{exercise.title} {hash((text, code))}>"
    source = "\n\n".join(exercise.cells) + "\n"
    if code is not None:
        source += f"\n{code}\n"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    with contextlib.redirect_stdout(io.StringIO()):
        exec(compile(source, name, "exec"), namespace)
        return [
            eval(compile(ast.Expression(call), name, "eval"), namespace)
            for call in exercise.calls
        ]


def _imports(first_cell):
    """Run the imports of a page's first cell and return their names."""
    tree = ast.parse(first_cell)
    tree.body = [
        node
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    namespace = {"__name__": "__main__"}
    exec(compile(tree, "<imports>", "exec"), namespace)
    return namespace
