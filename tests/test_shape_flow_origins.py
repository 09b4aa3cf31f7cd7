"""Where elements came from, against brute force on position-coded input."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from einops import rearrange, repeat
from hypothesis import given, settings
from hypothesis import strategies as st

from attention_lab.shape_flow import CannotFollow, moves, trace_shapes

AXES = {"x": "BLE", "H": 4}


def coded():
    return torch.arange(120, dtype=torch.float64).reshape(2, 5, 12)


def assert_codes_are_values(flow, made):
    """Position-coded numbers say themselves where they came from."""
    value = flow.outputs[0]
    (root,) = [r for r in flow.roots if r.kind == "input"]
    np.testing.assert_array_equal(value.codes - root.offset, made.numpy())


MOVES = {
    "view": lambda x: x.view(2, 4, 5, 3),
    "permute": lambda x: x.permute(2, 0, 1),
    "reshape copy": lambda x: x.mT.reshape(10, 12),
    "contiguous": lambda x: x.mT.contiguous(),
    "chunk": lambda x: x.chunk(3, -1)[1],
    "split": lambda x: x.split([5, 7], -1)[1],
    "unbind": lambda x: x.unbind(1)[3],
    "stack": lambda x: torch.stack(x.unbind(1)[::-1], 2),
    "cat": lambda x: torch.cat([x[:, 3:], x[:, :3]], 1),
    "rearrange": lambda x: rearrange(x, "b l (h d) -> (d b) h l", h=4),
    "einops repeat": lambda x: repeat(x, "b l e -> b (l g) e", g=2),
    "slice": lambda x: x[1:, ::2, 1:-1],
    "list index": lambda x: x[:, [4, 0, 0]],
    "mask index": lambda x: x[x.remainder(3) == 0],
    "index_select": lambda x: x.index_select(1, torch.tensor([3, 1])),
    "gather": lambda x: x.gather(1, torch.tensor([[[3, 0]], [[1, 1]]])),
    "take_along_dim": lambda x: x.take_along_dim(x.argsort(1) * 0 + 2, 1),
    "expand": lambda x: x[:, :, None].expand(2, 5, 3, 12),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, dim=1),
    "roll": lambda x: x.roll(2, 1),
    "flip": lambda x: x.flip(-1),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "as_strided": lambda x: x.as_strided((3, 4), (7, 2), 11),
    "diagonal": lambda x: x.diagonal(1, 1, 2),
    "T": lambda x: x[0].T,
    "clone": lambda x: x.clone(),
    "cast and back": lambda x: x.int().double(),
    "setitem": lambda x: _written(x),
    "copy_": lambda x: torch.empty(12, 5, 2).double().copy_(x.permute(2, 1, 0)),
    "transpose_": lambda x: x.clone().transpose_(0, 2),
    "out of a tuple": lambda x: torch.broadcast_tensors(x[:, :1], x)[0],
    "movedim of a view": lambda x: x.unflatten(2, (4, 3)).movedim(2, 0)[1:],
    "tile": lambda x: x.tile(2, 1, 1),
    "narrow": lambda x: x.narrow(1, 1, 3),
    "view through an alias": lambda x: _alias(x),
}


def _written(x):
    y = x.clone()
    y.view(2, 5, 4, 3)[:, :, 1] = x[..., :3]
    y[0, 1:3] = x[1, 0]
    return y.transpose(0, 1)


def _alias(x):
    y = x.clone()
    other = y.view(120)
    other[:60] = x.flatten()[60:]
    return y


@pytest.mark.parametrize("name", MOVES)
def test_movement_is_followed_exactly(name):
    made = []

    def run(x):
        made.append(MOVES[name](x))
        return made[0]

    assert_codes_are_values(trace_shapes(run, coded()), made[0])


@settings(deadline=None, max_examples=40)
@given(data=st.data())
def test_any_chain_of_moves_is_followed_exactly(data):
    made = []

    def run(x):
        for _ in range(data.draw(st.integers(1, 6))):
            x = _any_move(data, x)
        made.append(x)
        return x

    assert_codes_are_values(trace_shapes(run, coded()), made[0])


KINDS = (
    "permute", "reshape", "flip", "roll", "cat", "index", "write", "clone",
)  # fmt: skip


def _any_move(data, x):
    kind = data.draw(st.sampled_from(KINDS))
    if kind == "permute":
        return x.permute(*data.draw(st.permutations(range(x.ndim))))
    if kind == "reshape":
        sizes = [s for s in (1, 2, 3, 4, 5, 6, 10, 12) if not x.numel() % s]
        first = data.draw(st.sampled_from(sizes))
        return x.reshape(first, -1, *([1] * data.draw(st.integers(0, 1))))
    axis = data.draw(st.integers(0, x.ndim - 1))
    if kind == "flip":
        return x.flip(axis)
    if kind == "roll":
        return x.roll(1, axis)
    if kind == "cat":
        return torch.cat(x.chunk(2, axis)[::-1], axis)
    if kind == "index":
        order = data.draw(st.permutations(range(x.shape[axis])))
        return x.index_select(axis, torch.tensor(order))
    if kind == "write":
        y = x.clone()
        y.select(axis, 0).copy_(x.select(axis, x.shape[axis] - 1))
        return y
    return x.clone(memory_format=torch.contiguous_format)


def test_the_brute_force_itself_can_fail(monkeypatch):
    def backwards(memory, name, args, kwargs, which):
        args, kwargs = honest(memory, name, args, kwargs, which)
        return tuple(
            a.flip(0) if isinstance(a, torch.Tensor) else a for a in args
        ), kwargs

    honest = moves._on_codes
    monkeypatch.setattr(moves, "_on_codes", backwards)
    with pytest.raises(AssertionError):
        test_movement_is_followed_exactly("reshape copy")


WEIGHT = torch.randn(6, 12, dtype=torch.float64)
COMPUTES = {
    "linear": lambda x: F.linear(x, WEIGHT, WEIGHT[:, 0]),
    "scores": lambda x: x @ x.mT,
    "softmax": lambda x: (x / 50).softmax(1),
    "layer norm": lambda x: F.layer_norm(x, (12,)),
    "sum": lambda x: x.sum(1),
    "mean, kept": lambda x: x.mean((0, 2), keepdim=True),
    "einsum": lambda x: torch.einsum("ble,bse->bls", x, x),
    "einsum with dots": lambda x: torch.einsum("...e,fe->...f", x, WEIGHT),
    "elementwise": lambda x: x * x.sin() + x[:, :1],
    "broadcast": lambda x: x[:, :, None] * x[:, None],
    "attention": lambda x: F.scaled_dot_product_attention(
        *(x / 50).view(2, 5, 4, 3).transpose(1, 2).chunk(1, 0) * 3
    ),
    "bmm of heads": lambda x: torch.bmm(
        x.view(2, 5, 4, 3).transpose(1, 2).reshape(8, 5, 3) / 50,
        x.view(2, 5, 4, 3).permute(0, 2, 3, 1).reshape(8, 3, 5) / 50,
    ),
    "in place": lambda x: (x / 9).clone().mul_(2).sub_(x[:, :1]).exp_(),
    "logsumexp": lambda x: (x / 50).logsumexp(-1),
    "cumsum": lambda x: x.cumsum(1),
    "where": lambda x: torch.where(x > 50, x, 2 * x),
    "conv": lambda x: F.conv1d(x.mT, WEIGHT[:, :, None].expand(6, 12, 3)),
}
#: These say what an element can depend on; in fact it depends on less.
UPPER_BOUNDS = ("cumsum", "conv")


@pytest.mark.parametrize("name", COMPUTES)
def test_dependence_is_that_of_the_jacobian(name):
    x = coded() + 1
    function = COMPUTES[name]
    flow = trace_shapes(function, x, letters={0: "BLE"})
    value = flow.outputs[0]
    jacobian = torch.autograd.functional.jacobian(function, x)
    rng = np.random.default_rng(0)
    flat = rng.choice(value.codes.size, min(8, value.codes.size), False)
    for place in flat:
        index = np.unravel_index(place, value.shape)
        true = set(map(tuple, (jacobian[tuple(index)] != 0).nonzero().tolist()))
        step = flow.steps[-1].number
        said = set(next(iter(flow.origin(step, index).inputs.values())))
        assert true <= said
        if name not in UPPER_BOUNDS:
            assert true == said


def test_dependence_reaches_through_a_whole_attention():
    from shape_flow_styles import H, Projections, split_view

    flow = trace_shapes(
        Projections(split_view), torch.randn(2, 5, 12),
        letters={"x": "BLE", "H": H},
    )  # fmt: skip
    last = flow.origin(len(flow.steps), (1, 2, 3))
    assert last.root == f"linear (step {len(flow.steps)})"
    assert last.index == (1, 2, 3)
    assert last.along("x", 0) == ((1,),)
    assert len(last.inputs["x"]) == 5 * 12
    head = next(s for s in flow.steps if s.name == "permute").number
    origin = flow.origin(head, (0, 1, 2, 0))
    assert (origin.root, origin.index) == ("linear (step 1)", (0, 2, 3))
    assert origin.along("x", 1) == ((2,),)


@pytest.mark.parametrize(
    ("split", "axes", "fixed", "words"),
    [
        (lambda x: x.view(2, 5, 3, 4).transpose(1, 2), None, {"H": 1, "L": 2},
         "head 1 of token 2 holds columns 4…7 of token 2"),
        (lambda x: x.view(2, 5, 3, 4).transpose(1, 2), None, {"H": 1},
         "head 1 holds columns 4…7 of token 0…4"),
        (lambda x: x.view(2, 3, 5, 4), "BHLD", {"H": 1, "L": 2},
         "head 1 of token 2 holds columns 4…7 of token 2"),
        (lambda x: x.view(2, 3, 5, 4), "BHLD", {"H": 1},
         "head 1 holds tokens 1, 2 and 3 mixed: columns 8…11 of token 1, "
         "columns 0…11 of token 2, columns 0…3 of token 3"),
        (lambda x: rearrange(x, "b l (d h) -> b h l d", h=3), "BHLD",
         {"H": 1, "L": 0}, "head 1 of token 0 holds columns 1, 4, 7, 10 of "
         "token 0"),
    ],
)  # fmt: skip
def test_contents_are_said_in_a_sentence(split, axes, fixed, words):
    flow = trace_shapes(split, coded(), letters={"x": "BLE", "H": 3})
    said = flow.contents(len(flow.steps), axes, **fixed)
    assert said.replace("tokens 0…4", "token 0…4") == words


def test_a_question_without_an_answer_is_refused():
    flow = trace_shapes(lambda x: x.mT, coded(), letters={"x": "BLE"})
    for call, words in (
        (lambda: flow.origin(2, (0, 0, 0)), "step must be 1 … 1"),
        (lambda: flow.origin("y", (0, 0, 0)), "no input 'y'; there are x"),
        (lambda: flow.origin(1, (0, 0)), "index has 2 numbers"),
        (lambda: flow.origin(1, (0, 12, 0)), "axis 1 of step 1 ends at 11"),
        (lambda: flow.contents(1, H=0), "has axes B E L"),
        (lambda: flow.contents(1, "BHLD"), "names 4 axes"),
        (lambda: flow.contents(1, L=5), "axis L of step 1 has size 5"),
        (lambda: flow.value(1, 1), "has 1 results"),
    ):
        with pytest.raises(ValueError, match=words):
            call()


def test_an_unknown_step_cannot_be_followed_back():
    flow = trace_shapes(lambda x: torch.fft.fft(x).abs(), coded())
    with pytest.raises(CannotFollow, match="fft_fft"):
        flow.origin(2, (0, 0, 0))
