"""Which flash kernel runs, and why: three rungs, one call.

Every rung computes the same from the same arguments; each changes what a
thread does. `flash_cuda` takes the highest rung that can run, or the one that
is asked for.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxtyping import Float

from attention_lab.contract import dtype_name
from attention_lab.gpu.tensor_core import choose_mma
from attention_lab.steps import flash_register, flash_tensor_core
from attention_lab.steps.flash_forward import flash_forward_cuda
from attention_lab.steps.flash_launch import FlashResult
from attention_lab.steps.flash_register import flash_register_cuda
from attention_lab.steps.flash_tensor_core import flash_tensor_core_cuda
from attention_lab.steps.launch import MAX_SHARED_BYTES, kernel_dtype

#: In the order in which they are climbed; name -> launching function.
RUNGS: dict[str, Callable[..., FlashResult]] = {
    "thread_per_row": flash_forward_cuda,
    "register_tile": flash_register_cuda,
    "tensor_core": flash_tensor_core_cuda,
}


class Choice(NamedTuple):
    """The name of a rung, and the reason in a sentence."""

    rung: str
    sentence: str


def choose_rung(dtype: str, D: int, D_v: int) -> Choice:
    """Return the highest rung that runs on this device for these widths.

    Parameters
    ----------
    dtype : of query, key and value, such as "float16"

    Examples
    --------
    >>> choose_rung("float32", 64, 64).rung
    'register_tile'
    >>> choose_rung("float32", 700, 64).sentence
    'Tiles of width D = 700, D_v = 64 fit no higher rung.'
    """
    multiplier = choose_mma()
    reason = f"Tensor cores multiply float16 only, not {dtype}."
    if dtype == "float16":
        reason = multiplier.sentence
        if multiplier.on_tensor_cores:
            if max(D, D_v) <= flash_tensor_core.WIDEST:
                return Choice("tensor_core", reason)
            reason = (
                f"D = {D}, D_v = {D_v} exceed {flash_tensor_core.WIDEST}, the "
                "widest that tensor cores take from registers."
            )
    itemsize = 8 if dtype == "float64" else 4
    if fits(flash_register.tile_rules(D, D_v, itemsize)):
        return Choice("register_tile", reason)
    return Choice(
        "thread_per_row",
        f"Tiles of width D = {D}, D_v = {D_v} fit no higher rung.",
    )


def fits(rules: Any) -> bool:
    """Say whether the smallest tiles of a rung fit into shared memory."""
    return rules.shared_bytes(rules.least_L, rules.unit_S) <= MAX_SHARED_BYTES


def flash_cuda(
    query: Float[Any, "B H L D"],
    key: Float[Any, "B H_kv S D"],
    value: Float[Any, "B H_kv S D_v"],
    attn_mask: Any = None,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    rung: str | None = None,
    TILE_L: int | None = None,
    TILE_S: int | None = None,
) -> FlashResult:
    """Run one rung of the ladder; return the output and the log-sum-exp.

    NumPy arrays or torch tensors in, the same kind out; gradients are not
    tracked.

    Parameters
    ----------
    rung : a name in `RUNGS`; None takes the choice of `choose_rung`.
    TILE_L, TILE_S : None takes the rung's own.

    Raises
    ------
    ValueError
        If there is no such rung, or the rung refuses the input or the tiles.

    Examples
    --------
    >>> import numpy as np
    >>> q = np.ones((1, 1, 3, 2), np.float32)
    >>> flash_cuda(q, q, q, rung="register_tile").out_BHLD[0, 0, 2].tolist()
    [1.0, 1.0]
    """
    if rung is None:
        kernel_dtype("query", query)
        widths = query.shape[-1], value.shape[-1]
        rung = choose_rung(dtype_name(query), *widths).rung
    if rung not in RUNGS:
        raise ValueError(f"rung is {rung!r}; the ladder has {', '.join(RUNGS)}")
    tiles = {"TILE_L": TILE_L, "TILE_S": TILE_S}
    given = {name: size for name, size in tiles.items() if size is not None}
    options = (attn_mask, is_causal, scale, enable_gqa)
    return RUNGS[rung](query, key, value, *options, **given)
