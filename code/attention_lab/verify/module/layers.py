"""Find a module's layers: weights of two axes, whatever their class.

How a weight lies is not guessed from its class: the layer is called, and its
answer says whether its weight is (out, in) or (in, out).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.nn.utils import parametrize

from attention_lab.verify.module.subject import to_numpy


@dataclass(frozen=True)
class Layer:
    """One weight of two axes and its bias; `out_axis` counts its outputs.

    A weight that is computed, as weight norm does, is no parameter;
    `made_from` are the parameters that it or the bias comes from.
    """

    name: str
    weight: Tensor
    bias: Tensor | None
    out_axis: int
    module: nn.Module | None = None
    made_from: tuple[Tensor, ...] = ()

    @property
    def width_in(self) -> int:
        """How many channels it takes."""
        return self.weight.shape[1 - self.out_axis]

    @property
    def can_be_set(self) -> bool:
        """Whether writing to its weight changes what it computes."""
        return isinstance(self.weight, nn.Parameter)

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


def find_layers(module: nn.Module) -> Iterator[Layer]:
    """Find every weight of two axes with its bias: layers, bare parameters."""
    covered: set[int] = set()
    for name, child in module.named_modules():
        if _is_lazy(child):
            continue
        if isinstance(child, nn.MultiheadAttention):
            for layer in _with_own_widths(name, child):
                covered.add(id(layer.weight))
                yield layer
        weight = getattr(child, "weight", None)
        if not isinstance(weight, Tensor) or weight.ndim != 2 or not name:
            continue
        bias = getattr(child, "bias", None)
        bias = bias if isinstance(bias, Tensor) else None
        out_axis = _out_axis(child, weight, bias)
        if out_axis is None:
            continue
        covered.add(id(weight))
        yield Layer(name, weight, bias, out_axis, child, _made_from(child))
    parameters = {
        name: x for name, x in module.named_parameters() if not is_lazy(x)
    }
    for name, weight in parameters.items():
        is_part = ".parametrizations." in f".{name}"
        if weight.ndim != 2 or id(weight) in covered or is_part:
            continue
        bare = re.sub(r"_?weight$", "", name)
        bias = parameters.get(f"{bare}_bias", parameters.get(f"{bare}.bias"))
        # A bare matrix is read as torch reads its own, (out, in), unless its
        # shape says otherwise.
        yield Layer(bare, weight, bias, int(weight.shape[1] > weight.shape[0]))


def _is_lazy(layer: nn.Module) -> bool:
    return any(map(is_lazy, layer.parameters(recurse=False)))


def _with_own_widths(
    prefix: str, layer: nn.MultiheadAttention
) -> Iterator[Layer]:
    """Yield the three layers of torch's module for keys of another width."""
    if layer._qkv_same_embed_dim:
        return
    packed = layer.in_proj_bias
    biases = (None,) * 3 if packed is None else packed.chunk(3)
    made_from = () if packed is None else (packed,)
    for role, bias in zip("qkv", biases, strict=True):
        weight = getattr(layer, f"{role}_proj_weight")
        name = f"{prefix}.{role}_proj".lstrip(".")
        yield Layer(name, weight, bias, 0, layer, made_from)


def _made_from(layer: nn.Module) -> tuple[Tensor, ...]:
    """Return the parameters from which a layer's weight is computed."""
    if not parametrize.is_parametrized(layer):
        return ()
    return tuple(layer.parametrizations.parameters())


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


def _is_computed_from(name: str, names: set[str]) -> bool:
    """Say whether it makes a computed weight: new style, old styles."""
    stem = name.removesuffix("weight_v").removesuffix("weight_g")
    is_normed = {f"{stem}weight_v", f"{stem}weight_g"} <= names
    is_part = ".parametrizations." in f".{name}"
    return is_part or is_normed or name.endswith("weight_orig")


@torch.no_grad()
def draw_anew(module: nn.Module, seed: int) -> None:
    """Give every parameter random numbers, biases too.

    Zero biases and symmetric starts hide mistakes. Queries and keys get
    weights that spread the scores over a few units.
    """
    generator = torch.Generator().manual_seed(seed)
    names = {name for name, _ in module.named_parameters()}
    for name, parameter in module.named_parameters():
        # A computed weight stays as it is: spectral norm would not know the
        # norm of another one, and the scores would be enormous.
        if is_lazy(parameter) or _is_computed_from(name, names):
            continue
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
