"""Carry weights to and from `torch.nn.MultiheadAttention`.

That module stacks the three projections in one matrix, rows of q first, then k,
then v: the layout that `fused_qkv` calls "(p h d)".
"""

from typing import Any

import torch
from torch import nn

from attention_lab.axes import ShapeMismatch


@torch.no_grad()
def load(ours: Any, module: nn.MultiheadAttention) -> None:
    """Copy the weights of `module` into our `MultiHeadAttention`.

    Raises
    ------
    ShapeMismatch
        If E or H differ; names both sizes.
    ValueError
        If `module` has no bias, extra keys, or key widths of its own.
    """
    _check_same_layout(module, ours.embed_dim, ours.num_heads)
    linears = (ours.q_proj, ours.k_proj, ours.v_proj)
    weights = module.in_proj_weight.chunk(3)
    biases = module.in_proj_bias.chunk(3)
    for linear, weight, bias in zip(linears, weights, biases, strict=True):
        linear.weight.copy_(weight)
        linear.bias.copy_(bias)
    ours.out_proj.load_state_dict(module.out_proj.state_dict())


@torch.no_grad()
def export(ours: Any) -> nn.MultiheadAttention:
    """Return a batch-first `torch.nn.MultiheadAttention` with our weights."""
    weight = ours.q_proj.weight
    module = nn.MultiheadAttention(
        ours.embed_dim,
        ours.num_heads,
        dropout=ours.dropout.p,
        batch_first=True,
        device=weight.device,
        dtype=weight.dtype,
    )
    linears = (ours.q_proj, ours.k_proj, ours.v_proj)
    module.in_proj_weight.copy_(torch.cat([p.weight for p in linears]))
    module.in_proj_bias.copy_(torch.cat([p.bias for p in linears]))
    module.out_proj.load_state_dict(ours.out_proj.state_dict())
    return module.train(ours.training)


def _check_same_layout(
    module: nn.MultiheadAttention, embed_dim: int, num_heads: int
) -> None:
    if not isinstance(module, nn.MultiheadAttention):
        raise ValueError(
            "module must be a torch.nn.MultiheadAttention, not "
            f"{type(module).__name__}"
        )
    sizes = (
        ("E", "embed_dim", module.embed_dim, embed_dim),
        ("H", "num_heads", module.num_heads, num_heads),
    )
    for letter, name, theirs, ours in sizes:
        if theirs != ours:
            raise ShapeMismatch(
                f"module: axis {letter} has size {theirs}, but this module "
                f"has {name} {letter} = {ours}"
            )
    if module.in_proj_weight is None:
        raise ValueError("module has kdim or vdim of its own; E is needed")
    if module.in_proj_bias is None:
        raise ValueError("module has bias=False; a bias is needed")
    if module.bias_k is not None or module.add_zero_attn:
        raise ValueError("module adds keys of its own (bias_k or zero_attn)")
