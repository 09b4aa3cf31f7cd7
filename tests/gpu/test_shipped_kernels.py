"""Every kernel of the steps, recorded: clean, and its traffic as counted."""

import numpy as np
import pytest

from attention_lab.examples import example_qkv
from attention_lab.gpu import launch
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.recorder import record
from attention_lab.gpu.traffic import flash_forward_traffic
from attention_lab.steps import flash_forward, fused_qkv, multi_head
from cases import IMPLEMENTATIONS, random_mask

pytestmark = pytest.mark.skipif(
    runs_on_gpu(), reason="records the launches that the recorder makes"
)

# The ladder of flash kernels is recorded in tests/steps/test_flash_rungs.py.
KERNELS = [
    name
    for name in IMPLEMENTATIONS
    if name.endswith("_cuda") and "flash_register" not in name
]
ORDERS = ["ascending", "descending", "shuffled"]
ARRAYS = {
    "q_BHLD": "query",
    "k_BHSD": "key",
    "v_BHSD": "value",
    "out_BHLD": "output",
    "lse_BHL": "log_sum_exp",
}


class Recordings(list):
    """The recordings of a test's launches, made in one thread order."""

    order = "ascending"


@pytest.fixture
def recordings(monkeypatch):
    """Record every launch instead of only running it."""
    kept = Recordings()

    def call(self, *args):
        launched = (self.kernel, self.grid, self.block, *args)
        shared = self.shared_bytes
        kept.append(record(*launched, shared_bytes=shared, order=kept.order))

    monkeypatch.setattr(launch.Configured, "__call__", call)
    return kept


def assert_clean(recordings):
    assert recordings, "nothing was launched"
    for recording in recordings:
        assert recording.hazards == (), str(recording)
        kinds = {note.kind for note in recording.notes}
        assert not {kind for kind in kinds if "float64" in kind}, str(recording)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "mode", ["plain", "causal", "masked row", "shared heads"]
)
@pytest.mark.parametrize("name", KERNELS)
def test_attention_kernels_are_clean(recordings, name, mode, order):
    recordings.order = order
    H_kv = 1 if mode == "shared heads" else 2
    q, k, v = example_qkv(B=2, H=2, H_kv=H_kv, L=17, S=19, D=3, D_v=5)
    mask = random_mask((2, 2, 17, 19)) if mode == "masked row" else None
    IMPLEMENTATIONS[name](
        q, k, v, mask, mode == "causal", enable_gqa=mode == "shared heads"
    )
    assert_clean(recordings)


@pytest.mark.parametrize("order", ORDERS)
def test_kernels_that_move_are_clean(recordings, order):
    recordings.order = order
    x_BLE = np.arange(2 * 5 * 12, dtype=np.float32).reshape(2, 5, 12)
    multi_head.merge_heads_cuda(multi_head.split_heads_cuda(x_BLE, 3))
    for layout in fused_qkv.LAYOUTS:
        fused_qkv.split_qkv_cuda(x_BLE, 2, layout)
    assert_clean(recordings)


@pytest.mark.parametrize("is_causal", [False, True])
@pytest.mark.parametrize("tiles", [(4, 4), (3, 5), (8, 2), (5, 16)], ids=str)
@pytest.mark.parametrize(("L", "S"), [(1, 1), (4, 4), (13, 17), (17, 5)])
def test_flash_moves_what_the_formula_says(recordings, L, S, tiles, is_causal):
    TILE_L, TILE_S = tiles
    q, k, v = example_qkv(B=2, H=2, H_kv=1, L=L, S=S, D=3)
    flash_forward.flash_forward_cuda(
        q, k, v, None, is_causal, None, True, TILE_L=TILE_L, TILE_S=TILE_S
    )
    (recording,) = recordings
    formula = flash_forward_traffic(
        L, S, 3, TILE_L, TILE_S, B=2, H=2, causal=is_causal
    )
    measured = {
        ours: (
            recording.traffic[name].reads,
            recording.traffic[name].writes,
        )
        for name, ours in ARRAYS.items()
    }
    assert measured == formula


def test_a_forgotten_barrier_is_named_with_threads_and_lines(tmp_path):
    from numba import float32

    from test_mistakes_are_caught import edited

    kernel = flash_forward.make_flash_kernel(3, 3, 4, 4, float32, False, False)
    broken = edited(
        kernel,
        "cuda.syncthreads()  # both tiles are complete before anyone reads",
        "pass",
        tmp_path,
    )
    q, k, v = (x.copy() for x in example_qkv(B=1, H=1, L=5, S=7, D=3))
    out = np.full((1, 1, 5, 3), np.nan, np.float32)
    lse = np.full((1, 1, 5), np.nan, np.float32)
    bias = np.zeros((1, 1, 1, 1), np.float32)
    recording = record(
        broken, (2, 1), 4, out, lse, q, k, v, bias, np.float32(0.5), 1
    )
    races = [h for h in recording.hazards if h.kind == "race"]
    assert races, str(recording)
    assert "k_tile" in str(recording)
