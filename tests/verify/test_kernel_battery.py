"""The kernel battery names planted mistakes and lets correct kernels pass."""

import math
import os

import numpy as np
import pytest
from kernel_mutants import mutants
from kernels_to_mutate import TO_MUTATE, tiled_product
from shipped_kernels import SHIPPED, flash
from textbook_launches import TEXTBOOK

from attention_lab.gpu import cuda
from attention_lab.gpu.compile_card import PYTHON_VARIABLE
from attention_lab.verify.kernel.battery import verify_kernel
from attention_lab.verify.kernel.case import Launch
from attention_lab.verify.known_mistakes import known_mistakes

float32 = np.float32
EXHIBITS = [c for c in known_mistakes().values() if c.kind == "kernel"]
COMPILER = os.environ.get(PYTHON_VARIABLE)

# Mutants that do the same: (what the line becomes, why).
EQUIVALENT = {
    "flash_kernel, line 8: row_sum = float32(0.0) -> row_sum = float32(1.0)": (
        "the first key multiplies the sum by exp(-inf) = 0"
    ),
    "flash_kernel, line 10: acc[d] = float32(0.0) -> acc[d] = float32(1.0)": (
        "the first key multiplies the accumulator by exp(-inf) = 0"
    ),
    "flash_kernel, line 19: score = float32(0.0) -> score = float32(1.0)": (
        "a softmax does not change when all scores grow alike"
    ),
    "row_sums_kernel, line 15: if t == 0: -> if t == 1:": (
        "after the last barrier any one thread may store the sum"
    ),
}


@pytest.fixture(autouse=True)
def without_compiler(monkeypatch):
    """Leave the compiler out: one compilation takes seconds."""
    monkeypatch.delenv(PYTHON_VARIABLE, raising=False)


def verify(case, **options):
    return verify_kernel(*case[:3], **{**case.options, **options})


# -- the museum -----------------------------------------------------------


def test_museum_has_a_room_of_kernels():
    assert len(EXHIBITS) >= 14
    assert {card.room for card in EXHIBITS} == {"kernels"}


@pytest.fixture(scope="module")
def reports():
    """Return the report on every exhibit, by id."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(PYTHON_VARIABLE, raising=False)
        return {card.id: verify(card.exhibit()()) for card in EXHIBITS}


def test_every_exhibit_is_named_by_the_check_of_its_card(reports, capsys):
    rows, wrong = [], []
    for card in EXHIBITS:
        report = reports[card.id]
        named = {check.name: check.mistake for check in report.failures}
        rows.append(f"{card.id:34}{card.check:18}{named.get(card.check)}")
        if named.get(card.check) != card.id:
            wrong.append(f"{card.id}: {report}")
    with capsys.disabled():
        print(f"\n{'exhibit':34}{'check':18}named\n" + "\n".join(rows))
        print(f"named rightly: {len(rows) - len(wrong)} of {len(rows)}")
    assert wrong == []


def test_no_exhibit_is_blamed_for_another_mistake(reports):
    for name, report in reports.items():
        assert report.mistakes == (name,)


def test_report_says_what_and_never_the_solution(reports):
    check = reports["post-2-kernel"]["values"]
    assert check.counterexample.sizes == {"L": 1, "S": 2}
    assert "`log_sum_exp_L` at L = 0 is" in check.what
    assert "not rescaled" in check.message
    assert "exp(" not in check.hint


def test_race_is_told_with_both_threads_and_both_lines(reports):
    what = reports["missing-barrier-after-load"]["no hazard"].what
    assert what.count("thread ") == 2
    assert what.count(", line ") == 2


# -- correct kernels ------------------------------------------------------


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_kernel_passes(name):
    report = verify(SHIPPED[name])
    assert report.passed, str(report)
    if name.startswith(("flash", "scores", "softmax", "weighted")):
        assert report["traffic"].passed


@pytest.mark.parametrize("name", TEXTBOOK)
def test_textbook_kernel_passes(name):
    report = verify(TEXTBOOK[name])
    assert report.passed, str(report)


def test_shipped_kernel_passes_the_compiler(monkeypatch):
    if COMPILER is None:
        pytest.skip(f"{PYTHON_VARIABLE} names no compiler")
    monkeypatch.setenv(PYTHON_VARIABLE, COMPILER)
    report = verify(flash())
    assert report["compile card"].passed, str(report)


def test_without_the_compiler_the_report_says_what_to_install():
    report = verify(TEXTBOOK["vector_add"])
    assert "pip install" in report.not_tested["compile card"]


# -- mutation -------------------------------------------------------------


def test_mutants_are_killed(tmp_path, capsys):
    survivors, total = [], 0
    for case in TO_MUTATE:
        for mutant in mutants(case.kernel, tmp_path):
            total += 1
            report = verify(case._replace(kernel=mutant.kernel), seconds=6)
            if report.passed:
                survivors.append(str(mutant))
    real = total - len(EQUIVALENT)
    killed = total - len(survivors)
    with capsys.disabled():
        print(f"\n{total} mutants, {killed} killed, {len(survivors)} survive")
        for mutant in survivors:
            print(f"  {mutant}: {EQUIVALENT.get(mutant, 'NOT EXPLAINED')}")
    assert total >= 60
    assert set(EQUIVALENT) <= set(survivors)
    assert killed / real >= 0.98


# -- other ways to write it -------------------------------------------------


@cuda.jit
def two_dynamic_kernel(out, x):
    one = cuda.shared.array(0, float32)
    two = cuda.shared.array(0, float32)
    t = cuda.threadIdx.x
    one[t] = x[t]
    two[t] = float32(0.0)
    out[t] = one[t]


def test_two_dynamic_shared_arrays_are_named():
    def launch(N):
        args = (np.zeros(N, float32), np.ones(N, float32))
        return Launch(1, N, args, shared_bytes=8 * N)

    report = verify_kernel(two_dynamic_kernel, launch, lambda x: x)
    assert report["runs"].mistake == "shared-arrays-aliased"


def test_a_kernel_of_numba_needs_no_change():
    numba_cuda = pytest.importorskip("numba.cuda")

    @numba_cuda.jit
    def doubled_by_numba(out, x):
        i = numba_cuda.grid(1)
        if i < out.size:
            out[i] = x[i] + x[i]

    assert verify_kernel(doubled_by_numba, launch_numbers, twice).passed


# -- a barrier that some never reach ----------------------------------------


def launch_ones(N):
    return Launch(1, 8, (np.zeros(N, float32), np.ones(N, float32)))


@cuda.jit
def guarded(out, x):
    tile = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    if t < x.shape[0]:
        tile[t] = x[t]
        cuda.syncthreads()
        out[t] = tile[0]


@cuda.jit
def guarded_before_a_return(out, x):
    tile = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    if x.shape[0] > 100:  # the same for all threads
        return
    if t < x.shape[0]:
        tile[t] = x[t]
        cuda.syncthreads()
        out[t] = tile[0]
    else:
        return


@cuda.jit
def fewer_trips(out, x):
    tile = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    for _ in range(t, x.shape[0]):
        tile[t] = x[t]
        cuda.syncthreads()
        out[t] = tile[t]


@cuda.jit
def breaks_off(out, x):
    tile = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    for k in range(8):
        if k + t >= x.shape[0]:
            break
        tile[t] = x[t]
        cuda.syncthreads()
        out[t] = tile[t]


@cuda.jit
def returns_early(out, x):
    tile = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    n = x.shape[0]
    rest = n - t
    if rest <= 0:
        return
    tile[t] = x[t]
    cuda.syncthreads()
    out[t] = tile[0]


@cuda.jit
def returns_in_the_loop(out, x):
    tile = cuda.shared.array(8, float32)
    t = cuda.threadIdx.x
    for k in range(8):
        tile[t] = x[0]
        cuda.syncthreads()
        if t < x.shape[0]:
            out[t] = tile[t]
        if t == k:
            return


@cuda.jit
def returns_or_passes_by(out, x):
    t = cuda.threadIdx.x
    if t >= x.shape[0] + 1:
        return
    if t < x.shape[0] - 1:
        cuda.syncthreads()
    if t < x.shape[0]:
        out[t] = x[t]


@cuda.jit(device=True)
def wait_for_all():
    cuda.syncthreads()


@cuda.jit
def waits_elsewhere(out, x):
    t = cuda.threadIdx.x
    if t < x.shape[0]:
        wait_for_all()
        out[t] = x[t]


@pytest.mark.parametrize(
    ("kernel", "mistake"),
    [
        (guarded, "barrier-under-condition"),
        (guarded_before_a_return, "barrier-under-condition"),
        (fewer_trips, "barrier-under-condition"),
        (breaks_off, "barrier-under-condition"),
        (waits_elsewhere, "barrier-under-condition"),
        (returns_early, "early-return-before-barrier"),
        (returns_in_the_loop, "early-return-before-barrier"),
        (returns_or_passes_by, "barrier-under-condition"),
    ],
)
def test_only_a_return_that_is_there_is_blamed(kernel, mistake):
    report = verify_kernel(
        kernel, launch_ones, lambda x: x, sizes=[{"N": 3}], only=["no hazard"]
    )
    check = report["no hazard"]
    assert "divergent-barrier" in check.what
    assert check.mistake == mistake


# -- bad subjects ---------------------------------------------------------


def launch_numbers(N):
    args = (np.zeros(N, float32), np.arange(N, dtype=float32))
    return Launch(-(-N // 8), 8, args)


def twice(x):
    return 2 * x


def test_what_is_no_kernel_is_reported():
    for kernel in (None, 3, "kernel"):
        report = verify_kernel(kernel, launch_numbers, twice)
        assert not report["runs"].passed
        assert "is not a kernel" in report["runs"].what


@cuda.jit
def doubled(out, x):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + x[i]


@cuda.jit
def doubles_its_input(out, x):
    i = cuda.grid(1)
    if i < out.size:
        x[i] = x[i] + x[i]
        out[i] = x[i]


@cuda.jit
def reads_twice(out, x):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = x[i] + x[i]
        out[i] = x[i] + x[i]


@cuda.jit
def overflows(out, x):
    i = cuda.grid(1)
    if i < out.size:
        power = math.exp(x[i])
        out[i] = power / (power * float32(2.0))


@cuda.jit
def never_ends(out, x):
    i = 0
    while i < 1:
        out[0] = x[0]


def failing(kernel, launch=launch_numbers, reference=twice, **options):
    report = verify_kernel(kernel, launch, reference, **options)
    assert not report.passed
    return {check.name: check.what for check in report.failures}


@pytest.mark.parametrize(
    ("launch", "words"),
    [
        (lambda N: None, "must return a Launch"),
        (lambda N: 1 / 0, "raised ZeroDivisionError"),
        (lambda N: Launch(1, 8, (1, 2)), "the outputs come first"),
        (lambda N: Launch(1, 8, (np.zeros(N),)), "takes 2 arguments"),
    ],
)
def test_a_launch_that_cannot_be_is_reported(launch, words):
    assert words in failing(doubled, launch)["runs"]


def test_a_reference_that_cannot_be_is_reported():
    shape = failing(doubled, reference=lambda x: x[:-1])["runs"]
    assert "reference gives shapes" in shape
    raised = failing(doubled, reference=lambda x, y: x)["runs"]
    assert "reference raised TypeError" in raised


def test_a_changed_input_is_reported():
    what = failing(doubles_its_input)
    assert "changed its input `x`" in what["inputs unchanged"]


def test_traffic_and_budget_name_the_array_and_the_ratio():
    def once(N):
        return {"x": (N, 0), "out": (0, N)}

    exact = failing(reads_twice, traffic=once)["traffic"]
    assert "`x`: 4 numbers are read, the formula says 1, 4 times" in exact
    within = failing(reads_twice, budget=once)["traffic"]
    assert "allowed are 1, 4 times as many" in within
    unknown = failing(doubled, traffic=lambda N: {"y": (N, 0)})["traffic"]
    assert "the kernel's parameters are out, x" in unknown
    broken = failing(doubled, traffic=lambda: {})["traffic"]
    assert "formula raised TypeError" in broken


def test_an_overflow_shows_with_large_inputs_only():
    def launch(N):
        x = np.full(N, 30.0, float32)
        return Launch(-(-N // 8), 8, (np.zeros(N, float32), x))

    what = failing(overflows, launch, lambda x: x * 0 + 0.5)
    assert set(what) == {"large scores"}
    assert "× 100" in what["large scores"]


def test_a_kernel_that_never_ends_is_stopped_and_reported():
    what = failing(never_ends, seconds=1.0)
    assert "never leaves this loop" in what["runs"]


def test_a_factory_gets_the_sizes():
    case = tiled_product()
    report = verify_kernel(
        lambda sizes: case.kernel if sizes["L"] else None, *case[1:3]
    )
    assert report.passed, str(report)


def test_a_mistake_without_a_card_is_said_in_words():
    what = failing(
        doubled, reference=lambda x: 3 * x, wrong_answers={"doubled": twice}
    )
    assert "These are the values of: doubled." in what["values"]
