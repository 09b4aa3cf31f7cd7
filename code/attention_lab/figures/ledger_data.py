"""The data of a ledger, checked before anything is drawn from it.

The script `interactive/ledger.js` checks the same again, because a live kernel
may hand it other data.
"""

from typing import Any

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_array,
    as_number,
    as_sequence,
    as_text,
    as_whole,
    check_schema,
    check_size,
    read_field,
)

SCHEMA = "ledger.v1"
#: What a screen of 320 px shows legibly.
MOST_KERNELS, MOST_COLUMNS = 8, 4


def read_ledger(ledger: Any) -> dict[str, Any]:
    """Return what `steps.ledger.record_ledger` made, or refuse it.

    Raises
    ------
    ShapeMismatch
        If a list has not one entry per kernel, column, device or dtype.
    ValueError
        If the schema is another one, a table is empty or too large to draw,
        or a number is missing, negative or NaN; names the place.

    Examples
    --------
    >>> read_ledger({"schema": "ledger.v0"})
    Traceback (most recent call last):
    ValueError: ledger has schema 'ledger.v0'; this figure draws 'ledger.v1'
    """
    check_schema(ledger, SCHEMA, "ledger")
    dtypes = _parts(ledger, "dtypes", "ledger")
    devices = _parts(ledger, "devices", "ledger")
    for place, dtype in dtypes:
        as_text(f"{place}.name", read_field(dtype, "name", place))
        as_whole(f"{place}.bytes", read_field(dtype, "bytes", place), least=1)
    for place, device in devices:
        for word in ("name", "source"):
            as_text(f"{place}.{word}", read_field(device, word, place))
        _positive(f"{place}.bandwidth", read_field(device, "bandwidth", place))
        _numbers(f"{place}.peak", read_field(device, "peak", place), dtypes)
        roofs = read_field(device, "roof", place)
        _same(f"{place}.roof", len(roofs), len(dtypes))
        for roof in roofs:
            as_array(f"{place}.roof", roof, axes="NP")
    for place, setting in _parts(ledger, "settings", "ledger"):
        _check_setting(setting, place, devices, dtypes)
    paper = read_field(ledger, "paper", "ledger")
    _positive(
        "ledger.paper.last_digit", read_field(paper, "last_digit", "paper")
    )
    for place, row in _parts(paper, "rows", "ledger.paper"):
        for field in ("printed", "counted"):
            _positive(f"{place}.{field}", read_field(row, field, place))
    points = read_field(ledger, "points", "ledger")
    for number, point in enumerate(points):
        place = f"ledger.points[{number}]"
        for field in ("intensity", "tflops", "low", "high"):
            _positive(f"{place}.{field}", read_field(point, field, place))
    return dict(ledger)


def _check_setting(
    setting: Any, place: str, devices: list[Any], dtypes: list[Any]
) -> None:
    """Refuse a table with a missing entry, or a number that is none."""
    as_text(f"{place}.name", read_field(setting, "name", place))
    as_whole(f"{place}.D", read_field(setting, "D", place), least=1)
    kernels = _parts(setting, "kernels", place)
    columns = _parts(setting, "S", place)
    check_size(place, "kernels", len(kernels), MOST_KERNELS)
    check_size(place, "S", len(columns), MOST_COLUMNS)
    rows = _parts(setting, "entries", place)
    _same(f"{place}.says", len(_parts(setting, "says", place)), len(kernels))
    _same(f"{place}.entries", len(rows), len(kernels))
    for row_place, row in rows:
        _same(row_place, len(row), len(columns))
        for column, entry in enumerate(row):
            where = f"{row_place}[{column}]"
            _check_counts(entry, where)
            _numbers(
                f"{where}.intensity",
                read_field(entry, "intensity", where),
                dtypes,
            )
            attainable = read_field(entry, "attainable", where)
            _same(f"{where}.attainable", len(attainable), len(devices))
            for device, speeds in enumerate(attainable):
                _numbers(f"{where}.attainable[{device}]", speeds, dtypes)
            counted = read_field(entry, "counted", where)
            _same(f"{where}.counted", len(counted), len(dtypes))
            for dtype, count in enumerate(counted):
                if count is not None:
                    spot = f"{where}.counted[{dtype}]"
                    _check_counts(count, spot)
                    as_whole(f"{spot}.bytes", read_field(count, "bytes", spot))


def _check_counts(entry: Any, place: str) -> None:
    """Refuse operations or numbers moved that are no whole numbers."""
    as_whole(f"{place}.flops", read_field(entry, "flops", place), least=1)
    moved = read_field(entry, "moved", place)
    _same(f"{place}.moved", len(moved), 3)
    for count in moved:
        as_whole(f"{place}.moved", count)


def _parts(holder: Any, field: str, place: str) -> list[tuple[str, Any]]:
    """Return the places and parts of a list that must not be empty."""
    name = f"{place}.{field}"
    parts = as_sequence(name, read_field(holder, field, place), "a list")
    if not parts:
        raise ValueError(f"{name} is empty: there is nothing to draw")
    return [(f"{name}[{n}]", part) for n, part in enumerate(parts)]


def _numbers(name: str, numbers: Any, like: list[Any]) -> None:
    """Refuse a list without one number above 0 for each of `like`."""
    _same(name, len(as_sequence(name, numbers, "a list")), len(like))
    for number in numbers:
        _positive(name, number)


def _positive(name: str, value: Any) -> None:
    if as_number(name, value, least=0) == 0:
        raise ValueError(f"{name} is 0, but must be above it")


def _same(name: str, size: int, wanted: int) -> None:
    if size != wanted:
        raise ShapeMismatch(f"{name} has {size} entries, but needs {wanted}")
