"""Check the answers of the tables inside this process: a copy costs 0.1 s.

`test_exercise.py` tries the copies, and `tests/test_book_exercises.py` checks
the solution of every page in one.
"""

import pytest

from attention_lab.verify.isolation import isolated


@pytest.fixture(autouse=True)
def stay_in_this_process(request, monkeypatch):
    if request.path.name != "test_exercise.py":
        monkeypatch.setattr(isolated, "why_not_copied", lambda: "for speed")
