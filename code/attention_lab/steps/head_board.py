"""Which rows of the weights make which columns of the output, head by head?

Runs attention with every number of heads on the same weights: all heads at
once, and one after the other in a loop that only slices rows; with a head
switched off; and merged without the permute. Returns it all as data for the
figure "head board". Nothing in the data is computed in any other way.

Sources: Vaswani et al. 2017, section 3.2.2 (heads); Ainslie et al. 2023, "GQA",
section 2.2 (groups of heads that share keys and values).
Letters: B batch, L positions, H heads, D head width, E = H·D model width.
"""

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch._dynamo  # torch loads it at the first FLOP count, slowly
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from attention_lab.axes import check_divisible
from attention_lab.error_bound import error_bound, rounding
from attention_lab.examples import position_coded
from attention_lab.reference import attention_reference
from attention_lab.steps.multi_head import (
    MultiHeadAttention,
    merge_heads,
    split_heads,
)
from attention_lab.steps.scaled_dot_product import (
    attention_weights,
    share_heads,
)

SCHEMA = "head_board.v1"
#: Numbers of an output are kept to this many decimals.
DECIMALS = 4
L, E = 5, 8
#: Query heads and key heads of each run; the first is the static picture's.
SETTINGS = (
    (4, 4), (1, 1), (2, 2), (8, 8),
    (2, 1), (4, 2), (4, 1), (8, 2),
)  # fmt: skip


def heads_at_once(
    module: MultiHeadAttention,
    x_BLE: Float[Tensor, "B L E"],
    key_heads: int,
    off: int | None = None,
) -> Float[Tensor, "B H L D"]:
    """Project all heads with one product each, split, and attend once.

    With fewer key heads than heads, only the first rows of W_k and W_v are
    used, D for each key head. The head `off` asks nothing: its rows of W_q
    count as 0, its bias too.

    Raises
    ------
    ShapeMismatch
        If `key_heads` does not divide the number of heads.
    """
    q, k, v = _project(module, x_BLE, key_heads, off)
    group = module.num_heads // key_heads
    return _attend(q, share_heads(k, group), share_heads(v, group))


def heads_in_a_loop(
    module: MultiHeadAttention, x_BLE: Float[Tensor, "B L E"], key_heads: int
) -> Float[Tensor, "B L E"]:
    """Make one head per turn from its own rows; no reshape, no permute.

    Turn h multiplies with rows h·D … (h+1)·D − 1 of W_q, and with the rows of
    the key head that its group shares. A key head's products are made in the
    first turn of its group.
    """
    D = module.embed_dim // module.num_heads
    group = check_divisible(
        module.num_heads, key_heads, "num_heads", "key_heads"
    )
    columns = []
    for head in range(module.num_heads):
        q = _one_head(module.q_proj, x_BLE, head, D)
        if head % group == 0:
            k = _one_head(module.k_proj, x_BLE, head // group, D)
            v = _one_head(module.v_proj, x_BLE, head // group, D)
        columns.append(_attend(q, k, v)[:, 0])
    return torch.cat(columns, dim=-1)


def merge_without_permute(
    x_BHLD: Float[Tensor, "B H L D"],
) -> Float[Tensor, "B L E"]:
    """Merge wrongly: the right shape, with the heads still outside.

    Examples
    --------
    >>> x_BHLD = torch.arange(8.0).reshape(1, 2, 2, 2)
    >>> merge_without_permute(x_BHLD)[0, 0].tolist()
    [0.0, 1.0, 2.0, 3.0]
    >>> merge_heads(x_BHLD)[0, 0].tolist()
    [0.0, 1.0, 4.0, 5.0]
    """
    B, H, rows, D = x_BHLD.shape
    return x_BHLD.contiguous().view(B, rows, H * D)


@torch.no_grad()
def record_head_board(
    settings: tuple[tuple[int, int], ...] = SETTINGS,
    *,
    E: int = E,
    seed: int = 0,
) -> dict[str, Any]:
    """Run every setting on the same weights and input; return the data.

    Parameters
    ----------
    settings : pairs (heads, key heads); heads divide E, key heads divide heads.
    E : width of the model. The figure draws up to 8.
    seed : of the weights and of the input, which are normal numbers.

    Returns
    -------
    Plain dictionaries, lists and numbers, ready for JSON:

    schema, seed, dtype, decimals, L, E : "head_board.v1", and how it was made.
    runs : one per setting:

        name, H, G, D : the setting; G counts the key heads
        rows_q, rows_kv : for each head the rows of W_q, and of W_k and W_v,
            that make it, read off rows that carry their own number
        heads, tokens, wrong_heads, wrong_tokens : for each place of the merged
            output which head made it for which token, read off numbers that
            carry their own place; merged right, and without the permute
        out, wrong_out : the merged output both ways, L·E numbers
        off : for each head `out` and `wrong_out` with that head's rows of W_q
            set to 0, its bias too; and the largest change of the output
            `inside` the head's columns and `outside` of them, not rounded
        parameters : of the four projections
        flops, loop_flops : as PyTorch's counter counts them, all heads at once
            and in the loop; two per multiply-add of a matrix product
        scores : how many numbers the score matrices have
        loop_error, loop_bound : largest distance between loop and all at once
            in the output, and 64 units of its last place
        whole_error : the same for the queries, keys and values of whole
            numbers, where nothing is rounded
        error, bound : distance of the output to the float64 reference, and
            `error_bound`'s limit
        wrong_error : distance of the output merged without the permute

    Numbers of an output are rounded to 4 decimals; errors and bounds are not.

    Raises
    ------
    ValueError
        If there is no setting.
    ShapeMismatch
        If heads do not divide E, or key heads do not divide heads.
    """
    if not settings:
        raise ValueError("settings is empty: there is nothing to run")
    return {
        "schema": SCHEMA,
        "seed": seed,
        "dtype": "float64",
        "decimals": DECIMALS,
        "L": L,
        "E": E,
        "runs": [_run(heads, shared, E, seed) for heads, shared in settings],
    }


def board_inputs(
    num_heads: int, seed: int = 0, E: int = E
) -> tuple[MultiHeadAttention, Tensor]:
    """Return a module and its input: the same numbers for any heads."""
    check_divisible(E, num_heads, "embed_dim", "num_heads")
    normal = torch.Generator().manual_seed(seed)
    module = MultiHeadAttention(E, num_heads).double()
    for parameter in module.parameters():
        parameter.data = torch.randn(
            parameter.shape, dtype=torch.float64, generator=normal
        )
    return module, torch.randn(1, L, E, dtype=torch.float64, generator=normal)


def _run(num_heads: int, key_heads: int, E: int, seed: int) -> dict[str, Any]:
    """Make one run, right and wrong, and hold it against the reference."""
    module, x_BLE = board_inputs(num_heads, seed, E)
    D = E // num_heads
    q, k, v = _project(module, x_BLE, key_heads)
    heads_BHLD, flops = _counted(heads_at_once, module, x_BLE, key_heads)
    out_BLE = merge_heads(heads_BHLD)
    loop_BLE, loop_flops = _counted(heads_in_a_loop, module, x_BLE, key_heads)
    _, last_flops = _counted(module.out_proj, out_BLE)
    exact = attention_reference(q, k, v, enable_gqa=True).out_BHLD
    exact_BLE = merge_heads(torch.from_numpy(exact))
    coded_BHLD = torch.from_numpy(position_coded(1, num_heads, L, D)).double()
    weights_BHLS = attention_weights(q, k, v, enable_gqa=True)
    shared = f", {_count(key_heads, 'key ')}" if key_heads < num_heads else ""
    return {
        "name": f"{_count(num_heads)}{shared}",
        "H": num_heads,
        "G": key_heads,
        "D": D,
        **_rows_of_heads(num_heads, key_heads, D),
        **_origins(merge_heads(coded_BHLD), D, ""),
        **_origins(merge_without_permute(coded_BHLD), D, "wrong_"),
        **_both_ways(heads_BHLD),
        "off": [
            _off(
                heads_BHLD,
                heads_at_once(module, x_BLE, key_heads, off=head),
                head,
            )
            for head in range(num_heads)
        ],
        "parameters": _parameters(module, key_heads),
        "flops": flops + last_flops,
        "loop_flops": loop_flops + last_flops,
        "scores": weights_BHLS.numel(),
        "loop_error": _distance(loop_BLE, out_BLE),
        "loop_bound": rounding(out_BLE),
        "whole_error": _whole_error(module, x_BLE, key_heads),
        "error": _distance(out_BLE, exact_BLE),
        "bound": error_bound(q, k, v, enable_gqa=True),
        "wrong_error": _distance(merge_without_permute(heads_BHLD), exact_BLE),
    }


def _attend(q_BHLD: Tensor, k_BHSD: Tensor, v_BHSD: Tensor) -> Tensor:
    """Attend with matrix products, which PyTorch's counter sees.

    At D = 1 an einsum multiplies element by element, and is not counted. There
    is no mask, so PyTorch's softmax does; the counter makes each call slow.
    """
    scores_BHLS = q_BHLD * q_BHLD.shape[-1] ** -0.5 @ k_BHSD.mT
    return scores_BHLS.softmax(dim=-1) @ v_BHSD


def _project(
    module: MultiHeadAttention,
    x_BLE: Tensor,
    key_heads: int,
    off: int | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return q of all heads, and k and v of the key heads."""
    H, linear = module.num_heads, nn.functional.linear
    D = module.embed_dim // H
    check_divisible(H, key_heads, "num_heads", "key_heads")
    rows = key_heads * D
    k, v = (
        split_heads(linear(x_BLE, p.weight[:rows], p.bias[:rows]), key_heads)
        for p in (module.k_proj, module.v_proj)
    )
    q_proj = module.q_proj
    on_E = torch.arange(H).repeat_interleave(D) != (-1 if off is None else off)
    q_BLE = linear(x_BLE, q_proj.weight * on_E[:, None], q_proj.bias * on_E)
    return split_heads(q_BLE, H), k, v


def _one_head(linear: nn.Linear, x_BLE: Tensor, head: int, D: int) -> Tensor:
    """Multiply with the rows of one head; return (B, 1, L, D)."""
    own = slice(head * D, (head + 1) * D)
    x_BLD = nn.functional.linear(x_BLE, linear.weight[own], linear.bias[own])
    return x_BLD[:, None]


def _off(whole_BHLD: Tensor, off_BHLD: Tensor, head: int) -> dict[str, Any]:
    """Return the output with a head switched off, and where it changed."""
    change_BLE = (merge_heads(off_BHLD) - merge_heads(whole_BHLD)).abs()
    _, H, _, D = whole_BHLD.shape
    own_E = torch.arange(H).repeat_interleave(D) == head
    return {
        **_both_ways(off_BHLD),
        "inside": change_BLE[..., own_E].max().item(),
        "outside": change_BLE[..., ~own_E].max().item() if H > 1 else 0.0,
    }


def _rows_of_heads(H: int, G: int, D: int) -> dict[str, list[list[int]]]:
    """Split rows that carry their own number; return each head's rows."""
    rows = [torch.arange(many * D)[None, None].double() for many in (H, G)]
    of_query_heads = split_heads(rows[0], H)[0, :, 0]
    of_key_heads = share_heads(split_heads(rows[1], G), H // G)[0, :, 0]
    return {
        "rows_q": of_query_heads.long().tolist(),
        "rows_kv": of_key_heads.long().tolist(),
    }


def _origins(coded_BLE: Tensor, D: int, prefix: str) -> dict[str, list[int]]:
    """Read the head and the token off places of (H, L, D)."""
    place = coded_BLE.long().ravel()
    return {
        f"{prefix}heads": (place // (L * D)).tolist(),
        f"{prefix}tokens": (place // D % L).tolist(),
    }


def _both_ways(heads_BHLD: Tensor) -> dict[str, list[float]]:
    """Merge right and without the permute; return the rounded numbers."""
    return {
        name: [
            round(x, DECIMALS) + 0.0 for x in merge(heads_BHLD).ravel().tolist()
        ]
        for name, merge in (
            ("out", merge_heads),
            ("wrong_out", merge_without_permute),
        )
    }


def _parameters(module: MultiHeadAttention, key_heads: int) -> int:
    """Count weights and biases that take part."""
    rows = key_heads * (module.embed_dim // module.num_heads)
    whole, shared = (
        (module.q_proj, module.out_proj),
        (module.k_proj, module.v_proj),
    )
    return sum(p.numel() for part in whole for p in part.parameters()) + sum(
        p[:rows].numel() for part in shared for p in part.parameters()
    )


def _counted(function: Callable[..., Tensor], *args: Any) -> tuple[Tensor, int]:
    """Return a function's result, and the FLOPs of its matrix products."""
    with FlopCounterMode(display=False) as counter:
        result = function(*args)
    return result, counter.get_total_flops()


def _whole_error(
    module: MultiHeadAttention, x_BLE: Tensor, key_heads: int
) -> float:
    """Compare the two ways to project where nothing is rounded."""
    module, x_BLE = copy.deepcopy(module), x_BLE.mul(9).round()
    for parameter in module.parameters():
        parameter.data = parameter.mul(9).round()
    D = module.embed_dim // module.num_heads
    together = _project(module, x_BLE, key_heads)
    linears = (module.q_proj, module.k_proj, module.v_proj)
    return max(
        _distance(_one_head(linear, x_BLE, head, D), x_BHLD[:, head : head + 1])
        for linear, x_BHLD in zip(linears, together, strict=True)
        for head in range(x_BHLD.shape[1])
    )


def _distance(one: Tensor, other: Tensor) -> float:
    return (one - other).abs().max().item()


def _count(heads: int, kind: str = "") -> str:
    return f"{heads} {kind}head{'' if heads == 1 else 's'}"
