"""Wrong splits and merges are named; right ones, in any style, are not."""

import pytest
import torch

from attention_lab.shape_flow import CannotFollow, WrongElements, trace_shapes
from shape_flow_styles import (
    H,
    Projections,
    right_modules,
    split_view,
    transposed_key_module,
    wrong_modules,
)

RIGHT, WRONG = right_modules(), wrong_modules()


@pytest.fixture
def x():
    return torch.randn(2, 5, 12, generator=torch.Generator().manual_seed(0))


def trace(module, x):
    return trace_shapes(module, x, letters={0: "BLE", "H": H})


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_style_is_not_blamed(name, x):
    found = trace(RIGHT[name], x).verify(heads=H)
    assert any("(h d)" in f.pattern.partition("->")[0] for f in found) or any(
        "(p h d)" in f.pattern for f in found
    )
    assert all(f.step is not None for f in found), found


@pytest.mark.parametrize("name", RIGHT)
def test_a_right_style_is_not_blamed_without_letters(name, x):
    needs_letters = ("einops, no permute", "bmm")
    if name in needs_letters:
        with pytest.raises(CannotFollow):
            trace_shapes(RIGHT[name], x).verify(heads=H)
    else:
        trace_shapes(RIGHT[name], x).verify(heads=H)


def test_keys_may_be_transposed_at_once(x):
    found = trace(transposed_key_module(), x).verify(heads=H)
    assert sum("b h d l" in str(f) for f in found) == 1


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_step_is_named(name, x):
    module, blamed, what = WRONG[name]
    flow = trace(module, x)
    with pytest.raises(WrongElements) as caught:
        flow.verify(heads=H)
    error = caught.value
    step = flow.steps[error.step - 1]
    assert step.name == blamed
    assert f"step {error.step}, {step.call}" in str(error)
    assert step.source is not None
    assert "shape_flow_styles.py" in str(error)
    is_split = "-> b l" not in error.pattern
    assert is_split == (what == "split")
    assert flow.failures == [error]


def test_share_and_element_are_those_of_brute_force(x):
    coded = torch.arange(120.0).reshape(2, 5, 12)
    flow = trace(lambda x: x.view(2, 4, 5, 3), coded)
    with pytest.raises(WrongElements) as caught:
        flow.verify(split="b l (h d) -> b h l d", h=4)
    right, wrong = split_view(coded), coded.view(2, 4, 5, 3)
    differs = (right != wrong).nonzero()
    assert caught.value.share == len(differs) / 120
    assert caught.value.element == tuple(differs[0].tolist())
    place = tuple(differs[0].tolist())
    for words, tensor in (
        (caught.value.found, wrong), (caught.value.expected, right)
    ):  # fmt: skip
        flat = int(tensor[place])
        assert f"token {flat // 12 % 5}, column {flat % 12} of x" in words


def test_one_wrong_projection_of_three_is_found(x):
    class Mixed(Projections):
        def forward(self, x):
            q, v = self.split(self.q(x)), self.split(self.v(x))
            k = self.k(x).view(2, H, 5, 3)
            return self.out(self.merge(self.attend(q, k, v)))

    with pytest.raises(WrongElements, match=r"view\(2, 4, 5, 3\)"):
        trace(Mixed(split_view), x).verify(heads=H)


def test_the_first_of_two_mistakes_is_named(x):
    wrong = Projections(
        lambda x: x.view(2, H, 5, 3), lambda x: x.reshape(2, 5, 12)
    )
    flow = trace(wrong, x)
    with pytest.raises(WrongElements) as caught:
        flow.verify(heads=H)
    views = [s.number for s in flow.steps if s.name == "view"]
    assert caught.value.step == min(views)


def test_keys_viewed_instead_of_transposed_are_found(x):
    def attend(q, k, v):
        return (q @ k.contiguous().view(2, H, 3, 5)).softmax(-1) @ v

    with pytest.raises(WrongElements, match=r"view\(2, 4, 3, 5\)"):
        trace(Projections(split_view, attend=attend), x).verify(heads=H)


@pytest.mark.parametrize("order", ["p h d", "h p d", "h d p"])
@pytest.mark.parametrize("said", ["p h d", "h p d", "h d p"])
@pytest.mark.parametrize("heads", [3, 4])
def test_fused_layouts_are_not_confused(order, said, heads, x):
    from attention_lab.steps.fused_qkv import FusedQKVAttention

    module = FusedQKVAttention(12, heads, layout=order)
    flow = trace_shapes(module, x, letters={"H": heads})
    split = f"b l ({said}) -> p b h l d"
    if order == said:
        (found,) = flow.verify(split=split, h=heads, p=3)
        assert found.elements == 2 * 5 * 36
    else:
        with pytest.raises(WrongElements, match="rearrange"):
            flow.verify(split=split, h=heads, p=3)


def test_equal_sizes_do_not_blame_a_right_view():
    x = torch.randn(2, 4, 12)  # L = H = 4
    flow = trace_shapes(
        lambda x: x.view(2, 4, 4, 3).transpose(1, 2), x,
        letters={"x": "BLE", "H": 4},
    )  # fmt: skip
    flow.verify(split="b l (h d) -> b h l d", h=4)


@pytest.mark.parametrize("sizes", [(1, 5, 4, 3), (2, 1, 4, 3), (2, 5, 1, 3)])
def test_axes_of_size_one(sizes):
    b, n, h, d = sizes
    flow = trace_shapes(
        lambda x: x.view(b, n, h, d).transpose(1, 2),
        torch.randn(b, n, h * d),
        letters={"x": "BLE", "H": h},
    )
    flow.verify(split="b l (h d) -> b h l d", h=h)


def test_nothing_to_judge_is_never_a_pass(x):
    flow = trace(lambda x: x * 2, x)
    with pytest.raises(CannotFollow, match="no step splits"):
        flow.verify(split="b l (h d) -> b h l d", h=H)
    with pytest.raises(CannotFollow, match="no step merges"):
        flow.verify(merge="b h l d -> b l (h d)", h=H)


def test_a_split_that_leaves_what_we_follow_is_not_judged(x):
    def rotated(x):
        q = x.view(2, 5, 2, 3, 2)
        turned = torch.view_as_complex(q) * 1j
        return torch.view_as_real(turned).flatten(3).transpose(1, 2)

    flow = trace_shapes(rotated, x, letters={"x": "BLE", "H": 2})
    with pytest.raises(CannotFollow):
        flow.verify(split="b l (h d) -> b h l d", h=2)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ({}, "say what to verify"),
        ({"split": "b l e"}, "must read like"),
        ({"split": "b l (h d) -> b h l"}, "once on each side"),
        ({"split": "b l (h d -> b h l d"}, "not closed"),
        ({"split": "b l (u v) -> b u l v"}, "say the size of u"),
        ({"split": "b l (h d) -> b h l d", "h": 0}, "h must be a whole"),
        ({"split": [3]}, "split must be a pattern"),
    ],
)
def test_a_question_that_makes_no_sense_is_refused(asked, words, x):
    flow = trace(lambda x: split_view(x), x)
    with pytest.raises(ValueError, match=words):
        flow.verify(**asked)


def test_a_split_of_one_size_given_by_the_letters(x):
    flow = trace(lambda x: split_view(x), x)
    (found,) = flow.verify(split="b l (h d) -> b h l d")
    assert str(found).startswith("✓ x: step 2, permute(0, 2, 1, 3)")
    assert flow.verified == [found]
