import importlib.util
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from correct_modules import CORRECT, GroupedQueries, NanoGptStyle, SdpaWrapper
from numpy.testing import assert_array_equal, assert_array_less
from torch import nn

from attention_lab.axes import ShapeMismatch
from attention_lab.steps.multi_head import MultiHeadAttention
from attention_lab.verify.known_mistakes import known_mistakes
from attention_lab.verify.module.battery import CHECKS, verify_module
from attention_lab.verify.module.diagnosis import CARDS
from attention_lab.verify.module.values import LAYOUT_CARDS
from attention_lab.verify.museum import modules as room
from attention_lab.verify.museum.module_parts import SelfAttention

POSTS = Path(__file__).parents[1] / "data" / "source_posts"
EXHIBITS = [c for c in known_mistakes().values() if c.room == "modules"]
E, H = 15, 3  # D = 5


def verify(module, embed_dim=E, num_heads=H, **options):
    """Verify inside this process: faster, and no limit is needed here."""
    options = {"isolate": False, "seconds": 300.0} | options
    return verify_module(module, embed_dim, num_heads, **options)


def failed(report):
    return {check.name for check in report.failures}


# -- Right modules ---------------------------------------------------------


@pytest.mark.parametrize("name", CORRECT)
def test_right_module_passes(name):
    build, mask_means, not_tested, note = CORRECT[name]
    report = verify(build(64, 4), 64, 4, mask_means=mask_means)
    assert report.passed, str(report)
    assert not_tested <= set(report.not_tested), str(report)
    assert note in " ".join(report.notes), str(report)


def test_right_module_passes_at_other_sizes():
    for embed_dim, num_heads in ((15, 3), (14, 7), (6, 1)):
        report = verify(
            MultiHeadAttention(embed_dim, num_heads), embed_dim, num_heads
        )
        assert report.passed, str(report)


def test_compiled_module_passes():
    # "eager" needs no compiler; the wrapper is the same.
    module = torch.compile(SdpaWrapper(E, H), backend="eager")
    report = verify(module)
    assert report.passed, str(report)
    assert "values" not in report.not_tested


def test_half_precision_is_verified_in_float32():
    report = verify(SelfAttention(E, H).to(torch.bfloat16))
    assert report.passed, str(report)
    assert "It was verified in float32." in report.notes


def test_double_precision_passes():
    assert verify(SelfAttention(E, H).double()).passed


def test_grouped_queries_are_not_compared_by_value_and_it_says_so():
    report = verify(GroupedQueries(64, 4), 64, 4)
    assert "grouped queries" in report.not_tested["values"]


def test_stated_layout_that_is_read_is_right():
    class Stated(room.fused_layout_head_by_head):
        layout = "three h d -> no"  # no layout that there is

    report = verify(Stated(E, H))
    assert report.passed, str(report)
    assert "Fused layout: (h three d)." in report.notes

    class Right(room.fused_layout_head_by_head):
        layout = "h p d"

    assert verify(Right(E, H)).passed


def test_dropout_named_after_the_output_may_drop_the_output():
    class Residual(SelfAttention):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            self.resid_dropout = nn.Dropout(0.1)

        def forward(self, x, mask=None):
            return self.resid_dropout(super().forward(x, mask))

    report = verify(Residual(E, H))
    assert report.passed, str(report)
    assert "dropout only in training" not in report.not_tested


def test_correct_module_takes_less_than_three_seconds():
    verify(MultiHeadAttention(64, 4), 64, 4)  # imports and caches
    before = time.process_time()
    assert verify(MultiHeadAttention(64, 4), 64, 4).passed
    assert_array_less(time.process_time() - before, 3.0)


# -- Exhibits --------------------------------------------------------------


def test_there_are_enough_exhibits():
    assert_array_less(15, len(EXHIBITS))


def test_every_exhibit_is_rejected_and_named(capsys):
    lines, right = [], 0
    for card in EXHIBITS:
        report = verify(card.exhibit())
        assert not report.passed, card.id
        assert card.check in failed(report), f"{card.id}: {report}"
        given = report.mistakes
        named = bool(given) and given[0] == card.id
        right += named
        mark = "✓" if named else "✗"
        lines.append(f"{mark} {card.id:30} {', '.join(given) or '—'}")
    with capsys.disabled():
        print("\n  right name                     given names")
        print("\n".join(lines))
        print(f"{right} of {len(EXHIBITS)} named rightly")
    assert right == len(EXHIBITS)


def test_exhibits_are_named_at_other_sizes_and_without_isolation_too():
    for card in EXHIBITS[:4]:
        report = verify_module(card.exhibit()(24, 3), 24, 3)
        assert report.mistakes[:1] == (card.id,), str(report)


def test_every_name_is_a_card():
    names = {*CARDS.values(), *LAYOUT_CARDS.values()}
    assert names <= set(known_mistakes())
    assert {card.check for card in EXHIBITS} <= set(CHECKS)


def test_two_mistakes_are_both_named():
    class Both(room.scale_by_model_width, room.merge_without_permute):
        pass

    report = verify(Both(E, H))
    assert set(report.mistakes) == {
        "scale-by-model-width",
        "merge-without-permute",
    }


def test_words_name_head_token_and_channel():
    report = verify(room.merge_without_permute)
    check = report["head independence"]
    assert "Changing the values of head" in check.what
    assert {"token", "channel", "head"} <= set(check.counterexample.where)
    sizes = check.counterexample.sizes
    assert (sizes["B"], sizes["L"]) == (1, 2)


def test_words_say_who_sees_whom():
    report = verify(room.module_mask_polarity)
    assert "although the mask" in report["mask meaning"].what


def test_masked_row_names_what_it_poisons():
    report = verify(room.masked_row_poisons_weights)
    assert "v_proj.weight" in report["fully masked row"].what


def test_unregistered_weights_are_named():
    report = verify(room.unregistered_weights)
    assert "queries[0].weight" in report["state-dict round trip"].what


# -- Named without weights to compare --------------------------------------


class Unrecognised(nn.Module):
    """Names that say nothing, and an axis that the tokens are not on."""

    def __init__(self, embed_dim, num_heads):
        super().__init__()
        self.inner = nn.MultiheadAttention(embed_dim, num_heads)
        self.gain = nn.Parameter(torch.ones(embed_dim))

    def forward(self, x):
        return self.gain * self.inner(x, x, x, need_weights=False)[0]


def test_batch_taken_for_sequence_is_named_by_who_changes_whom():
    report = verify(Unrecognised(E, H))
    assert "gain" in report.not_tested["values"]
    assert report["batch independence"].mistake == "batch-sequence-swap"


def test_inverted_mask_is_named_by_who_sees_whom():
    class Inverted(room.module_mask_polarity):
        def __init__(self, embed_dim, num_heads):
            super().__init__(embed_dim, num_heads)
            self.gain = nn.Parameter(torch.ones(embed_dim))

        def forward(self, x, mask=None):
            return super().forward(x, mask) * self.gain

    report = verify(Inverted(E, H))
    assert report["mask meaning"].mistake == "module-mask-polarity"


@pytest.mark.parametrize(
    ("diagonal", "mistake"),
    [(2, "causal-off-by-one-future"), (None, "causal-transposed")],
)
def test_wrong_causal_buffer_is_named(diagonal, mistake):
    module = NanoGptStyle(E, H)
    ones = torch.ones(32, 32)
    keep = ones.triu() if diagonal is None else ones.tril(diagonal - 1)
    module.bias.copy_(keep)
    report = verify(module)
    assert mistake in report.mistakes, str(report)


# -- The two posts ---------------------------------------------------------


def post(number):
    path = POSTS / f"post_{number}.py"
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.MultiHeadAttention


def test_first_post_fails_other_lengths_and_the_masked_row_only():
    report = verify(post(1))
    assert failed(report) == {"cross-attention lengths", "fully masked row"}
    assert set(report.mistakes) == {
        "module-query-length-for-keys",
        "masked-row-poisons-weights",
    }


def test_second_post_fails_gradients_and_the_masked_row_only():
    report = verify(post(2))
    assert failed(report) == {"gradients", "fully masked row"}
    assert set(report.mistakes) == {
        "reentrant-checkpoint",
        "masked-row-poisons-weights",
    }


# -- The module is left alone ----------------------------------------------


class CannotBeCopied(SelfAttention):
    def __deepcopy__(self, memo):
        raise RuntimeError("not me")


@pytest.mark.parametrize("isolate", [True, False])
@pytest.mark.parametrize("kind", [room.dropout_on_output, CannotBeCopied])
def test_module_is_left_as_it_was(kind, isolate):
    module = kind(E, H)
    module.q_proj.eval()
    module(torch.ones(1, 2, E)).sum().backward()
    calls = []
    module.out_proj.register_forward_hook(lambda *_: calls.append(1))
    before = {n: x.detach().clone() for n, x in module.named_parameters()}
    grads = {n: x.grad for n, x in module.named_parameters()}
    copies = {n: g.clone() for n, g in grads.items()}
    hooks = len(module.out_proj._forward_hooks)
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    threads = torch.get_num_threads()

    report = verify(module, isolate=isolate)

    assert_array_equal(torch.rand(3), expected)
    assert torch.get_num_threads() == threads
    assert module.training
    assert not module.q_proj.training
    assert len(module.out_proj._forward_hooks) == hooks
    for name, parameter in module.named_parameters():
        assert_array_equal(parameter.detach(), before[name])
        assert parameter.grad is grads[name]
        assert_array_equal(parameter.grad, copies[name])
    if kind is CannotBeCopied:
        assert any("cannot be copied" in note for note in report.notes)
        assert "gradients" in report.not_tested
        assert report["values"].passed
    else:
        assert module.attn_dropout.p == 0.1


# -- Modules that are not even wrong ---------------------------------------


class Broken(SelfAttention):
    """Returns what it is told to."""

    def __init__(self, embed_dim, num_heads, result):
        super().__init__(embed_dim, num_heads)
        self.result = result

    def forward(self, x, mask=None):
        return self.result(super().forward(x, mask))


def raises(out):
    raise KeyError("lost")


@pytest.mark.parametrize(
    ("result", "check", "words"),
    [
        (lambda out: None, "runs", "returns NoneType"),
        (lambda out: out * float("nan"), "runs", "not finite"),
        (lambda out: out.double(), "runs", "dtype"),
        (lambda out: out.detach().numpy(), "runs", "returns ndarray"),
        (raises, "runs", "raises KeyError"),
        (lambda out: out[:, :-1], "output shape", "has shape"),
        (lambda out: out.transpose(1, 2), "output shape", "has shape"),
        (lambda out: (), "runs", "returns tuple"),
    ],
)
def test_broken_module_is_a_failed_check(result, check, words):
    report = verify(Broken(E, H, result))
    assert failed(report) == {check}
    assert words in report[check].what
    assert report.not_tested


def test_hanging_module_is_stopped_and_reported():
    def hang(out):
        while True:
            time.sleep(1)

    report = verify_module(Broken(E, H, hang), E, H, seconds=3)
    assert not report.passed
    assert "time limit" in report.failures[0].what


def test_class_that_cannot_be_built_is_a_failed_check():
    def build(embed_dim, num_heads):
        raise OSError("no weights here")

    report = verify(build)
    assert "no weights here" in report.failures[0].what


def test_unknown_argument_is_no_failure_but_nothing_is_tested():
    class Rotary(SelfAttention):
        def forward(self, x, frequencies):
            return x

    report = verify(Rotary(E, H))
    assert not report.passed
    assert not report.checks
    assert "frequencies" in next(iter(report.not_tested.values()))


def test_mask_that_no_rank_fits_is_a_failed_check():
    class Refuses(SelfAttention):
        def forward(self, x, mask=None):
            if mask is not None:
                raise ValueError("no masks today")
            return super().forward(x)

    report = verify(Refuses(E, H))
    assert "no masks today" in report["mask meaning"].what


def test_wrong_arguments_of_ours_raise():
    with pytest.raises(ShapeMismatch, match="does not divide"):
        verify_module(SelfAttention(E, H), 16, 3)
    with pytest.raises(ValueError, match="mask_means"):
        verify_module(SelfAttention(E, H), E, H, mask_means="maybe")
    with pytest.raises(ValueError, match=r"an nn\.Module"):
        verify_module(np.ones(3), E, H)


def test_sizes_that_hide_mistakes_are_noted():
    report = verify(SelfAttention(16, 4), 16, 4)
    assert any("cannot be seen" in note for note in report.notes)
