import pytest

from attention_lab.axes import ShapeMismatch
from attention_lab.figures import Verdict, draw_packing
from attention_lab.figures.packing_map import layout_packing

TRIP = Verdict("round trip", True, "0 moved", "exact", "a test")
LAYOUTS = ("p h d", "h p d", "h d p")


@pytest.fixture
def rows(build):
    return {name: build["packed_rows"](name, 2, 3) for name in LAYOUTS}


def test_the_followed_row_is_found_in_every_layout(rows):
    picture = draw_packing(rows, verdicts=[TRIP], follow=(1, 1, 0))
    # k of head 1, channel 0, by hand: 1·6 + 1·3 + 0, 1·9 + 1·3 + 0, 1·9 + 1.
    assert picture.finding.startswith(
        "k of head 1, channel 0 is row 9 in p h d, row 12 in h p d, "
        "row 10 in h d p"
    )
    assert picture.passed


def test_rows_under_the_wrong_name_fail(rows):
    swapped = {"p h d": rows["h p d"], "h p d": rows["p h d"]}
    picture = draw_packing(swapped, verdicts=[TRIP])
    assert not picture.verdicts[0].passed
    assert "differ" in picture.verdicts[0].value


def test_every_row_says_what_it_is(rows, texts):
    words = texts(draw_packing(rows, verdicts=[TRIP]).panels)
    assert words.count("v 1 2") == 3
    assert words.count("q 0 0") == 3


def test_wide_heads_have_a_gap_that_counts(build, texts, problems):
    rows = {name: build["packed_rows"](name, 3, 11) for name in LAYOUTS}
    sizes = {"p": 3, "h": 3, "d": 11}
    triples = {
        name: [tuple(row) for row in table] for name, table in rows.items()
    }
    panel = layout_packing(triples, sizes, (0, 0, 0))
    words = texts([panel])
    assert "⋮ 8 rows" in words
    assert "⋮ 24 rows" in words
    assert problems([panel]) == []


def test_a_missing_row_is_refused(rows):
    with pytest.raises(ValueError, match="exactly once; it has 17 rows"):
        draw_packing({"p h d": rows["p h d"][:-1]}, verdicts=[TRIP])


def test_a_strange_order_is_refused(rows):
    with pytest.raises(ValueError, match="order of p, h and d"):
        draw_packing({"p h q": rows["p h d"]}, verdicts=[TRIP])


def test_layouts_of_different_size_are_refused(rows, build):
    other = build["packed_rows"]("h p d", 3, 3)
    with pytest.raises(ShapeMismatch, match=r"\(3, 3, 3\), .* \(3, 2, 3\)"):
        draw_packing({**rows, "h p d": other}, verdicts=[TRIP])


def test_rows_that_are_no_triples_are_refused():
    with pytest.raises(ShapeMismatch, match="axis 1 has size 2"):
        draw_packing({"p h d": [[0, 0], [1, 0]]}, verdicts=[TRIP])


def test_other_refusals_name_the_argument(rows, build):
    with pytest.raises(ValueError, match="follow"):
        draw_packing(rows, verdicts=[TRIP], follow=(0, 2, 0))
    with pytest.raises(ValueError, match="rows_by_layout"):
        draw_packing({}, verdicts=[TRIP])
    with pytest.raises(ValueError, match="axis H has size 8"):
        draw_packing(
            {"p h d": build["packed_rows"]("p h d", 8, 3)}, verdicts=[TRIP]
        )
    with pytest.raises(ValueError, match="exactly once"):
        draw_packing({"p h d": [[0, 0, 0]]}, verdicts=[TRIP])
