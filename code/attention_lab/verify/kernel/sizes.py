"""At which sizes a kernel is tested, and how a failing one is made smaller."""

import inspect
from collections.abc import Callable
from typing import Any

from attention_lab.verify.kernel.bench import Bench
from attention_lab.verify.kernel.case import BadCase

#: Axes that are no sequence: they stay small and differ from each other.
SMALL_AXES = {"B": 2, "H": 2, "H_kv": 1, "P": 3, "D": 3, "D_v": 5, "E": 4}
#: Tiles larger than this would make the default sizes slow.
LARGEST_TILE = 64
MOST_SHRINKS = 24


def default_sizes(bench: Bench) -> list[dict[str, int]]:
    """Return sizes around the tile: 1, tile − 1, tile, tile + 1, and more.

    The sizes are the parameters of `launch` without a default. The tile is
    what one launch shows: the sides of its blocks and of its shared arrays.
    Axes of `SMALL_AXES` stay small; every other one is a length. The last
    case is a pair of primes beyond twice the tile, so that two tiles are full
    and the third is not.
    """
    parameters = inspect.signature(bench.launch).parameters.values()
    names = [
        p.name
        for p in parameters
        if p.default is p.empty and p.kind is not p.VAR_KEYWORD
    ]
    lengths = [name for name in names if name not in SMALL_AXES]
    tiles = _tiles(bench, names)
    tile = max(tiles)
    p = _prime_after(2 * tile)
    q = _prime_after(p)
    steps = [
        (1, 1),
        *((t, t) for t in tiles),
        (max(1, tile - 1), tile + 1),
        (tile + 1, max(1, tile - 1)),
        (p, q),
    ]
    made = []
    for k, step in enumerate(steps):
        case = {n: 1 if k == 0 else SMALL_AXES.get(n, 1) for n in names}
        if "D" in case and k == len(steps) - 1:
            case["D"] = _prime_after(min(tile, 10))
        case |= {n: step[i % 2] for i, n in enumerate(lengths)}
        if case not in made:
            made.append(case)
    return made


def _tiles(bench: Bench, names: list[str]) -> list[int]:
    """Return the sides of blocks and shared arrays, smallest first."""
    probe = dict.fromkeys(names, 2)
    try:
        run = bench.run(probe)
        block = bench.prepare(probe).launch.block
    except BadCase:
        return [4]
    data = run.recording.to_data("tile")
    sides = [*(block if isinstance(block, tuple | list) else (block,))]
    for memory in data.get("memory", ()):
        if memory["space"] == "shared":
            sides += memory["shape"]
    tiles = sorted({int(n) for n in sides if 2 < n <= LARGEST_TILE})
    return [tiles[0], tiles[-1]] if len(tiles) > 1 else tiles or [4]


def _prime_after(n: int) -> int:
    n += 1
    while any(n % d == 0 for d in range(2, int(n**0.5) + 1)):
        n += 1
    return n


def shrink(
    sizes: dict[str, Any],
    problem: Any,
    find: Callable[[dict[str, Any]], Any],
) -> tuple[dict[str, Any], Any]:
    """Make failing sizes smaller, one axis at a time, while they still fail.

    Parameters
    ----------
    sizes : where `problem` was found. Names that begin with TILE stay.
    find : returns the problem at some sizes, or None; `BadCase` counts as
        None, because sizes that cannot be launched fail for another reason.

    Returns
    -------
    The smallest sizes found, and the problem there.
    """
    tries = MOST_SHRINKS
    best, found = dict(sizes), problem
    again = True
    while again and tries > 0:
        again = False
        for name, smaller in _smaller(best):
            tries -= 1
            trial = {**best, name: smaller}
            try:
                other = find(trial)
            except BadCase:
                other = None
            if other is not None:
                best, found, again = trial, other, True
                break
            if tries <= 0:
                break
    return best, found


def _smaller(sizes: dict[str, Any]) -> list[tuple[str, int]]:
    return [
        (name, smaller)
        for name, n in sizes.items()
        if type(n) is int and n > 1 and not name.startswith("TILE")
        for smaller in dict.fromkeys((1, n // 2, n - 1))
    ]
