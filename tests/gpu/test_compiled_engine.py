"""Both engines give the same recording, bit for bit."""

import numpy as np
import pytest
from attention_kernels import make_flash
from mutants import MUTANTS
from textbook_cases import cases

from attention_lab.gpu import cuda, engines, record
from attention_lab.gpu.errors import KernelFault, UnsupportedConstruct
from attention_lab.gpu.launch import launch

pytest.importorskip("numba", reason="the compiled engine is Numba's")

# Compiling takes seconds each: a few kernels that use everything.
CASES = ["histogram", "votes"]
MISTAKES = ["no_guard", "shuffle_after_return"]


def both(kernel, grid, block, make_args, shared_bytes=0):
    """Return (recording, arguments) of both engines."""
    made = []
    for engine in ("python", "compiled"):
        args = make_args()
        recording = record(
            kernel,
            grid,
            block,
            *args,
            shared_bytes=shared_bytes,
            order="shuffled",
            seed=2,
            engine=engine,
        )
        assert recording.engine == engine
        made.append((recording, args))
    return made


def assert_same(made):
    """Compare everything that two engines leave behind."""
    (one, args), (two, other_args) = made
    for mine, other in zip(args, other_args, strict=True):
        np.testing.assert_array_equal(mine, other)
    assert one.events.sites == two.events.sites
    for column in ("site", "element", "thread", "block", "epoch", "clock"):
        np.testing.assert_array_equal(
            getattr(one.events, column), getattr(two.events, column)
        )
    assert one.hazards == two.hazards
    assert one.notes == two.notes
    assert one.traffic.as_data() == two.traffic.as_data()


@pytest.mark.parametrize("name", CASES)
def test_engines_agree_on_correct_kernels(name):
    names = [str(case) for case in cases()]
    number = names.index(name)
    case = cases()[number]
    assert_same(
        both(
            case.kernel,
            case.grid,
            case.block,
            lambda: cases()[number].args,
            case.shared_bytes,
        )
    )


@pytest.mark.parametrize("name", MISTAKES)
def test_engines_agree_on_mutants(name):
    mutant = next(m for m in MUTANTS if str(m).endswith(name))
    made = both(mutant.kernel, mutant.grid, mutant.block, mutant.args)
    assert_same(made)
    assert mutant.kind in made[1][0].kinds


def test_engines_agree_on_flash_and_a_small_log_grows(monkeypatch):
    from attention_lab.gpu import compiled_engine

    monkeypatch.setattr(compiled_engine, "FIRST_LOG", 100)

    def make_args():
        rng = np.random.default_rng(0)
        tensors = [
            rng.standard_normal((1, 2, 11, 5)).astype(np.float32)
            for _ in range(3)
        ]
        outputs = np.zeros((1, 2, 11, 5), np.float32), np.zeros((1, 2, 11))
        return *outputs, *tensors, np.float32(0.4)

    assert_same(both(make_flash(5, 4, 4, True), (3, 2), 4, make_args))


@cuda.jit
def gather(out, x, places):
    i = cuda.grid(1)
    if i < out.shape[0]:
        out[i] = x[places[i]]


def test_compiled_index_outside_is_an_error_with_its_line():
    args = np.zeros(2, np.float32), np.ones(3, np.float32), np.array([0, 9])
    for engine in ("python", "compiled"):
        with pytest.raises(KernelFault, match=r"line \d+ `out\[i\] = x\[pl"):
            launch(gather, (1, 1, 1), (2, 1, 1), args, engine=engine)


def test_auto_switches_when_the_interpreter_would_take_long(monkeypatch):
    monkeypatch.setattr(engines, "PATIENCE_SECONDS", 0.0)
    x = np.arange(6, dtype=np.float32)
    out = np.zeros(6, np.float32)
    recording = record(gather, 3, 2, out, x, np.arange(6)[::-1].copy())
    assert recording.engine == "compiled"
    np.testing.assert_array_equal(out, x[::-1])
    assert len(recording.events) == 18


def test_half_precision_is_refused_by_name():
    args = np.zeros(2, np.float16), np.ones(3, np.float16), np.array([0, 1])
    with pytest.raises(UnsupportedConstruct, match="float16"):
        launch(gather, (1, 1, 1), (2, 1, 1), args, engine="compiled")
    launch(gather, (1, 1, 1), (2, 1, 1), args)
    np.testing.assert_array_equal(args[0], [1, 1])
