"""Mistakes planted in the kernels of the ladder: the checks find each."""

import numpy as np
import pytest

from attention_lab.gpu import launch
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.recorder import record
from flash_rungs import RUNGS, assert_right, edited, inputs, part_of

TILES = {"TILE_L": 16, "TILE_S": 16}
KERNEL = ""  # the edit is in the kernel itself, not in a device function
#: (rung, device function, old, new)
WRONG_NUMBERS = {
    "register: the accumulator is not rescaled": (
        "register", "weigh_keys", "acc[i, c] *= rescale", "pass"),
    "register: the sum is not rescaled": (
        "register", "weigh_keys", "row_sum[i] *= rescale", "pass"),
    "register: the maximum of half the lanes": (
        "register", "weigh_keys", "range(LANE_BITS)", "range(LANE_BITS - 1)"),
    "register: the sum of half the lanes": (
        "register", "store_rows", "range(LANE_BITS)", "range(LANE_BITS - 1)"),
    "register: both halves of a warp ask the first for weights": (
        "register", "mix_values", "first_lane + owner", "owner"),
    "register: keys that do not exist count": (
        "register", "mask_scores", "row < L and s < S", "row < L"),
    "register: a query does not see its own key": (
        "register", "mask_scores", "s <= row", "s < row"),
    "register: the causal tile on the diagonal is skipped": (
        "register", KERNEL, "min(S, L, row0 + TILE_L)", "min(S, L, row0)"),
    "register: natural powers of a binary logarithm": (
        "register", "weigh_keys",
        "math.exp2((scores[i, j] - shift) * real(LOG2E))",
        "math.exp2(scores[i, j] - shift)"),
    "tensor core: the accumulator is not rescaled": (
        "tensor core", "weigh_keys", "acc[n, 2 * r + i] *= rescale", "pass"),
    "tensor core: the maximum of two lanes of four": (
        "tensor core", "weigh_keys", "range(2):\n            other",
        "range(1):\n            other"),
    "tensor core: the sum of two lanes of four": (
        "tensor core", "store_rows", "range(2):\n            total",
        "range(1):\n            total"),
    "tensor core: queries in another order than the hardware's": (
        "tensor core", "load_queries",
        "column + i % 2 + i // 4 * 8", "column + i // 4 + i % 2 * 8"),
    "tensor core: rows and columns of a fragment swapped": (
        "tensor core", "load_queries",
        "row + i // 2 % 2 * 8", "row + i // 4 * 8"),
    "tensor core: keys in another order than the hardware's": (
        "tensor core", "score_keys.load_b",
        "column + i % 2 + i // 2 * 8", "column + i // 2 + i % 2 * 8"),
    "tensor core: values in another order than the hardware's": (
        "tensor core", "mix_values.load_b",
        "column + i % 2 + i // 2 * 8", "column + i // 2 + i % 2 * 8"),
    "tensor core: the two fragments of weights swapped": (
        "tensor core", "mix_values",
        "a[i] = float16(weights[2 * step, i])\n"
        "            a[i + 4] = float16(weights[2 * step + 1, i])",
        "a[i + 4] = float16(weights[2 * step, i])\n"
        "            a[i] = float16(weights[2 * step + 1, i])"),
    "tensor core: keys that do not exist count": (
        "tensor core", "mask_scores", "row < L and s < S", "row < L"),
    "tensor core: a query sees one key too many": (
        "tensor core", "mask_scores", "s <= row", "s <= row + 1"),
}  # fmt: skip
#: (rung, barrier, an array that the race is about)
BARRIERS = {
    "register: queries and keys are there": (
        "register", "queries and keys are there before a product", "tile"),
    "register: no key is overwritten": (
        "register", "no key is overwritten that is still read", "kv_tile"),
    "register: all values are there": (
        "register", "all values are there before they are mixed", "kv_tile"),
    "register: no value is overwritten": (
        "register", "no value is overwritten that is still read", "kv_tile"),
    "tensor core: both tiles are complete": (
        "tensor core", "both tiles are complete before a product", "_tile"),
    "tensor core: nobody overwrites a tile": (
        "tensor core", "nobody overwrites a tile still being read", "_tile"),
}  # fmt: skip


def with_edit(kernel, part, old, new, folder):
    """Return a kernel in which one device function is edited."""
    if part == KERNEL:
        return edited(kernel, old, new, folder)
    part, _, inner = part.partition(".")
    function = part_of(kernel, part)
    if inner:
        broken = edited(part_of(function, inner), old, new, folder)
        broken = edited(function, "", "", folder, **{inner: broken})
    else:
        broken = edited(function, old, new, folder)
    return edited(kernel, "", "", folder, **{part: broken})


@pytest.fixture
def plant(monkeypatch, tmp_path):
    """Return a function that breaks the kernel of one rung."""

    def break_kernel(name, *edit):
        rung = RUNGS[name]
        make = getattr(rung.module, rung.factory)

        def make_broken(*sizes):
            return with_edit(make(*sizes), *edit, tmp_path)

        monkeypatch.setattr(rung.module, rung.factory, make_broken)
        return rung

    return break_kernel


def check(rung):
    """Run what every mistake must fail: ragged, causal, several tiles."""
    q, k, v = inputs(rung, B=1, H=1, L=18, S=21, D=5, D_v=9)
    k[:, :, 16:] += rung.dtype(1)  # the maximum grows with the second tile
    q[...] = np.abs(q)
    assert_right(rung, q * rung.dtype(3), k, v, None, True, **TILES)
    assert_right(rung, q[:, :, :3], k, v, **TILES)


@pytest.mark.parametrize("name", RUNGS)
def test_the_check_passes_without_a_mistake(plant, name):
    check(plant(name, KERNEL, "# 3. Store", "# 3. Store"))


@pytest.mark.parametrize("name", WRONG_NUMBERS)
def test_wrong_numbers_are_found(plant, name):
    rung = plant(*WRONG_NUMBERS[name])
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check(rung)


@pytest.mark.skipif(
    runs_on_gpu(), reason="records the launches that the recorder makes"
)
@pytest.mark.parametrize("name", BARRIERS)
def test_a_missing_barrier_is_a_race(plant, monkeypatch, name):
    rung_name, comment, array = BARRIERS[name]
    old, new = f"cuda.syncthreads()  # {comment}", "pass"
    rung = plant(rung_name, KERNEL, old, new)
    kept = []

    def call(self, *given):
        kept.append(record(self.kernel, self.grid, self.block, *given))

    monkeypatch.setattr(launch.Configured, "__call__", call)
    # Two warps in a block, and two tiles of keys.
    q, k, v = inputs(rung, B=1, H=1, L=32, S=17, D=3)
    rung.run(q, k, v, TILE_L=32, TILE_S=16)
    (recording,) = kept
    races = [h for h in recording.hazards if h.kind == "race"]
    assert races, str(recording)
    assert any(array in str(race) for race in races), races
