"""Arguments that are one tensor, share memory, repeat, or hide in a list."""

import numpy as np
import pytest
import torch
from torch import nn

from attention_lab.axes import ShapeMismatch
from attention_lab.shape_flow import trace_shapes

H = 4


def tokens(n=5, e=12):
    return torch.randn(2, n, e, generator=torch.Generator().manual_seed(0))


def attend(query, key, value):
    return (query @ key.mT).softmax(-1) @ value


def test_one_tensor_under_three_names_is_said_to_be_one():
    x = tokens()
    flow = trace_shapes(attend, x, x, x, letters={"query": "BLE"})
    (value,) = flow.inputs
    assert value.name == "query = key = value"
    assert "query, key and value are one tensor" in flow.notes
    assert str(flow).count("query = key = value  B L E") >= 1
    for name in ("query", "key", "value", value.name):
        assert flow.value(name) is value
    origin = flow.origin(len(flow.steps), (1, 2, 3))
    assert set(origin.inputs) == {value.name}
    for name in ("query", "key", value.name):
        assert origin.along(name, 0, 1) == tuple((1, n) for n in range(5))
    with pytest.raises(ValueError, match="no input 'y'; there are query = key"):
        flow.value("y")


def test_two_equal_tensors_are_two():
    flow = trace_shapes(attend, tokens(), tokens(), tokens())
    assert [value.name for value in flow.inputs] == ["query", "key", "value"]
    assert flow.notes == ()


def test_letters_of_one_tensor_may_come_from_any_of_its_names():
    x = tokens()
    for told in ({"key": "BLE"}, {1: "BSE", 0: "BLE"}, {"query": "B L E"}):
        flow = trace_shapes(attend, x, x, x, letters=told)
        assert flow.inputs[0].axes == "B L E"
        assert flow.outputs[0].axes == "B L E"

    def named(first, other_BLE):
        return first.mT, other_BLE

    assert trace_shapes(named, x, x).inputs[0].axes == "B L E"


def test_letters_that_contradict_each_other_are_refused():
    x = tokens()
    with pytest.raises(
        ShapeMismatch,
        match=r"query and value are one tensor, .* axes BLE and BEL",
    ):
        trace_shapes(attend, x, x, x, letters={"query": "BLE", "value": "BEL"})


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_arguments_that_overlap_are_followed_as_one_memory(order):
    whole = tokens()
    both = (whole, whole[:, 1:3])
    one, other = (both[n] for n in order)

    def join(a, b):
        return torch.cat([a, b], 1)

    flow = trace_shapes(join, one, other)
    assert "b shares memory with a: what both hold is followed as a" in str(
        flow
    )
    made = join(one, other)
    for place in ((0, 0, 0), (1, 3, 7), (1, 6, 11)):
        origin = flow.origin(1, place)
        ((name, (index,)),) = origin.inputs.items()
        source = one if name == "a" else other
        assert source[index] == made[place]


def test_an_expanded_argument_is_said_to_repeat():
    x = tokens()[:1].expand(2, 5, 12)
    flow = trace_shapes(lambda x: x + 1, x, letters={"x": "BLE"})
    assert "x has places that share one number in memory" in str(flow)
    assert flow.inputs[0].axes == "B L E"
    ((place,),) = flow.origin(1, (1, 2, 3)).inputs.values()
    assert place[1:] == (2, 3)
    plain = trace_shapes(lambda x: x + 1, tokens(), letters={"x": "BLE"})
    assert "share one number" not in str(plain)


def test_tensors_in_lists_and_dicts_are_named_by_their_place():
    def f(pair, batch):
        return pair[1][0] @ batch["x"]

    x, y, z = tokens(5), tokens(7), torch.randn(2, 12, 3)
    flow = trace_shapes(
        f, [x, [y]], {"x": z, "again": x}, letters={"pair[1][0]": "BLE"}
    )
    names = [value.name for value in flow.inputs]
    assert names == ["pair[0] = batch['again']", "pair[1][0]", "batch['x']"]
    assert flow.value("pair[1][0]").axes == "B L E"
    assert set(flow.origin(1, (0, 0, 0)).inputs) == {"pair[1][0]", "batch['x']"}


def cross(**options):
    module = nn.MultiheadAttention(12, H, batch_first=True, **options)
    return module.eval()


LETTERS = {"query": "BLE", "key": "BSE", "H": H}


def splits(flow):
    found = flow.verify(heads=H)
    return [f for f in found if "(h d) ->" in f.pattern and f.step]


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("same_value", [True, False])
def test_keys_of_another_sequence_are_followed(need_weights, same_value):
    x, y = tokens(), tokens(7)
    z = y if same_value else tokens(7) + 1
    flow = trace_shapes(
        cross(), x, y, z, need_weights=need_weights, letters=LETTERS
    )
    found = flow.verify(heads=H)
    assert all(f.step is not None for f in found), found
    compared = sum(f.elements for f in found if "-> b l" not in f.pattern)
    assert compared == 2 * (5 + 7 + 7) * 12
    if same_value:
        assert flow.value("value").name == "key = value"
        assert "B S 2·E" in {
            v.axes for step in flow.steps for v in step.outputs
        } or "2·E" in str(flow)
    assert flow.outputs[0].axes == "B L E"


def test_a_wrong_split_of_keys_and_values_together_is_found():
    weight = torch.randn(24, 12)

    def wrong(x, y):
        k, v = (y @ weight.mT).view(2, 7, H, 2, 3).permute(3, 0, 2, 1, 4)
        q = x.view(2, 5, H, 3).transpose(1, 2)
        return attend(q, k, v).transpose(1, 2).reshape(2, 5, 12)

    flow = trace_shapes(
        wrong, tokens(), tokens(7), letters={0: "BLE", 1: "BSE", "H": H}
    )
    with pytest.raises(ValueError, match="2, 2, 4, 7, 3"):
        flow.verify(heads=H)


@pytest.mark.parametrize(
    ("options", "passed_over"),
    [
        ({"kdim": 6, "vdim": 10}, 0),
        ({"add_bias_kv": True}, 2),
        ({"add_zero_attn": True}, 0),  # they are split before it
        ({"bias": False}, 0),
    ],
)
def test_a_projection_that_is_not_judged_is_named(options, passed_over):
    x, y, z = tokens(), tokens(7, options.get("kdim", 12)), None
    z = tokens(7, options.get("vdim", 12))
    flow = trace_shapes(
        cross(**options), x, y, z, letters={"query": "BLE", "H": H}
    )
    found = flow.verify(heads=H)
    unclear = [f for f in found if f.step is None]
    assert len(unclear) == passed_over, found
    for f in unclear:
        assert "mixed with other elements" in str(f)
        assert "not judged" in str(f)


def test_fewer_key_heads_are_named_and_not_claimed():
    wide, narrow = torch.randn(12, 12), torch.randn(6, 12)

    def grouped(x):
        q = (x @ wide.mT).view(2, 5, H, 3).transpose(1, 2)
        k = (x @ narrow.mT).view(2, 5, 2, 3).transpose(1, 2)
        k = k.repeat_interleave(2, 1)
        return attend(q, k, k).transpose(1, 2).reshape(2, 5, 12)

    flow = trace_shapes(grouped, tokens(), letters={"x": "BLE", "H": H})
    unclear = [f for f in flow.verify(heads=H) if f.step is None]
    assert [f.root for f in unclear] == ["matmul (step 6)"]
    assert np.all(["not judged" in str(f) for f in unclear])
