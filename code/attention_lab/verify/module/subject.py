"""How any attention module is called: which argument is which."""

import contextlib
import copy
import inspect
import warnings
from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from attention_lab.axes import axis_letters

MaskMeans = Literal["keep", "forbid", "added"]

QUERY_NAMES = ("q", "query", "queries", "x", "hidden_states", "input", "x_q")
KEY_NAMES = ("k", "key", "keys", "x_k")
VALUE_NAMES = ("v", "value", "values", "x_v")
CONTEXT_NAMES = (
    "context",
    "memory",
    "kv",
    "y",
    "x_kv",
    "encoder_hidden_states",
    "encoder_output",
    "key_value_states",
)
MASK_NAMES = (
    "mask",
    "attn_mask",
    "attention_mask",
    "att_mask",
    "src_mask",
    "tgt_mask",
    "keep",
)
CAUSAL_NAMES = ("is_causal", "causal")
#: Axes in front of (L, S) that a mask may need, or "keys" for one of (B, S);
#: the first that runs is used.
MASK_RANKS = ((), (1, 1), (1,), "keys")


class SubjectFailure(Exception):  # noqa: N818 - a finding, not an error of ours
    """The module did not return what it must; the message is a sentence."""


class CannotCall(Exception):  # noqa: N818 - a finding, not an error of ours
    """The module needs an argument that nobody here knows."""


class CannotCopy(Exception):  # noqa: N818 - a finding, not an error of ours
    """`copy.deepcopy` refuses the module."""


class Subject:
    """A module and how to call it with batch-first inputs.

    `style` is "self" (one input), "context" (queries, and one input for keys
    and values) or "cross" (query, key and value).
    """

    def __init__(
        self, module: nn.Module, mask_means: MaskMeans = "keep"
    ) -> None:
        self.module = module
        self.is_torch_mha = isinstance(unwrapped(module), nn.MultiheadAttention)
        self.batch_first = (
            unwrapped(module).batch_first if self.is_torch_mha else True
        )
        # torch.nn.MultiheadAttention documents that True forbids.
        self.mask_means = "forbid" if self.is_torch_mha else mask_means
        inner = unwrapped(module)
        if self.is_torch_mha and {inner.kdim, inner.vdim} != {inner.embed_dim}:
            raise CannotCall("its keys or values have a width of their own")
        self.inputs: dict[str, str] = {}
        self.mask: str | None = None
        self.mask_is_required = False
        self.causal: str | None = None
        self.keys_are_optional = False
        self.mask_rank: tuple[int, ...] | str | None = None
        self._read_signature()

    def _read_signature(self) -> None:
        parameters = inspect.signature(unwrapped(self.module).forward)
        unknown = []
        for name, parameter in parameters.parameters.items():
            if parameter.kind in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
            ):
                continue
            required = parameter.default is parameter.empty
            role = _role(name)
            if role == "mask":
                if self.mask is None:
                    self.mask, self.mask_is_required = name, required
            elif role == "causal":
                # torch's flag is a hint about a mask that must come with it.
                self.causal = None if self.is_torch_mha else name
            elif role and role not in self.inputs:
                self.inputs[role] = name
                if role in ("key", "context"):
                    self.keys_are_optional = parameter.default is None
            elif required:
                unknown.append(name)
        self._place(unknown)
        if "key" in self.inputs and "value" in self.inputs:
            self.style = "cross"
        elif "context" in self.inputs:
            self.style = "context"
        else:
            self.style = "self"

    def _place(self, unknown: list[str]) -> None:
        """Give arguments with unusual names a role by their position."""
        roles = {0: [], 1: ["query"], 3: ["query", "key", "value"]}
        free = [r for r in roles.get(len(unknown), []) if r not in self.inputs]
        if len(free) != len(unknown):
            raise CannotCall(
                f"forward needs {', '.join(unknown)}, which the verifier does "
                "not know how to make"
            )
        self.inputs.update(zip(free, unknown, strict=True))
        if "query" not in self.inputs:
            raise CannotCall("forward has no argument for the tokens")

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
    ) -> Tensor:
        """Return the output (B, L, E); `other` holds the keys and values.

        `mask` is (L, S): boolean with True = may attend, or floating.

        Raises
        ------
        SubjectFailure
            If the module raises, or returns no tensor.
        """
        return self.raw(query, other, mask, is_causal, value)[0]

    def raw(
        self,
        query: Tensor,
        other: Tensor | None = None,
        mask: Tensor | None = None,
        is_causal: bool = False,
        value: Tensor | None = None,
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
        if mask is not None:
            arguments[self.mask] = self._as_they_mean(mask, len(query))
        elif self.mask_is_required:
            arguments[self.mask] = None
        if self.causal is not None:
            arguments[self.causal] = is_causal
        if self.is_torch_mha:
            arguments["need_weights"] = False
        return self._call(arguments)

    def alone(self, query: Tensor) -> Tensor:
        """Return the output for queries alone, where keys are optional."""
        if not self.batch_first:
            query = query.transpose(0, 1)
        return self._call({self.inputs["query"]: query})[0]

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

    def find_mask_rank(self, query: Tensor, other: Tensor) -> str | None:
        """Find out how many axes a mask needs; return why none runs.

        A mask that forbids nothing must change nothing: the wrong number of
        axes may run as well, and broadcast. Where it always changes something
        the first rank that runs is taken.
        """
        mask = torch.ones(query.shape[1], other.shape[1], dtype=torch.bool)
        expected = self(query, other)
        running, reason = [], None
        for rank in MASK_RANKS:
            self.mask_rank = rank
            try:
                out = self(query, other, mask)
            except SubjectFailure as failure:
                reason = reason or str(failure)
                continue
            if out.shape != query.shape:
                reason = reason or f"its output has shape {tuple(out.shape)}"
                continue
            if torch.allclose(out, expected, rtol=1e-3, atol=1e-3):
                return None
            running.append(rank)
        self.mask_rank = running[0] if running else None
        return None if running else reason


def unwrapped(module: nn.Module) -> nn.Module:
    """Return the module inside `torch.compile`'s wrapper."""
    return getattr(module, "_orig_mod", module)


def _role(name: str) -> str | None:
    letters = axis_letters(name)
    bare = name.removesuffix(f"_{letters}") if letters else name
    bare = bare.lower()
    for role, names in (
        ("mask", MASK_NAMES),
        ("causal", CAUSAL_NAMES),
        ("query", QUERY_NAMES),
        ("key", KEY_NAMES),
        ("value", VALUE_NAMES),
        ("context", CONTEXT_NAMES),
    ):
        if bare in names:
            return role
    return None


def to_numpy(tensor: Tensor) -> np.ndarray:
    """Return a tensor's numbers in float64."""
    return tensor.detach().cpu().to(torch.float64).numpy()


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
