import copy
import gzip
import json
from pathlib import Path

import pytest
import torch

from attention_lab import figures
from attention_lab.axes import ShapeMismatch
from attention_lab.figures import interactive
from attention_lab.figures.follow_stage import GROUP, NBSP
from attention_lab.figures.interactive import stripped
from attention_lab.steps.follow_element import trace_chains


@pytest.fixture
def spoilt(chains):
    """A copy of the recording that a test may spoil."""
    return copy.deepcopy(chains)


@pytest.fixture(scope="module")
def drawn(chains):
    return figures.draw_follow_element(chains)


def test_two_chains_side_by_side_with_the_element_in_hand(drawn, texts):
    right, wrong = drawn.picture.panels
    assert "1·3 + 1·6 + 1·1 = place 10" in texts([right])
    assert "0·12 + 3·3 + 1·1 = place 10" in texts([wrong])
    assert "24 of 24 elements in their place" in texts([right])
    assert "6 of 24 elements in their place" in texts([wrong])
    assert texts([right]).count("✗") == 0
    assert texts([wrong]).count("✗") == 18


def test_the_words_of_a_step_are_those_of_torch(drawn):
    x = torch.arange(24.0).reshape(1, 4, 6)
    heads = x.view(1, 4, 2, 3).permute(0, 2, 1, 3)
    step = drawn.state["chains"][0]["steps"][2]
    for code in range(24):
        ((_, h, token, d),) = (heads == code).nonzero().tolist()
        place = h * heads.stride(1) + token * heads.stride(2) + d
        assert x.flatten()[place] == code
        words = "".join(step["sums"][code]).replace(NBSP, " ")
        terms = f"H {h}·3 + L {token}·6 + D {d}·1"
        assert words.endswith(f"{terms} = place {place}")
        assert f"is at H {h}, L {token}, D {d}." in step["told"][code]
        assert step["strip"][place // GROUP][place % GROUP] == code


def test_what_a_step_changes_is_said_for_view_copy_and_both(drawn):
    names = [chain["name"] for chain in drawn.state["chains"]]
    there = names.index("split, copy, merge: permute, reshape")
    _, view, permute, copied, back, merged = drawn.state["chains"][there][
        "steps"
    ]
    assert set(view["changes"]) == {1}
    assert copied["changes"] == [2] * 24
    assert set(merged["changes"]) == {3}
    assert set(permute["changes"]) == {1}
    assert set(back["changes"]) == {1}


def test_each_chain_has_another_beside_it(drawn):
    chains = drawn.state["chains"]
    for chain in chains:
        if chain["instead"] is not None:
            assert chain["beside"] == chain["instead"]
        elif chain["beside"] is not None:
            assert chains[chain["beside"]]["instead"] == chains.index(chain)
    assert chains[0]["beside"] == 1


def test_one_element_moved_fails(spoilt):
    codes = spoilt["chains"][0]["steps"][2]["codes"]
    codes[3], codes[4] = codes[4], codes[3]
    drawn = figures.draw_follow_element(spoilt)
    failed = [v for v in drawn.picture.verdicts if not v.passed]
    assert {v.label for v in failed} == {
        "5 chains against a split by slices",
        "strides lead to every element",
        "elements and misplaced ones are those of PyTorch",
    }
    strip = drawn.state["chains"][0]["verdicts"]
    assert [v["passed"] for v in strip] == [False, False, False, True]


@pytest.mark.parametrize(
    ("spoil", "label"),
    [
        (lambda c: c["run"].update(misplaced=1), "those of PyTorch"),
        (lambda c: c["run"].update(agrees=False), "those of PyTorch"),
        (lambda c: c["run"].update(is_view=False), "data_ptr"),
        (lambda c: c["steps"][2].update(strides=[24, 3, 6, 0]), "strides"),
        (lambda c: c["steps"][2].update(offset=1), "strides"),
        (lambda c: c["steps"][1].update(memory=1), "strides lead"),
    ],
)
def test_what_does_not_agree_fails(spoilt, spoil, label):
    spoil(spoilt["chains"][0])
    if label == "strides lead":  # a view that claims memory of its own
        spoilt["chains"][0]["steps"][1]["codes"].reverse()
        label = "strides"
        spoilt["chains"][0]["steps"][2]["memory"] = 1
    failed = [
        v.label
        for v in figures.draw_follow_element(spoilt).picture.verdicts
        if not v.passed
    ]
    assert any(label in text for text in failed), failed


def test_a_wrong_chain_that_misses_nothing_fails(spoilt):
    wrong = spoilt["chains"][1]
    wrong["steps"][-1]["wanted"] = list(wrong["steps"][-1]["codes"])
    failed = [
        v.label
        for v in figures.draw_follow_element(spoilt).picture.verdicts
        if not v.passed
    ]
    assert "mistake “split: view alone” shows" in failed


def test_ones_own_chains_are_drawn_and_judged():
    right = {"mine": lambda x: x.unflatten(-1, (2, 3)).transpose(1, 2)}
    wrong = {"theirs": lambda x: x.reshape(1, 2, 4, 3)}
    assert figures.draw_follow_element(trace_chains(right)).passed
    both = figures.draw_follow_element(trace_chains(right | wrong))
    assert not both.passed
    assert "“2: theirs” has the right shape, and 18 of 24" in str(both)
    assert len(both.picture.panels) == 2


def test_long_axes_are_folded_and_batches_named(problems):
    data = trace_chains(
        {"mine": lambda x: x.view(2, 4, 2, 5).permute(0, 2, 1, 3)},
        B=2, L=4, H=2, D=5,
    )  # fmt: skip
    drawn = figures.draw_follow_element(data)
    assert drawn.passed
    assert problems(drawn.picture.panels) == []
    first = drawn.state["chains"][0]["steps"][0]
    assert first["rows"][:3] == ["B0 L0 E0+", "B0 L0 E5+", "B0 L1 E0+"]
    assert first["columns"] == ["0", "1", "2", "3", "4"]


def test_sizes_stay_within_the_budget(drawn):
    data = json.dumps(drawn.state, separators=(",", ":")).encode()
    assert len(gzip.compress(data)) <= 20_000
    script = Path(interactive.__file__).with_name("follow_element.js")
    own = stripped(script.read_text(encoding="utf-8"))
    assert len(gzip.compress(own.encode())) <= 2_400


def test_a_name_cannot_end_the_script(spoilt):
    spoilt["chains"][0]["name"] = "</script><b>view"
    page = figures.draw_follow_element(spoilt)._repr_html_()
    assert "</script><b>" not in page


SPOILT = [
    (lambda r: r.update(schema="follow_element.v2"), ValueError, "schema"),
    (lambda r: r.pop("dtype"), ValueError, "'dtype'"),
    (lambda r: r.update(chains=[]), ValueError, "chains is empty"),
    (
        lambda r: r["chains"][0].update(steps=r["chains"][0]["steps"][:1]),
        ValueError,
        r"chains\[0\]\.steps has 1 of at least 2",
    ),
    (
        lambda r: r["chains"][1].update(instead=1),
        ValueError,
        r"chains\[1\]\.instead = 1 is outside",
    ),
    (
        lambda r: r["chains"][0]["steps"][1]["codes"].pop(),
        ShapeMismatch,
        r"steps\[1\]\.codes has 23 elements, .* has 24",
    ),
    (
        lambda r: r["chains"][0]["steps"][1]["strides"].pop(),
        ShapeMismatch,
        r"strides has 3 entries, but its shape has 4 axes",
    ),
    (
        lambda r: r["chains"][0]["steps"][1]["codes"].__setitem__(0, 99),
        ValueError,
        "codes = 99 is outside axis of elements",
    ),
    (
        lambda r: r["chains"][0]["steps"][2]["wanted"].__setitem__(
            0, float("nan")
        ),
        ValueError,
        "wanted holds nan",
    ),
    (
        lambda r: r["chains"][0]["steps"][2].update(wanted=None),
        ValueError,
        "not held against the reference",
    ),
    (
        lambda r: r["inputs"]["x"].update(names=["0"] * 97),
        ValueError,
        "of elements has size 97; at most 96",
    ),
    (
        lambda r: r["inputs"]["x"]["tokens"].pop(),
        ShapeMismatch,
        "24 names, but 23 tokens",
    ),
    (lambda r: r["inputs"].pop("qkv"), ValueError, "'qkv'"),
    (lambda r: r["chains"][0].pop("run"), ValueError, "'run'"),
    (
        lambda r: r["chains"][0]["run"].update(is_view="yes"),
        ValueError,
        "is_view must be True or False",
    ),
]


@pytest.mark.parametrize(("spoil", "error", "says"), SPOILT)
def test_bad_data_get_a_sentence(spoilt, spoil, error, says):
    spoil(spoilt)
    with pytest.raises(error, match=says):
        figures.draw_follow_element(spoilt)


def test_an_axis_that_cannot_be_folded_is_refused():
    data = trace_chains(
        [lambda x: x.view(1, 3, 2, 7).permute(0, 2, 1, 3)], L=3, H=2, D=7
    )
    with pytest.raises(ValueError, match="axis D has size 7; at most 6"):
        figures.draw_follow_element(data)


def test_what_is_no_recording_is_refused():
    with pytest.raises(ValueError, match="recording must be a mapping"):
        figures.draw_follow_element([1, 2])
