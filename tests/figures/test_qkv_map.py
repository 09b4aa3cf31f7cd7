import copy
import gzip
import json
import math

import pytest

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from attention_lab.figures.qkv_map_data import map_verdicts


@pytest.fixture
def spoilt(packing_map):
    """A copy of the recording that a test may spoil."""
    return copy.deepcopy(packing_map)


@pytest.fixture(scope="module")
def drawn(packing_map):
    return figures.draw_qkv_map(packing_map)


def test_the_columns_show_the_recorded_rows(drawn, packing_map, texts):
    columns, _, grouped, _ = drawn.picture.panels
    for panel, run in (
        (columns, packing_map["runs"][0]),
        (grouped, packing_map["runs"][3]),
    ):
        shown = [
            text for text in texts([panel]) if text[:2] in ("q ", "k ", "v ")
        ]
        wanted = [
            "{} {} {}".format("qkv"[run["tags"][row][0]], *run["tags"][row][1:])
            for rows in run["layouts"].values()
            for row in rows
        ]
        assert shown == wanted


def test_each_misread_row_says_what_it_is_read_as(drawn, packing_map, texts):
    run = packing_map["runs"][0]
    shown = texts([drawn.picture.panels[1]])
    there, read = run["layouts"]["p h d"], run["layouts"]["h p d"]
    wanted = [
        "≠{}{}·{}".format("qkv"[run["tags"][b][0]], *run["tags"][b][1:])
        for a, b in zip(there, read, strict=True)
        if a != b
    ]
    assert [text for text in shown if text.startswith("≠")] == wanted
    assert len(wanted) == 20
    assert "20 of 24 rows are read" in shown
    assert "20 of the 24 rows" in drawn.picture.finding


def test_all_verdicts_hold(drawn):
    assert drawn.passed
    assert len(drawn.picture.verdicts) == 4


def spoil_pair(field, value):
    def spoil(state):
        state["runs"][1]["pairs"][2][field] = value

    return spoil


def spoil_traffic(field, value):
    def spoil(state):
        state["runs"][1]["traffic"][field] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "label"),
    [
        (spoil_pair("round_trip", 1e-16), "there and back"),
        (spoil_pair("error", 1e-3), "before and after"),
        (spoil_pair("wrong_error", 1e-15), "take one layout for another"),
        (spoil_traffic("bytes", [960, 961]), "bytes"),
        (spoil_traffic("formula", 959), "bytes"),
        (spoil_traffic("hazards", 1), "bytes"),
    ],
)
def test_a_run_that_is_off_fails_its_verdict(spoilt, spoil, label):
    spoil(spoilt)
    failed = [v for v in map_verdicts(spoilt) if not v.passed]
    assert len(failed) == 1
    assert label in failed[0].label


def test_each_pair_carries_its_verdicts_and_its_question(drawn):
    for run in drawn.state["runs"]:
        for pair in run["pairs"]:
            assert all(check["passed"] for check in pair["checks"])
            there, read = (
                run["layouts"][pair[key]] for key in ("source", "target")
            )
            wrong = sum(a != b for a, b in zip(there, read, strict=True))
            is_right = [check["passed"] for check in pair["wrong_checks"]]
            assert is_right[1] == (wrong == 0)
            assert is_right[:1] + is_right[2:] == [True] * (len(is_right) - 1)
            asked = pair["question"]
            assert asked["options"][asked["answer"]] == str(wrong)


def test_one_run_alone_can_be_drawn(spoilt):
    for run in spoilt["runs"][2:4]:
        assert figures.draw_qkv_map({**spoilt, "runs": [run]}).passed


def test_sizes_stay_within_the_budget(drawn):
    assert len(gzip.compress(json.dumps(drawn.state).encode())) <= 20_000


def put(state, *path, value):
    *way, last = path
    for step in way:
        state = state[step]
    state[last] = value


SPOILT = [
    (lambda r: r.update(schema="packing_map.v2"), ValueError, "schema"),
    (lambda r: r.update(runs=[]), ValueError, "runs is empty"),
    (lambda r: r.update(E=16), ValueError, "axis E has size 16; at most 8"),
    (
        lambda r: r["runs"][0].update(G=3),
        ShapeMismatch,
        r"runs\[0\]: H = 4 .* G = 3 key heads, do not fill axis E",
    ),
    (
        lambda r: r["runs"][0]["tags"].pop(),
        ShapeMismatch,
        r"runs\[0\]\.tags has shape \(23, 3\), but .* = 24 rows",
    ),
    (
        lambda r: put(r, "runs", 0, "layouts", "h p d", 0, value=1),
        ShapeMismatch,
        r"layouts\['h p d'\] must hold each of the 24 rows once, but has 23",
    ),
    (
        lambda r: r["runs"][0]["pairs"].pop(),
        ValueError,
        r"runs\[0\]\.pairs must hold",
    ),
    (
        lambda r: put(r, "runs", 0, "pairs", 1, "error", value=math.nan),
        ValueError,
        r"runs\[0\]\.pairs\.error must be one finite number",
    ),
    (
        lambda r: put(r, "runs", 0, "pairs", 1, "bound", value=0.0),
        ValueError,
        r"runs\[0\]\.pairs\.bound must be one finite number",
    ),
    (
        lambda r: put(r, "runs", 0, "traffic", "bytes", value=[960]),
        ValueError,
        r"traffic\.bytes must be a pair",
    ),
    (
        lambda r: r["runs"][0]["traffic"]["sectors"].pop("h d p"),
        ValueError,
        r"runs\[0\]\.traffic has no 'h d p'",
    ),
]


@pytest.mark.parametrize(("spoil", "error", "says"), SPOILT)
def test_bad_data_get_a_sentence(spoilt, spoil, error, says):
    spoil(spoilt)
    with pytest.raises(error, match=says):
        figures.draw_qkv_map(spoilt)
