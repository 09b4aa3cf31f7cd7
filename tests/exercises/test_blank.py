import re

import numpy as np
import pytest
import torch

from attention_lab.exercises.blank import is_blank
from attention_lab.gpu import cuda


def with_gap(x):
    return ...


def with_gap_inside(x):
    total = sum(...)
    return total


def gap_as_an_argument(x):
    return torch.softmax(x, dim=...)


def whole(x):
    """Ends in ..., which is text."""
    return x[..., 0] + x[0, ...]


def annotated(x: tuple[int, ...]) -> tuple[int, ...]:
    return x


@cuda.jit
def kernel_with_gap(out, x):
    i = cuda.grid(1)
    if ...:
        out[i] = x[i]


@cuda.jit
def whole_kernel(out, x):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i]


class LayerWithGap:
    def forward(self, x): ...


class WholeLayer:
    def forward(self, x):
        return x[..., :2]


BLANK = [
    None,
    ...,
    "",
    " … ",
    "...",
    (1, None),
    [..., 2],
    {"rows": None},
    with_gap,
    with_gap_inside,
    gap_as_an_argument,
    kernel_with_gap,
    LayerWithGap,
    lambda x: ...,
]
GIVEN = [
    0,
    False,
    "A",
    "0",
    (),
    np.zeros(2),
    torch.zeros(2),
    whole,
    annotated,
    whole_kernel,
    WholeLayer,
    WholeLayer(),
    max,
    np.sum,
    torch.nn.Identity(),
    lambda x: x[..., 0],
]


def name_of(answer):
    """Name a case without its address, which differs between processes."""
    return re.sub(r" at 0x\w+", "", str(answer))


@pytest.mark.parametrize("answer", BLANK, ids=name_of)
def test_answer_with_a_gap_is_blank(answer):
    assert is_blank(answer)


@pytest.mark.parametrize("answer", GIVEN, ids=name_of)
def test_answer_without_a_gap_is_given(answer):
    assert not is_blank(answer)


def test_function_without_source_is_given():
    namespace = {}
    exec("def f(x):\n    return ...", namespace)
    assert not is_blank(namespace["f"])


def test_gap_in_a_notebook_cell_is_found():
    shell = pytest.importorskip("IPython.core.interactiveshell")
    run = shell.InteractiveShell.instance().run_cell
    run("def blank(x):\n    return ...\n\ndef given(x):\n    return x[...]\n")
    names = shell.InteractiveShell.instance().user_ns
    try:
        assert is_blank(names["blank"])
        assert not is_blank(names["given"])
    finally:
        shell.InteractiveShell.clear_instance()
