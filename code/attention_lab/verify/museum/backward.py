"""Exhibits: right outputs with wrong gradients."""

import torch

from attention_lab.verify.museum.parts import (
    attend,
    masked,
    scaled_scores,
    share_heads,
    softmax,
    usual_care,
)


@usual_care
def backward_ds_without_d(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Take the gradient of the weights for that of the scores."""

    def backward(saved, dout):
        dv = saved.weights.mT @ dout
        dweights = dout @ saved.v.mT
        dscores = saved.weights * dweights * saved.scale
        return dscores @ saved.k, dscores.mT @ saved.q, dv

    return attend(q, k, v, attn_mask, is_causal, scale, backward)


@usual_care
def backward_d_over_queries(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Sum D over the second-last axis."""

    def backward(saved, dout):
        dv = saved.weights.mT @ dout
        dweights = dout @ saved.v.mT
        D = (saved.weights * dweights).sum(-2, keepdim=True)
        dscores = saved.weights * (dweights - D) * saved.scale
        return dscores @ saved.k, dscores.mT @ saved.q, dv

    return attend(q, k, v, attn_mask, is_causal, scale, backward)


@usual_care
def backward_scale_lost(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Go back through the softmax, and from the scores to q and k."""

    def backward(saved, dout):
        dv = saved.weights.mT @ dout
        dweights = dout @ saved.v.mT
        D = (saved.weights * dweights).sum(-1, keepdim=True)
        dscores = saved.weights * (dweights - D)
        return dscores @ saved.k, dscores.mT @ saved.q, dv

    return attend(q, k, v, attn_mask, is_causal, scale, backward)


@usual_care
def backward_dk_transposed(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Compute the gradient of k like that of q."""

    def backward(saved, dout):
        dv = saved.weights.mT @ dout
        dweights = dout @ saved.v.mT
        D = (saved.weights * dweights).sum(-1, keepdim=True)
        dscores = saved.weights * (dweights - D) * saved.scale
        return dscores @ saved.k, dscores @ saved.q, dv

    return attend(q, k, v, attn_mask, is_causal, scale, backward)


@usual_care
def backward_causal_ignored(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Compute the weights again, from q, k and the log-sum-exp."""

    def backward(saved, dout):
        scores = masked(scaled_scores(saved.q, saved.k, saved.scale), attn_mask)
        weights = torch.exp(scores - saved.lse)
        dv = weights.mT @ dout
        dweights = dout @ saved.v.mT
        D = (weights * dweights).sum(-1, keepdim=True)
        dscores = weights * (dweights - D) * saved.scale
        return dscores @ saved.k, dscores.mT @ saved.q, dv

    return attend(q, k, v, attn_mask, is_causal, scale, backward)


@usual_care(heads=False)
def backward_gqa_not_summed(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Give each key head the gradient of the query head that reads it."""
    if enable_gqa:
        k, v = (_ShareHeads.apply(x, q.shape[1]) for x in (k, v))
    scores = masked(scaled_scores(q, k, scale), attn_mask, is_causal)
    return softmax(scores) @ v


class _ShareHeads(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, H):
        ctx.group = H // x.shape[1]
        return share_heads(x, H)

    @staticmethod
    def backward(ctx, dx):
        return dx[:, :: ctx.group], None


@usual_care
def backward_dv_uses_scores(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Take the scores where the weights are meant."""

    def backward(saved, dout):
        seen = saved.scores.masked_fill(saved.scores == -torch.inf, 0.0)
        dv = seen.mT @ dout
        dweights = dout @ saved.v.mT
        D = (saved.weights * dweights).sum(-1, keepdim=True)
        dscores = saved.weights * (dweights - D) * saved.scale
        return dscores @ saved.k, dscores.mT @ saved.q, dv

    return attend(q, k, v, attn_mask, is_causal, scale, backward)


@usual_care
def backward_mask_gradient_nan(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Compute the weights again; a row without keys has a sum of 0."""

    def backward(saved, dout):
        row_sum = torch.exp(saved.scores - saved.row_max).sum(-1, keepdim=True)
        lse = saved.row_max + torch.log(row_sum)
        weights = torch.exp(saved.scores - lse)
        dv = weights.mT @ dout
        dweights = dout @ saved.v.mT
        D = (weights * dweights).sum(-1, keepdim=True)
        dscores = weights * (dweights - D) * saved.scale
        return dscores @ saved.k, dscores.mT @ saved.q, dv

    return attend(q, k, v, attn_mask, is_causal, scale, backward)


@usual_care
def backward_recompute_with_wrong_lse(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Compute the weights again, from the scores and the saved maximum."""

    def backward(saved, dout):
        weights = torch.exp(saved.scores - saved.row_max)
        dv = weights.mT @ dout
        dweights = dout @ saved.v.mT
        D = (weights * dweights).sum(-1, keepdim=True)
        dscores = weights * (dweights - D) * saved.scale
        return dscores @ saved.k, dscores.mT @ saved.q, dv

    return attend(q, k, v, attn_mask, is_causal, scale, backward)


@usual_care
def backward_detached(
    q, k, v, attn_mask=None, is_causal=False, scale=None, enable_gqa=False
):
    """Read the keys from a cache, which needs no gradient."""
    scores = scaled_scores(q, k.detach(), scale)
    return softmax(masked(scores, attn_mask, is_causal)) @ v
