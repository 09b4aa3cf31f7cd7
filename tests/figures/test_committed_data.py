"""The committed recordings are what the code records, and stay mere text."""

import copy
import platform

import pytest

import figure_data
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
from attention_lab.steps.stage_run import STAGES
from figures.live_figures import recorded

DRAW = {
    "flash_theatre": draw_flash_theatre,
    "flash_theatre_backward": draw_flash_theatre_backward,
    "follow_element": draw_follow_element,
    "head_board": draw_head_board,
    "kernel_lens": lambda data: draw_kernel_lens(data["32 keys × 1 query"]),
    "ledger": draw_ledger,
    "packing_map": draw_qkv_map,
    "patch_ledger": draw_patch_ledger,
    "saturation": draw_saturation,
    "stage_flash_forward": draw_stage_card,
}
FILES = {path.stem for path in figure_data.COMMITTED.iterdir()}
TAGS = ("<img", '<b class="planted"', "<script>")
MARKUP = (
    '<img src=x onerror=hit()><b class="planted">b</b><script>hit()</script>'
)


@pytest.mark.slow("records every figure again")
@pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"),
    reason="the committed data were recorded with x86-64 instructions",
)
def test_committed_data_are_recorded_again_byte_for_byte(capsys):
    assert figure_data.main(["--check"]) == 0, capsys.readouterr().out


def test_stale_missing_and_unknown_files_are_named(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        (folder / "same.json").write_text("{}\n")
    (old / "gone.json").write_text("{}")
    (new / "fresh.json").write_text("{}")
    (old / "moved.json").write_text('{\n"a":1.25\n}\n')
    (new / "moved.json").write_text('{\n"a":1.26\n}\n')
    fresh, gone, moved = sorted(figure_data.stale(new, old))
    assert fresh == "fresh.json: is not committed"
    assert gone == "gone.json: no figure records it"
    assert moved.startswith("moved.json: line 2, character 8: committed ")
    assert "1.25" in moved
    assert "1.26" in moved


def plant(data):
    """Yield data with markup in one string, one of each kind."""
    kinds = {}

    def visit(value, path):
        if isinstance(value, str):
            kind = tuple("*" if isinstance(key, int) else key for key in path)
            kinds[kind] = path
        elif isinstance(value, list):
            for place, item in enumerate(value):
                visit(item, (*path, place))
        elif isinstance(value, dict):
            for key, item in value.items():
                visit(item, (*path, key))

    visit(data, ())
    for kind, (*path, last) in kinds.items():
        planted = copy.deepcopy(data)
        owner = planted
        for key in path:
            owner = owner[key]
        owner[last] += MARKUP
        yield ".".join(kind), planted


def test_every_figure_has_a_committed_recording():
    stages = {f"stage_{stage}" for stage in STAGES}
    assert DRAW.keys() - {"stage_flash_forward"} | stages == FILES


@pytest.mark.parametrize("name", DRAW)
def test_markup_in_the_data_is_shown_as_text_or_refused(name):
    draw = DRAW[name]
    shown = 0
    for kind, planted in plant(recorded(name)):
        if name == "kernel_lens" and "32 keys × 1 query" not in kind:
            continue
        try:
            page = draw(planted)._repr_html_()
        except ValueError:
            continue
        for tag in TAGS:
            assert tag not in page, (kind, tag)
        shown += "hit()" in page
    assert shown
