"""Checks of training: gradients, dropout, and what a checkpoint carries."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from attention_lab.verify.module.bench import (
    Bench,
    Finding,
    NotTested,
    smallest,
)
from attention_lab.verify.module.subject import (
    Subject,
    SubjectFailure,
)
from attention_lab.verify.module.values import Result
from attention_lab.verify.module.weights import output_is_identity, recognise

#: Probability given to every dropout of a copy, to see what it does.
PROBE = 0.5
STEP = 1e-5  # of a finite difference in float64


def gradients(bench: Bench) -> Result:
    """Train on tokens that need no gradient themselves.

    Every parameter must get a finite gradient, and the gradients together
    must foretell how the loss changes.
    """

    def test(B: int, L: int, S: int) -> Finding | None:
        inputs = bench.inputs(B, L, S)
        grads = _gradients(bench.drawn, inputs, input_needs=False)
        lost = [name for name, grad in grads.items() if grad is None]
        if lost:
            return _lost(bench, inputs, lost)
        bad = [n for n, g in grads.items() if not torch.isfinite(g).all()]
        if bad:
            return Finding(f"The gradient of {bad[0]} is not finite.")
        return _foretold(bench, inputs)

    return smallest(bench, test)


def _gradients(
    subject: Subject, inputs, input_needs: bool
) -> dict[str, Tensor | None]:
    """Return the gradients by parameter, in train mode, seeded."""
    twin = subject.copy()
    twin.module.train()
    query, key, value = (x.clone().requires_grad_(input_needs) for x in inputs)
    torch.manual_seed(0)
    loss = _loss(twin(query, key, value=value))
    if loss.requires_grad:
        loss.backward()
    return {
        name: parameter.grad
        for name, parameter in twin.module.named_parameters()
        if parameter.requires_grad
    }


def _loss(out: Tensor) -> Tensor:
    """Weigh every element differently, so that nothing cancels."""
    weights = torch.linspace(0.5, 2.0, out.numel(), dtype=out.dtype)
    return (out * weights.reshape(out.shape)).sum()


def _lost(bench: Bench, inputs, lost: list[str]) -> Finding:
    """Find out whether they come back when the input needs a gradient."""
    others = _gradients(bench.drawn, inputs, input_needs=True)
    back = all(others[name] is not None for name in lost)
    names = ", ".join(lost[:4]) + (" and more" if len(lost) > 4 else "")
    if back:
        return Finding(
            f"No gradient reaches {names} when the tokens need none "
            "themselves; with tokens that need one it does.",
            mistake="reentrant-checkpoint",
        )
    mistake, also = bench.mistake
    return Finding(
        f"No gradient reaches {names}: the output does not depend on it, or "
        "it was detached.",
        mistake=mistake,
        also=also,
    )


def _foretold(bench: Bench, inputs) -> Finding | None:
    """Compare a directional derivative with a finite difference in float64."""
    twin = bench.drawn.copy()
    twin.module.double().train()
    inputs = tuple(x.double() for x in inputs)
    parameters = [p for p in twin.module.parameters() if p.requires_grad]
    generator = torch.Generator().manual_seed(2)
    directions = [
        torch.randn(p.shape, generator=generator).double() for p in parameters
    ]
    query = inputs[0].clone().requires_grad_()

    def loss() -> Tensor:
        torch.manual_seed(0)
        if twin.style == "self":
            return _loss(twin(query, query))
        return _loss(twin(query, inputs[1], value=inputs[2]))

    def moved(step: float) -> float:
        with torch.no_grad():
            for p, d in zip(parameters, directions, strict=True):
                p.add_(step * d)
            return float(loss())

    try:
        loss().backward()
        slopes = [
            float((p.grad * d).sum())
            for p, d in zip(parameters, directions, strict=True)
        ]
        up, down = moved(STEP), moved(-2 * STEP)
    except (SubjectFailure, RuntimeError):
        # It computes in float32 whatever its parameters are.
        note = "Its gradients are not compared: it does not run in float64."
        if note not in bench.notes:
            bench.notes.append(note)
        return None
    numeric, total = (up - down) / (2 * STEP), sum(slopes)
    # Half of the digits of float64, as everywhere where no bound is derived;
    # a central difference with this step is good for more than six.
    room = 1e-6 * (sum(map(abs, slopes)) + abs(up) + 1.0)
    if abs(numeric - total) <= room:
        return None
    return Finding(
        "The gradients do not foretell how the loss changes along a random "
        f"direction: {total:.6g}, but a finite difference gives "
        f"{numeric:.6g}.",
        got=total,
        expected=numeric,
    )


def eval_is_deterministic(bench: Bench) -> Result:
    """Call twice in eval mode, with every dropout turned up; compare bits.

    The other checks run with every dropout turned off.
    """
    subject = bench.drawn.copy()
    set_dropout(subject.module, PROBE)

    def test(B: int, L: int, S: int) -> Finding | None:
        one, two = (_seeded(bench, subject, (B, L, S), s) for s in (1, 2))
        moved = np.argwhere(one != two)
        if not len(moved):
            return None
        b, row, channel = map(int, moved[0])
        return Finding(
            f"Two calls in eval mode differ at channel {channel} of token "
            f"{row}: {one[b, row, channel]:.4g} and "
            f"{two[b, row, channel]:.4g}.",
            {"sample": b, "token": row, "channel": channel},
            float(two[b, row, channel]),
            float(one[b, row, channel]),
            mistake="dropout-in-eval",
        )

    B, L, _ = bench.sizes
    calls = [_seeded(bench, bench.drawn, (B, L, L), s) for s in (1, 2)]
    if (calls[0] != calls[1]).any():
        # A probability that could not be turned off spoils every value.
        bench.mistake = ("dropout-in-eval", None)
    return smallest(bench, test)


def _seeded(
    bench: Bench, subject: Subject, sizes: tuple[int, int, int], seed: int
) -> np.ndarray:
    seeded = replace(bench, seed=seed)
    return seeded.run(bench.inputs(*sizes), subject=subject)


def dropout_rates(root: nn.Module) -> list[tuple[nn.Module, str, float]]:
    """Find every dropout: (module, name of the attribute, probability).

    A layer of torch's, or a number called dropout or the like.
    """
    rates = []
    for module in root.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            rates.append((module, "p", module.p))
            continue
        rates += [
            (module, name, value)
            for name, value in vars(module).items()
            if isinstance(value, float)
            and 0 <= value < 1
            and "drop" in name.lower()
        ]
    return rates


def set_dropout(root: nn.Module, probability: float) -> None:
    """Give every dropout of a module a probability."""
    for module, name, _ in dropout_rates(root):
        setattr(module, name, probability)


def dropout_only_in_training(bench: Bench) -> Result:
    """Turn dropout up: training must differ from eval, and drop weights."""
    quiet, noisy = bench.drawn.copy(), bench.drawn.copy()
    for subject in (quiet, noisy):
        set_dropout(subject.module, PROBE)
    noisy.module.train()
    B, L, _ = bench.sizes
    calm = [_seeded(bench, quiet, (B, L, L), seed) for seed in (1, 2)]
    if (calm[0] != calm[1]).any():
        raise NotTested("it drops in eval mode as well")
    loud = [_seeded(bench, noisy, (B, L, L), seed) for seed in (1, 2)]
    if (loud[0] == loud[1]).all():
        raise NotTested("no dropout was found")

    def test(B: int, L: int, S: int) -> Finding | None:
        if L < 3:
            raise NotTested("too few weights to see which were dropped")
        where = _dropped_outputs(bench, quiet, noisy, (B, L, S))
        if where is None:
            return None
        return Finding(
            f"In training {where} are dropped, never the attention weights: "
            "what is left is the result of eval mode times a constant.",
            mistake="dropout-on-output",
        )

    return smallest(bench, test)


def _dropped_outputs(
    bench: Bench, quiet: Subject, noisy: Subject, sizes: tuple[int, int, int]
) -> str | None:
    """Say which results are zeros or eval's times 1 / (1 − p), if they are.

    A dropout named after the output, the projection or the residual says
    what it does; one that is plain, or named after attention, does not.
    """
    calm, loud = (_seeded(bench, s, sizes, 3) for s in (quiet, noisy))
    if _is_thinned(loud, calm):
        if _names_the_output(noisy.module):
            return None
        return "channels of the output"
    found = bench.projections
    if found is None or found.out is None:
        return None
    if len(set(found.out.weight.shape)) > 1:
        return None
    calm, loud = (_merged(bench, s, sizes) for s in (quiet, noisy))
    return "channels of the heads' results" if _is_thinned(loud, calm) else None


def _names_the_output(root: nn.Module) -> bool:
    """Say whether a dropout's own name says that it drops the output."""
    names = [
        name
        for name, module in root.named_modules()
        if isinstance(module, nn.modules.dropout._DropoutNd)
    ]
    names += [name for name in vars(root) if "drop" in name.lower()]
    stems = [name.lower().replace("dropout", "") for name in names]
    words = ("out", "proj", "resid", "ff")
    return any(word in stem for stem in stems for word in words)


def _is_thinned(loud: np.ndarray, calm: np.ndarray) -> bool:
    zeros = loud == 0
    kept = np.abs(loud * (1 - PROBE) - calm) <= 1e-4 * np.abs(calm).max()
    return bool(zeros.mean() > 0.1 and (zeros | kept).all())


def _merged(
    bench: Bench, subject: Subject, sizes: tuple[int, int, int]
) -> np.ndarray:
    """Return the merged heads: the output under an identity projection."""
    found, _ = recognise(subject.module, bench.E, bench.H)
    with output_is_identity(found):
        return _seeded(bench, subject, sizes, 3)


def state_dict_round_trip(bench: Bench) -> Result:
    """Save, scramble a copy, load: it must compute as before."""
    loose = list(loose_tensors(bench.drawn.module))

    def test(B: int, L: int, S: int) -> Finding | None:
        inputs = bench.inputs(B, L, S)
        before = bench.run(inputs)
        twin = bench.drawn.copy()
        generator = torch.Generator().manual_seed(9)
        tensors = list(twin.module.parameters())
        tensors += [x for _, x in loose_tensors(twin.module)]
        with torch.no_grad():
            for x in tensors:
                if x.is_floating_point():
                    x.copy_(torch.randn(x.shape, generator=generator))
        try:
            twin.module.load_state_dict(bench.drawn.module.state_dict())
        except Exception as error:
            return Finding(f"load_state_dict raises {type(error).__name__}.")
        after = bench.run(inputs, subject=twin)
        if (before == after).all():
            return None
        names = ", ".join(name for name, _ in loose[:4])
        what = "A copy that loads this module's state_dict computes otherwise."
        if not loose:
            return Finding(what)
        return Finding(
            f"{what} These are no parameters, so they are neither saved nor "
            f"trained by an optimizer: {names}.",
            mistake="unregistered-weights",
        )

    return smallest(bench, test)


def loose_tensors(root: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Find trainable tensors that are not among the module's parameters."""
    seen = {id(x) for x in (*root.parameters(), *root.buffers())}
    stack: list[tuple[str, Any]] = [
        (f"{prefix}.{name}".lstrip("."), value)
        for prefix, module in root.named_modules()
        for name, value in vars(module).items()
        if name not in ("_parameters", "_buffers", "_modules")
    ]
    visited: set[int] = set()
    while stack:
        name, value = stack.pop(0)
        if id(value) in visited:
            continue
        visited.add(id(value))
        if isinstance(value, Tensor):
            if value.requires_grad and id(value) not in seen:
                yield name, value
        elif isinstance(value, nn.Module):
            for own, parameter in value.named_parameters():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield f"{name}.{own}", parameter
        elif isinstance(value, list | tuple):
            stack += [(f"{name}[{i}]", x) for i, x in enumerate(value)]
        elif isinstance(value, dict):
            stack += [(f"{name}[{key!r}]", x) for key, x in value.items()]
