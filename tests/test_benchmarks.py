"""The benchmarks run in their quick form, and notice what is wrong."""

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent / "benchmarks"


@pytest.fixture
def readings(tmp_path):
    """Return a function that runs a benchmark and reads its JSON."""

    def run(name):
        out = tmp_path / f"{name}.json"
        command = [sys.executable, f"{name}.py", "--quick", "--out", out]
        done = subprocess.run(
            command, cwd=BENCHMARKS, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        data = json.loads(out.read_text())
        assert data["seed"] == 0
        assert data["machine"]["numba"]
        return data, done.stdout

    return run


@pytest.fixture
def traffic(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("traffic")


def test_every_rung_moves_what_its_formula_says(readings):
    data, printed = readings("traffic")
    rows = [row for table in data["tables"].values() for row in table]
    assert len(rows) == 2 * 6 + 5
    for row in rows:
        assert row["every_array_agrees"], row
        assert row["is_clean"], row
        assert row["counted"] == row["formula"], row
    for rung in ("flash", "register_2d"):  # the last of each ladder
        assert all(r["naive/this"] > 5 for r in rows if r["rung"] == rung)
    assert "DIFFERENT" not in printed


def test_a_wrong_formula_is_shown_as_different(traffic, capsys):
    call, _, options = traffic.ATTENTION["online softmax"]
    wrong = [{"query": (1, 0)}]
    rungs = {"online softmax": (call, lambda **sizes: wrong, options)}
    traffic.ATTENTION, kept = rungs, traffic.ATTENTION
    try:
        rows = traffic.attention_rows(L=3, D=2, is_causal=False)
    finally:
        traffic.ATTENTION = kept
    traffic.show("table", rows)
    assert "DIFFERENT, clean" in capsys.readouterr().out
    # Formulas that agree in sum only are not enough.
    swapped = traffic.row("x", [{"a": (1, 2)}], [{"a": (2, 1)}], True)
    assert swapped["counted"] == swapped["formula"]
    assert not swapped["every_array_agrees"]


@pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(),
    reason="reads the memory of a process as Linux shows it",
)
def test_memory_grows_with_the_square_only_where_scores_are_stored(readings):
    data, _ = readings("memory")
    found = data["summary"]
    assert found["slope_naive"] > 1.7
    assert found["slope_ours"] < 1.3
    assert found["naive/ours"] > 20
    scores = 2 * found["L"] ** 2 * 4  # scores and weights, 4 bytes each
    naive = [row for row in data["rows"] if row["method"] == "naive"][-1]
    assert 0.9 * scores < naive["extra_bytes"] < 1.5 * scores


def test_speed_is_measured_for_every_method(readings):
    data, printed = readings("cpu_speed")
    for row in data["rows"]:
        for kind in ("seconds", "seconds_of_cores"):
            assert all(value > 0 for value in row[kind].values()), row
        ratio = row["seconds"]["naive"] / row["seconds"]["ours"]
    assert data["summary"]["naive/ours"] == ratio
    assert 0 < data["summary"]["share of maxima and exp in ours"] < 1
    assert "(target 2.0)" in printed
