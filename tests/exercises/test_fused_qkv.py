import pytest
import torch
from einops import rearrange
from torch.utils.checkpoint import checkpoint

from attention_lab.exercises import fused_qkv as exercises
from attention_lab.steps import fused_qkv as step
from marking import assert_fails, assert_passes, each


def unfuse_by_view(packed, num_heads):
    B, L, _ = packed.shape
    heads = packed.view(B, L, num_heads, 3, -1)
    return heads.permute(3, 0, 2, 1, 4)


def unfuse_head_by_head(packed, num_heads):
    heads = [x.chunk(3, dim=-1) for x in packed.chunk(num_heads, dim=-1)]
    return [torch.stack(part, dim=1) for part in zip(*heads, strict=True)]


def heads_of(x, D):
    return rearrange(x, "b l (h d) -> b h l d", d=D)


def grouped_by_split(packed, num_heads, key_heads):
    D = packed.shape[-1] // (num_heads + 2 * key_heads)
    sizes = [num_heads * D, key_heads * D, key_heads * D]
    return [heads_of(x, D) for x in packed.split(sizes, dim=-1)]


def grouped_by_slices(packed, num_heads, key_heads):
    D = packed.shape[-1] // (num_heads + 2 * key_heads)
    first, second = num_heads * D, (num_heads + key_heads) * D
    parts = packed[..., :first], packed[..., first:second], packed[..., second:]
    return tuple(heads_of(x, D) for x in parts)


def grouped_by_heads(packed, num_heads, key_heads):
    B, L, rows = packed.shape
    D = rows // (num_heads + 2 * key_heads)
    heads = packed.reshape(B, L, -1, D).transpose(1, 2)
    return heads.tensor_split((num_heads, num_heads + key_heads), dim=1)


def grouped_in_thirds(packed, num_heads, key_heads):
    D = packed.shape[-1] // (num_heads + 2 * key_heads)
    return [heads_of(x, D) for x in packed.chunk(3, dim=-1)]


def grouped_swapped(packed, num_heads, key_heads):
    q, k, v = grouped_by_split(packed, num_heads, key_heads)
    return q, v, k


def with_input_gradient(module, x_BLE):
    x_BLE = x_BLE.clone().requires_grad_()
    return checkpoint(module, x_BLE, use_reentrant=True)


def by_its_own_switch(module, x_BLE):
    module.recompute = True
    return module(x_BLE)


def without_graph(module, x_BLE):
    with torch.no_grad():
        return module(x_BLE)


RIGHT = {
    "fuse": [
        lambda q, k, v: torch.cat([q, k, v]),
        lambda q, k, v: torch.stack([q, k, v]).flatten(0, 1),
        lambda q, k, v: step.fuse(q, k, v, 1),
    ],
    "unfuse": [
        unfuse_by_view,
        unfuse_head_by_head,
        lambda packed, h: step.split_qkv(packed, h, "h p d"),
    ],
    "grouped": [grouped_by_split, grouped_by_slices, grouped_by_heads],
    "recompute": [
        lambda module, x: checkpoint(module, x, use_reentrant=False),
        with_input_gradient,
        by_its_own_switch,
    ],
}
WRONG = {
    "fuse": [
        (
            lambda q, k, v: torch.cat([k, q, v]),
            "rows",
            "fused-order-swapped",
        ),
        (
            lambda q, k, v: torch.cat([q, k, v], dim=1),
            "rows",
            "The weights stand side by side",
        ),
        (
            lambda q, k, v: torch.stack([q, k, v], 1).flatten(0, 1),
            "rows",
            "as (h d p) does",
        ),
    ],
    "unfuse": [
        (
            lambda packed, h: step.split_qkv(packed, h, "p h d"),
            "elements",
            "fused-layout-head-by-head",
        ),
        (
            lambda packed, h: step.split_qkv(packed, h, "h d p"),
            "elements",
            "fused-layout-interleaved",
        ),
        (
            lambda packed, h: unfuse_by_view(packed, h)[:2],
            "elements",
            "3 arrays, not 2",
        ),
    ],
    "grouped": [
        (grouped_in_thirds, "elements", "three equal parts"),
        (grouped_swapped, "elements", "stand in each other's place"),
        (
            lambda packed, h, h_kv: packed.split([h, h_kv, h_kv], dim=-1),
            "elements",
            "RuntimeError",
        ),
    ],
    "recompute": [
        (
            lambda module, x: checkpoint(module, x, use_reentrant=True),
            "gradients",
            "reentrant-checkpoint",
        ),
        (
            without_graph,
            "gradients",
            "4 of 4 parameters got no gradient.",
        ),
        (lambda module, x: module(x), "recomputation", "ran once only"),
        (lambda module, x: x, "output", "differs at"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.parametrize(("name", "number", "wrong"), each(WRONG))
def test_wrong_answer_is_named(name, number, wrong):
    answer, check, words = wrong
    assert_fails(getattr(exercises, name).check(answer), check, words)
