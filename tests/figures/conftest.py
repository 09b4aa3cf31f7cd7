"""What every figure's tests share: one picture of each, and what is sound.

A layout is data, so "nothing overlaps, nothing is cut, all text can be read"
is checked as numbers, with text measured as in a wide font.
"""

import itertools
import math

import numpy as np
import pytest
import torch

from attention_lab import figures
from attention_lab.figures.marks import Box, Label
from attention_lab.figures.palette import OPACITY, contrast
from attention_lab.shape_flow import trace_shapes
from attention_lab.steps.flash_theatre import record_theatre
from attention_lab.steps.flash_theatre_backward import (
    record_theatre_backward,
)
from attention_lab.steps.follow_element import record_chains
from attention_lab.steps.head_board import record_head_board
from attention_lab.steps.ledger import record_ledger
from attention_lab.steps.patch_ledger import record_patch_ledger
from attention_lab.steps.qkv_map import record_packing_map
from attention_lab.steps.saturation import record_saturation
from figures.live_figures import LIVE_FIGURES


def _problems(panel):
    """Yield what would look wrong in a panel."""
    labels = [mark for mark in panel.marks if isinstance(mark, Label)]
    for mark in panel.marks:
        left, top, right, bottom = mark.bounds
        inside = left >= -1 and top >= -1
        if not (
            inside and right <= panel.width + 1 and bottom <= panel.height + 1
        ):
            yield f"cut at the edge: {mark}"
    for one, other in itertools.combinations(labels, 2):
        if _overlap(one.bounds, other.bounds):
            yield f"{one.text!r} lies on {other.text!r}"
    for place, mark in enumerate(panel.marks):
        if not isinstance(mark, Label):
            continue
        if mark.size < 9:
            yield f"too small to read: {mark}"
        behind = [
            box
            for box in panel.marks[:place]
            if isinstance(box, Box)
            and box.fill
            and _overlap(box.bounds, mark.bounds)
        ]
        if mark.on is None and (behind or mark.color not in OPACITY):
            yield f"page ink on a coloured cell: {mark.text!r}"
        if mark.on is not None:
            if not behind or behind[-1].fill != mark.on:
                yield f"{mark.text!r} is not on {mark.on}"
            elif not _inside(mark.bounds, behind[-1].bounds):
                yield f"{mark.text!r} sticks out of its cell"
            if contrast(mark.color, mark.on) < 4.5:
                yield f"{mark.text!r} cannot be read on {mark.on}"


def _overlap(one, other):
    """Whether two boxes share more than a hair."""
    width = min(one[2], other[2]) - max(one[0], other[0])
    height = min(one[3], other[3]) - max(one[1], other[1])
    return width > 0.6 and height > 0.6


def _inside(inner, outer):
    """Whether one box lies in another, but for a hair."""
    left, top = inner[0] - outer[0], inner[1] - outer[1]
    right, bottom = outer[2] - inner[2], outer[3] - inner[3]
    return min(left, top, right, bottom) >= -0.6


@pytest.fixture(scope="session")
def problems():
    return lambda panels: [p for panel in panels for p in _problems(panel)]


@pytest.fixture(scope="session")
def texts():
    """All words written in panels, in the order drawn."""
    return lambda panels: [
        mark.text
        for panel in panels
        for mark in panel.marks
        if isinstance(mark, Label)
    ]


def softmax_trace(scores, values, tile, *, rescales=True):
    """Run a softmax tile by tile in float64; also the final row."""
    row_max, row_sum, acc = -math.inf, 0.0, np.zeros(values.shape[1])
    trace = []
    for start in range(0, scores.size, tile):
        part = scores[start : start + tile]
        new_max = max(row_max, float(part.max()))
        rescale = math.exp(row_max - new_max) if rescales else 1.0
        weights = np.exp(part - new_max)
        row_sum = row_sum * rescale + float(weights.sum())
        acc = acc * rescale + weights @ values[start : start + tile]
        row_max = new_max
        trace.append(
            {
                "scores": part,
                "row_max": row_max,
                "row_sum": row_sum,
                "rescale": rescale,
                "acc": acc,
            }
        )
    return trace, acc / row_sum


def softmax_row(scores, values):
    """The same row in one go."""
    weights = np.exp(scores - scores.max())
    return weights @ values / weights.sum()


def flash_trace(query, key, value, tile, keeps):
    """Run block 2 of the queries over all key tiles with a key to see."""
    row_max = np.full(len(query), -math.inf)
    row_sum, acc = np.zeros(len(query)), np.zeros((len(query), value.shape[1]))
    trace = []
    for start in range(0, len(key), tile):
        kept = keeps[:, start : start + tile]
        if not kept.any():
            continue
        scores = np.where(kept, query @ key[start : start + tile].T, -math.inf)
        new_max = np.maximum(row_max, scores.max(axis=1))
        rescale = np.exp(row_max - new_max)
        weights = np.exp(scores - new_max[:, None])
        row_sum = row_sum * rescale + weights.sum(axis=1)
        acc = acc * rescale[:, None] + weights @ value[start : start + tile]
        row_max = new_max
        trace.append(
            {
                "tile_row": 2,
                "tile_col": start // tile,
                "scores": scores[None, None],
                "row_max": row_max[None, None],
                "row_sum": row_sum[None, None],
                "rescale": rescale[None, None],
                "acc": acc[None, None],
            }
        )
    return trace


def packed_rows(order, heads, width):
    """The (p, h, d) of every row, by counting in the order named."""
    sizes = {"p": 3, "h": heads, "d": width}
    axes = order.split()
    return [
        [dict(zip(axes, count, strict=True))[axis] for axis in "phd"]
        for count in itertools.product(*(range(sizes[axis]) for axis in axes))
    ]


@pytest.fixture(scope="session")
def build():
    """The recipes above, by name."""
    return {
        "softmax_trace": softmax_trace,
        "softmax_row": softmax_row,
        "flash_trace": flash_trace,
        "packed_rows": packed_rows,
    }


def shape_flow_picture(x):
    """Trace and draw a head split and its merge."""

    def split_and_merge(x):
        heads = x.view(*x.shape[:2], 3, -1).transpose(1, 2)
        return heads.transpose(1, 2).flatten(2)

    x = torch.from_numpy(x)
    flow = trace_shapes(split_and_merge, x, letters={"x": "BLE", "H": 3})
    flow.verify(split="b l (h d) -> b h l d")
    return flow.draw()


@pytest.fixture(scope="session")
def theatre():
    """All recorded runs of the flash theatre; copy it before changing it."""
    return record_theatre()


@pytest.fixture(scope="session")
def theatre_backward():
    """All recorded ways back; copy the recording before changing it."""
    return record_theatre_backward()


@pytest.fixture(scope="session")
def chains():
    """All recorded chains of the element; copy it before changing it."""
    return record_chains()


@pytest.fixture(scope="session")
def patch_ledger():
    """All recorded runs of the patch ledger; copy it before changing it."""
    return record_patch_ledger()


@pytest.fixture(scope="session")
def ledger():
    """All entries of the ledger; copy it before changing it."""
    return record_ledger()


@pytest.fixture(scope="session")
def head_board():
    """All recorded runs of the head board; copy it before changing it."""
    return record_head_board()


@pytest.fixture(scope="session")
def packing_map():
    """All recorded runs of the packing map; copy it before changing it."""
    return record_packing_map()


@pytest.fixture(scope="session")
def saturation():
    """All widths and masks; copy it before changing it."""
    return record_saturation()


@pytest.fixture(scope="session")
def every_picture():
    """One picture of each kind, at sizes that are different primes."""
    rng = np.random.default_rng(0)
    B, H, L, S, D = 2, 3, 5, 7, 11
    q, k, v = (rng.normal(size=(B, H, n, D)) for n in (L, S, S))
    scores = q @ k.swapaxes(2, 3) / math.sqrt(D)
    weights = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    x = np.arange(B * L * H * D).reshape(B, L, H * D)
    heads = x.reshape(B, L, H, D).transpose(0, 2, 1, 3)
    row, values = rng.normal(size=17), rng.normal(size=(17, D))
    trace, final = softmax_trace(row, values, 4)
    query, keys = rng.normal(size=(4, D)), rng.normal(size=(17, D))
    causal = np.arange(17)[None, :] <= np.arange(8, 12)[:, None]
    image = rng.integers(0, 17, size=(8, 8))
    patches = image.reshape(4, 2, 4, 2).transpose(0, 2, 1, 3).reshape(16, 4)
    looks = rng.dirichlet(np.ones(16), size=(3, 16))
    trip = figures.Verdict("round trip", True, "0 moved", "exact", "a test")
    return {
        "shapes": figures.draw_shapes(
            q_BHLD=q, k_BHSD=k, scores_BHLS=scores, out_BHLD=weights @ v,
            steps=["q kᵀ / √D", "softmax(scores) v"],
        ),
        "order": figures.draw_element_order(x, heads, x.reshape(B, H, L, D)),
        "strip": figures.draw_memory_strip(x, heads, head=1),
        "packing": figures.draw_packing(
            {o: packed_rows(o, H, D) for o in ("p h d", "h p d", "h d p")},
            verdicts=[trip],
        ),
        "running": figures.draw_running_softmax(
            trace, output=final, reference=softmax_row(row, values),
            tolerance=1e-12, provenance="a test",
        ),
        "tiles": figures.draw_tiles(
            13, 17, 4, 4, [(i, j) for i in range(4) for j in range(i + 1)],
            kept=np.tri(13, 17, dtype=bool),
        ),
        "flash": figures.draw_flash_frames(
            flash_trace(query, keys, values, 4, causal), S=17, TILE_L=4,
            TILE_S=4, tile_row=2, output_error=2e-16, lse_error=0.0,
            tolerance=1e-12, provenance="a test",
        ),
        **{name: e.make().picture for name, e in LIVE_FIGURES.items()},
        "map": figures.draw_attention_map(image, looks, query=6),
        "flow": shape_flow_picture(x),
        "heatmap": figures.draw_heatmap(weights[0, 0]),
        "patches": figures.draw_patches(image, patches),
    }  # fmt: skip
