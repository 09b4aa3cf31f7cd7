"""The data of a saturation figure, checked before anything is drawn from it.

The script `interactive/saturation.js` checks the same again, because a live
kernel may hand it other data.
"""

from collections.abc import Mapping
from typing import Any

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_number,
    as_sequence,
    as_text,
    as_whole,
    check_schema,
    check_size,
    read_field,
)

SCHEMA = "saturation.v1"
#: What a screen of 320 px shows legibly.
MOST_WIDTHS, MOST_ROWS, MOST_KEYS = 6, 7, 7
_NUMBERS = ("std", "ratio", "tolerance", "entropy", "gradient")
_ERRORS = (
    "output_error", "sdpa_error", "output_bound", "grad_error", "grad_bound",
)  # fmt: skip


def read_saturation(recording: Any) -> dict[str, Any]:
    """Return what `steps.saturation.record_saturation` made, or refuse it.

    Raises
    ------
    ShapeMismatch
        If a list has not one entry per width, bar, query or key.
    ValueError
        If the schema is another one, there is nothing to draw or too much, or
        a number is missing, negative or NaN; names the place.

    Examples
    --------
    >>> read_saturation({"schema": "saturation.v0"})
    Traceback (most recent call last):
    ValueError: recording has schema 'saturation.v0'; this figure draws \
'saturation.v1'
    """
    check_schema(recording, SCHEMA)
    for field in ("end", "even"):
        name = f"recording.{field}"
        as_number(name, read_field(recording, field, "recording"), least=0)
    for field in ("seed", "L", "S"):
        as_whole(
            f"recording.{field}", read_field(recording, field, "recording")
        )
    widths = _parts(recording, "widths")
    check_size("recording.widths", "D", len(widths), MOST_WIDTHS)
    for number, D in enumerate(widths):
        as_whole(f"recording.widths[{number}]", D, least=1)
    runs = _parts(recording, "runs")
    _same("recording.runs", len(runs), 2, "with and without the factor")
    for number, row in enumerate(runs):
        place = f"recording.runs[{number}]"
        _same(place, len(row), len(widths), "one per width")
        for column, run in enumerate(row):
            _check_run(run, f"{place}[{column}]", recording)
    L, S, _ = as_sequence(
        "recording.mask_sizes",
        read_field(recording, "mask_sizes", "recording"),
        "a list of L, S and D",
        3,
    )
    check_size("recording.mask_sizes", "L", L, MOST_ROWS)
    check_size("recording.mask_sizes", "S", S, MOST_KEYS)
    for number, mask in enumerate(_parts(recording, "masks")):
        _check_mask(mask, f"recording.masks[{number}]", L, S)
    return dict(recording)


def _check_run(run: Any, place: str, recording: Mapping[str, Any]) -> None:
    """Refuse a run without a number, or with bars that lose a score."""
    for field in _NUMBERS:
        as_number(f"{place}.{field}", read_field(run, field, place), least=0)
    counts = read_field(run, "counts", place)
    scores = recording["L"] * recording["S"]
    total = sum(as_whole(f"{place}.counts", count) for count in counts)
    if total != scores:
        raise ShapeMismatch(
            f"{place}.counts has {total} scores, but L·S is {scores}"
        )
    for weight in read_field(run, "weights", place):
        as_number(f"{place}.weights", weight, least=0)


def _check_mask(mask: Any, place: str, L: int, S: int) -> None:
    """Refuse a mask without a number; None stands for NaN."""
    as_text(f"{place}.name", read_field(mask, "name", place))
    keep = read_field(mask, "keep", place)
    _same(f"{place}.keep", len(keep), L * S, "L·S")
    for name in ("ours", "plain"):
        half = read_field(mask, name, place)
        for field, size in (("weights", L * S), ("grads", S)):
            numbers = read_field(half, field, f"{place}.{name}")
            where = f"{place}.{name}.{field}"
            _same(where, len(numbers), size, "one per key")
            for number in numbers:
                if number is not None:
                    as_number(where, number, least=0)
    for field in _ERRORS:
        as_number(f"{place}.{field}", read_field(mask, field, place), least=0)


def _parts(recording: Mapping[str, Any], field: str) -> list[Any]:
    """Return a list that must not be empty."""
    name = f"recording.{field}"
    parts = as_sequence(
        name, read_field(recording, field, "recording"), "a list"
    )
    if not parts:
        raise ValueError(f"{name} is empty: there is nothing to draw")
    return parts


def _same(name: str, size: int, wanted: int, what: str) -> None:
    if size != wanted:
        raise ShapeMismatch(
            f"{name} has {size} entries, but needs {wanted}, {what}"
        )
