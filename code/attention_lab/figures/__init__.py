"""Pictures drawn from the arrays of a run, each with a verdict that can fail.

Every `draw_*` takes data first and returns a `Picture`: static SVG that needs
no script, no style sheet and no network, in light and in dark, on a phone and
in print. A figure reads arrays and traces; it never runs a step itself.

Reading order: `picture` (what a figure is), `palette` and `marks` (what it is
made of), `live` and `interactive` (the figures a reader can walk through),
`explore` (controls of a live kernel), then one module per figure.
"""

from attention_lab.figures.attention_map import draw_attention_map
from attention_lab.figures.element_order import draw_element_order
from attention_lab.figures.explore import Explorer, explore
from attention_lab.figures.flash_frames import draw_flash_frames
from attention_lab.figures.flash_theatre import draw_flash_theatre
from attention_lab.figures.flash_theatre_backward import (
    draw_flash_theatre_backward,
)
from attention_lab.figures.flow_steps import draw_shape_flow
from attention_lab.figures.follow_element import draw_follow_element
from attention_lab.figures.head_board import draw_head_board
from attention_lab.figures.heatmap import draw_heatmap
from attention_lab.figures.kernel_lens import draw_kernel_lens
from attention_lab.figures.ledger import draw_ledger
from attention_lab.figures.live import LiveFigure, live
from attention_lab.figures.memory_strip import draw_memory_strip
from attention_lab.figures.packing_map import draw_packing
from attention_lab.figures.patch_ledger import draw_patch_ledger
from attention_lab.figures.patches import draw_patches
from attention_lab.figures.picture import Panel, Picture, Table, Verdict
from attention_lab.figures.qkv_map import draw_qkv_map
from attention_lab.figures.running_softmax import draw_running_softmax
from attention_lab.figures.running_trace import trace_of_row
from attention_lab.figures.saturation import draw_saturation
from attention_lab.figures.shape_boxes import draw_shapes
from attention_lab.figures.stage_card import draw_stage_card
from attention_lab.figures.tile_board import draw_tiles

__all__ = [
    "Explorer",
    "LiveFigure",
    "Panel",
    "Picture",
    "Table",
    "Verdict",
    "draw_attention_map",
    "draw_element_order",
    "draw_flash_frames",
    "draw_flash_theatre",
    "draw_flash_theatre_backward",
    "draw_follow_element",
    "draw_head_board",
    "draw_heatmap",
    "draw_kernel_lens",
    "draw_ledger",
    "draw_memory_strip",
    "draw_packing",
    "draw_patch_ledger",
    "draw_patches",
    "draw_qkv_map",
    "draw_running_softmax",
    "draw_saturation",
    "draw_shape_flow",
    "draw_shapes",
    "draw_stage_card",
    "draw_tiles",
    "explore",
    "live",
    "trace_of_row",
]
