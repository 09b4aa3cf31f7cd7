"""How does a kernel become an operation that PyTorch can differentiate?

`flash_attention` tells autograd three things: how to compute the output, what
to keep for later (the inputs, the output, and one log-sum-exp per query), and
how to send a gradient back. Tensors on the GPU are read and written where they
are; others run on the door's other engine.

Source: PyTorch documentation, "Extending torch.autograd".
Memory between the two passes: B·H·L numbers beside inputs and output.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from attention_lab.contract import check_attention_call, check_tensors
from attention_lab.steps.flash_backward import flash_backward_cuda
from attention_lab.steps.flash_forward import flash_forward_cuda
from attention_lab.steps.scaled_dot_product import as_mask


def flash_attention(
    query: Float[Tensor, "B H L D"],
    key: Float[Tensor, "B H_kv S D"],
    value: Float[Tensor, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Float[Tensor, "B H L D_v"]:
    """Attend with the flash kernels, forward and backward.

    Takes the place of `torch.nn.functional.scaled_dot_product_attention`.
    Arguments and errors: `attention_lab.contract.check_attention_call`.

    Returns
    -------
    One mixed value per query, in the dtype of the query. A query that sees no
    key gets 0, and gradients of 0.

    Raises
    ------
    ValueError
        If `attn_mask` requires a gradient: the kernels compute none for it.
    NotImplementedError
        If a gradient of a gradient is asked for.

    Notes
    -----
    The kernels run in the order of torch's current stream. A tensor on the
    GPU in C order and not in half precision is not copied.

    References
    ----------
    Dao et al. 2022, "FlashAttention", section 3.1.

    Examples
    --------
    >>> q = torch.ones(1, 1, 1, 2)
    >>> k = torch.ones(1, 1, 2, 2, requires_grad=True)
    >>> v = torch.tensor([[[[0.0], [4.0]]]], requires_grad=True)
    >>> out = flash_attention(q, k, v)
    >>> out.item()
    2.0
    >>> out.backward()
    >>> [round(x, 6) for x in v.grad.flatten().tolist()]
    [0.5, 0.5]
    """
    options = (attn_mask, is_causal, scale, enable_gqa)
    check_attention_call(query, key, value, *options)
    check_tensors(query=query, key=key, value=value)
    if attn_mask is not None:
        attn_mask = as_mask(attn_mask, query)
        if attn_mask.requires_grad:
            raise ValueError(
                "attn_mask requires a gradient, which flash_attention does "
                "not compute; pass attn_mask.detach(), or use "
                "scaled_dot_product.attention"
            )
    return FlashForward.apply(
        query, key, value, attn_mask, is_causal, scale, enable_gqa
    )


class FlashForward(torch.autograd.Function):
    """The forward pass, which keeps what the backward pass needs."""

    @staticmethod
    def forward(
        ctx: Any,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attn_mask: Tensor | None,
        *options: Any,
    ) -> Tensor:
        """Return the output; keep it, the inputs and the log-sum-exp."""
        out, lse = flash_forward_cuda(query, key, value, attn_mask, *options)
        ctx.save_for_backward(query, key, value, out, lse, attn_mask)
        ctx.options = options
        return out

    @staticmethod
    def backward(ctx: Any, out_grad: Tensor) -> tuple[Tensor | None, ...]:
        """Return a gradient for query, key, value, and None for the rest."""
        gradients = FlashBackward.apply(
            out_grad, *ctx.saved_tensors, *ctx.options
        )
        return *gradients, None, *(None for _ in ctx.options)


class FlashBackward(torch.autograd.Function):
    """The backward pass: an operation of its own, so that it can refuse."""

    @staticmethod
    def forward(
        ctx: Any, out_grad: Tensor, *saved_and_options: Any
    ) -> tuple[Tensor, ...]:
        """Return the gradients of query, key and value."""
        return tuple(flash_backward_cuda(out_grad, *saved_and_options))

    @staticmethod
    def backward(ctx: Any, *_: Tensor) -> None:
        """Refuse: the gradients of gradients have no kernel.

        Raises
        ------
        NotImplementedError
            Always.
        """
        raise NotImplementedError(
            "flash_attention has no gradient of its gradient: the backward "
            "kernels are not differentiable. Use scaled_dot_product.attention "
            "for second derivatives"
        )
