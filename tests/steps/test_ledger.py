import json

import numpy as np
import pytest

from attention_lab import examples
from attention_lab.steps import ledger, recorded, rooflines
from attention_lab.steps.ledger import Setting, record_ledger


def qkv(L, S, D, dtype="float32"):
    return [x.astype(dtype) for x in examples.example_qkv(1, 1, L, S, D)]


def test_flops_of_the_products_counted_by_hand():
    # 5 queries, 7 keys, D 3: 35 pairs, 3 multiply-adds in each product.
    for recordings in (
        recorded.record_three_kernels(*qkv(5, 7, 3), False),
        recorded.record_one_thread(*qkv(5, 7, 3), False),
        recorded.record_flash(*qkv(5, 7, 3), False, 2, 3),
    ):
        assert recorded.product_flops(recordings) == 2 * 35 * 3 * 2


def test_causal_flash_computes_visible_pairs_only():
    # Queries 0 … 4 see 1, 2, 3, 4, 5 keys: 15 pairs.
    recordings = recorded.record_flash(*qkv(5, 5, 3), True, 2, 2)
    assert recorded.product_flops(recordings) == 2 * 15 * 3 * 2


def test_causal_three_kernels_still_multiply_zero_weights():
    recordings = recorded.record_three_kernels(*qkv(5, 5, 3), True)
    assert recorded.product_flops(recordings) == 2 * (15 + 25) * 3


def test_numbers_and_bytes_moved_counted_by_hand():
    # One query, two keys, D 1, tile 2: reads q, 2 keys, 2 values; writes
    # the output and the log-sum-exp.
    recordings = recorded.record_flash(*qkv(1, 2, 1, "float64"), False, 2, 2)
    assert recorded.numbers_moved(recordings) == {
        "q_BHLD": 1, "k_BHSD": 2, "v_BHSD": 2, "out_BHLD": 1, "lse_BHL": 1,
    }  # fmt: skip
    assert recorded.bytes_moved(recordings) == 7 * 8


def test_the_formula_also_holds_at_64_with_tiles_of_16():
    recordings = recorded.record_flash(*qkv(64, 64, 8), False, 16, 16)
    # 4 blocks load 64 keys and values of 8; q, output, log-sum-exp.
    total = sum(recorded.numbers_moved(recordings).values())
    assert total == 2 * 4 * 64 * 8 + 2 * 64 * 8 + 64


@pytest.fixture(scope="module")
def small():
    """Ragged sizes: tiles that divide nothing, L = S and one query."""
    settings = (
        Setting("all", 3, (5, 7), (2, 4), recorded=7),
        Setting("causal", 3, (5, 7), (2, 4), is_causal=True, recorded=7),
        Setting("one", 3, (5, 7), (2, 4), L=1, recorded=7),
    )
    extra = ((0, 7, "tile 4", "float64"),)
    return record_ledger(settings, extra=extra)


def test_every_recording_equals_its_formula(small):
    seen = 0
    for setting in small["settings"]:
        for row in setting["entries"]:
            for entry in row:
                for dtype, count in zip(
                    small["dtypes"], entry["counted"], strict=True
                ):
                    if count is None:
                        continue
                    seen += 1
                    assert count["moved"] == entry["moved"]
                    assert count["flops"] == entry["flops"]
                    size = dtype["bytes"] * sum(entry["moved"])
                    assert count["bytes"] == size
    assert seen == 3 * 4 * 2 + 1


def test_the_bound_is_no_kernel_and_never_recorded(small):
    for setting in small["settings"]:
        assert setting["kernels"][-1] == "stored once"
        assert all(e["counted"] == [None, None] for e in setting["entries"][-1])


def test_intensity_and_speed_follow_from_counts_and_datasheet(small):
    entry = small["settings"][0]["entries"][2][1]
    assert entry["flops"] == 4 * 7 * 7 * 3
    # 4 blocks of tile 2 each load 7 keys and values of 3; q, out, lse.
    assert sum(entry["moved"]) == 21 + 2 * 4 * 21 + 21 + 7
    for place, size in enumerate((4, 8)):
        intensity = entry["flops"] / (sum(entry["moved"]) * size)
        assert entry["intensity"][place] == round(intensity, 4)
        for device, speeds in zip(
            small["devices"], entry["attainable"], strict=True
        ):
            memory = intensity * device["bandwidth"]
            expected = min(device["peak"][place], memory)
            assert speeds[place] == round(expected, 4)


def test_torch_counts_the_same_products(small):
    assert small["torch_flops"] == {
        "torch": 4 * 32 * 32 * 8,
        "formula": 4 * 32 * 32 * 8,
    }


def test_the_papers_workload_is_counted_not_copied():
    standard, flash = ledger.paper_numbers()["rows"]
    # 12 and 14 · N²·d·heads·batch: 6 products, or 7 with the recomputed one.
    unit = 2 * 1024**2 * 64 * 16 * 64 / 1e9
    assert standard["counted"] == round(6 * unit, 4)
    assert flash["counted"] == round(7 * unit, 4)
    assert (standard["printed"], flash["printed"]) == (66.6, 75.2)


def test_data_are_plain_json_and_do_not_depend_on_the_seed(small):
    json.dumps(small, allow_nan=False)
    settings = (Setting("all", 3, (5,), (2,), recorded=5),)
    one, other = (record_ledger(settings, extra=(), seed=s) for s in (1, 2))
    assert one["settings"] == other["settings"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"settings": ()}, "settings is empty"),
        ({"devices": ()}, "devices is empty"),
        ({"extra": ((0, 5, "tile 3", "float32"),)}, "'tile 3' at S = 5"),
        ({"extra": ((0, 6, "tile 2", "float32"),)}, "'tile 2' at S = 6"),
    ],
)
def test_what_cannot_be_counted_is_refused(options, says):
    given = {"settings": (Setting("all", 3, (5,), (2,)),), "extra": ()}
    with pytest.raises(ValueError, match=says):
        record_ledger(**{**given, **options})


POINT = {
    "name": "flash", "device": "T4", "dtype": "float32", "flops": 8_000_000_000,
    "bytes": 10**9, "time_ms": [4.0, 2.0, 8.0],
}  # fmt: skip


def test_a_measured_point_has_its_median_and_spread():
    placed = rooflines.place_point(POINT, rooflines.DEVICES)
    assert placed["intensity"] == 8.0
    # 8 GFLOP in 4, 2 and 8 ms: 2, 4 and 1 TFLOP per second.
    assert [placed[x] for x in ("low", "tflops", "high")] == [1.0, 2.0, 4.0]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"device": "K80"}, "device 'K80'; there are T4"),
        ({"dtype": "int8"}, "dtype 'int8'; there are float32"),
        ({"time_ms": []}, "no time above 0"),
        ({"time_ms": [0.0, 1.0]}, "no time above 0"),
    ],
)
def test_a_bad_point_is_refused(change, says):
    with pytest.raises(ValueError, match=says):
        rooflines.place_point({**POINT, **change}, rooflines.DEVICES)


def test_stored_points_are_read_from_files_of_their_schema(tmp_path):
    good = {"schema": "attention_points.v1", "points": [POINT]}
    (tmp_path / "a.json").write_text(json.dumps(good))
    (tmp_path / "b.json").write_text('{"cases": []}')
    (tmp_path / "c.json").write_text("[1, 2]")
    assert rooflines.stored_points(tmp_path) == [POINT]
    (tmp_path / "d.json").write_text("{")
    with pytest.raises(ValueError, match=r"d\.json is no JSON"):
        rooflines.stored_points(tmp_path)


def test_the_ridge_of_a_roof_is_peak_over_bandwidth():
    for device in rooflines.DEVICES:
        for peak in device.peak:
            (_, low), (ridge, top), (_, end) = rooflines.roof(device, peak)
            np.testing.assert_allclose(
                ridge, peak / device.bandwidth, rtol=1e-4
            )
            np.testing.assert_allclose(low, 0.1 * device.bandwidth, rtol=1e-3)
            assert top == end == round(peak, 4)
