"""Checks of masks: who sees whom, and what if a row sees no one."""

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
from attention_lab.verify.module.diagnosis import diagnose
from attention_lab.verify.module.properties import (
    influence,
    rows_that_change,
    view,
)
from attention_lab.verify.module.subject import SubjectFailure
from attention_lab.verify.module.values import Result, dtype_of, needed


def irregular(L: int, S: int, is_causal: bool) -> torch.Tensor:
    """Return a mask with no symmetry in which every row sees some key."""
    rng = np.random.default_rng(3)
    keep = rng.random((L, S)) < 0.5
    for row in range(L):
        keep[row, row % S if is_causal else (row + 1) % S] = True
        if S > 1:
            keep[row, (row + 2) % S if S > 2 else row % S] = False
    if is_causal:
        keep |= np.eye(L, S, dtype=bool)
    return torch.from_numpy(keep)


def usable_mask(bench: Bench, L: int, S: int) -> torch.Tensor:
    """Return the irregular mask, or one of keys alone if that is all it takes.

    Then every query sees the same keys, and some key is hidden.
    """
    sees_little = bench.is_causal or bench.has_positions
    keep = irregular(L, S, sees_little)
    if bench.drawn.mask_rank != "keys":
        return keep
    if sees_little:
        keep[0, 0] = True  # or the first query would see nothing
    return keep[:1].expand(L, -1).clone()


def _needs_rows(bench: Bench) -> None:
    if bench.drawn.mask is None:
        raise NotTested("forward takes no mask")
    if bench.drawn.mask_rank == "keys":
        raise NotTested("its mask is one of keys, (B, S)")


def causality(bench: Bench) -> Result:
    """Change a token; no earlier one may notice, in any bit."""
    subject = bench.drawn
    own, flag = bench.is_causal, subject.causal
    if not own and not flag:
        _needs_rows(bench)

    def test(B: int, L: int, S: int) -> Finding | None:
        inputs = bench.inputs(B, L, S)
        keep = torch.ones(L, S, dtype=torch.bool).tril()
        mask = None if own or flag else keep
        seen = influence(bench, inputs, mask, bool(flag) and not own)
        how = "" if own else " under a causal mask"
        wanted = keep.numpy() & view(bench, L, S)
        finding = _wrong_view(seen, wanted, subject.style, how)
        if finding is None and not own:
            got = bench.run(inputs, mask, bool(flag))
            return _wrong_values(bench, inputs, got, keep)
        if finding is None:
            return None
        mistake, also = _named(bench)
        is_ignored = not own and _is_ignored(bench, inputs, keep, bool(flag))
        mistake = mistake or _pattern(seen, keep.numpy(), is_ignored)
        return replace(finding, mistake=mistake, also=also)

    return smallest(bench, test)


def _named(bench: Bench) -> tuple[str | None, str | None]:
    """Return the mistake found without a mask, or else under one."""
    return bench.mistake if bench.mistake[0] else bench.mask_mistake


def _wrong_view(
    seen: np.ndarray, keep: np.ndarray, style: str, how: str
) -> Finding | None:
    """Compare who sees whom with the mask."""
    L, S = seen.shape
    # In self-attention a token is its own query and so always matters.
    itself = np.eye(L, S, dtype=bool) & (style == "self")
    forbidden = np.argwhere(seen & ~keep & ~itself)
    if len(forbidden):
        row, token = map(int, forbidden[0])
        what = f"Token {row} sees token {token} although the mask forbids it"
        if how == "":
            what = f"Token {row} sees token {token}, which comes later"
        return Finding(f"{what}{how}.", {"token": row, "key": token})
    missed = np.argwhere(~seen & keep)
    if len(missed):
        row, token = map(int, missed[0])
        return Finding(
            f"Token {row} does not see token {token} although the mask "
            f"allows it{how}.",
            {"token": row, "key": token},
        )
    return None


def _is_ignored(
    bench: Bench, inputs, keep: torch.Tensor, is_causal: bool = False
) -> bool:
    """Say whether a mask, or the flag for it, changes nothing, in any bit.

    It must hide something that the module sees without it.
    """
    off = ~np.eye(*keep.shape, dtype=bool)
    if not (influence(bench, inputs) & ~keep.numpy() & off).any():
        return False
    mask = None if is_causal else keep
    masked = bench.run(inputs, mask, is_causal)
    return not rows_that_change(masked, bench.run(inputs)).any()


def _pattern(
    seen: np.ndarray, keep: np.ndarray, is_ignored: bool
) -> str | None:
    """Name what who-sees-whom alone can tell."""
    L, S = seen.shape
    off = ~np.eye(L, S, dtype=bool)
    if (seen == ~keep)[off].all():
        return "module-mask-polarity"
    if is_ignored:
        return "mask-ignored"
    if (seen == keep.T)[off].all():
        return "mask-transposed"
    later = np.pad(keep, ((0, 0), (1, 0)), constant_values=True)[:, :-1]
    if (seen == later)[off].all():
        return "causal-off-by-one-future"
    return None


def _wrong_values(
    bench: Bench,
    inputs,
    got: np.ndarray,
    keep: torch.Tensor | None,
    added: torch.Tensor | None = None,
) -> Finding | None:
    if bench.packing is None:
        return None
    call = bench.call_of(inputs, keep, added)
    weights = needed(bench).read(bench.packing)
    exact = right_answer(weights, call)
    bound = allowed_error(weights, call, exact, dtype_of(bench.drawn))
    return differs(got, exact, bound, "Under a mask the output is wrong")


def mask_meaning(bench: Bench) -> Result:
    """Look who sees whom under a mask, and at the values."""
    subject = bench.drawn
    if subject.mask is None:
        raise NotTested("forward takes no mask")
    B, L, _ = bench.sizes
    inputs = bench.inputs(B, L, L)
    named = _name_mask(bench, inputs)
    bench.mask_mistake = named[:2]

    def test(B: int, L: int, S: int) -> Finding | None:
        inputs = bench.inputs(B, L, S)
        keep = usable_mask(bench, L, S)
        wanted = keep.numpy() & view(bench, L, S)
        seen = influence(bench, inputs, keep)
        finding = _wrong_view(seen, wanted, subject.style, "")
        if finding is None:
            got = bench.run(inputs, keep)
            finding = _wrong_values(bench, inputs, got, keep)
        else:
            what = finding.what.replace(
                ", which comes later", " although the mask forbids it"
            )
            finding = replace(finding, what=what)
        if finding is None:
            return None
        mistake, also, words = named
        what = f"{finding.what} {words}".strip()
        return replace(finding, what=what, mistake=mistake, also=also)

    return smallest(bench, test)


def _name_mask(bench: Bench, inputs) -> tuple[str | None, str | None, str]:
    """Name a mask's mistake by its values, or by who sees whom."""
    if bench.mistake[0] is not None:
        return (*bench.mistake, "")  # it explains what the mask shows as well
    L, S = inputs[0].shape[1], inputs[1].shape[1]
    keep = usable_mask(bench, L, S)
    got = bench.run(inputs, keep)
    if bench.packing is not None:
        if _wrong_values(bench, inputs, got, keep) is None:
            return None, None, ""
        found = diagnose(bench, got, bench.call_of(inputs, keep))
        if found is not None:
            return (*found.mistake, found.words)
    seen = influence(bench, inputs, keep)
    is_ignored = _is_ignored(bench, inputs, keep)
    return _pattern(seen, keep.numpy(), is_ignored), None, ""


def float_mask(bench: Bench) -> Result:
    """Give a floating mask: it must be added to the scores.

    A module that reads it as a boolean one is noted: its mask is documented
    as one of zeros and ones.
    """
    subject, packing = bench.drawn, bench.packing
    _needs_rows(bench)
    if packing is None:
        raise NotTested("its values are not compared, and they alone can tell")

    def test(B: int, L: int, S: int) -> Finding | None:
        inputs = bench.inputs(B, L, S)
        keep = irregular(L, S, bench.is_causal)
        hard = torch.zeros(L, S, dtype=subject.dtype)
        hard = hard.masked_fill(~keep, -torch.inf)
        try:
            got = bench.run(inputs, hard)
        except SubjectFailure as failure:
            raise NotTested(f"{failure}") from failure
        if _wrong_values(bench, inputs, got, keep) is not None:
            bench.notes.append(
                "A floating mask is not added to the scores here, as it is "
                "in PyTorch."
            )
            raise NotTested("a floating mask is not added to the scores")
        generator = torch.Generator().manual_seed(5)
        soft = torch.randn(L, S, generator=generator).to(subject.dtype)
        got = bench.run(inputs, soft)
        finding = _wrong_values(bench, inputs, got, None, soft)
        if finding is None:
            return None
        return replace(
            finding,
            what="A mask of −∞ and 0 works, but one of other numbers is not "
            f"added to the scores as it is. {finding.what}",
            mistake="additive-mask-as-bool",
        )

    return smallest(bench, test)


def token_independence(bench: Bench) -> Result:
    """Let every token see only itself; it may then depend on nothing else."""
    _needs_rows(bench)

    def test(B: int, L: int, S: int) -> Finding | None:
        keep = torch.eye(L, S, dtype=torch.bool)
        inputs = bench.inputs(B, L, S)
        seen = influence(bench, inputs, keep)
        wrong = np.argwhere(seen & ~keep.numpy())
        if not len(wrong):
            return None
        row, token = map(int, wrong[0])
        mistake, also = _named(bench)
        return Finding(
            f"Every token sees only itself, and yet changing token {token} "
            f"changes the output of token {row}.",
            {"token": row, "key": token},
            mistake=mistake
            or _pattern(seen, keep.numpy(), _is_ignored(bench, inputs, keep)),
            also=also,
        )

    return smallest(bench, test)


def fully_masked_row(bench: Bench) -> Result:
    """Forbid one query every key: output and gradients must stay finite.

    The loss leaves that query out, as a loss on real tokens leaves out
    padding.
    """
    _needs_rows(bench)

    def test(B: int, L: int, S: int) -> Finding | None:
        if L < 2:
            raise NotTested("no other token for the loss")
        keep = torch.ones(L, S, dtype=torch.bool)
        row = L - 1
        keep[row] = False
        inputs = bench.inputs(B, L, S)
        got = bench.run(inputs, keep)
        poisoned = _poisoned(bench, inputs, keep, row)
        if not np.isfinite(got).all():
            b, token, channel = map(int, np.argwhere(~np.isfinite(got))[0])
            more = f" And {poisoned}." if poisoned else ""
            return Finding(
                f"Token {row} sees no key, and the output of token {token} "
                f"is {got[b, token, channel]}.{more}",
                {"sample": b, "token": token, "channel": channel},
                str(got[b, token, channel]),
                0.0,
                mistake="masked-row-poisons-weights",
            )
        if poisoned:
            return Finding(
                f"Token {row} sees no key. Its output is finite, but "
                f"{poisoned}.",
                {"token": row},
                "nan",
                mistake="masked-row-nan-hidden",
            )
        if _wrong_values(bench, inputs, got, keep) is not None:
            note = "A query that sees no key gets something else than 0."
            if note not in bench.notes:
                bench.notes.append(note)
        return None

    return smallest(bench, test)


def _poisoned(bench: Bench, inputs, keep: torch.Tensor, row: int) -> str:
    """Say which gradients are not finite; the masked row is not in the loss."""
    subject = bench.drawn.copy()
    query, key, value = (x.clone().requires_grad_() for x in inputs)
    if subject.style == "self":
        key = value = query
    loss = subject(query, key, keep, value=value)[:, :row].square().sum()
    if not loss.requires_grad:
        return ""
    loss.backward()
    bad = [
        name
        for name, parameter in subject.module.named_parameters()
        if parameter.grad is not None
        and not torch.isfinite(parameter.grad).all()
    ]
    if query.grad is not None and not torch.isfinite(query.grad).all():
        bad.append("the input")
    if not bad:
        return ""
    names = ", ".join(bad[:4]) + (" and more" if len(bad) > 4 else "")
    return (
        "a loss on the other tokens alone gives gradients that are not "
        f"finite to {names}"
    )
