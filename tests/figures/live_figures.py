"""Every interactive figure, with what it must refuse.

The checks that all of them pass alike are in tests/browser/every_figure.mjs;
a new figure joins them by an entry here.
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from attention_lab.figures import (
    draw_flash_theatre,
    draw_follow_element,
    draw_ledger,
    draw_saturation,
)
from attention_lab.figures.live import LiveFigure
from attention_lab.steps.flash_theatre import record_theatre
from attention_lab.steps.follow_element import record_chains
from attention_lab.steps.ledger import record_ledger
from attention_lab.steps.saturation import record_saturation


@dataclass(frozen=True)
class Example:
    """A figure as its page shows it, and states that it must refuse.

    make : returns the figure; called once.
    bad : name of a fault → how to spoil the state in place, and words of the
        sentence that must stand in the figure's place.
    """

    make: Callable[[], LiveFigure]
    bad: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = field(
        default_factory=dict
    )


LIVE_FIGURES = {
    "flash_theatre": Example(
        functools.cache(lambda: draw_flash_theatre(record_theatre())),
        bad={
            "schema": (lambda s: s.update(schema="flash_theatre.v9"), "v9"),
            "empty": (lambda s: s.update(runs=[]), "no right run"),
            "text": (
                lambda s: s["runs"][0]["acc"][1].__setitem__(2, "much"),
                "what is not a number",
            ),
            "large": (
                lambda s: s["runs"][0].update(TILE_L=512),
                "TILE_L = 512",
            ),
        },
    ),
    "follow_element": Example(
        functools.cache(lambda: draw_follow_element(record_chains())),
        bad={
            "schema": (lambda s: s.update(schema="follow_element.v9"), "v9"),
            "empty": (lambda s: s.update(chains=[]), "holds no chain"),
            "stepless": (
                lambda s: s["chains"][0].update(steps=[]),
                "has no step",
            ),
            "code": (
                lambda s: s["chains"][1]["steps"][1]["codes"].append(1.5),
                "holds what is no element",
            ),
            "few": (
                lambda s: s["chains"][1]["steps"][1]["codes"].pop(),
                "has 23 elements, not 24",
            ),
            "large": (
                lambda s: s["inputs"]["x"].update(names=["0"] * 512),
                "512 elements; at most 96",
            ),
        },
    ),
    "ledger": Example(
        functools.cache(lambda: draw_ledger(record_ledger())),
        bad={
            "schema": (lambda s: s.update(schema="ledger.v9"), "v9"),
            "empty": (lambda s: s.update(settings=[]), "is empty"),
            "text": (
                lambda s: s["settings"][1]["entries"][0][2].update(flops="9"),
                "has 335 numbers, not 336",
            ),
            "short": (
                lambda s: s["settings"][0]["entries"].pop(),
                "has 280 numbers, not 336",
            ),
            "large": (
                lambda s: s["settings"][0]["S"].extend([5, 6]),
                "has size 6; at most 4",
            ),
        },
    ),
    "saturation": Example(
        functools.cache(lambda: draw_saturation(record_saturation())),
        bad={
            "schema": (lambda s: s.update(schema="saturation.v9"), "v9"),
            "empty": (lambda s: s.update(runs=[]), "recording is empty"),
            "text": (
                lambda s: s["runs"][1][2].update(entropy="low"),
                "D 16, raw has 43 numbers, not 44",
            ),
            "short": (
                lambda s: s["masks"][4]["keep"].pop(),
                "causal, upper left has 69 numbers, not 70",
            ),
            "large": (
                lambda s: s["mask_sizes"].__setitem__(1, 64),
                "axis S has size 64; at most 7",
            ),
        },
    ),
}
