import pytest
import torch
from einops import rearrange
from torch.nn import functional

from attention_lab.exercises import vision as exercises
from marking import assert_fails, assert_passes, each

# -- patches ---------------------------------------------------------------


def by_pattern(images):
    return rearrange(images, "b (r p) (c q) -> b (r c) (p q)", p=2, q=2)


def by_unfold(images):
    patches = images.unfold(1, 2, 2).unfold(2, 2, 2)
    return patches.reshape(len(images), 16, 4)


def by_permute(images):
    parts = images.reshape(-1, 4, 2, 4, 2).permute(0, 1, 3, 2, 4)
    return parts.flatten(3).flatten(1, 2)


def by_slices(images):
    return torch.stack(
        [
            images[:, r : r + 2, c : c + 2].flatten(1)
            for r in range(0, 8, 2)
            for c in range(0, 8, 2)
        ],
        dim=1,
    )


def column_by_column(images):
    return rearrange(images, "b (r p) (c q) -> b (c r) (p q)", p=2, q=2)


def scattered(images):
    return rearrange(images, "b (p r) (q c) -> b (r c) (p q)", p=2, q=2)


def rows_of_four(images):
    return images.reshape(-1, 16, 4)


# -- one step of training --------------------------------------------------


def in_order(model, images, labels, optimizer):
    loss = functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def clean_first(model, images, labels, optimizer):
    model.zero_grad()
    log_weights = model(images).log_softmax(-1)
    functional.nll_loss(log_weights, labels).backward()
    optimizer.step()


def clean_last(model, images, labels, optimizer):
    logits = model(images)
    picked = logits.gather(1, labels[:, None])[:, 0]
    loss = (logits.logsumexp(-1) - picked).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss.item()


def never_clean(model, images, labels, optimizer):
    functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def clean_too_late(model, images, labels, optimizer):
    functional.cross_entropy(model(images), labels).backward()
    optimizer.zero_grad()
    optimizer.step()


def softmax_twice(model, images, labels, optimizer):
    optimizer.zero_grad()
    weights = model(images).softmax(-1)
    functional.cross_entropy(weights, labels).backward()
    optimizer.step()


def no_graph(model, images, labels, optimizer):
    with torch.no_grad():
        loss = functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()


# -- swap an attention in --------------------------------------------------


def by_hand(q, k, v):
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1) @ v


def by_einsum(q, k, v):
    scores = torch.einsum("bhld,bhsd->bhls", q, k) / q.shape[-1] ** 0.5
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    weights = weights / weights.sum(-1, keepdim=True)
    return torch.einsum("bhls,bhsd->bhld", weights, v)


def in_tiles(q, k, v):
    top = torch.full(q.shape[:3], -torch.inf)
    total, acc = torch.zeros(q.shape[:3]), torch.zeros_like(q)
    for s in range(0, k.shape[2], 3):
        scores = q @ k[:, :, s : s + 3].mT * q.shape[-1] ** -0.5
        new = torch.maximum(top, scores.amax(-1))
        shrink, weights = (
            torch.exp(top - new),
            torch.exp(scores - new[..., None]),
        )
        total = total * shrink + weights.sum(-1)
        acc = acc * shrink[..., None] + weights @ v[:, :, s : s + 3]
        top = new
    return acc / total[..., None]


def by_library(q, k, v):
    return functional.scaled_dot_product_attention(q, k, v)


def unscaled(q, k, v):
    return torch.softmax(q @ k.mT, dim=-1) @ v


def scaled_by_model_width(q, k, v):
    return torch.softmax(q @ k.mT * 32**-0.5, dim=-1) @ v


def over_queries(q, k, v):
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-2) @ v


def keys_mixed(q, k, v):
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1) @ k


# -- a head switched off ---------------------------------------------------


def by_copy(out_BHLD, head):
    out_BHLD = out_BHLD.clone()
    out_BHLD[:, head] = 0
    return out_BHLD


def by_factor(out_BHLD, head):
    on_H = torch.arange(out_BHLD.shape[1]) != head
    return out_BHLD * on_H[:, None, None]


def by_where(out_BHLD, head):
    is_off_H = torch.arange(out_BHLD.shape[1]) == head
    return torch.where(is_off_H.reshape(1, -1, 1, 1), 0.0, out_BHLD)


def in_place(out_BHLD, head):
    out_BHLD[:, head] = 0
    return out_BHLD


def token_off(out_BHLD, head):
    out_BHLD = out_BHLD.clone()
    out_BHLD[:, :, head] = 0
    return out_BHLD


def sample_off(out_BHLD, head):
    out_BHLD = out_BHLD.clone()
    out_BHLD[head] = 0
    return out_BHLD


RIGHT = {
    "patches": [by_pattern, by_unfold, by_permute, by_slices],
    "one_step": [in_order, clean_first, clean_last],
    "swap_in": [by_hand, by_einsum, in_tiles],
    "head_off": [by_copy, by_factor, by_where],
    "shown": ["C", "c", " c "],
}
WRONG = {
    "patches": [
        (column_by_column, "patches", "counted column by column"),
        (scattered, "patches", "every fourth pixel"),
        (rows_of_four, "patches", "four pixels of one row"),
    ],
    "one_step": [
        (never_clean, "weights", "step before are still there"),
        (clean_too_late, "weights", "No weight has changed"),
        (softmax_twice, "weights", "cross_entropy takes logits"),
        (no_graph, "weights", "does not require grad"),
        (3, "weights", "Answer with a function"),
    ],
    "swap_in": [
        (unscaled, "logits", "scale-missing"),
        (scaled_by_model_width, "logits", "scale-model-width"),
        (over_queries, "logits", "softmax-over-queries"),
        (keys_mixed, "logits", "keys-used-as-values"),
        (by_library, "your own", "calls PyTorch's attention 2 times"),
        (3, "logits", "Answer with a function"),
    ],
    "head_off": [
        (in_place, "output", "changed its argument"),
        (token_off, "output", "This is a token"),
        (sample_off, "output", "This is a sample"),
    ],
    "shown": [
        ("A", "conclusion", "cannot be the reason"),
        ("b", "conclusion", "small, not zero"),
        ("D", "conclusion", "not part of any experiment"),
        ("E", "conclusion", "Answer with one of"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.parametrize(("name", "number", "case"), each(WRONG))
def test_wrong_answer_fails_and_is_named(name, number, case):
    answer, check, words = case
    assert_fails(getattr(exercises, name).check(answer), check, words)
