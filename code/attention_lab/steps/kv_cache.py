"""What must a decoder keep of the tokens that it has read?

    k, v of one new token --append--> k_BHSD, v_BHSD of all so far
    its query --attend--> one row of scores, not a whole square

The causal mask makes this right: the keys and values of a token do not depend
on later ones, so they can be kept. The queries of old tokens are never asked
again.

Source: Shazeer 2019, "Fast Transformer Decoding", section 2.4. Memory:
2·B·H_kv·D numbers per position. Letters: B batch, H query heads, H_kv key
heads, L new positions, S all positions so far, D head width, E = H·D.
"""

import math
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attention_lab.axes import (
    ShapeMismatch,
    check_axes,
    check_divisible,
    check_size,
    check_tile,
)
from attention_lab.contract import check_tensors
from attention_lab.steps.grouped_query import attention
from attention_lab.steps.module_inputs import check_tokens
from attention_lab.steps.multi_head import merge_heads, split_heads


class KVCache:
    """The keys and values of all positions so far, in memory reserved once.

    Parameters
    ----------
    B, H_kv, D : batch, key heads, width of a key and of a value.
    capacity : the most positions that fit.
    dtype, device : as in `torch.empty`; device "meta" reserves nothing, which
        is enough to ask for `nbytes`.

    Raises
    ------
    ValueError
        If a size is not a whole number of at least 1.

    Examples
    --------
    >>> cache = KVCache(B=1, H_kv=2, D=4, capacity=8)
    >>> new = torch.zeros(1, 2, 3, 4)
    >>> key, value = cache.append(new, new)
    >>> key.shape, cache.length, cache.nbytes
    (torch.Size([1, 2, 3, 4]), 3, 512)
    """

    def __init__(
        self,
        B: int,
        H_kv: int,
        D: int,
        capacity: int,
        *,
        dtype: torch.dtype = torch.float32,
        device: Any = None,
    ) -> None:
        sizes = {"B": B, "H_kv": H_kv, "capacity": capacity, "D": D}
        shape = [check_tile(name, size) for name, size in sizes.items()]
        # NaN, so that a position which nobody wrote cannot pass for a zero.
        kind = {"dtype": dtype, "device": device}
        self.k_BHSD = torch.full(shape, math.nan, **kind)
        self.v_BHSD = torch.full(shape, math.nan, **kind)
        self.length = 0

    @property
    def nbytes(self) -> int:
        """Return the bytes of the memory reserved, for keys and values."""
        return sum(x.numel() * x.element_size() for x in self._both)

    @property
    def _both(self) -> tuple[Tensor, Tensor]:
        return self.k_BHSD, self.v_BHSD

    def append(
        self,
        key: Float[Tensor, "B H_kv L D"],
        value: Float[Tensor, "B H_kv L D"],
    ) -> tuple[Float[Tensor, "B H_kv S D"], Float[Tensor, "B H_kv S D"]]:
        """Store some more positions; return all so far, as views.

        Raises
        ------
        ShapeMismatch
            If a size is another than the cache's, or key and value differ in
            their number of positions; names both sizes.
        ValueError
            If there is not room for so many positions, a dtype or device is
            not the cache's, or gradients are asked for: a cache keeps none.
        """
        for name, new in (("key", key), ("value", value)):
            self._check(name, new)
        check_size("value", "L", value.shape[2], "key", key.shape[2])
        end = self.length + key.shape[2]
        capacity = self.k_BHSD.shape[2]
        if end > capacity:
            raise ValueError(
                f"key: {key.shape[2]} more positions make {end}, but the cache "
                f"has a capacity of {capacity}"
            )
        for stored, new in zip(self._both, (key, value), strict=True):
            stored[:, :, self.length : end] = new
        self.length = end
        return self.k_BHSD[:, :, :end], self.v_BHSD[:, :, :end]

    def _check(self, name: str, new: Tensor) -> None:
        check_tensors(**{name: new})
        check_axes(name, new, ("B", "H_kv", "L", "D"))
        stored = self.k_BHSD
        for axis, letter in ((0, "B"), (1, "H_kv"), (3, "D")):
            size = stored.shape[axis]
            check_size(name, letter, new.shape[axis], "the cache", size)
        if new.requires_grad:
            raise ValueError(
                f"{name} requires a gradient, which a cache does not keep; "
                "decode under torch.no_grad()"
            )
        for what in ("dtype", "device"):
            theirs, ours = getattr(new, what), getattr(stored, what)
            if theirs != ours:
                raise ValueError(
                    f"{name} has {what} {theirs}, but the cache has {ours}"
                )


class GroupedQueryAttention(nn.Module):
    """Causal self-attention with fewer key heads than query heads.

    Parameters
    ----------
    embed_dim : E, the model width.
    num_heads : H; must divide E.
    key_heads : H_kv; must divide H. H is multi-head, 1 multi-query attention.

    Raises
    ------
    ShapeMismatch
        If a number does not divide the other; names both.

    Examples
    --------
    >>> module = GroupedQueryAttention(12, num_heads=6, key_heads=2)
    >>> module(torch.zeros(1, 5, 12)).shape, module.k_proj.out_features
    (torch.Size([1, 5, 12]), 4)
    """

    def __init__(self, embed_dim: int, num_heads: int, key_heads: int) -> None:
        super().__init__()
        D = check_divisible(embed_dim, num_heads, "embed_dim", "num_heads")
        if key_heads < 1 or num_heads % key_heads:
            raise ShapeMismatch(
                f"key_heads: H_kv = {key_heads} does not divide num_heads H = "
                f"{num_heads}"
            )
        self.num_heads, self.key_heads = num_heads, key_heads
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, key_heads * D)
        self.v_proj = nn.Linear(embed_dim, key_heads * D)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(
        self, x_BLE: Float[Tensor, "B L E"], cache: KVCache | None = None
    ) -> Float[Tensor, "B L E"]:
        """Let each token attend to itself and to all before it.

        With a cache, the tokens continue those that it holds, and are added.

        Raises
        ------
        ShapeMismatch
            If the width is not `embed_dim`, or the cache has other sizes.
        ValueError
            As `KVCache.append`.
        """
        check_tokens("x_BLE", x_BLE, self.q_proj.weight)
        query = split_heads(self.q_proj(x_BLE), self.num_heads)
        key = split_heads(self.k_proj(x_BLE), self.key_heads)
        value = split_heads(self.v_proj(x_BLE), self.key_heads)
        first_row = 0
        if cache is not None:
            first_row = cache.length
            key, value = cache.append(key, value)
        out_BHLD = attention(
            query, key, value, None, True, None, True, first_row=first_row
        )
        return self.out_proj(merge_heads(out_BHLD))
