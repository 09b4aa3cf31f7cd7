"""The mutants are many, distinct, always the same, and of right functions."""

import pytest
from mutate import SOURCES, mutants
from mutate_equivalent import REASONS
from situations import BACKWARD, SITUATIONS, what_is_wrong, wrong_gradients


def test_there_are_enough_distinct_mutants_and_always_the_same():
    first, second = list(mutants(300)), list(mutants(300))
    assert len({mutant.source for mutant in first}) == 300
    assert [m.source for m in first] == [m.source for m in second]
    assert {m.label.split(",")[0] for m in first} == {
        source.__name__ for source in SOURCES
    }


@pytest.mark.parametrize("source", SOURCES, ids=lambda s: s.__name__)
def test_source_is_right_before_it_is_damaged(source):
    is_numpy = source.__name__ == "in_numpy"
    library = "numpy" if is_numpy else "torch"
    for situation in SITUATIONS.values():
        if is_numpy and str(situation.qkv[0].dtype) == "torch.bfloat16":
            continue  # NumPy has no bfloat16
        assert what_is_wrong(source, situation, library) == "", situation.name
    for name in () if is_numpy else BACKWARD:
        assert wrong_gradients(source, SITUATIONS[name]) == "", name


def test_mutant_can_be_inspected():
    mutant = next(mutants(1))
    assert mutant.function.__name__ in mutant.source


def test_mutants_called_equivalent_are_so_in_every_situation():
    by_label = {mutant.label: mutant for mutant in mutants()}
    assert set(REASONS) <= set(by_label)
    for label in list(REASONS)[::4]:  # a quarter, to be quick
        library = "numpy" if label.startswith("in_numpy") else "torch"
        for situation in SITUATIONS.values():
            is_bfloat16 = str(situation.qkv[0].dtype) == "torch.bfloat16"
            if library == "torch" or not is_bfloat16:
                function = by_label[label].function
                assert what_is_wrong(function, situation, library) == "", label
