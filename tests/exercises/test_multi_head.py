import pytest
import torch
from einops import rearrange

from attention_lab.exercises import multi_head as exercises
from attention_lab.steps.multi_head import merge_heads, split_heads
from marking import assert_fails, assert_passes, each


def loop_over(rows):
    """Return the page's loop with these rows for head h of width D."""

    def loop(x_BLE, weight_EE, num_heads):
        D = x_BLE.shape[-1] // num_heads
        heads = [
            x_BLE @ weight_EE[rows(h, D, num_heads)].T for h in range(num_heads)
        ]
        return torch.stack(heads, dim=1)

    return loop


def merge_by_cat(x_BHLD):
    return torch.cat(list(x_BHLD.unbind(1)), dim=-1)


def ablate_by_mask(out_BLE, num_heads, h):
    E = out_BLE.shape[-1]
    keep = torch.arange(E) // (E // num_heads) != h
    return torch.where(keep, out_BLE, 0.0)


def ablate_by_slice(out_BLE, num_heads, h):
    D = out_BLE.shape[-1] // num_heads
    out = out_BLE.clone()
    out[..., h * D : (h + 1) * D] = 0
    return out


def ablate_by_heads(out_BLE, num_heads, h):
    heads = split_heads(out_BLE, num_heads).clone()
    heads[:, h] = 0
    return merge_heads(heads)


def ablate_in_place(out_BLE, num_heads, h):
    D = out_BLE.shape[-1] // num_heads
    out_BLE[..., h * D : (h + 1) * D] = 0
    return out_BLE


def ablate_through_view(out_BLE, num_heads, h):
    B, L, E = out_BLE.shape
    heads = out_BLE.clone().view(B, num_heads, L, E // num_heads)
    heads[:, h] = 0
    return heads.view(B, L, E)


def ablate_token(out_BLE, num_heads, h):
    out = out_BLE.clone()
    out[:, h] = 0
    return out


RIGHT = {
    "loop": [
        loop_over(lambda h, D, H: slice(h * D, (h + 1) * D)),
        loop_over(lambda h, D, H: h * D + torch.arange(D)),
        lambda x, w, h: split_heads(x @ w.T, h),
    ],
    "split": [
        split_heads,
        lambda x, h: rearrange(x, "b l (h d) -> b h l d", h=h),
        lambda x, h: torch.stack(x.chunk(h, dim=-1), dim=1),
    ],
    "head_of_row": [
        lambda row, E, H: row // (E // H),
        lambda row, E, H: row * H // E,
        lambda row, E, H: torch.arange(E)
        .reshape(H, -1)
        .eq(row)
        .nonzero()[0, 0],
    ],
    "merge": [
        merge_heads,
        merge_by_cat,
        lambda x: x.transpose(1, 2).flatten(2),
    ],
    "ablate": [ablate_by_slice, ablate_by_mask, ablate_by_heads],
}
WRONG = {
    "loop": [
        (
            loop_over(lambda h, D, H: slice(h, None, H)),
            "every head",
            "split-d-h-order",
        ),
        (
            loop_over(lambda h, D, H: slice(0, D)),
            "every head",
            "takes the rows of head 0",
        ),
        (
            lambda x, w, h: split_heads(x @ w, h),
            "every head",
            "transposed-weights",
        ),
        (
            loop_over(lambda h, D, H: slice(h * H, (h + 1) * H)),
            "every head",
            "has shape (1, 2, 2, 2), but (1, 2, 2, 3)",
        ),
    ],
    "split": [
        (
            lambda x, h: x.view(len(x), h, x.shape[1], -1),
            "elements",
            "split-by-view",
        ),
        (
            lambda x, h: rearrange(x, "b l (d h) -> b h l d", h=h),
            "elements",
            "split-d-h-order",
        ),
        (
            lambda x, h: x.unflatten(-1, (h, -1)),
            "elements",
            "The heads still stand behind the tokens.",
        ),
    ],
    "head_of_row": [
        (lambda row, E, H: row % H, "the head", "split-d-h-order"),
        (lambda row, E, H: row // H, "the head", "not by the rows of one"),
        (lambda row, E, H: 0, "the head", "is 0, but 1 is expected"),
    ],
    "merge": [
        (
            lambda x: x.reshape(len(x), x.shape[2], -1),
            "elements",
            "merge-without-permute",
        ),
        (
            lambda x: x.permute(0, 2, 3, 1).flatten(2),
            "elements",
            "merge-wrong-order",
        ),
        (
            lambda x: x.permute(0, 2, 1, 3).view(len(x), x.shape[2], -1),
            "elements",
            "It raised RuntimeError: view size",
        ),
    ],
    "ablate": [
        (ablate_through_view, "one head less", "split-by-view"),
        (ablate_token, "one head less", "This takes a token away"),
        (ablate_in_place, "one head less", "changed its argument `out_BLE`"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.parametrize(("name", "number", "wrong"), each(WRONG))
def test_wrong_answer_is_named(name, number, wrong):
    answer, check, words = wrong
    assert_fails(getattr(exercises, name).check(answer), check, words)
