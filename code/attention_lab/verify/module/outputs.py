"""Checks of the output itself: it comes, its shape fits, it is finite."""

import numpy as np
import torch

from attention_lab.verify.module.bench import Bench, Finding, smallest
from attention_lab.verify.module.properties import Inputs
from attention_lab.verify.module.subject import to_numpy
from attention_lab.verify.module.values import Result


def runs(bench: Bench) -> Result:
    """Run once and look at the output: a tensor of finite numbers."""
    drawn = bench.drawn
    if drawn.fails_without is not None:
        what = " and ".join(sorted(drawn.needs))
        return Finding(
            f"Without a {what} {drawn.fails_without}, though forward lets you "
            "leave it out. With one that forbids nothing it runs, and that "
            "is what it gets from here on."
        ), {}

    def test(B: int, L: int, S: int) -> Finding | None:
        inputs = bench.inputs(B, L, S)
        query, key, value = inputs
        with torch.no_grad():
            out = bench.drawn(query, key, value=value)
        if out.dtype != query.dtype:
            return Finding(
                f"The output has dtype {out.dtype}, but the tokens have "
                f"{query.dtype}."
            )
        if not torch.isfinite(out).all():
            count = int((~torch.isfinite(out)).sum())
            masks = " and ".join(sorted(drawn.needs))
            return Finding(
                f"{count} of {out.numel()} numbers of the output are not "
                "finite, though every input is"
                + (f" and the {masks} forbids nothing." if masks else "."),
                mistake=_polarity(bench, inputs) if masks else None,
            )
        return None

    return smallest(bench, test)


def _polarity(bench: Bench, inputs: Inputs) -> str | None:
    """Name the mask's polarity if it runs under one that forbids all."""
    B, L, S = len(inputs[0]), inputs[0].shape[1], inputs[1].shape[1]
    masks = {
        "mask": torch.zeros(L, S, dtype=torch.bool),
        "padding": torch.zeros(B, S, dtype=torch.bool),
    }
    masks = {kind: masks[kind] for kind in bench.drawn.needs}
    is_finite = np.isfinite(bench.run(inputs, **masks)).all()
    return "module-mask-polarity" if is_finite else None


def output_shape(bench: Bench) -> Result:
    """Compare the output's shape with that of the queries."""

    def test(B: int, L: int, S: int) -> Finding | None:
        query, key, value = bench.inputs(B, L, S)
        with torch.no_grad():
            shape = tuple(bench.drawn(query, key, value=value).shape)
        if shape == tuple(query.shape):
            return None
        return Finding(
            f"The output has shape {shape}, but the queries have "
            f"(B, L, E) = {tuple(query.shape)}."
        )

    return smallest(bench, test)


def large_inputs(bench: Bench) -> Result:
    """Give tokens a hundred times as large; the output must stay finite."""

    def test(B: int, L: int, S: int) -> Finding | None:
        inputs = tuple(100 * x for x in bench.inputs(B, L, S))
        with torch.no_grad():
            out = to_numpy(bench.drawn(*inputs[:2], value=inputs[2]))
        bad = np.argwhere(~np.isfinite(out))
        if not len(bad):
            return None
        b, row, channel = map(int, bad[0])
        return Finding(
            f"With tokens × 100 channel {channel} of token {row} is "
            f"{out[b, row, channel]}; its scores are large but finite.",
            {"sample": b, "token": row, "channel": channel},
            str(out[b, row, channel]),
            mistake="no-max-subtraction",
        )

    return smallest(bench, test)
