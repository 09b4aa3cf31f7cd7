import pytest
import torch
from einops import einsum, rearrange, repeat
from torch.nn.functional import scaled_dot_product_attention

from attention_lab.exercises import cross_and_grouped as exercises
from marking import assert_fails, assert_passes, each

# -- two lengths -----------------------------------------------------------


def by_unflatten(query_BLE, key_BSE, num_heads):
    q_BHLD = query_BLE.unflatten(-1, (num_heads, -1)).transpose(1, 2)
    k_BHSD = key_BSE.unflatten(-1, (num_heads, -1)).transpose(1, 2)
    scores_BHLS = q_BHLD @ k_BHSD.mT * q_BHLD.shape[-1] ** -0.5
    return torch.softmax(scores_BHLS, dim=-1)


def by_einops(query_BLE, key_BSE, num_heads):
    q, k = (
        rearrange(x, "b l (h d) -> b h l d", h=num_heads)
        for x in (query_BLE, key_BSE)
    )
    scores = einsum(q, k, "b h l d, b h s d -> b h l s")
    return (scores / q.shape[-1] ** 0.5).softmax(-1)


def head_by_head(query_BLE, key_BSE, num_heads):
    heads = zip(
        query_BLE.chunk(num_heads, -1), key_BSE.chunk(num_heads, -1),
        strict=True,
    )  # fmt: skip
    rows = [torch.softmax(q @ k.mT / q.shape[-1] ** 0.5, -1) for q, k in heads]
    return torch.stack(rows, dim=1)


def with_query_length(query_BLE, key_BSE, num_heads):
    B, L, E = query_BLE.shape
    q, k = (
        x.view(B, L, num_heads, E // num_heads).transpose(1, 2)
        for x in (query_BLE, key_BSE)
    )
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)


def split_by_view(query_BLE, key_BSE, num_heads):
    q, k = (
        x.view(x.shape[0], num_heads, x.shape[1], -1)
        for x in (query_BLE, key_BSE)
    )
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1)


def unscaled(query_BLE, key_BSE, num_heads):
    q, k = (
        rearrange(x, "b l (h d) -> b h l d", h=num_heads)
        for x in (query_BLE, key_BSE)
    )
    return torch.softmax(q @ k.mT, -1)


def over_queries(query_BLE, key_BSE, num_heads):
    q, k = (
        rearrange(x, "b l (h d) -> b h l d", h=num_heads)
        for x in (query_BLE, key_BSE)
    )
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -2)


# -- real and past ---------------------------------------------------------


def by_comparison(lengths_B, L):
    position_L = torch.arange(L)
    past_LS = position_L[None, :] <= position_L[:, None]
    real_BS = position_L < lengths_B[:, None]
    return real_BS[:, None, None, :] & past_LS


def by_triangle(lengths_B, L):
    past_LS = torch.ones(L, L, dtype=torch.bool).tril()
    real = torch.arange(L).reshape(1, 1, 1, L) < lengths_B.reshape(-1, 1, 1, 1)
    return past_LS.logical_and(real)


def by_loop(lengths_B, L):
    keep = torch.zeros(len(lengths_B), 1, L, L, dtype=torch.bool)
    for b, length in enumerate(lengths_B.tolist()):
        for row in range(L):
            keep[b, 0, row, : min(row + 1, length)] = True
    return keep


def opposite(lengths_B, L):
    return ~by_comparison(lengths_B, L)


def either(lengths_B, L):
    position_L = torch.arange(L)
    past_LS = position_L[None, :] <= position_L[:, None]
    return (position_L < lengths_B[:, None])[:, None, None, :] | past_LS


def padding_on_queries(lengths_B, L):
    position_L = torch.arange(L)
    past_LS = position_L[None, :] <= position_L[:, None]
    return (position_L < lengths_B[:, None])[:, None, :, None] & past_LS


def strictly_before(lengths_B, L):
    position_L = torch.arange(L)
    past_LS = position_L[None, :] < position_L[:, None]
    return (position_L < lengths_B[:, None])[:, None, None, :] & past_LS


def three_axes(lengths_B, L):
    return by_comparison(lengths_B, L)[:, 0]


def of_numbers(lengths_B, L):
    return by_comparison(lengths_B, L).float()


# -- grouped heads ---------------------------------------------------------


def by_repeat(query, key, value):
    g = query.shape[1] // key.shape[1]
    key = key.repeat_interleave(g, dim=1)
    value = value.repeat_interleave(g, dim=1)
    scores_BHLS = query @ key.mT * query.shape[-1] ** -0.5
    return torch.softmax(scores_BHLS, dim=-1) @ value


def by_group_axis(query, key, value):
    q = query.unflatten(1, (key.shape[1], -1))
    weights = torch.softmax(q @ key[:, :, None].mT / q.shape[-1] ** 0.5, -1)
    return (weights @ value[:, :, None]).flatten(1, 2)


def by_index(query, key, value):
    group = query.shape[1] // key.shape[1]
    heads = [
        torch.softmax(
            query[:, h] @ key[:, h // group].mT * query.shape[-1] ** -0.5, -1
        )
        @ value[:, h // group]
        for h in range(query.shape[1])
    ]
    return torch.stack(heads, dim=1)


def tiled(query, key, value):
    g = query.shape[1] // key.shape[1]
    key, value = (
        repeat(x, "b h s d -> b (g h) s d", g=g) for x in (key, value)
    )
    return scaled_dot_product_attention(query, key, value)


def first_head(query, key, value):
    return scaled_dot_product_attention(
        query, key[:, :1], value[:, :1], enable_gqa=True
    )


def mean_head(query, key, value):
    key, value = (x.mean(1, keepdim=True) for x in (key, value))
    return scaled_dot_product_attention(query, key, value, enable_gqa=True)


def by_library(query, key, value):
    return scaled_dot_product_attention(query, key, value, enable_gqa=True)


def no_group(query, key, value):
    return torch.softmax(query @ key.mT * query.shape[-1] ** -0.5, -1) @ value


# -- whose gradient --------------------------------------------------------


def by_sum(each_BHSD, key_heads):
    return each_BHSD.unflatten(1, (key_heads, -1)).sum(dim=2)


def by_pattern(each_BHSD, key_heads):
    return rearrange(each_BHSD, "b (h g) s d -> g b h s d", h=key_heads).sum(0)


def by_adding(each_BHSD, key_heads):
    group = each_BHSD.shape[1] // key_heads
    return sum(each_BHSD[:, member::group] for member in range(group))


def first_of_group(each_BHSD, key_heads):
    return each_BHSD[:, :: each_BHSD.shape[1] // key_heads]


def mean_of_group(each_BHSD, key_heads):
    return each_BHSD.unflatten(1, (key_heads, -1)).mean(dim=2)


def sum_of_tiles(each_BHSD, key_heads):
    return each_BHSD.unflatten(1, (-1, key_heads)).sum(dim=1)


def sum_of_all(each_BHSD, key_heads):
    return each_BHSD.sum(1, keepdim=True).expand(-1, key_heads, -1, -1)


# -- bytes -----------------------------------------------------------------


def both_at_once(layers, key_heads, D, S, bytes_per_number):
    return 2 * layers * key_heads * D * S * bytes_per_number


def by_numbers(layers, key_heads, D, S, bytes_per_number):
    keys = torch.empty(layers, key_heads, S, D, device="meta").numel()
    return (keys + keys) * bytes_per_number


def per_token(layers, key_heads, D, S, bytes_per_number):
    return sum(2 * key_heads * D * bytes_per_number * S for _ in range(layers))


def keys_alone(layers, key_heads, D, S, bytes_per_number):
    return layers * key_heads * D * S * bytes_per_number


def numbers(layers, key_heads, D, S, bytes_per_number):
    return 2 * layers * key_heads * D * S


def one_layer(layers, key_heads, D, S, bytes_per_number):
    return 2 * key_heads * D * S * bytes_per_number


# -- the lines of a kernel -------------------------------------------------


def lines(*order):
    """Return the letters of these lines of the kernel, by their place."""
    problem = exercises.shared_sum
    left = dict(problem.lines)
    letters = []
    for place in order:
        line = problem.ordered[place]
        letter = next(key for key, other in left.items() if other == line)
        letters.append(letter)
        del left[letter]
    return " ".join(letters)


def with_wrong_head():
    """Return the right order with the line that is not needed for its twin."""
    (extra,) = set(exercises.shared_sum.lines) - set(lines(*range(9)))
    return extra + lines(*range(9))[1:]


RIGHT = {
    "two_lengths": [by_unflatten, by_einops, head_by_head],
    "real_and_past": [by_comparison, by_triangle, by_loop],
    "grouped_heads": [by_repeat, by_group_axis, by_index],
    "whose_gradient": [by_sum, by_pattern, by_adding],
    "cache_bytes": [both_at_once, by_numbers, per_token],
    "shared_sum": [
        lines(*range(9)),
        lines(1, 2, 0, 3, 4, 5, 6, 7, 8),
        lines(0, 7, 2, 3, 4, 5, 6, 1, 8),  # two lines are alike
    ],
}
WRONG = {
    "two_lengths": [
        (with_query_length, "weights", "is invalid for input"),
        (split_by_view, "weights", "split-by-view"),
        (unscaled, "weights", "scale-missing"),
        (over_queries, "weights", "softmax-over-queries"),
    ],
    "real_and_past": [
        (opposite, "the mask", "mask-polarity"),
        (either, "the mask", "allowed by both"),
        (padding_on_queries, "the mask", "mask-on-queries"),
        (strictly_before, "the mask", "causal-off-by-one-self"),
        (three_axes, "the mask", "(2, 1, 3, 3) is expected"),
        (of_numbers, "boolean", "dtype torch.float32"),
    ],
    "grouped_heads": [
        (tiled, "output", "gqa-tiled"),
        (first_head, "output", "gqa-first-head-only"),
        (mean_head, "output", "gqa-mean-of-heads"),
        (by_library, "your own", "calls PyTorch's attention once"),
        (no_group, "output", "must match the size"),
    ],
    "whose_gradient": [
        (first_of_group, "gradient", "backward-gqa-not-summed"),
        (mean_of_group, "gradient", "too small by the number"),
        (sum_of_tiles, "gradient", "gqa-tiled"),
        (sum_of_all, "gradient", "H = 1"),
    ],
    "cache_bytes": [
        (keys_alone, "bytes", "counts one of them"),
        (numbers, "bytes", "several bytes"),
        (one_layer, "bytes", "cache of its own"),
    ],
    "shared_sum": [
        (lines(1, 0, 2, 3, 4, 5, 6, 7, 8), "is Python", "Python says"),
        (lines(0, 1, 2, 4, 3, 5, 6, 7, 8), "runs", "used before it has"),
        (with_wrong_head(), "values", "out_BHLD"),
        (lines(0, 3, 4, 1, 2, 5, 6, 7, 8), "values", "differ"),
        (lines(0, 1, 2, 3, 4, 5, 6), "output written", "out_BHLD"),
    ],
}


@pytest.mark.parametrize(("name", "number", "answer"), each(RIGHT))
def test_right_answer_passes(name, number, answer):
    assert_passes(getattr(exercises, name).check(answer))


@pytest.mark.parametrize(("name", "number", "case"), each(WRONG))
def test_wrong_answer_fails_and_is_named(name, number, case):
    answer, check, words = case
    assert_fails(getattr(exercises, name).check(answer), check, words)
