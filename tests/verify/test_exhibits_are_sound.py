"""The museum's attention exhibits have one mistake; the right ones none."""

import inspect

import pytest
import torch
from correct_attention import CORRECT
from correct_numpy import CORRECT_NUMPY
from situations import (
    BACKWARD,
    SITUATIONS,
    can,
    right_answer,
    what_is_wrong,
    wrong_gradients,
)
from where_exhibits_act import WRONG_GRADIENTS, WRONG_OUTPUT

from attention_lab.reference import attention_reference
from attention_lab.verify.known_mistakes import known_mistakes

CARDS = {
    id: card
    for id, card in known_mistakes().items()
    if card.kind == "attention"
}
PAGES = {
    "attention_by_hand",
    "scaled_dot_product",
    "multi_head",
    "cross_and_grouped",
    "fused_qkv",
    "online_softmax",
    "flash_forward",
    "recorder_and_gpu",
}
NUMPY_OR_KERNEL = {*CORRECT_NUMPY, *(n for n in CORRECT if n.endswith("_cuda"))}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_implementation_is_right_wherever_it_can_be_asked(name):
    function, supports = CORRECT[name]
    library = "numpy" if name in CORRECT_NUMPY else "torch"
    asked = [
        situation
        for situation in SITUATIONS.values()
        if can(function, situation, supports)
        # NumPy has no bfloat16
        and (library == "torch" or situation.qkv[0].dtype != torch.bfloat16)
    ]
    assert len(asked) >= 15
    wrong = {
        situation.name: what_is_wrong(function, situation, library)
        for situation in asked
    }
    assert {k: v for k, v in wrong.items() if v} == {}


@pytest.mark.parametrize(
    "name",
    [
        name
        for name, (_, supports) in CORRECT.items()
        if name not in NUMPY_OR_KERNEL
        and (supports is None or "gradients" in supports)
    ],
)
def test_correct_implementation_has_right_gradients(name):
    function, supports = CORRECT[name]
    wrong = {
        situation: wrong_gradients(function, SITUATIONS[situation])
        for situation in BACKWARD
        if can(function, SITUATIONS[situation], supports)
    }
    assert {k: v for k, v in wrong.items() if v} == {}


@pytest.mark.parametrize("id", CARDS)
def test_exhibit_is_wrong_just_where_its_mistake_acts(id):
    torch.manual_seed(0)  # for the exhibit that is random
    exhibit = CARDS[id].exhibit()
    asked = {name for name, s in SITUATIONS.items() if can(exhibit, s, None)}
    wrong = {name for name in asked if what_is_wrong(exhibit, SITUATIONS[name])}
    assert wrong == WRONG_OUTPUT.get(id, frozenset()) & asked
    assert wrong != asked, "right nowhere: it has more than one mistake"


@pytest.mark.parametrize("id", CARDS)
def test_exhibits_gradients_are_wrong_just_where_its_mistake_acts(id):
    exhibit = CARDS[id].exhibit()
    wrong = {
        name
        for name in BACKWARD
        if can(exhibit, SITUATIONS[name], None)
        and name not in WRONG_OUTPUT.get(id, ())
        and wrong_gradients(exhibit, SITUATIONS[name])
    }
    assert wrong == WRONG_GRADIENTS.get(id, frozenset())


def test_every_exhibit_is_wrong_somewhere():
    # This one shows only where a mask and is_causal come together.
    apart = {"causal-and-mask-one-ignored"}
    assert {*WRONG_OUTPUT, *WRONG_GRADIENTS, *apart} == set(CARDS)


def test_mask_and_causal_together_lose_one_of_the_two():
    _, qkv, options, _ = SITUATIONS["mask (L, S)"]
    exhibit = CARDS["causal-and-mask-one-ignored"].exhibit()
    out = exhibit(*qkv, **options, is_causal=True)
    causal_only = attention_reference(*qkv, is_causal=True).out_BHLD
    torch.testing.assert_close(
        out, torch.tensor(causal_only), check_dtype=False, rtol=0, atol=1e-6
    )
    mask = options["attn_mask"] & torch.ones(5, 7, dtype=torch.bool).tril()
    both = attention_reference(*qkv, attn_mask=mask).out_BHLD
    assert abs(out.numpy() - both).max() > 0.1


def test_all_other_exhibits_refuse_a_mask_together_with_is_causal():
    _, qkv, options, _ = SITUATIONS["square, mask (L, S)"]
    for id, card in CARDS.items():
        exhibit = card.exhibit()
        names = inspect.signature(exhibit).parameters
        if id != "causal-and-mask-one-ignored" and "attn_mask" in names:
            with pytest.raises(ValueError, match="not both"):
                exhibit(*qkv, **options, is_causal=True)


@pytest.mark.parametrize("id", CARDS)
def test_card_reads_well(id):
    card = CARDS[id]
    assert card.kind == "attention"
    assert card.page in PAGES
    for text in (card.symptom, card.cause, card.hint, card.bigger_hint):
        assert text[-1] in ".?!"
        assert "\n" not in text
        assert "  " not in text
        assert len(text) < 200
    assert not card.title.endswith(".")
    assert "#" in card.source or card.source.startswith("derived")


@pytest.mark.parametrize("id", CARDS)
def test_exhibit_shows_its_mistake_in_few_lines(id):
    source = inspect.getsource(CARDS[id].exhibit())
    assert len(source.splitlines()) <= 30
    assert all(len(line) <= 80 for line in source.splitlines())


def test_error_bounds_of_the_situations_are_small():
    for name in SITUATIONS:
        right, bound = right_answer(name)
        assert bound <= 0.04 * max(1.0, abs(right).max(initial=0.0)), name
