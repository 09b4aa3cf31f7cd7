"""Right attention modules, written in as many ways as people write them."""

import copy
import math

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from einops import rearrange
from torch import nn

from attention_lab.steps.fused_qkv import FusedQKVAttention
from attention_lab.steps.multi_head import MultiHeadAttention


class TimmStyle(nn.Module):
    def __init__(self, embed_dim, num_heads, attn_drop=0.1, proj_drop=0.1):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (embed_dim // num_heads) ** -0.5
        self.qkv = nn.Linear(embed_dim, embed_dim * 3, bias=False)
        self.q_norm, self.k_norm = nn.Identity(), nn.Identity()
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(embed_dim, embed_dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, -1)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        q = self.q_norm(q) * self.scale
        attn = (q @ self.k_norm(k).transpose(-2, -1)).softmax(dim=-1)
        x = self.attn_drop(attn) @ v
        x = x.transpose(1, 2).reshape(B, N, C)
        return self.proj_drop(self.proj(x))


class NanoGptStyle(nn.Module):
    """Always causal, by a buffer or by a flag."""

    def __init__(self, embed_dim, num_heads, dropout=0.1, flash=False):
        super().__init__()
        self.c_attn = nn.Linear(embed_dim, 3 * embed_dim)
        self.c_proj = nn.Linear(embed_dim, embed_dim)
        self.attn_dropout = nn.Dropout(dropout)
        self.resid_dropout = nn.Dropout(dropout)
        self.n_head, self.n_embd = num_heads, embed_dim
        self.dropout, self.flash = dropout, flash
        bias = torch.tril(torch.ones(32, 32)).view(1, 1, 32, 32)
        self.register_buffer("bias", bias)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        q, k, v = (
            t.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            for t in (q, k, v)
        )
        if self.flash:
            p = self.dropout if self.training else 0
            y = F.scaled_dot_product_attention(
                q, k, v, dropout_p=p, is_causal=True
            )
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, -math.inf)
            y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class Head(nn.Module):
    def __init__(self, embed_dim, head_size):
        super().__init__()
        self.key = nn.Linear(embed_dim, head_size, bias=False)
        self.query = nn.Linear(embed_dim, head_size, bias=False)
        self.value = nn.Linear(embed_dim, head_size, bias=False)

    def forward(self, x, mask):
        k, q, v = self.key(x), self.query(x), self.value(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        if mask is not None:
            wei = wei.masked_fill(~mask, torch.finfo(wei.dtype).min)
        return F.softmax(wei, dim=-1) @ v


class LoopOverHeads(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        size = embed_dim // num_heads
        self.heads = nn.ModuleList(
            Head(embed_dim, size) for _ in range(num_heads)
        )
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, mask=None):
        return self.proj(torch.cat([h(x, mask) for h in self.heads], dim=-1))


class EinopsStyle(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__()
        self.heads = num_heads
        self.to_qkv = nn.Linear(embed_dim, embed_dim * 3, bias=False)
        self.to_out = nn.Sequential(
            nn.Linear(embed_dim, embed_dim), nn.Dropout(dropout)
        )

    def forward(self, x, mask=None):
        q, k, v = rearrange(
            self.to_qkv(x), "b n (p h d) -> p b h n d", p=3, h=self.heads
        )
        dots = torch.einsum("bhid,bhjd->bhij", q, k) * q.shape[-1] ** -0.5
        if mask is not None:
            dots = torch.where(mask, dots, -1e30)
        out = torch.einsum("bhij,bhjd->bhid", dots.softmax(-1), v)
        return self.to_out(rearrange(out, "b h n d -> b n (h d)"))


class AnnotatedStyle(nn.Module):
    """Four equal layers in a list, a mask that is compared with 0."""

    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__()
        layer = nn.Linear(embed_dim, embed_dim)
        self.linears = nn.ModuleList(copy.deepcopy(layer) for _ in range(4))
        self.h, self.d_k = num_heads, embed_dim // num_heads
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        B = query.size(0)
        query, key, value = [
            lin(x).view(B, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value), strict=False)
        ]
        scores = query @ key.transpose(-2, -1) / math.sqrt(self.d_k)
        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)
        self.attn = self.dropout(scores.softmax(dim=-1))
        x = (
            (self.attn @ value)
            .transpose(1, 2)
            .reshape(B, -1, self.h * self.d_k)
        )
        return self.linears[-1](x)


class ValuesFirst(nn.Module):
    """Arguments in another order, weights that come with the output."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.W_q = nn.Linear(embed_dim, embed_dim)
        self.W_k = nn.Linear(embed_dim, embed_dim)
        self.W_v = nn.Linear(embed_dim, embed_dim)
        self.W_o = nn.Linear(embed_dim, embed_dim)

    def forward(self, values, keys, queries, mask):
        q, k, v = (
            rearrange(x, "n l (h d) -> n l h d", h=self.num_heads)
            for x in (self.W_q(queries), self.W_k(keys), self.W_v(values))
        )
        energy = torch.einsum("nqhd,nkhd->nhqk", q, k) / q.shape[-1] ** 0.5
        if mask is not None:
            energy = energy.masked_fill(mask == 0, float("-1e20"))
        attention = torch.softmax(energy, dim=3)
        out = torch.einsum("nhql,nlhd->nqhd", attention, v)
        return self.W_o(out.flatten(2)), attention


class SdpaWrapper(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.1):
        super().__init__()
        self.num_heads, self.dropout = num_heads, dropout
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.o_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, context=None, attn_mask=None, is_causal=False):
        context = x if context is None else context
        q, k, v = (
            t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for t in (
                self.q_proj(x),
                self.k_proj(context),
                self.v_proj(context),
            )
        )
        out = F.scaled_dot_product_attention(
            q,
            k,
            v,
            attn_mask=attn_mask,
            is_causal=is_causal,
            dropout_p=self.dropout if self.training else 0.0,
        )
        return self.o_proj(out.transpose(1, 2).flatten(-2))


class Conv1D(nn.Module):
    def __init__(self, nf, nx):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(nx, nf).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(nf))

    def forward(self, x):
        size = (*x.size()[:-1], self.bias.numel())
        flat = x.view(-1, x.size(-1))
        return torch.addmm(self.bias, flat, self.weight).view(size)


class Gpt2Style(nn.Module):
    """Weights of (in, out), and a mask that is added to the scores."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = Conv1D(3 * embed_dim, embed_dim)
        self.c_proj = Conv1D(embed_dim, embed_dim)

    def forward(self, hidden_states, attention_mask=None):
        q, k, v = (
            t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for t in self.c_attn(hidden_states).chunk(3, dim=-1)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        if attention_mask is not None:
            scores = scores + attention_mask.clamp(min=-1e30)
        out = scores.softmax(-1) @ v
        return (self.c_proj(out.transpose(1, 2).flatten(-2).contiguous()), None)


class BareMatrices(nn.Module):
    """Parameters without layers, (in, out)."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        for name in ("w_q", "w_k", "w_v", "w_o"):
            matrix = torch.randn(embed_dim, embed_dim) / embed_dim**0.5
            self.register_parameter(name, nn.Parameter(matrix))

    def forward(self, x, mask=None):
        q, k, v = (
            (x @ w).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for w in (self.w_q, self.w_k, self.w_v)
        )
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return out.transpose(1, 2).flatten(-2) @ self.w_o


class GroupedQueries(nn.Module):
    def __init__(self, embed_dim, num_heads, kv_heads=2):
        super().__init__()
        D = embed_dim // num_heads
        self.D = D
        self.q_proj = nn.Linear(embed_dim, num_heads * D)
        self.k_proj = nn.Linear(embed_dim, kv_heads * D)
        self.v_proj = nn.Linear(embed_dim, kv_heads * D)
        self.o_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, mask=None):
        q, k, v = (
            t.unflatten(-1, (-1, self.D)).transpose(1, 2)
            for t in (self.q_proj(x), self.k_proj(x), self.v_proj(x))
        )
        out = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, enable_gqa=True
        )
        return self.o_proj(out.transpose(1, 2).flatten(-2))


class KeyMask(SdpaWrapper):
    """A mask of keys, (B, S), as tokenizers return it."""

    def forward(self, hidden_states, attention_mask=None):
        if attention_mask is not None:
            attention_mask = attention_mask[:, None, None, :].bool()
        return super().forward(hidden_states, attn_mask=attention_mask)


class MaskPerSample(AnnotatedStyle):
    """A mask of (B, L, S), to which the module adds the axis of the heads."""

    def forward(self, query, key, value, mask=None):
        mask = None if mask is None else mask.unsqueeze(1)
        return super().forward(query, key, value, mask)


#: name -> (build(embed_dim, num_heads), mask_means, checks not tested that
#: must be named, a note that must be there)
CORRECT = {
    "torch, batch first": (
        lambda E, H: nn.MultiheadAttention(E, H, batch_first=True),
        "keep",
        {"attention weights"},
        "(three h d)",
    ),
    "torch, sequence first, dropout": (
        lambda E, H: nn.MultiheadAttention(E, H, dropout=0.1),
        "keep",
        {"attention weights"},
        "(three h d)",
    ),
    "torch, no bias": (
        lambda E, H: nn.MultiheadAttention(E, H, bias=False, batch_first=True),
        "keep",
        set(),
        "(three h d)",
    ),
    "torch, own widths": (
        lambda E, H: nn.MultiheadAttention(E, H, kdim=E, vdim=E),
        "keep",
        set(),
        "(three h d)",
    ),
    "ours": (MultiHeadAttention, "keep", {"attention weights"}, ""),
    "ours, fused": (FusedQKVAttention, "keep", set(), "(three h d)"),
    "ours, head by head": (
        lambda E, H: FusedQKVAttention(E, H, layout="h p d", recompute=True),
        "keep",
        set(),
        "(h three d)",
    ),
    "ours, interleaved": (
        lambda E, H: FusedQKVAttention(E, H, layout="h d p"),
        "keep",
        set(),
        "(h d three)",
    ),
    "timm style": (TimmStyle, "keep", {"mask meaning"}, "(three h d)"),
    "nanoGPT style": (
        NanoGptStyle,
        "keep",
        {"permutation equivariance"},
        "always causal",
    ),
    "nanoGPT style, flash": (
        lambda E, H: NanoGptStyle(E, H, flash=True),
        "keep",
        {"permutation equivariance"},
        "always causal",
    ),
    "loop over heads": (LoopOverHeads, "keep", set(), "sees no key"),
    "einops": (EinopsStyle, "keep", set(), "(three h d)"),
    "annotated": (AnnotatedStyle, "keep", {"float mask"}, "sees no key"),
    "mask of keys": (KeyMask, "keep", {"causality", "token independence"}, ""),
    "mask per sample": (MaskPerSample, "keep", set(), "sees no key"),
    "values first": (ValuesFirst, "keep", {"float mask"}, "sees no key"),
    "SDPA wrapper": (SdpaWrapper, "keep", set(), ""),
    "GPT-2 style": (Gpt2Style, "added", set(), "(three h d)"),
    "bare matrices": (BareMatrices, "keep", set(), "(in, out)"),
    "grouped queries": (GroupedQueries, "keep", {"values"}, ""),
}
