"""Every interactive figure, with what it must refuse.

The checks that all of them pass alike are in tests/browser/every_figure.mjs;
a new figure joins them by an entry here.
"""

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from attention_lab.figures import (
    draw_flash_theatre,
    draw_flash_theatre_backward,
    draw_follow_element,
    draw_head_board,
    draw_kernel_lens,
    draw_ledger,
    draw_patch_ledger,
    draw_qkv_map,
    draw_saturation,
    draw_stage_card,
)
from attention_lab.figures.live import LiveFigure
from figure_data import COMMITTED
from figures.lens_kernels import record_lens_kernels


def recorded(name: str) -> dict[str, Any]:
    """Return a committed recording; tools/figure_data.py keeps them fresh."""
    path = COMMITTED / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8"))


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
        functools.cache(lambda: draw_flash_theatre(recorded("flash_theatre"))),
        bad={
            "schema": (lambda s: s.update(schema="flash_theatre.v9"), "v9"),
            "empty": (lambda s: s.update(runs=[]), "holds no run"),
            "text": (
                lambda s: s["runs"][0]["acc"][1].__setitem__(2, "much"),
                "what is not a number",
            ),
            "large": (
                lambda s: s["runs"][0].update(TILE_L=512),
                "axis TILE_L has size 512",
            ),
        },
    ),
    "flash_theatre_backward": Example(
        functools.cache(
            lambda: draw_flash_theatre_backward(
                recorded("flash_theatre_backward")
            )
        ),
        bad={
            "schema": (lambda s: s.update(schema="flash_theatre.v1"), "v1"),
            "empty": (lambda s: s.update(runs=[]), "holds no run"),
            "alone": (lambda s: s["runs"].pop(0), "has no right loop"),
            "text": (
                lambda s: s["runs"][0]["dk"][1].__setitem__(2, "much"),
                "dk of tile 2 in the run 12 × 12, tiles 4 × 4 holds what is "
                "not a number",
            ),
            "short": (
                lambda s: s["runs"][1]["d_scores"][0].pop(),
                "has 15 numbers, not 16",
            ),
            "large": (lambda s: s.update(D=64), "axis D has size 64"),
        },
    ),
    "follow_element": Example(
        functools.cache(
            lambda: draw_follow_element(recorded("follow_element"))
        ),
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
    "patch_ledger": Example(
        functools.cache(lambda: draw_patch_ledger(recorded("patch_ledger"))),
        bad={
            "schema": (lambda s: s.update(schema="patch_ledger.v9"), "v9"),
            "empty": (lambda s: s.update(runs=[]), "no run"),
            "wrong": (
                lambda s: s["runs"][0].update(axis="L"),
                "not a right one",
            ),
            "text": (
                lambda s: s["runs"][1]["weights"].__setitem__(2, "much"),
                "what is not a number",
            ),
            "large": (
                lambda s: s["sources"][1].update(D=64),
                "axis D has size 64; at most 8",
            ),
        },
    ),
    "kernel_lens": Example(
        functools.cache(
            lambda: draw_kernel_lens(record_lens_kernels(), planted="without")
        ),
        bad={
            "schema": (lambda s: s.update(schema="kernel_lens.v9"), "v9"),
            "empty": (lambda s: s.update(versions=[]), "needs versions"),
            "recording": (
                lambda s: s["versions"][1]["recording"].pop("events"),
                "needs accesses by request, not by undefined",
            ),
            "short": (
                lambda s: s["versions"][0]["recording"]["events"]["data"][
                    2
                ].pop(),
                "site has 7 rows, not 8",
            ),
            "text": (
                lambda s: s["versions"][0]["recording"]["events"]["data"][
                    4
                ].__setitem__(1, ["many", 1, 1]),
                "elements holds what is not a whole number",
            ),
            "large": (
                lambda s: s["versions"][2]["recording"].update(
                    block=[16, 16, 1]
                ),
                "a block of add rows has 256 threads; at most 128",
            ),
        },
    ),
    "stage_card": Example(
        functools.cache(
            lambda: draw_stage_card(recorded("stage_flash_forward"))
        ),
        bad={
            "schema": (lambda s: s.update(schema="stage_card.v9"), "v9"),
            "empty": (lambda s: s.update(kernels=[]), "needs kernels"),
            "recording": (
                lambda s: s["kernels"][0]["recording"].update(schema="v7"),
                "needs a recording.v1, not v7",
            ),
            "short": (
                lambda s: s["kernels"][0]["recording"]["events"]["data"][
                    1
                ].pop(),
                "epoch has 115 rows, not 116",
            ),
            "source": (
                lambda s: s["kernels"][0].update(source=[[1, "def f():"]]),
                "flash_kernel visits a line that it does not list",
            ),
        },
    ),
    "head_board": Example(
        functools.cache(lambda: draw_head_board(recorded("head_board"))),
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
        functools.cache(lambda: draw_qkv_map(recorded("packing_map"))),
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
    "ledger": Example(
        functools.cache(lambda: draw_ledger(recorded("ledger"))),
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
        functools.cache(lambda: draw_saturation(recorded("saturation"))),
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
