"""Functions of one x_BLE, B = 2, L = 3, E = 6, for checks by brute force.

Attention in many words, and the calls that move, write and compute, at sizes
small enough to change every single number of x and see what changes.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from einops import einsum, pack, rearrange, reduce, repeat, unpack
from torch import nn
from torch.utils.checkpoint import checkpoint

B, L, H, D = 2, 3, 2, 3
E = H * D
_WEIGHTS = torch.Generator().manual_seed(0)


def weight(*shape):
    return torch.randn(shape, generator=_WEIGHTS, dtype=torch.float64)


WQ, WK, WV, WO = (weight(E, E) for _ in range(4))
QKV = weight(3 * E, E)


def split(x):
    return x.view(x.shape[0], x.shape[1], -1, D).transpose(1, 2)


def merge(x):
    return x.transpose(1, 2).reshape(x.shape[0], x.shape[2], -1)


def soft(q, k, v):
    return (q @ k.transpose(-2, -1) / math.sqrt(D)).softmax(-1) @ v


def projected(x):
    return [split(F.linear(x, w)) for w in (WQ, WK, WV)]


def by_einops(x):
    q, k, v = rearrange(x @ QKV.T, "b l (p h d) -> p b h l d", p=3, h=H)
    scores = einsum(q, k, "b h l d, b h s d -> b h l s")
    out = einsum(scores.softmax(-1), v, "b h l s, b h s d -> b h l d")
    return rearrange(out, "b h l d -> b l (h d)") @ WO


def by_einsum(x):
    q, k, v = (x @ QKV.T).view(B, L, 3, H, D).unbind(2)
    scores = torch.einsum("blhd,bshd->bhls", q, k)
    return torch.einsum("bhls,bshd->blhd", scores.softmax(-1), v).flatten(2)


def by_chunks(x):
    q, k, v = (x @ QKV.T).chunk(3, -1)
    q = torch.stack(q.split(D, -1), 1)
    k = torch.stack(k.tensor_split(H, -1), 1)
    v = torch.stack(v.unflatten(-1, (H, D)).unbind(-2), 1)
    return torch.cat(soft(q, k, v).unbind(1), -1)


def sliding_window(x):
    q, k, v = projected(x)
    k = F.pad(k, (0, 0, 1, 1)).unfold(2, 3, 1)
    v = F.pad(v, (0, 0, 1, 1)).unfold(2, 3, 1)
    weights = (q.unsqueeze(-1) * k).sum(-2).softmax(-1)
    return (weights.unsqueeze(-2) * v).sum(-1)


def strided_window(x):
    return x.as_strided((B, L - 1, 2, E), (L * E, E, E, 1)).sum(2)


def grouped_heads(x):
    q, k, v = projected(x)
    k, v = k[:, :1], v[:, :1]
    return soft(q, k.repeat_interleave(H, 1), v.expand(B, H, L, D))


def grouped_sdpa(x):
    q, k, v = split(x[..., :2].repeat(1, 1, 6)), split(x), split(-x)
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def gathered(x):
    q, k, v = projected(x)
    k, v = k.index_select(2, torch.tensor([2, 0])), v[:, :, [2, 0]]
    out = soft(q, k, v)
    return out.gather(2, torch.tensor([1, 0, 2])[:, None].expand(B, H, 3, D))


def cached(x):
    q, k, v = projected(x)
    keys, values = torch.zeros(2, B, H, 5, D, dtype=x.dtype)
    keys[:, :, :L] = k
    values[:, :, :L].copy_(v)
    return soft(q, keys[:, :, :L], values[:, :, :L])


def tile_by_tile(x):
    q, k, v = projected(x)
    top = torch.full((B, H, L, 1), -math.inf, dtype=x.dtype)
    total, acc = torch.zeros_like(top), torch.zeros_like(q)
    for start in range(0, L, 2):
        scores = q @ k[:, :, start : start + 2].mT
        new = torch.maximum(top, scores.amax(-1, keepdim=True))
        shrink, part = (top - new).exp(), (scores - new).exp()
        total = total * shrink + part.sum(-1, keepdim=True)
        acc = acc * shrink + part @ v[:, :, start : start + 2]
        top = new
    return acc / total


def without_softmax(x):
    q, k, v = projected(x)
    q, k = F.elu(q) + 1, F.elu(k) + 1
    kv = torch.einsum("bhsd,bhse->bhde", k, v)
    total = (q * k.sum(2, keepdim=True)).sum(-1, keepdim=True)
    return torch.einsum("bhld,bhde->bhle", q, kv) / total


def rotated(x):
    angle = torch.arange(L, dtype=x.dtype)[:, None]
    turned = torch.cat([-x[..., D:], x[..., :D]], -1)
    return x * (angle + 1).cos() + turned * (angle + 1).sin()


def packed(x):
    both, sizes = pack([x, x[:, 0]], "b * e")
    first, last = unpack(both, sizes, "b * e")
    return first.flip(1), last


def written_in_place(x):
    y = F.linear(x, WQ)
    y += 1
    y.mul_(2)
    y[:, 0] = x[:, 1]
    y[..., :2].add_(x[..., 2:4])
    y.view(-1)[3:5] = 0
    return y


def written_through_views(x):
    y = x.clone()
    view = y[0][1:]
    view.copy_(x[1, 1:])
    view.t()[0].fill_(3.0)
    y[1].zero_()
    return y


def data_replaced(x):
    y = x.clone()
    _ = y * 1
    y.data = x.flip(0)
    return y * 1


def written_into_out(x):
    out = torch.empty(B, L, E, dtype=x.dtype)
    torch.add(x, 1, out=out)
    long = torch.empty(B, 2 * L, E, dtype=x.dtype)
    torch.cat([out, x.flip(1)], 1, out=long)
    return long


def functional(x):
    module = nn.Linear(E, E, bias=False).double()
    return torch.func.functional_call(module, {"weight": WK}, (x,))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.flip(0) * 2

    @staticmethod
    def backward(ctx, grad):
        return grad.flip(0) * 2


def by_keyword(x):
    return x.norm(p=2, dim=1), x.norm(1, 2), torch.max(x, 1).values


INDEX = torch.tensor([[[2] * E], [[0] * E]])
CASES = {
    "einops": by_einops,
    "einsum": by_einsum,
    "chunk, stack, cat": by_chunks,
    "sliding window": sliding_window,
    "as_strided": strided_window,
    "grouped heads": grouped_heads,
    "enable_gqa": grouped_sdpa,
    "gather": gathered,
    "key cache": cached,
    "tile by tile": tile_by_tile,
    "linear attention": without_softmax,
    "rotary": rotated,
    "pack": packed,
    "in place": written_in_place,
    "through views": written_through_views,
    "data": data_replaced,
    "out": written_into_out,
    "functional_call": functional,
    "autograd function": lambda x: Reversed.apply(x) + 1,
    "checkpoint": lambda x: checkpoint(
        lambda y: F.linear(y, WQ).exp(), x, use_reentrant=False
    ),
    "norm": by_keyword,
    "roll, flip": lambda x: soft(x.roll(1, 1), x.flip(1), x.roll(2, 0)),
    "roll flat": lambda x: x.roll(2),
    "movedim": lambda x: x.swapaxes(0, 1).movedim(0, 2).mT.permute(2, 1, 0),
    "H": lambda x: x[0].H @ x[1],
    "narrow, select": lambda x: x.narrow(1, 1, 2).select(0, 1) @ x[0].T,
    "diagonal": lambda x: x.diagonal(0, 1, 2).sum(-1),
    "negative index": lambda x: (x[-1, ..., -2:], x[:, None, :, ::2]),
    "mixed index": lambda x: (
        x[torch.tensor([[0], [1]]), torch.tensor([[0, 2]]), 1:3],
        x[:, torch.tensor([2, 0]), torch.tensor([1, 1])],
    ),
    "pad": lambda x: F.pad(x, (1, 2, -1, 1), value=1.0),
    "pad, reflected": lambda x: F.pad(x, (1, 2), mode="reflect"),
    "select_scatter": lambda x: torch.select_scatter(x, x[:, 0], 1, 2),
    "index_copy": lambda x: x.index_copy(1, torch.tensor([2, 0]), x[:, 1:]),
    "index_put": lambda x: torch.zeros_like(x).index_put_(
        (torch.tensor([0, 1]), torch.tensor([1, 2])), x[:, 0]
    ),
    "scatter": lambda x: torch.zeros_like(x).scatter_(1, INDEX, x[:, :1]),
    "scatter a number": lambda x: x.scatter(1, INDEX, value=0.5),
    "masked_scatter": lambda x: torch.zeros_like(x).masked_scatter(
        torch.ones(B, L, E) > 0, x.flip(0)
    ),
    "outer": lambda x: torch.outer(x[0, 0], x[1, 1]),
    "addmm": lambda x: torch.addmm(WQ[0], x[0], WQ),
    "baddbmm": lambda x: torch.baddbmm(x[:, :, :3], x, x.mT),
    "one number": lambda x: x[0, 0, 0] * x[1, 1, 1],
    "einops reduce": lambda x: reduce(x, "b l (h d) -> b h", "mean", h=H),
    "einops repeat": lambda x: repeat(x, "b l (h d) -> b h l (d r)", h=H, r=2),
    "half softmax": lambda x: F.softmax(x, 1, dtype=torch.float32),
    "where": lambda x: torch.where(x > 9, x.flip(1), x),
    "fft": lambda x: torch.fft.fft(x).abs(),
    "vmap": lambda x: torch.vmap(torch.vmap(soft))(*projected(x)) + 1,
    "vmap alone": lambda x: torch.vmap(lambda y: y * 2)(x),
    "numpy": lambda x: torch.from_numpy(x.numpy() * 2) + 1,
    "item": lambda x: torch.full((2,), x.sum().item()) + 1,
    "backward pass": lambda x: torch.autograd.grad(
        (x.requires_grad_() ** 2).sum(), x
    )[0],
    "LSTM": lambda x: nn.LSTM(E, 2, batch_first=True).double()(x)[0] * 2,
}  # fmt: skip
#: An element is said to depend on more than it does; never on less.
UPPER_BOUNDS = {
    "where": "both sides, whatever the condition is",
    "norm": "the largest of a row is one of its numbers",
}
#: Their results are not followed, and the flow says so.
NOT_FOLLOWED = {
    "fft", "vmap", "vmap alone", "numpy", "item", "backward pass", "LSTM",
}  # fmt: skip
