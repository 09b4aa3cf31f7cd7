"""The flow itself: steps, and where each element came from."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from attention_lab.shape_flow import arrangement, export, origins, text
from attention_lab.shape_flow.errors import CannotFollow, WrongElements
from attention_lab.shape_flow.memory import Root
from attention_lab.shape_flow.origins import Origin
from attention_lab.shape_flow.steps import SAME, Step, Value


@dataclass(eq=False)
class ShapeFlow:
    """Every step that a torch callable took, for the inputs it was given.

    Attributes
    ----------
    title : name of the callable.
    sizes : of the axis letters, as far as they are known.
    inputs, outputs : tensors that went in and came back.
    steps : the operations, in order; step n is `steps[n - 1]`.
    roots : the inputs, constants and computed tensors that elements are
        followed back to.
    notes : what could not be followed.
    problem : why nothing could be followed at all, or "".
    verified, failures : what `verify` has found to be right, and wrong.

    Examples
    --------
    >>> import torch
    >>> from attention_lab.shape_flow import trace_shapes
    >>> flow = trace_shapes(torch.t, torch.ones(2, 3), letters={0: "LE"})
    >>> print(flow)  # doctest: +ELLIPSIS
    shape flow of t
    ...
    """

    title: str
    sizes: dict[str, int] = field(default_factory=dict)
    inputs: tuple[Value, ...] = ()
    outputs: tuple[Value, ...] = ()
    steps: tuple[Step, ...] = ()
    roots: tuple[Root, ...] = field(default=(), repr=False)
    notes: tuple[str, ...] = ()
    problem: str = ""
    verified: list[arrangement.Found] = field(default_factory=list)
    failures: list[WrongElements] = field(default_factory=list)

    def __str__(self) -> str:
        return text.as_table(self)

    __repr__ = __str__

    def __len__(self) -> int:
        return len(self.steps)

    def value(self, step: int | str, output: int = 0) -> Value:
        """Return the result of a step (from 1), or an input by its name.

        Raises
        ------
        ValueError
            If there is no such step, input or output.
        """
        if isinstance(step, str):
            for value in self.inputs:
                if step in (value.name, *value.name.split(SAME)):
                    return value
            names = ", ".join(v.name for v in self.inputs)
            raise ValueError(f"step: no input {step!r}; there are {names}")
        is_number = isinstance(step, int) and not isinstance(step, bool)
        if not is_number or not 1 <= step <= len(self.steps):
            raise ValueError(
                f"step must be 1 … {len(self.steps)} or the name of an "
                f"input, not {step!r}"
            )
        outputs = self.steps[step - 1].outputs
        if not isinstance(output, int) or not 0 <= output < len(outputs):
            raise ValueError(
                f"output: step {step} has {len(outputs)} results, counted "
                f"from 0; there is no {output!r}"
            )
        return outputs[output]

    def origin(
        self, step: int | str, index: Sequence[int], output: int = 0
    ) -> Origin:
        """Return where one element of a step's result came from.

        Parameters
        ----------
        step : number of the step, or name of an input.
        index : place of the element.
        output : which result, of a step that has several.

        Returns
        -------
        The element of the root that it is, and the elements of the inputs
        that it can depend on.

        Raises
        ------
        CannotFollow
            If the element is not followed; says why.
        ValueError
            If the index does not exist.
        """
        return origins.of_element(self, self.value(step, output), index)

    def contents(
        self,
        step: int | str,
        axes: str | None = None,
        *,
        output: int = 0,
        **fixed: int,
    ) -> str:
        """Say what a part of a step's result holds, in one sentence.

        Parameters
        ----------
        step, output : which result.
        axes : its axes as they are meant, such as "BHLD"; by default the
            letters that were inferred.
        **fixed : place along axes, such as `H=1, L=2`; B is 0 by default.

        Raises
        ------
        CannotFollow
            If its elements are not followed; says why.
        ValueError
            If the axes do not fit, or a place is outside its axis.
        """
        value = self.value(step, output)
        return origins.contents(self, value, axes, fixed)

    def verify(
        self,
        *,
        split: str | Sequence[str] = (),
        merge: str | Sequence[str] = (),
        heads: int | None = None,
        **sizes: int,
    ) -> list[arrangement.Found]:
        """Check that heads are split and merged element by element.

        Parameters
        ----------
        split : how the projection's result must be rearranged, in einops'
            words: "b l (h d) -> b h l d"; a fused one: "b l (p h d) -> p b h
            l d". Also a list, when projections differ.
        merge : how the heads must be put together again:
            "b h l d -> b l (h d)".
        heads : shorthand for h and both usual patterns; a fused projection
            is taken to be packed "(p h d)".
        **sizes : sizes of the pattern's axes, such as `h=3, p=3`.

        Returns
        -------
        What was found to be right, one entry per rearranged tensor. The flow
        keeps them for its figure.

        Raises
        ------
        WrongElements
            If a step has the shape that is wanted and other elements; names
            the first such step, the share of misplaced elements, and one.
        CannotFollow
            If nothing in the flow is such a rearrangement, right or wrong.
        ValueError
            If a pattern cannot be read, or nothing was asked.
        """
        if self.problem:
            raise CannotFollow(self.problem)
        try:
            found = arrangement.verify(self, split, merge, heads, sizes)
        except WrongElements as error:
            if str(error) not in map(str, self.failures):
                self.failures.append(error)
            raise
        self.verified += [f for f in found if f not in self.verified]
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return the flow as plain data, schema `shape_flow.v1`.

        The schema is written down in `attention_lab.shape_flow.export`.
        """
        return export.to_dict(self)

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict()` as JSON; the same flow gives the same bytes."""
        return export.to_json(self, indent)

    def draw(self, steps: Sequence[int] | None = None, **options: Any) -> Any:
        """Return the flow as a picture: one box per step.

        Parameters
        ----------
        steps : numbers of the steps to draw; by default those that the
            inputs go through.
        **options : as `attention_lab.figures.draw_shape_flow`.
        """
        from attention_lab.figures.flow_steps import draw_shape_flow

        return draw_shape_flow(self.to_dict(), steps=steps, **options)

    def values(self) -> list[Value]:
        """Return the inputs and all results, in order."""
        made = itertools.chain.from_iterable(s.outputs for s in self.steps)
        return [*self.inputs, *made]
