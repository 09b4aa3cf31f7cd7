"""Heads split and merged in as many ways as people write them, and wrongly.

Every function takes x_BLE and three projections (or one), and gives x back
through attention. Sizes are distinct: B = 2, L = 5, H = 4, D = 3.
"""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from einops import einsum, rearrange
from torch import nn
from torch.utils.checkpoint import checkpoint

B, L, H, D = 2, 5, 4, 3
E = H * D


class Projections(nn.Module):
    """Three projections, a split and a merge that differ."""

    def __init__(self, split, merge=None, attend=None):
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(E, E) for _ in range(3))
        self.out = nn.Linear(E, E)
        self.split, self.merge = split, merge or merge_reshape
        self.attend = attend or softmax_attend

    def forward(self, x):
        q, k, v = (self.split(p(x)) for p in (self.q, self.k, self.v))
        return self.out(self.merge(self.attend(q, k, v)))


class Fused(nn.Module):
    """One projection; `split` makes q, k and v of its result."""

    def __init__(self, split, merge=None, attend=None):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)
        self.split, self.merge = split, merge or merge_reshape
        self.attend = attend or softmax_attend

    def forward(self, x):
        q, k, v = self.split(self.qkv(x))
        return self.out(self.merge(self.attend(q, k, v)))


class TimmStyle(nn.Module):
    def __init__(self):
        super().__init__()
        self.num_heads, self.scale = H, D**-0.5
        self.qkv = nn.Linear(E, 3 * E, bias=False)
        self.q_norm, self.k_norm = nn.LayerNorm(D), nn.LayerNorm(D)
        self.attn_drop, self.proj_drop = nn.Dropout(0.1), nn.Dropout(0.1)
        self.proj = nn.Linear(E, E)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q = self.q_norm(q) * self.scale
        attn = (q @ self.k_norm(k).transpose(-2, -1)).softmax(dim=-1)
        x = self.attn_drop(attn) @ v
        x = x.transpose(1, 2).reshape(B, N, C)
        return self.proj_drop(self.proj(x)), attn


class LoopOverHeads(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        heads = []
        for h in range(H):
            own = slice(h * D, (h + 1) * D)
            weights = (q[..., own] @ k[..., own].mT / D**0.5).softmax(-1)
            heads.append(weights @ v[..., own])
        return self.out(torch.cat(heads, dim=-1))


class Rotary(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(E, 3 * E), nn.Linear(E, E)

    def turn(self, x):
        angle = torch.arange(L, dtype=x.dtype)[:, None, None]
        other = torch.cat([-x[..., 1:], x[..., :1]], dim=-1)
        return x * angle.cos() + other * angle.sin()

    def forward(self, x):
        q, k, v = (t.view(B, L, H, D) for t in self.qkv(x).split(E, -1))
        q, k = self.turn(q), self.turn(k)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(out.transpose(1, 2).flatten(2))


class Checkpointed(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Projections(split_view)

    def forward(self, x):
        return checkpoint(self.inner, x, use_reentrant=False)


def softmax_attend(q, k, v):
    return F.softmax(q @ k.transpose(-2, -1) / math.sqrt(D), dim=-1) @ v


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v)


def einsum_attend(q, k, v):
    scores = torch.einsum("bhid,bhjd->bhij", q, k)
    return torch.einsum("bhij,bhjd->bhid", scores.softmax(-1), v)


def einops_attend_blhd(q, k, v):
    scores = einsum(q, k, "b l h d, b s h d -> b h l s")
    return einsum(scores.softmax(-1), v, "b h l s, b s h d -> b l h d")


def bmm_attend(q, k, v):
    return torch.bmm(torch.bmm(q, k.transpose(1, 2)).softmax(-1), v)


def transposed_keys(q, k, v):
    """k comes as b h d l."""
    return (q @ k).softmax(-1) @ v


def split_view(x):
    return x.view(B, L, H, D).permute(0, 2, 1, 3)


def merge_reshape(x):
    return x.transpose(1, 2).reshape(B, L, E)


def merge_view(x):
    return x.permute(0, 2, 1, 3).contiguous().view(B, L, E)


def timm_split(qkv):
    return qkv.reshape(B, L, 3, H, D).permute(2, 0, 3, 1, 4).unbind(0)


SPLITS = {
    "view, permute": split_view,
    "reshape, transpose": lambda x: x.reshape(B, L, H, D).transpose(1, 2),
    "unflatten, swapaxes": lambda x: x.unflatten(-1, (H, D)).swapaxes(1, 2),
    "rearrange": lambda x: rearrange(x, "b l (h d) -> b h l d", h=H),
    "movedim": lambda x: x.view(B, L, H, D).movedim(2, 1),
    "contiguous": lambda x: split_view(x).contiguous(),
    "stack of chunks": lambda x: torch.stack(x.chunk(H, dim=-1), dim=1),
    "stack of slices": lambda x: torch.stack(
        [x[:, :, h * D : (h + 1) * D] for h in range(H)], dim=1
    ),
    "as_strided": lambda x: x.as_strided(
        (B, H, L, D), (L * E, D, E, 1), x.storage_offset()
    ),
    "written in place": lambda x: torch.empty(B, H, L, D).copy_(split_view(x)),
    "filled head by head": lambda x: fill(x),
    "tensordot of ones": lambda x: x.view(B, L, H, D)
    .index_select(2, torch.arange(H))
    .transpose(1, 2),
    "scaled before": lambda x: split_view(x * D**-0.5 + 1.0),
    "half and back": lambda x: split_view(x.double()).float(),
}


def fill(x):
    heads = torch.zeros(B, H, L, D)
    for h in range(H):
        heads[:, h] = x[..., h * D : (h + 1) * D]
    return heads


def right_modules():
    """All right ones: name → module."""
    merged = dict.fromkeys(SPLITS, merge_reshape)
    modules = {n: Projections(s, merged[n]) for n, s in SPLITS.items()}
    modules |= {
        "merge by view": Projections(split_view, merge_view),
        "merge by einops": Projections(
            split_view, lambda x: rearrange(x, "b h l d -> b l (h d)")
        ),
        "merge by flatten": Projections(
            split_view, lambda x: x.transpose(1, 2).flatten(2)
        ),
        "merge by cat": Projections(
            split_view, lambda x: torch.cat(x.unbind(1), dim=-1)
        ),
        "one opaque step": Projections(split_view, attend=sdpa),
        "einsum": Projections(split_view, attend=einsum_attend),
        "einops, no permute": Projections(
            lambda x: rearrange(x, "b l (h d) -> b l h d", h=H),
            lambda x: x.flatten(2),
            einops_attend_blhd,
        ),
        "bmm": Projections(
            lambda x: split_view(x).reshape(B * H, L, D),
            lambda x: merge_reshape(x.view(B, H, L, D)),
            bmm_attend,
        ),
        "timm": TimmStyle(),
        "timm's split": Fused(timm_split),
        "nanoGPT": Fused(
            lambda x: [split_view(t) for t in x.split(E, dim=2)], attend=sdpa
        ),
        "fused einops": Fused(
            lambda x: rearrange(x, "b l (p h d) -> p b h l d", p=3, h=H)
        ),
        "loop over heads": LoopOverHeads(),
        "rotary": Rotary(),
        "checkpoint": Checkpointed(),
    }
    return modules


def transposed_key_module():
    """Its keys are made b h d l at once."""

    class Transposed(Projections):
        def forward(self, x):
            q, v = split_view(self.q(x)), split_view(self.v(x))
            k = self.k(x).view(B, L, H, D).permute(0, 2, 3, 1)
            return self.out(merge_reshape(transposed_keys(q, k, v)))

    return Transposed(None)


def wrong_key(x):
    return x.view(B, H, L, D)


#: name → (module, name of the operation to blame, what is wrong)
def wrong_modules():
    return {
        "view straight to b h l d": (
            Projections(lambda x: x.view(B, H, L, D)), "view", "split"
        ),
        "reshape straight to b h l d": (
            Projections(lambda x: x.reshape(B, H, L, D)), "reshape", "split"
        ),
        "einops, d before h": (
            Projections(
                lambda x: rearrange(x, "b l (d h) -> b h l d", h=H)
            ),
            "rearrange",
            "split",
        ),
        "view, d before h": (
            Projections(lambda x: x.view(B, L, D, H).permute(0, 3, 1, 2)),
            "permute",
            "split",
        ),
        "view of the transposed": (
            Projections(
                lambda x: x.transpose(1, 2).reshape(B, H, L, D)
            ),
            "reshape",
            "split",
        ),
        "no permute": (
            Projections(
                lambda x: x.view(B, L, H, D), lambda x: x.flatten(2)
            ),
            "matmul",
            "split",
        ),
        "no permute, opaque": (
            Projections(
                lambda x: x.view(B, L, H, D), lambda x: x.flatten(2), sdpa
            ),
            "scaled_dot_product_attention",
            "split",
        ),
        "merge without permute": (
            Projections(split_view, lambda x: x.reshape(B, L, E)),
            "reshape",
            "merge",
        ),
        "merge, d before h": (
            Projections(
                split_view, lambda x: rearrange(x, "b h l d -> b l (d h)")
            ),
            "rearrange",
            "merge",
        ),
        "merge, heads backwards": (
            Projections(
                split_view, lambda x: torch.cat(x.unbind(1)[::-1], dim=-1)
            ),
            "cat",
            "merge",
        ),
        "fused, read as h p d": (
            Fused(
                lambda x: rearrange(x, "b l (h p d) -> p b h l d", p=3, h=H)
            ),
            "rearrange",
            "split",
        ),
        "fused, read as h d p": (
            Fused(
                lambda x: x.view(B, L, H, D, 3).permute(4, 0, 2, 1, 3)
            ),
            "permute",
            "split",
        ),
        "fused, chunked by head": (
            Fused(
                lambda x: [
                    t.transpose(1, 2)
                    for t in x.view(B, L, H, 3 * D).chunk(3, dim=-1)
                ]
            ),
            "transpose",
            "split",
        ),
    }  # fmt: skip
