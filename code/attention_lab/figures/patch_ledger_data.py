"""The data of a patch ledger, checked before anything is drawn from it.

The script in `interactive/patch_ledger.js` checks the same again, because a
live kernel may hand it other data.
"""

from collections.abc import Mapping
from typing import Any

from attention_lab.axes import ShapeMismatch
from attention_lab.figures.data import (
    as_array,
    as_number,
    as_sequence,
    as_text,
    as_whole,
    check_index,
    check_schema,
    check_size,
    read_field,
)

SCHEMA = "patch_ledger.v1"
UNITS = {"weights": 1000, "values": 100}
PATCHES, PIXELS, GREYS = 16, 64, 16
#: What a screen of 320 px shows legibly.
MOST_CHANNELS = 8


def read_ledger(recording: Any) -> dict[str, Any]:
    """Return a recording of `steps.patch_ledger`, or refuse it.

    Raises
    ------
    ShapeMismatch
        If a list has not as many numbers as there are patches and channels.
    ValueError
        If the schema is another one, nothing was run or the first run is wrong,
        a number is missing or NaN, or there are too many channels to draw.

    Examples
    --------
    >>> read_ledger({"schema": "patch_ledger.v0"})
    Traceback (most recent call last):
    ValueError: recording has schema 'patch_ledger.v0'; this figure draws \
'patch_ledger.v1'
    """
    check_schema(recording, SCHEMA)
    as_whole("recording.seed", read_field(recording, "seed", "recording"))
    as_text("recording.dtype", read_field(recording, "dtype", "recording"))
    units = read_field(recording, "units", "recording")
    if units != UNITS:
        raise ValueError(f"recording.units must be {UNITS}, not {units!r}")
    parts = {name: _list(recording, name) for name in ("digits", "sources")}
    for number, digit in enumerate(parts["digits"]):
        _check_digit(digit, f"recording.digits[{number}]")
    for number, source in enumerate(parts["sources"]):
        place = f"recording.sources[{number}]"
        _check_source(source, len(parts["digits"]), place)
    runs = _list(recording, "runs")
    for number, run in enumerate(runs):
        _check_run(run, parts["sources"], f"recording.runs[{number}]")
    if runs[0]["axis"] != "S":
        raise ValueError(
            "recording.runs[0] takes the softmax over the wrong axis; the "
            "first run must be a right one"
        )
    return dict(recording)


def _list(recording: Mapping[str, Any], name: str) -> list[Any]:
    parts = as_sequence(
        f"recording.{name}", read_field(recording, name, "recording"), "a list"
    )
    if not parts:
        raise ValueError(f"recording.{name} is empty: there is nothing to draw")
    return parts


def _check_digit(digit: Any, place: str) -> None:
    for name in ("index", "label"):
        as_whole(f"{place}.{name}", read_field(digit, name, place))
    pixels = _numbers(digit, "pixels", place, PIXELS, "an image has")
    if (
        pixels.dtype.kind not in "iu"
        or not 0 <= pixels.min() <= pixels.max() <= GREYS
    ):
        raise ValueError(f"{place}.pixels must be whole numbers 0 to {GREYS}")


def _check_source(source: Any, digits: int, place: str) -> None:
    digit = read_field(source, "digit", place)
    check_index(f"{place}.digit", digit, "digits", digits)
    for name in ("kind", "name"):
        as_text(f"{place}.{name}", read_field(source, name, place))
    head = read_field(source, "head", place)
    if head is not None:
        as_whole(f"{place}.head", head)
    D = as_whole(f"{place}.D", read_field(source, "D", place), least=1)
    check_size(place, "D", D, MOST_CHANNELS)
    what = f"{PATCHES} patches of {D} channels have"
    _numbers(source, "values", place, PATCHES * D, what)
    same = read_field(source, "same", place)
    if same is not None:
        for patch in as_sequence(f"{place}.same", same, "two patches", 2):
            check_index(f"{place}.same", patch, "S", PATCHES)


def _check_run(run: Any, sources: list[Any], place: str) -> None:
    source = read_field(run, "source", place)
    check_index(f"{place}.source", source, "sources", len(sources))
    as_number(
        f"{place}.temperature", read_field(run, "temperature", place), least=0
    )
    axis = read_field(run, "axis", place)
    if axis not in ("S", "L"):
        raise ValueError(f"{place}.axis must be 'S' or 'L', not {axis!r}")
    D = sources[source]["D"]
    what = f"{PATCHES} queries and {PATCHES} keys have"
    weights = _numbers(run, "weights", place, PATCHES**2, what)
    if weights.min() < 0 or weights.max() > 1000:
        raise ValueError(
            f"{place}.weights must be thousandths from 0 to 1000, but reach "
            f"from {weights.min()} to {weights.max()}"
        )
    _numbers(run, "sums", place, PATCHES, f"{PATCHES} queries have")
    what = f"{PATCHES} queries of {D} channels have"
    _numbers(run, "out", place, PATCHES * D, what)
    for check in ("sum", "output", "shuffle"):
        for kind in ("error", "bound"):
            name = f"{check}_{kind}"
            as_number(f"{place}.{name}", read_field(run, name, place), least=0)


def _numbers(part: Any, name: str, place: str, size: int, what: str) -> Any:
    """Return a list of so many finite numbers as an array, or refuse it."""
    array = as_array(f"{place}.{name}", read_field(part, name, place), axes="N")
    if array.size != size:
        raise ShapeMismatch(
            f"{place}.{name} has {array.size} numbers, but {what} {size}"
        )
    return array
