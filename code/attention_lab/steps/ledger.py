"""What does each way of computing attention compute, and what does it move?

A ledger: floating-point operations and memory traffic of the kernels of this
book, counted in recordings and by the formulas of `gpu.traffic`, with the
arithmetic intensity (operations per byte) and the speed that a device's
datasheet allows at that intensity. All of it is data for the figure "ledger".

Sources: Williams, Waterman and Patterson 2009, "Roofline", section 3; Dao et
al. 2022, "FlashAttention", algorithm 0, theorem 2 and figure 2.
Letters: B batch, H heads, L queries, S keys, D head width.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch
import torch._dynamo
from torch.utils.flop_counter import FlopCounterMode

from attention_lab import examples
from attention_lab.gpu.traffic import (
    flash_forward_traffic,
    naive_forward_traffic,
    visible_keys,
)
from attention_lab.steps import recorded
from attention_lab.steps.rooflines import (
    DECIMALS,
    DEVICES,
    DTYPES,
    Device,
    place_point,
    roof,
)

SCHEMA = "ledger.v1"


class Setting(NamedTuple):
    """One table of the ledger: a kind of call, and a ladder of key counts.

    L : how many queries; None means as many as keys.
    recorded : up to which S everything is recorded in float32; 0 is nothing.
    """

    name: str
    D: int
    S: tuple[int, ...]
    tiles: tuple[int, ...]
    L: int | None = None
    is_causal: bool = False
    recorded: int = 0


SETTINGS = (
    Setting("D 8, as many queries as keys", 8, (16, 32, 64, 1024), (2, 4, 16),
            recorded=32),
    Setting("D 8, causal", 8, (16, 32, 64, 1024), (2, 4, 16), is_causal=True,
            recorded=16),
    Setting("D 8, one query (decode)", 8, (16, 32, 64, 1024), (2, 4, 16), L=1,
            recorded=64),
    Setting("D 64, as many queries as keys", 64, (256, 1024, 4096, 16384),
            (16, 32, 128)),
    Setting("D 64, one query (decode)", 64, (256, 1024, 4096, 16384),
            (16, 32, 128), L=1),
)  # fmt: skip
#: Recorded besides, because they take longer: (setting, S, kernel, dtype).
EXTRA = (
    (0, 64, "three kernels", "float32"),
    (0, 16, "three kernels", "float64"),
    (0, 16, "tile 4", "float64"),
)


def record_ledger(
    settings: Sequence[Setting] = SETTINGS,
    *,
    extra: Sequence[tuple[int, int, str, str]] = EXTRA,
    devices: Sequence[Device] = DEVICES,
    points: Sequence[Mapping[str, Any]] = (),
    seed: int = 0,
) -> dict[str, Any]:
    """Count every kernel in every setting; return the ledger as data.

    Parameters
    ----------
    settings : the tables to make; one head each.
    extra : more to record: number of the setting, S, kernel, dtype.
    devices : whose datasheets bound the speed.
    points : measured speeds, as `rooflines.stored_points` returns them.
    seed : of the inputs. The counts do not depend on it.

    Returns
    -------
    Plain dictionaries, lists and numbers, ready for JSON:

    schema, seed : "ledger.v1", and how it was made.
    dtypes : name and bytes of each. A list "by dtype" follows this order.
    devices : name, bandwidth in TB/s, peak in TFLOP/s by dtype, source; `roof`
        by dtype: three points (FLOP per byte, TFLOP/s), the ridge in the middle
    settings : for each its name, L (null: as many as keys), D, S, is_causal,
        tiles, kernels (names of rows), says, and entries[row][column]:

        flops, moved : by formula; `moved` counts numbers of inputs, of scores
            and weights, and of results
        counted : by dtype, null or what a recording counted: flops, moved,
            bytes
        intensity : by dtype, FLOP per byte
        attainable : by device and dtype, TFLOP/s at most, by the datasheet

    paper : printed and counted numbers of a published table, and its source.
    torch_flops : operations that torch counts for L = S = 32, D = 8, and ours.
    points : measured points: name, device, dtype, intensity, tflops, low, high.

    Row 0 is the three kernels of `scaled_dot_product`, row 1 the online softmax
    with one thread per query, then flash with square tiles. The last row is a
    bound, not a kernel: scores stored, but each array moved once per pass, as
    in algorithm 0 of the paper. Intensities and speeds are rounded to 4
    decimals, counts are exact.

    Raises
    ------
    ValueError
        If there is no setting or no device, an extra recording is of an
        unknown kernel, or a point is of an unknown device or dtype.
    """
    for name, listed in (("settings", settings), ("devices", devices)):
        if not listed:
            raise ValueError(f"{name} is empty: there is nothing to count")
    tables = []
    for number, setting in enumerate(settings):
        wanted = {tuple(x[1:]) for x in extra if x[0] == number}
        tables.append(_table(setting, wanted, devices, seed))
    return {
        "schema": SCHEMA,
        "seed": seed,
        "dtypes": [{"name": name, "bytes": size} for name, size in DTYPES],
        "devices": [
            {
                **device._asdict(),
                "peak": list(device.peak),
                "roof": [roof(device, peak) for peak in device.peak],
            }
            for device in devices
        ],
        "settings": tables,
        "paper": paper_numbers(),
        "torch_flops": _torch_flops(32, 8),
        "points": [place_point(point, devices) for point in points],
    }


def paper_numbers() -> dict[str, Any]:
    """Count the workload of a published table, and put its numbers beside.

    Figure 2 of the paper prints GFLOPs of one forward and backward pass of
    GPT-2 medium's attention: batch 64, 16 heads, 1024 positions, head width 64.
    `torch.utils.flop_counter` counts the same products here, on tensors without
    data, so that nothing is computed. Flash computes the scores once more in
    its backward pass.

    Examples
    --------
    >>> [round(row["counted"]) for row in paper_numbers()["rows"]]
    [825, 962]
    """
    shape = (64, 16, 1024, 64)
    rows = []
    for name, printed, again in (
        ("standard", 66.6, False),
        ("flash", 75.2, True),
    ):
        q, k, v = (
            torch.empty(shape, device="meta", requires_grad=True) for _ in "qkv"
        )
        with FlopCounterMode(display=False) as counter:
            _attend(q, k, v).sum().backward()
            if again:  # the backward pass computes the scores anew
                _ = q.detach() @ k.detach().mT
        counted = round(counter.get_total_flops() / 1e9, DECIMALS)
        rows.append({"name": name, "printed": printed, "counted": counted})
    return {
        "source": "Dao et al. 2022, FlashAttention, figure 2 (left), GFLOPs of "
        "forward + backward",
        "last_digit": 0.1,
        "rows": rows,
    }


def _table(
    setting: Setting,
    extra: set[tuple[int, str, str]],
    devices: Sequence[Device],
    seed: int,
) -> dict[str, Any]:
    """Fill one table: a row per kernel, a column per number of keys."""
    kernels = [
        "three kernels",
        "one thread",
        *(f"tile {t}" for t in setting.tiles),
    ]
    for S, kernel, _ in extra:
        if kernel not in kernels or S not in setting.S:
            raise ValueError(
                f"extra asks to record {kernel!r} at S = {S} in "
                f"{setting.name!r}, which has {', '.join(kernels)} at S = "
                f"{', '.join(map(str, setting.S))}"
            )
    entries = []
    for kernel in [*kernels, "stored once"]:
        row = []
        for S in setting.S:
            L = setting.L or S
            flops, moved = _formula(setting, kernel, L, S)
            counted = [
                _counted(setting, kernel, L, S, dtype, seed)
                if (S, kernel, dtype) in extra
                or (
                    dtype == "float32"
                    and setting.recorded >= S
                    and kernel != "stored once"
                )
                else None
                for dtype, _ in DTYPES
            ]
            intensity = [flops / (sum(moved) * size) for _, size in DTYPES]
            row.append(
                {
                    "flops": flops,
                    "moved": moved,
                    "counted": counted,
                    "intensity": [round(x, DECIMALS) for x in intensity],
                    "attainable": [
                        [
                            round(min(peak, x * device.bandwidth), DECIMALS)
                            for peak, x in zip(
                                device.peak, intensity, strict=True
                            )
                        ]
                        for device in devices
                    ],
                }
            )
        entries.append(row)
    return {
        "name": setting.name,
        "L": setting.L,
        "D": setting.D,
        "S": list(setting.S),
        "is_causal": setting.is_causal,
        "tiles": list(setting.tiles),
        "kernels": [*kernels, "stored once"],
        "says": [_says(kernel) for kernel in [*kernels, "stored once"]],
        "entries": entries,
    }


def _formula(
    setting: Setting, kernel: str, L: int, S: int
) -> tuple[int, list[int]]:
    """Return operations, and the numbers moved, by formula."""
    D, is_causal = setting.D, setting.is_causal
    pairs = visible_keys(L, S, is_causal)
    sizes = {"L": L, "S": S, "D": D, "causal": is_causal}
    if kernel == "stored once":
        # q, k, v read once; scores written, read, weights written, read.
        return 4 * L * S * D, [(L + 2 * S) * D, 4 * L * S, L * D]
    if kernel == "three kernels":
        moved: dict[str, int] = {}
        for arrays in naive_forward_traffic(**sizes).values():
            for array, count in arrays.items():
                moved[array] = moved.get(array, 0) + sum(count)
        flops = 2 * pairs * D + 2 * L * S * D
    else:
        TILE_L, TILE_S = _tiles(kernel)
        traffic = flash_forward_traffic(**sizes, TILE_L=TILE_L, TILE_S=TILE_S)
        moved = {array: sum(count) for array, count in traffic.items()}
        flops = 4 * pairs * D
    groups = (
        ("query", "key", "value"),
        ("scores", "weights"),
        ("output", "log_sum_exp"),
    )
    return flops, [sum(moved.get(x, 0) for x in group) for group in groups]


def _says(kernel: str) -> str:
    """Describe a row of the ledger in a few words."""
    known = {
        "three kernels": "Three kernels that store scores and weights",
        "one thread": "One thread per query, nothing stored, nothing shared",
        "stored once": "A bound: scores stored, arrays moved once per pass",
    }
    return known.get(kernel) or f"Flash, {kernel} × {kernel.split()[1]}"


def _tiles(kernel: str) -> tuple[int, int]:
    """Return the tiles of a kernel; one thread per query has tiles of 1."""
    tile = 1 if kernel == "one thread" else int(kernel.removeprefix("tile "))
    return tile, tile


def _counted(
    setting: Setting, kernel: str, L: int, S: int, dtype: str, seed: int
) -> dict[str, Any]:
    """Record a kernel and count."""
    inputs = examples.example_qkv(1, 1, L, S, setting.D, seed=seed)
    q, k, v = (x.astype(dtype) for x in inputs)
    arguments = (q, k, v, setting.is_causal)
    if kernel == "three kernels":
        recordings = recorded.record_three_kernels(*arguments)
    elif kernel == "one thread":
        recordings = recorded.record_one_thread(*arguments)
    else:
        recordings = recorded.record_flash(*arguments, *_tiles(kernel))
    arrays = recorded.numbers_moved(recordings)
    groups = (recorded.INPUTS, recorded.SQUARE, recorded.RESULTS)
    return {
        "flops": recorded.product_flops(recordings),
        "moved": [sum(arrays.get(x, 0) for x in group) for group in groups],
        "bytes": recorded.bytes_moved(recordings),
    }


def _torch_flops(size: int, D: int) -> dict[str, int]:
    """Let torch count the two products of one head."""
    q, k, v = (torch.empty(1, 1, size, D, device="meta") for _ in "qkv")
    with FlopCounterMode(display=False) as counter:
        _attend(q, k, v)
    return {"torch": counter.get_total_flops(), "formula": 4 * size**2 * D}


def _attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Attend in plain operations, which torch can count."""
    return (q @ k.mT).softmax(-1) @ v
