"""A recording is data: schema, size, order, and a page to read."""

import gzip
import json

import numpy as np
import pytest
from attention_kernels import make_flash
from mutants import MUTANTS
from textbook_cases import cases

from attention_lab.gpu import cuda, record
from attention_lab.gpu.traffic import flash_forward_traffic


def flash_recording(L=64, D=16, tile=16, **more):
    rng = np.random.default_rng(0)
    tensors = [
        rng.standard_normal((1, 1, L, D)).astype(np.float32) for _ in range(3)
    ]
    output = np.zeros((1, 1, L, D), np.float32)
    lse = np.zeros((1, 1, L), np.float32)
    return record(
        make_flash(D, tile, tile, False),
        (-(-L // tile), 1),
        tile,
        output,
        lse,
        *tensors,
        np.float32(0.25),
        **more,
    )


def test_flash_by_tile_is_at_most_30_kb_gzipped():
    recording = flash_recording()
    text = recording.to_json("tile")
    assert len(gzip.compress(text.encode())) <= 30_000
    data = json.loads(text)
    assert data["schema"] == "recording.v1"
    assert sum(data["events"]["data"][3]) == len(recording.events)


def test_tiles_say_which_part_of_an_array_was_touched():
    data = json.loads(flash_recording().to_json("tile"))
    events = data["events"]
    rows = [
        dict(zip(events["columns"], values, strict=True))
        for values in zip(*events["data"], strict=True)
    ]
    labels = [m["label"] for m in data["memory"]]
    keys = [
        row
        for row in rows
        if labels[data["sites"][row["site"]]["memory"]] == "key_BHSD"
        and row["block"] == 2
    ]
    # Tile number k is loaded after 2·k barriers, all 16 rows of it.
    assert [(r["epoch"], r["low"][2], r["high"][2]) for r in keys] == [
        (0, 0, 15),
        (2, 16, 31),
        (4, 32, 47),
        (6, 48, 63),
    ]
    assert {r["count"] for r in keys} == {256}
    assert {r["threads"] for r in keys} == {16}


def test_every_access_survives_the_round_trip():
    case = cases()[0]
    recording = record(case.kernel, case.grid, case.block, *case.args)
    data = json.loads(recording.to_json("access"))
    columns = dict(
        zip(data["events"]["columns"], data["events"]["data"], strict=True)
    )
    for name, values in columns.items():
        np.testing.assert_array_equal(getattr(recording.events, name), values)
    assert data["verdict"] == {"clean": True, "traffic_equals_formula": None}
    first = next(recording.events.rows())
    assert first["array"] == "left"
    assert first["index"] == (0,)
    assert first["kind"] == "read"


def test_formula_and_verdict_travel_with_the_recording():
    formula = flash_forward_traffic(64, 64, 16, 16, 16)
    names = ["query_BHLD", "key_BHSD", "value_BHSD"]
    names += ["output_BHLD", "log_sum_exp_BHL"]
    renamed = dict(zip(names, formula.values(), strict=True))
    recording = flash_recording().against(renamed)
    assert recording.matches_formula
    assert "equals the formula" in str(recording)
    data = json.loads(recording.to_json())
    assert data["verdict"]["traffic_equals_formula"] is True
    wrong = recording.against({**renamed, "key_BHSD": (1, 0)})
    assert not wrong.matches_formula
    assert "DIFFERS" in str(wrong)


def test_the_same_order_gives_the_same_recording():
    one = flash_recording(L=16, D=4, tile=8, order="shuffled", seed=7)
    two = flash_recording(L=16, D=4, tile=8, order="shuffled", seed=7)
    other = flash_recording(L=16, D=4, tile=8, order="shuffled", seed=8)
    assert one.to_json("access") == two.to_json("access")
    assert one.to_json("access") != other.to_json("access")


def test_order_changes_who_comes_first():
    up = flash_recording(L=8, D=2, tile=4)
    down = flash_recording(L=8, D=2, tile=4, order="descending")
    assert up.events.thread[0] == 0
    assert down.events.thread[0] == 3
    assert down.events.block[0] == 1
    with pytest.raises(ValueError, match="shuffled"):
        flash_recording(order="random")


def test_a_refused_launch_is_a_recording_too():
    mutant = next(m for m in MUTANTS if m.kind == "empty-launch")
    recording = record(mutant.kernel, 0, 8, *mutant.args())
    data = json.loads(recording.to_json())
    assert "events" not in data
    assert data["hazards"][0]["kind"] == "empty-launch"
    assert not recording.is_clean


def test_page_names_arrays_hazards_and_notes():
    mutant = next(m for m in MUTANTS if "reversed" in str(m))
    page = str(record(mutant.kernel, 1, 8, *mutant.args()))
    assert "shared s: 8 reads, 8 writes" in page
    assert "hazard race: in block 0, thread" in page


@cuda.jit
def counts_itself(out):
    t = cuda.threadIdx.x
    for k in range(t + 1):
        out[t, k] = np.float32(k)


def test_busiest_thread_is_counted():
    recording = record(counts_itself, 1, 4, np.zeros((4, 4), np.float32))
    assert recording.traffic["out"].most_per_thread == 4
    assert recording.traffic.most_per_thread["global"] == 4
    assert recording.traffic.total("bytes_written") == 10 * 4
