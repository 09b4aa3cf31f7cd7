"""What would the way back cost if the weights had been stored?

    dP = dO Vᵀ        dS = scale · P ∘ (dP − row sum of P ∘ dP)
    dQ = dS K         dK = dSᵀ Q         dV = Pᵀ dO

Four of the five are products, and the kernels of `scaled_dot_product` make
them. The second is the way back through the softmax; its kernel is here.

Source: Dao et al. 2022, "FlashAttention", appendix B, algorithm 3.
Memory: reads the L·S weights of the forward pass, and stores dP and dS of the
same size. `flash_backward` stores none of them.
Letters: B batch, H heads, L queries, S keys, D head width.
"""

import functools
from typing import Any

from attention_lab.gpu import cuda


@functools.cache
def make_softmax_backward_kernel(real: Any) -> Any:
    """Build the kernel for one dtype."""

    @cuda.jit
    def softmax_backward_kernel(
        d_scores_BHLS, weights_BHLS, d_weights_BHLS, scale
    ):
        """One thread per row of weights: the row's dot, then its gradients."""
        row, bh = cuda.grid(2)
        B, H, L, S = weights_BHLS.shape
        if row < L and bh < B * H:
            # 1. Load: weights times their gradients, added up over the row.
            b, h = bh // H, bh % H
            row_dot = real(0.0)
            for s in range(S):
                weight = weights_BHLS[b, h, row, s]
                row_dot += weight * d_weights_BHLS[b, h, row, s]

            # 2. Compute and 3. Store: the row once more.
            for s in range(S):
                weight = weights_BHLS[b, h, row, s]
                d_weight = d_weights_BHLS[b, h, row, s]
                d_score = weight * (d_weight - row_dot)
                d_scores_BHLS[b, h, row, s] = d_score * scale

    return softmax_backward_kernel
