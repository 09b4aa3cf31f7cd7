import itertools

import numpy as np
import pytest
import torch

from attention_lab.steps import follow_element, multi_head
from attention_lab.steps.follow_element import record_chains, trace_chains
from attention_lab.steps.head_chains import CHAINS, Chain, view_alone

RIGHT = [chain for chain in CHAINS if not chain.instead]
WRONG = [chain for chain in CHAINS if chain.instead]


@pytest.fixture(scope="module")
def recorded():
    return record_chains()


def by_hand(B, L, H, D):
    """Where each element of x belongs after a split, counted one by one."""
    return [
        (b * L + token) * H * D + h * D + d
        for b, h, token, d in itertools.product(
            range(B), range(H), range(L), range(D)
        )
    ]


def test_the_reference_is_the_split_counted_by_hand(recorded):
    (step,) = [s for s in recorded["chains"][0]["steps"] if s["wanted"]]
    assert step["wanted"] == by_hand(1, 4, 2, 3)


def test_the_split_of_the_chapter_is_the_first_chain(recorded):
    x = torch.arange(24.0).reshape(1, 4, 6)
    heads = multi_head.split_heads(x, 2)
    last = recorded["chains"][0]["steps"][-1]
    assert last["codes"] == heads.flatten().int().tolist()
    assert last["strides"] == list(heads.stride())


@pytest.mark.parametrize("chain", CHAINS, ids=lambda chain: chain.name)
def test_every_chain_gives_what_it_says(recorded, chain):
    (data,) = [c for c in recorded["chains"] if c["name"] == chain.name]
    wrong = [
        sum(c != w for c, w in zip(s["codes"], s["wanted"], strict=True))
        for s in data["steps"]
        if s["wanted"]
    ]
    assert (max(wrong) > 0) == bool(chain.instead)
    assert wrong[-1] == data["run"]["misplaced"]
    assert data["run"]["agrees"]
    assert bool(data["says"]) == bool(chain.instead)


def test_view_alone_misplaces_three_quarters_by_hand(recorded):
    # Row (h, l) is in place where 12h + 3l = 6l + 3h: (0, 0) and (1, 3).
    run = recorded["chains"][1]["run"]
    assert (run["misplaced"], run["total"]) == (18, 24)


@pytest.mark.parametrize("number", range(len(follow_element.LARGER)))
def test_shares_at_other_sizes_are_those_of_a_loop(recorded, number):
    larger = recorded["chains"][1]["larger"][number]
    B, L, H, D = (larger[letter] for letter in "BLHD")
    # An element stays if its place after the view is where it belongs.
    stays = np.arange(B * L * H * D) == by_hand(B, L, H, D)
    assert larger["misplaced"] == int((~stays).sum())
    assert larger["total"] == stays.size


@pytest.mark.parametrize(
    ("name", "is_view"),
    [
        ("split: view, permute", True),
        ("split: view, permute, contiguous", False),
        ("split: einops, (h d)", True),
        ("split, copy, merge: permute, reshape", False),
    ],
)
def test_views_and_copies_are_those_of_data_ptr(recorded, name, is_view):
    (data,) = [c for c in recorded["chains"] if c["name"] == name]
    assert data["run"]["is_view"] is is_view
    assert (data["steps"][-1]["memory"] == 0) is is_view


def test_a_chain_of_ones_own_is_followed():
    def mine(x):
        return torch.stack(x.chunk(3, dim=-1), dim=1)

    data = trace_chains({"chunks": mine, "view": lambda x: x.view(2, 3, 5, 4)},
                        B=2, L=5, H=3, D=4)  # fmt: skip
    chunks, view = data["chains"]
    assert chunks["steps"][-1]["wanted"] == by_hand(2, 5, 3, 4)
    assert (chunks["run"]["misplaced"], view["run"]["misplaced"]) == (0, 96)
    assert data["inputs"]["x"]["names"][0] == "0·0·0"


def test_results_that_are_written_in_place_are_followed():
    def filled(x):
        heads = torch.zeros(1, 2, 4, 3)
        for h in range(2):
            heads[:, h] = x[..., 3 * h : 3 * h + 3]
        return heads

    (chain,) = trace_chains([filled])["chains"]
    assert chain["run"]["misplaced"] == 0
    assert chain["run"]["agrees"]


def untold(x):
    return x.view(1, 2, 4, 3) * 0.5


BAD = [
    ([], {}, "chains is empty"),
    ({}, {}, "chains is empty"),
    ([view_alone], {"L": 2}, "L = 2, H = 2 and D = 3 must differ"),
    ([view_alone], {"H": 1}, "axis H has size 1"),
    ([untold], {}, "'untold' computes new numbers"),
    ([torch.flatten], {}, r"shape \(24,\); a head split has"),
    ([lambda x: x.numpy()], {}, "returns ndarray, not a tensor"),
    (
        [torch.compile(untold, backend="eager")],
        {},
        "cannot follow: it is compiled",
    ),
    (view_alone, {}, "chains must be functions of x, not"),
]


@pytest.mark.parametrize(("chains", "sizes", "says"), BAD)
def test_bad_input_gets_a_sentence(chains, sizes, says):
    with pytest.raises(ValueError, match=says):
        trace_chains(chains, **sizes)


def test_a_wrong_chain_needs_the_right_one_before_it():
    alone = Chain("view", view_alone, "view, permute", "It is wrong.")
    with pytest.raises(ValueError, match="'view, permute', which is no chain"):
        record_chains([alone])
    with pytest.raises(ValueError, match="chains is empty"):
        record_chains([])
