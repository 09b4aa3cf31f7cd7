"""The kernels of the ladder: right, clean, and their traffic as counted."""

import numpy as np
import pytest
import torch

from attention_lab import masks
from attention_lab.gpu import launch
from attention_lab.gpu.door import runs_on_gpu
from attention_lab.gpu.recorder import record
from attention_lab.gpu.traffic import (
    flash_forward_traffic,
    flash_skipped_traffic,
)
from cases import random_mask
from flash_rungs import RUNGS, assert_close, assert_right, inputs

ORDERS = ["ascending", "descending", "shuffled"]
ARRAYS = {
    "q_BHLD": "query",
    "k_BHSD": "key",
    "v_BHSD": "value",
    "out_BHLD": "output",
    "lse_BHL": "log_sum_exp",
}
#: Causal where tiles end, plain everywhere: every kernel takes time to build.
AT_THE_EDGES = [
    (name, size, is_causal)
    for name, rung in RUNGS.items()
    for size in rung.sizes
    for is_causal in (False, True)
    if not is_causal or size in rung.sizes[1:4:2]
]
every_rung = pytest.mark.parametrize(
    "rung", RUNGS.values(), ids=[name.replace(" ", "_") for name in RUNGS]
)
on_the_recorder = pytest.mark.skipif(
    runs_on_gpu(), reason="records the launches that the recorder makes"
)


# -- values ----------------------------------------------------------------


@pytest.mark.parametrize(("name", "size", "is_causal"), AT_THE_EDGES, ids=str)
def test_sizes_at_the_edges_of_tiles(name, size, is_causal):
    L, S, D, D_v = size
    rung = RUNGS[name]
    q, k, v = inputs(rung, B=1, H=2, L=L, S=S, D=D, D_v=D_v)
    assert_right(rung, q, k, v, None, is_causal)


@every_rung
def test_several_tiles_of_scores_times_100(rung):
    q, k, v = inputs(rung, B=1, H=1, L=19, S=37, D=5, D_v=3)
    assert_right(rung, q * rung.dtype(100), k, v, TILE_L=16, TILE_S=16)


@every_rung
def test_a_row_that_sees_nothing_gives_zero_and_minus_infinity(rung):
    q, k, v = inputs(rung, B=2, H=2, L=5, S=7)
    mask = random_mask((2, 2, 5, 7))
    out, lse = rung.run(q, k, v, mask)
    assert (out[:, :, 0] == 0).all()
    assert (lse[:, :, 0] == -np.inf).all()
    assert_close(rung.run(q, k, v, mask), q, k, v, mask)


@every_rung
def test_a_row_whose_first_tiles_are_all_hidden(rung):
    q, k, v = inputs(rung, B=1, H=1, L=3, S=35)
    mask = np.zeros((1, 1, 3, 35), bool)
    mask[..., 33:] = True
    assert_right(rung, q, k, v, mask, TILE_S=16)


@every_rung
def test_numbers_to_add_and_a_length_of_keys(rung):
    q, k, v = inputs(rung, B=2, H=2, L=3, S=5)
    added = np.random.default_rng(1).standard_normal((3, 5)).astype(rung.dtype)
    assert_right(rung, q, k, v, added)
    lengths = (np.arange(5) < np.array([[2], [5]])).reshape(2, 1, 1, 5)
    assert_right(rung, q, k, v, lengths)


@every_rung
@pytest.mark.parametrize(("L", "S"), [(3, 18), (18, 3)])
def test_causal_aligned_at_the_lower_right(rung, L, S):
    q, k, v = inputs(rung, B=1, H=2, L=L, S=S)
    mask = np.asarray(masks.causal(L, S, align="lower_right"))
    assert_right(rung, q, k, v, mask)


@every_rung
def test_query_heads_share_key_heads_in_order(rung):
    q, k, v = inputs(rung, B=2, H=6, H_kv=2, L=3, S=5)
    assert_right(rung, q, k, v, None, True, None, True)


@every_rung
def test_a_scale_may_be_given_and_negative(rung):
    q, k, v = inputs(rung, B=1, H=2, L=3, S=5)
    assert_right(rung, q, k, v, None, False, -1.5)


@every_rung
@pytest.mark.parametrize("empty", [{"S": 0}, {"L": 0}, {"B": 0}, {"D_v": 0}])
def test_empty_axes(rung, empty):
    q, k, v = inputs(rung, **empty)
    out, lse = rung.run(q, k, v)
    np.testing.assert_array_equal(out, np.zeros((*q.shape[:3], v.shape[3])))
    np.testing.assert_array_equal(lse, np.full(q.shape[:3], -np.inf))


@every_rung
def test_a_tensor_comes_back_as_a_tensor(rung):
    q, k, v = inputs(rung, B=1, H=1, L=3, S=5)
    tensors = [torch.tensor(x, requires_grad=True) for x in (q, k, v)]
    out, lse = rung.run(*tensors)
    assert (out.dtype, lse.dtype) == (tensors[0].dtype, torch.float32)
    there = rung.run(q, k, v)
    np.testing.assert_array_equal(out, there.out_BHLD)
    np.testing.assert_array_equal(lse, there.lse_BHL)


# -- what is refused -------------------------------------------------------


@every_rung
@pytest.mark.parametrize("name", ["TILE_L", "TILE_S"])
@pytest.mark.parametrize("size", [0, -16, 2.5])
def test_a_tile_that_is_no_size_is_refused(rung, name, size):
    q, k, v = inputs(rung)
    with pytest.raises(ValueError, match=f"{name} must be a whole number"):
        rung.run(q, k, v, **{name: size})


@pytest.mark.parametrize(
    ("name", "tiles", "message"),
    [
        ("register", {"TILE_L": 6}, "TILE_L = 6 is not a multiple of 4"),
        ("register", {"TILE_S": 24}, "TILE_S = 24 is not a multiple of 16"),
        ("tensor core", {"TILE_L": 24}, "TILE_L = 24 is not a multiple of 16"),
        ("tensor core", {"TILE_S": 8}, "TILE_S = 8 is not a multiple of 16"),
        ("register", {"TILE_L": 260}, "TILE_L = 260 needs 1040 threads"),
        ("tensor core", {"TILE_L": 528}, "TILE_L = 528 needs 1056 threads"),
        (
            "register",
            {"TILE_S": 2048},
            "TILE_S = 2048 .* but a block has 49152",
        ),
        ("tensor core", {"TILE_S": 2048}, "need .* bytes of shared memory"),
    ],
)
def test_tiles_that_do_not_fit_are_refused(name, tiles, message):
    q, k, v = inputs(RUNGS[name], D=11)
    with pytest.raises(ValueError, match=message):
        RUNGS[name].run(q, k, v, **tiles)


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16]
)
def test_tensor_cores_take_float16_only(dtype):
    q = torch.zeros(1, 1, 2, 3, dtype=dtype)
    name = str(dtype).removeprefix("torch.")
    with pytest.raises(ValueError, match=f"query has dtype {name}; tensor"):
        RUNGS["tensor core"].run(q, q, q)


# -- recordings ------------------------------------------------------------


@pytest.fixture
def recorded(monkeypatch):
    """Return a function that records the launch of one rung."""

    def run(rung, *args, order="ascending", **tiles):
        kept = []

        def call(self, *given):
            launched = (self.kernel, self.grid, self.block, *given)
            kept.append(record(*launched, order=order))

        with monkeypatch.context() as patch:
            patch.setattr(launch.Configured, "__call__", call)
            rung.run(*args, **tiles)
        (recording,) = kept
        return recording

    return run


def counts(recording):
    return {
        ours: (recording.traffic[name].reads, recording.traffic[name].writes)
        for name, ours in ARRAYS.items()
    }


@on_the_recorder
@every_rung
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", ["causal", "masked row"])
def test_recorded_clean_in_every_order(recorded, rung, mode, order):
    q, k, v = inputs(rung, B=1, H=1, L=17, S=19, D=3, D_v=5)
    mask = random_mask((1, 1, 17, 19)) if mode == "masked row" else None
    options = (mask, mode == "causal")
    tiles = {"TILE_L": 16, "TILE_S": 16}
    recording = recorded(rung, q, k, v, *options, order=order, **tiles)
    assert recording.hazards == (), str(recording)
    kinds = {note.kind for note in recording.notes}
    assert not {kind for kind in kinds if "float64" in kind}, str(recording)
    # Every number of a mask is read once, and nothing else of it.
    read = recording.traffic["bias_BHLS"].reads
    assert read == (0 if mask is None else mask.size)


@on_the_recorder
@every_rung
@pytest.mark.parametrize(("L", "S"), [(1, 1), (17, 34)])
def test_traffic_is_the_formula_and_so_is_what_is_skipped(recorded, rung, L, S):
    q, k, v = inputs(rung, B=1, H=2, H_kv=1, L=L, S=S, D=3, D_v=2)
    tiles = {"TILE_L": 16, "TILE_S": 16}
    sizes = (L, S, 3, 16, 16, 1, 2)
    measured = {}
    for is_causal in (False, True):
        options = (None, is_causal, None, True)
        measured[is_causal] = counts(recorded(rung, q, k, v, *options, **tiles))
        formula = flash_forward_traffic(*sizes, is_causal, D_v=2)
        assert measured[is_causal] == formula
    skipped = {
        name: measured[False][name][0] - measured[True][name][0]
        for name in ("key", "value")
    }
    assert skipped == flash_skipped_traffic(*sizes, D_v=2)
    assert (skipped["key"] > 0) == (S > 16)


@on_the_recorder
def test_products_meet_no_bank_conflict(recorded):
    for name, loads in (("register", "load_rows"), ("tensor core", "load_")):
        rung = RUNGS[name]
        q, k, v = inputs(rung, B=1, H=1, L=16, S=16, D=16)
        recording = recorded(rung, q, k, v)
        conflicts = [n for n in recording.notes if n.kind == "bank-conflict"]
        assert all(loads in note.sentence for note in conflicts), conflicts
