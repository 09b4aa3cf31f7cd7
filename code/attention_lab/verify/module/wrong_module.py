"""An attention module in float64 NumPy, with a switch for every mistake.

With no switch set it is the right module. A module whose values equal those of
a wrong one, on weights and inputs drawn at random, makes that mistake.

Letters: B batch, L queries, S keys, H heads, D head width, E model width.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np


class Weights(dict[str, tuple[np.ndarray, np.ndarray]]):
    """Role -> (weight, bias): y = x weightᵀ + bias; "o" may be missing.

    Never changed once they are filled, so that what is computed from them can
    be kept: they are equal to themselves only.
    """

    __hash__ = object.__hash__
    __eq__ = object.__eq__


RIGHT: dict[str, Any] = {
    "roles": "qkv",
    "heads": "qkv",
    "transposed": "",
    "no_bias": "",
    "split": "right",
    "attends": "tokens",
    "scale": "head width",
    "softmax": "keys",
    "mask": "right",
    "merge": "right",
    "out": "right",
}


@dataclass(frozen=True)
class ModuleCall:
    """One call of a module: inputs (B, ·, E), number of heads, mask (L, S).

    `keep` is True where a query may attend; `added` is added to the scores.
    """

    query: np.ndarray
    key: np.ndarray
    value: np.ndarray
    num_heads: int
    keep: np.ndarray | None = None
    added: np.ndarray | None = None
    dtype: type = field(default=np.float64)


def compute(
    weights: Weights, call: ModuleCall, **switches: Any
) -> tuple[np.ndarray, np.ndarray]:
    """Return the output (B, L, E) and the attention weights (B, H, L, S).

    `switches` replace entries of `RIGHT`. Arithmetic is in `call.dtype`, so
    that float32 shows what rounding alone can do. A combination that fits no
    shape raises ValueError.
    """
    how = {**RIGHT, **switches}
    H = call.num_heads
    inputs = {"q": call.query, "k": call.key, "v": call.value}
    if how["attends"] == "batch":
        inputs = {role: x.swapaxes(0, 1) for role, x in inputs.items()}
    heads = {}
    for role, name in zip("qkv", how["roles"], strict=True):
        x = _project(inputs[role], weights[name], name, how, call.dtype)
        heads[role] = _split(x, H, how["split"])
    q, k, v = (heads[role] for role in how["heads"])
    if how["attends"] == "heads":
        q, k, v = (x.swapaxes(1, 2) for x in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) * _scale(q, H, inputs, how["scale"])
    probs = _weights(scores.astype(call.dtype), call, how)
    mixed = probs @ v
    if how["attends"] == "heads":
        mixed = mixed.swapaxes(1, 2)
    merged = _merge(mixed, how["merge"])
    out = _output(merged, weights, how, call.dtype)
    return (out.swapaxes(0, 1) if how["attends"] == "batch" else out), probs


def _project(
    x: np.ndarray,
    linear: tuple[np.ndarray, np.ndarray],
    name: str,
    how: Mapping[str, Any],
    dtype: type,
) -> np.ndarray:
    weight, bias = (part.astype(dtype, copy=False) for part in linear)
    if name in how["transposed"]:
        weight = weight.T
    y = x.astype(dtype, copy=False) @ weight.T
    return y if name in how["no_bias"] else y + bias


def _split(x_BLE: np.ndarray, H: int, how: str) -> np.ndarray:
    """Return (B, H, L, D)."""
    B, L, E = x_BLE.shape
    D = E // H
    if how == "view":
        return x_BLE.reshape(B, H, L, D)
    if how == "d h":
        return x_BLE.reshape(B, L, D, H).transpose(0, 3, 1, 2)
    if how == "view, D before L":
        return x_BLE.reshape(B, H, D, L).swapaxes(-1, -2)
    return x_BLE.reshape(B, L, H, D).transpose(0, 2, 1, 3)


def _merge(x_BHLD: np.ndarray, how: str) -> np.ndarray:
    """Return (B, L, E)."""
    B, H, L, D = x_BHLD.shape
    if how == "view":
        return x_BHLD.reshape(B, L, H * D)
    if how == "d h":
        return x_BHLD.transpose(0, 2, 3, 1).reshape(B, L, H * D)
    if how == "channels before tokens":
        return x_BHLD.swapaxes(-1, -2).reshape(B, L, H * D)
    if how == "heads before batch":
        heads_first = x_BHLD.swapaxes(0, 1)
        return heads_first.transpose(0, 2, 1, 3).reshape(B, L, H * D)
    if how == "mean":
        mean = x_BHLD.mean(axis=1)
        return np.concatenate([mean] * H, axis=-1)
    return x_BHLD.transpose(0, 2, 1, 3).reshape(B, L, H * D)


def _scale(
    q: np.ndarray, H: int, inputs: Mapping[str, np.ndarray], how: str
) -> float:
    D = q.shape[-1]
    return {
        "head width": D**-0.5,
        "model width": (H * D) ** -0.5,
        "number of heads": H**-0.5,
        "none": 1.0,
        "twice": 1.0 / D,
        "multiplied": D**0.5,
        "negative": -(D**-0.5),
        "number of keys": inputs["k"].shape[1] ** -0.5,
        "number of queries": inputs["q"].shape[1] ** -0.5,
    }[how]


def _weights(
    scores: np.ndarray, call: ModuleCall, how: Mapping[str, Any]
) -> np.ndarray:
    """Mask the scores and turn them into weights."""
    kind = how["mask"]
    added = 0.0 if call.added is None else call.added.astype(call.dtype)
    keep = call.keep
    if keep is not None and kind != "dropped":
        if kind == "inverted":
            keep = ~keep
        if kind == "transposed":
            keep = keep.T
        if kind == "one later":
            keep = np.pad(keep, ((0, 0), (1, 0)), constant_values=True)[:, :-1]
        if kind == "one earlier":
            keep = np.pad(keep, ((0, 0), (0, 1)))[:, 1:]
        if kind == "added as numbers":
            added = added + keep.astype(call.dtype)
        elif kind == "multiplied":
            scores = scores * keep
        elif kind == "weak":
            scores = np.where(keep, scores, scores - 10)
        elif kind == "replaced by -10":
            scores = np.where(keep, scores, call.dtype(-10))
        elif kind not in ("after softmax", "after softmax, renormalised"):
            scores = np.where(keep, scores, call.dtype(-np.inf))
    axis = {"keys": -1, "queries": -2, "heads": 1, "batch": 0, "none": None}
    probs = _softmax(scores + added, axis[how["softmax"]])
    if keep is not None and kind.startswith("after softmax"):
        probs = probs * keep
        if kind.endswith("renormalised"):
            probs = probs / probs.sum(-1, keepdims=True)
    return probs


def _softmax(scores: np.ndarray, axis: int | None) -> np.ndarray:
    if axis is None:
        return scores
    largest = scores.max(axis, keepdims=True)
    largest = np.where(np.isinf(largest), 0, largest).astype(scores.dtype)
    weights = np.exp(scores - largest)
    total = weights.sum(axis, keepdims=True)
    return weights / np.where(total == 0, 1, total).astype(scores.dtype)


def _output(
    merged: np.ndarray,
    weights: Weights,
    how: Mapping[str, Any],
    dtype: type,
) -> np.ndarray:
    if "o" not in weights or how["out"] == "missing":
        return merged
    out = _project(merged, weights["o"], "o", how, dtype)
    if how["out"] == "twice":
        out = _project(out, weights["o"], "o", how, dtype)
    return out
