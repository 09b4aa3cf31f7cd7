import re
import subprocess
import sys
from xml.etree import ElementTree

import pytest

from attention_lab.figures import Panel, Picture, Table, Verdict
from attention_lab.figures.marks import Box, Label, Stroke
from attention_lab.figures.svg import render_svg

EVIL = '<script>alert("1")</script> & \x00 $x_1$'
PANEL = Panel(40, 20, (Label(20, 10, "text"),), "one word")
HOLDS = Verdict("sum", True, "0", "exact", "a test")
FAILS = Verdict("sum", False, "3", "≤ 1", "a test")


def picture(**changes):
    parts = {
        "panels": [PANEL],
        "title": "A title",
        "alt": "What it shows.",
        "finding": "What to see.",
        "verdicts": [HOLDS],
    }
    return Picture(**{**parts, **changes})


def test_a_picture_without_a_verdict_cannot_be_made():
    with pytest.raises(ValueError, match="verdicts"):
        picture(verdicts=[])


def test_a_picture_without_panels_cannot_be_made():
    with pytest.raises(ValueError, match="panels"):
        picture(panels=[])


@pytest.mark.parametrize("name", ["title", "alt", "finding"])
def test_a_picture_says_everything_in_words_too(name):
    with pytest.raises(ValueError, match=name):
        picture(**{name: "  "})


def test_a_panel_is_never_wider_than_a_phone():
    with pytest.raises(ValueError, match="at most 300 px wide, not 301"):
        Panel(301, 20, PANEL.marks, "wide")


@pytest.mark.parametrize(
    ("marks", "alt", "name"), [((), "a", "marks"), (PANEL.marks, " ", "alt")]
)
def test_a_panel_is_neither_empty_nor_undescribed(marks, alt, name):
    with pytest.raises(ValueError, match=name):
        Panel(40, 20, marks, alt)


@pytest.mark.parametrize("name", ["label", "value", "tolerance", "provenance"])
@pytest.mark.parametrize("text", ["", " ", None, 3])
def test_a_verdict_says_everything_it_must(name, text):
    parts = dict.fromkeys(("label", "value", "tolerance", "provenance"), "x")
    with pytest.raises(ValueError, match=f"{name} must be text"):
        Verdict(**{**parts, name: text}, passed=True)


@pytest.mark.parametrize("passed", [None, "no", 0])
def test_a_verdict_passed_or_did_not(passed):
    with pytest.raises(ValueError, match="passed must be True or False"):
        Verdict("sum", passed, "0", "exact", "a test")


@pytest.mark.parametrize(
    ("name", "value"),
    [("panels", None), ("panels", [3]), ("panels", PANEL), ("verdicts", None),
     ("verdicts", ["ok"]), ("verdicts", HOLDS), ("table", "numbers"),
     ("title", None), ("title", 3), ("finding", 3)],
)  # fmt: skip
def test_a_picture_is_made_of_its_own_parts_only(name, value):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        picture(**{name: value})


@pytest.mark.parametrize(
    ("parts", "name"),
    [((40, 20, [3], "x"), "marks"), ((40, 20, None, "x"), "marks"),
     ((None, 20, PANEL.marks, "x"), "width"),
     ((40, "a", PANEL.marks, "x"), "height"),
     ((40, 20, PANEL.marks, None), "alt")],
)  # fmt: skip
def test_a_panel_is_made_of_its_own_parts_only(parts, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        Panel(*parts)


@pytest.mark.parametrize(
    ("parts", "name"),
    [((None, ("a",), ()), "summary"), (("x", "ab", ()), "head"),
     (("x", ("a",), None), "rows"),
     (("x", ("a",), (("1", "2"),)), r"rows\[0\]"),
     (("x", ("a",), (("1",), (2,))), r"rows\[1\]")],
)  # fmt: skip
def test_a_table_has_one_text_per_column(parts, name):
    with pytest.raises(ValueError, match=f"^{name} must be"):
        Table(*parts)


def test_a_failed_verdict_is_shown_as_failed():
    page = picture(verdicts=[HOLDS, FAILS])._repr_html_()
    assert page.count('class="ok"') == 1
    assert page.count('class="bad"') == 1
    assert "✗" in page
    assert "<strong>3</strong> (≤ 1; a test)" in page
    assert not picture(verdicts=[HOLDS, FAILS]).passed
    assert picture().passed


def test_the_text_fallback_has_title_finding_and_verdicts():
    assert repr(picture(verdicts=[HOLDS, FAILS])).splitlines() == [
        "A title",
        "What to see.",
        "✓ sum: 0 (exact; a test)",
        "✗ sum: 3 (≤ 1; a test)",
    ]


def test_all_text_is_escaped():
    verdict = Verdict(EVIL, True, EVIL, EVIL, EVIL)
    panel = Panel(40, 20, (Label(20, 10, EVIL),), EVIL)
    page = picture(
        panels=[panel], title=EVIL, alt=EVIL, finding=EVIL, verdicts=[verdict],
        table=Table(EVIL, (EVIL,), ((EVIL,),)),
    )._repr_html_()  # fmt: skip
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 14


def test_the_table_is_folded_and_has_every_number():
    table = Table("Numbers", ("a", "b"), (("1", "2"), ("3", "4")))
    page = picture(table=table)._repr_html_()
    root = ElementTree.fromstring(page)
    cells = [cell.text for cell in root.iter("td")]
    assert cells == ["1", "2", "3", "4"]
    assert "<details" in page
    assert "<details open" not in page


def test_labels_are_plain_text_whatever_they_hold():
    svg = render_svg(40, 20, [Label(20, 10, EVIL)], "x")
    text = "".join(ElementTree.fromstring(svg).itertext())
    assert text == EVIL.replace("\x00", "")


def test_svg_holds_nothing_that_could_clash_or_reach_outside():
    marks = [
        Box(1, 1, 9, 9, fill="#ff0000"),
        Stroke((((0, 0), (9, 9)),), dash=(3, 2)),
        Label(20, 10, "x", mono=True, bold=True),
    ]
    svg = render_svg(40, 20, marks, "x")
    assert not re.search(r"\s(id|class|href|xlink:href|onload)=", svg)
    assert not re.search(r"<(style|defs|script|use|metadata|image)", svg)
    assert "url(" not in svg


def test_ink_is_the_pages_own_colour_and_fills_stay():
    marks = [
        Box(1, 1, 9, 9, fill="#ff0000"),
        Label(20, 10, "x"),
        Label(20, 10, "y", color="muted"),
        Label(5, 5, "z", color="#ffffff"),
    ]
    svg = render_svg(40, 20, marks, "x")
    assert svg.count("currentColor") == 3
    assert svg.count("fill-opacity") == 1
    assert 'fill="#ff0000"' in svg
    assert "#0102" not in svg


def test_positions_in_the_svg_are_those_of_the_layout():
    marks = [Box(3, 5, 10, 7, fill="#ff0000", edge=None), Label(20, 10, "x")]
    root = ElementTree.fromstring(render_svg(40, 20, marks, "x"))
    assert root.get("viewBox") == "0 0 40 20"
    path, text = list(root)
    assert path.get("d").split()[1:3] == ["3", "5"]
    assert (text.get("x"), text.get("text-anchor")) == ("20", "middle")
    assert text.get("font-size") == "12"


def test_drawing_twice_gives_the_same_bytes(every_picture):
    for drawn in every_picture.values():
        again = "".join(
            render_svg(p.width, p.height, p.marks, p.alt) for p in drawn.panels
        )
        assert again in drawn._repr_html_()


def test_drawing_needs_neither_torch_nor_pyplot():
    code = (
        "import sys, attention_lab.figures as f\n"
        "f.draw_heatmap([[1.0]])\n"
        "print({'torch', 'matplotlib.pyplot'} & set(sys.modules))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "set()"
