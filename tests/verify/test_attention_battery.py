"""The battery for attention functions rejects the museum, and nothing else."""

import time

import numpy as np
import pytest
import torch
from correct_attention import CORRECT
from torch.nn import functional

from attention_lab.reference import attention_reference
from attention_lab.verify import verify_attention
from attention_lab.verify.attention.kinds import KINDS
from attention_lab.verify.known_mistakes import known_mistakes

CARDS = {
    name: card
    for name, card in known_mistakes().items()
    if card.kind == "attention"
}
#: Seconds for what compiles at every new size; the others need one.
SLOW = {"FlexAttention": 120.0, "torch.compile": 120.0}


@pytest.fixture(scope="module")
def reports():
    """Verify every exhibit once, in this process: what is known is kept."""
    return {
        name: verify_attention(card.exhibit(), isolate=False, seconds=60.0)
        for name, card in CARDS.items()
    }


@pytest.mark.parametrize("name", CARDS)
def test_every_exhibit_is_rejected_by_the_check_of_its_card(name, reports):
    assert CARDS[name].check in {
        check.name for check in reports[name].failures
    }, str(reports[name])


def test_nine_of_ten_exhibits_are_named_rightly(reports):
    rows, right = [], 0
    for name, report in reports.items():
        given = report[CARDS[name].check].mistake
        right += given == name
        rows.append(f"{name:38} {given if given != name else '✓'}")
    share = right / len(reports)
    print("\n".join([*rows, f"{right} of {len(reports)} named ({share:.1%})"]))
    assert share >= 0.9


@pytest.mark.parametrize("name", CARDS)
def test_no_failure_is_without_words(name, reports):
    for check in reports[name].failures:
        assert check.what.endswith("."), check
        assert ".." not in check.what.replace("...", "")


@pytest.mark.parametrize("name", CORRECT)
def test_every_right_way_of_writing_it_passes(name):
    correct = CORRECT[name]
    report = verify_attention(
        correct.function,
        supports=correct.supports,
        seconds=SLOW.get(name, 30.0),
    )
    assert report.passed, str(report)


def test_a_right_function_is_verified_within_two_seconds():
    verify_attention(functional.scaled_dot_product_attention)
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        report = verify_attention(functional.scaled_dot_product_attention)
        seconds.append(time.perf_counter() - start)
        assert report.passed
    assert min(seconds) < 2.0


def test_the_float64_reference_passes_as_numpy():
    def reference(query, key, value, attn_mask=None, is_causal=False,
                  scale=None, enable_gqa=False):  # fmt: skip
        out = attention_reference(
            query, key, value, attn_mask, is_causal, scale, enable_gqa
        ).out_BHLD
        return out.astype(query.dtype)

    report = verify_attention(reference)
    assert report.passed, str(report)
    assert report.kind == "numpy"
    assert "gradients" in report.not_tested


def sdpa(query, key, value, **options):
    return functional.scaled_dot_product_attention(query, key, value, **options)


def give_none(query, key, value):
    sdpa(query, key, value)


def give_list(query, key, value):
    return sdpa(query, key, value).tolist()


def give_number(query, key, value):
    return 1.0


def give_nan(query, key, value):
    return sdpa(query, key, value) * torch.nan


def give_float64(query, key, value):
    return sdpa(query, key, value).double()


def give_float32(query, key, value):
    return sdpa(query.float(), key.float(), value.float()).to(query.dtype)


def give_other_shape(query, key, value):
    return sdpa(query, key, value).transpose(1, 2)


def give_one_row(query, key, value):
    return sdpa(query, key, value)[:, :, :1]


def raise_error(query, key, value):
    raise KeyError("head_dim")


def raise_at_exit(query, key, value):
    raise SystemExit(3)


def never_return(query, key, value):
    while True:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("function", "check", "words"),
    [
        (give_none, "runs", "it returns None"),
        (give_list, "runs", "it returns a list"),
        (give_number, "runs", "it returns a float"),
        (give_nan, "values", "is nan; it should be"),
        (give_float64, "dtype", "it returns float64, but query has float32"),
        (give_float32, "dtype", "computed in a lower precision"),
        (give_other_shape, "shape", "(B, H, L, D_v) is (1, 2, 3, 4)"),
        (give_one_row, "shape", "it returns shape (1, 2, 1, 4)"),
        (raise_error, "runs", "it raises KeyError: 'head_dim'"),
        (raise_at_exit, "runs", "It called sys.exit(3)"),
    ],
)
def test_a_function_that_gives_no_attention_is_reported(function, check, words):
    report = verify_attention(function)
    assert not report.passed
    assert words in report[check].what, str(report)


def test_a_function_that_hangs_is_stopped_and_reported():
    start = time.perf_counter()
    report = verify_attention(never_return, seconds=2.0)
    assert time.perf_counter() - start < 6.0
    assert not report.passed
    assert "time limit of 2 s" in report["runs"].what


def test_what_the_signature_lacks_is_not_tested():
    report = verify_attention(lambda q, k, v: sdpa(q, k, v))
    assert report.passed, str(report)
    assert report.not_tested["boolean mask"] == "it has no argument attn_mask"
    assert report.not_tested["causal"] == "it has no argument is_causal"


def test_supports_narrows_what_is_tested():
    report = verify_attention(sdpa, supports=("is_causal",))
    assert report.passed
    assert "causal" in {check.name for check in report.checks}
    assert {"cross-attention", "boolean mask", "gradients"} <= set(
        report.not_tested
    )


def test_only_runs_the_checks_that_are_asked_for():
    report = verify_attention(sdpa, only=["causal"])
    names = {check.name for check in report.checks}
    assert names == {"runs", "shape", "repeatable", "causal"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"supports": ["masks"]}, "supports must be a collection of"),
        ({"supports": "attn_mask"}, "supports must be a collection of"),
        ({"only": ["speed"]}, "only must be a collection of"),
        ({"seconds": 0}, "seconds"),
    ],
)
def test_bad_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        verify_attention(sdpa, **options)


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ValueError, match="fn must be callable, not ndarray"):
        verify_attention(np.zeros(3))


def test_the_smallest_example_is_small_and_holds_its_numbers():
    report = verify_attention(CARDS["causal-ignored"].exhibit())
    example = report["causal"].counterexample
    assert example.sizes == {"B": 1, "H": 1, "L": 2, "S": 2, "D": 1}
    assert np.shape(example.inputs["query"]) == (1, 1, 2, 1)
    assert (example.got, example.expected) != (None, None)
    assert "token 0 sees token 1" in report["causal"].what


def test_two_mistakes_in_one_function_are_both_named():
    def wrong_twice(query, key, value, attn_mask=None):
        scores = query @ key.mT
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        weights = torch.softmax(scores, -1).nan_to_num(0.0)
        return weights @ value

    report = verify_attention(wrong_twice, supports=("attn_mask",))
    check = report["boolean mask"]
    assert {check.mistake, check.also} == {"mask-polarity", "scale-missing"}


def test_hints_grow_from_one_call_to_the_next():
    exhibit = CARDS["softmax-over-queries"].exhibit()
    card = CARDS["softmax-over-queries"]
    hints = [
        verify_attention(exhibit, only=["values"])["values"].hint
        for _ in range(2)
    ]
    assert hints in ([card.hint, card.bigger_hint], [card.bigger_hint] * 2)


def test_the_caller_s_arrays_and_generator_are_left_alone():
    state = torch.get_rng_state()
    verify_attention(CARDS["dropout-always-on"].exhibit())
    assert torch.equal(torch.get_rng_state(), state)


def test_every_check_rejects_some_exhibit_or_function(reports):
    used = {
        check.name for report in reports.values() for check in report.failures
    }
    used |= {"runs", "shape", "dtype"}  # by the functions above
    assert used == {kind.name for kind in KINDS}


# -- Found by attack: what must not be blamed, and what must not be named ----


def test_a_module_or_script_that_is_called_is_read_like_a_function():
    class Attend(torch.nn.Module):
        def forward(self, query, key, value):
            return sdpa(query, key, value)

    with pytest.warns(DeprecationWarning, match="deprecated"):
        script = torch.jit.script(scripted)
    for function in (Attend(), script):
        report = verify_attention(function)
        assert report.passed, str(report)
        assert "causal" in report.not_tested


def scripted(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor):
    return functional.scaled_dot_product_attention(query, key, value)


def test_a_wrapper_that_takes_any_word_is_asked_what_it_accepts():
    def wrapper(*args, **options):
        return give_plain(*args, **options)

    def give_plain(query, key, value, is_causal=False):
        return sdpa(query, key, value, is_causal=is_causal)

    report = verify_attention(wrapper)
    assert report.passed, str(report)
    assert {"boolean mask", "scale", "grouped heads"} <= set(report.not_tested)


def test_inputs_by_keyword_only_are_given_by_keyword():
    def attention(*, q, k, v):
        return sdpa(q, k, v)

    assert verify_attention(attention).passed


def test_an_argument_that_was_never_given_is_said():
    def attention(query, key, value, segment_ids=None):
        return sdpa(query, key, value)

    assert "segment_ids was never given" in str(verify_attention(attention))


def test_empty_input_may_be_left_out():
    def attention(query, key, value):
        if query.shape[2] == 0:
            raise ValueError("no queries")
        return sdpa(query, key, value)

    assert "no queries" in verify_attention(attention)["empty"].what
    rest = ("cross_attention", "value_width", "half_precision", "gradients")
    report = verify_attention(attention, supports=rest)
    assert report.passed, str(report)


def test_numpy_code_that_runs_on_tensors_is_called_with_numpy():
    def attention(query, key, value):
        scores = query @ np.swapaxes(key, -1, -2) / query.shape[-1] ** 0.5
        scores = scores - np.max(scores, axis=-1, keepdims=True)
        weights = np.exp(scores)
        return weights / np.sum(weights, axis=-1, keepdims=True) @ value

    report = verify_attention(attention, supports=("double_precision",))
    assert report.kind == "numpy"
    assert report.passed, str(report)


def counting(query, key, value, calls=[0]):  # noqa: B006 - the mistake
    calls[0] += 1
    return sdpa(query, key, value) * calls[0]


def half_flipped(query, key, value):
    out = sdpa(query, key, value)
    return out.flip(1) if query.dtype == torch.float16 else out


def zeros(query, key, value):
    return torch.zeros_like(query)


def mean(query, key, value):
    mean = value.mean(2, keepdim=True)
    return mean.expand(*query.shape[:-1], value.shape[-1])


def swapped(query, key, value):
    scores = key @ query.mT / query.shape[-1] ** 0.5
    return torch.softmax(scores, -1) @ value


def one_more(query, key, value):
    scores = (query @ key.mT / query.shape[-1] ** 0.5).exp()
    return scores / (1 + scores.sum(-1, keepdim=True)) @ value


def one_key_less(query, key, value):
    scores = query @ key.mT / query.shape[-1] ** 0.5
    if scores.shape[-1] > 1:
        scores = scores.clone()
        scores[..., -1] = -torch.inf
    return torch.softmax(scores, -1) @ value


@pytest.mark.parametrize(
    "function",
    [counting, half_flipped, zeros, mean, swapped, one_more, one_key_less],
)
def test_what_no_card_describes_is_rejected_without_a_name(function):
    report = verify_attention(function)
    assert not report.passed
    assert report.mistakes == ()


@pytest.mark.parametrize("size", ["B > 4", "H > 8", "D > 64", "S > 256"])
def test_wrong_only_beyond_a_size_is_noticed(size):
    axis, limit = size[0], int(size[4:])

    def attention(query, key, value):
        n = dict(zip("BHSD", key.shape, strict=True))
        return sdpa(query, key, value) * (2 if n[axis] > limit else 1)

    assert not verify_attention(attention).passed


def test_a_mask_that_the_function_writes_to_is_noticed():
    def attention(query, key, value, attn_mask=None):
        copy = None if attn_mask is None else attn_mask.clone()
        out = sdpa(query, key, value, attn_mask=copy)
        if attn_mask is not None:
            attn_mask.zero_()
        return out

    report = verify_attention(attention)
    assert "attn_mask has other numbers" in report["inputs unchanged"].what


def test_weights_from_a_log_sum_exp_are_right():
    def attention(query, key, value):
        scores = query @ key.mT / query.shape[-1] ** 0.5
        lse = torch.logsumexp(scores, -1, keepdim=True)
        return torch.exp(scores - lse) @ value

    report = verify_attention(
        attention, supports=("cross_attention", "double_precision")
    )
    assert report.passed, str(report)
