import re
from xml.etree import ElementTree

import pytest

from attention_lab import figures
from attention_lab.figures.marks import Box, Label
from figures.live_figures import LIVE_FIGURES

NAMES = [
    "shapes", "order", "strip", "packing", "running", "tiles", "flash", "map",
    "heatmap", "patches", "flow", *LIVE_FIGURES,
]  # fmt: skip


def test_no_figure_is_forgotten_here(every_picture):
    public = [name for name in figures.__all__ if name.startswith("draw_")]
    assert len(public) == len(every_picture) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_overlaps_is_cut_or_cannot_be_read(
    name, every_picture, problems
):
    assert problems(every_picture[name].panels) == []


@pytest.mark.parametrize("name", NAMES)
def test_html_is_well_formed_and_self_contained(name, every_picture):
    page = every_picture[name]._repr_html_()
    root = ElementTree.fromstring(page)
    assert root.tag == "figure"
    assert not re.search(r"\s(id|src|href|onload)=|<script|<style|<link", page)
    assert page.count('role="img" aria-label') >= len(
        every_picture[name].panels
    )
    assert len(page) < 130_000


@pytest.mark.parametrize("name", [n for n in NAMES if n != "order"])
def test_right_data_pass_every_verdict(name, every_picture):
    assert every_picture[name].passed, every_picture[name]


@pytest.mark.parametrize("name", NAMES)
def test_titles_and_findings_are_sentences(name, every_picture):
    drawn = every_picture[name]
    assert drawn.finding.endswith(".")
    assert drawn.alt.endswith(".")
    assert not drawn.title.endswith(".")


def word(x, **style):
    return Label(x, 10, "word", **style)


@pytest.mark.parametrize(
    ("marks", "problem"),
    [
        ([word(30), word(34)], "lies on"),
        ([word(8)], "cut at the edge"),
        ([word(30, size=7)], "too small"),
        ([Box(0, 0, 60, 20, fill="#ffffff"), word(30)], "page ink"),
        ([word(30, on="#ffffff", color="#000000")], "is not on"),
        (
            [
                Box(0, 0, 60, 20, fill="#777777"),
                word(30, on="#777777", color="#ffffff"),
            ],
            "cannot be read",
        ),
        (
            [
                Box(20, 0, 20, 20, fill="#ffffff"),
                word(30, on="#ffffff", color="#000000"),
            ],
            "sticks out",
        ),
    ],
)
def test_each_check_of_a_layout_can_fail(marks, problem, problems):
    panel = figures.Panel(60, 20, tuple(marks), "planted")
    assert any(problem in found for found in problems([panel]))
