import copy
import gzip
import json
import math

import pytest

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from attention_lab.gpu import record
from attention_lab.steps.kernel_runs import record_score_kernels, record_scores
from figures.lens_kernels import (
    add_rows,
    nothing,
    numbers,
    record_lens_kernels,
    record_triangle,
)
from figures.scripts import needs_node, passed_tests


@pytest.fixture(scope="module")
def recordings():
    return record_lens_kernels()


@pytest.fixture(scope="module")
def drawn(recordings):
    return figures.draw_kernel_lens(recordings, planted="without")


@pytest.fixture
def spoilt(recordings):
    """The data of one version, which a test may spoil."""
    return copy.deepcopy(recordings["add rows"].to_data("request"))


def test_each_version_has_its_strip_and_its_dearest_request(drawn, texts):
    panels = drawn.picture.panels
    assert len(panels) == 8
    assert "barrier" in texts(panels[:1])
    assert "barrier" not in texts(panels[2:3])
    assert texts(panels[5:6])[0].endswith("32 sectors for 32 lanes")
    assert texts(panels[7:8])[0].endswith("32 passes for 32 lanes")


def test_the_strip_shows_what_two_threads_touch(drawn, texts):
    words = texts(drawn.picture.panels[:1])
    for said in ("thread 0", "thread 63", "read x", "write out", "[63]"):
        assert said in words


def test_the_race_is_marked_at_its_two_lines(drawn, recordings, texts):
    (hazard, *_) = recordings["without"].hazards
    wrong = {
        mark.text
        for mark in drawn.picture.panels[2].marks
        if getattr(mark, "on", None) == "#c92a2a"
    }
    assert wrong == {str(line) for line in hazard.lines}
    words = texts(drawn.picture.panels[2:3])
    for thread in hazard.threads:
        assert f"thread {thread}" in words


def test_the_finding_names_the_dearest_requests(drawn):
    assert "32 lanes of x need 32 sectors" in drawn.picture.finding
    assert "32 lanes of tile need 32 passes" in drawn.picture.finding


def test_verdicts_hold(drawn):
    assert drawn.passed, drawn
    told = str(drawn)
    assert "planted mistake: race" in told
    assert "reads and writes: 288 " in told


def test_a_race_that_nobody_planted_fails(recordings):
    assert not figures.draw_kernel_lens(recordings).passed


def test_a_planted_race_that_is_not_found_fails(recordings):
    sound = {"sound": recordings["with a barrier"]}
    assert not figures.draw_kernel_lens(sound, planted=["sound"]).passed


def test_other_traffic_than_the_formula_fails(recordings):
    more = recordings["add rows"].against({"x": (257, 0), "out": (0, 32)})
    drawn = figures.draw_kernel_lens(more)
    assert not drawn.passed
    assert "288, not 289" in str(drawn)


def test_a_request_that_the_recorder_did_not_count_fails(spoilt):
    for column in spoilt["events"]["data"]:
        column.append(column[-1])
    drawn = figures.draw_kernel_lens(spoilt)
    assert not drawn.passed
    assert "not (260, 0)" in str(drawn)


def test_every_access_is_in_the_table(drawn, recordings):
    rows = drawn.picture.table.rows
    sites = sum(len(r.events.sites) for r in recordings.values())
    assert len(rows) == sites


def test_three_launches_of_one_kernel_move_the_same_and_cost_less():
    drawn = figures.draw_kernel_lens(record_score_kernels())
    assert drawn.passed, drawn
    *_, costs = drawn.picture.verdicts
    first, apart, turned, _ = (
        int(said.split()[0]) for said in costs.value.split("; ")
    )
    assert turned < first < apart
    assert len(gzip.compress(json.dumps(drawn.state).encode())) <= 20_000


@pytest.mark.parametrize("is_turned", [False, True])
@pytest.mark.parametrize(("keys", "queries", "D"), [(5, 3, 7), (32, 4, 1)])
def test_any_block_of_the_scores_kernel_moves_the_same(
    keys, queries, D, is_turned
):
    recording = record_scores(keys, queries, D=D, is_turned=is_turned)
    assert recording.block == (keys, queries, 1)
    # Each of 4·32 threads reads 2·D numbers and writes one.
    arrays = recording.traffic
    reads = sum(arrays[name].reads for name in ("q_BHLD", "k_BHSD"))
    assert (reads, arrays["scores_BHLS"].writes) == (4 * 32 * 2 * D, 4 * 32)
    assert figures.draw_kernel_lens(recording).passed


@pytest.mark.parametrize("name", ["keys", "queries", "D"])
def test_a_block_of_no_size_is_refused(name):
    sizes = {"keys": 8, "queries": 4, "D": 8, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        record_scores(sizes.pop("keys"), sizes.pop("queries"), **sizes)


def test_a_block_that_no_gpu_starts_gets_a_sentence():
    recording = record_scores(512, 4)
    with pytest.raises(ValueError, match="no GPU would start this launch"):
        figures.draw_kernel_lens(recording)


def test_one_block_of_many_can_be_kept():
    recording = record_triangle()
    whole = figures.draw_kernel_lens(recording)
    one = figures.draw_kernel_lens(recording, block=3)
    blocks = one.state["versions"][0]["recording"]["events"]["data"][0]
    assert set(blocks) == {3}
    assert len(whole.picture.verdicts) == 2
    assert len(one.picture.verdicts) == 1  # its sum is not the launch's
    with pytest.raises(ValueError, match=r"block 4 .* has 4 blocks"):
        figures.draw_kernel_lens(recording, block=4)


def column(name):
    return ["block", "epoch", "site", "threads", "elements", "addresses"].index(
        name
    )


def put(data, name, row, value):
    data["events"]["data"][column(name)][row] = value


SPOILT = [
    (lambda d: d.update(schema="recording.v2"), ValueError, "'recording.v2'"),
    (lambda d: d.pop("events"), ValueError, "holds no access"),
    (
        lambda d: d["events"].update(granularity="tile"),
        ValueError,
        r"by tile; .* to_data\('request'\)",
    ),
    (lambda d: d["events"].update(data=[[]] * 6), ValueError, "no access"),
    (
        lambda d: d["events"]["data"][3].pop(),
        ShapeMismatch,
        "threads has 8 rows, but block has 9",
    ),
    (lambda d: put(d, "epoch", 0, math.nan), ValueError, "epoch must be"),
    (lambda d: put(d, "site", 1, 7), ValueError, r"\[1\].site = 7 .* size 2"),
    (
        lambda d: put(d, "elements", 0, [0, 8, 33]),
        ValueError,
        "go to 256, but there are 256",
    ),
    (
        lambda d: put(d, "threads", 0, [0, 1]),
        ShapeMismatch,
        "has 2 numbers; runs are threes",
    ),
    (
        lambda d: put(d, "threads", 0, [0, 1, 31]),
        ShapeMismatch,
        "31 numbers for 32 lanes",
    ),
    (
        lambda d: d.update(block=[16, 16, 1]),
        ValueError,
        "threads of a block has size 256; at most 128",
    ),
]


@pytest.mark.parametrize(("spoil", "error", "says"), SPOILT)
def test_bad_data_get_a_sentence(spoilt, spoil, error, says):
    spoil(spoilt)
    with pytest.raises(error, match=says):
        figures.draw_kernel_lens({"bad": spoilt})


def test_too_large_a_recording_says_so_and_offers_a_part():
    recording = record(add_rows, 1, 64, nothing(64), numbers(64, 800))
    with pytest.raises(ValueError, match=r"1602 warp requests .*block=0"):
        figures.draw_kernel_lens(recording)


@pytest.mark.parametrize(
    ("recordings", "options", "says"),
    [
        ({}, {}, "recordings is empty"),
        ({"a": 3}, {}, "recordings\\['a'\\] must be a recording"),
        ({"a": 3}, {"planted": "b"}, "planted names 'b', but there are a"),
        (dict.fromkeys("abcdef"), {}, "versions has size 6; at most 5"),
    ],
)
def test_what_is_no_recording_is_refused(recordings, options, says):
    with pytest.raises(ValueError, match=says):
        figures.draw_kernel_lens(recordings, **options)


def test_a_launch_that_no_gpu_starts_is_refused_with_its_reason():
    refused = record(add_rows, 1, 2048, nothing(32), numbers(32, 8))
    with pytest.raises(ValueError, match=r"no GPU would start .*1024"):
        figures.draw_kernel_lens(refused)


@needs_node
def test_the_script_passes_its_own_tests(drawn, tmp_path):
    assert passed_tests("lens", drawn.state, tmp_path) == 7
