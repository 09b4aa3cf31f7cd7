import torch
import torch.nn as nn
from einops import rearrange
from torch.utils.checkpoint import checkpoint

class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads

        self.qkv = nn.Linear(embed_dim, embed_dim * 3)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, mask=None):
        # 使用梯度检查点节省显存
        return checkpoint(self._forward, x, mask)

    def _forward(self, x, mask=None):
        batch_size, seq_len, _ = x.shape

        # 生成 QKV [B, L, 3*D] -> [3, B, H, L, D/H]
        qkv = self.qkv(x)
        q, k, v = rearrange(qkv, 'b l (k h d) -> k b h l d', 
                           k=3, h=self.num_heads)

        # 注意力得分 [B, H, L, L]
        scores = torch.einsum('bhqd,bhkd->bhqk', q, k) / (self.head_dim ** 0.5)

        # 掩码处理
        if mask is not None:
            scores = scores.masked_fill(mask == 0, float('-inf'))

        # 注意力权重
        attn = torch.softmax(scores, dim=-1)

        # 输出 [B, H, L, D/H] -> [B, L, D]
        out = torch.einsum('bhal,bhld->bhad', attn, v)
        out = rearrange(out, 'b h l d -> b l (h d)')

        return self.out(out)
