"""What NVIDIA's compiler makes of the ladders, without a GPU.

Skipped visibly where the CUDA wheels are not installed.
"""

import re

import pytest
from numba import float32

from attention_lab.gpu.compile_card import compile_cards
from attention_lab.gpu.errors import CompilerMissing
from attention_lab.steps import (
    grouped_query,
    row_softmax,
    split_keys_kernels,
)
from attention_lab.steps.tiled_matmul import RUNGS

ARCHITECTURES = [(7, 5), (8, 0), (9, 0)]
F2 = "float32[:,::1]"
F3 = "float32[:,:,::1]"
F4 = "float32[:,:,:,::1]"
F5 = "float32[:,:,:,:,::1]"
D = 64
SHIPPED = {
    **{
        name: (rung.make_kernel(float32, rung.tile), (F2, F2, F2))
        for name, rung in RUNGS.items()
    },
    "row_softmax": (
        row_softmax.make_row_softmax_kernel(float32, True, 4),
        (F4, F3, F4),
    ),
    "one_pass_softmax": (
        row_softmax.make_one_pass_softmax_kernel(float32, True, 4),
        (F4, F3, F4),
    ),
    "split": (
        split_keys_kernels.make_split_kernel(D, D, float32, True, True),
        (F4, F4, F5, F4, F4, F4, F4, "float32", "int64"),
    ),
    "merge": (
        split_keys_kernels.make_merge_kernel(float32),
        (F4, F3, F4, F4, F5),
    ),
    "grouped_scores": (
        grouped_query.make_grouped_scores_kernel(4, float32, True, True),
        (F4, F4, F4, F4, "float32", "int64"),
    ),
    "grouped_sum": (
        grouped_query.make_grouped_sum_kernel(4, float32),
        (F4, F4, F4),
    ),
}
SHUFFLING = ("row_softmax", "one_pass_softmax", "split")
LAST = RUNGS["register_2d"]
UNPADDED = LAST.make_kernel(float32, LAST.tile._replace(PAD=0))
JOBS = {
    **{(n, cc): (*SHIPPED[n], cc) for n in SHIPPED for cc in ARCHITECTURES},
    "unpadded": (UNPADDED, (F2, F2, F2), (8, 0)),
}


@pytest.fixture(scope="module")
def cards():
    """Compile everything in one process; skip where nothing can be."""
    try:
        return dict(zip(JOBS, compile_cards(JOBS.values()), strict=True))
    except CompilerMissing as missing:
        pytest.skip(str(missing))


def count(pattern, card):
    return len(re.findall(pattern, card.sass))


@pytest.mark.parametrize("cc", ARCHITECTURES, ids=["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("name", SHIPPED)
def test_every_kernel_compiles_clean(cards, name, cc):
    card = cards[name, cc]
    assert card.f64_instructions == 0
    assert card.spill_bytes == 0
    assert card.shared_bytes <= 48 * 1024
    assert 0 < card.registers <= 255
    assert card.fma_f32_instructions > 0
    # Local arrays are registers: nothing is loaded from local memory.
    assert count(r"\b(?:LDL|STL)\b", card) == 0
    assert (count(r"\bSHFL", card) > 0) == (name in SHUFFLING)


@pytest.mark.parametrize("cc", ARCHITECTURES, ids=["sm_75", "sm_80", "sm_90"])
def test_the_patch_is_loaded_sixteen_bytes_at_a_time(cards, cc):
    # Per d: 8 rows of a and 8 columns of b are 4 loads of 16 bytes.
    card = cards["register_2d", cc]
    wide, all_loads = count(r"\bLDS\S*128", card), count(r"\bLDS", card)
    assert (wide, all_loads) == (4, 4)
    # Numba promises 4-byte boundaries only, so global loads stay single.
    assert count(r"\bLDG\S*128", card) == 0


def test_a_row_that_is_a_power_of_two_keeps_its_loads_apart(cards):
    padded = cards["register_2d", (8, 0)]
    assert count(r"\bLDS", cards["unpadded"]) > count(r"\bLDS", padded)
