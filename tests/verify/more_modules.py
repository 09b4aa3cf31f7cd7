"""More modules for the verifier: unusual right ones, and wrong ones."""

import torch
import torch.nn.functional as F  # noqa: N812 - everybody's name for it
from torch import nn

from attention_lab.verify.museum.module_parts import SelfAttention

# -- Masks -----------------------------------------------------------------


class RequiredMask(SelfAttention):
    """The mask has no default, and None would fail."""

    def forward(self, x, mask):
        q, k, v = (
            self.split(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(mask == 0, -1e9)
        return self.out_proj(self.merge(scores.softmax(-1) @ v))


class DefaultThatFails(RequiredMask):
    def forward(self, x, mask=None):
        return super().forward(x, mask)


class RequiredInverted(RequiredMask):
    def forward(self, x, mask):
        q, k, v = (
            self.split(p(x)) for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        scores = scores.masked_fill(mask, -torch.inf)
        return self.out_proj(self.merge(scores.softmax(-1) @ v))


class AddedBias(SelfAttention):
    def forward(self, x, bias=None):
        return super().forward(x, bias)


class Padding(SelfAttention):
    """True is padding, as in PyTorch."""

    def forward(self, x, mask=None, key_padding_mask=None):
        if key_padding_mask is not None:
            tokens = ~key_padding_mask[:, None, None]
            mask = tokens if mask is None else mask & tokens
        return super().forward(x, mask)


class PaddingKeeps(SelfAttention):
    def forward(self, x, padding_mask=None):
        if padding_mask is not None:
            padding_mask = padding_mask[:, None, None]
        return super().forward(x, padding_mask)


class PaddingIgnored(SelfAttention):
    def forward(self, x, src_key_padding_mask=None):
        return super().forward(x)


class PaddingOfFirstSample(SelfAttention):
    """Hides in every sample what is padding in the first."""

    def forward(self, x, key_padding_mask=None):
        mask = None
        if key_padding_mask is not None:
            mask = ~key_padding_mask[:1, None, None]
        return super().forward(x, mask)


class ManyArguments(SelfAttention):
    def forward(
        self, x, attention_mask=None, head_mask=None, output_attentions=False
    ):
        return super().forward(x, attention_mask)


# -- Positions -------------------------------------------------------------


class Rotary(SelfAttention):
    scale = None
    turns_values = False

    def mix(self, q, k, v, mask):
        v = self.turn(v) if self.turns_values else v
        return F.scaled_dot_product_attention(
            self.turn(q), self.turn(k), v, attn_mask=mask, scale=self.scale
        )

    def turn(self, x):
        """Turn pairs of channels; an odd last one stays."""
        half = x.shape[-1] // 2
        speeds = 10.0 ** -torch.arange(half)
        angles = torch.arange(x.shape[-2])[:, None] * speeds
        one, two, rest = x.split([half, half, x.shape[-1] - 2 * half], -1)
        cos, sin = angles.cos(), angles.sin()
        turned = (one * cos - two * sin, one * sin + two * cos)
        return torch.cat([*turned, rest], -1)


class RotaryScaledByWidth(Rotary):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.scale = embed_dim**-0.5


class RotaryOnValues(Rotary):
    turns_values = True


class RotaryMergedByView(Rotary):
    def merge(self, x):
        return x.reshape(len(x), -1, self.num_heads * self.head_dim)


class Alibi(SelfAttention):
    def forward(self, x):
        place = torch.arange(x.shape[1])
        far = (place[:, None] - place).abs()
        slopes = 2.0 ** -torch.arange(1, self.num_heads + 1)
        return super().forward(x, -far * slopes[:, None, None])


class Window(SelfAttention):
    def forward(self, x):
        place = torch.arange(x.shape[1])
        return super().forward(x, (place[:, None] - place).abs() <= 2)


class SlidingCausal(SelfAttention):
    def forward(self, x, mask=None):
        place = torch.arange(x.shape[1])
        past = place[:, None] - place
        own = (past >= 0) & (past < 3)
        return super().forward(x, own if mask is None else own & mask)


class RelativeBias(SelfAttention):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.table = nn.Embedding(257, num_heads)

    def forward(self, x):
        place = torch.arange(x.shape[1])
        bias = self.table(place[:, None] - place + 128).permute(2, 0, 1)
        return super().forward(x, bias)


class Sinusoidal(SelfAttention):
    def forward(self, x):
        place = torch.arange(x.shape[1])[:, None]
        return super().forward(x + torch.sin(place + torch.arange(x.shape[2])))


class MultipliedTriangle(SelfAttention):
    """Zeroes weights after the softmax: the outputs are no means."""

    def forward(self, x):
        return super().forward(x)

    def mix(self, q, k, v, mask):
        weights = (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1)
        return weights.tril() @ v


# -- Widths, lengths, weights ----------------------------------------------


class OtherKeyWidth(nn.Module):
    def __init__(self, embed_dim, num_heads, kdim=16):
        super().__init__()
        self.num_heads = num_heads
        self.to_q = nn.Linear(embed_dim, embed_dim)
        self.to_k = nn.Linear(kdim, embed_dim)
        self.to_v = nn.Linear(kdim, embed_dim)
        self.to_out = nn.Linear(embed_dim, embed_dim)

    def forward(self, x, context):
        q, k, v = (
            t.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for t in (self.to_q(x), self.to_k(context), self.to_v(context))
        )
        out = F.scaled_dot_product_attention(q, k, v)
        return self.to_out(out.transpose(1, 2).flatten(-2))


class FewTokens(SelfAttention):
    """A causal buffer that is shorter than the verifier's sequences."""

    def __init__(self, embed_dim, num_heads, block_size=4):
        super().__init__(embed_dim, num_heads)
        ones = torch.ones(block_size, block_size, dtype=torch.bool)
        self.register_buffer("past", ones.tril())

    def forward(self, x):
        L = x.shape[1]
        scores_mask = self.past[:L, :L]
        if scores_mask.shape[0] != L:
            raise ValueError("too many tokens")
        return super().forward(x, scores_mask)


class BreaksAbove(SelfAttention):
    """Fails for long sequences, and nothing in it says why."""

    def forward(self, x):
        if x.shape[1] > 4 + 2:
            raise ValueError("too many tokens")
        return super().forward(x)


class SpectralNorm(SelfAttention):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        nn.utils.parametrizations.spectral_norm(self.q_proj)


class WeightNorm(SelfAttention):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        for layer in (self.q_proj, self.v_proj, self.out_proj):
            nn.utils.parametrizations.weight_norm(layer)


class WeightNormScaledByWidth(WeightNorm):
    def mix(self, q, k, v, mask):
        scale = (q.shape[1] * q.shape[-1]) ** -0.5
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=scale
        )


class Lazy(SelfAttention):
    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.q_proj = nn.LazyLinear(embed_dim)
        self.out_proj = nn.LazyLinear(embed_dim)


# -- What shorter tests did not see ----------------------------------------


class FirstSixteenKeys(SelfAttention):
    def mix(self, q, k, v, mask):
        return super().mix(q, k[:, :, :16], v[:, :, :16], None)

    def forward(self, x):
        return super().forward(x)


class DropsTail(SelfAttention):
    """Reads whole tiles of 16 keys only."""

    def forward(self, x):
        return super().forward(x)

    def mix(self, q, k, v, mask):
        whole = k.shape[2] // 16 * 16 or k.shape[2]
        return super().mix(q, k[:, :, :whole], v[:, :, :whole], None)


class DropsTailUnrecognised(DropsTail):
    """No value is known: only who sees whom can tell."""

    def __init__(self, embed_dim, num_heads):
        super().__init__(embed_dim, num_heads)
        self.gain = nn.Parameter(torch.ones(embed_dim))

    def forward(self, x):
        return self.gain * super().forward(x)


class DetachedTokens(SelfAttention):
    def forward(self, x):
        return super().forward(x.detach())


class DetachedKeys(SelfAttention):
    """The tokens get a gradient, but not the whole one."""

    def forward(self, x):
        q = self.split(self.q_proj(x))
        k = self.split(self.k_proj(x.detach()))
        v = self.split(self.v_proj(x))
        return self.out_proj(self.merge(self.mix(q, k, v, None)))


class OneForAll(nn.Module):
    """One projection is query, key and value."""

    def __init__(self, embed_dim, num_heads, name="qkv"):
        super().__init__()
        self.num_heads, self.name = num_heads, name
        self.add_module(name, nn.Linear(embed_dim, embed_dim))
        self.proj = nn.Linear(embed_dim, embed_dim)

    def forward(self, x):
        x = getattr(self, self.name)(x)
        x = x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
        out = F.scaled_dot_product_attention(x, x, x)
        return self.proj(out.transpose(1, 2).flatten(-2))
