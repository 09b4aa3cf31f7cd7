"""Modules as they come: unusual right ones pass, wrong ones do not."""

import os
import subprocess
import sys

import more_modules as more
import pytest
from numpy.testing import assert_array_less
from torch import nn

from attention_lab.steps.multi_head import MultiHeadAttention
from attention_lab.verify.module.battery import verify_module

E, H = 24, 3


def verify(build, embed_dim=E, num_heads=H, **options):
    options = {"isolate": False, "seconds": 300.0} | options
    return verify_module(build, embed_dim, num_heads, **options)


def failed(report):
    return {check.name for check in report.failures}


# -- Masks -----------------------------------------------------------------


def test_required_mask_that_may_not_be_none_is_given_an_open_one():
    report = verify(more.RequiredMask)
    assert report.passed, str(report)
    for name in ("values", "mask meaning", "causality"):
        assert report[name].passed


def test_default_that_fails_is_said_and_the_rest_is_tested():
    report = verify(more.DefaultThatFails)
    assert failed(report) == {"runs"}
    assert "leave it out" in report["runs"].what
    assert report["values"].passed


def test_required_mask_read_the_wrong_way_round_is_named():
    report = verify(more.RequiredInverted)
    assert report.mistakes == ("module-mask-polarity",)
    assert verify(more.RequiredInverted, mask_means="forbid")["values"].passed


def test_bias_is_a_floating_mask():
    report = verify(more.AddedBias)
    assert report.passed, str(report)
    assert report["float mask"].passed


@pytest.mark.parametrize("name", ["attention_mask", "src_mask", "causal_mask"])
def test_masks_are_known_by_many_names(name):
    space = {"SelfAttention": more.SelfAttention}
    exec(
        f"class Named(SelfAttention):\n"
        f"    def forward(self, x, {name}=None):\n"
        f"        return super().forward(x)\n",
        space,
    )
    report = verify(space["Named"], only=["mask meaning"])
    assert report.mistakes == ("mask-ignored",)


def test_arguments_that_were_never_given_are_noted():
    report = verify(more.ManyArguments)
    assert report.passed, str(report)
    note = "These arguments were never given: head_mask, output_attentions."
    assert note in report.notes


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (more.Padding, {}),
        (more.PaddingKeeps, {"padding_means": "keep"}),
        (lambda E, H: nn.MultiheadAttention(E, H, batch_first=True), {}),
        (nn.MultiheadAttention, {}),
    ],
)
def test_right_padding_mask_passes(build, options):
    report = verify(build, **options)
    assert report.passed, str(report)
    assert report["padding mask"].passed


@pytest.mark.parametrize(
    ("build", "options", "mistake"),
    [
        (more.Padding, {"padding_means": "keep"}, "module-mask-polarity"),
        (more.PaddingKeeps, {}, "module-mask-polarity"),
        (more.PaddingIgnored, {}, "mask-ignored"),
        (more.PaddingOfFirstSample, {}, None),
    ],
)
def test_wrong_padding_mask_fails(build, options, mistake):
    report = verify(build, **options)
    assert failed(report) == {"padding mask"}, str(report)
    assert report["padding mask"].mistake == mistake


# -- Positions -------------------------------------------------------------

WITH_POSITIONS = (
    more.Rotary,
    more.Alibi,
    more.Window,
    more.SlidingCausal,
    more.RelativeBias,
    more.Sinusoidal,
)


@pytest.mark.parametrize("build", WITH_POSITIONS)
def test_module_with_positions_fails_with_the_way_out(build):
    report = verify(build)
    assert not report.passed
    assert report.mistakes == ()
    assert "positions='own'" in report["permutation equivariance"].what


@pytest.mark.parametrize("build", WITH_POSITIONS)
def test_module_with_positions_of_its_own_passes(build):
    report = verify(build, positions="own")
    assert report.passed, str(report)
    assert "permutation equivariance" in report.not_tested
    if build in (more.RelativeBias, more.Sinusoidal):
        assert "values" in report.not_tested
    else:
        assert any("no score between" in note for note in report.notes)


def test_module_without_positions_is_compared_as_ever():
    report = verify(MultiHeadAttention, positions="own")
    assert report.passed
    assert report["permutation equivariance"].passed


@pytest.mark.parametrize(
    ("build", "check", "mistake"),
    [
        (more.RotaryScaledByWidth, "values", "scale-by-model-width"),
        (more.RotaryOnValues, "values", None),
        (more.RotaryMergedByView, "head independence", None),
        (more.MultipliedTriangle, "values", None),
        (more.DetachedTokens, "gradients", None),
    ],
)
def test_positions_of_its_own_excuse_nothing_else(build, check, mistake):
    report = verify(build, positions="own")
    assert check in failed(report), str(report)
    assert report.mistakes == ((mistake,) if mistake else ())


# -- Widths, lengths, weights ----------------------------------------------


@pytest.mark.parametrize("kdim", [16, 40])
def test_keys_of_another_width_are_compared_by_value(kdim):
    report = verify(lambda E, H: more.OtherKeyWidth(E, H, kdim))
    assert report.passed, str(report)
    assert report["cross-attention lengths"].passed
    report = verify(
        lambda E, H: nn.MultiheadAttention(E, H, kdim=kdim, vdim=20)
    )
    assert report.passed, str(report)
    assert report["values"].passed


def test_few_tokens_are_enough_if_the_module_says_so():
    report = verify(more.FewTokens)
    assert report.passed, str(report)
    assert report["values"].passed
    assert any("at most 4 tokens" in note for note in report.notes)
    assert "at most 4" in report.not_tested["long sequences"]


def test_length_that_breaks_without_a_reason_is_a_failure():
    report = verify(more.BreaksAbove)
    assert failed(report) == {"long sequences"}
    assert "too many tokens" in report["long sequences"].what


@pytest.mark.parametrize("build", [more.SpectralNorm, more.WeightNorm])
def test_computed_weights_are_compared_by_value(build):
    report = verify(build)
    assert report.passed, str(report)
    assert report["values"].passed


def test_wrong_scale_is_named_with_computed_weights_too():
    report = verify(more.WeightNormScaledByWidth)
    assert report.mistakes == ("scale-by-model-width",)


@pytest.mark.parametrize("isolate", [True, False])
def test_lazy_layers_get_their_sizes(isolate):
    module = more.Lazy(E, H)
    report = verify(module, isolate=isolate)
    assert report.passed, str(report)
    assert report["values"].passed
    assert nn.parameter.is_lazy(module.q_proj.weight)


# -- What short sequences hide ---------------------------------------------


@pytest.mark.parametrize(
    ("build", "token"),
    [
        (more.FirstSixteenKeys, "sees token 16 to 32"),
        (more.DropsTail, "sees token 32"),
        (more.DropsTailUnrecognised, "sees token 32"),
    ],
)
def test_long_sequences_show_keys_that_are_left_out(build, token):
    report = verify(build)
    assert failed(report) == {"long sequences"}, str(report)
    assert token in report["long sequences"].what


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (more.DetachedTokens, "No gradient reaches the tokens"),
        (more.DetachedKeys, "do not foretell"),
    ],
)
def test_tokens_must_get_their_gradient(build, words):
    report = verify(build)
    assert failed(report) == {"gradients"}, str(report)
    assert words in report["gradients"].what


@pytest.mark.parametrize(("embed_dim", "num_heads"), [(24, 3), (16, 4)])
@pytest.mark.parametrize("name", ["qkv", "mix", "query"])
def test_one_projection_for_all_three_fails(name, embed_dim, num_heads):
    report = verify(
        lambda E, H: more.OneForAll(E, H, name), embed_dim, num_heads
    )
    assert failed(report) == {"values"}, str(report)
    assert f"One projection, {name}," in report["values"].what


# -- Time ------------------------------------------------------------------


WIDE = """
import time
from torch import nn
from attention_lab.steps.multi_head import MultiHeadAttention
from attention_lab.verify.module.battery import verify_module
def torchs(E, H):
    return nn.MultiheadAttention(E, H, batch_first=True)
options = {"isolate": False, "seconds": 300.0}
verify_module(MultiHeadAttention, 12, 3, **options)  # imports and caches
before = time.process_time()
assert verify_module(BUILD, 512, 8, **options).passed
print(time.process_time() - before)
"""


@pytest.mark.parametrize("build", ["MultiHeadAttention", "torchs"])
def test_wide_module_is_verified_in_seconds(build):
    # In a process of its own: one that has run a thousand tests is slower.
    ran = subprocess.run(
        [sys.executable, "-c", WIDE.replace("BUILD", build)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    # One to two seconds with one thread; idle threads would count as busy.
    assert_array_less(float(ran.stdout), 15.0)
