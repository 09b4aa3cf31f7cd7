"""Where it cannot follow it says so: no internal error, no wrong claim."""

import functools

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import nn

from attention_lab.axes import ShapeMismatch
from attention_lab.shape_flow import (
    CannotFollow,
    memory,
    moves,
    recorder,
    trace_shapes,
)


def tokens():
    return torch.arange(120.0).reshape(2, 5, 12)


def assert_no_claim(value):
    """Nothing is said about axes or elements; only shape and stride are."""
    assert set(value.letters) <= {"?", "1"}
    assert value.codes is None


@pytest.mark.parametrize(
    "compiled",
    [
        torch.compile(nn.Linear(12, 12), backend="eager"),
        nn.Sequential(torch.compile(nn.Linear(12, 12), backend="eager")),
        torch.compile(lambda x: x.mT, backend="eager"),
        functools.partial(torch.compile(lambda x: x.mT, backend="eager")),
    ],
)
def test_compiled_code_is_not_followed_and_not_run(compiled):
    flow = trace_shapes(compiled, tokens(), letters={0: "BLE"})
    assert len(flow) == 0
    assert "compiled" in flow.problem
    assert "before torch.compile" in str(flow)
    with pytest.raises(CannotFollow, match="compiled"):
        flow.verify(heads=4)
    with pytest.raises(ValueError, match="nothing to draw"):
        flow.draw()


def test_numpy_functions_are_not_followed():
    flow = trace_shapes(np.transpose, np.ones((2, 3)))
    assert "NumPy's steps are not seen" in str(flow)
    assert "no argument is a torch tensor" in str(trace_shapes(lambda: 3))


def test_numpy_inside_is_noted_and_its_writes_are_found():
    def sneaky(x):
        y = x.clone()
        y.numpy()[0] = 7.0
        return y.view(2, 5, 4, 3)

    flow = trace_shapes(sneaky, tokens(), letters={"x": "BLE", "H": 4})
    assert "numpy() leaves torch at test_shape_flow_cannot.py" in str(flow)
    assert "step 1: its memory was changed by something" in str(flow)
    with pytest.raises(CannotFollow, match="such as NumPy"):
        flow.origin(2, (0, 0, 0, 0))


def test_numpy_that_only_reads_changes_nothing():
    flow = trace_shapes(lambda x: (x.numpy().sum(), x.mT)[1], tokens())
    assert "changed" not in str(flow)


def test_a_result_of_numpy_is_not_taken_for_an_input():
    def outside(x):
        return torch.from_numpy(x.numpy() * 2)

    flow = trace_shapes(outside, tokens(), letters={"x": "BLE"})
    assert "made outside of the torch calls" in str(flow) or (
        flow.outputs[0].letters == ("?", "?", "?")
    )
    with pytest.raises(CannotFollow):
        flow.verify(split="b l (h d) -> b h l d", h=4)


UNKNOWN = {
    "fft": lambda x: torch.fft.fft(x).abs(),
    "topk": lambda x: x.topk(3).values,
    "complex view": lambda x: torch.view_as_complex(x.view(2, 5, 6, 2)).abs(),
    "dtype view": lambda x: x.view(torch.int32) + 1,
    "sparse": lambda x: x.to_sparse().to_dense(),
    "svd": lambda x: torch.linalg.svd(x)[0],
    "unfold": lambda x: F.unfold(x[None], (2, 2)),
    "diagonal einsum": lambda x: torch.einsum("bii->b", x[:, :, :5]),
    "quantile": lambda x: x.quantile(0.5, dim=1),
    "lstm": lambda x: nn.LSTM(12, 3, batch_first=True)(x)[0],
    "cdist": lambda x: torch.cdist(x, x),
    "vmap": torch.vmap(lambda x: x.view(5, 4, 3).sum(0)),
    "nested": lambda x: torch.nested.nested_tensor(list(x)),
    "quantized": lambda x: torch.quantize_per_tensor(x, 1.0, 0, torch.qint8),
}


@pytest.mark.parametrize("name", UNKNOWN)
@pytest.mark.filterwarnings("ignore:.*prototype")  # nested tensors say so
@pytest.mark.filterwarnings("ignore:.*[Qq]uantiz")  # being moved out of torch
def test_an_unknown_step_is_named_and_nothing_is_claimed(name):
    flow = trace_shapes(UNKNOWN[name], tokens(), letters={0: "BLE", "H": 4})
    assert "cannot follow" in str(flow) or "not seen" in str(flow)
    (value,) = flow.outputs
    assert set(value.letters) <= {"?", "1"}
    assert all(value.why.values())
    opaque = [s for s in flow.steps if s.kind == "opaque"]
    assert opaque or value.codes is None
    flow.to_json()


@pytest.mark.filterwarnings("ignore:.*prototype")
@pytest.mark.filterwarnings("ignore:.*[Qq]uantiz")
@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda x: torch.nested.nested_tensor([x[0], x[1, :3]]), "is nested"),
        (lambda x: torch.quantize_per_tensor(x, 1.0, 0, torch.qint8),
         "is quantized"),
        (lambda x: x.to_sparse(), "its layout is torch.sparse_coo"),
    ],
)  # fmt: skip
def test_an_argument_without_plain_memory_is_said_to_be_one(make, words):
    flow = trace_shapes(lambda x: x.clone(), make(tokens()))
    assert words in str(flow) + flow.inputs[0].reason
    with pytest.raises(CannotFollow, match=words):
        flow.origin(1, (0, 0, 0))


def test_a_view_with_the_sign_turned_is_no_change_of_memory():
    flow = trace_shapes(lambda x: x.conj() * 2, tokens() + 1j)
    assert "changed" not in str(flow)
    assert flow.origin(2, (1, 2, 3)).along("x", 0, 1, 2) == ((1, 2, 3),)


def test_a_cast_that_rounds_is_no_change_of_memory():
    x = tokens().double() + 1e-12
    flow = trace_shapes(lambda x: x.float().double() * 1, x)
    assert "changed" not in str(flow)
    assert flow.origin(3, (1, 2, 3)).along("x", 0, 1, 2) == ((1, 2, 3),)


@pytest.mark.parametrize(
    "choose",
    [
        lambda x: x.gather(1, x.argsort(1)),
        lambda x: x[x > 50],
        lambda x: x.index_select(1, x[0, :2, 0].long() * 0),
    ],
)
def test_a_choice_by_the_inputs_numbers_is_noted(choose):
    flow = trace_shapes(choose, tokens(), letters={"x": "BLE"})
    assert "that choice is not followed" in str(flow)
    plain = trace_shapes(
        lambda x: x.index_select(1, torch.tensor([1])), tokens()
    )
    assert "choice" not in str(plain)


def test_arguments_that_are_not_looked_into_are_said():
    class Pair:
        def __init__(self, tensor):
            self.tensor = tensor

    def add(x, pair, array):
        return x + pair.tensor + torch.from_numpy(array)

    flow = trace_shapes(add, tokens(), Pair(tokens()), np.ones((2, 5, 12)))
    assert "pair is a Pair, which is not looked into" in str(flow)
    assert "array is an ndarray: it counts as a constant" in str(flow)


def test_the_way_goes_on_behind_an_unknown_step():
    def f(x):
        return torch.fft.fft(x).abs().view(2, 5, 4, 3).transpose(1, 2)

    flow = trace_shapes(f, tokens(), letters={"x": "BLE", "H": 4})
    flow.verify(split="b l (h d) -> b h l d", h=4)
    with pytest.raises(CannotFollow, match="further back than fft_fft"):
        flow.origin(4, (0, 1, 2, 0))


def test_a_tensor_too_large_to_follow_keeps_shape_and_stride(monkeypatch):
    from attention_lab.shape_flow import book

    for module in (memory, book):
        monkeypatch.setattr(module, "MOST_ELEMENTS", 100)
    flow = trace_shapes(lambda x: x.view(2, 5, 4, 3).mT, tokens())
    assert_no_claim(flow.outputs[0])
    assert flow.outputs[0].strides == (60, 12, 1, 3)
    assert flow.outputs[0].memory == "view"
    assert "120 elements" in str(flow)
    with pytest.raises(CannotFollow, match="120 elements"):
        flow.origin(1, (0, 0, 0, 0))


def test_a_meta_tensor_is_followed_without_values():
    x = tokens().to("meta")
    flow = trace_shapes(
        lambda x: x.view(2, 5, 4, 3).transpose(1, 2), x,
        letters={"x": "BLE", "H": 4},
    )  # fmt: skip
    flow.verify(split="b l (h d) -> b h l d")


@pytest.mark.parametrize("what", ["_on_codes", "find_rule"])
def test_a_fault_of_the_recorder_never_reaches_the_function(what, monkeypatch):
    def broken(*_, **__):
        raise IndexError("planted")

    target = moves if what == "_on_codes" else recorder
    monkeypatch.setattr(target, what, broken)
    kept = []

    def f(x):
        kept.append((x.mT.contiguous() + 1).sum())
        return kept[0]

    flow = trace_shapes(f, tokens())
    assert float(kept[0]) == float((tokens() + 1).sum())
    assert "IndexError: planted" in str(flow)


def test_the_functions_own_error_says_where_it_was():
    def f(x):
        return x.permute(0, 2, 1).view(2, -1)

    with pytest.raises(RuntimeError, match="view size") as caught:
        trace_shapes(f, tokens())
    assert caught.value.__notes__ == [
        "shape flow: it was raised after step 1, permute(0, 2, 1)"
    ]


def test_a_function_without_a_tensor_as_result():
    flow = trace_shapes(lambda x: float(x.sum()), tokens())
    assert "returned no tensor but float" in str(flow)
    flow = trace_shapes(lambda x: {"a": [x.mT], "n": 3}, tokens())
    assert [v.name for v in flow.outputs] == ["step 1"]


@pytest.mark.parametrize(
    ("letters", "error", "words"),
    [
        ({"x": "BL"}, ShapeMismatch, "x has 3 axes .* letters are B L"),
        ({"x": "BLQ"}, ValueError, "'Q' is no axis"),
        ({"y": "BLE"}, ValueError, "'y' is no tensor argument; those are x"),
        ({3: "BLE"}, ValueError, "there is no argument 3"),
        ({"x": "BLE", "E": 13}, ShapeMismatch, "axis E has size 12"),
        ({"x": "BLE", "H": 5}, ShapeMismatch, "which H = 5 does not divide"),
        ({"x": "BLE", "Z": 5}, ValueError, "no size of an axis"),
        ({"x": "BLE", "H": 0}, ValueError, "no size of an axis"),
        ({"x": ["B"]}, ValueError, "must be text"),
        ({"x": "BLL"}, ShapeMismatch, "axis L has size 12, but x has L = 5"),
    ],
)
def test_letters_that_do_not_fit_are_refused(letters, error, words):
    with pytest.raises(error, match=words):
        trace_shapes(lambda x: x, tokens(), letters=letters)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ValueError, match="must be callable"):
        trace_shapes(3)
