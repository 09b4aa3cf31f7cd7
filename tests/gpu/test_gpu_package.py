"""The recorder's files keep to their rooms."""

import ast
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "code/attention_lab/gpu"
FILES = sorted(FOLDER.glob("*.py"))
OWN = "attention_lab.gpu"


def top_level_imports(path):
    """Return the modules that a file imports when it is imported."""
    found = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_is_small_and_imports_numpy_and_its_own_only(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 400
    for module in top_level_imports(path):
        root = module.split(".")[0]
        allowed = root in ("numpy", *sys.stdlib_module_names)
        assert allowed or module.startswith((OWN, "attention_lab.axes")), module


def test_no_module_reaches_itself():
    knows = {
        path.stem: {
            module.removeprefix(f"{OWN}.")
            for module in top_level_imports(path)
            if module.startswith(f"{OWN}.")
        }
        for path in FILES
        if path.stem != "__init__"
    }
    while knows:
        leaves = {name for name, known in knows.items() if not known}
        assert leaves, f"these import each other: {sorted(knows)}"
        knows = {
            name: known - leaves
            for name, known in knows.items()
            if name not in leaves
        }
