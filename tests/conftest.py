"""What all tests share.

The suite runs without a GPU, on the recorder. What that cannot see, and green
tests here therefore do not prove:

- the speed of a GPU, and how its caches and schedulers behave;
- that another input has no race: a recording proves the recorded input only;
- what a GPU's compiler makes of a kernel, where its compiler is not installed
  (the compile cards, which are skipped then);
- the drivers and the memory of a real device (the tests marked `needs_gpu`).

numba's simulator sees less: no race, no barrier that some threads skip, no
early return before one, no limit on threads or shared memory, no float64 that
slips in.
"""

import os

# Where several processes share the cores, threads that wait for each other
# would take the time of the others. It must be said before torch is loaded.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest

from attention_lab.gpu.door import runs_on_gpu, where


def pytest_report_header() -> str:
    return f"attention_lab: {where()}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marker = item.get_closest_marker("needs_gpu")
        if marker and not runs_on_gpu():
            reason = f"needs a GPU: {marker.args[0]}"
            item.add_marker(pytest.mark.skip(reason=reason))
