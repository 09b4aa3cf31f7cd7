"""The recorder runs where Numba and torch are not installed."""

import subprocess
import sys
import textwrap
from pathlib import Path

CODE = Path(__file__).resolve().parents[2] / "code"

PROGRAM = """
import sys

# None in sys.modules makes every import of the name fail.
for name in ("numba", "numba_cuda", "torch", "llvmlite", "matplotlib"):
    sys.modules[name] = None

import numpy as np

from attention_lab.gpu import cuda, record, to_device


@cuda.jit
def reverse(out, x):
    s = cuda.shared.array(32, cuda.float32)
    t = cuda.threadIdx.x
    s[t] = x[t]
    cuda.syncthreads()
    out[t] = s[31 - t] + cuda.shfl_xor_sync(0xFFFFFFFF, x[t], 1)


x = np.arange(32, dtype=np.float32)
out = np.zeros_like(x)
recording = record(reverse, 1, 32, out, x)
assert recording.hazards == (), recording
np.testing.assert_array_equal(out, x[::-1] + (np.arange(32) ^ 1))
device = to_device(np.zeros_like(x))
reverse[1, 32](device, x)
np.testing.assert_array_equal(device.copy_to_host(), out)
print("recorded", len(recording.events))
"""


def test_core_imports_and_records_without_numba_and_torch(tmp_path):
    script = tmp_path / "without.py"
    script.write_text(textwrap.dedent(PROGRAM))
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PYTHONPATH": str(CODE), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # 4 accesses per thread: x twice, s twice, out once makes 5.
    assert done.stdout == "recorded 160\n"


def test_importing_the_package_imports_neither(tmp_path):
    program = (
        "import sys, attention_lab.gpu\n"
        "print([n for n in ('numba', 'torch', 'matplotlib')"
        " if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(CODE), "PATH": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "[]\n"
