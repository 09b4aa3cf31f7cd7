"""Where does one element of Q go when heads are split, merged and unpacked?

Traces chains of view, permute, reshape and einops on position-coded input, and
holds each against a split that only slices columns. Returns it all as data for
the figure "follow the element"; nothing in the data is computed otherwise.

    x_BLE --view--> B L H D --permute--> B H L D --copy, merge--> B L E

Source: Vaswani et al. 2017, section 3.2.2. Letters: B batch, L queries,
H heads, D head width, E = H·D model width, P query, key, value.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from attention_lab.shape_flow import ShapeFlow, trace_shapes
from attention_lab.shape_flow.steps import Step, Value
from attention_lab.steps.head_chains import CHAINS, Chain

SCHEMA = "follow_element.v1"
#: B, L, H, D, all different, so that a shape tells its axes.
SIZES = (1, 4, 2, 3)
#: The fused input is three times as wide; fewer tokens keep it legible.
FUSED_SIZES = (1, 2, 2, 3)
#: Where else each chain is run: the chapter's sizes, and those of ViT-B/16.
LARGER = ((2, 5, 3, 4), (1, 197, 12, 64))


def record_chains(chains: Sequence[Chain] = CHAINS) -> dict[str, Any]:
    """Trace the chains of the page; return the data of their figure.

    Returns
    -------
    Plain dictionaries, lists and numbers, ready for JSON:

    schema, dtype : "follow_element.v1", and of the numbers that were moved
    inputs : by name "x" and "qkv": `names` and `tokens` of each element, by
        its code, the `shape`, and the code to `start` with
    chains : one per way of writing it:

        name, says : what it is; what is wrong with it, or ""
        instead : place of the right chain beside a wrong one, or None
        input : "x" or "qkv"
        steps : the input and each operation's result: `call`, `letters`,
            `shape`, `strides` in numbers, `offset`, `memory` (tensors with
            one number share it), `codes` of its elements, `wanted`: the codes
            of the reference in that shape, or None where there is none
        run : of the same chain, run without the recorder: `misplaced`
            elements of `total` in its result, by comparing numbers;
            `is_view` by data_ptr; `agrees`: whether the result holds the
            numbers that were traced
        larger : B, L, H, D, misplaced and total of runs at other sizes

    Raises
    ------
    ValueError
        If there is no chain, or `instead` names none before it.

    Examples
    --------
    >>> wrong = record_chains()["chains"][1]
    >>> wrong["name"], wrong["run"]["misplaced"], wrong["run"]["total"]
    ('split: view alone', 18, 24)
    """
    places = {chain.name: n for n, chain in enumerate(chains)}
    recorded = []
    for n, chain in enumerate(chains):
        if chain.instead and places.get(chain.instead, n) >= n:
            raise ValueError(
                f"{chain.name!r} stands beside {chain.instead!r}, which is no "
                "chain before it"
            )
        sizes = FUSED_SIZES if chain.is_fused else SIZES
        recorded.append(
            {
                "name": chain.name,
                "says": chain.says,
                "instead": places[chain.instead] if chain.instead else None,
                **_follow(chain.name, _at(chain, sizes), sizes, chain.is_fused),
                "larger": [_count(chain, larger) for larger in LARGER],
            }
        )
    return _recording(recorded, SIZES)


def trace_chains(
    chains: Mapping[str, Callable] | Sequence[Callable],
    *,
    B: int = 1,
    L: int = 4,
    H: int = 2,
    D: int = 3,
) -> dict[str, Any]:
    """Trace ways to split heads that somebody wrote; return data as above.

    Parameters
    ----------
    chains : functions of x_BLE, alone or by name. Each result of shape
        (B, H, L, D), (B·H, L, D) or (B, L, E) is held against the reference.
    B, L, H, D : sizes of x; L, H and D differ, so that a shape tells its axes.

    Raises
    ------
    ValueError
        If there is nothing to trace, a size is too small or given twice, or
        a chain computes new numbers or gives no shape that can be judged.

    Examples
    --------
    >>> data = trace_chains([lambda x: x.view(1, 2, 4, 3)])
    >>> data["chains"][0]["run"]["misplaced"]
    18
    """
    if callable(chains):
        raise ValueError(
            f"chains must be functions of x, not {chains!r} alone: put it in "
            "a list"
        )
    if not isinstance(chains, Mapping):
        names = [getattr(f, "__name__", type(f).__name__) for f in chains]
        named = list(zip(names, chains, strict=True))
    else:
        named = list(chains.items())
    if not named:
        raise ValueError("chains is empty: there is nothing to trace")
    sizes = {"B": B, "L": L, "H": H, "D": D}
    for letter, size in sizes.items():
        if size < (1 if letter == "B" else 2):
            raise ValueError(f"axis {letter} has size {size}, which is too few")
    if len({L, H, D}) < 3:
        raise ValueError(
            f"L = {L}, H = {H} and D = {D} must differ, so that a shape tells "
            "its axes"
        )
    recorded = [
        {
            "name": f"{n + 1}: {name}",
            "says": "",
            "instead": None,
            **_follow(name, function, (B, L, H, D), False),
            "larger": [],
        }
        for n, (name, function) in enumerate(named)
    ]
    return _recording(recorded, (B, L, H, D))


def _recording(
    recorded: list[dict[str, Any]], sizes: tuple[int, ...]
) -> dict[str, Any]:
    if not recorded:
        raise ValueError("chains is empty: there is nothing to trace")
    inputs = {"x": _named(sizes, False)}
    if any(chain["input"] == "qkv" for chain in recorded):
        inputs["qkv"] = _named(FUSED_SIZES, True)
    return {
        "schema": SCHEMA,
        "dtype": "float32",
        "inputs": inputs,
        "chains": recorded,
    }


def _at(chain: Chain, sizes: tuple[int, ...]) -> Callable[[Tensor], Tensor]:
    return lambda x: chain.function(x, sizes[2])


def _input(sizes: tuple[int, ...], is_fused: bool) -> Tensor:
    """Return x_BLE, or q, k and v side by side; each number is its place."""
    B, L, H, D = sizes
    shape = (B, L, (3 if is_fused else 1) * H * D)
    return torch.arange(float(np.prod(shape))).reshape(shape)


def _named(sizes: tuple[int, ...], is_fused: bool) -> dict[str, Any]:
    """Name every element by token and channel: "1·4", "1·k4"."""
    B, L, H, D = sizes
    parts = "qkv" if is_fused else [""]
    batches = [f"{b}·" if B > 1 else "" for b in range(B)]
    return {
        "shape": list(_input(sizes, is_fused).shape),
        # Channel 1 of head 1 of token 1: no place in it is 0.
        "start": len(parts) * H * D + D + 1,
        "names": [
            f"{batch}{token}·{part}{channel}"
            for batch in batches
            for token in range(L)
            for part in parts
            for channel in range(H * D)
        ],
        "tokens": [
            token
            for _ in batches
            for token in range(L)
            for _ in range(len(parts) * H * D)
        ],
    }


def _reference(
    x: np.ndarray, sizes: tuple[int, ...], is_fused: bool
) -> dict[tuple[int, ...], tuple[str, np.ndarray]]:
    """Return what belongs into each shape: shape → (letters, elements).

    Head h is columns h·D … h·D + D − 1; it is sliced, nothing is reshaped.
    """
    B, L, H, D = sizes
    E = H * D
    heads = [
        np.stack(
            [x[:, :, p + h * D : p + (h + 1) * D] for h in range(H)], axis=1
        )
        for p in range(0, x.shape[2], E)
    ]
    if is_fused:
        return {(3, B, H, L, D): ("PBHLD", np.stack(heads))}
    rows = np.concatenate(list(heads[0]))
    return {
        (B, H, L, D): ("BHLD", heads[0]),
        (B * H, L, D): ("?LD" if B > 1 else "HLD", rows),
        (B, L, E): ("BLE", x),
    }


def _follow(
    name: str,
    function: Callable[[Tensor], Tensor],
    sizes: tuple[int, ...],
    is_fused: bool,
) -> dict[str, Any]:
    """Trace one chain, and run it once more without the recorder."""
    _, _, H, D = sizes
    x = _input(sizes, is_fused)
    wanted = _reference(x.numpy(), sizes, is_fused)
    told = {0: "BL?" if is_fused else "BLE", "H": H, "D": D}
    flow = trace_shapes(function, x, letters=told)
    if flow.problem:
        raise ValueError(f"chain {name!r}: {flow.problem}")
    steps = _steps(flow, wanted)
    if is_fused:
        steps[0]["letters"][2] = "P·E"
    result = function(x)
    if not isinstance(result, Tensor):
        raise ValueError(
            f"chain {name!r} returns {type(result).__name__}, not a tensor"
        )
    result = result.detach()
    right = wanted.get(tuple(result.shape))
    if right is None:
        shapes = " or ".join(str(shape) for shape in wanted)
        raise ValueError(
            f"chain {name!r}: its result has shape {tuple(result.shape)}; a "
            f"head split has {shapes}"
        )
    moved = result.numpy()
    if not np.isin(moved, x.numpy()).all():
        raise ValueError(
            f"chain {name!r} computes new numbers; follow the part that only "
            "moves elements"
        )
    traced = np.array(steps[-1]["codes"]).reshape(steps[-1]["shape"])
    storage = result.untyped_storage().data_ptr()
    return {
        "input": "qkv" if is_fused else "x",
        "steps": steps,
        "run": {
            "misplaced": int((moved != right[1]).sum()),
            "total": moved.size,
            "is_view": storage == x.untyped_storage().data_ptr(),
            "agrees": moved.shape == traced.shape
            and bool((moved == traced).all()),
        },
    }


def _steps(
    flow: ShapeFlow,
    wanted: dict[tuple[int, ...], tuple[str, np.ndarray]],
) -> list[dict[str, Any]]:
    """Return the input and every result that is made of its elements."""
    memory: dict[str, int] = {}
    made: list[tuple[str, Value, Step | None]] = [
        ("x", flow.inputs[0], None),
        *((s.call, s.outputs[0], s) for s in flow.steps if s.outputs),
    ]
    recorded: list[dict[str, Any]] = []
    size = np.prod(flow.inputs[0].shape)
    for call, value, step in made:
        line = value.line
        if line is None or not ((line >= 0) & (line < size)).all():
            continue
        shares = value.memory in ("view", "same") and value.of in memory
        own = memory[value.of] if shares else len(set(memory.values()))
        for output in step.outputs if step else (value,):
            memory[output.name] = own
        letters, right = value.letters, None
        if step is not None and value.shape in wanted:
            letters, right = wanted[value.shape]
        recorded.append(
            {
                "call": call,
                "letters": list(letters),
                "shape": list(value.shape),
                "strides": list(value.strides),
                "offset": value.offset,
                "memory": own,
                "codes": line.ravel().tolist(),
                "wanted": right if right is None else _codes(right),
            }
        )
    return recorded


def _codes(array: np.ndarray) -> list[int]:
    return array.astype(int).ravel().tolist()


def _count(chain: Chain, sizes: tuple[int, ...]) -> dict[str, int]:
    """Run a chain at other sizes and count what the reference has elsewhere."""
    x = _input(sizes, chain.is_fused)
    result = chain.function(x, sizes[2])
    _, right = _reference(x.numpy(), sizes, chain.is_fused)[tuple(result.shape)]
    return {
        **dict(zip("BLHD", sizes, strict=True)),
        "misplaced": int((result.numpy() != right).sum()),
        "total": result.numel(),
    }
