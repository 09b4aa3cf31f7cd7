"""The workbench of one verification: the module, its inputs, what was found."""

import functools
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor

from attention_lab.error_bound import ulp
from attention_lab.reference import attention_reference
from attention_lab.verify.module import wrong_module
from attention_lab.verify.module.subject import (
    Subject,
    SubjectFailure,
    to_numpy,
)
from attention_lab.verify.module.weights import (
    Packing,
    Projections,
    input_widths,
    recognise,
)
from attention_lab.verify.module.wrong_module import ModuleCall, Weights
from attention_lab.verify.report import Check, Counterexample

ORDERS = 8  # random orders of addition behind the error bound
#: Sizes (B, L, S) on which a failure is tried again, smallest first.
SMALL = ((1, 1, 1), (1, 2, 2), (2, 1, 1), (1, 3, 3), (2, 2, 2), (2, 3, 3))


class NotTested(Exception):  # noqa: N818 - a finding, not an error of ours
    """A check cannot run; the message is the reason."""


@dataclass(frozen=True)
class Finding:
    """What a check found wrong at some sizes."""

    what: str
    where: dict[str, int] = field(default_factory=dict)
    got: float | str | None = None
    expected: float | str | None = None
    mistake: str | None = None
    also: str | None = None
    options: dict[str, object] = field(default_factory=dict)


@dataclass
class Bench:
    """A copy of the module in eval mode, sizes, and what is known so far.

    `drawn` has weights drawn anew, `given` those that came with the module.
    `is_causal` says that the module always hides later tokens. `packing` is
    how its weights lie, if its values are right; `read_as` is how a wrong
    module reads them, if that is known. `has_positions` says that it is meant
    to have positions or a window of its own; `most` is how many tokens it
    takes, if it says so. `own_packing` is how its weights lie, if its values
    are right but for positions of its own.
    """

    given: Subject
    drawn: Subject
    E: int
    H: int
    sizes: tuple[int, int, int] = field(init=False)
    is_causal: bool = False
    has_positions: bool = False
    most: int | None = None
    packing: Packing | None = None
    read_as: Packing | None = None
    own_packing: Packing | None = None
    has_diagnosis: bool = False
    mistake: tuple[str | None, str | None] = (None, None)
    mask_mistake: tuple[str | None, str | None] = (None, None)
    seed: int = 0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Choose sizes that differ from H and D, and from each other."""
        taken = {self.H, self.E // self.H}
        B = next(n for n in (2, 3, 5, 7) if n not in taken)
        free = [n for n in (5, 7, 11, 13, 17) if n not in {*taken, B}]
        self.sizes = (B, free[0], free[1])

    @functools.cached_property
    def widths(self) -> tuple[int, int]:
        """Return the widths of the tokens for keys and for values."""
        if self.drawn.style == "self":
            return self.E, self.E
        key, value = input_widths(self.given.module, self.E)
        return (key, key) if self.drawn.style == "context" else (key, value)

    @functools.cached_property
    def recognised(self) -> tuple[Projections | None, str]:
        """The projections of `drawn`, or why there are none."""
        return recognise(self.drawn.module, self.E, self.H)

    @property
    def projections(self) -> Projections | None:
        """The projections of `drawn`, if they were recognised."""
        return self.recognised[0]

    def tokens(
        self, B: int, L: int, seed: int = 0, width: int | None = None
    ) -> Tensor:
        """Return random tokens (B, L, E), or of another width."""
        generator = torch.Generator().manual_seed(1000 + seed)
        x = torch.randn(B, L, width or self.E, generator=generator)
        return x.to(self.drawn.dtype)

    def inputs(self, B: int, L: int, S: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values as this module can take them."""
        query = self.tokens(B, L)
        if self.drawn.style == "self":
            return query, query, query
        key = self.tokens(B, S, 1, self.widths[0])
        if self.drawn.style == "context":
            return query, key, key
        return query, key, self.tokens(B, S, 2, self.widths[1])

    def run(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        mask: Tensor | None = None,
        is_causal: bool = False,
        subject: Subject | None = None,
        padding: Tensor | None = None,
    ) -> np.ndarray:
        """Return the output (B, L, E) in float64, without gradients.

        Raises
        ------
        SubjectFailure
            If the module raises, or the shape is not that of the queries.
        """
        subject = subject or self.drawn
        query, key, value = inputs
        # A module that draws numbers draws the same ones every time.
        torch.default_generator.manual_seed(self.seed)
        with torch.no_grad():
            out = subject(query, key, mask, is_causal, value, padding)
        if out.shape != query.shape:
            raise SubjectFailure(
                f"its output has shape {tuple(out.shape)}, but the queries "
                f"have {tuple(query.shape)}"
            )
        return to_numpy(out)

    def call_of(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        keep: Tensor | None = None,
        added: Tensor | None = None,
    ) -> ModuleCall:
        """Describe a call for the models in NumPy."""
        L, S = inputs[0].shape[1], inputs[1].shape[1]
        keep = None if keep is None else keep.numpy()
        if self.is_causal:
            own = np.tri(L, S, dtype=bool)
            keep = own if keep is None else keep & own
        return ModuleCall(
            *map(to_numpy, inputs),
            self.H,
            keep,
            None if added is None else to_numpy(added),
        )


def by_design() -> str:
    """Return what to say where a right module may fail by design."""
    return (
        " If it is meant to have positions, a bias or a window of its own, "
        "verify it with positions='own'."
    )


def right_answer(weights: Weights, call: ModuleCall) -> np.ndarray:
    """Return the output (B, L, E) of multi-head attention in float64.

    A query that sees no key gets zeros from every head.
    """
    heads = []
    for role, x in zip("qkv", (call.query, call.key, call.value), strict=True):
        weight, bias = weights[role]
        y = x @ weight.T + bias
        y = y.reshape(*y.shape[:2], call.num_heads, -1)
        heads.append(y.transpose(0, 2, 1, 3))
    mask = None
    if call.keep is not None or call.added is not None:
        L, S = call.query.shape[1], call.key.shape[1]
        mask = np.zeros((1, 1, L, S))
        if call.added is not None:
            mask = mask + call.added
        if call.keep is not None:
            mask = np.where(call.keep, mask, -np.inf)
    out_BHLD = attention_reference(*heads, attn_mask=mask).out_BHLD
    B, H, L, D = out_BHLD.shape
    merged = out_BHLD.transpose(0, 2, 1, 3).reshape(B, L, H * D)
    if "o" not in weights:
        return merged
    weight, bias = weights["o"]
    return merged @ weight.T + bias


def allowed_error(
    weights: Weights, call: ModuleCall, exact: np.ndarray, dtype: str
) -> float:
    """Return how far a correct module may be from the exact answer.

    The rule of `attention_lab.error_bound` for a whole module: twice the
    worst error of the same arithmetic in the module's precision, over several
    orders of addition, plus two units in the last place. Measured over 360
    calls (PyTorch's module and this book's, E = 12 … 768, weights and inputs
    drawn anew): at most 0.71 of the bound.
    """
    work = np.float64 if dtype == "float64" else np.float32
    rng = np.random.default_rng(0)
    worst = 0.0
    for shuffled, moves in _shuffles(weights, call.num_heads, work):
        out, _ = wrong_module.compute(shuffled, _moved(call, moves, rng, work))
        worst = max(worst, float(np.abs(out - exact).max(initial=0.0)))
    return 2 * worst + 2 * ulp(float(np.abs(exact).max(initial=0.0)), dtype)


@functools.lru_cache(maxsize=4)  # shuffling wide weights takes long
def _shuffles(
    weights: Weights, H: int, work: type
) -> list[tuple[Weights, tuple[np.ndarray, ...]]]:
    """Permute every axis of the weights that is summed over, `ORDERS` times.

    On paper nothing changes. Returns the weights, and how the channels of
    query, key and value move along.
    """
    rng = np.random.default_rng(1)
    inner = len(weights["q"][0])
    by_head = np.arange(inner).reshape(H, inner // H)
    narrow = {
        role: tuple(part.astype(work) for part in pair)
        for role, pair in weights.items()
    }
    shuffles = []
    for _ in range(ORDERS):
        d, d_v = (
            by_head[:, rng.permutation(inner // H)].reshape(-1)
            for _ in range(2)
        )
        if "o" not in weights:
            d_v = np.arange(inner)  # nothing sums over the output's channels
        new, moves = Weights(), []
        for role, rows in (("q", d), ("k", d), ("v", d_v)):
            weight, bias = narrow[role]
            move = rng.permutation(weight.shape[1])
            new[role] = (weight[np.ix_(rows, move)], bias[rows])
            moves.append(move)
        if "o" in weights:
            weight, bias = narrow["o"]
            new["o"] = (weight[:, d_v], bias)
        shuffles.append((new, tuple(moves)))
    return shuffles


def _moved(
    call: ModuleCall,
    moves: tuple[np.ndarray, ...],
    rng: np.random.Generator,
    work: type,
) -> ModuleCall:
    """Let the channels of a call move along, and permute its keys."""
    e_q, e_k, e_v = moves
    s = rng.permutation(call.key.shape[1])
    return ModuleCall(
        call.query[..., e_q],
        call.key[:, s][..., e_k],
        call.value[:, s][..., e_v],
        call.num_heads,
        None if call.keep is None else call.keep[:, s],
        None if call.added is None else call.added[:, s],
        work,
    )


def differs(
    got: np.ndarray, expected: np.ndarray, bound: float, what: str
) -> Finding | None:
    """Return the element that differs most, if it differs by too much."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(got - expected)
    gap = np.where(np.isnan(gap), np.inf, gap)
    if not gap.size or gap.max() <= bound:
        return None
    b, row, channel = map(int, np.unravel_index(gap.argmax(), gap.shape))
    g, e = float(got[b, row, channel]), float(expected[b, row, channel])
    return Finding(
        f"{what} at sample {b}, token {row}, channel {channel}: {g:.5g}, but "
        f"{e:.5g} is right; allowed is a difference of {bound:.1e}.",
        {"sample": b, "token": row, "channel": channel},
        g,
        e,
    )


def smallest(
    bench: Bench, test: Callable[[int, int, int], Finding | None]
) -> tuple[Finding | None, dict[str, int]]:
    """Run a test at full size; if it fails, look for smaller sizes.

    Returns the finding and its sizes. The full size decides and names the
    mistake; that a small one fails as well only makes the example shorter.
    """
    B, L, _ = bench.sizes
    full = (B, L, L)
    finding = test(*full)
    if finding is None:
        return None, {}
    for sizes in SMALL:
        try:
            found = test(*sizes)
        except (SubjectFailure, NotTested):
            continue
        if found is not None:
            found = replace(found, mistake=finding.mistake, also=finding.also)
            return found, dict(zip("BLS", sizes, strict=True))
    return finding, dict(zip("BLS", full, strict=True))


def as_check(
    bench: Bench, name: str, finding: Finding | None, sizes: dict[str, int]
) -> Check:
    """Turn a finding into a check of the report."""
    if finding is None:
        return Check(name, passed=True)
    sizes = {**sizes, "H": bench.H, "E": bench.E}
    return Check(
        name,
        passed=False,
        what=finding.what,
        counterexample=Counterexample(
            sizes=sizes,
            options=dict(finding.options),
            where=finding.where,
            got=finding.got,
            expected=finding.expected,
        ),
        mistake=finding.mistake,
        also=finding.also,
    )
