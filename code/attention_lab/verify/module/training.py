"""Checks of training: gradients and dropout."""

from dataclasses import replace

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
    float64_by_default,
)
from attention_lab.verify.module.values import Result
from attention_lab.verify.module.weights import output_is_identity, recognise

#: Probability given to every dropout of a copy, to see what it does.
PROBE = 0.5
STEP = 1e-5  # of a finite difference in float64
#: What a module may be given, as its gradients are named.
TOKENS = {
    "self": ("the tokens",),
    "context": ("the queries", "the keys"),
    "cross": ("the queries", "the keys", "the values"),
}


def gradients(bench: Bench) -> Result:
    """Train on tokens that need no gradient themselves, then on such that do.

    Every parameter must get a finite gradient, and so must the tokens; the
    gradients together must foretell how the loss changes.
    """

    def test(B: int, L: int, S: int) -> Finding | None:
        inputs = bench.inputs(B, L, S)
        grads = _gradients(bench.drawn, inputs, input_needs=False)
        lost = [name for name, grad in grads.items() if grad is None]
        if lost:
            return _lost(bench, inputs, lost)
        grads = _gradients(bench.drawn, inputs, input_needs=True)
        names = TOKENS[bench.drawn.style]
        silent = [name for name in names if grads[name] is None]
        if silent:
            return Finding(
                f"No gradient reaches {' and '.join(silent)} that it was "
                "given: layers before this module would not learn.",
                mistake=bench.mistake[0],
                also=bench.mistake[1],
            )
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
    leaves = _leaves(subject, inputs)
    for x in leaves.values():
        x.requires_grad_(input_needs)
    query, key, value = _as_inputs(leaves)
    torch.manual_seed(0)
    loss = _loss(twin(query, key, value=value))
    if loss.requires_grad:
        loss.backward()
    grads = {
        name: parameter.grad
        for name, parameter in twin.module.named_parameters()
        if parameter.requires_grad
    }
    if input_needs:
        grads |= {name: x.grad for name, x in leaves.items()}
    return grads


def _leaves(subject: Subject, inputs) -> dict[str, Tensor]:
    """Return copies of the tokens that the module is given, by name."""
    names = zip(TOKENS[subject.style], inputs, strict=False)
    return {name: x.detach().clone() for name, x in names}


def _as_inputs(leaves: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Return query, key and value; those that are missing are the last."""
    given = list(leaves.values())
    query, key, value = given + given[-1:] * (3 - len(given))
    return query, key, value


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
    # Numbers that training itself changes, as a batch norm's, are no part of
    # the gradient.
    twin.module.double().train(not _changes_in_training(bench, inputs))
    tokens = _leaves(twin, tuple(x.double() for x in inputs))
    parameters = [p for p in twin.module.parameters() if p.requires_grad]
    parameters += [x.requires_grad_() for x in tokens.values()]
    generator = torch.Generator().manual_seed(2)
    directions = [
        torch.randn(p.shape, generator=generator).double() for p in parameters
    ]

    def loss() -> Tensor:
        torch.manual_seed(0)
        query, key, value = _as_inputs(tokens)
        with float64_by_default():
            return _loss(twin(query, key, value=value))

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


def _changes_in_training(bench: Bench, inputs) -> bool:
    """Say whether a call in train mode changes the module's buffers."""
    twin = bench.drawn.copy()
    twin.module.train()
    before = [x.clone() for x in twin.module.buffers()]
    with torch.no_grad():
        twin(*inputs[:2], value=inputs[2])
    pairs = zip(before, twin.module.buffers(), strict=True)
    return any(not torch.equal(x, y) for x, y in pairs)


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
    if _changes_in_training(bench, bench.inputs(B, L, L)):
        raise NotTested("training changes its buffers, and so its output")
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
    if len(set(found.out.weight.shape)) > 1 or not found.out.can_be_set:
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
