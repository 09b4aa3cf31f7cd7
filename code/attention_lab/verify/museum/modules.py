# ruff: noqa: D102, N801 - the steps are documented where they are right, in
# module_parts.py; an exhibit bears the id of its card
"""Exhibits: modules that go wrong around their attention."""

import math

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from einops import rearrange
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attention_lab.verify.museum.module_parts import (
    FusedSelfAttention,
    SelfAttention,
)


class split_by_view(SelfAttention):
    """Fold the heads into the batch by a view of (B, L, E) alone."""

    def split(self, x: Tensor) -> Tensor:
        B, L, _ = x.shape
        return x.view(B, self.num_heads, L, self.head_dim)

    def merge(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, self.num_heads * self.head_dim)


class split_d_h_order(SelfAttention):
    """Let the head be the inner axis of the channels, not the outer one."""

    def split(self, x: Tensor) -> Tensor:
        return rearrange(x, "b l (d h) -> b h l d", h=self.num_heads)


class merge_without_permute(SelfAttention):
    """Reshape (B, H, L, D) to (B, L, E) as it lies in memory."""

    def merge(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1, self.num_heads * self.head_dim)


class merge_wrong_order(SelfAttention):
    """Let the heads take turns channel by channel in the merged axis."""

    def merge(self, x: Tensor) -> Tensor:
        return rearrange(x, "b h l d -> b l (d h)")


class merge_heads_before_batch(SelfAttention):
    """Keep the heads in front of the batch, and merge as if they were not."""

    def merge(self, x: Tensor) -> Tensor:
        B, H, _, D = x.shape
        heads_first = x.transpose(0, 1)
        return heads_first.permute(0, 2, 1, 3).reshape(B, -1, H * D)


class batch_sequence_swap(nn.Module):
    """Hand batch-first tokens to a layer that reads (L, B, E)."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(embed_dim, num_heads)

    def forward(self, x: Tensor) -> Tensor:
        return self.attn(x, x, x, need_weights=False)[0]


class module_query_length_for_keys(SelfAttention):
    """Shape the keys and values by the length of the queries."""

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        mask: Tensor | None = None,
    ) -> Tensor:
        shape = (*query.shape[:2], self.num_heads, self.head_dim)
        q = self.q_proj(query).view(shape).transpose(1, 2)
        k = self.k_proj(key).view(shape).transpose(1, 2)
        v = self.v_proj(value).view(shape).transpose(1, 2)
        return self.out_proj(self.merge(self.mix(q, k, v, mask)))


class fused_layout_head_by_head(FusedSelfAttention):
    """Read a checkpoint of all q, all k, all v head by head."""

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        H = self.num_heads
        return rearrange(packed, "b l (h p d) -> p b h l d", h=H, p=3)


class fused_layout_interleaved(FusedSelfAttention):
    """Read that checkpoint as if q, k and v took turns channel by channel."""

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        H = self.num_heads
        return rearrange(packed, "b l (h d p) -> p b h l d", h=H, p=3)


class fused_order_swapped(FusedSelfAttention):
    """Take key, value, query from a checkpoint of query, key, value."""

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        H = self.num_heads
        k, v, q = rearrange(packed, "b l (p h d) -> p b h l d", h=H, p=3)
        return q, k, v


class _Conv1D(nn.Module):
    """GPT-2's linear layer: its weight is (in, out)."""

    def __init__(self, width_in: int, width_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(0.02 * torch.randn(width_in, width_out))
        self.bias = nn.Parameter(torch.zeros(width_out))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight + self.bias


class transposed_weights(nn.Module):
    """Use GPT-2's square weight, (in, out), as one of nn.Linear, (out, in)."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.c_attn = _Conv1D(embed_dim, 3 * embed_dim)
        self.c_proj = _Conv1D(embed_dim, embed_dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        packed = F.linear(x, self.c_attn.weight.T, self.c_attn.bias)
        q, k, v = (
            part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for part in packed.chunk(3, dim=-1)
        )
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        merged = out.transpose(1, 2).flatten(-2)
        return F.linear(merged, self.c_proj.weight, self.c_proj.bias)


class missing_output_projection(SelfAttention):
    """Return the merged heads, though there is an output projection."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        q, k, v = (
            self.split(project(x))
            for project in (self.q_proj, self.k_proj, self.v_proj)
        )
        return self.merge(self.mix(q, k, v, mask))


class dropout_in_eval(SelfAttention):
    """Give a function without a training flag the probability always."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.1
    ) -> None:
        super().__init__(embed_dim, num_heads)
        self.dropout = dropout

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=self.dropout
        )


class dropout_on_output(SelfAttention):
    """Drop channels of the heads' results instead of attention weights."""

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.1
    ) -> None:
        super().__init__(embed_dim, num_heads)
        self.attn_dropout = nn.Dropout(dropout)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
        return self.attn_dropout(super().mix(q, k, v, mask))


class reentrant_checkpoint(SelfAttention):
    """Save memory with the kind of checkpoint that asks its inputs only."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return checkpoint(super().forward, x, mask, use_reentrant=True)


class scale_by_model_width(SelfAttention):
    """Divide the scores by √E."""

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
        scale = (self.num_heads * self.head_dim) ** -0.5
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=scale
        )


class scale_by_num_heads(SelfAttention):
    """Divide the scores by √H."""

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
        scale = self.num_heads**-0.5
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=scale
        )


class averaged_weights(nn.Module):
    """Return the mean of the heads' weights as the weights of every head."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attn = nn.MultiheadAttention(
            embed_dim, num_heads, batch_first=True
        )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the output and the weights, (B, H, L, S)."""
        out, weights = self.attn(x, x, x)
        return out, weights[:, None].expand(-1, self.num_heads, -1, -1)


class unregistered_weights(nn.Module):
    """Keep one layer per head in plain lists."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        D = embed_dim // num_heads
        self.queries = [nn.Linear(embed_dim, D) for _ in range(num_heads)]
        self.keys = [nn.Linear(embed_dim, D) for _ in range(num_heads)]
        self.values = [nn.Linear(embed_dim, D) for _ in range(num_heads)]
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        heads = [
            F.scaled_dot_product_attention(q(x), k(x), v(x), attn_mask=mask)
            for q, k, v in zip(
                self.queries, self.keys, self.values, strict=True
            )
        ]
        return self.out_proj(torch.cat(heads, dim=-1))


class masked_row_poisons_weights(SelfAttention):
    """Take the softmax of a row in which every score is −∞."""

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
        scores = q @ k.mT / math.sqrt(self.head_dim)
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        return scores.softmax(-1) @ v


class masked_row_nan_hidden(SelfAttention):
    """Replace the NaN of such a row after the softmax."""

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
        scores = q @ k.mT / math.sqrt(self.head_dim)
        if mask is not None:
            zeros = torch.zeros_like(mask, dtype=scores.dtype)
            scores = scores + zeros.masked_fill(~mask, -math.inf)
        return scores.softmax(-1).nan_to_num(0.0) @ v


class module_mask_polarity(nn.Module):
    """Hand a mask of what may be seen to a layer that wants the contrary."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.attn = nn.MultiheadAttention(
            embed_dim, num_heads, batch_first=True
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Attend; `mask` is (L, S), True = may attend."""
        return self.attn(x, x, x, attn_mask=mask, need_weights=False)[0]
