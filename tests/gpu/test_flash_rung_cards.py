"""What NVIDIA's compiler makes of the ladder's flash kernels, with no GPU.

Needs the CUDA wheels (about 850 MB, Linux x86-64); skipped visibly where
they are not installed.
"""

import re

import pytest
from numba import float32

from attention_lab.gpu.compile_card import compile_cards
from attention_lab.gpu.errors import CompilerMissing
from attention_lab.steps.flash_register import make_flash_register_kernel
from attention_lab.steps.flash_tensor_core import make_flash_tensor_core_kernel

ARCHITECTURES = [(7, 5), (8, 0), (9, 0)]
every_gpu = pytest.mark.parametrize(
    "cc", ARCHITECTURES, ids=["sm_75", "sm_80", "sm_90"]
)
F4, F3 = "float32[:,:,:,::1]", "float32[:,:,::1]"
H4 = "float16[:,:,:,::1]"
D, TILE_L, TILE_S = 64, 64, 64
SHIPPED = {
    "register": (
        make_flash_register_kernel(D, D, TILE_L, TILE_S, float32, False, True),
        (F4, F3, F4, F4, F4, F4, "float32", "int64"),
    ),
    "tensor core": (
        make_flash_tensor_core_kernel(D, D, TILE_L, TILE_S, False, True),
        (H4, F3, H4, H4, H4, F4, "float32", "int64"),
    ),
}
JOBS = {(n, cc): (*SHIPPED[n], cc) for n in SHIPPED for cc in ARCHITECTURES}


@pytest.fixture(scope="module")
def cards():
    """Return the cards; skip where nothing can be compiled for a GPU."""
    try:
        return dict(zip(JOBS, compile_cards(JOBS.values()), strict=True))
    except CompilerMissing as missing:
        pytest.skip(str(missing))


def count(sass, instruction):
    return len(re.findall(rf"\b{instruction}\b", sass))


@every_gpu
@pytest.mark.parametrize("name", SHIPPED)
def test_no_spill_no_float64_and_static_shared_memory(cards, name, cc):
    card = cards[name, cc]
    assert card.spill_bytes == 0
    assert card.f64_instructions == 0
    assert card.shared_bytes <= 48 * 1024
    assert 0 < card.registers <= 255


@every_gpu
def test_the_register_tile_multiplies_in_registers(cards, cc):
    card = cards["register", cc]
    assert card.tensor_core_instructions == 0
    # One step of 4 along D: 4 × 4 × 4; one of 4 tiles of keys: 4 × 4 × 4.
    assert card.fma_f32_instructions >= 128
    # Two blocks of 256 threads fit into the 65536 registers of an SM.
    assert card.registers <= 128
    assert card.shared_bytes == (TILE_L * (D + 4) + TILE_S * (D + 1)) * 4
    # The queries come four at a time, and nothing lies in local memory.
    assert count(card.sass, r"LDS(?:\.U)?\.128") == 4
    assert count(card.sass, "STL") == count(card.sass, "LDL") == 0


@every_gpu
def test_the_tensor_core_multiplies(cards, cc):
    card = cards["tensor core", cc]
    # Q·Kᵀ: 8 tiles of keys, 4 steps; weights·V: 8 tiles of columns, 4 steps.
    # Before sm_80 every product takes two instructions.
    products = 8 * 4 + 8 * 4
    each = 2 if cc < (8, 0) else 1
    assert card.tensor_core_instructions == products * each
    assert count(card.sass, "HMMA") == products * each
    assert card.shared_bytes == 2 * (TILE_S * (D + 8) + D * (TILE_S + 8))
    shape = "m16n8k8" if cc < (8, 0) else "m16n8k16"
    text = f"mma.sync.aligned.{shape}.row.col.f32.f16.f16.f32"
    assert card.ptx.count(text) == products * each
    # Two halves of a fragment are one load, and no fragment leaves registers.
    assert count(card.sass, "LDS") <= 2 * products
    assert count(card.sass, "STL") == count(card.sass, "LDL") == 0
