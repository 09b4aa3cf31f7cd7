"""The exercises of a chapter's text: read them, and strip their solutions."""

import ast
import re
from dataclasses import dataclass

HEADING = re.compile(
    r"^\*\*(?P<title>[^*\n]+)\.\*\* Difficulty (?P<difficulty>[1-5])"
    r" · Importance (?P<importance>[1-5]) · (?P<minutes>\d+) minutes\b",
    re.MULTILINE,
)
#: Something that was meant as a heading, well written or not.
LIKE_A_HEADING = re.compile(r"^.*\bdifficulty\W+\d.*$", re.MULTILINE | re.I)
_CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL
)
_FENCE = re.compile(r"^```python\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_SOLUTION = re.compile(
    r"^<details>\s*<summary>Solution</summary>\n(?P<body>.*?)^</details>\n*",
    re.MULTILINE | re.DOTALL,
)
_SECTION = re.compile(r"^## ", re.MULTILINE)


@dataclass(frozen=True)
class PageExercise:
    """One exercise as it stands in a chapter.

    Attributes
    ----------
    title, difficulty, importance, minutes : its heading.
    cells : the source of its code cells, without their options.
    solution : the Python of its solution, or None.
    """

    title: str
    difficulty: int
    importance: int
    minutes: int
    cells: tuple[str, ...]
    solution: str | None

    @property
    def calls(self) -> list[ast.Call]:
        """Return the calls ``exercises.<name>.check(…)`` of its cells."""
        return [
            node
            for cell in self.cells
            for node in ast.walk(ast.parse(cell))
            if isinstance(node, ast.Call)
            and re.fullmatch(r"exercises\.\w+\.check", ast.unparse(node.func))
        ]

    @property
    def names(self) -> list[str]:
        """Return the names of the checks that it calls."""
        return [ast.unparse(call.func).split(".")[1] for call in self.calls]


def code_cells(text: str) -> list[str]:
    """Return the source of the code cells of a text, without their options."""
    return [
        re.sub(r"\A(:[^\n]*\n)+", "", match["body"])
        for match in _CELL.finditer(text)
    ]


def exercises_in(text: str) -> list[PageExercise]:
    """Return the exercises of a chapter, in order.

    An exercise goes on until the next one, or the next section.
    """
    found = []
    headings = list(HEADING.finditer(text))
    for k, heading in enumerate(headings):
        ends = [match.start() for match in headings[k + 1 : k + 2]]
        section = _SECTION.search(text, heading.end())
        ends += [section.start()] if section else []
        part = text[heading.end() : min(ends, default=len(text))]
        solution = _SOLUTION.search(part)
        fence = _FENCE.search(solution["body"]) if solution else None
        found.append(
            PageExercise(
                title=heading["title"],
                difficulty=int(heading["difficulty"]),
                importance=int(heading["importance"]),
                minutes=int(heading["minutes"]),
                cells=tuple(code_cells(_SOLUTION.sub("", part))),
                solution=fence["body"] if fence else None,
            )
        )
    return found


def without_solutions(text: str) -> str:
    r"""Return a chapter's text without the solutions of its exercises.

    What a class gets whose teacher keeps the solutions. Other answers that a
    reader can open stay.

    Examples
    --------
    >>> solution = "<details>\n<summary>Solution</summary>\n4\n</details>\n"
    >>> without_solutions("Task.\n\n" + solution + "\nNext.\n")
    'Task.\n\nNext.\n'
    """
    return _SOLUTION.sub("", text)
