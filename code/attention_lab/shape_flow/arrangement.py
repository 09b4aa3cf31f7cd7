"""Is a tensor split into heads, and merged again, element by element?

The codes of a root (a projection's result, say) are rearranged by einops as
the pattern says. A later tensor with that shape is then right if it holds
those codes, and wrong if it holds others. Nothing is judged by the names of
functions, so any way of writing the right thing is right.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from attention_lab.shape_flow.errors import CannotFollow, WrongElements
from attention_lab.shape_flow.forms import Form, forms_of, turned_order
from attention_lab.shape_flow.memory import Root, roots_in
from attention_lab.shape_flow.origins import name_element
from attention_lab.shape_flow.passed_over import unjudged
from attention_lab.shape_flow.pattern import Pattern
from attention_lab.shape_flow.steps import Step, Value

SPLIT, FUSED = "b l (h d) -> b h l d", "b l (p h d) -> p b h l d"
MERGE = "b h l d -> b l (h d)"


@dataclass(frozen=True, repr=False)
class Found:
    """One tensor that was judged.

    Attributes
    ----------
    pattern : the rearrangement.
    root : what was rearranged.
    step : the step that completes it, or None if it is not judged.
    sentence : what was found.
    elements : how many were compared.
    """

    pattern: str
    root: str
    step: int | None
    sentence: str
    elements: int = 0

    def __str__(self) -> str:
        return f"{'?' if self.step is None else '✓'} {self.sentence}"

    __repr__ = __str__


@dataclass(frozen=True)
class _Judged:
    """What one root says about one pattern."""

    right: Found | None = None
    wrong: WrongElements | None = None
    unclear: str = ""

    @property
    def root(self) -> str:
        """The name of the root that was judged, or ""."""
        return self.right.root if self.right else self.unclear.split(":")[0]


def verify(
    flow: Any,
    split: str | Sequence[str],
    merge: str | Sequence[str],
    heads: int | None,
    sizes: dict[str, int],
) -> list[Found]:
    """Judge every root by every pattern; see `ShapeFlow.verify`."""
    splits, merges = _listed("split", split), _listed("merge", merge)
    sizes = dict(sizes)
    usual = heads is not None
    if usual:
        sizes.setdefault("h", heads)
        sizes.setdefault("p", 3)
        splits = splits or [SPLIT, FUSED]
        merges = merges or [MERGE]
    if not splits and not merges:
        raise ValueError(
            'say what to verify: split="b l (h d) -> b h l d", merge="b h l d '
            '-> b l (h d)", or heads=3 for both'
        )
    found, wrong = [], []
    for texts, is_merge in ((splits, False), (merges, True)):
        patterns = [Pattern.read(t, sizes, flow.sizes) for t in texts]
        if usual and not is_merge and not split:
            pair = {**sizes, "p": 2}  # keys and values of another sequence
            patterns.append(Pattern.read(FUSED, pair, flow.sizes))
        judged = _judge_all(flow, patterns, is_merge)
        wrong += [j.wrong for _, j in judged if j.wrong]
        found += _only_found(judged)
        if usual and not is_merge:
            known = [j.root for _, j in judged if j.root]
            found += [
                Found("", root, None, sentence)
                for root, sentence in unjudged(flow, known)
            ]
        if wrong:
            continue
        needed = [patterns] if usual else [[p] for p in patterns]
        for group in needed:
            if group and not any(j.right and p in group for p, j in judged):
                raise CannotFollow(_nothing(group, judged, is_merge))
    if wrong:
        raise min(wrong, key=lambda error: error.step)
    return found


def _listed(name: str, texts: str | Sequence[str]) -> list[str]:
    listed = [texts] if isinstance(texts, str) else list(texts)
    for text in listed:
        if not isinstance(text, str):
            raise ValueError(f"{name} must be a pattern, not {text!r}")
    return listed


def _judge_all(
    flow: Any, patterns: Sequence[Pattern], is_merge: bool
) -> list[tuple[Pattern, _Judged]]:
    judged = []
    for root in flow.roots:
        if root.kind == "constant" or root.size == 0:
            continue
        for pattern in patterns:
            read = [
                _judge(flow, root, pattern, expected, is_merge)
                for expected in pattern.rearranged(root, flow.sizes)
            ]
            if read:
                judged.append((pattern, _kindest(read)))
    for pattern in patterns if is_merge else ():
        judged += [(pattern, j) for j in _judge_joined(flow, pattern)]
    return judged


def _kindest(read: Sequence[_Judged]) -> _Judged:
    """Choose among readings of a root whose axes have no letters.

    It is wrong only if it is right by none of them.
    """
    right = (j for j in read if j.right)
    unclear = (j for j in read if j.unclear)
    return next(right, None) or next(unclear, None) or read[0]


def _only_found(judged: list[tuple[Pattern, _Judged]]) -> list[Found]:
    """Return the right ones, and those that no pattern could judge."""
    right = [j.right for _, j in judged if j.right]
    known = {found.root for found in right}
    unclear = {
        j.unclear.split(":")[0]: Found(p.text, "", None, j.unclear)
        for p, j in judged
        if j.unclear and j.unclear.split(":")[0] not in known
    }
    return [*right, *unclear.values()]


def _nothing(
    patterns: Sequence[Pattern],
    judged: list[tuple[Pattern, _Judged]],
    is_merge: bool,
) -> str:
    words = " or ".join(f'"{p.text}"' for p in patterns)
    what = "merges heads" if is_merge else "splits a tensor into heads"
    unclear = [j.unclear for p, j in judged if p in patterns and j.unclear]
    seen = "; ".join(unclear[:3]) or "no tensor with such axes is moved"
    return f"cannot verify: no step {what} as {words}, right or wrong ({seen})"


def _judge(
    flow: Any, root: Root, pattern: Pattern, expected: np.ndarray, merge: bool
) -> _Judged:
    """Look at every later tensor that holds elements of this root only."""
    forms = list(forms_of(pattern, expected, merge))
    heirs = [
        (step, value)
        for step in flow.steps
        for value in step.outputs
        if value.line is not None and _is_heir(value.line, root)
    ]
    covered, right, last = np.zeros(root.size, dtype=bool), None, ""
    wrong: list[tuple[Step, Value, Form]] = []
    turned: list[tuple[Value, str]] = []
    suspects: list[tuple[Step, Value, Form]] = []
    for step, value in heirs:
        same = [f for f in forms if f.codes.shape == value.shape]
        exact = [f for f in same if (f.codes == value.line).all()]
        if exact:
            covered[value.line.reshape(-1) - root.offset] = True
            if covered.all() and right is None:
                right, last = step, exact[0].words
            continue
        order = None if merge else turned_order(pattern, expected, value.line)
        if order:
            turned.append((value, order))
            if same:  # its axes are as long: right only if all comes right
                suspects.append((step, value, same[0]))
        elif same:
            closest = min(
                same, key=lambda f: int((f.codes != value.line).sum())
            )
            wrong.append((step, value, closest))
    used = [w for w in wrong if _consumers(flow, w[1])]
    if right is not None and not used:
        return _Judged(right=_found(pattern, root, right, last))
    if wrong:
        first = (
            used[0]
            if right is not None
            else min(wrong + suspects, key=lambda w: w[0].number)
        )
        return _Judged(wrong=_error(flow, root, pattern, *first))
    return _judge_turned(flow, root, pattern, turned, covered, heirs)


def _is_heir(line: np.ndarray, root: Root) -> bool:
    inside = (line >= root.offset) & (line < root.offset + root.size)
    return line.size > 0 and bool(inside.all())


def _found(pattern: Pattern, root: Root, step: Step, words: str) -> Found:
    return Found(
        pattern.text,
        root.name,
        step.number,
        f"{root.name}: step {step.number}, {step.call}, holds every element "
        f"where {words} has it",
        root.size,
    )


def _consumers(flow: Any, value: Value) -> list[Step]:
    """Return the products that take exactly this tensor."""
    return [
        step
        for step in flow.steps
        if step.contracts
        and any(
            other.line is not None
            and other.shape == value.shape
            and (other.line == value.line).all()
            for other in step.inputs
        )
    ]


def _judge_turned(
    flow: Any,
    root: Root,
    pattern: Pattern,
    turned: list[tuple[Value, str]],
    covered: np.ndarray,
    heirs: list[tuple[Step, Value]],
) -> _Judged:
    """Judge elements that are grouped rightly, in another order of axes.

    einsum takes any order, as it names its axes; a matrix product works on
    the last two axes, and takes the others as a batch.
    """
    taken, last = covered.copy(), None
    for value, order in turned:
        for step in _consumers(flow, value):
            if step.name == "einsum":
                taken[value.line.reshape(-1) - root.offset] = True
                last = (step, order)
                continue
            return _Judged(
                wrong=WrongElements(
                    f"step {step.number}, {step.call}{_where(step)}, takes "
                    f"{value.name} with axes {order}: it works on the last "
                    f"two axes, and {pattern.target} is wanted. A permute is "
                    "missing.",
                    step=step.number,
                    share=1.0,
                    pattern=pattern.text,
                )
            )
    if last is not None and taken.all():
        return _Judged(right=_found(pattern, root, *last))
    parts = [
        v
        for _, v in heirs
        if len(v.shape) > len(root.shape) and _consumers(flow, v)
    ]
    if covered.any():
        share = f"{int(covered.sum())} of {root.size}"
        return _Judged(unclear=f"{root.name}: {share} elements arrive")
    if parts:
        shapes = ", ".join(dict.fromkeys(str(v.shape) for v in parts))
        return _Judged(unclear=f"{root.name}: becomes {shapes}")
    return _Judged()


def _where(step: Step) -> str:
    return "" if step.source is None else f" ({step.source})"


def _error(
    flow: Any, root: Root, pattern: Pattern, step: Step, value: Value,
    form: Form,
) -> WrongElements:  # fmt: skip
    """Say which step has the shape and not the elements, and show one."""
    differs = form.codes != value.line
    count, place = int(differs.sum()), np.argwhere(differs)[0]
    index = tuple(int(i) for i in place)
    found = name_element(flow.roots, int(value.line[index]))
    wanted = name_element(flow.roots, int(form.codes[index]))
    share = count / differs.size
    return WrongElements(
        f"step {step.number}, {step.call}{_where(step)}: its result "
        f"{value.shape} has the shape of {form.words}, but {count} of "
        f"{differs.size} elements ({share:.1%}) are misplaced. At "
        f"{list(index)} it holds {found}; {wanted} belongs there.",
        step=step.number,
        share=share,
        pattern=pattern.text,
        element=index,
        found=found,
        expected=wanted,
    )


def _judge_joined(flow: Any, pattern: Pattern) -> Iterator[_Judged]:
    """Judge heads that were computed apart and put side by side.

    Their order is that in which they were computed.
    """
    for step in flow.steps:
        for value in step.outputs:
            if value.line is None or (value.line < 0).any():
                continue
            used = roots_in(list(flow.roots), value.line.reshape(-1))
            expected = pattern.joined(used)
            if expected is None or expected.shape != value.shape:
                continue
            first = Root("the heads", "computed", None, value.shape, 0, ())
            if (expected == value.line).all():
                yield _Judged(
                    right=_found(pattern, first, step, pattern.target)
                )
            elif {r.step for r in used} != {None}:
                form = Form(pattern.target, expected)
                yield _Judged(
                    wrong=_error(flow, first, pattern, step, value, form)
                )
