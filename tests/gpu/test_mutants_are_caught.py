"""Every planted mistake is named: its kind, and what a learner needs."""

from collections import Counter

import numpy as np
import pytest
from mutants import MUTANTS

from attention_lab.gpu import record
from attention_lab.gpu.errors import KernelError
from attention_lab.gpu.launch import launch
from attention_lab.gpu.limits import three_sizes
from attention_lab.gpu.naming import Names

HAZARDS = {
    "race",
    "divergent-barrier",
    "out-of-bounds",
    "uninitialised-read",
    "unwritten-output",
    "too-many-threads",
    "too-much-shared-memory",
    "empty-launch",
    "warp-divergent-shuffle",
}
NOTES = {
    "conditional-barrier",
    "shared-arrays-on-one-line",
    "accidental-float64",
    "strided-access",
    "bank-conflict",
}
REFUSED = {"too-many-threads", "too-much-shared-memory", "empty-launch"}


def recorded(mutant, order="ascending"):
    return record(
        mutant.kernel,
        mutant.grid,
        mutant.block,
        *mutant.args(),
        shared_bytes=mutant.shared_bytes,
        order=order,
        seed=5,
    )


def test_every_kind_has_at_least_two_mutants():
    counts = Counter(mutant.kind for mutant in MUTANTS)
    assert set(counts) == HAZARDS | NOTES
    assert min(counts.values()) >= 2
    assert len(MUTANTS) >= 30


@pytest.mark.parametrize("order", ["ascending", "descending", "shuffled"])
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_mutant_is_named(mutant, order):
    recording = recorded(mutant, order)
    said = recording.notes if mutant.is_note else recording.hazards
    named = [item for item in said if item.kind == mutant.kind]
    assert named, str(recording)
    text = " ".join(item.sentence for item in named)
    for word in mutant.words:
        if order == "ascending":
            assert word in text
    if mutant.is_note:
        assert recording.hazards == (), str(recording)


@pytest.mark.parametrize(
    "mutant", [m for m in MUTANTS if not m.is_note], ids=str
)
def test_no_other_kind_is_blamed(mutant):
    kinds = set(recorded(mutant).kinds)
    assert kinds == {mutant.kind}, kinds


@pytest.mark.parametrize(
    "mutant", [m for m in MUTANTS if m.kind == "race"], ids=str
)
def test_race_names_both_threads_and_both_lines(mutant):
    names = Names(three_sizes(mutant.grid, ""), three_sizes(mutant.block, ""))
    for hazard in recorded(mutant).hazards:
        assert len(hazard.threads) == 2
        assert len(hazard.lines) == 2
        assert hazard.array in hazard.sentence
        for thread in hazard.threads:
            assert f"{names.thread(thread)} " in hazard.sentence
        for line in hazard.lines:
            assert f"line {line} " in hazard.sentence
        assert (hazard.threads[0], hazard.blocks[0]) != (
            hazard.threads[1],
            hazard.blocks[1],
        )


@pytest.mark.parametrize(
    "mutant",
    [m for m in MUTANTS if m.kind in REFUSED or m.kind == "divergent-barrier"],
    ids=str,
)
def test_plain_launch_is_refused_with_the_same_kind(mutant):
    with pytest.raises(KernelError) as refusal:
        launch(
            mutant.kernel,
            three_sizes(mutant.grid, "grid"),
            three_sizes(mutant.block, "block"),
            mutant.args(),
            mutant.shared_bytes,
        )
    assert refusal.value.kind == mutant.kind


def test_a_race_is_found_although_the_values_are_right():
    mutant = next(m for m in MUTANTS if "everybody" in str(m))
    args = mutant.args()
    recording = record(mutant.kernel, mutant.grid, mutant.block, *args)
    np.testing.assert_array_equal(args[0], np.full(8, args[1][0]))
    assert recording.kinds == ("race",)
