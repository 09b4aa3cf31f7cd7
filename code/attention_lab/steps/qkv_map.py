"""Where does each row of a fused projection go, and who reads it wrongly?

Packs the same weights in every layout of `fused_qkv`, and grouped heads in the
two ways that are in use; converts between all of them, also by mistake by not
moving a row at all; attends with the result; and records the kernels that split
a projection. Returns it all as data for the figure "packing map". Nothing in
the data is computed in any other way.

Sources: NVIDIA/apex#838 and cvg/LightGlue#25 (layouts); Ainslie et al. 2023,
"GQA", section 2.2 (groups of heads that share keys and values).
Letters: B batch, L positions, H heads, D head width, E = H·D, P = 3.
"""

from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from attention_lab.axes import check_divisible
from attention_lab.error_bound import rounding
from attention_lab.examples import position_coded
from attention_lab.gpu import record
from attention_lab.steps import scaled_dot_product
from attention_lab.steps.fused_qkv import (
    LAYOUTS,
    THREADS_D,
    THREADS_L,
    P,
    convert_layout,
    layout_steps,
    split_qkv_kernel,
)
from attention_lab.steps.launch import cdiv
from attention_lab.steps.multi_head import (
    merge_heads,
    split_heads,
    split_heads_kernel,
)

SCHEMA = "packing_map.v1"
#: All q, all k, all v; or group by group: its queries, its key, its value.
GROUPED_LAYOUTS = ("p h d", "g p d")
L, E = 5, 8
#: Query heads and key heads of each run; the first is the static picture's.
SETTINGS = ((4, 4), (2, 2), (1, 1), (4, 2), (4, 1))


def layouts_of(num_heads: int, key_heads: int) -> tuple[str, ...]:
    """Return the layouts that exist: no pattern packs unequal heads.

    Examples
    --------
    >>> layouts_of(4, 4), layouts_of(4, 2)
    (('p h d', 'h p d', 'h d p'), ('p h d', 'g p d'))
    """
    return LAYOUTS if key_heads == num_heads else GROUPED_LAYOUTS


def packed_rows(
    layout: str, num_heads: int, key_heads: int, E: int = E
) -> Int[Tensor, "R"]:
    """Return which row of the "p h d" weight stands where in a layout.

    Examples
    --------
    >>> packed_rows("g p d", 2, 1).tolist() == list(range(16))
    True
    >>> packed_rows("g p d", 4, 2).tolist()
    [0, 1, 2, 3, 8, 9, 12, 13, 4, 5, 6, 7, 10, 11, 14, 15]
    """
    group = check_divisible(num_heads, key_heads, "num_heads", "key_heads")
    D = check_divisible(E, num_heads, "E", "num_heads")
    if group == 1:
        rows = torch.arange(P * E)
        return convert_layout(rows, num_heads, "p h d", layout)
    q, k, v = torch.arange(E + 2 * key_heads * D).split(
        [E, key_heads * D, key_heads * D]
    )
    if layout == "p h d":
        return torch.cat([q, k, v])
    parts = [x.reshape(key_heads, -1) for x in (q, k, v)]
    return torch.cat(parts, dim=1).flatten()


def convert(
    weight: Float[Tensor, "R ..."],
    num_heads: int,
    key_heads: int,
    source: str,
    target: str,
) -> Float[Tensor, "R ..."]:
    """Reorder the rows of a packed weight or bias; also of grouped heads."""
    if num_heads == key_heads:
        return convert_layout(weight, num_heads, source, target)
    E = num_heads * (len(weight) // (num_heads + 2 * key_heads))
    plain = torch.empty_like(weight)
    plain[packed_rows(source, num_heads, key_heads, E)] = weight
    return plain[packed_rows(target, num_heads, key_heads, E)]


def attend_packed(
    weight: Float[Tensor, "R E"],
    bias: Float[Tensor, "R"],
    x_BLE: Float[Tensor, "B L E"],
    num_heads: int,
    key_heads: int,
    layout: str,
) -> Float[Tensor, "B L E"]:
    """Project with a packed weight, split it as a layout says, and attend."""
    E = x_BLE.shape[-1]
    rows = packed_rows(layout, num_heads, key_heads, E)
    packed = nn.functional.linear(x_BLE, weight, bias)
    plain = torch.empty_like(packed)
    plain[..., rows] = packed
    shared = key_heads * (E // num_heads)
    q, k, v = (
        split_heads(x, heads)
        for x, heads in zip(
            plain.split([E, shared, shared], dim=-1),
            (num_heads, key_heads, key_heads),
            strict=True,
        )
    )
    return merge_heads(scaled_dot_product.attention(q, k, v, enable_gqa=True))


@torch.no_grad()
def record_packing_map(
    settings: tuple[tuple[int, int], ...] = SETTINGS,
    *,
    E: int = E,
    seed: int = 0,
) -> dict[str, Any]:
    """Pack, convert and misread the weights of every setting; return the data.

    Parameters
    ----------
    settings : pairs (heads, key heads); heads divide E, key heads divide heads.
    E : width of the model. The figure draws up to 8.
    seed : of the weights and of the input, which are normal numbers.

    Returns
    -------
    Plain dictionaries, lists and numbers, ready for JSON:

    schema, seed, dtype, L, E : "packing_map.v1", and how it was made.
    runs : one per setting:

        name, H, G, D : the setting; G counts the key heads
        tags : [role, head, channel] of each row of the "p h d" weight; the
            role is 0 for q, 1 for k, 2 for v
        layouts : name of a layout → which tag stands in each of its rows
        pairs : for each two layouts `source` and `target`: `round_trip`, the
            largest change of the weights there and back; `error`, the largest
            change of the output after a conversion; `wrong_error`, the same
            when the rows are taken for the target's without moving one;
            `change`, that change in norm, divided by the norm of the output;
            `bound`, 64 units in the last place of the output
        traffic : of settings whose heads all have their own keys, counted in
            recordings: `launches` and `bytes` of the three kernels that split
            separate projections and of the one that splits the fused one, as
            pairs; the `formula`'s bytes; `sectors`, 32-byte pieces of memory
            that the fused one reads in each layout; `hazards` found

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
        "L": L,
        "E": E,
        "runs": [_run(heads, shared, E, seed) for heads, shared in settings],
    }


def map_inputs(
    num_heads: int, key_heads: int, seed: int = 0, E: int = E
) -> tuple[Tensor, Tensor, Tensor]:
    """Return a weight and a bias in layout "p h d", and an input."""
    rows = len(packed_rows("p h d", num_heads, key_heads, E))
    normal = torch.Generator().manual_seed(seed)
    weight, bias, x_BLE = (
        torch.randn(shape, dtype=torch.float64, generator=normal)
        for shape in ((rows, E), (rows,), (1, L, E))
    )
    return weight, bias, x_BLE


def _run(num_heads: int, key_heads: int, E: int, seed: int) -> dict[str, Any]:
    """Convert between all layouts of a setting, right and wrong."""
    D = check_divisible(E, num_heads, "E", "num_heads")
    layouts = layouts_of(num_heads, key_heads)
    is_plain = key_heads == num_heads
    shared = "" if is_plain else f", {key_heads} key head{'s'[: key_heads - 1]}"
    return {
        "name": f"{num_heads} head{'s'[: num_heads - 1]}{shared}",
        "H": num_heads,
        "G": key_heads,
        "D": D,
        "tags": [
            [role, head, channel]
            for role, heads in enumerate((num_heads, key_heads, key_heads))
            for head in range(heads)
            for channel in range(D)
        ],
        "layouts": {
            layout: packed_rows(layout, num_heads, key_heads, E).tolist()
            for layout in layouts
        },
        "pairs": [
            pair
            for source in layouts
            for pair in _pairs(num_heads, key_heads, E, source, seed)
        ],
        "traffic": _traffic(num_heads, D) if is_plain else None,
    }


def _pairs(
    num_heads: int, key_heads: int, E: int, source: str, seed: int
) -> list[dict[str, Any]]:
    """Convert weights to all other layouts, or not, and attend with them."""
    heads = (num_heads, key_heads)
    weight, bias, x_BLE = map_inputs(*heads, seed, E)
    # One more column carries the bias along.
    whole = convert(
        torch.cat([weight, bias[:, None]], dim=1), *heads, "p h d", source
    )

    def attend(packed: Tensor, layout: str) -> Tensor:
        weight, bias = packed[:, :E], packed[:, E]
        return attend_packed(weight, bias, x_BLE, *heads, layout)

    expected = attend(whole, source)
    pairs = []
    for target in layouts_of(*heads):
        if target == source:
            continue
        moved = convert(whole, *heads, source, target)
        back = convert(moved, *heads, target, source)
        off = attend(whole, target) - expected
        pairs.append(
            {
                "source": source,
                "target": target,
                "round_trip": _largest(back - whole),
                "error": _largest(attend(moved, target) - expected),
                "wrong_error": _largest(off),
                "change": (off.norm() / expected.norm()).item(),
                "bound": rounding(expected),
            }
        )
    return pairs


def _largest(x: Tensor) -> float:
    return x.abs().max().item()


def _traffic(num_heads: int, D: int) -> dict[str, Any]:
    """Record three kernels for three projections, and one for the fused one."""
    E = num_heads * D
    grid = (cdiv(D, THREADS_D), cdiv(L, THREADS_L), num_heads)
    block = (THREADS_D, THREADS_L, 1)
    x_BLE = position_coded(1, L, E).astype(np.float32)
    packed = position_coded(1, L, P * E).astype(np.float32)
    blank = np.full((1, num_heads, L, D), np.nan, np.float32)
    separate = [
        record(split_heads_kernel, grid, block, blank.copy(), x_BLE)
        for _ in range(P)
    ]
    fused = []
    for layout in LAYOUTS:
        steps = layout_steps(layout, num_heads, D)
        qkv_PBHLD = np.stack([blank] * P)
        fused.append(
            record(
                split_qkv_kernel, grid, block, qkv_PBHLD, packed,
                steps["p"], steps["h"], steps["d"],
            )
        )  # fmt: skip
    return {
        "launches": [len(separate), 1],
        "bytes": [_bytes(separate), _bytes(fused[:1])],
        "formula": 2 * P * L * E * packed.itemsize,
        "sectors": {
            layout: recording.traffic["packed"].sectors
            for layout, recording in zip(LAYOUTS, fused, strict=True)
        },
        "hazards": sum(len(r.hazards) for r in (*separate, *fused)),
    }


def _bytes(recordings: list[Any]) -> int:
    """Return what the launches read and write of global memory."""
    return sum(
        recording.traffic.total(field)
        for recording in recordings
        for field in ("bytes_read", "bytes_written")
    )
