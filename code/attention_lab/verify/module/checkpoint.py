"""The check of what a checkpoint carries."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from attention_lab.verify.module.bench import Bench, Finding, smallest
from attention_lab.verify.module.values import Result


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
