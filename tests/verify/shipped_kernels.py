"""Every kernel of the steps, as a case for `verify_kernel`."""

import math

import numpy as np
from numba import float32

from attention_lab.error_bound import error_bound, lse_error_bound
from attention_lab.gpu.traffic import (
    flash_forward_traffic,
    naive_forward_traffic,
)
from attention_lab.reference import attention_reference
from attention_lab.steps.flash_forward import make_flash_kernel
from attention_lab.steps.fused_qkv import (
    LAYOUTS,
    layout_steps,
    split_qkv_kernel,
)
from attention_lab.steps.multi_head import (
    merge_heads_kernel,
    split_heads_kernel,
)
from attention_lab.steps.online_softmax import make_online_softmax_kernel
from attention_lab.steps.scaled_dot_product import (
    make_scores_kernel,
    make_softmax_kernel,
    make_weighted_sum_kernel,
)
from attention_lab.verify.kernel.case import KernelCase, Launch
from attention_lab.verify.kernel.wrong_answers import (
    attention_wrong_answers,
    softmax_wrong_answers,
)

B, H, H_KV, D = 2, 2, 1, 3
TILE_L, TILE_S = 4, 5
SIZES = [
    {"L": 1, "S": 1},
    {"L": 4, "S": 5},
    {"L": 3, "S": 6},
    {"L": 5, "S": 4},
    {"L": 9, "S": 13},
]


def normal(*shape):
    return np.random.default_rng(2).standard_normal(shape).astype(np.float32)


def empty(*shape):
    return np.zeros(shape, np.float32)


def cdiv(a, b):
    return -(-a // b)


def renamed(formula, **names):
    """Give a formula's arrays the names that the kernel's parameters have."""
    return {names[ours]: counts for ours, counts in formula.items()}


# -- attention in one kernel ----------------------------------------------


def attention_case(make, grid, block, is_causal, has_bias, traffic=None):
    def launch(L, S):
        bias = empty(1, 1, 1, 1)
        if has_bias:
            bias = normal(B, 1, L, S)
            bias[:, :, 0] = -np.inf  # the first query sees no key
        return Launch(
            grid(L),
            block,
            (
                empty(B, H, L, D),
                empty(B, H, L),
                normal(B, H, L, D),
                normal(B, H_KV, S, D) + 1,
                normal(B, H_KV, S, D) - 1,
                bias,
                np.float32(0.6),
                H // H_KV,
            ),
            outputs=2,
        )

    def options(bias, scale):
        return (bias if has_bias else None), is_causal, float(scale), True

    def reference(q, k, v, bias, scale, group):
        return attention_reference(q, k, v, *options(bias, scale))

    def bounds(q, k, v, bias, scale, group):
        given = (q, k, v, *options(bias, scale))
        return error_bound(*given), lse_error_bound(*given)

    wrong = attention_wrong_answers(TILE_S, is_causal=is_causal)
    return KernelCase(
        make(D, D, float32, has_bias, is_causal),
        launch,
        reference,
        {
            "sizes": SIZES,
            "error_bound": bounds,
            "traffic": traffic,
            "wrong_answers": wrong,
        },
    )


def flash(is_causal=False, has_bias=False):
    def make(D, D_v, *options):
        return make_flash_kernel(D, D_v, TILE_L, TILE_S, *options)

    def traffic(L, S):
        formula = flash_forward_traffic(
            L, S, D, TILE_L, TILE_S, B, H, is_causal
        )
        return renamed(
            formula,
            query="q_BHLD",
            key="k_BHSD",
            value="v_BHSD",
            output="out_BHLD",
            log_sum_exp="lse_BHL",
        )

    return attention_case(
        make,
        lambda L: (cdiv(L, TILE_L), B * H),
        TILE_L,
        is_causal,
        has_bias,
        traffic,
    )


def online(is_causal=False, has_bias=False):
    return attention_case(
        make_online_softmax_kernel,
        lambda L: (cdiv(L, 8), B * H),
        (8, 1),
        is_causal,
        has_bias,
    )


# -- the three naive kernels ------------------------------------------------


def scores(is_causal=False):
    def launch(L, S):
        given = (normal(B, H, L, D), normal(B, H_KV, S, D), empty(1, 1, 1, 1))
        return Launch(
            (cdiv(S, 8), cdiv(L, 4), B * H),
            (8, 4, 1),
            (empty(B, H, L, S), *given, np.float32(0.6), H // H_KV),
        )

    def reference(q, k, bias, scale, group):
        made = q * scale @ np.repeat(k, group, axis=1).swapaxes(-1, -2)
        hidden = ~np.tri(*made.shape[-2:], dtype=bool)
        return np.where(hidden & is_causal, -np.inf, made)

    def traffic(L, S):
        formula = naive_forward_traffic(L, S, D, B, H, is_causal)["scores"]
        return renamed(
            formula, query="q_BHLD", key="k_BHSD", scores="scores_BHLS"
        )

    kernel = make_scores_kernel(float32, False, is_causal)
    options = {"sizes": SIZES, "traffic": traffic}
    return KernelCase(kernel, launch, reference, options)


def softmax():
    def launch(L, S):
        given = normal(B, H, L, S) * 3
        return Launch((cdiv(L, 32), B * H), (32, 1), (empty(B, H, L, S), given))

    def reference(scores_BHLS):
        weights = np.exp(scores_BHLS - scores_BHLS.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    def traffic(L, S):
        formula = naive_forward_traffic(L, S, D, B, H)["softmax"]
        return renamed(formula, scores="scores_BHLS", weights="weights_BHLS")

    return KernelCase(
        make_softmax_kernel(float32),
        launch,
        reference,
        {
            "sizes": SIZES,
            "traffic": traffic,
            "wrong_answers": softmax_wrong_answers(),
        },
    )


def weighted_sum():
    def launch(L, S):
        return Launch(
            (cdiv(D, 8), cdiv(L, 4), B * H),
            (8, 4, 1),
            (
                empty(B, H, L, D),
                abs(normal(B, H, L, S)),
                normal(B, H_KV, S, D),
                H // H_KV,
            ),
        )

    def traffic(L, S):
        formula = naive_forward_traffic(L, S, D, B, H)["weighted_sum"]
        return renamed(
            formula, weights="weights_BHLS", value="v_BHSD", output="out_BHLD"
        )

    return KernelCase(
        make_weighted_sum_kernel(float32),
        launch,
        lambda w, v, group: w @ np.repeat(v, group, axis=1),
        {"sizes": SIZES, "traffic": traffic},
    )


# -- kernels that move ------------------------------------------------------


def heads_grid(L, D):
    return (cdiv(D, 8), cdiv(L, 4), B * H), (8, 4, 1)


def split_heads():
    def launch(L, D):
        args = (empty(B, H, L, D), normal(B, L, H * D))
        return Launch(*heads_grid(L, D), args)

    def split(x):
        return x.reshape(*x.shape[:2], H, -1).swapaxes(1, 2)

    return KernelCase(split_heads_kernel, launch, split, {})


def merge_heads():
    def launch(L, D):
        args = (empty(B, L, H * D), normal(B, H, L, D))
        return Launch(*heads_grid(L, D), args)

    def merge(x):
        return x.swapaxes(1, 2).reshape(B, x.shape[2], -1)

    return KernelCase(merge_heads_kernel, launch, merge, {})


def split_qkv(layout):
    def launch(L, D):
        steps = layout_steps(layout, H, D)
        args = (empty(3, B, H, L, D), normal(B, L, 3 * H * D))
        numbers = (steps["p"], steps["h"], steps["d"])
        return Launch(*heads_grid(L, D), (*args, *numbers))

    def split(packed, *steps):
        letters = layout.split()
        L = packed.shape[1]
        sizes = {"p": 3, "h": H, "d": math.prod(packed.shape[2:]) // 3 // H}
        whole = packed.reshape(B, L, *(sizes[x] for x in letters))
        order = [2 + letters.index("p"), 0, 2 + letters.index("h"), 1]
        return whole.transpose(*order, 2 + letters.index("d"))

    return KernelCase(split_qkv_kernel, launch, split, {})


SHIPPED = {
    "flash": flash(),
    "flash, causal": flash(is_causal=True),
    "flash, mask with an empty row": flash(has_bias=True),
    "online softmax": online(),
    "online softmax, causal": online(is_causal=True),
    "online softmax, mask with an empty row": online(has_bias=True),
    "scores": scores(),
    "scores, causal": scores(is_causal=True),
    "softmax": softmax(),
    "weighted sum": weighted_sum(),
    "split heads": split_heads(),
    "merge heads": merge_heads(),
    **{f"split qkv, {layout}": split_qkv(layout) for layout in LAYOUTS},
}
