import torch
import torch.nn as nn
import torch.nn.functional as F

class MultiHeadAttention(nn.Module):
    def __init__(self, embed_dim, num_heads, dropout=0.0):
        """
        多头注意力机制实现
        Args:
            embed_dim (int): 输入特征的维度（模型维度）。
            num_heads (int): 注意力头的数量。
            dropout (float): 注意力权重的dropout概率。
        """
        super(MultiHeadAttention, self).__init__()
        assert embed_dim % num_heads == 0, "embed_dim 必须能被 num_heads 整除"
        
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.head_dim = embed_dim // num_heads  # 每个头的维度
        self.scale = self.head_dim ** -0.5  # 缩放因子，用于稳定点积注意力的梯度
        
        # 定义 Q, K, V 的线性变换
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        
        # 输出线性变换
        self.out_proj = nn.Linear(embed_dim, embed_dim)
        
        # Dropout
        self.dropout = nn.Dropout(dropout)

    def forward(self, query, key, value, mask=None):
        """
        前向传播
        Args:
            query, key, value: [batch_size, seq_len, embed_dim]
            mask: [batch_size, 1, seq_len, seq_len] or None
        Returns:
            output: [batch_size, seq_len, embed_dim]
        """
        batch_size, seq_len, _ = query.size()
        
        # 线性变换 + 分头
        Q = self.q_proj(query).view(batch_size, seq_len, self.num_heads, self.head_dim).permute(0, 2, 1, 3)  # [B, num_heads, L, head_dim]
        K = self.k_proj(key).view(batch_size, seq_len, self.num_heads, self.head_dim).permute(0, 2, 1, 3)    # [B, num_heads, L, head_dim]
        V = self.v_proj(value).view(batch_size, seq_len, self.num_heads, self.head_dim).permute(0, 2, 1, 3)  # [B, num_heads, L, head_dim]

        # 点积注意力
        attn_scores = torch.matmul(Q, K.transpose(-2, -1)) * self.scale  # [B, num_heads, L, L]
        if mask is not None:
            attn_scores = attn_scores.masked_fill(mask == 0, float('-inf'))  # 应用注意力mask

        attn_probs = F.softmax(attn_scores, dim=-1)  # [B, num_heads, L, L]
        attn_probs = self.dropout(attn_probs)  # Dropout
        
        # 加权求和
        attn_output = torch.matmul(attn_probs, V)  # [B, num_heads, L, head_dim]
        
        # 合并多头
        attn_output = attn_output.permute(0, 2, 1, 3).contiguous()  # [B, L, num_heads, head_dim]
        attn_output = attn_output.view(batch_size, seq_len, self.embed_dim)  # [B, L, embed_dim]
        
        # 输出线性变换
        output = self.out_proj(attn_output)  # [B, L, embed_dim]
        
        return output
