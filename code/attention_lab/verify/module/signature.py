"""Which argument of a module's forward is which, by its name and default."""

import inspect
from dataclasses import dataclass, field

from torch import nn

from attention_lab.axes import axis_letters

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
#: Masks whose name does not end in "mask" or "masks".
MASK_NAMES = ("keep",)
#: Floating numbers that are added to the scores.
ADDED_NAMES = ("bias", "attn_bias", "attention_bias", "score_bias")
#: Words that make an argument something else than a mask of tokens.
NO_MASK_WORDS = frozenset(
    ("head", "heads", "layer", "use", "return", "need", "apply", "output")
)
CAUSAL_NAMES = ("is_causal", "causal")


class CannotCall(Exception):  # noqa: N818 - a finding, not an error of ours
    """The module needs an argument that nobody here knows."""


@dataclass
class Signature:
    """The arguments of a module's forward by their role.

    `inputs` maps "query", "key", "value" and "context" to names. `mask` is one
    of (L, S), `padding` one of (B, S); `required` are the names of those
    without a default. `never_given` are arguments of no known role.
    """

    inputs: dict[str, str] = field(default_factory=dict)
    mask: str | None = None
    mask_is_added: bool = False
    padding: str | None = None
    causal: str | None = None
    keys_are_optional: bool = False
    required: set[str] = field(default_factory=set)
    never_given: list[str] = field(default_factory=list)

    @property
    def style(self) -> str:
        """Return "self", "context" or "cross", as `Subject` explains."""
        if "key" in self.inputs and "value" in self.inputs:
            return "cross"
        return "context" if "context" in self.inputs else "self"


def read_signature(module: nn.Module) -> Signature:
    """Read the signature of a module's forward.

    Raises
    ------
    CannotCall
        If an argument without a default has no known role.
    """
    found, unknown = Signature(), []
    is_torch_mha = isinstance(module, nn.MultiheadAttention)
    parameters = inspect.signature(module.forward).parameters
    for name, parameter in parameters.items():
        if parameter.kind in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        ):
            continue
        if parameter.default is parameter.empty:
            found.required.add(name)
        role = _role(name, parameter.default)
        if is_torch_mha and role == "causal":
            role = None  # a hint about a mask that must come with it
        if role in ("mask", "added") and found.mask is None:
            found.mask, found.mask_is_added = name, role == "added"
        elif role in ("padding", "causal") and getattr(found, role) is None:
            setattr(found, role, name)
        elif role in ROLES_OF_TOKENS and role not in found.inputs:
            found.inputs[role] = name
            if role in ("key", "context"):
                found.keys_are_optional = parameter.default is None
        elif name in found.required:
            unknown.append(name)
        elif not (is_torch_mha and name == "need_weights"):
            found.never_given.append(name)
    _place(found, unknown)
    return found


ROLES_OF_TOKENS = ("query", "key", "value", "context")


def _place(found: Signature, unknown: list[str]) -> None:
    """Give arguments with unusual names a role by their position."""
    roles = {0: [], 1: ["query"], 3: ["query", "key", "value"]}
    free = [r for r in roles.get(len(unknown), []) if r not in found.inputs]
    if len(free) != len(unknown):
        raise CannotCall(
            f"forward needs {', '.join(unknown)}, which the verifier does "
            "not know how to make"
        )
    found.inputs.update(zip(free, unknown, strict=True))
    if "query" not in found.inputs:
        raise CannotCall("forward has no argument for the tokens")


def _role(name: str, default: object) -> str | None:
    letters = axis_letters(name)
    bare = name.removesuffix(f"_{letters}") if letters else name
    bare = bare.lower()
    is_flag = isinstance(default, bool)
    if bare in CAUSAL_NAMES or (is_flag and "causal" in bare):
        return "causal"
    if is_flag:
        return None
    if bare in ADDED_NAMES:
        return "added"
    if bare in MASK_NAMES or bare.endswith(("mask", "masks")):
        if NO_MASK_WORDS & set(bare.split("_")):
            return None
        return "padding" if "pad" in bare else "mask"
    for role, names in (
        ("query", QUERY_NAMES),
        ("key", KEY_NAMES),
        ("value", VALUE_NAMES),
        ("context", CONTEXT_NAMES),
    ):
        if bare in names:
            return role
    return None
