"""Attention, written rightly in many ways: no verifier may find a mistake.

`CORRECT` maps a name to a function and to what it supports; None means: all
that its signature has. They share next to nothing on purpose.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import correct_formulas as formulas
import correct_routes as routes
from correct_numpy import CORRECT_NUMPY
from torch.nn import functional

from attention_lab.steps import (
    flash_forward,
    online_softmax,
    scaled_dot_product,
)

ALL_BUT_GQA = (
    "attn_mask",
    "is_causal",
    "scale",
    "cross_attention",
    "value_width",
    "float_mask",
    "half_precision",
    "double_precision",
    "gradients",
)


class Correct(NamedTuple):
    """A right implementation and what it may be asked; None means all."""

    function: Callable
    supports: Collection[str] | None = None


CORRECT: dict[str, Correct] = {
    "PyTorch SDPA": Correct(functional.scaled_dot_product_attention),
    "PyTorch SDPA, math": Correct(routes.sdpa_math),
    "PyTorch SDPA, flash": Correct(
        routes.sdpa_flash,
        (*(x for x in ALL_BUT_GQA if x != "value_width"), "enable_gqa"),
    ),
    "written out": Correct(formulas.written_out),
    "einsum": Correct(formulas.by_einsum),
    "einops": Correct(formulas.by_einops),
    "loop over heads": Correct(formulas.loop_over_heads),
    "loop over everything": Correct(formulas.loop_over_everything),
    "folded bmm": Correct(formulas.folded_bmm),
    "chunked over queries": Correct(formulas.chunked_over_queries),
    "chunked over keys": Correct(formulas.chunked_over_keys),
    "log-sum-exp": Correct(formulas.by_log_sum_exp),
    "log-softmax": Correct(formulas.by_log_softmax),
    "keyword only": Correct(formulas.keyword_only),
    "nothing but inputs": Correct(formulas.nothing_but_inputs),
    "sorted keys": Correct(formulas.sorted_keys),
    "base two": Correct(formulas.base_two),
    "key by key": Correct(formulas.key_by_key),
    "vmap": Correct(routes.by_vmap),
    "sequence first": Correct(routes.sequence_first),
    "float64 inside": Correct(routes.float64_inside),
    "checkpointed": Correct(routes.checkpointed),
    "own backward": Correct(routes.own_backward),
    "FlexAttention": Correct(
        routes.by_flex_attention, [x for x in ALL_BUT_GQA if x != "gradients"]
    ),
    "multi-head forward": Correct(
        routes.by_multi_head_forward,
        [x for x in ALL_BUT_GQA if x not in ("value_width", "scale")],
    ),
    # Traced for sizes of any value, the scale becomes a float32: the float64
    # gradients are off by 2e-8, and the verifier says so.
    "torch.compile": Correct(
        routes.by_torch_compile, (*ALL_BUT_GQA[:-1], "enable_gqa")
    ),
    **{
        f"{module.__name__.rpartition('.')[2]}.{name}": Correct(
            getattr(module, name),
            None if name == "attention" else (*ALL_BUT_GQA[:-1], "enable_gqa"),
        )
        for module in (scaled_dot_product, online_softmax, flash_forward)
        for name in ("attention", "attention_cuda")
    },
    **{name: Correct(*entry) for name, entry in CORRECT_NUMPY.items()},
}
