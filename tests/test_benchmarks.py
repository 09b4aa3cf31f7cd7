"""The benchmarks run in their quick form, and notice what is wrong."""

import importlib
import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from attention_lab.steps import flash_forward, flash_register, row_softmax
from flash_rungs import edited

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


# -- The check on a GPU, without one ----------------------------------------


@pytest.fixture
def gpu(monkeypatch):
    """Return a function that imports a module of the check."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("ATTENTION_LAB_DEVICE", "recorder")
    return importlib.import_module


def test_a_dry_run_checks_every_kernel_and_measures_nothing(tmp_path):
    out = tmp_path / "gpu_check.json"
    command = [sys.executable, "gpu_check.py", "--dry-run", "--quick"]
    done = subprocess.run(
        [*command, "--out", out],
        cwd=BENCHMARKS,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    data = json.loads(out.read_text())
    assert data["wrong"] == []
    assert data["is_dry_run"]
    sections = data["sections"]
    right = sections.pop("right at hostile sizes")["readings"]
    shares = [r["value"] for r in right if r["unit"] == "of bound"]
    assert sum(share is not None for share in shares) == 3 * 10 + 2 * 5 + 1
    assert all(0 < share <= 1 for share in shares if share is not None)

    rest = [r for each in sections.values() for r in each["readings"]]
    assert len(rest) > 40
    for reading in [*rest, right[-1]]:
        assert reading["value"] is None, reading
        assert reading["details"] == {}, reading
        assert reading["note"] == "not measured: no GPU", reading
        line = re.escape(f"  {reading['name']}")
        assert re.search(f"^{line} +not measured: no GPU *$", done.stdout, re.M)
    assert len(data["targets"]) == 8
    for target in data["targets"]:
        assert target["value"] is None, target
        assert target["verdict"] == "not measured: no GPU", target
    assert data["machine"]["gpu"] == "not measured: no GPU"


def test_a_dry_run_leaves_the_results_alone(gpu, monkeypatch):
    check = gpu("gpu_check")
    monkeypatch.setattr(check, "sections", lambda quick: [])
    before = sorted((BENCHMARKS / "results").iterdir())
    assert check.main(["--dry-run"]) == 0
    assert sorted((BENCHMARKS / "results").iterdir()) == before


def test_a_planted_wrong_kernel_fails_the_check(
    gpu, monkeypatch, tmp_path, capsys
):
    correct, check = gpu("gpu_correct"), gpu("gpu_check")
    readings = gpu("gpu_readings")
    make = flash_forward.make_attend_tile.__wrapped__

    def without_rescaling(*kind):
        old = "row_sum * rescale + weight"
        return edited(make(*kind), old, "row_sum + weight", tmp_path)

    monkeypatch.setattr(flash_forward, "make_attend_tile", without_rescaling)
    monkeypatch.setattr(
        flash_forward,
        "make_flash_kernel",
        flash_forward.make_flash_kernel.__wrapped__,  # without its cache
    )
    case = correct.QUICK_CASES[:1]
    monkeypatch.setattr(correct, "QUICK_CASES", case)
    monkeypatch.setattr(correct, "QUICK_PRODUCTS", ())

    def only_results(quick):
        return [readings.Section("results", 60, correct.tasks(quick))]

    monkeypatch.setattr(check, "sections", only_results)
    out = tmp_path / "gpu_check.json"
    assert check.main(["--dry-run", "--quick", "--out", str(out)]) == 1
    wrong = [
        "flash, thread per row: primes",
        "flash, backward: primes",
        "flash_attention, autograd: primes",
    ]
    assert json.loads(out.read_text())["wrong"] == wrong
    assert capsys.readouterr().out.count("WRONG") == len(wrong)


def test_a_result_that_is_no_number_is_wrong(gpu):
    cases = gpu("gpu_cases")
    lse = np.array([1.0, -np.inf])
    answer = cases.Answer({"lse": lse}, {"lse": 0.5})
    share = cases.share_of_bound
    assert share(answer, {"lse": lse}) == 0
    assert share(answer, {"lse": lse + 0.25}) == 0.5
    for wrong in ([np.nan, -np.inf], [1.0, 0.0], [-np.inf, -np.inf], [1.0]):
        assert math.isinf(share(answer, {"lse": np.array(wrong)})), wrong


def test_a_reading_has_a_finite_number_or_a_reason(gpu):
    reading = gpu("gpu_readings").Reading
    for value, note, details in (
        (None, "", {}),
        (math.nan, "", {}),
        (1.0, "", {"share": math.inf}),
        (None, "no GPU", {"share": 1.0}),
    ):
        with pytest.raises(ValueError, match="x: "):
            reading("x", value, "ms", note, details)


def test_a_section_says_what_it_left_out_and_what_broke(gpu):
    readings = gpu("gpu_readings")

    def slow(_):
        time.sleep(0.05)
        return readings.Reading("slow", 1.0, "ms", details={"share": 0.5})

    def broken(_):
        raise RuntimeError("the driver is gone")

    tasks = [
        readings.Task(name, "ms", measure)
        for name, measure in (("broken", broken), ("slow", slow), ("x", slow))
    ]
    section = readings.Section("times", 0.04, tasks)
    section.run("", time.monotonic() + 60)
    first, second, third = section.readings
    assert first.is_wrong
    assert "the driver is gone" in first.note
    assert (second.value, third.value) == (1.0, None)
    assert section.left_out == ["x"]
    assert "left out: x" in section.table()

    def verdict(least, name, detail="share"):
        target = readings.Target("t", least, "times", name, detail)
        return readings.judge(target, [section])["verdict"]

    assert verdict(0.5, "slow") == "reached"
    assert verdict(0.51, "slow") == "missed"
    assert verdict(0.5, "x") == readings.OUT_OF_TIME
    assert "gone" in verdict(0.5, "broken")
    assert "no such" in verdict(0.5, "slow", "another")
    assert "no such" in verdict(0.5, "another")


def test_launches_can_be_kept_and_made_again(gpu):
    timer = gpu("gpu_timer")
    x = np.ones((1, 1, 3, 2), np.float32)
    kept = timer.launches_of(lambda: row_softmax.unfused_forward_cuda(x, x, x))
    assert len(kept) == 3  # scores, softmax, weighted sum
    out = kept[-1].args[0]
    out[:] = np.full(out.shape, np.nan, np.float32)
    timer.replay(kept)()
    np.testing.assert_array_equal(out.copy_to_host(), x)
    assert timer.launches_of(lambda: None) == []


COMPILER = "ATTENTION_LAB_COMPILER_PYTHON"


def test_the_kernel_in_cuda_c_shares_its_threads_as_numbas_does():
    source = (BENCHMARKS / "gpu_flash.cu").read_text(encoding="utf-8")
    for name in ("ROWS", "LANES", "LANE_BITS", "UNROLLED"):
        number = getattr(flash_register, name)
        assert f"#define {name} {number}\n" in source


@pytest.mark.skipif(
    not os.environ.get(COMPILER),
    reason=f"needs NVIDIA's compiler: set {COMPILER} to its Python",
)
def test_the_kernel_in_cuda_c_compiles_and_a_broken_one_says_why():
    program = """
from pathlib import Path
from gpu_nvrtc import CudaCError, compile_cubin
source = Path("gpu_flash.cu").read_text()
for sm, D, D_V, causal in (("sm_75", 64, 64, 0), ("sm_90", 19, 7, 1)):
    sizes = [f"-DD={D}", f"-DD_V={D_V}", "-DTILE_L=64", "-DTILE_S=64"]
    cubin = compile_cubin(source, sm, *sizes, f"-DIS_CAUSAL={causal}")
    assert cubin[:4] == b"\\x7fELF" and b"flash_register" in cubin
try:
    compile_cubin(source.replace("float scores[", "float score["), sm, *sizes)
except CudaCError as error:
    assert 'identifier "scores" is undefined' in str(error), error
else:
    raise AssertionError("a broken source compiles")
"""
    done = subprocess.run(
        [os.environ[COMPILER], "-c", program],
        cwd=BENCHMARKS,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
