"""Numba's own simulator computes the same numbers.

It runs in a process of its own, as it cannot share one with the rest. Its
time is the barriers', so one process runs all kernels once.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from textbook_cases import cases

from attention_lab.gpu import record

pytest.importorskip("numba", reason="the cross-check needs Numba's simulator")

HERE = Path(__file__).resolve().parent
PROGRAM = """
import sys
import types

import numpy as np
from numba import cuda

# The kernels import `cuda` from our package; here that is the simulator's.
stand_in = types.ModuleType("attention_lab.gpu")
stand_in.cuda = cuda
sys.modules["attention_lab"] = types.ModuleType("attention_lab")
sys.modules["attention_lab.gpu"] = stand_in
sys.path.insert(0, {here!r})

# What the simulator's `cuda` lacks is needed for decorating only.
import textbook_cases

made = {{}}
for number, case in enumerate(textbook_cases.cases()):
    if case.in_simulator:
        case.kernel[case.grid, case.block, 0, case.shared_bytes](*case.args)
        made[str(number)] = case.args[0]
np.savez({out!r}, **made)
"""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    out = tmp_path_factory.mktemp("simulator") / "made.npz"
    program = PROGRAM.format(here=str(HERE), out=str(out))
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program],
        env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"},
        check=True,
        timeout=300,
    )
    with np.load(out) as made:
        return {int(name): made[name] for name in made.files}


def test_simulator_ran_most_of_the_kernels(simulated):
    assert len(simulated) >= 15


@pytest.mark.parametrize(
    "number",
    [n for n, case in enumerate(cases()) if case.in_simulator],
    ids=lambda n: str(cases()[n]),
)
def test_same_numbers_as_the_simulator(simulated, number):
    case = cases()[number]
    record(
        case.kernel,
        case.grid,
        case.block,
        *case.args,
        shared_bytes=case.shared_bytes,
    )
    if case.args[0].dtype.kind == "f":
        # The simulator takes exp in float64 and rounds later: 2 ulp.
        np.testing.assert_allclose(
            case.args[0], simulated[number], rtol=3e-7, atol=1e-7
        )
    else:
        np.testing.assert_array_equal(case.args[0], simulated[number])
