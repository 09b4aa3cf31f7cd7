"""How the figures' scripts are tested: by node's own test runner."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent / "interactive"
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(
    NODE is None, reason="the scripts' tests need node (18 or newer)"
)


def passed_tests(name: str, state: object, folder: Path) -> int:
    """Run interactive/NAME.test.mjs on a state; return how many tests passed.

    The tests read the file that the variable STATE names. One that fails is
    an AssertionError with what node printed.
    """
    path = folder / f"{name}.json"
    path.write_text(json.dumps(state), encoding="utf-8")
    ran = subprocess.run(
        [NODE, "--test", "--test-reporter=tap", HERE / f"{name}.test.mjs"],
        env={**os.environ, "STATE": str(path)},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    passed = re.search(r"^# pass (\d+)$", ran.stdout, flags=re.MULTILINE)
    assert passed is not None, ran.stdout
    return int(passed[1])
