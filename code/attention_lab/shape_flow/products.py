"""Rules of products: matmul, linear, einsum, attention in one call."""

from collections.abc import Sequence

from torch import Tensor

from attention_lab.shape_flow.labels import (
    Rule,
    aligned,
    argument,
    new_label,
    subject,
    tensors_in,
)


def matmul(args: tuple, kwargs: dict, results: tuple) -> Rule | None:
    """Read the operands of matmul, bmm, mm, mv or dot."""
    left = argument(args, kwargs, 0, "input")
    right = argument(args, kwargs, 1, "other", "mat2", "vec")
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


def add_product(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Label addmm and baddbmm: a product, and something added to it."""
    rule = product(args[1], args[2], results)
    added = aligned(args[0].shape, rule.results[0], results[0].shape)
    operands = (*rule.operands, (args[0], added))
    return Rule(operands, rule.results, contracts=True)


def linear(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Contract the last axis with the weight's last; add a bias."""
    x = subject(args, kwargs)
    weight = argument(args, kwargs, 1, "weight")
    bias = argument(args, kwargs, 2, "bias")
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
    equation = argument(args, kwargs, 0, "equation")
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


def attention(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Read query "…ld", key "…sd" and value "…se" as one step to "…le"."""
    names = ("query", "key", "value")
    q, k, v = (argument(args, kwargs, i, n) for i, n in enumerate(names))
    mask = argument(args, kwargs, 3, "attn_mask")
    shape = results[0].shape
    batch = tuple(new_label() for _ in shape[:-2])
    row, key, width, out = (new_label() for _ in range(4))
    operands, repeats = [], {}
    for place, (t, last) in enumerate(
        ((q, (row, width)), (k, (key, width)), (v, (key, out)))
    ):
        lead = list(t.shape[:-2])
        if argument(args, kwargs, 7, "enable_gqa") and lead[-1] < shape[-3]:
            repeats[place] = (len(lead) - 1, shape[-3] // lead[-1])
            lead[-1] = shape[-3]
        operands.append((t, (*aligned(lead, batch, shape[:-2]), *last)))
    if isinstance(mask, Tensor):
        full = (*shape[:-2], q.shape[-2], k.shape[-2])
        operands.append((mask, aligned(mask.shape, (*batch, row, key), full)))
    return Rule(
        tuple(operands), ((*batch, row, out),), contracts=True, repeats=repeats
    )


def outer(args: tuple, kwargs: dict, results: tuple) -> Rule:
    """Multiply each number of one vector with each of another."""
    left, right = subject(args, kwargs), argument(args, kwargs, 1, "vec2")
    row, column = new_label(), new_label()
    operands = ((left, (row,)), (right, (column,)))
    return Rule(operands, ((row, column),), contracts=True)
