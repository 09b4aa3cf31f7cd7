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
    draw_head_board,
    draw_qkv_map,
)
from attention_lab.figures.live import LiveFigure
from attention_lab.steps.flash_theatre import record_theatre
from attention_lab.steps.follow_element import record_chains
from attention_lab.steps.head_board import record_head_board
from attention_lab.steps.qkv_map import record_packing_map


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
    "head_board": Example(
        functools.cache(lambda: draw_head_board(record_head_board())),
        bad={
            "schema": (lambda s: s.update(schema="head_board.v9"), "v9"),
            "empty": (lambda s: s.update(runs=[]), "holds no run"),
            "text": (
                lambda s: s["runs"][1]["out"].__setitem__(2, "much"),
                "out of 1 head holds what is not a number",
            ),
            "short": (
                lambda s: s["runs"][0]["off"][3]["wrong_out"].pop(),
                "wrong_out of 4 heads has 39 numbers, not 40",
            ),
            "heads": (
                lambda s: s["runs"][0]["off"].pop(),
                "out of 4 heads has no numbers",
            ),
            "large": (lambda s: s.update(E=64), "axis E has size 64"),
        },
    ),
    "packing_map": Example(
        functools.cache(lambda: draw_qkv_map(record_packing_map())),
        bad={
            "schema": (lambda s: s.update(schema="packing_map.v9"), "v9"),
            "empty": (lambda s: s.update(runs=[]), "holds no run"),
            "text": (
                lambda s: s["runs"][0]["layouts"]["h p d"].__setitem__(2, "q"),
                "layout (h p d) of 4 heads holds what is not a number",
            ),
            "short": (
                lambda s: s["runs"][3]["layouts"]["g p d"].pop(),
                "of 4 heads, 2 key heads has 15 numbers, not 16",
            ),
            "large": (lambda s: s.update(E=64), "axis E has size 64"),
        },
    ),
}
