"""Checks by value: the module's own weights, the right answer in float64."""

import re
from dataclasses import replace

import numpy as np
import torch

from attention_lab.verify.module import wrong_module
from attention_lab.verify.module.bench import (
    Bench,
    Finding,
    NotTested,
    allowed_error,
    by_design,
    differs,
    right_answer,
    smallest,
)
from attention_lab.verify.module.diagnosis import Diagnosis, diagnose
from attention_lab.verify.module.positions import own_scores
from attention_lab.verify.module.subject import (
    CannotCopy,
    Subject,
    SubjectFailure,
    to_numpy,
)
from attention_lab.verify.module.weights import (
    Packing,
    Projections,
    recognise,
)

Result = tuple[Finding | None, dict[str, int]]

#: (layout that the module states, layout that it reads) -> card.
LAYOUT_CARDS = {
    (stated, read): f"fused-layout-{kind}"
    for kind, pair in (
        ("head-by-head", ("p h d", "h p d")),
        ("interleaved", ("p h d", "h d p")),
    )
    for stated, read in (pair, pair[::-1])
}


def values(bench: Bench) -> Result:
    """Compare with multi-head attention on the module's own weights.

    With the weights that came with it, then with others drawn at random. A
    fused projection is tried in every layout; the one that fits is noted.
    """
    found = needed(bench)
    if found.is_shared:
        return _one_for_all(bench, found)
    declared = _declared(bench, found)
    bench.packing = declared or _fitting(bench, found)
    packing = bench.packing or next(found.packings())
    finding, sizes = smallest(
        bench,
        lambda *sizes: _compare(bench, bench.drawn, found, packing, sizes),
    )
    if finding is not None:
        finding = _named(bench, packing, finding)
        bench.packing = None
        if bench.has_positions and finding.mistake is None:
            return _own_values(bench, found, declared), {}
        if finding.mistake is None and not bench.has_diagnosis:
            finding = _maybe_by_design(bench, found, declared, finding)
        bench.mistake = (finding.mistake, finding.also)
        return finding, sizes
    bench.has_positions = False
    if str(packing):
        bench.notes.append(f"{str(packing)[0].upper()}{str(packing)[1:]}.")
    if found.out is None:
        bench.notes.append(
            "No output projection was recognised: the merged heads are taken "
            "for the output."
        )
    given = recognise(bench.given.module, bench.E, bench.H)[0]

    def with_given_weights(B: int, L: int, S: int) -> Finding | None:
        return _compare(bench, bench.given, given, packing, (B, L, S))

    return smallest(bench, with_given_weights)


def _one_for_all(bench: Bench, found: Projections) -> Result:
    """Say that one projection makes queries, keys and values alike.

    Three are multi-head attention. With one, every token attends most to what
    is like itself, and the layer has a third of its parameters.
    """
    packing = next(found.packings())
    name = found.separate["q"][0].name
    if not _fits(bench, packing):
        raise NotTested(
            f"{name} is the only projection, and how queries, keys and "
            "values are made from it is not known"
        )
    return Finding(
        f"One projection, {name}, makes the queries, the keys and the "
        "values: the three are equal. Its values are right for that, but "
        "multi-head attention has one projection for each."
    ), {}


def _own_values(
    bench: Bench, found: Projections, declared: Packing | None
) -> Finding | None:
    """Compare what positions of its own leave to compare."""
    finding = None
    for packing in [declared] if declared else found.packings():
        wrong = own_scores(bench, packing, bench.sizes[1])
        finding = finding or wrong
        if wrong is None:
            bench.read_as = bench.own_packing = packing
            layout = f" {str(packing).capitalize()}." if str(packing) else ""
            bench.notes.append(
                "It has positions, a bias or a window of its own. Its values "
                "were compared, and the scores of tokens with themselves, "
                f"but no score between two tokens.{layout}"
            )
            return None
    return finding


def _maybe_by_design(
    bench: Bench,
    found: Projections,
    declared: Packing | None,
    finding: Finding,
) -> Finding:
    """Say so if all that differs lies between tokens."""
    for packing in [declared] if declared else found.packings():
        try:
            if own_scores(bench, packing, bench.sizes[1]) is not None:
                continue
        except (NotTested, CannotCopy, SubjectFailure):
            return finding
        return replace(
            finding,
            what=f"{finding.what} Its values are right, and so are the scores "
            "of tokens with themselves: only scores between different tokens "
            f"differ, or who sees whom.{by_design()}",
        )
    return finding


def needed(bench: Bench) -> Projections:
    """Return the projections, or say why nothing is tested by value."""
    found, reason = bench.recognised
    if found is None:
        raise NotTested(reason)
    return found


def _compare(
    bench: Bench,
    subject: Subject,
    found: Projections,
    packing: Packing,
    sizes: tuple[int, int, int],
) -> Finding | None:
    inputs = bench.inputs(*sizes)
    got = bench.run(inputs, subject=subject)
    call = bench.call_of(inputs)
    weights = found.read(packing)
    exact = right_answer(weights, call)
    bound = allowed_error(weights, call, exact, dtype_of(subject))
    return differs(got, exact, bound, "The output is wrong")


def dtype_of(subject: Subject) -> str:
    """Name the dtype in which a module computes."""
    return str(subject.dtype).removeprefix("torch.")


def _fits(bench: Bench, packing: Packing) -> bool:
    found = needed(bench)
    B, L, _ = bench.sizes
    finding = _compare(bench, bench.drawn, found, packing, (B, L, L))
    return finding is None


def _fitting(bench: Bench, found: Projections) -> Packing | None:
    """Return the layout whose right answer the module gives."""
    B, L, _ = bench.sizes
    inputs = bench.inputs(B, L, L)
    got, call = bench.run(inputs), bench.call_of(inputs)
    gaps = {}
    for packing in found.packings():
        model, _ = wrong_module.compute(found.read(packing), call)
        with np.errstate(invalid="ignore"):
            gap = float(np.abs(model - got).max())
        gaps[packing] = np.inf if np.isnan(gap) else gap
    best = min(gaps, key=gaps.get)
    return best if _fits(bench, best) else None


def _declared(bench: Bench, found: Projections) -> Packing | None:
    """Return the layout that the module itself states, if it states one.

    It states one in an attribute such as ``layout = "p h d"``, with `three`
    or `3` for p if it likes.
    """
    if found.fused is None:
        return None
    for module in bench.drawn.module.modules():
        for name in ("layout", "qkv_layout"):
            text = getattr(module, name, None)
            if not isinstance(text, str):
                continue
            letters = re.sub(r"three|3|qkv", "p", text.lower())
            letters = " ".join(re.findall(r"[a-z]", letters))
            if letters in {p.layout for p in found.packings()}:
                return Packing(letters)
    return None


def _named(bench: Bench, packing: Packing, finding: Finding) -> Finding:
    """Add the mistake to a finding, from the values at full size."""
    found = needed(bench)
    fitting = _fitting(bench, found)
    if fitting is not None:
        bench.read_as = fitting
        is_order = fitting.layout == packing.layout
        layouts = (packing.layout, fitting.layout)
        return replace(
            finding,
            what=f"{finding.what} The module states ({packing.layout}); its "
            f"values are right if the weights lie otherwise: {fitting}.",
            mistake="fused-order-swapped"
            if is_order
            else LAYOUT_CARDS.get(layouts),
        )
    if bench.mistake[0] is not None:
        mistake, also = bench.mistake  # it spoils every value
        return replace(finding, mistake=mistake, also=also)
    B, L, _ = bench.sizes
    inputs = bench.inputs(B, L, L)
    diagnosis = diagnose(bench, bench.run(inputs), bench.call_of(inputs))
    bench.has_diagnosis = diagnosis is not None
    return explained(bench, finding, diagnosis)


def explained(
    bench: Bench, finding: Finding, diagnosis: Diagnosis | None
) -> Finding:
    """Add what a diagnosis says, if there is one."""
    if diagnosis is None:
        return finding
    bench.read_as = diagnosis.packing
    mistake, also = diagnosis.mistake
    what = f"{finding.what} {diagnosis.words}"
    return replace(finding, what=what, mistake=mistake, also=also)


def cross_attention_lengths(bench: Bench) -> Result:
    """Give fewer and more keys than queries."""
    subject = bench.drawn
    if not subject.has_keys_of_their_own:
        raise NotTested("forward takes one input, so there are S = L keys")
    B, L, S = bench.sizes
    if subject.keys_are_optional:
        finding = _keys_left_out(bench)
        if finding is not None:
            return finding, {"B": B, "L": L, "S": L}

    def test(B: int, L: int, S: int) -> Finding | None:
        inputs = bench.inputs(B, L, S)
        try:
            got = bench.run(inputs)
        except SubjectFailure as failure:
            # The sizes L = S run, so that the lengths alone are the reason.
            return Finding(
                f"With L = {L} queries and S = {S} keys {failure}; with as "
                "many keys as queries it runs.",
                mistake="module-query-length-for-keys",
            )
        return _judge_lengths(bench, inputs, got)

    for full in ((B, L, S), (B, S, L)):
        finding = test(*full)
        if finding is None:
            continue
        for small in ((1, 1, 2), (1, 2, 1), (1, 2, 3)):
            shorter = test(*small)
            if shorter is not None:
                return shorter, dict(zip("BLS", small, strict=True))
        return finding, dict(zip("BLS", full, strict=True))
    return None, {}


def _keys_left_out(bench: Bench) -> Finding | None:
    """Leave the keys out: that must be self-attention."""
    B, L, _ = bench.sizes
    if bench.widths != (bench.E, bench.E):
        return None  # the queries are no keys
    query = bench.tokens(B, L)
    torch.manual_seed(bench.seed)
    try:
        with torch.no_grad():
            alone = to_numpy(bench.drawn.alone(query))
    except SubjectFailure as failure:
        return Finding(f"With the queries alone {failure}.")
    both = bench.run((query, query, query))
    if alone.shape == both.shape and (alone == both).all():
        return None
    return Finding(
        "With the queries alone it does not compute what it does when they "
        "are given as keys and values too."
    )


def _judge_lengths(bench: Bench, inputs, got: np.ndarray) -> Finding | None:
    if not np.isfinite(got).all():
        return Finding("The output is not finite when L and S differ.")
    if bench.packing is None:
        return None
    weights, call = (
        needed(bench).read(bench.packing),
        bench.call_of(inputs),
    )
    exact = right_answer(weights, call)
    bound = allowed_error(weights, call, exact, dtype_of(bench.drawn))
    finding = differs(
        got, exact, bound, "With L and S different, the output is wrong"
    )
    if finding is None:
        return None
    return explained(bench, finding, diagnose(bench, got, call))


def attention_weights(bench: Bench) -> Result:
    """Check the weights that come with the output, one map for each head."""
    if bench.drawn.is_torch_mha:
        raise NotTested("need_weights=False is passed")

    def test(B: int, L: int, S: int) -> Finding | None:
        inputs = bench.inputs(B, L, S)
        query, key, value = inputs
        with torch.no_grad():
            _, rest = bench.drawn.raw(query, key, value=value)
        shapes = ((B, bench.H, L, S), (B, L, S))
        maps = [
            x
            for x in rest or ()
            if isinstance(x, torch.Tensor) and tuple(x.shape) in shapes
        ]
        if not maps:
            raise NotTested("forward returns no attention weights")
        return _judge_maps(bench, to_numpy(maps[0]), bench.call_of(inputs))

    return smallest(bench, test)


def _judge_maps(
    bench: Bench, maps: np.ndarray, call: wrong_module.ModuleCall
) -> Finding | None:
    if bench.packing is None:
        raise NotTested("the output itself is not the right one")
    weights = needed(bench).read(bench.packing)
    _, exact = wrong_module.compute(weights, call)
    mean = exact.mean(axis=1)
    single = replace(call, dtype=np.float32)
    _, plain = wrong_module.compute(weights, single)
    bound = 16 * float(np.abs(plain - exact).max()) + 2.0**-20
    if maps.ndim == 3:
        gap = np.abs(maps - mean).max()
        if gap <= bound:
            return None
        return Finding(
            "The returned weights (B, L, S) are not the mean over the heads."
        )
    gap = np.abs(maps - exact)
    if gap.max() <= bound:
        return None
    is_mean = np.abs(maps - mean[:, None]).max() <= bound
    where = np.unravel_index(gap.argmax(), gap.shape)
    b, h, row, key = map(int, where)
    return Finding(
        f"The returned weight of head {h}, from token {row} to token {key}, "
        f"is {maps[where]:.4g}, but {exact[where]:.4g} is what head {h} uses."
        + (" Every head has the mean of all heads." if is_mean else ""),
        {"sample": b, "head": h, "token": row, "key": key},
        float(maps[where]),
        float(exact[where]),
        mistake="averaged-weights" if is_mean else None,
    )
