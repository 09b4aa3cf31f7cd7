"""What goes into attention's products and was not judged, and why.

A projection that no pattern fits, as one with fewer key heads, must not be
passed over in silence: `verify` names it with a question mark.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from attention_lab.shape_flow.constants import is_constant
from attention_lab.shape_flow.memory import Root, roots_in
from attention_lab.shape_flow.steps import Step, Value


def unjudged(flow: Any, judged: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (root, sentence) of what products take and nobody judged.

    Parameters
    ----------
    flow : the `ShapeFlow`.
    judged : names of the roots that a pattern has judged.
    """
    products = list(_products(flow))
    made = {step.number for step in products}
    seen = set(judged)
    for step in products:
        for value in step.inputs:
            if value.line is None:
                if value.name not in seen:
                    seen.add(value.name)
                    yield (
                        value.name,
                        f"{value.name}: step {step.number}, {step.call}, takes "
                        f"it, and it is not followed: {value.reason}",
                    )
                continue
            for root in roots_in(list(flow.roots), value.line.reshape(-1)):
                if root.name in seen or not _is_projection(root, made):
                    continue
                seen.add(root.name)
                yield root.name, _sentence(root, step, value)


def _products(flow: Any) -> Iterator[Step]:
    """Yield the products of two tensors that both depend on inputs."""
    for step in flow.steps:
        used = [
            value
            for value in step.inputs
            if not is_constant(flow.roots, value) and len(value.shape) > 1
        ]
        if step.contracts and len(used) > 1:
            yield step


def _is_projection(root: Root, products: set[int]) -> bool:
    """Whether a root is what was projected: no weights, no scores, no mask."""
    if root.kind == "constant" or root.step in products:
        return False
    has_width = root.letters[-1:] in (("E",), ("D",), ("P·E",), ("2·E",))
    return has_width or root.kind != "input"


def _sentence(root: Root, step: Step, value: Value) -> str:
    """Say where it goes, and that nothing is claimed about it."""
    inside = (value.line >= root.offset) & (
        value.line < root.offset + root.size
    )
    mixed = "" if inside.all() else ", mixed with other elements"
    shape = ", ".join(map(str, value.shape))
    return (
        f"{root.name}: step {step.number}, {step.call}, takes it as ({shape})"
        f"{mixed}; no pattern fits, so its heads are not judged"
    )
