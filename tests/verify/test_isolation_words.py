"""The sentences about code that did not come to its end."""

import signal
import threading

import numpy as np
import pytest
from foreign_code import (
    FIRST,
)

from attention_lab.verify.isolation import isolated
from attention_lab.verify.isolation.isolated import Progress
from attention_lab.verify.isolation.words import (
    RECORDER,
    forks_in_words,
    place_in_words,
    ran_out_of_memory,
    signal_in_words,
    stack_in_words,
    tail_in_words,
)

# Words ----------------------------------------------------------------------


def test_progress_alone_drops_what_it_is_told():
    progress = Progress()
    progress.starts("first")
    progress.finished(FIRST)


def test_libraries_are_passed_over_when_a_place_is_named():
    stack = f"""Current thread 0x1 (most recent call first):
  File "{threading.__file__}", line 9 in wait
  File "/x/site-packages/torch/functional.py", line 5 in einsum
  File "/x/ipykernel_7/12.py", line 4 in attend
  File "/x/mine.py", line 8 in <module>
  File "{isolated.__file__}", line 3 in build
  File "/x/caller.py", line 99 in <module>
"""
    assert stack_in_words(stack) == "line 4, in attend"
    last = "\n".join(stack.splitlines()[-3:-1])
    assert stack_in_words(last) == "line 8 of mine.py"
    # What called the verifier is not where the code hangs.
    assert stack_in_words("\n".join(stack.splitlines()[-2:])) == ""
    assert stack_in_words("nothing") == ""


def test_a_line_of_generated_code_is_not_named():
    recorder = RECORDER / "engine.py"
    stack = f"""Current thread 0x1 (most recent call first):
  File "<lowered hang 7>", line 6 in thread
  File "{recorder}", line 3 in run
  File "/x/mine.py", line 8 in outer
"""
    assert stack_in_words(stack) == "line 8 of mine.py, in outer"
    assert stack_in_words("\n".join(stack.splitlines()[:-1])) == ""


def test_the_place_of_an_error_is_named():
    def attend():
        return np.zeros(3) @ np.zeros(2)

    with pytest.raises(ValueError, match="matmul") as raised:
        attend()
    line = attend.__code__.co_firstlineno + 1
    place = f"line {line} of test_isolation_words.py, in attend"
    assert place_in_words(raised.value) == place
    assert place_in_words(ValueError("never raised")) == ""


def test_words_for_rare_endings():
    assert "a process of its own" in forks_in_words(1)
    assert signal_in_words(signal.SIGBUS) == "It crashed with signal SIGBUS"
    assert signal_in_words(63) == "It crashed with signal 63"
    assert tail_in_words("\n \n") == ""
    assert tail_in_words("a\nb\nc\nd\n") == 'It last printed: "b / c / d".'
    assert ran_out_of_memory(RuntimeError("std::bad_alloc"))
    assert not ran_out_of_memory(ValueError("not enough memory"))
