"""Origins against brute force: change one number, and see what changes."""

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_leaves

from attention_lab.shape_flow import CannotFollow, origins, rules, trace_shapes
from shape_flow_cases import CASES, NOT_FOLLOWED, UPPER_BOUNDS, B, E, H, L

#: Of each result, so many numbers are asked for.
MOST_PLACES = 10


def coded(shape=(B, L, E)):
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def tensors(result):
    return [x.detach() for x in tree_leaves(result)]


def by_brute_force(function, x):
    """Return, for each result, which of its numbers each number of x moves."""
    before = tensors(function(x.clone()))
    moved = [np.zeros((result.numel(), x.numel()), bool) for result in before]
    for place in range(x.numel()):
        for step in (0.37, -5.1):
            other = x.clone()
            other.view(-1)[place] += step
            for one, two, found in zip(
                before, tensors(function(other)), moved, strict=True
            ):
                found[:, place] |= (one != two).reshape(-1).numpy()
    return moved


def said(flow, value, places):
    """Return what the flow says: for some numbers, what they can depend on."""
    found = np.zeros((len(places), flow.inputs[0].codes.size), bool)
    for row, place in enumerate(places):
        code = value.codes.reshape(-1)[place]
        for mask in origins.reach(flow.roots, np.array([code])).values():
            found[row] |= mask.reshape(-1)
    return found


def check(name, function, x):
    flow = trace_shapes(function, x.clone(), letters={0: "BLE"})
    moved = by_brute_force(function, x)
    assert len(flow.outputs) == len(moved)
    rng = np.random.default_rng(0)
    for value, whole in zip(flow.outputs, moved, strict=True):
        many = min(MOST_PLACES, len(whole))
        places = rng.choice(len(whole), many, replace=False)
        true, claimed = whole[places], said(flow, value, places)
        assert not (true & ~claimed).any(), "it depends on more"
        if name not in UPPER_BOUNDS:
            assert not (claimed & ~true).any(), "it depends on less"


@pytest.mark.parametrize("name", [n for n in CASES if n not in NOT_FOLLOWED])
def test_an_element_depends_on_what_moves_it(name):
    check(name, CASES[name], coded())


@pytest.mark.parametrize("name", sorted(NOT_FOLLOWED))
def test_what_is_not_followed_is_said_and_nothing_is_claimed(name):
    flow = trace_shapes(CASES[name], coded(), letters={0: "BLE", "H": H})
    assert any(
        word in str(flow) for word in ("cannot follow", "not seen", "unseen")
    )
    (value,) = flow.outputs
    with pytest.raises(CannotFollow):
        origins.reach(flow.roots, origins.followed(value).reshape(-1)[:1])
    assert set(value.letters) <= {"?", "1"}


#: Where all axes have one size, a rule cannot be saved by the shapes.
SQUARE = {
    "norm": lambda x: x.norm(1, 2),
    "sum": lambda x: x.sum(0),
    "mean, kept": lambda x: x.mean(1, keepdim=True) + x,
    "softmax": lambda x: x.softmax(0),
    "matmul": lambda x: x @ x[0],
    "transposed": lambda x: x.mT @ x.transpose(0, 2),
    "einsum": lambda x: torch.einsum("abc,cbd->dac", x, x),
    "linear": lambda x: torch.nn.functional.linear(x, x[1], x[0, 2]),
    "broadcast": lambda x: x + x[:, :1] * x[0, 0],
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, (3,)),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(
        x, x.transpose(0, 1), x.mT
    ),
    "baddbmm": lambda x: torch.baddbmm(x[0], x, x.transpose(0, 1)),
    "rmatmul": lambda x: x.__rmatmul__(x[0]),
    "sort, then mean": lambda x: x.sort(1).values.mean(1),
    "outer": lambda x: torch.outer(x[0, 0], x[0, 1]),
}


@pytest.mark.parametrize("name", SQUARE)
def test_axes_of_one_size_are_not_confused(name):
    check(name, SQUARE[name], coded((3, 3, 3)))


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("outer", lambda rule, a, k, r: rule["outer"](a[::-1], k, r)),
        ("matmul", lambda rule, a, k, r: rule["add"](a, k, r)),
        ("softmax", lambda rule, a, k, r: rule["tanh"](a, k, r)),
        ("sum", lambda rule, a, k, r: rule["sum"](a[:1], {"dim": 1}, r)),
    ],
)
def test_a_wrong_rule_is_caught(name, planted, monkeypatch):
    honest = dict(rules.RULES)
    monkeypatch.setitem(rules.RULES, name, lambda *call: planted(honest, *call))
    with pytest.raises((AssertionError, CannotFollow)):
        check(name, SQUARE[name], coded((3, 3, 3)))
