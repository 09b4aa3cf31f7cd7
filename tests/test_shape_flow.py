"""What a step is recorded as, held against the tensors themselves."""

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from einops import rearrange, reduce
from einops.layers.torch import Rearrange
from torch import nn
from torch.utils.checkpoint import checkpoint

from attention_lab.shape_flow import trace_shapes
from attention_lab.steps import fused_qkv, multi_head, scaled_dot_product
from shape_flow_styles import H, TimmStyle, right_modules

POSTS = Path(__file__).parent / "data" / "source_posts"
AXES = {"x": "BLE", "H": 4}


def tokens(b=2, n=5, e=12):
    return torch.randn(b, n, e, generator=torch.Generator().manual_seed(0))


def post(name):
    spec = importlib.util.spec_from_file_location(name, POSTS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MultiHeadAttention


def names(flow):
    return [step.name for step in flow.steps]


def axes(flow):
    return [step.outputs[0].axes for step in flow.steps if step.outputs]


class Spy:
    """Keeps each tensor that a function made, in order."""

    def __init__(self):
        self.made = []

    def __call__(self, tensor):
        self.made.append(tensor)
        return tensor


STEPS = {
    "view": lambda x: x.view(2, 5, 4, 3),
    "permute": lambda x: x.permute(2, 0, 1),
    "reshape to a view": lambda x: x.reshape(10, 12),
    "reshape to a copy": lambda x: x.transpose(1, 2).reshape(2, 60),
    "contiguous, nothing to do": lambda x: x.contiguous(),
    "contiguous copy": lambda x: x.mT.contiguous(),
    "expand": lambda x: x[:, :1].expand(2, 5, 12),
    "slice": lambda x: x[:, 1:4, ::2],
    "index by tensor": lambda x: x[:, torch.tensor([0, 3])],
    "flatten": lambda x: x.flatten(1),
    "clone": lambda x: x.clone(),
    "detach": lambda x: x.detach(),
    "to double": lambda x: x.double(),
    "to the same": lambda x: x.contiguous().to(torch.float32).contiguous(),
    "add": lambda x: x + 1,
    "in place": lambda x: x.clone().mul_(2),
    "as_strided": lambda x: x.as_strided((3, 2), (2, 1), 4),
    "rearrange, a view": lambda x: rearrange(x, "b l (h d) -> b h l d", h=4),
    "rearrange, a copy": lambda x: rearrange(x, "b l e -> (e b) l"),
    "diagonal": lambda x: x.diagonal(0, 1, 2),
    "T": lambda x: x[0].T,
    "unfold": lambda x: x.unfold(1, 2, 1),
    "softmax": lambda x: x.softmax(-1),
    "dropout in eval": lambda x: F.dropout(x, 0.5, False),
}  # fmt: skip


@pytest.mark.parametrize("name", STEPS)
def test_shape_stride_and_storage_are_the_tensors_own(name):
    x, spy = tokens(), Spy()
    flow = trace_shapes(lambda x: spy(STEPS[name](x)), x, letters={"x": "BLE"})
    (made,) = spy.made
    (value,) = flow.outputs
    assert value.shape == tuple(made.shape)
    assert value.strides == tuple(made.stride())
    assert value.offset == made.storage_offset()
    last = flow.steps[-1].outputs[0]
    assert last is value
    shares = made.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    is_view = value.memory in ("view", "same")
    if name == "in place":
        assert (value.memory, shares) == ("in place", False)
    else:
        assert is_view == shares
    assert (value.memory == "same") == (made is x)


def test_view_or_copy_is_read_from_the_storage_not_from_the_name():
    def liar(x):
        return x.T.contiguous()

    x = torch.randn(3, 1)
    assert trace_shapes(liar, x).steps[-1].outputs[0].memory == "same"
    x = torch.randn(3, 2)
    assert trace_shapes(liar, x).steps[-1].outputs[0].memory == "copy"


def test_the_function_gets_its_own_results():
    x = tokens().requires_grad_()
    module = nn.MultiheadAttention(12, 4, batch_first=True)
    kept = []
    trace_shapes(lambda x: kept.append(module(x, x, x)[0]), x)
    torch.testing.assert_close(kept[0], module(x, x, x)[0], rtol=0, atol=0)
    kept[0].sum().backward()
    assert x.grad is not None


def test_names_calls_and_lines_are_those_of_the_code():
    def attend(x):
        q = x.view(2, 5, 4, 3).permute(0, 2, 1, 3)
        return torch.einsum("bhid,bhjd->bhij", q, q).softmax(dim=-1)

    flow = trace_shapes(attend, tokens(), letters=AXES)
    assert [step.call for step in flow.steps] == [
        "view(2, 5, 4, 3)",
        "permute(0, 2, 1, 3)",
        "einsum('bhid,bhjd->bhij')",
        "softmax(dim=-1)",
    ]
    first = attend.__code__.co_firstlineno
    lines = [step.source.number - first for step in flow.steps]
    assert lines == [1, 1, 2, 2]
    assert flow.steps[2].source.text.startswith("return torch.einsum(")
    assert axes(flow) == ["B L H D", "B H L D", "B H L S", "B H L S"]


def test_an_einops_pattern_is_one_step():
    layer = Rearrange("b h l d -> b l (h d)")

    def both(x):
        x = rearrange(x, "b l (h d) -> b h l d", h=4)
        return reduce(layer(x), "b l e -> b e", "mean")

    flow = trace_shapes(both, tokens(), letters=AXES)
    assert [step.call for step in flow.steps] == [
        "rearrange('b l (h d) -> b h l d', h=4)",
        "rearrange('b h l d -> b l (h d)')",
        "reduce('b l e -> b e')",
    ]
    assert axes(flow) == ["B H L D", "B L E", "B E"]


@pytest.mark.parametrize("heads", [3, 4])
def test_post_1_as_pasted(heads):
    module, x = post("post_1")(12, heads).eval(), tokens()
    flow = trace_shapes(module, x, x, x, letters={"query": "BLE", "H": heads})
    assert axes(flow)[:3] == ["B L E", "B L H D", "B H L D"]
    assert axes(flow)[10] == "B H L S"
    assert axes(flow)[-4:] == ["B L H D", "B L H D", "B L E", "B L E"]
    assert len(flow.verify(heads=heads)) == 4
    assert flow.steps[0].source.file.endswith("post_1.py")


@pytest.mark.filterwarnings("ignore:.*use_reentrant")  # the post's own call
@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_post_2_as_pasted():
    flow = trace_shapes(post("post_2")(12, 4), tokens(), letters=AXES)
    assert names(flow) == [
        "linear", "rearrange", "unbind", "einsum", "div", "softmax", "einsum",
        "rearrange", "linear",
    ]  # fmt: skip
    assert axes(flow)[:4] == ["B L P·E", "P B H L D", "B H L D", "B H L S"]
    assert axes(flow)[-2:] == ["B L E", "B L E"]
    assert len(flow.verify(heads=4)) == 2


def test_our_own_steps():
    q, k, v = torch.randn(2, 4, 5, 3), torch.randn(2, 4, 7, 3), None
    v = torch.randn(2, 4, 7, 3)
    flow = trace_shapes(
        scaled_dot_product.attention, q, k, v,
        letters={"query": "BHLD", "key": "BHSD", "value": "BHSD"},
    )  # fmt: skip
    assert flow.outputs[0].axes == "B H L D"
    assert "B H L S" in axes(flow)
    module = multi_head.MultiHeadAttention(12, 4)
    key = tokens(n=7)
    flow = trace_shapes(module, tokens(), key, key, letters={"H": 4})
    assert flow.outputs[0].axes == "B L E"
    assert len(flow.verify(heads=4)) == 4
    flow = trace_shapes(multi_head.split_heads, tokens(), 4, letters={"H": 4})
    assert flow.verify(split="b l (h d) -> b h l d")[0].elements == 120
    packed = torch.randn(2, 5, 36)
    flow = trace_shapes(fused_qkv.split_qkv, packed, 4, letters={"H": 4})
    assert flow.verify(split="b l (p h d) -> p b h l d", p=3)
    module = fused_qkv.FusedQKVAttention(12, 4, recompute=True)
    flow = trace_shapes(module, tokens(), letters={"H": 4})
    assert len(flow.verify(heads=4)) == 2


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("train", [True, False])
def test_multihead_attention_of_torch_is_looked_into(batch_first, train):
    module = nn.MultiheadAttention(12, 4, batch_first=batch_first).train(train)
    x = tokens() if batch_first else tokens().transpose(0, 1)
    told = {"query": "BLE" if batch_first else "LBE", "H": 4}
    with torch.set_grad_enabled(train):
        flow = trace_shapes(module, x, x, x, letters=told)
        opaque = trace_shapes(module, x, x, x, need_weights=False, letters=told)
    assert "linear" in names(flow)
    assert "bmm" in names(flow)
    assert flow.outputs[0].axes == " ".join(told["query"])
    assert flow.outputs[1].axes == "B L S"
    assert len(flow.verify(heads=4)) == 2
    assert "scaled_dot_product_attention" in names(opaque)
    assert len(opaque.verify(heads=4)) == 2


def test_a_timm_style_module_that_returns_two_tensors():
    flow = trace_shapes(TimmStyle().eval(), tokens(), letters=AXES)
    assert [v.axes for v in flow.outputs] == ["B L E", "B H L S"]
    assert axes(flow)[:4] == [
        "B L P·E", "B L P H D", "P B H L D", "B H L D",
    ]  # fmt: skip


def test_autograd_no_grad_inference_and_checkpoint_look_the_same():
    module = right_modules()["view, permute"]

    def seen(run):
        flow = trace_shapes(run, tokens(), letters={0: "BLE", "H": H})
        return [
            (s.call, s.outputs[0].axes, s.outputs[0].memory) for s in flow.steps
        ]

    plain = seen(module)
    with torch.no_grad():
        assert seen(module) == plain
    with torch.inference_mode():
        assert seen(module) == plain
    assert plain == seen(lambda x: checkpoint(module, x, use_reentrant=False))


def test_the_path_that_was_taken_is_the_one_recorded():
    def branch(x):
        return x.mT if x.sum() > 0 else x.flatten(1)

    ones = torch.ones(2, 3, 4)
    assert names(trace_shapes(branch, ones))[-1] == "mT"
    assert names(trace_shapes(branch, -ones))[-1] == "flatten"


def test_letters_come_from_names_positions_and_sizes():
    def f(x_BLE, other):
        return x_BLE.unflatten(-1, (-1, 3)), other.mT

    flow = trace_shapes(f, tokens(), torch.ones(5, 3), letters={1: "LD"})
    assert [v.axes for v in flow.outputs] == ["B L H D", "D L"]
    unknown = trace_shapes(f, tokens(), torch.ones(2, 3))
    assert unknown.inputs[1].axes == "? ?"
    assert "no letters were given" in str(unknown)


@pytest.mark.parametrize(
    ("split", "letter"),
    [
        (lambda x: x.view(2, 4, 5, 3), "B ? ? D"),
        (lambda x: x.view(2, 5, 3, 4), "B L ? ?"),  # (d h): not head by head
        (lambda x: x.view(2, 5, 2, 6), "B L ? ?"),
        (lambda x: x[:, :3], "B ? E"),
        (lambda x: x.reshape(10, 12), "B·L E"),
        (lambda x: x.transpose(0, 1).reshape(10, 12), "L·B E"),
        (lambda x: x.reshape(2, 60), "B L·E"),
        (lambda x: x[:, :, None].expand(2, 5, 4, 12), "B L ? E"),
        (lambda x: x.sum(1), "B E"),
        (lambda x: x.mean((0, 2)), "L"),
        (lambda x: x.max(-1).values, "B L"),
        (lambda x: x.amax(-1, keepdim=True), "B L 1"),
        (lambda x: F.layer_norm(x, (12,)), "B L E"),
        (lambda x: x @ x.mT, "B L S"),
        (lambda x: x @ torch.ones(12, 36), "B L P·E"),
        (lambda x: x @ torch.ones(12, 7), "B L ?"),
        (lambda x: torch.cat([x, x * 2], -1), "B L ?"),
        (lambda x: torch.stack([x + 1, x * 2]), "? B L E"),
        (lambda x: torch.where(x > 0, x, 0.0), "B L E"),
        (lambda x: x.masked_fill(torch.ones(5, 1) > 0, 0), "B L E"),
    ],
)
def test_a_letter_is_right_or_a_question_mark_with_a_reason(split, letter):
    flow = trace_shapes(split, tokens(), letters=AXES)
    (value,) = flow.outputs
    assert value.axes == letter
    asked = [a for a, found in enumerate(value.letters) if found == "?"]
    assert sorted(value.why) == asked
    assert all(value.why.values())


def test_heads_and_parts_of_one_size_are_not_told_apart():
    def split(x):
        return (x @ torch.ones(12, 36)).view(2, 5, 3, 3, 4)

    flow = trace_shapes(split, tokens(), letters={"x": "BLE", "H": 3})
    assert flow.outputs[0].axes == "B L ? ? D"
    assert "have one size" in flow.outputs[0].why[2]


def test_the_text_has_one_line_per_step():
    flow = trace_shapes(
        lambda x: x.view(2, 5, 4, 3).transpose(1, 2), tokens(), letters=AXES
    )
    lines = str(flow).splitlines()
    assert lines[0] == "shape flow of <lambda>"
    assert lines[2].split() == [
        "x", "B", "L", "E", "(2,", "5,", "12)", "(60,", "12,", "1)", "input",
    ]  # fmt: skip
    assert lines[3].startswith("1  view(2, 5, 4, 3)  x     B L H D  (2, 5, 4,")
    assert "view of step 1" in lines[4]
    assert lines[4].rstrip().split(":")[0].endswith("test_shape_flow.py")
    assert len(lines) == 5


def test_json_is_the_documented_schema_and_the_same_twice():
    def run():
        flow = trace_shapes(
            lambda x: x.view(2, 5, 4, 3).transpose(1, 2), tokens(), letters=AXES
        )
        flow.verify(heads=None, split="b l (h d) -> b h l d")
        return flow.to_json()

    text = run()
    assert text == run()
    data = json.loads(text)
    assert data["schema"] == "shape_flow.v1"
    assert set(data) == {
        "schema", "title", "problem", "sizes", "inputs", "steps", "outputs",
        "roots", "notes", "verified", "failures",
    }  # fmt: skip
    value = data["steps"][1]["outputs"][0]
    assert value["letters"] == ["B", "H", "L", "D"]
    root = data["roots"][0]
    split = np.arange(120).reshape(2, 5, 4, 3).swapaxes(1, 2)
    codes = np.array(value["codes"]).reshape(value["shape"])
    np.testing.assert_array_equal(codes - root["offset"], split)
    assert data["steps"][0]["source"]["file"] == "test_shape_flow.py"
    assert str(Path(__file__).parent) not in text


def test_code_without_a_file_is_followed_as_well():
    space = {"rearrange": rearrange}
    source = "def f(x): return rearrange(x, 'b l (h d) -> b h l d', h=4)"
    exec(compile(source, "<cell>", "exec"), space)
    flow = trace_shapes(space["f"], tokens(), letters=AXES)
    assert axes(flow) == ["B H L D"]
    assert flow.steps[0].kind == "moves"
