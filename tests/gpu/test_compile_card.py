"""The gate before a GPU: what NVIDIA's compiler says without one.

Needs the CUDA wheels (about 850 MB, Linux x86-64); skipped visibly where
they are not installed.
"""

import json

import numpy as np
import pytest
from attention_kernels import make_tiled_scores
from mutants import MUTANTS
from numba import float32 as numba_float32
from textbook_cases import cases

from attention_lab.gpu import compile_card as card_module_function
from attention_lab.gpu import cuda
from attention_lab.gpu.compile_card import (
    _F64,
    _FMA,
    compile_card,
    compile_cards,
    read_card,
)
from attention_lab.gpu.errors import CompileRefused, CompilerMissing
from attention_lab.gpu.signatures import type_text
from attention_lab.steps import first_kernel, permute
from attention_lab.steps.flash_forward import make_flash_kernel
from attention_lab.steps.fused_qkv import split_qkv_kernel
from attention_lab.steps.multi_head import (
    merge_heads_kernel,
    split_heads_kernel,
)
from attention_lab.steps.online_softmax import make_online_softmax_kernel
from attention_lab.steps.scaled_dot_product import (
    make_scores_kernel,
    make_softmax_kernel,
    make_weighted_sum_kernel,
)

float32 = np.float32
F4 = "float32[:,:,:,::1]"
F3 = "float32[:,:,::1]"
F2 = "float32[:,::1]"
F1 = "float32[::1]"
ARCHITECTURES = [(7, 5), (8, 0), (9, 0)]
TILED_SCORES = make_tiled_scores(16)
MOVED = ("float32[:,:,:,:,::1]", F3, "int64", "int64", "int64")
D = 64
FLASH = make_flash_kernel(D, D, 32, 32, numba_float32, True, True)
ONLINE = make_online_softmax_kernel(D, D, numba_float32, True, True)
SHIPPED = {
    "scores": (
        make_scores_kernel(numba_float32, True, True),
        (F4, F4, F4, F4, "float32", "int64"),
    ),
    "softmax": (make_softmax_kernel(numba_float32), (F4, F4)),
    "weighted_sum": (
        make_weighted_sum_kernel(numba_float32),
        (F4, F4, F4, "int64"),
    ),
    "split_heads": (split_heads_kernel, (F4, F3)),
    "merge_heads": (merge_heads_kernel, (F3, F4)),
    "split_qkv": (split_qkv_kernel, MOVED),
    "online_softmax": (ONLINE, (F4, F3, F4, F4, F4, F4, "float32", "int64")),
    "flash": (FLASH, (F4, F3, F4, F4, F4, F4, "float32", "int64")),
    "tiled_scores": (TILED_SCORES, (F2, F2, F2, "float32")),
    "who": (first_kernel.who_kernel, ("int64[::1]",)),
    "first_scores": (
        first_kernel.make_scores_kernel(numba_float32),
        (F2, F2, F2, "float32"),
    ),
    "block_softmax": (
        first_kernel.make_softmax_kernel(numba_float32, 256),
        (F2, F2),
    ),
    "gather": (permute.gather_kernel, (F1, F1, *["int64"] * 7)),
    "scatter": (permute.scatter_kernel, (F1, F1, *["int64"] * 7)),
}
MULTIPLYING = (
    "scores",
    "weighted_sum",
    "online_softmax",
    "flash",
    "tiled_scores",
    "first_scores",
)


@cuda.jit
def smallest(out):
    out[0] = float32(1.0)


@cuda.jit
def shape_is_an_argument(out, n):
    s = cuda.shared.array(n, float32)
    s[0] = out[0]
    out[1] = s[0]


@cuda.jit
def adds_text(out):
    out[0] = out[0] + "text"


def mutant(name):
    return next(m for m in MUTANTS if str(m).endswith(name))


TILED = next(c for c in cases() if str(c) == "tiled_matmul")
FLOAT64 = [m for m in MUTANTS if m.kind == "accidental-float64"]
# One process compiles them all: starting one takes a second.
JOBS = {
    **{(n, cc): (*SHIPPED[n], cc) for n in SHIPPED for cc in ARCHITECTURES},
    **{str(m): (m.kernel, m.args(), (7, 5)) for m in FLOAT64},
    "tiled_matmul": (TILED.kernel, TILED.args, (7, 5)),
    "big_tiles": (mutant("big_tiles").kernel, ["float32[::1]"] * 2, (7, 5)),
    "shape": (shape_is_an_argument, ("float32[::1]", "int64"), (7, 5)),
    "text": (adds_text, ("float32[::1]",), (7, 5)),
}


@pytest.fixture(scope="module")
def cards():
    """Return the cards; skip where nothing can be compiled for a GPU."""
    try:
        compile_card(smallest, ("float32[::1]",))
    except CompilerMissing as missing:
        pytest.skip(str(missing))
    return dict(zip(JOBS, compile_cards(JOBS.values()), strict=True))


@pytest.mark.parametrize("cc", ARCHITECTURES, ids=["sm_75", "sm_80", "sm_90"])
@pytest.mark.parametrize("name", SHIPPED)
def test_kernel_compiles_clean(cards, name, cc):
    card = cards[name, cc]
    assert card.f64_instructions == 0
    assert card.spill_bytes == 0
    assert card.shared_bytes <= 48 * 1024
    assert 0 < card.registers <= 255
    assert card.tensor_core_instructions == 0
    if name in MULTIPLYING:
        assert card.fma_f32_instructions > 0


def test_flash_keeps_two_tiles_in_shared_memory(cards):
    card = cards["flash", (7, 5)]
    assert card.shared_bytes == 2 * 32 * D * 4
    assert f"{card.registers} registers" in str(card)


def test_device_functions_compile_with_their_kernel(cards):
    assert cards["tiled_matmul"].shared_bytes == 2 * 8 * 8 * 4
    assert cards["tiled_matmul"].f64_instructions == 0


@pytest.mark.parametrize("name", [str(m) for m in FLOAT64])
def test_bare_literals_are_visible_to_the_compiler(cards, name):
    assert cards[name].f64_instructions > 0


def test_what_a_gpu_refuses_is_refused(cards):
    big = cards["big_tiles"]
    assert isinstance(big, CompileRefused)
    assert big.kind == "too-much-shared-memory"
    assert "65536 bytes" in str(big)
    assert "not a constant" in str(cards["shape"])
    assert "adds_text" in str(cards["text"])
    with pytest.raises(CompileRefused, match="adds_text"):
        compile_card(*JOBS["text"])


# -- without the wheels ---------------------------------------------------


def test_missing_wheels_are_named_with_the_command(monkeypatch, tmp_path):
    fake = tmp_path / "python"
    fake.write_text(
        "#!/bin/sh\ncat > /dev/null\n"
        f"echo '{json.dumps([{'missing': 'ptxas'}])}'\n"
    )
    fake.chmod(0o755)
    monkeypatch.setenv("ATTENTION_LAB_COMPILER_PYTHON", str(fake))
    with pytest.raises(CompilerMissing, match=r"ptxas.*pip install"):
        card_module_function(smallest, ("float32[::1]",))


def test_compiler_output_is_read():
    log = (
        "ptxas info : Function properties for kernel\n"
        "    8 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n"
        "ptxas info : Used 40 registers, 512 bytes smem, 400 bytes cmem[0]\n"
    )
    ptx = (
        "\tld.param.f64 \t%fd1, [p];\n"
        "\tfma.rn.f32 \t%f3, %f1, %f2, %f3;\n"
        "\tcvt.f64.f32 \t%fd2, %f3;\n"
        "\t@%p1 mul.f64 \t%fd3, %fd2, %fd1;\n"
        "\tmma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {};\n"
    )
    card = read_card("kernel", (8, 0), {"log": log, "ptx": ptx, "sass": ""})
    assert (card.registers, card.shared_bytes, card.spill_bytes) == (
        40,
        512,
        28,
    )
    assert card.f64_instructions == len(_F64.findall(ptx)) == 2
    assert card.fma_f32_instructions == len(_FMA.findall(ptx)) == 1
    assert card.tensor_core_instructions == 1


def test_types_are_written_as_numba_writes_them():
    array = np.zeros((2, 3), np.float32)
    assert type_text(array) == "float32[:,::1]"
    assert type_text(array.T) == "float32[:,:]"
    assert type_text(np.int32(1)) == "int32"
    assert type_text(1.5) == "float64"
    assert type_text("float32[:, ::1]") == "float32[:,::1]"
