"""Which axes of a computing step's inputs become which axes of its result.

One rule serves two ends. Operands and results get labels, one per axis: an
axis of the result carries the letter of the operand's axis with its label, and
an element of the result can depend on those elements of an operand that agree
with it in all shared labels. An operand's axis whose label the result has not
is gone through as a whole: summed, contracted, or normalised over.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from attention_lab.shape_flow.calls import words


@dataclass(frozen=True)
class Rule:
    """Labels of operands and results.

    Attributes
    ----------
    operands : (tensor, labels) of everything the result is computed from.
    results : labels of each result, in order.
    keeps : which operand's elements the result's elements are heirs of, or
        None if they have no place in common.
    contracts : whether axes of two operands are summed against each other.
    """

    operands: tuple[tuple[Tensor, tuple], ...]
    results: tuple[tuple, ...]
    keeps: int | None = None
    contracts: bool = False


_fresh = itertools.count()


def new_label() -> str:
    """Return a label that nothing else has."""
    return f"#{next(_fresh)}"


def find_rule(
    name: str, args: Sequence, kwargs: dict, results: Sequence[Tensor]
) -> Rule | None:
    """Return the rule of a call, or None if the function is not known.

    Whatever a rule says about shapes is held against the real ones.
    """
    maker = RULES.get(name.rstrip("_"))
    if maker is None:
        return None
    try:
        rule = maker(tuple(args), dict(kwargs), tuple(results))
    except (IndexError, KeyError, TypeError, ValueError, AttributeError):
        return None  # a way of calling that the rule does not know
    return rule if rule is not None and _fits(rule, results) else None


def _fits(rule: Rule, results: Sequence[Tensor]) -> bool:
    """Whether every label has one size; 1 may stand for any in an operand."""
    sizes: dict = {}
    for labels, tensor in zip(rule.results, results, strict=False):
        if len(labels) != tensor.ndim:
            return False
        for label, size in zip(labels, tensor.shape, strict=True):
            if sizes.setdefault(label, size) != size:
                return False
    if len(rule.results) != len(results):
        return False
    for tensor, labels in rule.operands:
        if len(labels) != tensor.ndim:
            return False
        for label, size in zip(labels, tensor.shape, strict=True):
            if sizes.setdefault(label, size) != size:
                return False
    return True


def tensors_in(*things: Any) -> list[Tensor]:
    """Return the tensors among arguments, in order, lists opened."""
    found = []
    for thing in things:
        if isinstance(thing, Tensor):
            found.append(thing)
        elif isinstance(thing, (list, tuple)):
            found += tensors_in(*thing)
        elif isinstance(thing, dict):
            found += tensors_in(*thing.values())
    return found


def aligned(shape: Sequence[int], labels: tuple, full: Sequence[int]) -> tuple:
    """Label an operand that broadcasts from the right against a result."""
    skipped = len(full) - len(shape)
    return tuple(
        labels[skipped + axis] if size == full[skipped + axis] else new_label()
        for axis, size in enumerate(shape)
    )


def _elementwise(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Elements meet those at the same place, after broadcasting."""
    shape = results[0].shape
    labels = tuple(new_label() for _ in shape)
    given = [t for t in tensors_in(args, kwargs) if t.ndim <= len(shape)]
    operands = tuple((t, aligned(t.shape, labels, shape)) for t in given)
    whole = [i for i, t in enumerate(given) if t.shape == shape]
    return Rule(operands, (labels,) * len(results), whole[0] if whole else None)


def _argument(args: tuple, kwargs: dict, place: int, *names: str) -> Any:
    for name in names:
        if name in kwargs:
            return kwargs[name]
    return args[place] if len(args) > place else None


def _axes(dims: Any, ndim: int) -> tuple[int, ...]:
    """Return axis numbers ≥ 0; None means all of them."""
    if dims is None:
        return tuple(range(ndim))
    listed = dims if isinstance(dims, (list, tuple)) else (dims,)
    if any(isinstance(d, bool) or not isinstance(d, int) for d in listed):
        raise TypeError("not an axis")
    return tuple(d % ndim for d in listed) or tuple(range(ndim))


def _subject(args: tuple, kwargs: dict) -> Tensor:
    return args[0] if args else kwargs["input"]


def _reduction(args: tuple, kwargs: dict, results: tuple) -> Rule | None:
    """Let some axes vanish, or stay with size 1."""
    x = _subject(args, kwargs)
    if any(isinstance(a, Tensor) for a in args[1:]):
        return _elementwise(args, kwargs, results)  # max(x, y)
    dims = _argument(args, kwargs, 1, "dim", "axis")
    if not isinstance(dims, (int, list, tuple)) or isinstance(dims, bool):
        dims = None
    gone = _axes(dims, x.ndim) if x.ndim else ()
    labels = tuple(new_label() for _ in x.shape)
    kept = results[0].ndim == x.ndim
    out = tuple(
        (new_label() if axis in gone else label)
        for axis, label in enumerate(labels)
        if kept or axis not in gone
    )
    return Rule(((x, labels),), (out,) * len(results))


def _norm_like(args: tuple, kwargs: dict, results: tuple) -> Rule | None:
    """Keep the shape; along the chosen axes all elements meet."""
    x = _subject(args, kwargs)
    dims = _argument(args, kwargs, 1, "dim", "axis")
    if dims is None:
        raise TypeError("the axis is not said")
    return _along(x, _axes(dims, x.ndim), (), results)


def _layer_norm(args: tuple, kwargs: dict, results: tuple) -> Rule:
    x = _subject(args, kwargs)
    shape = _argument(args, kwargs, 1, "normalized_shape")
    count = len(shape) if isinstance(shape, (list, tuple)) else 1
    others = [t for t in tensors_in(args, kwargs) if t is not x]
    axes = range(x.ndim - count, x.ndim)
    return _along(x, tuple(axes), others, results)


def _along(x: Tensor, axes: tuple, others: Sequence, results: tuple) -> Rule:
    labels = tuple(new_label() for _ in x.shape)
    # The same axis goes in and comes out, yet an element meets all along it:
    # the second label of a pair says "the heir of the first".
    out = tuple(
        ("along", label) if axis in axes else label
        for axis, label in enumerate(labels)
    )
    operands = [(x, labels)]
    operands += [(o, aligned(o.shape, out, results[0].shape)) for o in others]
    keeps = 0 if results[0].shape == x.shape else None
    return Rule(tuple(operands), (out,) * len(results), keeps)


def _matmul(args: tuple, kwargs: dict, results: tuple) -> Rule | None:
    left = _argument(args, kwargs, 0, "input")
    right = _argument(args, kwargs, 1, "other", "mat2", "vec")
    return product(left, right, results)


def product(left: Tensor, right: Tensor, results: tuple) -> Rule:
    """Contract the last axis of one with the last but one of the other."""
    shape = results[0].shape
    inner = new_label()
    rows = () if left.ndim == 1 else (new_label(),)
    columns = () if right.ndim == 1 else (new_label(),)
    count = len(shape) - len(rows) - len(columns)
    batch = tuple(new_label() for _ in range(count))
    left_batch = aligned(left.shape[:-2], batch, shape[:count])
    right_batch = aligned(right.shape[:-2], batch, shape[:count])
    left_labels = (*left_batch, *rows, inner)
    right_labels = (*right_batch, inner, *columns)
    return Rule(
        ((left, left_labels), (right, right_labels)),
        ((*batch, *rows, *columns),),
        contracts=True,
    )


def _add_product(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Label addmm and baddbmm: a product, and something added to it."""
    rule = product(args[1], args[2], results)
    added = aligned(args[0].shape, rule.results[0], results[0].shape)
    operands = (*rule.operands, (args[0], added))
    return Rule(operands, rule.results, contracts=True)


def _linear(args: tuple, kwargs: dict, results: tuple) -> Rule:
    x = _subject(args, kwargs)
    weight = _argument(args, kwargs, 1, "weight")
    bias = _argument(args, kwargs, 2, "bias")
    inner, out = new_label(), new_label()
    lead = tuple(new_label() for _ in x.shape[:-1])
    if weight.ndim == 1:
        rule = (((x, (*lead, inner)), (weight, (inner,))), lead)
    else:
        rule = (((x, (*lead, inner)), (weight, (out, inner))), (*lead, out))
    operands, labels = rule
    if bias is not None:
        operands = (*operands, (bias, (out,) if bias.ndim else ()))
    return Rule(operands, (labels,), contracts=True)


def einsum_rule(args: tuple, kwargs: dict, results: tuple) -> Rule | None:
    """Read the equation; the ellipsis stands for aligned axes."""
    equation = _argument(args, kwargs, 0, "equation")
    if not isinstance(equation, str):
        return None
    given = tensors_in(args[1:], kwargs)
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if not arrow:
        plain = left.replace(",", "").replace(".", "")
        once = sorted(c for c in set(plain) if plain.count(c) == 1)
        right = ("..." if "..." in left else "") + "".join(once)
    dots = len(results[0].shape) - len(right.replace("...", ""))
    shared = tuple(new_label() for _ in range(dots))
    shape = results[0].shape
    start = right.find("...")
    middle = shape[start : start + dots] if start >= 0 else ()
    operands = []
    for term, tensor in zip(terms, given, strict=True):
        if len(set(term.replace(".", ""))) < len(term.replace(".", "")):
            return None  # a diagonal, as in "ii->i"
        before, ellipsis, after = term.partition("...")
        count = tensor.ndim - len(before) - len(after)
        part = tensor.shape[len(before) : len(before) + count]
        broadcast = aligned(part, shared, middle) if ellipsis else ()
        labels = [*before, *broadcast, *after]
        # A size of 1 broadcasts against the same letter elsewhere.
        for axis, label in enumerate(labels):
            if tensor.shape[axis] == 1:
                labels[axis] = _one(label, right, shape)
        operands.append((tensor, tuple(labels)))
    head, ellipsis, tail = right.partition("...")
    out = (*head, *(shared if ellipsis else ()), *tail)
    return Rule(tuple(operands), (out,), contracts=True)


def _one(label: str, right: str, shape: Sequence[int]) -> str:
    plain = "..." not in right and label in right
    return label if plain and shape[right.index(label)] == 1 else new_label()


def _attention(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Read query "…ld", key "…sd" and value "…se" as one step to "…le"."""
    names = ("query", "key", "value")
    q, k, v = (_argument(args, kwargs, i, n) for i, n in enumerate(names))
    mask = _argument(args, kwargs, 3, "attn_mask")
    shape = results[0].shape
    batch = tuple(new_label() for _ in shape[:-2])
    row, key, width, out = (new_label() for _ in range(4))
    operands = [
        (t, (*aligned(t.shape[:-2], batch, shape[:-2]), *last))
        for t, last in ((q, (row, width)), (k, (key, width)), (v, (key, out)))
    ]
    if isinstance(mask, Tensor):
        full = (*shape[:-2], q.shape[-2], k.shape[-2])
        operands.append((mask, aligned(mask.shape, (*batch, row, key), full)))
    return Rule(tuple(operands), ((*batch, row, out),), contracts=True)


def _embedding(args: tuple, kwargs: dict, results: tuple) -> Rule:
    ids = _subject(args, kwargs)
    weight = _argument(args, kwargs, 1, "weight")
    labels = tuple(new_label() for _ in ids.shape)
    out = new_label()
    operands = ((ids, labels), (weight, (new_label(), out)))
    return Rule(operands, ((*labels, out),))


def _convolution(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Let each place depend on all places: an upper bound."""
    x = _subject(args, kwargs)
    weight = _argument(args, kwargs, 1, "weight")
    bias = _argument(args, kwargs, 2, "bias")
    space = results[0].ndim - (2 if x.ndim == weight.ndim else 1)
    batch = (new_label(),) if x.ndim == weight.ndim else ()
    out = new_label()
    theirs = tuple(new_label() for _ in x.shape[len(batch) :])
    inside = tuple(new_label() for _ in weight.shape[1:])
    operands = [(x, (*batch, *theirs)), (weight, (out, *inside))]
    if bias is not None:
        operands.append((bias, (out,)))
    places = tuple(new_label() for _ in range(space))
    return Rule(tuple(operands), ((*batch, out, *places),), contracts=True)


def _nothing(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Made from sizes alone."""
    out = tuple(tuple(new_label() for _ in r.shape) for r in results)
    return Rule((), out)


_ELEMENTWISE = words(
    """
add sub rsub mul multiply div divide true_divide floor_divide remainder fmod
pow float_power exp exp2 expm1 log log2 log1p sqrt rsqrt square reciprocal
sigmoid tanh relu relu6 gelu silu mish elu selu celu leaky_relu hardtanh
hardswish hardsigmoid softplus softsign logsigmoid threshold sin cos tan erf
neg negative positive abs absolute sign clamp clip clamp_min clamp_max maximum
minimum fmax fmin where masked_fill dropout alpha_dropout feature_dropout
eq ne lt le gt ge not_equal greater less greater_equal less_equal logical_not
logical_and logical_or logical_xor bitwise_not bitwise_and bitwise_or invert
and or xor isnan isinf isfinite nan_to_num addcmul addcdiv lerp subtract
atan2 hypot xlogy copysign bernoulli round floor ceil trunc tril triu
"""
)

# The number of elements that meet along the axis is an upper bound for the
# cumulative ones and for sorting.
_ALONG = words(
    """
softmax log_softmax softmin cumsum cumprod logcumsumexp sort argsort
"""
)

_REDUCTIONS = words(
    """
sum mean prod amax amin max min any all logsumexp var std argmax argmin norm
nansum nanmean median count_nonzero
"""
)

_FACTORIES = words(
    """
zeros ones full empty arange linspace eye rand randn randint tensor
scalar_tensor zeros_like ones_like full_like empty_like rand_like randn_like
new_zeros new_ones new_full new_empty new_tensor as_tensor from_numpy
tril_indices triu_indices
"""
)

RULES: dict[str, Callable[[tuple, dict, tuple], Rule | None]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_ALONG, _norm_like),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_FACTORIES, _nothing),
    **dict.fromkeys(("matmul", "bmm", "mm", "mv", "dot"), _matmul),
    **dict.fromkeys(("addmm", "baddbmm"), _add_product),
    "linear": _linear,
    "einsum": einsum_rule,
    "layer_norm": _layer_norm,
    "rms_norm": _layer_norm,
    "scaled_dot_product_attention": _attention,
    "embedding": _embedding,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
}
