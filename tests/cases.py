"""Inputs and implementations that several test files share."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from attention_lab.steps import (
    flash_cpu,
    flash_forward,
    flash_register,
    grouped_query,
    online_softmax,
    scaled_dot_product,
    split_keys,
)

#: Every function that keeps the contract; name -> function.
IMPLEMENTATIONS: dict[str, Callable] = {
    f"{module.__name__.rpartition('.')[2]}.{name}": getattr(module, name)
    for module in (
        scaled_dot_product,
        online_softmax,
        flash_forward,
        split_keys,
        grouped_query,
    )
    for name in ("attention", "attention_cuda")
}
IMPLEMENTATIONS["flash_register.attention_cuda"] = flash_register.attention_cuda
IMPLEMENTATIONS["flash_cpu.attention_cpu"] = flash_cpu.attention_cpu
#: Those written in PyTorch: they take tensors only, and have gradients.
IN_PYTORCH = [name for name in IMPLEMENTATIONS if name.endswith(".attention")]

SIZES = [(2, 3, 5, 7, 11), (1, 2, 1, 1, 1), (2, 4, 33, 17, 8)]
LARGE_SIZE = (1, 3, 64, 64, 16)


class Case(NamedTuple):
    """One public report: what went in, what is right, what the bug gave."""

    id: str
    kind: str
    inputs: dict[str, Any]
    expected: Any
    wrong: Any
    atol: float


def _numbers(value: Any) -> Any:
    """Read the file's words for numbers: "nan", "-inf", and sine arrays."""
    if isinstance(value, dict) and "fn" in value:
        size = int(np.prod(value["shape"]))
        angles = value["a"] * np.arange(size) + value["phase"]
        return (value["scale"] * np.sin(angles)).reshape(value["shape"])
    if isinstance(value, dict):
        return {key: _numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        try:
            array = np.array(value)
            if array.dtype.kind == "U":
                array = array.astype(float)
            return array if array.dtype.kind in "bif" else value
        except ValueError:
            return value
    return value


def load_cases() -> dict[str, Case]:
    """Read `data/public_cases.json`; id -> case."""
    path = Path(__file__).parent / "data" / "public_cases.json"
    cases = json.loads(path.read_text(encoding="utf-8"))["cases"]
    return {
        case["id"]: Case(
            id=case["id"],
            kind=case["kind"],
            inputs={k: _numbers(v) for k, v in case["inputs"].items()},
            expected=_numbers(case["expected"]),
            wrong=_numbers(case.get("wrong")),
            atol=case["atol"],
        )
        for case in cases
    }


def tensors(*arrays: np.ndarray) -> list[torch.Tensor]:
    """Copy NumPy arrays to torch tensors."""
    return [torch.tensor(array) for array in arrays]


def as_input(name: str, *arrays: Any) -> list[Any]:
    """Give an implementation the kind it takes: torch, or NumPy for kernels."""
    if name.endswith(("_cuda", "_cpu")):
        return list(arrays)
    return [torch.tensor(x) if isinstance(x, np.ndarray) else x for x in arrays]


def random_mask(shape: tuple[int, int, int, int], seed: int = 0) -> np.ndarray:
    """Return a boolean mask (B, H, L, S) whose first row sees no key."""
    keep = np.random.default_rng(seed).random(shape) > 0.3
    keep[:, :, 0] = False
    return keep
