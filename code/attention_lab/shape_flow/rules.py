"""Which axes of a computing step's inputs become which axes of its result.

A rule per function, in the labels of `labels`; those of products are in
`products`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from attention_lab.shape_flow import products
from attention_lab.shape_flow.calls import words
from attention_lab.shape_flow.labels import (
    Rule,
    aligned,
    argument,
    new_label,
    subject,
    tensors_in,
)


def find_rule(
    name: str, args: Sequence, kwargs: dict, results: Sequence[Tensor]
) -> Rule | None:
    """Return the rule of a call, or None if the function is not known.

    Whatever a rule says about shapes is held against the real ones.
    """
    maker = RULES.get(name.rstrip("_"))
    if maker is None:
        return None
    # What is overwritten has no part in the result.
    given = {key: value for key, value in kwargs.items() if key != "out"}
    try:
        rule = maker(tuple(args), given, tuple(results))
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
    for place, (tensor, labels) in enumerate(rule.operands):
        if len(labels) != tensor.ndim:
            return False
        shape = list(tensor.shape)
        if place in rule.repeats:
            axis, times = rule.repeats[place]
            shape[axis] *= times
        for label, size in zip(labels, shape, strict=True):
            if sizes.setdefault(label, size) != size:
                return False
    return True


def _elementwise(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Elements meet those at the same place, after broadcasting."""
    shape = results[0].shape
    labels = tuple(new_label() for _ in shape)
    given = [t for t in tensors_in(args, kwargs) if t.ndim <= len(shape)]
    operands = tuple((t, aligned(t.shape, labels, shape)) for t in given)
    whole = [i for i, t in enumerate(given) if t.shape == shape]
    return Rule(operands, (labels,) * len(results), whole[0] if whole else None)


def _where(args: tuple, kwargs: dict, results: tuple) -> Rule | None:
    """Choose element by element; the condition leaves no heir."""
    rule = _elementwise(args, kwargs, results)
    condition, *others = rule.operands
    if len(args) + len(kwargs) < 3:
        return None  # where(condition) returns places
    whole = [
        place
        for place, (tensor, _) in enumerate(others, start=1)
        if tensor.shape == results[0].shape
    ]
    keeps = whole[0] if len(whole) == 1 else None
    return Rule((condition, *others), rule.results, keeps)


def _axes(dims: Any, ndim: int) -> tuple[int, ...]:
    """Return axis numbers ≥ 0; None means all of them."""
    if dims is None:
        return tuple(range(ndim))
    listed = dims if isinstance(dims, (list, tuple)) else (dims,)
    if any(isinstance(d, bool) or not isinstance(d, int) for d in listed):
        raise TypeError("not an axis")
    return tuple(d % ndim for d in listed) or tuple(range(ndim))


def _reduction(args: tuple, kwargs: dict, results: tuple) -> Rule | None:
    """Let some axes vanish, or stay with size 1."""
    x = subject(args, kwargs)
    if len(tensors_in(args, kwargs)) > 1:
        return _elementwise(args, kwargs, results)  # max(x, y)
    return _reduced(x, argument(args, kwargs, 1, "dim", "axis"), results)


def _norm(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Reduce as a sum does; the second argument is the power."""
    dims = argument(args, kwargs, 2, "dim")
    return _reduced(subject(args, kwargs), dims, results)


def _reduced(x: Tensor, dims: Any, results: tuple) -> Rule:
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
    x = subject(args, kwargs)
    dims = argument(args, kwargs, 1, "dim", "axis")
    if dims is None:
        raise TypeError("the axis is not said")
    return _along(x, _axes(dims, x.ndim), (), results)


def _sort(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Let all elements meet along an axis; none of them stays in its place."""
    x = subject(args, kwargs)
    dims = [a for a in args[1:] if not isinstance(a, bool)]
    dims = kwargs.get("dim", dims[0] if dims else -1)
    rule = _along(x, _axes(dims, x.ndim), (), results)
    return Rule(rule.operands, rule.results)


def _layer_norm(args: tuple, kwargs: dict, results: tuple) -> Rule:
    x = subject(args, kwargs)
    shape = argument(args, kwargs, 1, "normalized_shape")
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


def _embedding(args: tuple, kwargs: dict, results: tuple) -> Rule:
    ids = subject(args, kwargs)
    weight = argument(args, kwargs, 1, "weight")
    labels = tuple(new_label() for _ in ids.shape)
    out = new_label()
    operands = ((ids, labels), (weight, (new_label(), out)))
    return Rule(operands, ((*labels, out),))


def _convolution(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Let each place depend on all places: an upper bound."""
    x = subject(args, kwargs)
    weight = argument(args, kwargs, 1, "weight")
    bias = argument(args, kwargs, 2, "bias")
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


def _fill(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Fill with one number, which may be a tensor's; the old ones are gone."""
    rule = _nothing(args, kwargs, results)
    number = tensors_in(args[1:], kwargs)
    return Rule(tuple((x, ()) for x in number), rule.results)


_ELEMENTWISE = words(
    """
add sub rsub mul multiply div divide true_divide floor_divide remainder fmod
pow float_power exp exp2 expm1 log log2 log1p sqrt rsqrt square reciprocal
sigmoid tanh relu relu6 gelu silu mish elu selu celu leaky_relu hardtanh
hardswish hardsigmoid softplus softsign logsigmoid threshold sin cos tan erf
neg negative positive abs absolute sign clamp clip clamp_min clamp_max maximum
minimum fmax fmin masked_fill dropout alpha_dropout feature_dropout
eq ne lt le gt ge not_equal greater less greater_equal less_equal logical_not
logical_and logical_or logical_xor bitwise_not bitwise_and bitwise_or invert
and or xor isnan isinf isfinite nan_to_num addcmul addcdiv lerp subtract
atan2 hypot xlogy copysign bernoulli round floor ceil trunc tril triu
"""
)

# The number of elements that meet along the axis is an upper bound for the
# cumulative ones.
_ALONG = words(
    """
softmax log_softmax softmin cumsum cumprod logcumsumexp
"""
)

_REDUCTIONS = words(
    """
sum mean prod amax amin max min any all logsumexp var std argmax argmin
nansum nanmean median count_nonzero
"""
)

_FACTORIES = words(
    """
zeros ones full empty arange linspace eye rand randn randint tensor
scalar_tensor zeros_like ones_like full_like empty_like rand_like randn_like
new_zeros new_ones new_full new_empty new_tensor as_tensor from_numpy
tril_indices triu_indices normal uniform random exponential
"""
)

RULES: dict[str, Callable[[tuple, dict, tuple], Rule | None]] = {
    **dict.fromkeys(_ELEMENTWISE, _elementwise),
    **dict.fromkeys(_ALONG, _norm_like),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    **dict.fromkeys(_FACTORIES, _nothing),
    **dict.fromkeys(("zero", "fill"), _fill),
    **dict.fromkeys(("sort", "argsort"), _sort),
    "where": _where,
    "norm": _norm,
    **dict.fromkeys(
        ("matmul", "bmm", "mm", "mv", "dot", "linalg_matmul"), products.matmul
    ),
    **dict.fromkeys(("addmm", "baddbmm"), products.add_product),
    "linear": products.linear,
    "einsum": products.einsum_rule,
    "outer": products.outer,
    "layer_norm": _layer_norm,
    "rms_norm": _layer_norm,
    "scaled_dot_product_attention": products.attention,
    "embedding": _embedding,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
}
