"""The check of a mask of padding: (B, S), another one for every sample."""

from dataclasses import replace

import numpy as np
import torch

from attention_lab.verify.module.bench import (
    Bench,
    Finding,
    NotTested,
    allowed_error,
    differs,
    right_answer,
    smallest,
)
from attention_lab.verify.module.properties import (
    influence,
    rows_that_change,
    view,
)
from attention_lab.verify.module.subject import SubjectFailure
from attention_lab.verify.module.values import Result, dtype_of, needed

MEANINGS = {
    "forbid": "It was given True for padding, as PyTorch's own module is",
    "keep": "It was given True for a token, as padding_means='keep' says",
}


def padding_mask(bench: Bench) -> Result:
    """Hide the last keys of every sample: no query may notice them."""
    subject = bench.drawn
    if subject.padding is None:
        raise NotTested("forward takes no mask of padding")
    B, L, _ = bench.sizes
    reason = subject.find_padding_shape(*bench.inputs(B, L, L))
    if reason is not None:
        raise SubjectFailure(
            f"With a mask of padding of (B, S) as {subject.padding} {reason}"
        )

    def test(B: int, L: int, S: int) -> Finding | None:
        if S < 2:
            raise NotTested("the one key cannot be hidden")
        keep = _all_but_the_last(B, S)
        for sample in range(B):
            finding = _wrong_sample(bench, keep, L, sample)
            if finding is not None:
                return finding
        return _wrong_values(bench, keep, L)

    finding, sizes = smallest(bench, test)
    return finding and replace(finding, options=_means(bench)), sizes


def _means(bench: Bench) -> dict[str, object]:
    return {"padding_means": repr(bench.drawn.padding_means)}


def _all_but_the_last(B: int, S: int) -> torch.Tensor:
    """Return (B, S): the last one or two keys of a sample are padding."""
    keep = torch.ones(B, S, dtype=torch.bool)
    for sample in range(B):
        hidden = 1 + (sample % 2 if S > 2 else 0)
        keep[sample, S - hidden :] = False
    return keep


def _wrong_sample(
    bench: Bench, keep: torch.Tensor, L: int, sample: int
) -> Finding | None:
    """Compare who sees whom in one sample with what is no padding."""
    B, S = keep.shape
    inputs = bench.inputs(B, L, S)
    seen = influence(bench, inputs, padding=keep, sample=sample)
    open_view = view(bench, L, S)
    wanted = open_view & keep[sample].numpy()
    # A token always depends on itself, as a query; and a query that sees
    # nothing but padding may get anything.
    asked = np.broadcast_to(wanted.any(axis=1)[:, None], seen.shape).copy()
    if bench.drawn.style == "self":
        asked &= ~np.eye(L, S, dtype=bool)
    wrong = np.argwhere((seen != wanted) & asked)
    if not len(wrong):
        return None
    row, token = map(int, wrong[0])
    mistake, also = bench.mistake
    words = ""
    if mistake is None:
        mistake, words = _pattern(bench, keep, seen, wanted, open_view, asked)
    what = (
        f"sees token {token}, which is padding"
        if seen[row, token]
        else f"does not see token {token}, which is no padding"
    )
    return Finding(
        f"Under {bench.drawn.padding} token {row} of sample {sample} {what}."
        f"{words}",
        {"sample": sample, "token": row, "key": token},
        mistake=mistake,
        also=also,
    )


def _pattern(
    bench: Bench,
    keep: torch.Tensor,
    seen: np.ndarray,
    wanted: np.ndarray,
    open_view: np.ndarray,
    asked: np.ndarray,
) -> tuple[str | None, str]:
    """Name an ignored and an inverted mask by who sees whom."""
    inputs = bench.inputs(len(keep), *seen.shape)
    masked = bench.run(inputs, padding=keep)
    hides = (open_view & ~wanted & asked).any()
    if hides and not rows_that_change(masked, bench.run(inputs)).any():
        return "mask-ignored", ""
    # Where every key that it may see is hidden from it, a row says nothing.
    other = open_view & ~wanted
    telling = asked & other.any(axis=1)[:, None]
    if telling.any() and (seen == other)[telling].all():
        means = bench.drawn.padding_means
        contrary = "keep" if means == "forbid" else "forbid"
        return "module-mask-polarity", (
            f" {MEANINGS[means]}. If the contrary is meant, verify it with "
            f"padding_means='{contrary}'."
        )
    return None, ""


def _wrong_values(bench: Bench, keep: torch.Tensor, L: int) -> Finding | None:
    """Compare the values of every query that sees a key."""
    if bench.packing is None:
        return None
    B, S = keep.shape
    inputs = bench.inputs(B, L, S)
    got = bench.run(inputs, padding=keep)
    weights = needed(bench).read(bench.packing)
    for sample in range(B):
        own = tuple(x[sample : sample + 1] for x in inputs)
        call = bench.call_of(own, keep[sample].expand(L, -1))
        exact = right_answer(weights, call)
        bound = allowed_error(weights, call, exact, dtype_of(bench.drawn))
        finding = differs(
            got[sample : sample + 1],
            exact,
            bound,
            f"Under {bench.drawn.padding} the output is wrong",
        )
        if finding is not None:
            where = {**finding.where, "sample": sample}
            what = finding.what.replace("sample 0", f"sample {sample}")
            return replace(finding, where=where, what=what)
    return None
