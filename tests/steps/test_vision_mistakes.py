import numpy as np
import pytest
import torch

from attention_lab.examples import position_coded
from attention_lab.steps import vision, vision_mistakes
from attention_lab.steps.multi_head import merge_heads, split_heads

WRONG = vision_mistakes.WRONG_LAYOUTS


def heads_and_back(layout):
    """Return the heads of coded tokens, and coded heads merged."""
    x_BLE = torch.tensor(position_coded(2, 5, 12)).float()
    x_BHLD = torch.tensor(position_coded(2, 3, 5, 4)).float()
    return layout.split(x_BLE, 3), layout.merge(x_BHLD)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_layout_has_the_right_shapes_and_the_wrong_elements(name):
    right = heads_and_back(vision.RIGHT_LAYOUT)
    wrong = heads_and_back(WRONG[name])
    assert [x.shape for x in wrong] == [x.shape for x in right]
    same = [torch.equal(*pair) for pair in zip(wrong, right, strict=True)]
    assert sorted(same) == [False, True]


def test_the_right_layout_is_the_one_of_the_steps():
    assert vision.RIGHT_LAYOUT.split is split_heads
    assert vision.RIGHT_LAYOUT.merge is merge_heads


def test_each_layout_has_one_mistake():
    by_view, unpermuted = WRONG.values()
    assert by_view.merge is merge_heads
    assert unpermuted.split is split_heads


@pytest.mark.parametrize("name", WRONG)
def test_a_model_uses_the_layout_that_it_is_given(name):
    images = vision.load_split()[1].images[:3]
    right, wrong = (
        vision.untrained(5, layout=layout)
        for layout in (vision.RIGHT_LAYOUT, WRONG[name])
    )
    for ours, theirs in zip(
        right.parameters(), wrong.parameters(), strict=True
    ):
        np.testing.assert_array_equal(ours.detach(), theirs.detach())
    with torch.no_grad():
        off = (right(images) - wrong(images)).abs().max().item()
    assert off > 100 * vision.SAME_LOGITS


def test_the_checkpoint_states_an_accuracy_for_every_mistake_and_seed():
    _, provenance = vision.load_checkpoint()
    stated = provenance["accuracy_of_mistakes"]
    assert set(stated) == set(WRONG)
    for found in stated.values():
        assert len(found) == len(provenance["accuracy_by_seed"])
        assert all(0 <= accuracy <= 1 for accuracy in found)


def test_training_with_mistakes_is_training_with_their_layouts(monkeypatch):
    trained = []

    def train(seed, epochs, layout):
        trained.append((seed, epochs, layout))
        return vision.untrained(seed, layout=layout)

    monkeypatch.setattr(vision_mistakes, "train", train)
    found = vision_mistakes.train_with_mistakes([3, 4], epochs=2)
    assert trained == [(s, 2, w) for w in WRONG.values() for s in (3, 4)]
    assert {
        name: len(values) for name, values in found.items()
    } == dict.fromkeys(WRONG, 2)
    first = vision.accuracy(vision.untrained(3, layout=WRONG["split by view"]))
    assert found["split by view"][0] == first
