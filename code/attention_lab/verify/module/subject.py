"""How any attention module is called with batch-first tokens."""

import contextlib
import copy
import itertools
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from attention_lab.verify.module.signature import read_signature

MaskMeans = Literal["keep", "forbid", "added"]
PaddingMeans = Literal["keep", "forbid"]

#: Axes in front of (L, S) that a mask may need, or "keys" for one of (B, S);
#: the first that runs is used.
MASK_RANKS = ((), (1, 1), (1,), "keys")
#: Shapes that a mask of padding may need.
PADDING_SHAPES = ("b s", "b 1 1 s", "b 1 s")


class SubjectFailure(Exception):  # noqa: N818 - a finding, not an error of ours
    """The module did not return what it must; the message is a sentence."""


class CannotCopy(Exception):  # noqa: N818 - a finding, not an error of ours
    """`copy.deepcopy` refuses the module."""


class Subject:
    """A module and how to call it with batch-first inputs.

    `style` is "self" (one input), "context" (queries, and one input for keys
    and values) or "cross" (query, key and value). Where a module does not run
    without a mask, it is given one that forbids nothing; `fails_without` is
    what happens otherwise.

    Raises
    ------
    CannotCall
        If forward needs an argument of no known role.
    """

    def __init__(
        self,
        module: nn.Module,
        mask_means: MaskMeans = "keep",
        padding_means: PaddingMeans = "forbid",
    ) -> None:
        self.module = module
        inner = unwrapped(module)
        self.is_torch_mha = isinstance(inner, nn.MultiheadAttention)
        self.batch_first = inner.batch_first if self.is_torch_mha else True
        found = read_signature(inner)
        self.inputs, self.style = found.inputs, found.style
        self.mask, self.padding = found.mask, found.padding
        self.causal = found.causal
        self.required = found.required
        self.never_given = found.never_given
        self.keys_are_optional = found.keys_are_optional
        # torch.nn.MultiheadAttention documents that True forbids.
        self.mask_means = "forbid" if self.is_torch_mha else mask_means
        if found.mask_is_added:
            self.mask_means = "added"
        self.padding_means = "forbid" if self.is_torch_mha else padding_means
        self.mask_rank: tuple[int, ...] | str | None = None
        self.padding_shape = PADDING_SHAPES[0]
        self.needs: frozenset[str] = frozenset()
        self.fails_without: str | None = None

    @property
    def has_keys_of_their_own(self) -> bool:
        """Whether the keys can come from elsewhere than the queries."""
        return self.style != "self"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the first floating parameter."""
        for tensor in self.module.parameters():
            if tensor.is_floating_point():
                return tensor.dtype
        return torch.float32

    def copy(self) -> "Subject":
        """Return the same way of calling a copy of the module."""
        twin = copy.copy(self)
        try:
            twin.module = copy.deepcopy(self.module)
        except Exception as error:  # whatever a foreign __deepcopy__ raises
            raise CannotCopy(
                f"it cannot be copied ({type(error).__name__})"
            ) from error
        return twin

    def __call__(
        self,
        query: Tensor,
        other: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        value: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> Tensor:
        """Return the output (B, L, E); `other` holds the keys and values.

        `mask` is (L, S): boolean with True = may attend, or floating.
        `padding` is (B, S): True for a token, False for padding.

        Raises
        ------
        SubjectFailure
            If the module raises, or returns no tensor.
        """
        return self.raw(query, other, mask, is_causal, value, padding)[0]

    def raw(
        self,
        query: Tensor,
        other: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        value: Tensor | None = None,
        padding: Tensor | None = None,
    ) -> tuple[Tensor, Any]:
        """Return the output, and what came after it in a tuple."""
        other = query if other is None else other
        value = other if value is None else value
        arguments = {self.inputs["query"]: query}
        if self.style == "cross":
            arguments[self.inputs["key"]] = other
            arguments[self.inputs["value"]] = value
        elif self.style == "context":
            arguments[self.inputs["context"]] = other
        if not self.batch_first:
            arguments = {n: x.transpose(0, 1) for n, x in arguments.items()}
        arguments |= self._masks(query, other, mask, padding)
        if self.causal is not None:
            arguments[self.causal] = is_causal
        return self._call(arguments)

    def alone(self, query: Tensor) -> Tensor:
        """Return the output for queries alone, where keys are optional."""
        masks = self._masks(query, query, None, None)
        if not self.batch_first:
            query = query.transpose(0, 1)
        return self._call({self.inputs["query"]: query, **masks})[0]

    def _masks(
        self,
        query: Tensor,
        other: Tensor,
        mask: Tensor | None,
        padding: Tensor | None,
    ) -> dict[str, Tensor | None]:
        """Return the masks as arguments: as asked for, open, or None."""
        B, L, S = len(query), query.shape[1], other.shape[1]
        arguments: dict[str, Tensor | None] = {}
        if mask is None and "mask" in self.needs:
            mask = torch.ones(L, S, dtype=torch.bool)
        if padding is None and "padding" in self.needs:
            padding = torch.ones(B, S, dtype=torch.bool)
        if mask is not None:
            arguments[self.mask] = self._as_they_mean(mask, B)
        elif self.mask in self.required:
            arguments[self.mask] = None
        if padding is not None:
            if self.padding_means == "forbid":
                padding = ~padding
            shape = {"b": B, "1": 1, "s": S}
            axes = [shape[axis] for axis in self.padding_shape.split()]
            arguments[self.padding] = padding.reshape(axes)
        elif self.padding in self.required:
            arguments[self.padding] = None
        return arguments

    def _as_they_mean(self, mask: Tensor, batch: int) -> Tensor:
        if mask.dtype == torch.bool and self.mask_means != "keep":
            if self.mask_means == "forbid":
                mask = ~mask
            else:
                zeros = torch.zeros(mask.shape, dtype=self.dtype)
                mask = zeros.masked_fill(~mask, -torch.inf)
        if self.mask_rank == "keys":
            return mask[:1].expand(batch, -1)
        return mask.reshape(*(self.mask_rank or ()), *mask.shape)

    def _call(self, arguments: dict[str, Any]) -> tuple[Tensor, Any]:
        if self.is_torch_mha:
            arguments = {**arguments, "need_weights": False}
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = self.module(**arguments)
        except Exception as error:
            sentence = " ".join(str(error).split())[:200]
            raise SubjectFailure(
                f"it raises {type(error).__name__}: {sentence}"
            ) from error
        rest = None
        if isinstance(result, tuple | list) and result:
            result, rest = result[0], result[1:]
        if not isinstance(result, Tensor):
            raise SubjectFailure(
                f"it returns {type(result).__name__}, not a tensor"
            )
        if not self.batch_first and result.ndim == 3:
            result = result.transpose(0, 1)
        return result, rest

    def settle(self, query: Tensor, other: Tensor, value: Tensor) -> None:
        """Find out which masks it needs in order to run at all.

        Raises
        ------
        SubjectFailure
            If it does not run with open masks either; nothing is changed.
        """

        def runs() -> bool:
            with torch.no_grad():
                out = self(query, other, value=value)
            return out.shape == query.shape

        try:
            runs()
            return
        except SubjectFailure as failure:
            first = failure
        kinds = [kind for kind in ("mask", "padding") if getattr(self, kind)]
        before = self.needs, self.mask_rank, self.padding_shape
        for count in range(1, len(kinds) + 1):
            for needs in itertools.combinations(kinds, count):
                self.needs = frozenset(needs)
                ranks = MASK_RANKS if "mask" in needs else (None,)
                shapes = PADDING_SHAPES if "padding" in needs else before[2:]
                for rank, shape in itertools.product(ranks, shapes):
                    self.mask_rank, self.padding_shape = rank, shape
                    with contextlib.suppress(SubjectFailure):
                        if runs():
                            names = {getattr(self, kind) for kind in needs}
                            if not names & self.required:
                                self.fails_without = str(first)
                            return
        self.needs, self.mask_rank, self.padding_shape = before
        raise first

    def find_mask_rank(
        self, query: Tensor, other: Tensor, value: Tensor
    ) -> str | None:
        """Find out how many axes a mask needs; return why none runs.

        A mask that forbids nothing must change nothing: the wrong number of
        axes may run as well, and broadcast. Where it always changes something
        the first rank that runs is taken.
        """
        mask = torch.ones(query.shape[1], other.shape[1], dtype=torch.bool)
        found, reason = self._first_that_fits(
            (query, other, value), "mask_rank", MASK_RANKS, mask=mask
        )
        self.mask_rank = found
        return reason

    def find_padding_shape(
        self, query: Tensor, other: Tensor, value: Tensor
    ) -> str | None:
        """Find out the shape of a mask of padding; return why none runs."""
        if "padding" in self.needs:
            return None
        mask = torch.ones(len(query), other.shape[1], dtype=torch.bool)
        found, reason = self._first_that_fits(
            (query, other, value),
            "padding_shape",
            PADDING_SHAPES,
            padding=mask,
        )
        self.padding_shape = found or PADDING_SHAPES[0]
        return reason

    def _first_that_fits(
        self,
        inputs: tuple[Tensor, Tensor, Tensor],
        attribute: str,
        ranks: tuple,
        **masks: Tensor,
    ) -> tuple[Any, str | None]:
        query, other, value = inputs
        expected = self(query, other, value=value)
        running, reason = [], None
        for rank in ranks:
            setattr(self, attribute, rank)
            try:
                out = self(query, other, value=value, **masks)
            except SubjectFailure as failure:
                reason = reason or str(failure)
                continue
            if out.shape != query.shape:
                reason = reason or f"its output has shape {tuple(out.shape)}"
                continue
            if torch.allclose(out, expected, rtol=1e-3, atol=1e-3):
                return rank, None
            running.append(rank)
        return (running[0], None) if running else (None, reason)


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module inside `torch.compile`'s wrapper."""
    return getattr(module, "_orig_mod", module)


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return a tensor's numbers in float64."""
    return tensor.detach().cpu().to(torch.float64).numpy()


@contextlib.contextmanager
def float64_by_default() -> Iterator[None]:
    """Let what a module makes while it runs be float64 as well.

    Else a float64 copy would mix its own numbers with float32, which torch's
    attention does not always refuse but may get wrong.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def one_quiet_thread() -> Iterator[None]:
    """Run with one thread and leave torch's random state as it was.

    One thread adds in one order, so that equal inputs give equal bits; and a
    forked process has only the thread that forked.
    """
    threads = torch.get_num_threads()
    state = torch.random.get_rng_state()
    grad = torch.is_grad_enabled()
    torch.set_num_threads(1)
    torch.set_grad_enabled(True)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_grad_enabled(grad)
        torch.random.set_rng_state(state)
