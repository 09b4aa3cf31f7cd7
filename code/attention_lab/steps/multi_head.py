"""How do H heads share one projection, and why must the axes be permuted?

    x_BLE --project--> B L E --reshape--> B L H D --permute--> B H L D

Head h owns channels h·D … (h+1)·D − 1 of every token. `reshape` names that
split and `permute` brings the heads in front of the tokens; a `view` straight
to (B, H, L, D) has the right shape and mixes tokens and heads.

Source: Vaswani et al. 2017, section 3.2.2. Memory: as scaled dot product,
B·H·L·S scores. Letters: B batch, L queries, S keys, H heads, D head width,
E = H·D model width.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from attention_lab.axes import (
    check_axes,
    check_divisible,
    check_size,
    shape_checked,
)
from attention_lab.gpu import cuda, to_device
from attention_lab.steps import scaled_dot_product, torch_weights
from attention_lab.steps.launch import (
    blank,
    cdiv,
    check_grid,
    kernel_dtype,
    same_kind,
    to_real,
)
from attention_lab.steps.module_inputs import (
    check_dropout,
    check_mask_of_heads,
    check_tokens,
    mask_of_head,
)

THREADS_D, THREADS_L = 8, 4  # one block of a copy: 32 threads, one warp


# -- PyTorch ---------------------------------------------------------------


@shape_checked
def split_heads(
    x_BLE: Float[Tensor, "B L E"], num_heads: int
) -> Float[Tensor, "B H L D"]:
    """Give head h the channels h·D … (h+1)·D − 1 of every token.

    Returns a view: nothing is copied, only the strides change.

    Raises
    ------
    ShapeMismatch
        If `num_heads` does not divide E; names both sizes.

    Examples
    --------
    >>> split_heads(torch.arange(8.0).reshape(1, 2, 4), 2)[0, 1].tolist()
    [[2.0, 3.0], [6.0, 7.0]]
    """
    check_divisible(x_BLE.shape[-1], num_heads, "x_BLE", "num_heads")
    x_BLHD = x_BLE.unflatten(-1, (num_heads, -1))
    return x_BLHD.permute(0, 2, 1, 3)


@shape_checked
def merge_heads(x_BHLD: Float[Tensor, "B H L D"]) -> Float[Tensor, "B L E"]:
    """Put the heads' channels side by side again: undo `split_heads`.

    The permuted array is not contiguous, so `reshape` has to copy; `view`
    would refuse.

    Examples
    --------
    >>> x_BLE = torch.arange(8.0).reshape(1, 2, 4)
    >>> bool((merge_heads(split_heads(x_BLE, 2)) == x_BLE).all())
    True
    """
    x_BLHD = x_BHLD.permute(0, 2, 1, 3)
    B, L, H, D = x_BLHD.shape
    return x_BLHD.reshape(B, L, H * D)


class MultiHeadAttention(nn.Module):
    """Project, split into heads, attend, merge, project.

    Parameters
    ----------
    embed_dim : E, the model width.
    num_heads : H; must divide E.
    dropout : probability that a weight is dropped while training.

    Raises
    ------
    ShapeMismatch
        If `num_heads` does not divide `embed_dim`.
    ValueError
        If `dropout` is not in 0 … 1.

    References
    ----------
    Vaswani et al. 2017, section 3.2.2.
    """

    def __init__(
        self, embed_dim: int, num_heads: int, dropout: float = 0.0
    ) -> None:
        super().__init__()
        check_divisible(embed_dim, num_heads, "embed_dim", "num_heads")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = nn.Dropout(check_dropout(dropout))
        self.q_proj = nn.Linear(embed_dim, embed_dim)
        self.k_proj = nn.Linear(embed_dim, embed_dim)
        self.v_proj = nn.Linear(embed_dim, embed_dim)
        self.out_proj = nn.Linear(embed_dim, embed_dim)

    def forward(
        self,
        query_BLE: Float[Tensor, "B L E"],
        key_BSE: Float[Tensor, "B S E"],
        value_BSE: Float[Tensor, "B S E"],
        attn_mask: Any = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "B L E"]:
        """Attend from every query to every key, in H heads.

        `attn_mask` broadcasts to (B, H, L, S); True = may attend.

        Raises
        ------
        ShapeMismatch
            If a width is not `embed_dim`, or sizes disagree.
        """
        q, k, v = self.project(query_BLE, key_BSE, value_BSE)
        weights_BHLS = scaled_dot_product.attention_weights(
            q, k, v, attn_mask, is_causal
        )
        weights_BHLS = self.dropout(weights_BHLS)
        out_BHLD = scaled_dot_product.mix_values(weights_BHLS, v).to(q.dtype)
        return self.out_proj(merge_heads(out_BHLD))

    def loop_over_heads(
        self,
        query_BLE: Float[Tensor, "B L E"],
        key_BSE: Float[Tensor, "B S E"],
        value_BSE: Float[Tensor, "B S E"],
        attn_mask: Any = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "B L E"]:
        """Do the same one head at a time, each with its own rows of weights.

        No reshape and no permute: head h multiplies with rows h·D … (h+1)·D−1
        of each projection. Dropout is not applied.
        """
        self.check_width(query_BLE, key_BSE, value_BSE)
        check_mask_of_heads(
            query_BLE, key_BSE, attn_mask, is_causal, self.num_heads
        )
        D = self.embed_dim // self.num_heads
        heads = []
        for h in range(self.num_heads):
            own = slice(h * D, (h + 1) * D)
            q, k, v = (
                nn.functional.linear(x, p.weight[own], p.bias[own])[:, None]
                for x, p in (
                    (query_BLE, self.q_proj),
                    (key_BSE, self.k_proj),
                    (value_BSE, self.v_proj),
                )
            )
            mask = mask_of_head(attn_mask, h)
            out_B1LD = scaled_dot_product.attention(q, k, v, mask, is_causal)
            heads.append(out_B1LD[:, 0])
        return self.out_proj(torch.cat(heads, dim=-1))

    def project(
        self, query_BLE: Tensor, key_BSE: Tensor, value_BSE: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the heads' queries, keys and values, each (B, H, ·, D)."""
        self.check_width(query_BLE, key_BSE, value_BSE)
        return (
            split_heads(self.q_proj(query_BLE), self.num_heads),
            split_heads(self.k_proj(key_BSE), self.num_heads),
            split_heads(self.v_proj(value_BSE), self.num_heads),
        )

    def check_width(
        self, query_BLE: Tensor, key_BSE: Tensor, value_BSE: Tensor
    ) -> None:
        """Refuse inputs that the projections cannot multiply, or that differ.

        Raises
        ------
        ShapeMismatch
            Names the argument, the axis and both sizes.
        ValueError
            Names the argument, and its dtype or device.
        """
        for name, x in (
            ("query_BLE", query_BLE),
            ("key_BSE", key_BSE),
            ("value_BSE", value_BSE),
        ):
            check_tokens(name, x, self.q_proj.weight)
        pairs = (
            ("key_BSE", "B", key_BSE.shape[0], "query_BLE", query_BLE.shape[0]),
            ("value_BSE", "B", value_BSE.shape[0], "query_BLE", len(query_BLE)),
            ("value_BSE", "S", value_BSE.shape[1], "key_BSE", key_BSE.shape[1]),
        )
        for pair in pairs:
            check_size(*pair)

    def load_torch(self, module: nn.MultiheadAttention) -> None:
        """Copy the weights of a `torch.nn.MultiheadAttention` into this one.

        Its dropout is not a weight and is not copied.

        Raises
        ------
        ShapeMismatch
            If E or H differ.
        ValueError
            If that module has no bias, extra keys, or other key widths.
        """
        torch_weights.load(self, module)

    def to_torch(self) -> nn.MultiheadAttention:
        """Return a `torch.nn.MultiheadAttention` with these weights.

        It takes batch-first input. Its boolean masks mean the opposite:
        there, True forbids.
        """
        return torch_weights.export(self)

    @torch.no_grad()
    def forward_cuda(
        self,
        query_BLE: Float[Tensor, "B L E"],
        key_BSE: Float[Tensor, "B S E"],
        value_BSE: Float[Tensor, "B S E"],
        attn_mask: Any = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "B L E"]:
        """Do the same with kernels between the projections; no gradients.

        Dropout is not applied.
        """
        self.check_width(query_BLE, key_BSE, value_BSE)
        H = self.num_heads
        out_BHLD = scaled_dot_product.attention_cuda(
            split_heads_cuda(self.q_proj(query_BLE), H),
            split_heads_cuda(self.k_proj(key_BSE), H),
            split_heads_cuda(self.v_proj(value_BSE), H),
            attn_mask,
            is_causal,
        )
        return self.out_proj(merge_heads_cuda(out_BHLD))


# -- CUDA kernels ----------------------------------------------------------


@cuda.jit
def split_heads_kernel(x_BHLD, x_BLE):
    """One thread per element of x_BHLD: it finds its channel in x_BLE."""
    d, row, bh = cuda.grid(3)
    B, H, L, D = x_BHLD.shape
    if d < D and row < L and bh < B * H:
        # 1. Load: head h owns channels h·D … (h+1)·D − 1.
        b, h = bh // H, bh % H
        element = x_BLE[b, row, h * D + d]

        # 2. Compute: nothing; a permutation only moves.

        # 3. Store
        x_BHLD[b, h, row, d] = element


@cuda.jit
def merge_heads_kernel(x_BLE, x_BHLD):
    """One thread per element of x_BHLD: it goes back to its channel."""
    d, row, bh = cuda.grid(3)
    B, H, L, D = x_BHLD.shape
    if d < D and row < L and bh < B * H:
        # 1. Load
        b, h = bh // H, bh % H
        element = x_BHLD[b, h, row, d]

        # 2. Compute: nothing; a permutation only moves.

        # 3. Store: head h owns channels h·D … (h+1)·D − 1.
        x_BLE[b, row, h * D + d] = element


# -- Launch ----------------------------------------------------------------


def split_heads_cuda(
    x_BLE: Float[Any, "B L E"], num_heads: int
) -> Float[Any, "B H L D"]:
    """Split the heads by copying: what `split_heads` does with strides.

    NumPy array or torch tensor in, the same kind out.

    Raises
    ------
    ShapeMismatch
        If `num_heads` does not divide E, or x has not three axes.
    """
    check_axes("x_BLE", x_BLE, "BLE")
    B, L, E = x_BLE.shape
    D = check_divisible(E, num_heads, "x_BLE", "num_heads")
    shape = (B, num_heads, L, D)
    real = kernel_dtype("x_BLE", x_BLE)
    return _copy(split_heads_kernel, x_BLE, shape, heads=shape, real=real)


def merge_heads_cuda(x_BHLD: Float[Any, "B H L D"]) -> Float[Any, "B L E"]:
    """Merge the heads by copying; undoes `split_heads_cuda`.

    Raises
    ------
    ShapeMismatch
        If x has not four axes.
    """
    check_axes("x_BHLD", x_BHLD, "BHLD")
    B, H, L, D = x_BHLD.shape
    real = kernel_dtype("x_BHLD", x_BHLD)
    heads = (B, H, L, D)
    return _copy(merge_heads_kernel, x_BHLD, (B, L, H * D), heads, real)


def _copy(
    kernel: Any,
    x: Any,
    shape: tuple[int, ...],
    heads: tuple[int, ...],
    real: Any,
) -> Any:
    """Launch one thread per element of (B, H, L, D) and return the result."""
    B, H, L, D = heads
    if 0 in heads:
        return same_kind(blank(shape, real), x)
    check_grid(B * H, L, THREADS_L)
    grid = (cdiv(D, THREADS_D), cdiv(L, THREADS_L), B * H)
    out_device = to_device(blank(shape, real))
    kernel[grid, (THREADS_D, THREADS_L, 1)](
        out_device, to_device(to_real(x, real))
    )
    return same_kind(out_device.copy_to_host(), x)
