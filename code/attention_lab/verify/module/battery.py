"""Verify any attention module: run the checks and report in words."""

import contextlib
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from attention_lab.axes import check_divisible
from attention_lab.verify.choice import chosen_checks
from attention_lab.verify.hints import with_growing_hints
from attention_lab.verify.isolation.isolated import Progress, isolated_report
from attention_lab.verify.module import (
    checkpoint,
    lengths,
    masks,
    outputs,
    padding,
    properties,
    training,
    values,
)
from attention_lab.verify.module.bench import (
    Bench,
    NotTested,
    as_check,
)
from attention_lab.verify.module.layers import draw_anew
from attention_lab.verify.module.signature import CannotCall
from attention_lab.verify.module.subject import (
    CannotCopy,
    MaskMeans,
    PaddingMeans,
    Subject,
    SubjectFailure,
    one_quiet_thread,
    unwrapped,
)
from attention_lab.verify.module.training import dropout_rates, set_dropout
from attention_lab.verify.report import Check, Report

#: The checks in the order in which they run. `values` comes early: it names
#: the mistake that later properties are broken by.
CHECKS: dict[str, Callable[[Bench], values.Result]] = {
    "runs": outputs.runs,
    "output shape": outputs.output_shape,
    "eval is deterministic": training.eval_is_deterministic,
    "values": values.values,
    "every token is seen": properties.every_token_is_seen,
    "batch independence": properties.batch_independence,
    "permutation equivariance": properties.permutation_equivariance,
    "query independence": properties.query_independence,
    "head independence": properties.head_independence,
    "mask meaning": masks.mask_meaning,
    "float mask": masks.float_mask,
    "causality": masks.causality,
    "token independence": masks.token_independence,
    "fully masked row": masks.fully_masked_row,
    "padding mask": padding.padding_mask,
    "cross-attention lengths": values.cross_attention_lengths,
    "long sequences": lengths.long_sequences,
    "attention weights": values.attention_weights,
    "gradients": training.gradients,
    "dropout only in training": training.dropout_only_in_training,
    "state-dict round trip": checkpoint.state_dict_round_trip,
    "large inputs": outputs.large_inputs,
}
#: Without these, the other checks would only repeat the same failure.
FIRST = ("runs", "output shape")
NEED_MASK = (
    "mask meaning",
    "float mask",
    "causality",
    "token independence",
    "fully masked row",
)


def verify_module(
    module: nn.Module | Callable[[int, int], nn.Module],
    embed_dim: int,
    num_heads: int,
    *,
    mask_means: MaskMeans = "keep",
    padding_means: PaddingMeans = "forbid",
    positions: Literal["none", "own"] = "none",
    only: Collection[str] | None = None,
    isolate: bool = True,
    seconds: float = 30.0,
) -> Report:
    """Run a battery against an attention module and say what is wrong.

    By properties that hold for any weights, and, where the projections are
    recognised by their names, by value with the module's own weights. The
    module itself is left as it was.

    Parameters
    ----------
    module : an `nn.Module` for self-attention, ``forward(x, mask=None)``, or
        cross-attention, ``forward(query, key, value, mask=None)``; or a class
        that is built with (embed_dim, num_heads). Inputs are batch-first,
        (B, L, E), unless it is a `torch.nn.MultiheadAttention` that says
        otherwise. A mask is (L, S). The output may come first in a tuple.
    embed_dim, num_heads : E and H.
    mask_means : what its boolean mask means: "keep" (True = may attend),
        "forbid", or "added" for one that takes floating masks only.
        `torch.nn.MultiheadAttention` is known to mean "forbid".
    padding_means : what its mask of padding, (B, S), such as
        `key_padding_mask`, means: "forbid" (True = padding, as in PyTorch) or
        "keep".
    positions : "own" for a module that is meant to have positions (rotary),
        a bias (ALiBi) or a window of its own. Then no score between two
        different tokens is compared, but the values are, and the scores of
        tokens with themselves.
    only : names of checks, to run no others.
    isolate : run it in a process of its own, so that it can neither hang nor
        crash this one.
    seconds : how long all of it may take.

    Returns
    -------
    A report: print it. What the module cannot be asked is in `not_tested`.

    Raises
    ------
    ShapeMismatch
        If `num_heads` does not divide `embed_dim`.
    ValueError
        If `module` is no module and cannot be called, an option is another
        word, or `only` names no check.

    Examples
    --------
    >>> module = nn.MultiheadAttention(12, 3, batch_first=True)
    >>> verify_module(module, embed_dim=12, num_heads=3).passed
    True
    """
    check_divisible(embed_dim, num_heads, "embed_dim", "num_heads")
    if mask_means not in ("keep", "forbid", "added"):
        raise ValueError(
            "mask_means must be 'keep', 'forbid' or 'added', not "
            f"{mask_means!r}"
        )
    if padding_means not in ("keep", "forbid"):
        raise ValueError(
            f"padding_means must be 'keep' or 'forbid', not {padding_means!r}"
        )
    if positions not in ("none", "own"):
        raise ValueError(
            f"positions must be 'none' or 'own', not {positions!r}"
        )
    if not callable(module):
        raise ValueError(
            f"module must be an nn.Module, not {type(module).__name__}"
        )
    chosen = chosen_checks(only, CHECKS)
    is_built = isinstance(module, nn.Module)
    kind = type(unwrapped(module)) if is_built else module
    name = getattr(kind, "__name__", type(kind).__name__)

    asked = _Asked(mask_means, padding_means, positions == "own", chosen)

    def build(progress: Progress) -> Report:
        with one_quiet_thread():
            return _battery(module, embed_dim, num_heads, asked, name, progress)

    report = isolated_report(
        build, subject=name, kind="module", seconds=seconds, isolate=isolate
    )
    owner = f"{kind.__module__}.{getattr(kind, '__qualname__', name)}"
    return with_growing_hints(report, owner)


@dataclass(frozen=True)
class _Asked:
    """What the caller says about a module, and which checks to run."""

    mask_means: MaskMeans
    padding_means: PaddingMeans
    has_positions: bool
    chosen: frozenset[str]


def _battery(
    module: Any,
    E: int,
    H: int,
    asked: _Asked,
    name: str,
    progress: Progress,
) -> Report:
    progress.starts("runs", "building it and reading its signature")
    if not isinstance(module, nn.Module):
        module = module(E, H)
    if not isinstance(module, nn.Module):
        what = f"It is {type(module).__name__}, not an nn.Module."
        return Report(name, "module", (Check("runs", False, what),))
    try:
        original = Subject(module, asked.mask_means, asked.padding_means)
    except (CannotCall, ValueError, TypeError) as reason:
        return Report(name, "module", (), {"every check": str(reason)})
    with _workbench(original, E, H) as bench:
        bench.has_positions = asked.has_positions
        return _run(bench, asked.chosen, name, progress)


@contextlib.contextmanager
def _workbench(original: Subject, E: int, H: int) -> Iterator[Bench]:
    """Make the copies to work on; put the module back if it has no copy."""
    notes = []
    saved = _state(original.module)
    try:
        try:
            given = original.copy()
        except CannotCopy as reason:
            notes.append(
                f"The checks ran on the module itself, as {reason}. What they "
                "changed is put back."
            )
            given = original
        else:
            given.module.to("cpu")
            if given.dtype in (torch.float16, torch.bfloat16):
                given.module.float()
                notes.append("It was verified in float32.")
        given.module.eval()
        set_dropout(given.module, 0.0)
        bench = Bench(given, given, E, H, notes=notes)
        # The first call, which also gives lazy layers their sizes.
        lengths.fit(bench)
        if given is not original:
            bench.drawn = given.copy()
        draw_anew(bench.drawn.module, seed=0)
        if given.never_given:
            names = ", ".join(given.never_given)
            notes.append(f"These arguments were never given: {names}.")
        if H in (1, E // H) or E // H in (1, 4):
            # One head hides every mix-up of heads; with D = 4, √D is D / 2.
            bench.notes.append(
                f"With H = {H} and D = {E // H} some mistakes cannot be seen; "
                "verify it with other sizes too, such as H = 3 and D = 5."
            )
        yield bench
    finally:
        _put_back(saved)


def _state(root: nn.Module) -> tuple[list, list, list, list]:
    """Return what the checks can change: numbers, gradients, modes, rates."""
    tensors = [*root.parameters(), *root.buffers()]
    tensors = [x for x in tensors if not is_lazy(x)]  # they hold nothing yet
    return (
        [(x, x.detach().clone()) for x in tensors],
        [(x, x.grad) for x in root.parameters()],
        [(module, module.training) for module in root.modules()],
        dropout_rates(root),
    )


def _put_back(saved: tuple[list, list, list, list]) -> None:
    tensors, grads, modes, rates = saved
    with torch.no_grad():
        for x, before in tensors:
            # Writing would count as a change, also where nothing differs.
            if not torch.equal(x, before):
                x.copy_(before)
    for parameter, grad in grads:
        parameter.grad = grad
    for module, was_training in modes:
        module.training = was_training
    for module, name, rate in rates:
        setattr(module, name, rate)


def _run(
    bench: Bench, chosen: frozenset[str], name: str, progress: Progress
) -> Report:
    checks: list[Check] = []
    not_tested: dict[str, str] = {}
    for check_name, test in CHECKS.items():
        # What `values` finds out, others use, so it always runs.
        if check_name not in (*FIRST, "values", *chosen):
            continue
        progress.starts(check_name)
        try:
            if check_name == "values":
                properties.find_causality(bench)
            if check_name in NEED_MASK:
                _find_mask(bench)
            finding, sizes = test(bench)
            check = as_check(bench, check_name, finding, sizes)
        except (NotTested, CannotCopy) as why:
            if check_name in (*FIRST, *chosen):
                not_tested[check_name] = str(why)
            continue
        except SubjectFailure as failure:
            check = Check(check_name, False, _sentence(str(failure)))
        if check_name == "values" and "values" not in chosen:
            continue
        progress.finished(check)
        checks.append(check)
        runs_anyway = bench.drawn.fails_without is not None
        if check_name in FIRST and not check.passed and not runs_anyway:
            rest = "it does not run" if check_name == "runs" else "wrong shape"
            not_tested["every later check"] = rest
            break
    return Report(name, "module", tuple(checks), not_tested, tuple(bench.notes))


def _find_mask(bench: Bench) -> None:
    """Find out how many axes a mask needs, once.

    Raises
    ------
    SubjectFailure
        If a mask of no rank runs; says what happens with one of (L, S).
    """
    if bench.drawn.mask is None or bench.drawn.mask_rank is not None:
        return
    B, L, _ = bench.sizes
    reason = bench.drawn.find_mask_rank(*bench.inputs(B, L, L))
    if reason is not None:
        raise SubjectFailure(f"With a mask of (L, S) {reason}")


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
