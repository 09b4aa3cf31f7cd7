"""The steps' kernels in numba's simulator: another engine, the same numbers.

The simulator cannot share a process with the recorder, so one other process
runs all kernels once.
"""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from attention_lab.error_bound import error_bound
from attention_lab.examples import example_qkv
from attention_lab.gpu.door import DEVICE_VARIABLE
from cases import IMPLEMENTATIONS, random_mask

# numba's simulator has no shuffles, which the register tiles need.
KERNELS = [
    name
    for name in IMPLEMENTATIONS
    if name.endswith("_cuda") and "flash_register" not in name
]
MODES = {
    "plain": {},
    "causal": {"is_causal": True},
    "masked row": {"attn_mask": random_mask((1, 2, 5, 7))},
}
HERE = Path(__file__).parent
PROGRAM = f"""
import sys
sys.path[:0] = [{str(HERE.parent)!r}, {str(HERE)!r}]
import numpy as np
from attention_lab.gpu import where
import test_in_the_simulator as this
assert "simulator" in where()
np.savez(sys.argv[1], **this.results())
"""


def inputs():
    return example_qkv(B=1, H=2, L=5, S=7, D=3, D_v=2)


def results():
    """Return the output of every kernel in every mode."""
    return {
        f"{name} {mode}": IMPLEMENTATIONS[name](*inputs(), **options)
        for name in KERNELS
        for mode, options in MODES.items()
    }


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    out = tmp_path_factory.mktemp("simulator") / "results.npz"
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PROGRAM, out],
        env={**os.environ, DEVICE_VARIABLE: "simulator"},
        check=True,
        timeout=300,
    )
    with np.load(out) as made:
        return dict(made)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KERNELS)
def test_the_recorder_agrees_with_the_simulator(simulated, name, mode):
    options = MODES[mode]
    here = IMPLEMENTATIONS[name](*inputs(), **options)
    bound = error_bound(*inputs(), **options)
    there = simulated[f"{name} {mode}"]
    np.testing.assert_allclose(here, there, atol=bound, rtol=0)
