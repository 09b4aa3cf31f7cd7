"""What the exhibits of modules share: right modules that they then break."""

import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import Tensor, nn


class SelfAttention(nn.Module):
    """Multi-head self-attention in five steps; an exhibit replaces one."""

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return (B, L, E); `mask` is (L, S), True = may attend."""
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x))
        v = self.split(self.v_proj(x))
        return self.out_proj(self.merge(self.mix(q, k, v, mask)))

    def split(self, x: Tensor) -> Tensor:
        """Give each head its channels: (B, H, L, D)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)

    def mix(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None):
        """Attend in every head; (B, H, L, D)."""
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    def merge(self, x: Tensor) -> Tensor:
        """Put the heads side by side again: (B, L, E)."""
        return x.transpose(1, 2).flatten(-2)


class FusedSelfAttention(nn.Module):
    """Self-attention whose checkpoint holds one weight for q, k and v.

    `layout` is the order in which the checkpoint was written. An exhibit
    reads it in another.
    """

    layout = "p h d"

    def __init__(self, embed_dim: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim)
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return (B, L, E); `mask` is (L, S), True = may attend."""
        q, k, v = self.unpack(self.qkv(x))
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        return self.proj(out.transpose(1, 2).flatten(-2))

    def unpack(self, packed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return query, key and value, each (B, H, L, D)."""
        raise NotImplementedError
