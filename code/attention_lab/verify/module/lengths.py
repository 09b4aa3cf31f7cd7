"""How many tokens a module takes, and whether long sequences work too."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from attention_lab.verify.module.bench import (
    Bench,
    Finding,
    NotTested,
    allowed_error,
    by_design,
    differs,
    right_answer,
)
from attention_lab.verify.module.positions import own_scores
from attention_lab.verify.module.properties import changed, rows_that_change
from attention_lab.verify.module.subject import SubjectFailure, unwrapped
from attention_lab.verify.module.values import Result, dtype_of, needed

#: Just above a tile of 32, and above one of 64, so that the last tile has few
#: tokens; shorter sequences fit in one tile.
LONG = (33, 70)
FEWEST = 3  # tokens with which the checks can still say something


def fit(bench: Bench) -> None:
    """Find out which masks a module needs, and lengths that it takes.

    Where it says itself that it takes few tokens, the sizes are changed to
    fit. A module that does not run at all is left to the check `runs`.
    """
    B, L, _ = bench.sizes
    try:
        bench.drawn.settle(*bench.inputs(B, L, L))
        return
    except SubjectFailure:
        most = _most(bench, L - 1)
    if most is None or most < FEWEST:
        return
    bench.most = most
    bench.sizes = (B, most, most - 1)
    bench.notes.append(
        f"It takes at most {most} tokens, so no more were given."
    )


def _most(bench: Bench, longest: int) -> int | None:
    """Return how many tokens it takes, if a number in it says so.

    Up to there every length runs, and the next one does not.
    """
    for most in sorted(_numbers(bench.drawn.module)):
        if most <= longest and not _runs(bench, most + 1):
            lengths = range(1, most + 1) if most <= 8 else (1, most - 1, most)
            if all(_runs(bench, n) for n in lengths):
                return most
    return None


def _runs(bench: Bench, n: int) -> bool:
    try:
        bench.drawn.settle(*bench.inputs(bench.sizes[0], n, n))
    except SubjectFailure:
        return False
    return True


def _numbers(root: nn.Module) -> set[int]:
    """Return the sizes of a module's buffers, and its whole numbers."""
    found: set[int] = set()
    for module in unwrapped(root).modules():
        for x in (*module.buffers(False), *module.parameters(False)):
            found |= set(x.shape) if not is_lazy(x) else set()
        for value in list(vars(module).values()):
            found |= set(_whole_numbers(value))
    return {n for n in found if n >= 1}


def _whole_numbers(value: object) -> Iterator[int]:
    """Yield a number, a tensor's sizes, or the numbers of a configuration."""
    inner = vars(value).values() if hasattr(value, "__dict__") else ()
    is_config = not isinstance(value, nn.Module | Tensor)
    for x in (value, *(inner if is_config else ())):
        if isinstance(x, int) and not isinstance(x, bool):
            yield x
        elif isinstance(x, Tensor):
            yield from x.shape


def long_sequences(bench: Bench) -> Result:
    """Give more tokens than one tile holds: by value, or who sees whom."""
    if bench.most is not None:
        raise NotTested(f"it takes at most {bench.most} tokens")
    for n in LONG:
        try:
            finding = _wrong_at(bench, n)
        except SubjectFailure as failure:
            most = _most(bench, n - 1)
            if most is not None:
                bench.most = most
                bench.notes.append(f"It takes at most {most} tokens.")
                if most <= bench.sizes[1]:
                    raise NotTested(
                        f"it takes at most {most} tokens"
                    ) from failure
                finding = _wrong_at(bench, most)
                return finding, {"B": 1, "L": most, "S": most}
            finding = Finding(
                f"With {n} tokens {failure}; with {bench.sizes[1]} it runs."
            )
        if finding is not None:
            mistake, also = bench.mistake
            finding = replace(finding, mistake=mistake, also=also)
            return finding, {"B": 1, "L": n, "S": n}
    return None, {}


def _wrong_at(bench: Bench, n: int) -> Finding | None:
    """Compare at one length, by value if the values are right at others."""
    if bench.has_positions:
        if bench.own_packing is not None:
            return own_scores(bench, bench.own_packing, n)
        raise NotTested("it has positions of its own, and no known values")
    if bench.packing is None:
        finding = _unseen(bench, n)
        if finding is None or bench.mistake[0] is not None:
            return finding
        return replace(finding, what=f"{finding.what}{by_design()}")
    inputs = bench.inputs(1, n, n)
    got, call = bench.run(inputs), bench.call_of(inputs)
    weights = needed(bench).read(bench.packing)
    exact = right_answer(weights, call)
    bound = allowed_error(weights, call, exact, dtype_of(bench.drawn))
    finding = differs(got, exact, bound, f"With {n} tokens the output is wrong")
    if finding is None:
        return None
    unseen = _unseen(bench, n)
    more = f" {unseen.what}" if unseen else ""
    words = f"{finding.what} With {bench.sizes[1]} it is right.{more}"
    return replace(finding, what=words)


def _unseen(bench: Bench, n: int) -> Finding | None:
    """Look for tokens that no other one sees.

    One token sees another by a weight that may be too small for any bit, so
    that only a token whom nobody sees counts. The changed tokens are samples
    of one batch.
    """
    which = "all" if bench.drawn.style == "self" else "key"
    inputs = bench.inputs(1, n, n)
    copies = {id(x): x.expand(n + 1, -1, -1).clone() for x in inputs}
    batch = tuple(copies[id(x)] for x in inputs)
    for token in range(n):
        batch = changed(batch, which, token + 1, token)
    out = bench.run(batch)
    moved = rows_that_change(out[:1], out[1:])  # (changed token, row)
    if bench.drawn.style == "self":
        moved &= ~np.eye(n, dtype=bool)
    readers = moved.any(axis=1)
    if bench.is_causal and bench.drawn.style == "self":
        readers[-1] = True  # nobody comes after it
    unseen = np.flatnonzero(~readers).tolist()
    if not unseen:
        return None
    first, last = unseen[0], unseen[-1]
    names = f"token {first}" if len(unseen) == 1 else f"token {first} to {last}"
    if len(unseen) > 1 and last - first + 1 != len(unseen):
        names = f"token {first} and {len(unseen) - 1} more"
    return Finding(
        f"Of {n} tokens no other one sees {names}.",
        {"key": first},
    )
