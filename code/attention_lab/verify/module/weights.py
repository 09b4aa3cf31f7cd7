"""Recognise a module's projections by their names, and read their weights."""

import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import nn

from attention_lab.verify.module.layers import Layer, find_layers
from attention_lab.verify.module.subject import unwrapped
from attention_lab.verify.module.wrong_module import Weights

LAYOUTS = ("p h d", "h p d", "h d p")
#: In which order a fused projection may hold query, key and value.
ORDERS = tuple("".join(order) for order in itertools.permutations("qkv"))

_WORDS = {"q": "query", "k": "key", "v": "value"}
# The usual names, in small letters; the first that exactly one layer has.
_OUT = """
    outproj projout oproj outputproj outputprojection outprojection proj
    projection cproj output out o wo wout toout toout0 fcout fco outlinear
    linearout outfc dense outputlinear outputlayer finallinear unifyheads fc
    linears3 outdense
"""
_FUSED = """
    qkv inproj cattn toqkv wqkv qkvproj projqkv querykeyvalue qkvlinear
    linearqkv
"""
_KEYS_AND_VALUES = "kv kvproj tokv wkv linearkv keyvalue"


def _aliases(role: str) -> list[str]:
    """Return the usual names of one projection, in small letters."""
    word, index = _WORDS[role], "qkv".index(role)
    short = [f"{role}proj", f"proj{role}", f"w{role}", f"{role}linear"]
    short += [f"linear{role}", f"fc{role}", f"to{role}", role, f"{role}s"]
    plural = "queries" if role == "q" else f"{word}s"
    long = [word, plural, f"{word}proj", f"proj{word}", f"w{word}"]
    long += [f"{word}linear", f"linear{word}", f"to{word}", f"{word}layer"]
    return [*short, *long, f"{word}projection", f"linears{index}"]


@dataclass(frozen=True)
class Packing:
    """How weights lie: layout and order of a fused one, axes of a bare one.

    `flipped` says that bare matrices are (in, out): nothing but the values
    can tell for a square one.
    """

    layout: str = "separate"
    order: str = "qkv"
    flipped: bool = False

    def __str__(self) -> str:
        """Say it in words; empty for separate layers."""
        words = []
        if self.layout != "separate":
            long = self.layout.replace("p", "three")
            words.append(f"fused layout: ({long})")
            if self.order != "qkv":
                words.append(f"in the order {', '.join(self.order)}")
        if self.flipped:
            words.append("bare matrices are (in, out)")
        return ", ".join(words)


@dataclass
class Projections:
    """The recognised projections of a module.

    `separate` maps q, k and v to their layers, one or one per head; `fused` is
    one layer for all three. `out` is the output projection, if there is one.
    `is_shared` says that one layer makes queries, keys and values alike.
    """

    num_heads: int
    separate: dict[str, list[Layer]] = field(default_factory=dict)
    fused: Layer | None = None
    out: Layer | None = None
    is_shared: bool = False
    _read: dict[Packing, Weights] = field(default_factory=dict, repr=False)

    @property
    def inner(self) -> int:
        """Return H·D, the number of outputs of the query's projection."""
        if self.fused is not None:
            return self.fused.weight.shape[self.fused.out_axis] // 3
        return sum(
            layer.weight.shape[layer.out_axis] for layer in self.separate["q"]
        )

    def packings(self) -> Iterator[Packing]:
        """List how the weights can lie, the usual way first."""
        flips = any(
            layer.axis(True) != layer.axis() for layer in _all_layers(self)
        )
        layouts = LAYOUTS if self.fused is not None else ("separate",)
        orders = ORDERS if self.fused is not None else ("qkv",)
        for flipped in (False, True) if flips else (False,):
            for order, layout in itertools.product(orders, layouts):
                yield Packing(layout, order, flipped)

    def rows(self, role: str, packing: Packing) -> np.ndarray:
        """Return which rows of the fused weight make q, k or v; (inner,)."""
        H = self.num_heads
        sizes = {"p": 3, "h": H, "d": self.inner // H}
        letters = packing.layout.split()
        packed = np.arange(3 * self.inner).reshape(*map(sizes.get, letters))
        packed = packed.transpose([letters.index(axis) for axis in "phd"])
        return packed[packing.order.index(role)].reshape(-1)

    def read(self, packing: Packing) -> Weights:
        """Return role -> (weight, bias) in float64, head after head.

        Read once: the checks put back what they change.
        """
        if packing in self._read:
            return self._read[packing]
        weights, flipped = Weights(), packing.flipped
        for role in "qkv":
            if self.fused is None:
                parts = [layer.read(flipped) for layer in self.separate[role]]
                both = zip(*parts, strict=True)
                weights[role] = tuple(map(np.concatenate, both))
            else:
                weight, bias = self.fused.read(flipped)
                rows = self.rows(role, packing)
                weights[role] = (weight[rows], bias[rows])
        if self.out is not None:
            weights["o"] = self.out.read(flipped)
        self._read[packing] = weights
        return weights

    def value_rows(
        self, h: int, packing: Packing
    ) -> list[tuple[Layer, list[int]]]:
        """Return the layers and rows that make the values of head h."""
        D = self.inner // self.num_heads
        mine = range(h * D, (h + 1) * D)
        if self.fused is not None:
            rows = self.rows("v", packing)[list(mine)]
            return [(self.fused, rows.tolist())]
        found, start = [], 0
        for layer in self.separate["v"]:
            size = layer.weight.shape[layer.out_axis]
            own = [row - start for row in mine if start <= row < start + size]
            found += [(layer, own)] if own else []
            start += size
        return found

    @property
    def value_layers(self) -> list[Layer]:
        """Return the layers that make the values."""
        if self.fused is not None:
            return [self.fused]
        return self.separate["v"]

    def tensors(self) -> set[int]:
        """Return the identities of the recognised parameters."""
        parts = [
            (layer.weight, layer.bias, *layer.made_from)
            for layer in _all_layers(self)
        ]
        return {id(x) for part in parts for x in part if x is not None}


def recognise(
    module: nn.Module, embed_dim: int, num_heads: int
) -> tuple[Projections | None, str]:
    """Return the projections, or None and why there is nothing to compare."""
    module = unwrapped(module)
    if getattr(module, "add_zero_attn", False):
        return None, "it adds a key of zeros (add_zero_attn)"
    layers = list(find_layers(module))
    out = _only(layers, _OUT.split())
    found = Projections(num_heads, out=out)
    found.fused = _only(layers, _FUSED.split())
    if found.fused is not None and _is_for_one(found.fused, out, embed_dim):
        found.separate = {role: [found.fused] for role in "qkv"}
        found.fused, found.is_shared = None, True
    elif found.fused is None:
        for role in "qkv":
            heads = _per_head(layers, role, num_heads)
            one = _only(layers, _aliases(role))
            found.separate[role] = heads or ([one] if one else [])
        missing = [role for role, own in found.separate.items() if not own]
        if missing and (one := _shared(layers, out, embed_dim)) is not None:
            found.separate = {role: [one] for role in "qkv"}
            found.is_shared = True
        elif missing:
            words = ", ".join(_WORDS[role] for role in missing)
            return None, f"no projection of the {words} was recognised by name"
    return _checked(found, module, embed_dim)


def _is_for_one(fused: Layer, out: Layer | None, E: int) -> bool:
    """Say whether a layer has as many rows as one projection, not three."""
    inner = E if out is None else out.width_in
    return fused.weight.shape[fused.out_axis] == inner


def _shared(layers: list[Layer], out: Layer | None, E: int) -> Layer | None:
    """Return the one layer that there is besides the output projection."""
    rest = [layer for layer in layers if layer is not out]
    if len(rest) != 1 or out is None or not _is_for_one(rest[0], out, E):
        return None
    return rest[0]


def input_widths(module: nn.Module, embed_dim: int) -> tuple[int, int]:
    """Return the widths of the tokens for keys and for values.

    As the projections of that name take them; E where there are none.
    """
    module = unwrapped(module)
    if isinstance(module, nn.MultiheadAttention):
        return module.kdim, module.vdim
    layers = list(find_layers(module))
    widths = []
    for role in "kv":
        own = _only(layers, [*_aliases(role), *_KEYS_AND_VALUES.split()])
        widths.append(embed_dim if own is None else own.width_in)
    return widths[0], widths[1]


def _checked(
    found: Projections, module: nn.Module, E: int
) -> tuple[Projections | None, str]:
    """Refuse what the formula of multi-head attention does not cover."""
    if found.fused is not None:
        rows = found.fused.weight.shape[found.fused.out_axis]
        if rows % 3:
            return None, f"{found.fused.name} has {rows} rows, not 3·E"
    else:
        sizes = [
            sum(layer.weight.shape[layer.out_axis] for layer in layers)
            for layers in found.separate.values()
        ]
        if len(set(sizes)) > 1:
            return None, (
                "keys and values have fewer heads than the queries (grouped "
                "queries), or heads of another width"
            )
    if found.inner % found.num_heads:
        return None, (
            f"{found.inner} channels cannot be shared by {found.num_heads} "
            "heads"
        )
    if found.out is None and found.inner != E:
        return None, "no output projection was recognised by name"
    own = found.tensors()
    rest = [n for n, p in module.named_parameters() if id(p) not in own]
    if rest:
        return None, (
            f"it has parameters besides its projections: {', '.join(rest[:4])}"
        )
    return found, ""


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _only(layers: list[Layer], names: list[str]) -> Layer | None:
    """Return the one layer of the first name that exactly one layer has."""
    for name in names:
        hits = [
            layer
            for layer in layers
            if name in (_plain(_last(layer.name)), _plain(_last2(layer.name)))
        ]
        if len(hits) == 1:
            return hits[0]
    return None


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def _last2(name: str) -> str:
    return ".".join(name.split(".")[-2:])


def _per_head(layers: list[Layer], role: str, H: int) -> list[Layer] | None:
    """Return H layers that differ by an index: heads.3.query, w_q.3."""
    groups: dict[str, dict[int, Layer]] = {}
    for layer in layers:
        parts = layer.name.split(".")
        for i in (-2, -1):
            if len(parts) < 2 or not parts[i].isdigit():
                continue
            rest = _plain(parts[-1] if i == -2 else parts[-2])
            if rest in _aliases(role) or rest.removesuffix("s") in _aliases(
                role
            ):
                key = ".".join([*parts[:i], "*", *parts[i:][1:]])
                groups.setdefault(key, {})[int(parts[i])] = layer
    full = [group for group in groups.values() if sorted(group) == [*range(H)]]
    if len(full) != 1:
        return None
    return [full[0][h] for h in range(H)]


def _all_layers(found: Projections) -> list[Layer]:
    single = [layer for layer in (found.fused, found.out) if layer]
    return [*itertools.chain(*found.separate.values()), *single]


@contextlib.contextmanager
def output_is_identity(found: Projections) -> Iterator[None]:
    """Make the output of a module its merged heads, for a while.

    The output projection is the identity without a bias; every recognised
    weight is put back at the end. The projection must be square.
    """
    pairs = [(layer.weight, layer.bias) for layer in _all_layers(found)]
    tensors = [x for pair in pairs for x in pair if x is not None]
    saved = [x.detach().clone() for x in tensors]
    with torch.no_grad():
        found.out.weight.copy_(torch.eye(len(found.out.weight)))
        if found.out.bias is not None:
            found.out.bias.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            for x, before in zip(tensors, saved, strict=True):
                x.copy_(before)
