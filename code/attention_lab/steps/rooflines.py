"""What may a device reach, and what did it? Roofs by datasheet, and points.

A device computes at most as fast as its arithmetic, and at most as fast as its
memory delivers: the roofline. The roofs here come from datasheets and are
bounds; only stored points are measurements.

Source: Williams, Waterman and Patterson 2009, "Roofline", section 3.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

POINTS_SCHEMA = "attention_points.v1"
#: Numbers are kept to this many decimals.
DECIMALS = 4
#: In which a recording may compute, and bytes per number.
DTYPES = (("float32", 4), ("float64", 8))


class Device(NamedTuple):
    """A datasheet: TB/s, and TFLOP/s without tensor cores, by `DTYPES`."""

    name: str
    bandwidth: float
    peak: tuple[float, float]
    source: str


DEVICES = (
    Device(
        "T4", 0.32, (8.1, 0.253125),
        "NVIDIA T4 datasheet; float64 at 1/32 of float32, Turing whitepaper",
    ),
    Device("A100", 1.555, (19.5, 9.7), "NVIDIA A100 whitepaper, SXM4 40 GB"),
    Device("H100", 3.35, (67.0, 34.0), "NVIDIA H100 datasheet, SXM"),
    Device("H200", 4.8, (67.0, 34.0), "NVIDIA H200 datasheet, SXM"),
)  # fmt: skip


def roof(device: Device, peak: float) -> list[list[float]]:
    """Return a roof from 0.1 to 1000 FLOP per byte, as three points.

    Examples
    --------
    >>> roof(Device("T", 0.5, (10.0, 1.0), "made up"), 10.0)
    [[0.1, 0.05], [20.0, 10.0], [1000, 10.0]]
    """
    ridge = peak / device.bandwidth
    corners = [[0.1, 0.1 * device.bandwidth], [ridge, peak], [1000, peak]]
    return [[round(x, DECIMALS) for x in corner] for corner in corners]


def stored_points(folder: Path | str) -> list[dict[str, Any]]:
    """Read measured points from the JSON files of a folder.

    A file of schema "attention_points.v1" holds `points`, each with `name`,
    `device`, `dtype`, `flops` and `bytes` of one call, and `time_ms`, a list of
    measured times. Files of other schemas are passed over.

    Raises
    ------
    ValueError
        If a file is no JSON; names it.
    """
    points = []
    for path in sorted(Path(folder).glob("*.json")):
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path.name} is no JSON: {error}") from error
        if isinstance(data, dict) and data.get("schema") == POINTS_SCHEMA:
            points += data["points"]
    return points


def place_point(
    point: Mapping[str, Any], devices: Sequence[Device]
) -> dict[str, Any]:
    """Turn one measurement into a place on the roofline, with its spread.

    Raises
    ------
    ValueError
        If its device or dtype is not listed, or it has no time above 0.
    """
    known = [device.name for device in devices]
    names = [name for name, _ in DTYPES]
    for field, choices in (("device", known), ("dtype", names)):
        if point[field] not in choices:
            raise ValueError(
                f"points: {point['name']!r} is of {field} {point[field]!r}; "
                f"there are {', '.join(choices)}"
            )
    times = sorted(point["time_ms"])
    if not times or times[0] <= 0:
        raise ValueError(f"points: {point['name']!r} has no time above 0 ms")
    speeds = [point["flops"] / time / 1e9 for time in times]
    return {
        "name": point["name"],
        "device": point["device"],
        "dtype": point["dtype"],
        "intensity": round(point["flops"] / point["bytes"], DECIMALS),
        "tflops": round(speeds[len(times) // 2], DECIMALS),
        "low": round(speeds[-1], DECIMALS),
        "high": round(speeds[0], DECIMALS),
    }
