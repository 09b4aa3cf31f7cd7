"""Recognise a module's projections by their names, and read their weights.

How a weight lies is not guessed from its class: the layer is called, and its
answer says whether its weight is (out, in) or (in, out).
"""

import contextlib
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from attention_lab.verify.module.subject import to_numpy, unwrapped

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


@dataclass(frozen=True)
class Layer:
    """One weight of two axes and its bias; `out_axis` counts its outputs."""

    name: str
    weight: Tensor
    bias: Tensor | None
    out_axis: int
    module: nn.Module | None = None

    def axis(self, flipped: bool = False) -> int:
        """Return which axis of the weight counts the outputs."""
        square = self.weight.shape[0] == self.weight.shape[1]
        is_bare = self.module is None and square
        return 1 - self.out_axis if flipped and is_bare else self.out_axis

    def read(self, flipped: bool = False) -> tuple[np.ndarray, np.ndarray]:
        """Return weight (out, in) and bias (out,) in float64."""
        weight = to_numpy(self.weight)
        weight = weight.T if self.axis(flipped) else weight
        if self.bias is None:
            return weight, np.zeros(len(weight))
        return weight, to_numpy(self.bias)


@dataclass
class Projections:
    """The recognised projections of a module.

    `separate` maps q, k and v to their layers, one or one per head; `fused` is
    one layer for all three. `out` is the output projection, if there is one.
    """

    num_heads: int
    separate: dict[str, list[Layer]] = field(default_factory=dict)
    fused: Layer | None = None
    out: Layer | None = None

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

    def read(self, packing: Packing) -> dict[str, tuple]:
        """Return role -> (weight, bias) in float64, head after head."""
        weights, flipped = {}, packing.flipped
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

    def tensors(self) -> set[int]:
        """Return the identities of the recognised parameters."""
        pairs = [(layer.weight, layer.bias) for layer in _all_layers(self)]
        return {id(x) for pair in pairs for x in pair if x is not None}


def recognise(
    module: nn.Module, embed_dim: int, num_heads: int
) -> tuple[Projections | None, str]:
    """Return the projections, or None and why there is nothing to compare."""
    module = unwrapped(module)
    if getattr(module, "add_zero_attn", False):
        return None, "it adds a key of zeros (add_zero_attn)"
    layers = list(_layers(module))
    out = _only(layers, _OUT.split())
    found = Projections(num_heads, out=out)
    found.fused = _only(layers, _FUSED.split())
    if found.fused is None:
        for role in "qkv":
            heads = _per_head(layers, role, num_heads)
            one = _only(layers, _aliases(role))
            found.separate[role] = heads or ([one] if one else [])
        missing = [role for role, own in found.separate.items() if not own]
        if missing:
            words = ", ".join(_WORDS[role] for role in missing)
            return None, f"no projection of the {words} was recognised by name"
    return _checked(found, module, embed_dim)


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


def _layers(module: nn.Module) -> Iterator[Layer]:
    """Find every weight of two axes with its bias: layers, bare parameters."""
    covered: set[int] = set()
    for name, child in module.named_modules():
        weight = getattr(child, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2 or not name:
            continue
        bias = getattr(child, "bias", None)
        bias = bias if isinstance(bias, Tensor) else None
        out_axis = _out_axis(child, weight, bias)
        if out_axis is None:
            continue
        covered.add(id(weight))
        yield Layer(name, weight, bias, out_axis, child)
    parameters = dict(module.named_parameters())
    for name, weight in parameters.items():
        if weight.ndim != 2 or id(weight) in covered:
            continue
        bare = re.sub(r"_?weight$", "", name)
        bias = parameters.get(f"{bare}_bias", parameters.get(f"{bare}.bias"))
        # A bare matrix is read as torch reads its own, (out, in), unless its
        # shape says otherwise.
        yield Layer(bare, weight, bias, int(weight.shape[1] > weight.shape[0]))


@torch.no_grad()
def _out_axis(
    layer: nn.Module, weight: Tensor, bias: Tensor | None
) -> int | None:
    """Ask a layer which axis of its weight counts its outputs."""
    for out_axis in (0, 1):
        matrix = weight.T if out_axis else weight
        x = torch.linspace(-1, 1, matrix.shape[1], dtype=weight.dtype)
        try:
            # Three axes, as the module will call it.
            answer = layer(x[None, None])[0, 0]
        except (RuntimeError, TypeError, ValueError, IndexError):
            continue
        expected = matrix @ x + (0 if bias is None else bias)
        if answer.shape == expected.shape and torch.allclose(
            answer, expected, rtol=1e-3, atol=1e-5
        ):
            return out_axis
    return None


@torch.no_grad()
def draw_anew(module: nn.Module, seed: int) -> None:
    """Give every parameter random numbers, biases too.

    Zero biases and symmetric starts hide mistakes. Queries and keys get
    weights that spread the scores over a few units.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in module.named_parameters():
        if not parameter.is_floating_point() or parameter.numel() == 0:
            continue
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim >= 2:
            noise = noise * 1.5 / parameter.shape[-1] ** 0.5
        elif name.endswith("weight"):
            noise = 1 + 0.2 * noise  # the gain of a norm
        else:
            noise = 0.5 * noise
        parameter.copy_(noise)


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
