"""Can one matrix product make the queries, the keys and the values?

    x_BLE --one projection--> B L (P·E) --rearrange--> P B H L D

The rows of the fused weight can be packed in three orders. All have the same
shape, so a wrong order loads without an error and gives another output:

- "p h d": all of q, then all of k, then all of v (PyTorch, GPT-2, timm);
- "h p d": head by head, its q, k and v together (Megatron-LM, GPT-NeoX, BLOOM);
- "h d p": q, k and v of one channel side by side (LightGlue).

Source: the packing orders are those of pytorch/pytorch `in_proj_weight`,
NVIDIA/Megatron-LM and cvg/LightGlue#25. Memory: as scaled dot product.
Letters: B batch, L positions, H heads, D head width, E = H·D, P = 3.
"""

from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from attention_lab.axes import (
    ShapeMismatch,
    check_axes,
    check_divisible,
    check_size,
)
from attention_lab.contract import check_tensors
from attention_lab.gpu import cuda, to_device
from attention_lab.steps import multi_head, scaled_dot_product
from attention_lab.steps.launch import (
    blank,
    cdiv,
    check_grid,
    kernel_dtype,
    same_kind,
    to_real,
)
from attention_lab.steps.module_inputs import check_tokens

P = 3  # query, key, value
LAYOUTS = ("p h d", "h p d", "h d p")
THREADS_D, THREADS_L = 8, 4  # one block of a copy: 32 threads, one warp


# -- PyTorch ---------------------------------------------------------------


def split_qkv(
    packed: Float[Tensor, "B L P*E"], num_heads: int, layout: str = "p h d"
) -> Float[Tensor, "P B H L D"]:
    """Cut a fused projection's output into query, key and value heads.

    Parameters
    ----------
    packed : P·E channels per position, packed in the order of `layout`.
    num_heads : H.
    layout : "p h d", "h p d" or "h d p".

    Raises
    ------
    ShapeMismatch
        If the last axis is not 3 · H · D for a whole D; names both sizes.
    ValueError
        If the layout has another name.

    Examples
    --------
    >>> packed = torch.arange(6.0).reshape(1, 1, 6)
    >>> split_qkv(packed, num_heads=1, layout="p h d")[0].flatten().tolist()
    [0.0, 1.0]
    >>> split_qkv(packed, num_heads=1, layout="h d p")[0].flatten().tolist()
    [0.0, 3.0]
    """
    check_tensors(packed=packed)
    check_axes("packed", packed, ("B", "L", "P·E"))
    _head_width(packed.shape[-1], num_heads, "packed")
    return rearrange(
        packed,
        f"b l ({check_layout(layout)}) -> p b h l d",
        p=P,
        h=num_heads,
    )


def convert_layout(
    weight: Float[Tensor, "P*E ..."], num_heads: int, source: str, target: str
) -> Float[Tensor, "P*E ..."]:
    """Reorder the rows of a fused weight or bias from one layout to another.

    Parameters
    ----------
    weight : P·E rows; a weight (P·E, E) or a bias (P·E,).

    Raises
    ------
    ShapeMismatch
        If the number of rows is not 3 · H · D; names both sizes.
    ValueError
        If a layout has another name.

    Examples
    --------
    >>> convert_layout(torch.arange(6), 1, "h d p", "p h d").tolist()
    [0, 3, 1, 4, 2, 5]
    """
    check_tensors(weight=weight)
    if weight.ndim == 0:
        raise ShapeMismatch("weight has no axes, but the first must be P·E")
    _head_width(weight.shape[0], num_heads, "weight")
    return rearrange(
        weight,
        f"({check_layout(source)}) ... -> ({check_layout(target)}) ...",
        p=P,
        h=num_heads,
    )


def fuse(
    q: Float[Tensor, "E ..."],
    k: Float[Tensor, "E ..."],
    v: Float[Tensor, "E ..."],
    num_heads: int,
    layout: str = "p h d",
) -> Float[Tensor, "P*E ..."]:
    """Pack three weights (or biases) into one; undone by `unfuse`.

    Raises
    ------
    ShapeMismatch
        If the three differ in shape, or H does not divide E.
    """
    check_tensors(q=q, k=k, v=v)
    for name, other in (("k", k), ("v", v)):
        if other.dtype != q.dtype:
            raise ValueError(
                f"{name} has dtype {other.dtype}, but q has {q.dtype}"
            )
        if other.shape != q.shape:
            raise ShapeMismatch(
                f"{name} has shape {tuple(other.shape)}, but q has "
                f"{tuple(q.shape)}"
            )
    packed = torch.cat([q, k, v])
    return convert_layout(packed, num_heads, "p h d", layout)


def unfuse(
    weight: Float[Tensor, "P*E ..."], num_heads: int, layout: str = "p h d"
) -> tuple[Tensor, Tensor, Tensor]:
    """Unpack a fused weight (or bias) into those of q, k and v.

    Raises
    ------
    ShapeMismatch
        If the number of rows is not 3 · H · D.
    """
    return convert_layout(weight, num_heads, layout, "p h d").chunk(P)


def check_layout(layout: str) -> str:
    """Return the layout's name, or list the names that exist.

    Raises
    ------
    ValueError
        If it is not one of `LAYOUTS`.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {LAYOUTS}, not {layout!r}")
    return layout


def _head_width(rows: int, num_heads: int, name: str) -> int:
    if rows % P:
        raise ShapeMismatch(
            f"{name}: the packed axis P·E has size {rows}, which P = {P} does "
            "not divide"
        )
    return check_divisible(rows // P, num_heads, name, "num_heads")


class FusedQKVAttention(nn.Module):
    """Self-attention with one projection for query, key and value.

    Parameters
    ----------
    embed_dim : E, the model width.
    num_heads : H; must divide E.
    layout : the order of the fused projection's rows.
    recompute : forget the activations in training and compute them again in
        the backward pass: less memory, more work, the same gradients.

    Raises
    ------
    ShapeMismatch
        If `num_heads` does not divide `embed_dim`.
    ValueError
        If the layout has another name.

    References
    ----------
    Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost",
    section 4: recomputation.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        layout: str = "p h d",
        recompute: bool = False,
    ) -> None:
        super().__init__()
        check_divisible(embed_dim, num_heads, "embed_dim", "num_heads")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.layout = check_layout(layout)
        if not isinstance(recompute, bool):
            raise ValueError(
                f"recompute must be True or False, not {recompute!r}"
            )
        self.recompute = recompute
        self.qkv = nn.Linear(embed_dim, P * embed_dim)
        self.out = nn.Linear(embed_dim, embed_dim)

    def forward(
        self,
        x_BLE: Float[Tensor, "B L E"],
        attn_mask: Any = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "B L E"]:
        """Attend from every position to every position, in H heads.

        Raises
        ------
        ShapeMismatch
            If the width is not `embed_dim`, or the mask does not fit.
        """
        check_tokens("x_BLE", x_BLE, self.qkv.weight)
        if self.recompute and self.training and torch.is_grad_enabled():
            # use_reentrant=True gives the weights no gradient at all when x
            # does not need one itself.
            return checkpoint(
                self._attend, x_BLE, attn_mask, is_causal, use_reentrant=False
            )
        return self._attend(x_BLE, attn_mask, is_causal)

    def _attend(self, x_BLE: Tensor, attn_mask: Any, is_causal: bool) -> Tensor:
        q, k, v = split_qkv(self.qkv(x_BLE), self.num_heads, self.layout)
        out_BHLD = scaled_dot_product.attention(q, k, v, attn_mask, is_causal)
        return self.out(rearrange(out_BHLD, "b h l d -> b l (h d)"))

    @torch.no_grad()
    def load_separate(self, module: multi_head.MultiHeadAttention) -> None:
        """Copy the weights of three separate projections into the fused one.

        Raises
        ------
        ShapeMismatch
            If E or H differ; names both sizes.
        ValueError
            If it is another kind of module.
        """
        if not isinstance(module, multi_head.MultiHeadAttention):
            raise ValueError(
                "module must be this book's MultiHeadAttention, not "
                f"{type(module).__name__}"
            )
        check_size("module", "E", module.embed_dim, "this", self.embed_dim)
        check_size("module", "H", module.num_heads, "this", self.num_heads)
        linears = (module.q_proj, module.k_proj, module.v_proj)
        for ours, name in (
            (self.qkv.weight, "weight"),
            (self.qkv.bias, "bias"),
        ):
            parts = [getattr(linear, name) for linear in linears]
            ours.copy_(fuse(*parts, self.num_heads, self.layout))
        self.out.load_state_dict(module.out_proj.state_dict())

    @torch.no_grad()
    def to_separate(self) -> multi_head.MultiHeadAttention:
        """Return a module with three projections and the same weights."""
        module = multi_head.MultiHeadAttention(self.embed_dim, self.num_heads)
        module = module.to(self.qkv.weight)
        weights = unfuse(self.qkv.weight, self.num_heads, self.layout)
        biases = unfuse(self.qkv.bias, self.num_heads, self.layout)
        linears = (module.q_proj, module.k_proj, module.v_proj)
        for linear, weight, bias in zip(linears, weights, biases, strict=True):
            linear.weight.copy_(weight)
            linear.bias.copy_(bias)
        module.out_proj.load_state_dict(self.out.state_dict())
        return module.train(self.training)

    @torch.no_grad()
    def forward_cuda(
        self,
        x_BLE: Float[Tensor, "B L E"],
        attn_mask: Any = None,
        is_causal: bool = False,
    ) -> Float[Tensor, "B L E"]:
        """Do the same with kernels after the projection; no gradients."""
        check_tokens("x_BLE", x_BLE, self.qkv.weight)
        packed = self.qkv(x_BLE)
        q, k, v = split_qkv_cuda(packed, self.num_heads, self.layout)
        out_BHLD = scaled_dot_product.attention_cuda(
            q, k, v, attn_mask, is_causal
        )
        return self.out(multi_head.merge_heads_cuda(out_BHLD))


# -- CUDA kernel -----------------------------------------------------------


@cuda.jit
def split_qkv_kernel(qkv_PBHLD, packed, step_p, step_h, step_d):
    """One thread per channel of one head; it moves q, k and v of that channel.

    A layout is three steps: how far p, h and d move in the packed axis.
    """
    d, row, bh = cuda.grid(3)
    P, B, H, L, D = qkv_PBHLD.shape
    if d < D and row < L and bh < B * H:
        # 1. Load: where this channel starts in the packed axis.
        b, h = bh // H, bh % H
        start = h * step_h + d * step_d

        # 2. Compute: nothing; a permutation only moves.

        # 3. Store
        for p in range(P):
            qkv_PBHLD[p, b, h, row, d] = packed[b, row, start + p * step_p]


# -- Launch ----------------------------------------------------------------


def layout_steps(
    layout: str, num_heads: int, head_width: int
) -> dict[str, int]:
    """Return how far one step of p, h and d moves in the packed axis.

    Examples
    --------
    >>> layout_steps("h p d", num_heads=2, head_width=5)
    {'p': 5, 'h': 15, 'd': 1}
    """
    sizes = {"p": P, "h": num_heads, "d": head_width}
    letters = check_layout(layout).split()
    return {
        letter: int(np.prod([sizes[x] for x in letters[i + 1 :]]))
        for letter, i in ((x, letters.index(x)) for x in "phd")
    }


def split_qkv_cuda(
    packed: Float[Any, "B L P*E"], num_heads: int, layout: str = "p h d"
) -> Float[Any, "P B H L D"]:
    """Split by copying: what `split_qkv` does with strides.

    NumPy array or torch tensor in, the same kind out. Errors as `split_qkv`.
    """
    check_axes("packed", packed, ("B", "L", "P·E"))
    B, L, rows = packed.shape
    D = _head_width(rows, num_heads, "packed")
    steps = layout_steps(layout, num_heads, D)
    shape = (P, B, num_heads, L, D)
    real = kernel_dtype("packed", packed)
    if 0 in shape:
        return same_kind(blank(shape, real), packed)
    check_grid(B * num_heads, L, THREADS_L)
    grid = (cdiv(D, THREADS_D), cdiv(L, THREADS_L), B * num_heads)
    out_device = to_device(blank(shape, real))
    split_qkv_kernel[grid, (THREADS_D, THREADS_L, 1)](
        out_device,
        to_device(to_real(packed, real)),
        steps["p"],
        steps["h"],
        steps["d"],
    )
    return same_kind(out_device.copy_to_host(), packed)
