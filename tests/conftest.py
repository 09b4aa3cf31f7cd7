"""What all tests share.

The suite runs without a GPU, in numba's CUDA simulator. What the simulator
cannot see, and green tests here therefore do not prove:

- races between threads, and a barrier that some threads skip;
- an early return before a barrier;
- more than 1024 threads in a block, or more than 48 KiB of shared memory;
- shared arrays whose shape is not a compile-time constant, or two on one line;
- float64 slipping into a float32 kernel, registers, spills, speed.
"""

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
